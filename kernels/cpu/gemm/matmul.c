/* MATMUL, LINEAR, MATMUL_MAP, LINEAR_MAP: describes a product by strides (gemm/gemm.h) and calls its driver.
 *
 *     f32, bf16  gemm/gemm.c, the fastest micro-kernel of this processor
 *     f64        plain loops, the reference
 *
 * Large bf16 products may be oneDNN's (backend/onednn.h); an elementwise op is then applied to the whole result.
 *
 * Threads share outputs, never k, so their number changes no bit. */
#include <stddef.h>
#include <string.h>
#include "../common/cpu.h"
#include "gemm.h"
#include "../backend/onednn.h"

/* Describes a weight in panels, which is b, or b transposed. */
static void b_in_panels(struct wn__gemm *p, int32_t transposed)
{
    p->b_panels = 1;
    p->bj = transposed ? 1 : WN_PANEL;
    p->bk = transposed ? WN_PANEL : 1;
}

static void product_of_linear(struct wn__gemm *p, const struct wn_desc *d, const struct wn_buffers *b)
{
    const struct wn_type *w = &d->in[1];
    memset(p, 0, sizeof *p);
    p->k = w->dim[1];
    p->n = w->dim[0];
    p->m = p->n ? wn__numel(&d->out) / p->n : 0;
    p->batch = 1;
    p->ai = p->bj = p->k;
    p->ak = p->bk = 1;
    p->a = b->in[0];
    p->b = b->in[1];
    p->bias = b->in[2];
    p->c = b->out;
    if (w->layout != WN_PLAIN) b_in_panels(p, 1);
}

/* Transposes a product whose result, the gradient of a weight, is in panels: c' = op(b)' op(a)'. */
static void transpose_product(struct wn__gemm *p)
{
    struct wn__gemm q = *p;
    p->m = q.n;
    p->n = q.m;
    p->a = q.b;
    p->ai = q.bj;
    p->ak = q.bk;
    p->b = q.a;
    p->bj = q.ai;
    p->bk = q.ak;
    p->c_panels = 1;
}

static void product_of_matmul(struct wn__gemm *p, const struct wn_desc *d, const struct wn_buffers *b)
{
    struct wn_type ta = d->in[0], tb = d->in[1], out = d->out;
    int32_t flip_a = d->attrs.i[0] != 0, flip_b = d->attrs.i[1] != 0;
    memset(p, 0, sizeof *p);
    p->m = out.dim[out.ndim - 2];
    p->n = out.dim[out.ndim - 1];
    p->k = ta.dim[ta.ndim - (flip_a ? 2 : 1)];
    p->ai = flip_a ? 1 : p->k;
    p->ak = flip_a ? p->m : 1;
    p->bj = flip_b ? p->k : 1;
    p->bk = flip_b ? 1 : p->n;
    p->a = b->in[0];
    p->b = b->in[1];
    p->c = b->out;
    ta.ndim -= 2;
    tb.ndim -= 2;
    out.ndim -= 2;
    p->batch = wn__numel(&out);
    if (p->batch > 1 && !flip_a && wn__numel(&tb) == 1 && wn__numel(&ta) == p->batch) {
        p->m *= p->batch; /* all products share one b: the batch becomes more rows */
        p->batch = 1;
    }
    if (d->in[1].layout != WN_PLAIN) b_in_panels(p, flip_b);
    if (d->out.layout != WN_PLAIN) transpose_product(p);
    const struct wn_type *lead[2] = {&ta, &tb};
    if (p->batch != 1) wn__broadcast_make(&p->broadcast, &out, 2, lead);
}

/* ---- f64 ----------------------------------------------------------------------------------------- */

/* Returns c(i, j) where b has k along memory, in pieces that end at panels. */
static double dot_f64(const struct wn__gemm *p, const double *a, const double *b, int64_t matrix, int64_t j)
{
    double sum = 0;
    for (int64_t k = 0, part, ld; k < p->k; k += part) {
        const double *row = b + wn__gemm_b_at(p, matrix, k, j, &ld);
        part = p->b_panels ? wn__gemm_in_panel(k, p->k - k) : p->k;
        for (int64_t s = 0; s < part; s++) sum += a[(k + s) * p->ak] * row[s];
    }
    return sum;
}

/* Computes row i, n columns from `column` on, which are contiguous in b and in c. */
static void stretch_f64(const struct wn__gemm *p, const double *a, int64_t matrix, int64_t column, int64_t n, double *c)
{
    const double *bias = p->bias;
    int64_t ld;
    if (p->bk == 1) {
        for (int64_t j = 0; j < n; j++) c[j] = dot_f64(p, a, p->b, matrix, column + j);
    } else {
        const double *b = (const double *)p->b + wn__gemm_b_at(p, matrix, 0, column, &ld);
        for (int64_t j = 0; j < n; j++) c[j] = 0;
        for (int64_t k = 0; k < p->k; k++)
            for (int64_t j = 0; j < n; j++) c[j] += a[k * p->ak] * b[k * ld + j];
    }
    for (int64_t j = 0; bias && j < n; j++) c[j] += bias[column + j];
}

