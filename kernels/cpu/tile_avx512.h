/* The tile for AVX-512: 8 rows x 1, 2 or 3 vectors of 16, one broadcast of A for up to three multiply-adds.
 * B is read from a packed strip, or in place while the strip is packed on the way: the stores cost nothing beside
 * the arithmetic. While it runs it touches the memory that is needed next, a line a step.
 *
 * Included by one file for floats and by one for pairs of bf16, which lie in words of the same size. They define
 *   TILE_ISA                 the target's instruction sets
 *   MULTIPLY_ADD(a, b, c)    a b + c in each of 16 lanes of f32
 *   TILE_FAR_STEPS           k steps that touch ahead in one row, for the second cache
 *   TILE_HALF                when a tile can leave its sums as bf16 */
#ifndef WN_CPU_TILE_AVX512_H
#define WN_CPU_TILE_AVX512_H
#include <immintrin.h>
#include <stddef.h>
#include "gemm.h"

#define MR 8
#define NR 48
_Static_assert(WN_GEMM_NR_MAX % NR == 0, "strips of 48 columns hold whole strips of every tile");
#define ISA __attribute__((target(TILE_ISA)))
#define ISA_INLINE static inline __attribute__((always_inline, target(TILE_ISA)))

/* The lanes of vector v (0..2) that hold one of n columns. */
ISA_INLINE __mmask16 lanes(int64_t n, int32_t v)
{
    int64_t left = n - 16 * v;
    return left >= 16 ? 0xffff : left <= 0 ? 0 : (__mmask16)((1u << left) - 1);
}

ISA_INLINE void add_bias(const struct wn__gemm_tile *t, const int32_t vectors, __m512 acc[MR][3])
{
    if (t->bias) {
#pragma GCC unroll 3
        for (int32_t v = 0; v < vectors; v++) {
            __m512 bias = _mm512_maskz_loadu_ps(lanes(t->n, v), t->bias + 16 * v);
#pragma GCC unroll 8
            for (int32_t i = 0; i < MR; i++) acc[i][v] = _mm512_add_ps(acc[i][v], bias);
        }
    }
    if (t->row_bias) {
#pragma GCC unroll 8
        for (int32_t i = 0; i < MR; i++) {
            __m512 bias = _mm512_set1_ps(i < t->m ? t->row_bias[i] : 0.0f);
#pragma GCC unroll 3
            for (int32_t v = 0; v < vectors; v++) acc[i][v] = _mm512_add_ps(acc[i][v], bias);
        }
    }
}

ISA_INLINE void store_tile(const struct wn__gemm_tile *t, const int32_t vectors, const int32_t whole, __m512 acc[MR][3])
{
    if (t->bias || t->row_bias) add_bias(t, vectors, acc);
    if (t->stream && t->n % 16 == 0) {
#pragma GCC unroll 8
        for (int32_t i = 0; i < MR; i++)
#pragma GCC unroll 3
            for (int32_t v = 0; v < vectors; v++)
                if (whole || i < t->m) _mm512_stream_ps(t->c + i * t->ldc + 16 * v, acc[i][v]);
        return;
    }
#pragma GCC unroll 8
    for (int32_t i = 0; i < MR; i++)
#pragma GCC unroll 3
        for (int32_t v = 0; v < vectors; v++)
            if (whole) _mm512_storeu_ps(t->c + i * t->ldc + 16 * v, acc[i][v]);
            else if (i < t->m) _mm512_mask_storeu_ps(t->c + i * t->ldc + 16 * v, lanes(t->n, v), acc[i][v]);
}

#if defined(TILE_HALF)
ISA_INLINE void store_half(const struct wn__gemm_tile *t, const int32_t vectors, const int32_t whole, __m512 acc[MR][3])
{
    if (t->half_bias) {
#pragma GCC unroll 3
        for (int32_t v = 0; v < vectors; v++) {
            __m512i bits = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(lanes(t->n, v), t->half_bias + 16 * v));
            __m512 bias = _mm512_castsi512_ps(_mm512_slli_epi32(bits, 16));
#pragma GCC unroll 8
            for (int32_t i = 0; i < MR; i++) acc[i][v] = _mm512_add_ps(acc[i][v], bias);
        }
    }
