/* ROW_MEAN, ROW_RSTD, LAYERNORM, LAYERNORM_DX, LAYERNORM_DX_ADD, LAYERNORM_DW: layer norm over the last dim, x: (rows,
 * n), in pieces that a policy can see (runtime/ops/norm.c has the formulas).
 *
 * Sums over a row or down a column are in double, in an order that the shape fixes. LAYERNORM may overwrite x, and
 * LAYERNORM_DX dy or x: the sums of a row are computed first, then each element is read before it is written. */
#include <math.h>
#include <stddef.h>
#include <string.h>
#include "../common/bf16.h"
#include "../common/cpu.h"
#include "../../row_parts.h"

#define DW_ROWS 4 /* rows added to a column's sum in registers. Measured: 8: 1.1x time, since two arrays are read */

/* One op of the family, over x: (rows, n). */
struct norm {
    const void *const *in;
    void *out;
    int64_t rows, n;
    const void *plus; /* LAYERNORM_DX_ADD: what is added to the gradient; else NULL */
    double eps;       /* of ROW_RSTD */
    int32_t streams;  /* out is stored non-temporally */
    int64_t together; /* LAYERNORM_DW: columns of a block */
    int64_t parts;    /* LAYERNORM_DW: parts of the rows (row_parts.h) */
    double *partial;  /* (parts, n) sums of the parts, where there are several */
    const struct dw_loops *dw;
};

/* The loops of LAYERNORM_DW for a dtype. */
struct dw_loops {
    int64_t size; /* bytes of an element */
    /* Adds DW_ROWS rows from row r on to the first m / 16 * 16 columns from column `at` on; prefetches as many lines of
     * the next rows of dy and of x. */
    void (*down)(const struct norm *k, int64_t r, int64_t at, int64_t m, double *sum, struct wn__prefetch next[2]);
    /* Adds rows [rows[0], rows[1]) to m columns from column `at` on. */
    void (*across)(const struct norm *k, const int64_t rows[2], int64_t at, int64_t m, double *sum);
    /* Stores n sums as elements. */
    void (*store)(void *out, const double *sum, int64_t n);
};

#define TYPE f32
#include "norm.inc"
#define TYPE f64
#include "norm.inc"

/* ---- the gradient of w: sums down columns -------------------------------------------------------- */

/* Adds rows [r, end) to m columns from column `at` on. */
static void dw_block(const struct norm *k, int64_t at, int64_t m, int64_t r, int64_t end, double *sum)
{
    int64_t whole = m / 16 * 16, tail = end - (end - r) % DW_ROWS, size = k->dw->size, pitch = k->n * size;
    struct wn__prefetch next[2];
    for (int i = 0; i < 2; i++)
        next[i] = (struct wn__prefetch){(uintptr_t)k->in[i] + (uintptr_t)((r + DW_ROWS) * pitch + at * size), pitch,
                                        m * size, 0};
    for (int64_t i = r; i < tail; i += DW_ROWS) k->dw->down(k, i, at, m, sum, next);
    if (whole < m) k->dw->across(k, (int64_t[2]){r, tail}, at + whole, m - whole, sum + whole);
    k->dw->across(k, (int64_t[2]){tail, end}, at, m, sum);
}

/* Computes units [begin, end): a unit is a block of columns of a part of the rows, blocks fastest. */
static void dw_units(int64_t begin, int64_t end, void *ctx)
{
    const struct norm *k = ctx;
    int64_t blocks = (k->n + k->together - 1) / k->together;
    for (int64_t unit = begin; unit < end; unit++) {
        double sum[WN_COLUMNS] = {0};
        int64_t at = unit % blocks * k->together, m = k->n - at < k->together ? k->n - at : k->together;
        int64_t part = unit / blocks;
        dw_block(k, at, m, k->rows * part / k->parts, k->rows * (part + 1) / k->parts, sum);
        if (k->parts > 1) memcpy(k->partial + part * k->n + at, sum, (size_t)m * sizeof *sum);
        else k->dw->store((char *)k->out + at * k->dw->size, sum, m);
    }
}

/* Adds the parts of columns [begin, end) to their first part, in order. */
static void dw_join(int64_t begin, int64_t end, void *ctx)
{
    const struct norm *k = ctx;
    for (int64_t c = 1; c < k->parts; c++)
        for (int64_t j = begin; j < end; j++) k->partial[j] += k->partial[c * k->n + j];
    k->dw->store((char *)k->out + begin * k->dw->size, k->partial + begin, end - begin);
}

static void layernorm_dw(struct norm *k)
{
    k->parts = wn__parts_of(k->rows);
    k->together = wn__columns_together(k->n, k->parts, WN_COLUMNS);
    int64_t units = k->parts * ((k->n + k->together - 1) / k->together);
    wn__parallel_for(units, WN_CPU_GRAIN_MATH * k->parts / (k->together * (k->rows + 1)) + 1, dw_units, k);
    if (k->parts > 1) wn__parallel_for(k->n, WN_CPU_GRAIN / k->parts, dw_join, k);
}

/* ---- ops ----------------------------------------------------------------------------------------- */

static const wn__parallel_body loops[WN_OP_COUNT][WN_DTYPE_COUNT] = {
    [WN_OP_ROW_MEAN] = {WN_F32_F64(row_mean)},
    [WN_OP_ROW_RSTD] = {WN_F32_F64(row_rstd)},
    [WN_OP_LAYERNORM] = {WN_F32_F64(layernorm)},
    [WN_OP_LAYERNORM_DX] = {WN_F32_F64(layernorm_dx)},
    [WN_OP_LAYERNORM_DX_ADD] = {WN_F32_F64(layernorm_dx)}};

static int32_t norm(const struct wn_desc *d, const struct wn_buffers *b, WN_NO_STREAM)
{
    int32_t backward = d->op == WN_OP_LAYERNORM_DX || d->op == WN_OP_LAYERNORM_DW || d->op == WN_OP_LAYERNORM_DX_ADD;
    const struct wn_type *x = &d->in[backward ? 1 : 0];
    struct norm k = {.in = b->in, .out = b->out, .rows = 1, .n = x->dim[x->ndim - 1], .eps = d->attrs.f[0]};
    k.streams = wn__streams(wn__bytes(&d->out), b->out, b->in[0], d->n_in > 1 ? b->in[1] : NULL);
    if (d->op == WN_OP_LAYERNORM_DX_ADD) k.plus = b->in[5];
    if (k.plus == k.out) k.streams = 0;
    for (int32_t i = 0; i < x->ndim - 1; i++) k.rows *= x->dim[i];
    k.partial = b->workspace;
    k.dw = d->out.dtype == WN_F64 ? &dw_f64 : &dw_f32;
    if (d->op == WN_OP_LAYERNORM_DW) layernorm_dw(&k);
    else wn__parallel_for(k.rows, WN_CPU_GRAIN_MATH / (k.n + 1) + 1, loops[d->op][d->out.dtype], &k);
    return WN_OK;
}

wn_kernel_fn wn__cpu_norm_kernel(const struct wn_desc *d)
{
    if (d->out.dtype == WN_BF16) return wn__cpu_copies_kernel(d);
    if (d->out.dtype != WN_F32 && d->out.dtype != WN_F64) return NULL;
    for (int32_t i = 0; i < d->n_in; i++)
        if (d->in[i].dtype != d->out.dtype) return NULL;
    return d->op == WN_OP_LAYERNORM_DW || loops[d->op][d->out.dtype] ? norm : NULL;
}
