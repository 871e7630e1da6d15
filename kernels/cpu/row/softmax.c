/* SOFTMAX, LOG_SOFTMAX and their gradients, along any dim (runtime/ops/softmax.c has the formulas).
 *
 * The maximum is subtracted first, so nothing overflows; sums are in double, in an order that the length fixes. They
 * may run in place: the sums of a row are complete before its first element is written, and then each element is read
 * before it is written. A row of -inf alone gives NaN, as the formula does. */
#include <math.h>
#include <stddef.h>
#include <string.h>
#include "../common/bf16.h"
#include "softmax.h"

#define ROW_MOST 4096 /* most elements of a row that softmax computes in a buffer and then streams */

struct block;

/* One softmax or gradient. */
struct softmax {
    const void *a, *b; /* x, NULL; or dy, y */
    void *out;
    struct wn__axis axis; /* the shape seen from the dim of the softmax */
    int64_t size;         /* bytes of an element */
    int32_t streams;      /* out is stored non-temporally */
    int64_t together;     /* columns of a block, where the dim is not the last */
    void (*columns)(struct block *c);
};

/* Another dim than the last: columns side by side. A block of columns is gone over row by row, in the order of memory:
 * for the maxima, for the sums, and to write. Where the block has left the second-level cache in between, it is read
 * from memory each time, so wide blocks are best: a strided read of 1024 columns has the bandwidth of a plain one.
 * Measured, GB/s of reading (8192, 4096) f32, a block at a time, 2 threads (Zen 4): 64 columns 18, 256 columns 26, 1024
 * columns 33; prefetched into the first-level cache: 15 to 16. */

#define COLUMNS 2048                /* most columns of a block: their numbers stay in the first-level cache */
#define LEAST_COLUMNS 256           /* least columns of a block that stays in the second-level cache */
#define CACHED ((int64_t)512 << 10) /* most bytes of such a block */
#define AHEAD ((int64_t)128 << 10)  /* bytes of the block between a row and the row that is prefetched with it */
#define CHUNK 256                   /* columns that are prefetched at once */

/* Numbers of columns, in the dtype of x. */
union numbers {
    float f32[COLUMNS];
    double f64[COLUMNS];
};

/* A block of columns of an outer index. */
struct block {
    const struct softmax *k;
    int64_t at, n;                         /* index of the first element; columns */
    int64_t ahead;                         /* bytes to the row that is prefetched */
    _Alignas(64) union numbers best, done; /* maxima; 1 / sum of softmax, log sum of log_softmax, else the sum */
    double sum[COLUMNS];
};

#define TYPE f32
#include "row_stats.inc"
#define TYPE f64
#include "row_stats.inc"
#define TYPE bf16
#include "row_stats.inc"
#define TYPE f32
#include "softmax.inc"
#define TYPE f64
#include "softmax.inc"

/* Computes units [begin, end): a unit is a block of columns of an outer index, blocks fastest. */
static void compute_columns(int64_t begin, int64_t end, void *ctx)
{
    const struct softmax *k = ctx;
    int64_t n = k->axis.n, inner = k->axis.inner, blocks = (inner + k->together - 1) / k->together;
    struct block c = {.k = k};
    for (int64_t u = begin; u < end; u++) {
        int64_t column = u % blocks * k->together, rows;
        c.n = inner - column < k->together ? inner - column : k->together;
        c.at = u / blocks * n * inner + column;
        rows = AHEAD / (c.n * k->size);
        c.ahead = (rows > 64 ? 64 : rows) * inner * k->size;
        k->columns(&c);
    }
    if (k->streams) wn__stream_end();
}

/* Returns the most columns of a block. */
static int64_t most_columns(const struct softmax *k)
{
    int64_t fit = CACHED / (k->axis.n * k->size) / 16 * 16;
    return fit < LEAST_COLUMNS || fit > COLUMNS ? COLUMNS : fit;
}

/* ---- ops ----------------------------------------------------------------------------------------- */

/* The loops of an op, over rows and over a block of columns. */
static const struct {
    wn__parallel_body rows[WN_DTYPE_COUNT];
    void (*columns[WN_DTYPE_COUNT])(struct block *c);
} loops[WN_OP_COUNT] = {
    [WN_OP_SOFTMAX] = {{WN_F32_F64(softmax_rows)}, {WN_F32_F64(columns_SOFTMAX)}},
    [WN_OP_LOG_SOFTMAX] = {{WN_F32_F64(log_softmax_rows)}, {WN_F32_F64(columns_LOG_SOFTMAX)}},
    [WN_OP_SOFTMAX_GRAD] = {{WN_F32_F64(softmax_grad_rows)}, {WN_F32_F64(columns_SOFTMAX_GRAD)}},
    [WN_OP_LOG_SOFTMAX_GRAD] = {{WN_F32_F64(log_softmax_grad_rows)}, {WN_F32_F64(columns_LOG_SOFTMAX_GRAD)}}};

static int32_t softmax(const struct wn_desc *d, const struct wn_buffers *b, WN_NO_STREAM)
{
    struct softmax k = {.a = b->in[0], .out = b->out, .axis = wn__axis_of(&d->out, d->attrs.i[0]), .together = 1};
    if (d->n_in > 1) k.b = b->in[1];
    k.streams = d->op == WN_OP_SOFTMAX_GRAD ? wn__streams(wn__bytes(&d->out), k.out, k.a, k.b)
                                            : wn__streams_math(wn__bytes(&d->out), k.out, k.a, k.b);
    k.size = wn__dtype_size(d->out.dtype);
    k.columns = loops[d->op].columns[d->out.dtype];
    if (k.axis.n == 0 || k.axis.inner == 0) return WN_OK;
    if (k.axis.inner != 1) k.together = wn__columns_together(k.axis.inner, k.axis.outer, most_columns(&k));
    int64_t units = k.axis.outer * ((k.axis.inner + k.together - 1) / k.together);
    wn__parallel_for(units, WN_CPU_GRAIN_MATH / (k.axis.n * k.together) + 1,
                     k.axis.inner == 1 ? loops[d->op].rows[d->out.dtype] : compute_columns, &k);
    return WN_OK;
}

wn_kernel_fn wn__cpu_softmax_kernel(const struct wn_desc *d)
{
    if (!wn__dtype_is_float(d->out.dtype) || d->in[0].dtype != d->out.dtype) return NULL;
    if (d->out.dtype == WN_BF16) return wn__cpu_copies_kernel(d);
    if (d->n_in > 1 && d->in[1].dtype != d->out.dtype) return NULL;
    return loops[d->op].rows[d->out.dtype] ? softmax : NULL;
}
