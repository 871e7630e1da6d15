/* Element types of convolutions: f32 and bf16 as their products have them (gemm/words_f32.c, words_bf16.c), and f64,
 * whose micro-kernel is here. It rounds each product before it is added, as products of f64 do, so that all classes of
 * processors give the same bits. */
#include <stddef.h>
#include "../common/lanes.h"
#include "conv.h"

/* A micro-tile of f64: 4 rows, NR columns at a time, in vectors of the compiler, whose sums stay in registers. */
#define MR 4
#define VECTORS 2
#define LANES WN_F64_LANES
#define NR (VECTORS * LANES)
typedef wn__f64 vec;

/* Multiplies NR columns over all of k: acc += a b. */
INLINE void multiply(const double *const row[MR], const double *b, const struct wn__gemm_microtile *t,
                     double sums[MR][NR])
{
    vec acc[MR][VECTORS], x[VECTORS];
#pragma GCC unroll 4
    for (int32_t i = 0; i < MR; i++)
#pragma GCC unroll 2
        for (int32_t v = 0; v < VECTORS; v++) memcpy(&acc[i][v], &sums[i][v * LANES], sizeof acc[i][v]);
    for (int64_t k = 0; k < t->kc; k++, b += t->bk) {
#pragma GCC unroll 2
        for (int32_t v = 0; v < VECTORS; v++) memcpy(&x[v], b + v * LANES, sizeof x[v]);
#pragma GCC unroll 4
        for (int32_t i = 0; i < MR; i++)
#pragma GCC unroll 2
            for (int32_t v = 0; v < VECTORS; v++) acc[i][v] += row[i][k * t->ak] * x[v];
    }
#pragma GCC unroll 4
    for (int32_t i = 0; i < MR; i++)
#pragma GCC unroll 2
        for (int32_t v = 0; v < VECTORS; v++) memcpy(&sums[i][v * LANES], &acc[i][v], sizeof acc[i][v]);
}

/* Computes columns [at, at + n) of a micro-tile, n <= NR; b has NR columns from `at` on. */
static void microtile(const struct wn__gemm_microtile *t, int64_t at, int64_t n)
{
    double sums[MR][NR] __attribute__((aligned(64))) = {{0}};
    const double *b = (const double *)(const void *)t->b + at, *row[MR];
    const double *bias = (const double *)(const void *)t->bias, *c = (const double *)(const void *)t->c + at;
    for (int64_t i = 0; i < MR; i++) row[i] = (const double *)(const void *)t->a + (i < t->m ? i : t->m - 1) * t->ai;
    for (int64_t i = 0; i < t->m && !t->first; i++)
        for (int64_t j = 0; j < n; j++) sums[i][j] = c[i * t->ldc + j];
    multiply(row, b, t, sums);
    double *out = (double *)(void *)(t->out ? t->out : t->c) + at;
    const int64_t ld = t->out ? t->out_ld : t->ldc;
    for (int64_t i = 0; i < t->m; i++)
        for (int64_t j = 0; j < n; j++) out[i * ld + j] = bias ? sums[i][j] + bias[at + j] : sums[i][j];
}

static void microkernel(const struct wn__gemm_microtile *t)
{
    for (int64_t at = 0; at < t->n; at += NR) microtile(t, at, wn_min(t->n - at, NR));
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
                                         .set_output = wn__gemm_words_f32().set_output};
    return (struct wn__conv_words){words, 8};
}
