/* Element types of convolutions: f32 and bf16 as their products have them (gemm/words_f32.c, words_bf16.c), and f64,
 * whose micro-kernel is here. It rounds each product before it is added, as products of f64 do, so that all classes of
 * processors give the same bits. */
#include <stddef.h>
#include <string.h>
#include "conv.h"

/* A micro-tile of f64: 4 rows, and as many columns at a time as registers hold. */
#define MR 4
#define NR 8

/* Computes columns [at, at + n) of a micro-tile, n <= NR; b has NR columns from `at` on. All loops over sums are of
 * constants, so that sums stay in registers. */
static inline __attribute__((always_inline)) void microtile(const struct wn__gemm_microtile *t, int64_t at, int64_t n)
{
    double acc[MR][NR];
    const double *b = (const double *)(const void *)t->b + at, *row[MR];
    const double *bias = (const double *)(const void *)t->bias, *c = (const double *)(const void *)t->c + at;
#pragma GCC unroll 4
    for (int32_t i = 0; i < MR; i++) {
        row[i] = (const double *)(const void *)t->a + (i < t->m ? i : t->m - 1) * t->ai;
#pragma GCC unroll 8
        for (int32_t j = 0; j < NR; j++) acc[i][j] = t->first || i >= t->m || j >= n ? 0 : c[i * t->ldc + j];
    }
    for (int64_t k = 0; k < t->kc; k++, b += t->bk)
#pragma GCC unroll 4
        for (int32_t i = 0; i < MR; i++) {
            const double x = row[i][k * t->ak];
#pragma GCC unroll 8
            for (int32_t j = 0; j < NR; j++) acc[i][j] += x * b[j];
        }
    double *out = (double *)(void *)(t->out ? t->out : t->c) + at;
    const int64_t ld = t->out ? t->out_ld : t->ldc;
#pragma GCC unroll 4
    for (int32_t i = 0; i < MR; i++)
#pragma GCC unroll 8
        for (int32_t j = 0; j < NR; j++)
            if (i < t->m && j < n) out[i * ld + j] = bias ? acc[i][j] + bias[at + j] : acc[i][j];
}

static void microkernel(const struct wn__gemm_microtile *t)
{
    for (int64_t at = 0; at < t->n; at += NR)
        if (t->n - at >= NR) microtile(t, at, NR);
        else microtile(t, at, t->n - at);
}

static const struct wn__gemm_kernel kernel_f64 = {.mr = MR, .nr = WN_PANEL, .microkernel = microkernel};

static void pack(const struct wn__gemm_words *w, const struct wn__gemm_rows *x, float *packed)
{
    (void)w;
    double *to = (double *)(void *)packed;
    for (int64_t i = 0; i < x->rows; i += x->width, to += x->k * x->width) {
        const double *from = (const double *)x->x + i * x->xi;
        const int64_t n = wn_min(x->rows - i, x->width);
        for (int64_t k = 0; k < x->k; k++)
            for (int64_t j = 0; j < x->width; j++) to[k * x->width + j] = j < n ? from[j * x->xi + k * x->xk] : 0;
    }
}

static void store(const float *sums, const void *bias, int64_t n, void *c)
{
    const double *from = (const double *)(const void *)sums, *add = bias;
    for (int64_t j = 0; j < n; j++) ((double *)c)[j] = add ? from[j] + add[j] : from[j];
}

static void set_output(struct wn__gemm_microtile *t, void *c, int64_t ld, const void *bias)
{
    t->out = c;
    t->out_ld = ld;
    t->bias = bias;
}

struct wn__conv_words wn__conv_words_of(int32_t dtype)
{
    if (dtype == WN_F32) return (struct wn__conv_words){wn__gemm_words_f32(), 4};
    if (dtype == WN_BF16) {
        struct wn__gemm_words words = wn__gemm_words_bf16();
        return (struct wn__conv_words){words, words.per == 2 ? 2 : 4};
    }
    const struct wn__gemm_words words = {.kernel = &kernel_f64,
                                         .per = 1,
                                         .size = sizeof(double),
                                         .in_place = 1,
                                         .is_panel_packed = 1,
                                         .pack = pack,
                                         .store = store,
                                         .set_output = set_output};
    return (struct wn__conv_words){words, 8};
}
