/* NLL, NLL_GRAD and what cross-entropy shares with them: logp: (n, classes), labels: (n) -> loss: (). crossentropy.c
 * has what goes over rows.
 *
 * Labels are checked before they are used: one that is neither a class nor the ignored number is WN_VALUE, with its
 * value and place. A loss is a sum by parts: the number of parts follows from the number of labels alone, a part is
 * summed in 16 lanes of double, and parts are added in order, so neither threads nor fusing change a bit. */
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include "../../runtime/base/outside.h"
#include "../scalar.h"
#include "softmax.h"

static inline int64_t part_start(int64_t n, int64_t part)
{
    return n * part / wn__loss_parts(n);
}

static double join_parts(const double *part, int64_t n)
{
    double sum = 0;
    for (int64_t c = 0; c < wn__loss_parts(n); c++) sum += part[c];
    return sum;
}

static double loss_of(double sum, double divisor)
{
    return (0 - sum) / divisor;
}

double wn__cpu_loss(const double *term, int64_t n, double divisor)
{
    double part[WN_LOSS_PARTS];
    for (int64_t c = 0; c < wn__loss_parts(n); c++)
        part[c] = wn__row_sum_f64(term + part_start(n, c), part_start(n, c + 1) - part_start(n, c));
    return loss_of(join_parts(part, n), divisor);
}

/* Returns the sum of the weights of the labels that count. */
static double sum_weights(const struct wn__loss *k)
{
    double part[WN_LOSS_PARTS];
    for (int64_t c = 0; c < wn__loss_parts(k->n); c++) {
        int64_t first = part_start(k->n, c), stop = part_start(k->n, c + 1);
        double lane[WN_LANES] = {0};
        part[c] = 0;
        for (int64_t i = first; i < stop; i++)
            if (k->label[i] != k->ignored) lane[(i - first) % WN_LANES] += wn__class_weight(k, k->label[i]);
        for (int j = 0; j < WN_LANES; j++) part[c] += lane[j];
    }
    return join_parts(part, k->n);
}

/* ---- labels -------------------------------------------------------------------------------------- */

/* Returns the number of labels that count; -1 where one does not fit. */
static int64_t count_fitting(const int32_t *label, int64_t n, int64_t classes, int64_t ignored)
{
    uint32_t limit = classes > INT32_MAX ? (uint32_t)INT32_MAX + 1 : (uint32_t)classes, outside = 0;
    int32_t can_skip = ignored == (int32_t)ignored, skip = (int32_t)ignored;
    int64_t skipped = 0;
    _Pragma("omp simd reduction(| : outside) reduction(+ : skipped)") for (int64_t i = 0; i < n; i++)
    {
        int32_t is_skipped = can_skip & (label[i] == skip);
        skipped += is_skipped;
        outside |= !is_skipped & ((uint32_t)label[i] >= limit);
    }
    return outside ? -1 : n - skipped;
}

/* Returns WN_VALUE for the first label, among those of the second input, that does not fit. */
static int32_t fail_label(const struct wn_desc *d, const struct wn_buffers *b)
{
    const int32_t *label = b->in[1];
    int64_t classes = wn__table_size(d), ignored = d->attrs.i[0], i = 0;
    while (label[i] == ignored || (label[i] >= 0 && label[i] < classes)) i++;
    return wn__fail_outside(d, i, label[i]);
}

int32_t wn__cpu_loss_open(const struct wn_desc *d, const struct wn_buffers *b, struct wn__loss *out)
{
    struct wn__loss k = {.label = b->in[1], .n = wn__numel(&d->in[1]), .ignored = d->attrs.i[0], .dtype = d->out.dtype};
    int32_t weight = d->op == WN_OP_CROSS_ENTROPY_GRAD ? 3 : 2;
    k.classes = wn__table_size(d);
    k.hit = 1 - d->attrs.f[0];
    k.each = d->attrs.f[0] / (double)k.classes;
    k.is_per_row = d->attrs.i[WN_LOSS_FORM] == WN_LOSS_ROWS;
    int64_t count = count_fitting(k.label, k.n, k.classes, k.ignored);
    if (count < 0) return fail_label(d, b);
    k.divisor = d->attrs.i[WN_LOSS_FORM] == WN_LOSS_MEAN ? (double)count : 1;
    if (weight < d->n_in) k.weight = b->in[weight];
    if (k.weight != NULL && d->attrs.i[WN_LOSS_FORM] == WN_LOSS_MEAN) k.divisor = sum_weights(&k);
    *out = k;
    return WN_OK;
}

double wn__cpu_loss_share(const struct wn__loss *k, const void *dy, int64_t r)
{
    const char *at = (const char *)dy + (k->is_per_row ? r * wn__dtype_size(k->dtype) : 0);
    return -wn__number_get(k->dtype, at) / k->divisor;
}

/* ---- nll ----------------------------------------------------------------------------------------- */

struct nll {
    const void *x;        /* (n, classes) */
    const int32_t *label; /* (n) */
    int64_t classes, ignored, n;
    double (*picked)(const struct nll *k, int64_t begin, int64_t end, int64_t last); /* the loop of a dtype */
    double part[WN_LOSS_PARTS];
    int64_t count[WN_LOSS_PARTS]; /* labels of each part that count */
};

/* Distance of prefetches of logp, in labels: many lines of different pages must be on their way at once.
 * Measured, 2 threads, ms: none 0.17, 48 0.090, 64 0.079, 96 0.076, 128 0.074, 256 0.076. */