static void rows_f64(int64_t begin, int64_t end, void *ctx)
{
    const struct wn__gemm *p = ctx;
    const int32_t in_panels = p->c_panels || (p->b_panels && p->bk != 1);
    for (int64_t r = begin; r < end; r++) {
        int64_t batch = r / p->m, i = r % p->m, offset[2], ld;
        wn__gemm_offsets(p, batch, offset);
        const double *a = (const double *)p->a + offset[0] * p->m * p->k + i * p->ai;
        for (int64_t column = 0, n; column < p->n; column += n) {
            n = in_panels ? wn__gemm_in_panel(column, p->n - column) : p->n;
            stretch_f64(p, a, offset[1], column, n, (double *)p->c + wn__gemm_c_at(p, batch, i, column, &ld));
        }
        wn__gemm_epilogue(p, batch, i, i + 1, 0, p->n);
    }
}

static int32_t run_f64(struct wn__gemm *p)
{
    wn__parallel_for(p->batch * p->m, 16384 / (p->n * p->k + 1) + 1, rows_f64, p);
    return WN_OK;
}

/* ---- by oneDNN ----------------------------------------------------------------------------------- */

static void run_epilogue_rows(int64_t begin, int64_t end, void *ctx)
{
    const struct wn__gemm *p = ctx;
    for (int64_t r = begin; r < end; r++) wn__gemm_epilogue(p, r / p->m, r % p->m, r % p->m + 1, 0, p->n);
}

static int32_t run_onednn(struct wn__gemm *p, void *workspace)
{
    WN_TRY(wn__onednn_run(p, workspace));
    if (p->epilogue != NULL)
        wn__parallel_for(p->batch * p->m, WN_CPU_GRAIN_MATH / (p->n + 1) + 1, run_epilogue_rows, p);
    return WN_OK;
}

/* ---- the ops ------------------------------------------------------------------------------------- */

static int32_t run(struct wn__gemm *p, const struct wn_desc *d, const struct wn_buffers *b)
{
    if (wn__onednn_takes(d)) return run_onednn(p, b->workspace);
    if (d->out.dtype == WN_F32) return wn__gemm_f32(p);
    return d->out.dtype == WN_BF16 ? wn__gemm_bf16(p) : run_f64(p);
}

/* Returns the description of the product without the epilogue. Its shape follows from its inputs: a rewrite may have
 * given the result more dims than the product of matrices has. */
static struct wn_desc plain_product(const struct wn_desc *d)
{
    struct wn_desc p = *d;
    if (d->op == WN_OP_LINEAR || d->op == WN_OP_LINEAR_MAP || d->in[0].ndim > 2 || d->in[1].ndim > 2) return p;
    p.out = (struct wn_type){.dtype = d->out.dtype, .ndim = 2, .layout = d->out.layout};
    p.out.dim[0] = d->in[0].dim[d->attrs.i[0] != 0];
    p.out.dim[1] = d->in[1].dim[d->attrs.i[1] == 0];
    return p;
}

static void product_under(struct wn__gemm *p, const struct wn_desc *d, const struct wn_buffers *b)
{
    struct wn_desc plain = plain_product(d);
    if (d->op == WN_OP_LINEAR || d->op == WN_OP_LINEAR_MAP) product_of_linear(p, &plain, b);
    else product_of_matmul(p, &plain, b);
}

static int32_t product(const struct wn_desc *d, const struct wn_buffers *b, WN_NO_STREAM)
{
    struct wn__gemm p;
    product_under(&p, d, b);
    return run(&p, d, b);
}

static int32_t epilogue(const struct wn_desc *d, const struct wn_buffers *b, WN_NO_STREAM)
{
    struct wn__gemm p;
    struct wn__elementwise step;
    product_under(&p, d, b);
    wn__elementwise_of((int32_t)d->attrs.i[2], d->out.dtype, d->attrs.f, b, &step);
    p.epilogue = &step;
    p.epilogue_in = wn__elementwise_operands((int32_t)d->attrs.i[2]) == 2 ? b->in[d->n_in - 1] : NULL;
    return run(&p, d, b);
}

wn_kernel_fn wn__cpu_epilogue_kernel(const struct wn_desc *d)
{
    struct wn__elementwise step;
    if (!wn__dtype_is_float(d->out.dtype) || d->in[0].dtype != d->out.dtype) return NULL;
    return wn__elementwise_of((int32_t)d->attrs.i[2], d->out.dtype, d->attrs.f, NULL, &step) ? epilogue : NULL;
}

wn_kernel_fn wn__cpu_matmul_kernel(const struct wn_desc *d)
{
    return wn__dtype_is_float(d->out.dtype) ? product : NULL;
}
