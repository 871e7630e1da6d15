/* The vectors of AVX2 with FMA for the kernels of gemm/microkernel.h: 8 lanes, 16 registers. A register tile of 4 x 24
 * takes 12 for sums, 3 for b and 1 for an element of a; its step is 12 multiply-adds and 7 loads, where 6 x 16 has 12
 * and 8, and four rows divide most batches. */
#ifndef WN_CPU_AVX2_VECTORS_H
#define WN_CPU_AVX2_VECTORS_H
#include <immintrin.h>
#include <stdint.h>
#include "../common/types.h"

#define LANES 8
#define MR 4
#define UNROLL 4

typedef __m256 vec;
typedef __m256i vec_mask;

INLINE vec_mask vec_first(int64_t n)
{
    int32_t lanes = n > 8 ? 8 : (int32_t)n;
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(lanes), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

#define vec_zero() _mm256_setzero_ps()
#define vec_set1(x) _mm256_set1_ps(x)
#define vec_add(a, b) _mm256_add_ps(a, b)
#define vec_load(from) _mm256_loadu_ps(from)
#define vec_load_masked(from, mask) _mm256_maskload_ps(from, mask)
#define vec_store(to, v) _mm256_storeu_ps(to, v)
#define vec_store_masked(to, mask, v) _mm256_maskstore_ps(to, mask, v)
#define vec_stream(to, v) _mm256_stream_ps(to, v)
#define vec_keep(y) __asm__("" : "+x"(y))
#define vec_multiply_add(a, b, c) _mm256_fmadd_ps(a, b, c)

#define TILE_HALF
typedef __m128i vec_half; /* 8 bf16 */

/* Rounds as wn_to_bf16 does. */
INLINE vec_half vec_round(vec x)
{
    const __m256i bits = _mm256_castps_si256(x), high = _mm256_srli_epi32(bits, 16);
    const __m256i odd = _mm256_and_si256(high, _mm256_set1_epi32(1));
    const __m256i up = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
    const __m256i quiet = _mm256_or_si256(high, _mm256_set1_epi32(0x40));
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    const __m256i half = _mm256_blendv_epi8(_mm256_srli_epi32(up, 16), quiet, nan);
    return _mm_packus_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
}

#define vec_widen(h) _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16))
#define half_load(from) _mm_loadu_si128((const __m128i *)(const void *)(from))
#define half_store(to, h) _mm_storeu_si128((__m128i *)(void *)(to), h)

INLINE vec_half half_load_first(const uint16_t *from, int64_t n)
{
    uint16_t part[LANES] = {0};
    for (int64_t j = 0; j < n && j < LANES; j++) part[j] = from[j];
    return half_load(part);
}

INLINE void half_store_first(uint16_t *to, int64_t n, vec_half h)
{
    uint16_t part[LANES];
    half_store(part, h);
    for (int64_t j = 0; j < n && j < LANES; j++) to[j] = part[j];
}

/* Adds *a x[v] to the sums of a row. The sums, x and the element take all registers; with intrinsics gcc loads x again
 * and again, and moves sums between registers and to the stack.
 * Measured, share of the peak in the first-level cache, k 96: intrinsics 55 %, one multiply-add a statement 85 %. */
#if !defined(__SANITIZE_ADDRESS__) /* which sees no load of a statement of assembly */
#define OWN_ROW
INLINE void multiply_row(const int32_t vectors, const float *a, const vec *x, vec *acc)
{
    vec y;
    if (vectors == 3)
        __asm__("vbroadcastss %7, %3\n\t"
                "vfmadd231ps %4, %3, %0\n\t"
                "vfmadd231ps %5, %3, %1\n\t"
                "vfmadd231ps %6, %3, %2"
                : "+x"(acc[0]), "+x"(acc[1]), "+x"(acc[2]), "=&x"(y)
                : "x"(x[0]), "x"(x[1]), "x"(x[2]), "m"(*a));
    else if (vectors == 2)
        __asm__("vbroadcastss %5, %2\n\t"
                "vfmadd231ps %3, %2, %0\n\t"
                "vfmadd231ps %4, %2, %1"
                : "+x"(acc[0]), "+x"(acc[1]), "=&x"(y)
                : "x"(x[0]), "x"(x[1]), "m"(*a));
    else
        __asm__("vbroadcastss %3, %1\n\t"
                "vfmadd231ps %2, %1, %0"
                : "+x"(acc[0]), "=&x"(y)
                : "x"(x[0]), "m"(*a));
}
#endif
#endif
