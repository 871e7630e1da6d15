/* ROW_STATS, ROW_NLL, ROW_NLL_GRAD and ROW_COUNT (runtime/ops/loss.c has the formulas): the losses of labels, by row.
 *
 * Log-probabilities x are logits whose maximum and whose logarithm of the sum are 0. The formulas and orders of sums
 * are those of softmax.c and sums.h. Labels are checked before they are used: one that is neither a class nor the
 * ignored number is WN_VALUE, with its value and place. The gradient may overwrite the logits: each element is read
 * before it is written. bf16 is read as f32, and a gradient is rounded once. */
#include <stddef.h>
#include <string.h>
#include "../../../runtime/base/outside.h"
#include "../../../runtime/base/type.h"
#include "softmax.h"

/* One application. */
struct rows {
    const void *x, *stats;   /* (n, classes); (n, 2), NULL: x are log-probabilities */
    const void *dy, *weight; /* (n); (classes), NULL: 1 each */
    const int32_t *label;    /* (n) */
    void *out;               /* (n, 2), (n), or (n, classes) */
    int64_t n, classes, ignored;
    double hit, each; /* factors of the log-probability of the label, and of that of each class */
};

/* ---- labels -------------------------------------------------------------------------------------- */

/* Returns whether all labels are classes or ignored. */
static int32_t all_fit(const struct rows *k)
{
    uint32_t limit = k->classes > INT32_MAX ? (uint32_t)INT32_MAX + 1 : (uint32_t)k->classes, outside = 0;
    int32_t can_skip = k->ignored == (int32_t)k->ignored, skip = (int32_t)k->ignored;
    _Pragma("omp simd reduction(| : outside)") for (int64_t i = 0; i < k->n; i++) outside |=
        !(can_skip & (k->label[i] == skip)) & ((uint32_t)k->label[i] >= limit);
    return !outside;
}

/* Writes what an application asks for to *out; WN_VALUE for the first label that does not fit. */
static int32_t open_rows(const struct wn_desc *d, const struct wn_buffers *b, struct rows *out)
{
    const struct wn__loss_inputs at = wn__loss_inputs(d);
    struct rows k = {.label = b->in[1], .n = wn__numel(&d->in[1]), .classes = wn__table_size(d), .out = b->out};
    k.ignored = d->attrs.i[WN_LOSS_IGNORED];
    k.hit = 1 - d->attrs.f[0];
    k.each = d->attrs.f[0] / (double)k.classes;
    k.x = at.x >= 0 ? b->in[at.x] : NULL;
    k.stats = at.stats >= 0 ? b->in[at.stats] : NULL;
    k.weight = at.weight >= 0 ? b->in[at.weight] : NULL;
    *out = k;
    if (all_fit(&k)) return WN_OK;
    int64_t i = 0;
    while (k.label[i] == k.ignored || (k.label[i] >= 0 && k.label[i] < k.classes)) i++;
    return wn__fail_outside(d, i, k.label[i]);
}

/* ---- rows ---------------------------------------------------------------------------------------- */

/* Distance of prefetches of x, in rows: where one element of each is read, many lines of different pages must be on
 * their way at once. Measured, 2 threads, ms: none 0.17, 48 0.090, 64 0.079, 96 0.076, 128 0.074, 256 0.076. */
#define AHEAD 128

/* Returns the label of row r, -1 where it does not count. */
static inline int32_t label_of(const struct rows *k, int64_t r)
{
    return k->label[r] != k->ignored ? k->label[r] : -1;
}

#define TYPE f32
#include "loss.inc"
#define TYPE f64
#include "loss.inc"
#define TYPE bf16
#include "loss.inc"

static const wn__parallel_body stats_loops[WN_DTYPE_COUNT] = {WN_FLOATS(stats_rows)},
                               loss_loops[WN_DTYPE_COUNT] = {WN_FLOATS(loss_rows)},
                               grad_loops[WN_DTYPE_COUNT] = {WN_FLOATS(grad_rows)};

static int32_t row_stats(const struct wn_desc *d, const struct wn_buffers *b, WN_NO_STREAM)
{
    struct rows k = {.x = b->in[0], .out = b->out, .n = wn__numel(&d->out) / 2};
    k.classes = d->in[0].dim[d->in[0].ndim - 1];
    wn__parallel_for(k.n, WN_CPU_GRAIN_MATH / k.classes + 1, stats_loops[d->in[0].dtype], &k);
    return WN_OK;
}

static int32_t row_nll(const struct wn_desc *d, const struct wn_buffers *b, WN_NO_STREAM)
{
    struct rows k;
    WN_TRY(open_rows(d, b, &k));
    wn__parallel_for(k.n, k.each > 0 ? WN_CPU_GRAIN / k.classes + 1 : 1024, loss_loops[d->in[0].dtype], &k);
    return WN_OK;
}

static int32_t row_nll_grad(const struct wn_desc *d, const struct wn_buffers *b, WN_NO_STREAM)
{
    struct rows k;
    WN_TRY(open_rows(d, b, &k));
    k.dy = b->in[0];
    wn__parallel_for(k.n, WN_CPU_GRAIN_MATH / (k.classes + 1) + 1, grad_loops[d->out.dtype], &k);
    return WN_OK;
}

/* ---- count --------------------------------------------------------------------------------------- */

/* Returns the weight of label i, 0 where it does not count or is no class. */
static double weight_of(const struct wn_desc *d, const struct wn_buffers *b, int64_t i)
{
    int32_t label = ((const int32_t *)b->in[0])[i];
    if (label == d->attrs.i[WN_LOSS_IGNORED]) return 0;
    if (d->n_in < 2) return 1;
    if (label < 0 || label >= d->in[1].dim[0]) return 0;
    return d->out.dtype == WN_F64 ? ((const double *)b->in[1])[label] : (double)((const float *)b->in[1])[label];
}

static int32_t count(const struct wn_desc *d, const struct wn_buffers *b, WN_NO_STREAM)
{
    int64_t n = wn__numel(&d->in[0]), parts = wn__count_parts(n);
    double sum = 0;
    for (int64_t c = 0; c < parts; c++) {
        int64_t first = n * c / parts, stop = n * (c + 1) / parts;
        double lane[WN_LANES] = {0}, part = 0;
        for (int64_t i = first; i < stop; i++) lane[(i - first) % WN_LANES] += weight_of(d, b, i);
        for (int j = 0; j < WN_LANES; j++) part += lane[j];
        sum += part;
    }
    wn__number_put(d->out.dtype, sum, b->out);
    return WN_OK;
}

wn_kernel_fn wn__cpu_loss_kernel(const struct wn_desc *d)
{
    switch (d->op) {
    case WN_OP_ROW_STATS: return row_stats;
    case WN_OP_ROW_NLL: return row_nll;
    case WN_OP_ROW_NLL_GRAD: return row_nll_grad;
    default: return count;
    }
}
