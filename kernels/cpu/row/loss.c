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
#include "../../scalar.h"
#include "../common/bf16.h"
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

/* Each macro defines loops over x of type X, suffix S, that compute in numbers N, suffix F. LOAD makes a number of an
 * element, STORE an element of a number. */
#define CLASSES(S, X, N, LOAD)                                                                                         \
    static N weight_##S(const struct rows *k, int64_t c)                                                               \
    {                                                                                                                  \
        return k->weight != NULL ? ((const N *)k->weight)[c] : (N)1;                                                   \
    }                                                                                                                  \
    /* Returns the log-probability of class c of a row with statistics s. */                                           \
    static inline N logp_##S(const X *x, int64_t c, const N *s)                                                        \
    {                                                                                                                  \
        return ((N)LOAD(x[c]) - s[0]) - s[1];                                                                          \
    }                                                                                                                  \
    static const N *stats_##S(const struct rows *k, int64_t r)                                                         \
    {                                                                                                                  \
        static const N none[2] = {0, 0};                                                                               \
        return k->stats != NULL ? (const N *)k->stats + 2 * r : none;                                                  \
    }

#define STATS_ROWS(S, X, N)                                                                                            \
    static void stats_rows_##S(int64_t begin, int64_t end, void *ctx)                                                  \
    {                                                                                                                  \
        const struct rows *k = ctx;                                                                                    \
        N *out = k->out;                                                                                               \
        for (int64_t r = begin; r < end; r++)                                                                          \
            wn__cpu_row_stats_##S((const X *)k->x + r * k->classes, k->classes, &out[2 * r], &out[2 * r + 1]);         \
    }

/* Defines the sum of w_c log p_c over the classes, in 16 lanes. */
#define ALL_CLASSES(S, X, N)                                                                                           \
    static double all_classes_##S(const struct rows *k, const X *x, const N *s)                                        \
    {                                                                                                                  \
        double lane[WN_LANES] = {0}, sum = 0;                                                                          \
        for (int64_t c = 0; c < k->classes; c++)                                                                       \
            lane[c % WN_LANES] += (double)weight_##S(k, c) * (double)logp_##S(x, c, s);                                \
        for (int j = 0; j < WN_LANES; j++) sum += lane[j];                                                             \
        return sum;                                                                                                    \
    }