#pragma GCC unroll 8
    for (int32_t i = 0; i < MR; i++) {
        uint16_t *to = t->half + i * t->half_ld;
        if (!whole && i >= t->m) break;
        if (vectors == 2 && whole && t->stream) {
            _mm512_stream_si512((__m512i *)to, (__m512i)_mm512_cvtne2ps_pbh(acc[i][1], acc[i][0]));
            continue;
        }
#pragma GCC unroll 3
        for (int32_t v = 0; v < vectors; v++) {
            __m256i h = (__m256i)_mm512_cvtneps_pbh(acc[i][v]);
            if (whole) _mm256_storeu_si256((__m256i *)(to + 16 * v), h);
            else _mm256_mask_storeu_epi16(to + 16 * v, lanes(t->n, v), h);
        }
    }
}
#endif

ISA_INLINE void load_tile(const struct wn__gemm_tile *t, const int32_t vectors, const int32_t whole, __m512 acc[MR][3])
{
#pragma GCC unroll 8
    for (int32_t i = 0; i < MR; i++)
#pragma GCC unroll 3
        for (int32_t v = 0; v < vectors; v++) acc[i][v] = _mm512_setzero_ps();
    if (t->first) return;
#pragma GCC unroll 8
    for (int32_t i = 0; i < MR; i++)
#pragma GCC unroll 3
        for (int32_t v = 0; v < vectors; v++) {
            const float *c = t->c + i * t->ldc + 16 * v;
            if (whole) acc[i][v] = _mm512_loadu_ps(c);
            else if (i < t->m) acc[i][v] = _mm512_maskz_loadu_ps(lanes(t->n, v), c);
        }
}

/* Vector v of a step of b, where b lies in place; lanes not in mask are zero. */
ISA_INLINE __m512 load_in_place(const float *b, int64_t bk, int32_t v, __mmask16 mask)
{
#if defined(TILE_HALF) /* a step is two rows: bk words from one step to the next, bk halves from row to row */
    const uint16_t *even = (const uint16_t *)(const void *)b + 16 * v;
    __m512i low = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, even));
    __m512i high = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, even + bk));
    return _mm512_castsi512_ps(_mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
#else
    (void)bk;
    return _mm512_maskz_loadu_ps(mask, b + 16 * v);
#endif
}

/* What follows t is constant where this is called. whole: all mr rows and all lanes of the vectors are used. */
ISA_INLINE void tile_of(const struct wn__gemm_tile *t, const int32_t vectors, const int32_t copy, const int32_t near,
                        const int32_t whole)
{
    __m512 acc[MR][3];
    __mmask16 mask[3] = {lanes(t->n, 0), lanes(t->n, 1), lanes(t->n, 2)};
    const float *row[MR]; /* rows beyond m repeat the last one and are not stored */
#pragma GCC unroll 8
    for (int32_t i = 0; i < MR; i++) row[i] = t->a + (whole || i < t->m ? i : t->m - 1) * t->ai;
    load_tile(t, vectors, whole, acc);
    const float *b = t->b;
    float *to = t->copy;
    const char *ahead_row = t->ahead;
    /* In locals, since the compiler cannot know that storing the copy leaves the request alone. */
    const int64_t kc = t->kc, ak = t->ak, bk = t->bk, ahead_step = t->ahead_step;
    const int64_t group = near ? WN_GEMM_NEAR_STEPS : TILE_FAR_STEPS;
    int64_t at = 0;
    for (int64_t k0 = 0; k0 < kc; k0 += group, ahead_row += t->ahead_row) {
        const char *ahead = ahead_row;
        for (int64_t k = kc - k0 < group ? kc - k0 : group; k > 0; k--, at += ak, b += bk) {
            if (near) _mm_prefetch(ahead, _MM_HINT_T0);
            else _mm_prefetch(ahead, _MM_HINT_T1);
            ahead += ahead_step;
            __m512 x[3];
#pragma GCC unroll 3
            for (int32_t v = 0; v < vectors; v++) {
                x[v] = copy ? load_in_place(b, bk, v, whole ? 0xffff : mask[v]) : _mm512_load_ps(b + 16 * v);
                if (copy) _mm512_store_ps(to + 16 * v, x[v]);
            }
            if (copy) to += NR;
#pragma GCC unroll 8
            for (int32_t i = 0; i < MR; i++) {
                __m512 y = _mm512_set1_ps(row[i][at]);
                __asm__("" : "+v"(y)); /* one load: else each multiply-add broadcasts again */
#pragma GCC unroll 3
                for (int32_t v = 0; v < vectors; v++) acc[i][v] = MULTIPLY_ADD(y, x[v], acc[i][v]);
            }
        }
    }
#if defined(TILE_HALF)
    if (t->half) {
        store_half(t, vectors, whole, acc);
        return;
    }
#endif
    store_tile(t, vectors, whole, acc);
}

