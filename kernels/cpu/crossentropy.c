/* CROSS_ENTROPY: logits: (rows, classes), labels: (rows)[, weight: (classes)] -> loss, and its gradient: log_softmax
 * and nll in one pass over the logits. NLL of weights, of smoothed labels and of each row, and NLL_GRAD of smoothed
 * labels are computed here too: their log-probabilities are logits whose maximum and whose logarithm of the sum are 0.
 *
 * The formulas and orders of sums are those of softmax.c and sums.h, so an element has the bits of the two nodes that
 * each replaces. Nothing as large as the logits is written but the gradient, which may overwrite them: the statistics
 * of a row are computed first, then each element is read before it is written. */
#include <stddef.h>
#include <string.h>
#include "../scalar.h"
#include "softmax.h"

/* One NLL, CROSS_ENTROPY or gradient of them. */
struct rows {
    struct wn__loss loss;
    const void *x, *dy; /* (rows, classes); the gradient that arrives */
    void *out;          /* (rows, classes): the gradient; (rows): the loss of each */
    double *term;       /* (rows) workspace of a loss */
    int32_t is_logits;
};

/* Defines the sum of w_c ((x_c - best) - log_sum) over the classes, in 16 lanes. */
#define ALL_CLASSES(S, T)                                                                                              \
    static double all_classes_##S(const struct wn__loss *k, const T *x, T best, T log_sum)                             \
    {                                                                                                                  \
        double lane[WN_LANES] = {0}, sum = 0;                                                                          \
        for (int64_t c = 0; c < k->classes; c++)                                                                       \
            lane[c % WN_LANES] += wn__class_weight(k, c) * (double)((x[c] - best) - log_sum);                          \
        for (int j = 0; j < WN_LANES; j++) sum += lane[j];                                                             \
        return sum;                                                                                                    \
    }

#define LOSS_ROWS(S, T)                                                                                                \
    static void loss_rows_##S(int64_t begin, int64_t end, void *ctx)                                                   \
    {                                                                                                                  \
        const struct rows *k = ctx;                                                                                    \
        for (int64_t r = begin; r < end; r++) {                                                                        \
            const T *x = (const T *)k->x + r * k->loss.classes;                                                        \
            int32_t label = k->loss.label[r];                                                                          \
            T best = 0, log_sum = 0;                                                                                   \
            k->term[r] = 0;                                                                                            \
            if (label == k->loss.ignored) continue;                                                                    \
            if (k->is_logits) wn__cpu_row_stats_##S(x, k->loss.classes, &best, &log_sum);                              \
            double all = k->loss.each > 0 ? all_classes_##S(&k->loss, x, best, log_sum) : 0;                           \
            double logp = (double)((x[label] - best) - log_sum);                                                       \
            k->term[r] = wn__loss_term(k->loss.hit * wn__class_weight(&k->loss, label), logp, k->loss.each, all);      \
        }                                                                                                              \
    }                                                                                                                  \
    static void put_rows_##S(const struct rows *k)                                                                     \
    {                                                                                                                  \
        for (int64_t r = 0; r < k->loss.n; r++) ((T *)k->out)[r] = (T)(0 - k->term[r]);                                \
    }

/* Defines dx of a row whose log-probabilities have one gradient, that of the label, `sum`. */
#define GRAD_ROW(S, T)                                                                                                 \
    static void grad_row_##S(const T *x, T *out, int64_t n, T best, T log_sum, T sum)                                  \
    {                                                                                                                  \
        _Pragma("omp simd") for (int64_t i = 0; i < n; i++) out[i] =                                                   \
            wn_log_softmax_grad_##S((T)0, (x[i] - best) - log_sum, sum);                                               \
    }

/* Defines dx of a row whose log-probabilities all have gradients. */
#define SMOOTH_ROW(S, T)                                                                                               \
    static T slope_##S(const struct wn__loss *k, double share, int64_t c, int32_t label)                               \
    {                                                                                                                  \
        return (T)wn__loss_slope(share, wn__class_weight(k, c), k->each + (c == label ? k->hit : 0));                  \
    }                                                                                                                  \
    static void smooth_row_##S(const struct rows *k, int64_t r, double share, T best, T log_sum)                       \
    {                                                                                                                  \
        const T *x = (const T *)k->x + r * k->loss.classes;                                                            \
        T *out = (T *)k->out + r * k->loss.classes;                                                                    \
        int32_t label = k->loss.label[r];                                                                              \
        double lane[WN_LANES] = {0}, sum = 0;                                                                          \
        for (int64_t c = 0; c < k->loss.classes; c++)                                                                  \
            lane[c % WN_LANES] += (double)slope_##S(&k->loss, share, c, label);                                        \
        for (int j = 0; j < WN_LANES; j++) sum += lane[j];                                                             \
        for (int64_t c = 0; c < k->loss.classes; c++)                                                                  \
            out[c] = k->is_logits ? wn_log_softmax_grad_##S(slope_##S(&k->loss, share, c, label),                      \
                                                            (x[c] - best) - log_sum, (T)sum)                           \
                                  : slope_##S(&k->loss, share, c, label);                                              \
    }

