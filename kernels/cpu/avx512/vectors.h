/* The vectors of AVX-512 for the kernels of gemm/microkernel.h: 16 lanes, masked loads and stores, 32 registers. */
#ifndef WN_CPU_AVX512_VECTORS_H
#define WN_CPU_AVX512_VECTORS_H
#include <immintrin.h>
#include <stdint.h>
#include "../common/types.h"

#define LANES 16
#define MR 8
#if defined(TILE_PAIRS)
#define UNROLL 2
#else
#define UNROLL 4
#endif

typedef __m512 vec;
typedef __mmask16 vec_mask;

INLINE vec_mask vec_first(int64_t n)
{
    return n >= 16 ? 0xffff : n <= 0 ? 0 : (vec_mask)((1u << n) - 1);
}

#define vec_zero() _mm512_setzero_ps()
#define vec_set1(x) _mm512_set1_ps(x)
#define vec_add(a, b) _mm512_add_ps(a, b)
#define vec_load(from) _mm512_loadu_ps(from)
#define vec_load_masked(from, mask) _mm512_maskz_loadu_ps(mask, from)
#define vec_store(to, v) _mm512_storeu_ps(to, v)
#define vec_store_masked(to, mask, v) _mm512_mask_storeu_ps(to, mask, v)
#define vec_stream(to, v) _mm512_stream_ps(to, v)
#define vec_keep(y) __asm__("" : "+v"(y))

/* The rows of a whole register tile: rows 0 and 5, and 1 and 3 times the bytes from row to row; an address adds 1, 2 or
 * 4 times a register. Pointers to all rows do not fit the registers beside the rest of a loop. */
#define OWN_APART
struct apart {
    const char *row0, *row5;
    int64_t by1, by3;
};

INLINE struct apart apart_of(const float *a, int64_t ai)
{
    struct apart rows = {(const char *)a, (const char *)(a + 5 * ai), 4 * ai, 12 * ai};
    __asm__("" : "+r"(rows.row5), "+r"(rows.by1), "+r"(rows.by3));
    return rows;
}

/* Returns the element that row i is at. */
INLINE const float *apart_row(const struct apart *rows, const int32_t i)
{
    const char *at = i >= 5 ? rows->row5 + (i - 5) * rows->by1 : rows->row0 + (i == 3 ? rows->by3 : i * rows->by1);
    return (const float *)(const void *)at;
}

/* Moves the rows on by ak words. */
INLINE void apart_next(struct apart *rows, int64_t ak)
{
    rows->row0 += 4 * ak;
    rows->row5 += 4 * ak;
    __asm__("" : "+r"(rows->row0), "+r"(rows->row5));
}

#define TILE_HALF
typedef __m256i vec_half; /* 16 bf16 */

#if defined(TILE_PAIRS)
#define vec_round(x) ((vec_half)_mm512_cvtneps_pbh(x))
#else
#define vec_multiply_add(a, b, c) _mm512_fmadd_ps(a, b, c)

/* Rounds as wn_to_bf16 does. */
INLINE vec_half vec_round(vec x)
{
    const __m512i bits = _mm512_castps_si512(x), high = _mm512_srli_epi32(bits, 16);
    const __m512i odd = _mm512_and_si512(high, _mm512_set1_epi32(1));
    const __m512i up = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
    const __m512i quiet = _mm512_or_si512(high, _mm512_set1_epi32(0x40));
    const __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    return _mm512_cvtepi32_epi16(_mm512_mask_mov_epi32(_mm512_srli_epi32(up, 16), nan, quiet));
}
#endif

#define vec_widen(h) _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16))
#define half_load(from) _mm256_loadu_si256((const __m256i *)(const void *)(from))
#define half_store(to, h) _mm256_storeu_si256((__m256i *)(void *)(to), h)
#define half_load_first(from, n) _mm256_maskz_loadu_epi16(vec_first(n), from)
#define half_store_first(to, n, h) _mm256_mask_storeu_epi16(to, vec_first(n), h)
#endif