#define TILE(NAME, VECTORS, COPY, NEAR)                                                                                \
    ISA static void NAME(const struct wn__gemm_tile *t)                                                                \
    {                                                                                                                  \
        if (t->m == MR && t->n == 16 * VECTORS) tile_of(t, VECTORS, COPY, NEAR, 1);                                    \
        else tile_of(t, VECTORS, COPY, NEAR, 0);                                                                       \
    }
TILE(far_1, 1, 0, 0)
TILE(far_2, 2, 0, 0)
TILE(far_3, 3, 0, 0)
TILE(near_1, 1, 0, 1)
TILE(near_2, 2, 0, 1)
TILE(near_3, 3, 0, 1)
TILE(copy_1, 1, 1, 0)
TILE(copy_2, 2, 1, 0)
TILE(copy_3, 3, 1, 0)

static void tile(const struct wn__gemm_tile *t)
{
    static void (*const of[3][3])(const struct wn__gemm_tile *) = {
        {far_1, far_2, far_3}, {near_1, near_2, near_3}, {copy_1, copy_2, copy_3}};
    of[t->copy ? 2 : t->ahead_near ? 1 : 0][(t->n - 1) / 16](t);
}

/* 16 x 16 in registers: pairs, quads, then halves of rows change places. */
ISA_INLINE void transpose16(__m512 r[16])
{
    __m512 t[16];
#pragma GCC unroll 8
    for (int32_t i = 0; i < 8; i++) {
        t[2 * i] = _mm512_unpacklo_ps(r[2 * i], r[2 * i + 1]);
        t[2 * i + 1] = _mm512_unpackhi_ps(r[2 * i], r[2 * i + 1]);
    }
#pragma GCC unroll 4
    for (int32_t i = 0; i < 4; i++) {
        __m512d p = _mm512_castps_pd(t[4 * i]), q = _mm512_castps_pd(t[4 * i + 1]);
        __m512d u = _mm512_castps_pd(t[4 * i + 2]), v = _mm512_castps_pd(t[4 * i + 3]);
        r[4 * i] = _mm512_castpd_ps(_mm512_unpacklo_pd(p, u));
        r[4 * i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(p, u));
        r[4 * i + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(q, v));
        r[4 * i + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(q, v));
    }
#pragma GCC unroll 4
    for (int32_t i = 0; i < 4; i++) {
        t[i] = _mm512_shuffle_f32x4(r[i], r[i + 4], 0x88);
        t[i + 4] = _mm512_shuffle_f32x4(r[i], r[i + 4], 0xdd);
        t[i + 8] = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0x88);
        t[i + 12] = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0xdd);
    }
#pragma GCC unroll 4
    for (int32_t i = 0; i < 4; i++) {
        r[i] = _mm512_shuffle_f32x4(t[i], t[i + 8], 0x88);
        r[i + 8] = _mm512_shuffle_f32x4(t[i], t[i + 8], 0xdd);
        r[i + 4] = _mm512_shuffle_f32x4(t[i + 4], t[i + 12], 0x88);
        r[i + 12] = _mm512_shuffle_f32x4(t[i + 4], t[i + 12], 0xdd);
    }
}
#endif
