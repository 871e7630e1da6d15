/* PRODUCT_UPDATE by every tile this machine can run, in both layouts of the cells, for product_update_spec: built by
 * the spec with products.c, whose levels it shares. The cells must get the bits of a product and an update one after
 * the other. */
#include <stdlib.h>
#include <string.h>
#include "../../kernels/cpu/common/bf16.h"
#include "../../kernels/cpu/common/cpu.h"
#include "../../kernels/cpu/gemm/gemm.h"
#include "../../kernels/cpu/element/update.h"

/* Stands in for the library's function of this name and aborts, as wn__round does: no cell here is of bf16
 * (element/update.c). */
void wn__widen(float *to, const uint16_t *from, int64_t n)
{
    (void)to, (void)from, (void)n;
    abort();
}

void wn__round(uint16_t *to, const float *from, int64_t n)
{
    (void)to, (void)from, (void)n;
    abort();
}

enum { GUARD = 64 }; /* floats behind every buffer that is written */

static uint32_t state;

static float number(void) /* -1..1, all bits of the fraction used: a sum in another order has other bits */
{
    state = state * 1664525u + 1013904223u;
    return (float)(int32_t)state * (1.0f / 2147483648.0f);
}

static float *numbers(int64_t n) /* and a guard of NaN behind them */
{
    float *x = aligned_alloc(64, (size_t)((n + GUARD + 15) / 16 * 64));
    for (int64_t i = 0; i < n; i++) x[i] = number();
    memset(x + n, 0xff, GUARD * sizeof *x);
    return x;
}

static int guarded(const float *x, int64_t n)
{
    for (size_t i = 0; i < GUARD * sizeof *x; i++)
        if (((const unsigned char *)(x + n))[i] != 0xff) return 0;
    return 1;
}

static int64_t place(int32_t layout, int64_t m, int64_t n, int64_t i, int64_t j)
{
    int64_t width, at;
    if (layout == WN_PLAIN) return i * n + j;
    at = wn__panel_row(m, n, i, &width);
    return at + j * width;
}

static const double hyper[8] = {0.1, 0.01, 0.9, 0.99, 1e-3, 0.1, 0.01, 0};

/* Computes the product (m, n) of a and b as flags say, then updates the plain cells. */
static void apart(const struct wn_desc *d, const void *const *in, float *const cell[3], int64_t m, int64_t n, int64_t k)
{
    int flip_a = d->attrs.i[0] != 0, flip_b = d->attrs.i[1] != 0;
    float *grad = numbers(m * n);
    struct wn__gemm p = {.m = m, .n = n, .k = k, .batch = 1, .a = in[0], .b = in[1], .c = grad};
    p.ai = flip_a ? 1 : k;
    p.ak = flip_a ? m : 1;
    p.bj = flip_b ? k : 1;
    p.bk = flip_b ? 1 : n;
    p.broadcast = (struct wn__broadcast){.n_operands = 2, .ndim = 1, .numel = 1};
    p.broadcast.dim[0] = 1;
    wn__gemm_f32(&p);
    void *const cells[3] = {cell[0], cell[1], cell[2]};
    struct wn__update_numbers u = {.value = grad, .cell = cells, .size = sizeof(float)};
    wn__cpu_update_constants(&u, (int32_t)d->attrs.i[2], WN_F32, hyper);
    wn__cpu_update_loop((int32_t)d->attrs.i[2], WN_F32)(0, m * n, &u);
    free(grad);
}

/* Counts the numbers of the cells (m, n) that have other bits than a product and an update one after the other; -1:
 * something else was written; -2: no kernel. */
int64_t product_updates_wrong(int threads, int layout, int op, int n_cells, int64_t m, int64_t n, int64_t k, int flip_a,
                              int flip_b)
{
    state = (uint32_t)(m * 31 + n * 7 + k);
    float *a = numbers(m * k), *b = numbers(n * k), *want[3] = {NULL}, *have[3] = {NULL};
    int64_t room = layout == WN_PLAIN ? (n + WN_PANEL - 1) / WN_PANEL * WN_PANEL * k : n * k, wrong = 0;
    float *workspace = numbers(room);
    struct wn_type in[3] = {{.dtype = WN_F32, .ndim = 2, .dim = {flip_a ? k : m, flip_a ? m : k}},
                            {.dtype = WN_F32, .ndim = 2, .dim = {flip_b ? n : k, flip_b ? k : n}},
                            {.dtype = WN_F64, .ndim = 1, .dim = {8}}};
    struct wn_desc d = {.op = WN_OP_PRODUCT_UPDATE, .n_in = op == WN_OP_ACCUMULATE ? 2 : 3, .in = in};
    d.out = (struct wn_type){.dtype = WN_F32, .ndim = 2, .layout = (int16_t)layout, .dim = {m, n}};
    d.attrs = (struct wn_attrs){.n = 3, .i = {flip_a, flip_b, op}};
    for (int c = 0; c < n_cells; c++) {
        want[c] = numbers(m * n);
        have[c] = numbers(m * n);
        for (int64_t i = 0; i < m * n; i++) {
            want[c][i] = c == 2 ? want[c][i] * want[c][i] : want[c][i];
            have[c][place(layout, m, n, i / n, i % n)] = want[c][i];
        }
    }
    const void *const inputs[3] = {a, b, hyper};
    void *const cells[3] = {have[0], have[1], have[2]};
    struct wn_buffers buffers = {.in = inputs, .cell = cells, .workspace = workspace};
    wn_cpu_set_threads(threads);
    wn_kernel_fn kernel = wn__cpu_product_update_kernel(&d);
    if (kernel) kernel(&d, &buffers, NULL);
    apart(&d, inputs, want, m, n, k);
    for (int c = 0; c < n_cells; c++) {
        for (int64_t i = 0; i < m * n; i++)
            wrong += memcmp(&want[c][i], &have[c][place(layout, m, n, i / n, i % n)], sizeof(float)) != 0;
        if (!guarded(have[c], m * n)) wrong = -1;
        free(want[c]);
        free(have[c]);
    }
    if (!guarded(workspace, room)) wrong = -1;
    free(a);
    free(b);
    free(workspace);
    return kernel ? wrong : -2;
}