/* Defines dx of a row whose label alone has a gradient, if it counts. */
#define SHARP_ROW(S, T)                                                                                                \
    static void sharp_row_##S(const struct rows *k, int64_t r, double share, T best, T log_sum)                        \
    {                                                                                                                  \
        const T *x = (const T *)k->x + r * k->loss.classes;                                                            \
        T *out = (T *)k->out + r * k->loss.classes, value = 0, at_label = 0;                                           \
        int32_t label = k->loss.label[r], counts = label != k->loss.ignored;                                           \
        if (counts) {                                                                                                  \
            value = slope_##S(&k->loss, share, label, label);                                                          \
            at_label = wn_log_softmax_grad_##S(value, (x[label] - best) - log_sum, value);                             \
        }                                                                                                              \
        grad_row_##S(x, out, k->loss.classes, best, log_sum, value);                                                   \
        if (counts) out[label] = at_label;                                                                             \
    }

#define GRAD_ROWS(S, T)                                                                                                \
    static void grad_rows_##S(int64_t begin, int64_t end, void *ctx)                                                   \
    {                                                                                                                  \
        const struct rows *k = ctx;                                                                                    \
        for (int64_t r = begin; r < end; r++) {                                                                        \
            const T *x = (const T *)k->x + r * k->loss.classes;                                                        \
            T best = 0, log_sum = 0;                                                                                   \
            double share = 0;                                                                                          \
            int32_t counts = k->loss.label[r] != k->loss.ignored;                                                      \
            if (counts) share = wn__cpu_loss_share(&k->loss, k->dy, r);                                                \
            if (k->is_logits) wn__cpu_row_stats_##S(x, k->loss.classes, &best, &log_sum);                              \
            if (counts && k->loss.each > 0) smooth_row_##S(k, r, share, best, log_sum);                                \
            else if (k->is_logits) sharp_row_##S(k, r, share, best, log_sum);                                          \
            else memset((T *)k->out + r * k->loss.classes, 0, (size_t)k->loss.classes * sizeof(T));                    \
        }                                                                                                              \
    }

#define ROWS(S, T)                                                                                                     \
    ALL_CLASSES(S, T)                                                                                                  \
    LOSS_ROWS(S, T)                                                                                                    \
    GRAD_ROW(S, T)                                                                                                     \
    SMOOTH_ROW(S, T)                                                                                                   \
    SHARP_ROW(S, T)                                                                                                    \
    GRAD_ROWS(S, T)

ROWS(f32, float)
ROWS(f64, double)

static int32_t loss_of_rows(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    (void)stream;
    int32_t is_f32 = d->out.dtype == WN_F32;
    struct rows k = {.x = b->in[0], .out = b->out, .term = b->workspace, .is_logits = d->op == WN_OP_CROSS_ENTROPY};
    WN_TRY(wn__cpu_loss_open(d, b, &k.loss));
    wn__parallel_for(k.loss.n, WN_CPU_GRAIN_MATH / k.loss.classes + 1, is_f32 ? loss_rows_f32 : loss_rows_f64, &k);
    if (d->attrs.i[WN_LOSS_FORM] == WN_LOSS_ROWS) (is_f32 ? put_rows_f32 : put_rows_f64)(&k);
    else wn__number_put(d->out.dtype, wn__cpu_loss(k.term, k.loss.n, k.loss.divisor), b->out);
    return WN_OK;
}

static int32_t grad_of_rows(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    (void)stream;
    struct rows k = {.dy = b->in[0], .out = b->out, .is_logits = d->op == WN_OP_CROSS_ENTROPY_GRAD};
    WN_TRY(wn__cpu_loss_open(d, b, &k.loss));
    k.x = k.is_logits ? b->in[2] : b->out;
    wn__parallel_for(k.loss.n, WN_CPU_GRAIN_MATH / (k.loss.classes + 1) + 1,
                     d->out.dtype == WN_F32 ? grad_rows_f32 : grad_rows_f64, &k);
    return WN_OK;
}

wn_kernel_fn wn__cpu_cross_entropy_kernel(const struct wn_desc *d)
{
    if (d->out.dtype != WN_F32 && d->out.dtype != WN_F64) return NULL;
    for (int32_t i = 0; i < d->n_in; i++)
        if (d->in[i].dtype != (i == 1 ? WN_I32 : d->out.dtype)) return NULL;
    return d->op == WN_OP_CROSS_ENTROPY || d->op == WN_OP_NLL ? loss_of_rows : grad_of_rows;
}
