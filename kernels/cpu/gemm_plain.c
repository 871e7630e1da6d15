/* The f32 tile in plain C: the one that is always there, and the one to read first. It fuses multiply and add
 * where the machine does so in hardware, and rounds twice elsewhere. */
#include <math.h>
#include "gemm.h"

#define MR 4
#define NR 16

static inline float multiply_add(float a, float b, float c)
{
#if defined(FP_FAST_FMAF)
    return fmaf(a, b, c);
#else
    return a * b + c;
#endif
}

static void tile(const struct wn__gemm_tile *t)
{
    float acc[MR][NR] = {{0}};
    if (!t->first)
        for (int64_t i = 0; i < t->m; i++)
            for (int64_t j = 0; j < t->n; j++) acc[i][j] = t->c[i * t->ldc + j];
    for (int64_t k = 0; k < t->kc; k++)
        for (int32_t i = 0; i < MR; i++)
            for (int32_t j = 0; j < NR; j++) acc[i][j] = multiply_add(t->a[k * MR + i], t->b[k * NR + j], acc[i][j]);
    for (int64_t i = 0; i < t->m; i++)
        for (int64_t j = 0; j < t->n; j++) t->c[i * t->ldc + j] = t->bias ? acc[i][j] + t->bias[j] : acc[i][j];
}

static void pack_rows(const float *x, int64_t ld, int64_t n, int64_t kc, int64_t width, float *out)
{
    for (int64_t k = 0; k < kc; k++)
        for (int64_t j = 0; j < width; j++) out[k * width + j] = j < n ? x[j * ld + k] : 0;
}

static void pack_b_rows(const float *b, int64_t ldb, int64_t n, int64_t kc, float *out)
{
    pack_rows(b, ldb, n, kc, NR, out);
}

static void pack_a_rows(const float *a, int64_t lda, int64_t m, int64_t kc, float *out)
{
    pack_rows(a, lda, m, kc, MR, out);
}

const struct wn__gemm_kernel *wn__gemm_plain(void)
{
    static const struct wn__gemm_kernel kernel = {MR, NR, tile, pack_b_rows, pack_a_rows};
    return &kernel;
}
