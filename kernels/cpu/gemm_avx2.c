/* The f32 tile for AVX2 + FMA: 6 x 16, 12 accumulators of the 16 registers. Packing is plain loops. */
#include <stddef.h>
#include "gemm.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define MR 6
#define NR 16
#define ISA __attribute__((target("avx2,fma")))

/* Everything goes through a full local tile at the edges, so that the loops have one form. */
ISA static void tile(const struct wn__gemm_tile *t)
{
    float edge[MR * NR] __attribute__((aligned(32))) = {0};
    int32_t whole = t->m == MR && t->n == NR;
    float *c = whole ? t->c : edge;
    int64_t ldc = whole ? t->ldc : NR;
    if (!whole && !t->first)
        for (int64_t i = 0; i < t->m; i++)
            for (int64_t j = 0; j < t->n; j++) edge[i * NR + j] = t->c[i * t->ldc + j];
    __m256 acc[MR][2];
#pragma GCC unroll 6
    for (int32_t i = 0; i < MR; i++) {
        acc[i][0] = t->first ? _mm256_setzero_ps() : _mm256_loadu_ps(c + i * ldc);
        acc[i][1] = t->first ? _mm256_setzero_ps() : _mm256_loadu_ps(c + i * ldc + 8);
    }
    const float *a = t->a, *b = t->b;
    for (int64_t k = 0; k < t->kc; k++, a += MR, b += NR) {
        __m256 b0 = _mm256_load_ps(b), b1 = _mm256_load_ps(b + 8);
#pragma GCC unroll 6
        for (int32_t i = 0; i < MR; i++) {
            __m256 x = _mm256_broadcast_ss(a + i);
            acc[i][0] = _mm256_fmadd_ps(x, b0, acc[i][0]);
            acc[i][1] = _mm256_fmadd_ps(x, b1, acc[i][1]);
        }
    }
#pragma GCC unroll 6
    for (int32_t i = 0; i < MR; i++) {
        _mm256_storeu_ps(c + i * ldc, acc[i][0]);
        _mm256_storeu_ps(c + i * ldc + 8, acc[i][1]);
    }
    if (whole && !t->bias) return;
    for (int64_t i = 0; i < t->m; i++)
        for (int64_t j = 0; j < t->n; j++) t->c[i * t->ldc + j] = c[i * ldc + j] + (t->bias ? t->bias[j] : 0.0f);
}

ISA static void pack_b_rows(const float *b, int64_t ldb, int64_t n, int64_t kc, float *out)
{
    for (int64_t j = 0; j < NR; j++)
        for (int64_t k = 0; k < kc; k++) out[k * NR + j] = j < n ? b[j * ldb + k] : 0;
}

ISA static void pack_a_rows(const float *a, int64_t lda, int64_t m, int64_t kc, float *out)
{
    for (int64_t i = 0; i < MR; i++)
        for (int64_t k = 0; k < kc; k++) out[k * MR + i] = i < m ? a[i * lda + k] : 0;
}

const struct wn__gemm_kernel *wn__gemm_avx2(void)
{
    static const struct wn__gemm_kernel kernel = {MR, NR, tile, pack_b_rows, pack_a_rows};
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? &kernel : NULL;
}
#else
const struct wn__gemm_kernel *wn__gemm_avx2(void)
{
    return NULL;
}
#endif