#define PICK_AHEAD 128

/* Returns the index in x of the log-probability of a label; of class 0 where the label is ignored. */
static inline int64_t place_of(const struct nll *k, int64_t i)
{
    return i * k->classes + (k->label[i] != k->ignored ? k->label[i] : 0);
}

/* Defines the sum of the log-probabilities of labels [begin, end). Prefetched are those of labels before last + 16. */
#define PICKED(S, T, TAKE)                                                                                             \
    static double picked_##S(const struct nll *k, int64_t begin, int64_t end, int64_t last)                            \
    {                                                                                                                  \
        const T *x = k->x;                                                                                             \
        double lane[WN_LANES] = {0}, sum = 0;                                                                          \
        int64_t i = begin;                                                                                             \
        for (; i + WN_LANES <= end; i += WN_LANES) {                                                                   \
            int64_t next = i + PICK_AHEAD < last ? i + PICK_AHEAD : last;                                              \
            _Pragma("GCC unroll 16") for (int j = 0; j < WN_LANES; j++)                                                \
                wn__fetch_line(x, ((next + j) * k->classes + k->label[next + j]) * (int64_t)sizeof(T));                \
            _Pragma("GCC unroll 16") for (int j = 0; j < WN_LANES; j++) lane[j] +=                                     \
                k->label[i + j] != k->ignored ? (double)TAKE(x[place_of(k, i + j)]) : 0;                               \
        }                                                                                                              \
        for (int j = 0; i < end; i++, j++) lane[j] += k->label[i] != k->ignored ? (double)TAKE(x[place_of(k, i)]) : 0; \
        for (int j = 0; j < WN_LANES; j++) sum += lane[j];                                                             \
        return sum;                                                                                                    \
    }

PICKED(f32, float, WN_SAME)
PICKED(f64, double, WN_SAME)
PICKED(bf16, uint16_t, wn_from_bf16)

/* Sums parts [begin, end): the labels of a part are checked, then used from the first-level cache. */
static void sum_parts(int64_t begin, int64_t end, void *ctx)
{
    struct nll *k = ctx;
    int64_t last = part_start(k->n, end) - WN_LANES;
    for (int64_t c = begin; c < end; c++) {
        int64_t i = part_start(k->n, c), stop = part_start(k->n, c + 1);
        k->count[c] = count_fitting(k->label + i, stop - i, k->classes, k->ignored);
        k->part[c] = k->count[c] < 0 ? 0 : k->picked(k, i, stop, last);
    }
}

/* Stores a number as an element; bf16 is the f32 value, rounded. */
static void put_number(int32_t dtype, double value, void *element)
{
    wn__number_put(dtype, dtype == WN_F64 ? value : (double)(float)value, element);
}

static int32_t nll(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    (void)stream;
    struct nll k = {.x = b->in[0], .label = b->in[1], .ignored = d->attrs.i[0], .n = wn__numel(&d->in[1])};
    k.classes = d->in[0].dim[d->in[0].ndim - 1];
    int64_t count = 0, parts = wn__loss_parts(k.n);
    k.picked = d->out.dtype == WN_F64 ? picked_f64 : d->out.dtype == WN_BF16 ? picked_bf16 : picked_f32;
    wn__parallel_for(parts, 2, sum_parts, &k);
    for (int64_t c = 0; c < parts; c++) {
        if (k.count[c] < 0) return fail_label(d, b);
        count += k.count[c];
    }
    const double divisor = d->attrs.i[WN_LOSS_FORM] == WN_LOSS_MEAN ? (double)count : 1;
    put_number(d->out.dtype, loss_of(join_parts(k.part, k.n), divisor), b->out);
    return WN_OK;
}

/* One NLL_GRAD. */
struct nll_grad {
    struct wn__loss loss;
    const void *dy; /* () or (rows) */
    void *out;      /* (rows, classes) */
};

static void nll_grad_rows(int64_t begin, int64_t end, void *ctx)
{
    const struct nll_grad *g = ctx;
    int64_t size = wn__dtype_size(g->loss.dtype), row = g->loss.classes * size, bytes = (end - begin) * row;
    char *first = (char *)g->out + begin * row;
    if (wn__streams(bytes, first, NULL, NULL)) {
        wn__stream_fill(first, 0, bytes);
        wn__stream_end();
    } else memset(first, 0, (size_t)bytes);
    for (int64_t i = begin; i < end; i++) {
        int32_t label = g->loss.label[i];
        if (label == g->loss.ignored) continue;
        double share = wn__cpu_loss_share(&g->loss, g->dy, i);
        put_number(g->loss.dtype, wn__loss_slope(share, wn__class_weight(&g->loss, label), g->loss.hit),
                   (char *)g->out + i * row + label * size);
    }
}

static int32_t nll_grad(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    (void)stream;
    struct nll_grad g = {.dy = b->in[0], .out = b->out};
    WN_TRY(wn__cpu_loss_open(d, b, &g.loss));
    wn__parallel_for(g.loss.n, WN_CPU_GRAIN / (g.loss.classes + 1) + 1, nll_grad_rows, &g);
    return WN_OK;
}

wn_kernel_fn wn__cpu_nll_kernel(const struct wn_desc *d)
{
    if (d->in[1].dtype != WN_I32) return NULL;
    if (d->op == WN_OP_NLL ? wn__loss_has_rows(d) : d->attrs.f[0] > 0) return wn__cpu_cross_entropy_kernel(d);
    return d->op == WN_OP_NLL ? nll : nll_grad;
}
