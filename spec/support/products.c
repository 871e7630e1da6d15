/* Products by the micro-kernels of one class, for product_spec: built by the spec from the kernels' own files, once for
 * each class (tiles.lua). */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "../../kernels/cpu/backend/class.h"
#include "../../kernels/cpu/backend/tuning.h"
#include "../../kernels/cpu/element/elementwise.h"
#include "../../kernels/cpu/gemm/gemm.h"
#include "../../kernels/cpu/common/micro.h"

#if defined(PRODUCTS_NEON)
const struct wn__micro wn__micro = {.gemm = &wn__gemm_neon};
#elif defined(__AVX512F__)
const struct wn__micro wn__micro = {.gemm = &wn__gemm_avx512, .gemm_bf16 = &wn__gemm_bf16_avx512};
#elif defined(__AVX2__)
const struct wn__micro wn__micro = {.gemm = &wn__gemm_avx2};
#else
const struct wn__micro wn__micro = {.gemm = &wn__gemm_plain};
#endif

/* Returns 0: this processor lacks the class; 1: it has the class; 2: it multiplies pairs of bf16 in it, too. */
int products_here(void)
{
#if defined(__AVX512F__)
    if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512dq") ||
        !__builtin_cpu_supports("avx512bw") || !__builtin_cpu_supports("avx512vl"))
        return 0;
    return 1 + (__builtin_cpu_supports("avx512bf16") != 0);
#elif defined(__AVX2__)
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#else
    return 1;
#endif
}

static int with_bf16;

/* Sets whether products of bf16 use instructions for pairs. */
void products_bf16(int with)
{
    with_bf16 = with;
}

/* Stands in for that of backend/tuning.c. */
struct wn__tuning wn__tuning = {.stream_ahead = 4096,
                                .thread_grain = WN_THREAD_GRAIN,
                                .product_block = 256 << 10,
                                .product_stream = 4 << 20,
                                .product_ahead = 640};

/* Stands in for the function of backend/class.c. */
int32_t wn__cpu_has_avx512_bf16(void)
{
    return with_bf16;
}

/* Stands in for the library's function of this name and aborts: no product here has an op over it (p->map), as such
 * products are specified through the library. */
void wn__elementwise_run(const struct wn__elementwise *s, const struct wn__operands *o, int64_t n, int64_t at)
{
    (void)s, (void)o, (void)n, (void)at;
    abort();
}

static uint32_t state;

static float small_integer(void) /* -8..8: sums of products stay whole, so a product has one right answer */
{
    state = state * 1664525u + 1013904223u;
    return (float)((int32_t)(state >> 20) % 17 - 8);
}

static void put(void *x, int64_t i, float v, int bf16)
{
    if (bf16) ((uint16_t *)x)[i] = wn_to_bf16(v);
    else ((float *)x)[i] = v;
}

static float get(const void *x, int64_t i, int bf16)
{
    return bf16 ? wn_from_bf16(((const uint16_t *)x)[i]) : ((const float *)x)[i];
}

/* Returns the index of element (k, j) of matrix `batch` of b. */
static int64_t place_b(const struct wn__gemm *p, int64_t batch, int64_t k, int64_t j)
{
    int64_t width, at;
    if (!p->b_panels) return batch * p->n * p->k + j * p->bj + k * p->bk;
    at = p->bj == 1 ? wn__panel_row(p->n, p->k, j, &width) : wn__panel_row(p->k, p->n, k, &width);
    return at + (p->bj == 1 ? k : j) * width;
}

static int64_t place_c(const struct wn__gemm *p, int64_t batch, int64_t i, int64_t j)
{
    int64_t width;
    if (!p->c_panels) return (batch * p->m + i) * p->n + j;
    int64_t at = wn__panel_row(p->n, p->m, j, &width);
    return at + i * width;
}

