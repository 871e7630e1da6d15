/* CROSS_ENTROPY: logits: (rows, classes), labels: (rows) -> loss: (), and its gradient: log_softmax and nll in one pass
 * over the logits.
 *
 * The formulas and orders of sums are those of softmax.c and nll.c, so an element has the bits of the two nodes that
 * each replaces. Nothing as large as the logits is written but the gradient, which may overwrite them: the statistics
 * of a row are computed first, then each element is read before it is written. */
#include <stddef.h>
#include "../scalar.h"
#include "softmax.h"

/* One CROSS_ENTROPY or CROSS_ENTROPY_GRAD. */
struct rows {
    const void *x;        /* (rows, classes) */
    const int32_t *label; /* (rows) */
    void *out;            /* (rows, classes): the gradient */
    double *term;         /* (rows) workspace of the loss: log-probabilities of the labels */
    int64_t classes, ignored;
    double value; /* -dy / count, the gradient of the log-probability of a label that counts */
};

#define LOSS_ROWS(S, T)                                                                                                \
    static void loss_rows_##S(int64_t begin, int64_t end, void *ctx)                                                   \
    {                                                                                                                  \
        const struct rows *k = ctx;                                                                                    \
        for (int64_t r = begin; r < end; r++) {                                                                        \
            const T *x = (const T *)k->x + r * k->classes;                                                             \
            T best, log_sum;                                                                                           \
            k->term[r] = 0;                                                                                            \
            if (k->label[r] == k->ignored) continue;                                                                   \
            wn__cpu_row_stats_##S(x, k->classes, &best, &log_sum);                                                     \
            k->term[r] = (double)((x[k->label[r]] - best) - log_sum);                                                  \
        }                                                                                                              \
    }

#define GRAD_ROW(S, T)                                                                                                 \
    static void grad_row_##S(const T *x, T *out, int64_t n, T best, T log_sum, T sum)                                  \
    {                                                                                                                  \
        _Pragma("omp simd") for (int64_t i = 0; i < n; i++) out[i] =                                                   \
            wn_log_softmax_grad_##S((T)0, (x[i] - best) - log_sum, sum);                                               \
    }

#define GRAD_ROWS(S, T)                                                                                                \
    static void grad_rows_##S(int64_t begin, int64_t end, void *ctx)                                                   \
    {                                                                                                                  \
        const struct rows *k = ctx;                                                                                    \
        for (int64_t r = begin; r < end; r++) {                                                                        \
            const T *x = (const T *)k->x + r * k->classes;                                                             \
            T *out = (T *)k->out + r * k->classes, best, log_sum, value = (T)k->value, label = 0;                      \
            int32_t counts = k->label[r] != k->ignored;                                                                \
            wn__cpu_row_stats_##S(x, k->classes, &best, &log_sum);                                                     \
            if (counts) label = wn_log_softmax_grad_##S(value, (x[k->label[r]] - best) - log_sum, value);              \
            grad_row_##S(x, out, k->classes, best, log_sum, counts ? value : (T)0);                                    \
            if (counts) out[k->label[r]] = label;                                                                      \
        }                                                                                                              \
    }

#define ROWS(S, T)                                                                                                     \
    LOSS_ROWS(S, T)                                                                                                    \
    GRAD_ROW(S, T)                                                                                                     \
    GRAD_ROWS(S, T)

ROWS(f32, float)
ROWS(f64, double)

static int32_t cross_entropy(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    (void)stream;
    int32_t is_f32 = d->out.dtype == WN_F32;
    int64_t n = wn__numel(&d->in[1]), count;
    struct rows k = {.x = b->in[0], .label = b->in[1], .term = b->workspace, .ignored = d->attrs.i[0]};
    k.classes = d->in[0].dim[d->in[0].ndim - 1];
    WN_TRY(wn__cpu_count_labels(d, b, &count));
    wn__parallel_for(n, WN_CPU_GRAIN_MATH / k.classes + 1, is_f32 ? loss_rows_f32 : loss_rows_f64, &k);
    double mean = wn__cpu_loss(k.term, n, count);
    if (is_f32) *(float *)b->out = (float)mean;
    else *(double *)b->out = mean;
    return WN_OK;
}

static int32_t cross_entropy_grad(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    (void)stream;
    int32_t is_f32 = d->out.dtype == WN_F32;
    int64_t n = wn__numel(&d->in[1]), count;
    struct rows k = {.x = b->in[2], .label = b->in[1], .out = b->out, .ignored = d->attrs.i[0]};
    k.classes = d->out.dim[d->out.ndim - 1];
    WN_TRY(wn__cpu_count_labels(d, b, &count));
    k.value = -(is_f32 ? (double)*(const float *)b->in[0] : *(const double *)b->in[0]) / (double)count;
    wn__parallel_for(n, WN_CPU_GRAIN_MATH / k.classes + 1, is_f32 ? grad_rows_f32 : grad_rows_f64, &k);
    return WN_OK;
}

wn_kernel_fn wn__cpu_cross_entropy_kernel(const struct wn_desc *d)
{
    int32_t logits = d->op == WN_OP_CROSS_ENTROPY ? 0 : 2;
    if (d->out.dtype != WN_F32 && d->out.dtype != WN_F64) return NULL;
    if (d->in[logits].dtype != d->out.dtype || d->in[1].dtype != WN_I32) return NULL;
    return d->op == WN_OP_CROSS_ENTROPY ? cross_entropy : cross_entropy_grad;
}
