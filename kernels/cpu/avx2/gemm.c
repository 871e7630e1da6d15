/* The f32 micro-kernel for AVX2 and FMA: 6 x 16, which takes 12 of the 16 registers. A micro-panel that is read in
 * place is packed first, and edges are computed in a full local micro-tile, so that the loops have one form. */
#include <immintrin.h>
#include <stddef.h>
#include "../gemm/gemm.h"

#define MR 6
#define NR 16
_Static_assert(WN_GEMM_NR_MAX % NR == 0, "micro-panels of 48 columns hold whole ones of every micro-kernel");
#define INLINE static inline __attribute__((always_inline))

/* Packs b: (kc, n), in place, to copy: (kc, 16), zeros beyond n. */
INLINE void pack_micropanel(const struct wn__gemm_microtile *t)
{
    const float *from = t->b;
    float *to = t->copy;
    for (int64_t k = 0; k < t->kc; k++, from += t->bk, to += NR) {
        if (t->n == NR) {
            _mm256_store_ps(to, _mm256_loadu_ps(from));
            _mm256_store_ps(to + 8, _mm256_loadu_ps(from + 8));
        } else {
            for (int64_t j = 0; j < NR; j++) to[j] = j < t->n ? from[j] : 0;
        }
    }
}

/* Computes out: (6, 16) = c + a b over kc steps; rows of out are ld words apart, rows of c ldc. */
INLINE void run_steps(const struct wn__gemm_microtile *t, const float *b, int64_t bk, const float *c, int64_t ldc,
                      float *out, int64_t ld)
{
    __m256 acc[MR][2];
    const float *row[MR]; /* rows beyond m repeat the last one */
#pragma GCC unroll 6
    for (int32_t i = 0; i < MR; i++) {
        row[i] = t->a + (i < t->m ? i : t->m - 1) * t->ai;
        acc[i][0] = t->first ? _mm256_setzero_ps() : _mm256_loadu_ps(c + i * ldc);
        acc[i][1] = t->first ? _mm256_setzero_ps() : _mm256_loadu_ps(c + i * ldc + 8);
    }
    const char *prefetch_row = t->prefetch;
    const int64_t group = t->prefetch_near ? WN_GEMM_NEAR_STEPS : WN_GEMM_FAR_STEPS;
    int64_t at = 0;
    for (int64_t k0 = 0; k0 < t->kc; k0 += group, prefetch_row += t->prefetch_row) {
        const char *prefetch = prefetch_row;
        for (int64_t k = t->kc - k0 < group ? t->kc - k0 : group; k > 0; k--, at += t->ak, b += bk) {
            _mm_prefetch(prefetch, _MM_HINT_T1);
            prefetch += t->prefetch_step;
            __m256 b0 = _mm256_load_ps(b), b1 = _mm256_load_ps(b + 8);
#pragma GCC unroll 6
            for (int32_t i = 0; i < MR; i++) {
                __m256 x = _mm256_broadcast_ss(row[i] + at);
                acc[i][0] = _mm256_fmadd_ps(x, b0, acc[i][0]);
                acc[i][1] = _mm256_fmadd_ps(x, b1, acc[i][1]);
            }
        }
    }
#pragma GCC unroll 6
    for (int32_t i = 0; i < MR; i++) {
        _mm256_storeu_ps(out + i * ld, acc[i][0]);
        _mm256_storeu_ps(out + i * ld + 8, acc[i][1]);
    }
}

static void microkernel(const struct wn__gemm_microtile *t)
{
    float edge[MR * NR] __attribute__((aligned(32))) = {0};
    int32_t whole = t->m == MR && t->n == NR;
    float *out = t->out ? t->out : t->c;
    int64_t ld = t->out ? t->out_ld : t->ldc;
    const float *b = t->copy ? t->copy : t->b;
    int64_t bk = t->copy ? NR : t->bk;
    if (t->copy) pack_micropanel(t);
    if (whole) {
        run_steps(t, b, bk, t->c, t->ldc, out, ld);
        if (!t->bias && !t->row_bias) return;
    } else {
        for (int64_t i = 0; i < t->m && !t->first; i++)
            for (int64_t j = 0; j < t->n; j++) edge[i * NR + j] = t->c[i * t->ldc + j];
        run_steps(t, b, bk, edge, NR, edge, NR);
    }
    const float *sums = whole ? out : edge;
    int64_t lds = whole ? ld : NR;
    for (int64_t i = 0; i < t->m; i++)
        for (int64_t j = 0; j < t->n; j++) {
            float sum = t->bias ? sums[i * lds + j] + t->bias[j] : sums[i * lds + j];
            out[i * ld + j] = t->row_bias ? sum + t->row_bias[i] : sum;
        }
}

/* Transposes 8 x 8 words: exchanges pairs, then quads, then halves of rows. */
INLINE void transpose8(__m256 r[8])
{
    __m256 t[8], u[8];
#pragma GCC unroll 4
    for (int32_t i = 0; i < 4; i++) {
        t[2 * i] = _mm256_unpacklo_ps(r[2 * i], r[2 * i + 1]);
        t[2 * i + 1] = _mm256_unpackhi_ps(r[2 * i], r[2 * i + 1]);
    }
#pragma GCC unroll 2
    for (int32_t i = 0; i < 2; i++) {
        u[4 * i] = _mm256_shuffle_ps(t[4 * i], t[4 * i + 2], 0x44);
        u[4 * i + 1] = _mm256_shuffle_ps(t[4 * i], t[4 * i + 2], 0xee);
        u[4 * i + 2] = _mm256_shuffle_ps(t[4 * i + 1], t[4 * i + 3], 0x44);
        u[4 * i + 3] = _mm256_shuffle_ps(t[4 * i + 1], t[4 * i + 3], 0xee);
    }
#pragma GCC unroll 4
    for (int32_t i = 0; i < 4; i++) {
        r[i] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x20);
        r[i + 4] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x31);
    }
}

static void transpose(const float *x, int64_t ldx, int64_t m, int64_t n, float *to, int64_t ldt)
{
    int64_t rows = m / 8 * 8, columns = n / 8 * 8;
    for (int64_t i = 0; i < rows; i += 8) {
        for (int64_t j = 0; j < columns; j += 8) {
            __m256 r[8];
#pragma GCC unroll 8
            for (int32_t q = 0; q < 8; q++) r[q] = _mm256_loadu_ps(x + (i + q) * ldx + j);
            transpose8(r);
#pragma GCC unroll 8
            for (int32_t q = 0; q < 8; q++) _mm256_storeu_ps(to + (j + q) * ldt + i, r[q]);
        }
    }
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = i < rows ? columns : 0; j < n; j++) to[j * ldt + i] = x[i * ldx + j];
}

const struct wn__gemm_kernel wn__gemm_avx2 = {MR, NR, microkernel, NULL, transpose, NULL, NULL};