static int64_t count_wrong(const struct wn__gemm *p, int bf16)
{
    int64_t wrong = 0;
    for (int64_t r = 0; r < p->batch * p->m; r++) {
        int64_t batch = r / p->m, i = r % p->m;
        for (int64_t j = 0; j < p->n; j++) {
            double sum = p->bias ? get(p->bias, j, bf16) : 0;
            for (int64_t k = 0; k < p->k; k++)
                sum += (double)get(p->a, batch * p->m * p->k + i * p->ai + k * p->ak, bf16) *
                       (double)get(p->b, place_b(p, batch, k, j), bf16);
            float want = bf16 ? wn_from_bf16(wn_to_bf16((float)sum)) : (float)sum;
            if (!(get(p->c, place_c(p, batch, i, j), bf16) == want)) wrong++;
        }
    }
    return wrong;
}

/* Counts the wrong elements of product p of small integers; -1: something beside c was written. p's sizes and strides
 * are set. */
static int64_t try_product(struct wn__gemm p, int threads, int bf16, int with_bias)
{
    int64_t batch = p.batch, m = p.m, n = p.n, k = p.k, size = bf16 ? 2 : 4, numel = batch * m * n;
    char *a = malloc((size_t)(batch * m * k * size + 1));
    char *b = aligned_alloc(64, (size_t)((batch * n * k * size + 64) / 64 * 64)); /* as tensors are */
    char *bias = malloc((size_t)(n * size + 1));
    char *c = aligned_alloc(64, (size_t)((numel * size + 127) / 64 * 64)); /* as tensors are: or nothing would stream */
    state = (uint32_t)(m * 31 + n * 7 + k);
    for (int64_t i = 0; i < batch * m * k; i++) put(a, i, small_integer(), bf16);
    for (int64_t i = 0; i < batch * n * k; i++) put(b, i, small_integer(), bf16);
    for (int64_t i = 0; i < n; i++) put(bias, i, small_integer(), bf16);
    p.a = a;
    p.b = b;
    p.c = c;
    p.bias = with_bias ? bias : NULL;
    p.broadcast = (struct wn__broadcast){.n_operands = 2, .ndim = 1, .numel = batch};
    p.broadcast.dim[0] = batch;
    p.broadcast.step[0][0] = p.broadcast.step[1][0] = 1;
    memset(c, 0xff, (size_t)(numel * size + 64)); /* NaN */
    wn_cpu_set_threads(threads);
    if (bf16) wn__gemm_bf16(&p);
    else wn__gemm_f32(&p);
    int64_t wrong = count_wrong(&p, bf16);
    for (int64_t i = 0; i < 64; i++)
        if ((unsigned char)c[numel * size + i] != 0xff) wrong = -1;
    free(a);
    free(b);
    free(bias);
    free(c);
    return wrong;
}

/* Counts the wrong elements of a batch of plain products at the level that products_bf16 set. */
int64_t products_wrong(int threads, int bf16, int64_t batch, int64_t m, int64_t n, int64_t k, int flip_a, int flip_b,
                       int with_bias)
{
    struct wn__gemm p = {.m = m, .n = n, .k = k, .batch = batch};
    p.ai = flip_a ? 1 : k;
    p.ak = flip_a ? m : 1;
    p.bj = flip_b ? k : 1;
    p.bk = flip_b ? 1 : n;
    return try_product(p, threads, bf16, with_bias);
}

/* Counts the wrong elements of a layer whose weight lies in panels. which: 0: its forward (n: outputs); 1: its dX (k:
 * outputs); 2: its dW, turned (n: outputs). turned: a, and dW's b, have their other stride 1 than in a layer. */
int64_t products_panels_wrong(int threads, int bf16, int which, int64_t m, int64_t n, int64_t k, int turned,
                              int with_bias)
{
    struct wn__gemm p = {.m = m, .n = n, .k = k, .batch = 1, .b_panels = which < 2, .c_panels = which == 2};
    p.ai = (which == 2) != turned ? 1 : k;
    p.ak = (which == 2) != turned ? m : 1;
    p.bj = which == 1 ? WN_PANEL : which == 2 && turned ? k : 1;
    p.bk = which == 0 ? WN_PANEL : which == 1 || turned ? 1 : n;
    return try_product(p, threads, bf16, with_bias && which != 2);
}