#define LOSS_ROWS(S, X, N)                                                                                             \
    static void loss_rows_##S(int64_t begin, int64_t end, void *ctx)                                                   \
    {                                                                                                                  \
        const struct rows *k = ctx;                                                                                    \
        for (int64_t r = begin; r < end; r++) {                                                                        \
            const X *x = (const X *)k->x + r * k->classes;                                                             \
            const N *s = stats_##S(k, r);                                                                              \
            int32_t label = label_of(k, r);                                                                            \
            int64_t ahead = r + AHEAD < end ? AHEAD : 0;                                                               \
            wn__fetch_line(x, (ahead * k->classes + k->label[r + ahead]) * (int64_t)sizeof(X));                        \
            ((N *)k->out)[r] = 0;                                                                                      \
            if (label < 0) continue;                                                                                   \
            double all = k->each > 0 ? all_classes_##S(k, x, s) : 0, factor = k->hit * (double)weight_##S(k, label);   \
            ((N *)k->out)[r] = (N)(0 - wn__loss_term(factor, (double)logp_##S(x, label, s), k->each, all));            \
        }                                                                                                              \
    }

/* Defines dx of a row of logits of whose log-probabilities that of the label alone has a gradient, `value`. */
#define SHARP_ROW(S, X, F, N, LOAD, STORE)                                                                             \
    static N slope_##S(const struct rows *k, double share, int64_t c, int32_t label)                                   \
    {                                                                                                                  \
        return (N)wn__loss_slope(share, (double)weight_##S(k, c), k->each + (c == label ? k->hit : 0));                \
    }                                                                                                                  \
    static void sharp_row_##S(const struct rows *k, int64_t r, N value)                                                \
    {                                                                                                                  \
        const X *x = (const X *)k->x + r * k->classes;                                                                 \
        const N *s = stats_##S(k, r);                                                                                  \
        X *out = (X *)k->out + r * k->classes;                                                                         \
        int32_t label = label_of(k, r);                                                                                \
        const N best = s[0], log_sum = s[1],                                                                           \
                own = label < 0 ? 0 : wn_log_softmax_grad_##F(value, logp_##S(x, label, s), value);                    \
        const int64_t n = k->classes;                                                                                  \
        _Pragma("omp simd") for (int64_t c = 0; c < n; c++) out[c] =                                                   \
            STORE(wn_log_softmax_grad_##F((N)0, ((N)LOAD(x[c]) - best) - log_sum, value));                             \
        if (label >= 0) out[label] = STORE(own);                                                                       \
    }

/* Defines dx of a row of logits whose log-probabilities all have gradients. */
#define SMOOTH_ROW(S, X, F, N, STORE)                                                                                  \
    static void smooth_row_##S(const struct rows *k, int64_t r, double share)                                          \
    {                                                                                                                  \
        const X *x = (const X *)k->x + r * k->classes;                                                                 \
        const N *s = stats_##S(k, r);                                                                                  \
        X *out = (X *)k->out + r * k->classes;                                                                         \
        int32_t label = label_of(k, r);                                                                                \
        double lane[WN_LANES] = {0}, sum = 0;                                                                          \
        for (int64_t c = 0; c < k->classes; c++) lane[c % WN_LANES] += (double)slope_##S(k, share, c, label);          \
        for (int j = 0; j < WN_LANES; j++) sum += lane[j];                                                             \
        for (int64_t c = 0; c < k->classes; c++)                                                                       \
            out[c] = STORE(wn_log_softmax_grad_##F(slope_##S(k, share, c, label), logp_##S(x, c, s), (N)sum));         \
    }

/* Defines dx of a row of log-probabilities. */
#define PLAIN_ROW(S, X, STORE)                                                                                         \
    static void plain_row_##S(const struct rows *k, int64_t r, double share)                                           \
    {                                                                                                                  \
        X *out = (X *)k->out + r * k->classes;                                                                         \
        int32_t label = label_of(k, r);                                                                                \
        memset(out, 0, (size_t)k->classes * sizeof(X));                                                                \
        for (int64_t c = 0; label >= 0 && k->each > 0 && c < k->classes; c++)                                          \
            out[c] = STORE(slope_##S(k, share, c, label));                                                             \
        if (label >= 0) out[label] = STORE(slope_##S(k, share, label, label));                                         \
    }

#define GRAD_ROWS(S, N)                                                                                                \
    static void grad_rows_##S(int64_t begin, int64_t end, void *ctx)                                                   \
    {                                                                                                                  \
        const struct rows *k = ctx;                                                                                    \
        for (int64_t r = begin; r < end; r++) {                                                                        \
            int32_t label = label_of(k, r);                                                                            \
            double share = label < 0 ? 0 : -(double)((const N *)k->dy)[r];                                             \
            if (k->stats == NULL) plain_row_##S(k, r, share);                                                          \
            else if (label >= 0 && k->each > 0) smooth_row_##S(k, r, share);                                           \
            else sharp_row_##S(k, r, label < 0 ? 0 : slope_##S(k, share, label, label));                               \
        }                                                                                                              \
    }

#define ROWS(S, X, F, N, LOAD, STORE)                                                                                  \
    CLASSES(S, X, N, LOAD)                                                                                             \
    STATS_ROWS(S, X, N)                                                                                                \
    ALL_CLASSES(S, X, N)                                                                                               \
    LOSS_ROWS(S, X, N)                                                                                                 \
    SHARP_ROW(S, X, F, N, LOAD, STORE)                                                                                 \
    SMOOTH_ROW(S, X, F, N, STORE)                                                                                      \
    PLAIN_ROW(S, X, STORE)                                                                                             \
    GRAD_ROWS(S, N)

ROWS(f32, float, f32, float, WN_SAME, WN_SAME)
ROWS(f64, double, f64, double, WN_SAME, WN_SAME)
ROWS(bf16, uint16_t, f32, float, wn_from_bf16, wn_to_bf16)

/* The loops over the rows of an op, by the dtype of x. */
struct loops {
    wn__parallel_body f32, f64, bf16;
};

static wn__parallel_body loop_of(const struct loops *l, int32_t dtype)
{
    return dtype == WN_F32 ? l->f32 : dtype == WN_F64 ? l->f64 : l->bf16;
}

static int32_t row_stats(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    (void)stream;
    static const struct loops all = {stats_rows_f32, stats_rows_f64, stats_rows_bf16};
    struct rows k = {.x = b->in[0], .out = b->out, .n = wn__numel(&d->out) / 2};
    k.classes = d->in[0].dim[d->in[0].ndim - 1];
    wn__parallel_for(k.n, WN_CPU_GRAIN_MATH / k.classes + 1, loop_of(&all, d->in[0].dtype), &k);
    return WN_OK;
}

static int32_t row_nll(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    (void)stream;
    static const struct loops all = {loss_rows_f32, loss_rows_f64, loss_rows_bf16};
    struct rows k;
    WN_TRY(open_rows(d, b, &k));
    wn__parallel_for(k.n, k.each > 0 ? WN_CPU_GRAIN / k.classes + 1 : 1024, loop_of(&all, d->in[0].dtype), &k);
    return WN_OK;
}

static int32_t row_nll_grad(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    (void)stream;
    static const struct loops all = {grad_rows_f32, grad_rows_f64, grad_rows_bf16};
    struct rows k;
    WN_TRY(open_rows(d, b, &k));
    k.dy = b->in[0];
    wn__parallel_for(k.n, WN_CPU_GRAIN_MATH / (k.classes + 1) + 1, loop_of(&all, d->out.dtype), &k);
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

static int32_t count(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    (void)stream;
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
