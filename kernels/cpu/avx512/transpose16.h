/* Transposes squares of words in registers, 8 x 16 and 16 x 16, and by them rows in memory: for packing (gemm.c,
 * gemm_bf16.c) and for permute (transpose.c). */
#ifndef WN_CPU_AVX512_TRANSPOSE16_H
#define WN_CPU_AVX512_TRANSPOSE16_H
/* Transposes 8 rows of 16 steps: r[i] becomes steps 2 i and 2 i + 1 of all 8 rows. Blocks of four steps are transposed,
 * then moved to their places. */
INLINE void transpose8(__m512 r[8])
{
    __m512 t[8];
#pragma GCC unroll 2
    for (int32_t i = 0; i < 2; i++) {
        __m512d p = _mm512_castps_pd(_mm512_unpacklo_ps(r[4 * i], r[4 * i + 1]));
        __m512d q = _mm512_castps_pd(_mm512_unpacklo_ps(r[4 * i + 2], r[4 * i + 3]));
        __m512d u = _mm512_castps_pd(_mm512_unpackhi_ps(r[4 * i], r[4 * i + 1]));
        __m512d v = _mm512_castps_pd(_mm512_unpackhi_ps(r[4 * i + 2], r[4 * i + 3]));
        t[4 * i] = _mm512_castpd_ps(_mm512_unpacklo_pd(p, q));
        t[4 * i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(p, q));
        t[4 * i + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(u, v));
        t[4 * i + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(u, v));
    }
#pragma GCC unroll 2
    for (int32_t i = 0; i < 2; i++) {
        __m512 p = _mm512_shuffle_f32x4(t[2 * i], t[2 * i + 4], 0x44);
        __m512 q = _mm512_shuffle_f32x4(t[2 * i + 1], t[2 * i + 5], 0x44);
        __m512 u = _mm512_shuffle_f32x4(t[2 * i], t[2 * i + 4], 0xee);
        __m512 v = _mm512_shuffle_f32x4(t[2 * i + 1], t[2 * i + 5], 0xee);
        r[i] = _mm512_shuffle_f32x4(p, q, 0x88);
        r[i + 2] = _mm512_shuffle_f32x4(p, q, 0xdd);
        r[i + 4] = _mm512_shuffle_f32x4(u, v, 0x88);
        r[i + 6] = _mm512_shuffle_f32x4(u, v, 0xdd);
    }
}

/* Transposes 16 x 16 words: exchanges pairs, then quads, then halves of rows. */
INLINE void transpose16(__m512 r[16])
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

INLINE __mmask32 first_halves(int64_t n)
{
    return n >= 32 ? 0xffffffffu : n <= 0 ? 0 : (__mmask32)((1u << n) - 1);
}

/* Transposes `rows` rows of x, `step` halves apart, n halves along memory: to (words, rows), ldt words apart; a word is
 * two halves, and of an odd n the last half is 0. */
INLINE void transpose_words(const uint16_t *x, int64_t step, int64_t rows, int64_t n, float *to, int64_t ldt)
{
    for (int64_t i = 0; i < rows; i += 16) {
        const __mmask16 row_mask = vec_first(rows - i);
        for (int64_t j = 0; j < n; j += 32) {
            const __mmask32 mask = first_halves(n - j);
            const int64_t words = (n - j + 1) / 2;
            float *out = to + j / 2 * ldt + i;
            __m512 r[16];
#pragma GCC unroll 16
            for (int32_t q = 0; q < 16; q++)
                r[q] = i + q < rows ? _mm512_castsi512_ps(_mm512_maskz_loadu_epi16(mask, x + (i + q) * step + j))
                                    : _mm512_setzero_ps();
            transpose16(r);
#pragma GCC unroll 16
            for (int32_t q = 0; q < 16; q++)
                if (q < words) _mm512_mask_storeu_ps(out + q * ldt, row_mask, r[q]);
        }
    }
}

/* Transposes at most 8 rows of x likewise, as a micro-panel of a: to (words, 8), zeros beyond the rows. */
INLINE void transpose_8_words(const uint16_t *x, int64_t step, int64_t rows, int64_t n, float *to)
{
    for (int64_t j = 0; j < n; j += 32) {
        const __mmask32 mask = first_halves(n - j);
        const int64_t words = (n - j + 1) / 2;
        __m512 r[8];
#pragma GCC unroll 8
        for (int32_t q = 0; q < 8; q++)
            r[q] =
                q < rows ? _mm512_castsi512_ps(_mm512_maskz_loadu_epi16(mask, x + q * step + j)) : _mm512_setzero_ps();
        transpose8(r);
#pragma GCC unroll 8
        for (int32_t q = 0; q < 8; q++)
            if (2 * q < words) _mm512_mask_storeu_ps(to + 4 * j + 16 * q, 2 * q + 1 < words ? 0xffff : 0xff, r[q]);
    }
}
#endif
