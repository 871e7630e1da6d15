/* SOFTMAX, LOG_SOFTMAX and their gradients, along any dim (runtime/ops/softmax.c has the formulas).
 *
 * The maximum is subtracted first, so nothing overflows; sums are in double, in an order that the length fixes. They
 * may run in place: the sums of a row are complete before its first element is written, and then each element is read
 * before it is written. A row of -inf alone gives NaN, as the formula does. */
#include <math.h>
#include <stddef.h>
#include <string.h>
#include "../../scalar.h"
#include "../common/bf16.h"
#include "softmax.h"

#define ROW_MOST 4096 /* most elements of a row that softmax computes in a buffer and then streams */

/* One softmax or gradient. */
struct softmax {
    const void *a, *b; /* x, NULL; or dy, y */
    void *out;
    struct wn__axis axis; /* the shape seen from the dim of the softmax */
    int32_t streams;      /* out is stored non-temporally */
    int64_t together;     /* columns of a block, where the dim is not the last */
    const struct column_loops *columns;
};

/* ---- the last dim: a row is contiguous ----------------------------------------------------------- */

/* Defines the maximum of a row of elements of type X as a number of type N. LOAD makes a number of an element, F is the
 * suffix of functions of N. */
#define ROW_MAX(S, X, F, N, LOAD)                                                                                      \
    static inline __attribute__((always_inline)) N row_max_##S(const X *x, int64_t n)                                  \
    {                                                                                                                  \
        N lane[4 * WN_LANES];                                                                                          \
        for (int j = 0; j < 4 * WN_LANES; j++) lane[j] = (N)-INFINITY;                                                 \
        int64_t i = 0;                                                                                                 \
        for (; i + 4 * WN_LANES <= n; i += 4 * WN_LANES)                                                               \
            _Pragma("omp simd") for (int j = 0; j < 4 * WN_LANES; j++) lane[j] =                                       \
                wn_maximum_##F(LOAD(x[i + j]), lane[j]);                                                               \
        for (int j = 0; i < n; i++, j++) lane[j] = wn_maximum_##F(LOAD(x[i]), lane[j]);                                \
        for (int w = 2 * WN_LANES; w >= WN_LANES; w /= 2)                                                              \
            _Pragma("omp simd") for (int j = 0; j < w; j++) lane[j] = wn_maximum_##F(lane[j + w], lane[j]);            \
        N best = lane[0];                                                                                              \
        for (int j = 1; j < WN_LANES; j++) best = wn_maximum_##F(lane[j], best);                                       \
        return best;                                                                                                   \
    }

/* Defines the sum of exp(x - max). Terms are rounded to N, as the elements of softmax are. */
#define ROW_EXP_SUM(S, X, F, N, LOAD)                                                                                  \
    static inline __attribute__((always_inline)) double row_exp_sum_##S(const X *x, int64_t n, N best)                 \
    {                                                                                                                  \
        double sum = 0;                                                                                                \
        N term[WN_STRETCH];                                                                                            \
        for (int64_t at = 0; at < n; at += WN_STRETCH) {                                                               \
            int64_t m = n - at < WN_STRETCH ? n - at : WN_STRETCH;                                                     \
            _Pragma("omp simd") for (int64_t i = 0; i < m; i++) term[i] = wn_exp_below_##F(LOAD(x[at + i]) - best);    \
            sum += wn__row_sum_##F(term, m);                                                                           \
        }                                                                                                              \
        return sum;                                                                                                    \
    }

/* Defines the statistics of a row. */
#define ROW_STATS(S, X, F, N, LOAD)                                                                                    \
    ROW_MAX(S, X, F, N, LOAD)                                                                                          \
    ROW_EXP_SUM(S, X, F, N, LOAD)                                                                                      \
    void wn__cpu_row_stats_##S(const X *x, int64_t n, N *best, N *log_sum)                                             \
    {                                                                                                                  \
        *best = row_max_##S(x, n);                                                                                     \
        *log_sum = (N)log(row_exp_sum_##S(x, n, *best));                                                               \
    }

ROW_STATS(f32, float, f32, float, WN_SAME)
ROW_STATS(f64, double, f64, double, WN_SAME)
ROW_STATS(bf16, uint16_t, f32, float, wn_from_bf16)

#define SOFTMAX_ROWS(S, T)                                                                                             \
    static void softmax_rows_##S(int64_t begin, int64_t end, void *ctx)                                                \
    {                                                                                                                  \
        const struct softmax *k = ctx;                                                                                 \
        int64_t n = k->axis.n;                                                                                         \
        int32_t streams = k->streams && n <= ROW_MOST;                                                                 \
        for (int64_t r = begin; r < end; r++) {                                                                        \
            const T *x = (const T *)k->a + r * n;                                                                      \
            T own[ROW_MOST], best = row_max_##S(x, n), scale, *out = streams ? own : (T *)k->out + r * n;              \
            wn__fetch(x + n, n < 1024 ? n * (int64_t)sizeof(T) : 4096);                                                \
            _Pragma("omp simd") for (int64_t i = 0; i < n; i++) out[i] = wn_exp_below_##S(x[i] - best);                \
            scale = (T)(1.0 / wn__row_sum_##S(out, n));                                                                \
            _Pragma("omp simd") for (int64_t i = 0; i < n; i++) out[i] = out[i] * scale;                               \
            if (streams) wn__stream((T *)k->out + r * n, own, n * (int64_t)sizeof(T));                                 \
        }                                                                                                              \
        if (k->streams) wn__stream_end();                                                                              \
    }

#define LOG_SOFTMAX_ROWS(S, T)                                                                                         \
    static void log_softmax_rows_##S(int64_t begin, int64_t end, void *ctx)                                            \
    {                                                                                                                  \
        const struct softmax *k = ctx;                                                                                 \
        int64_t n = k->axis.n;                                                                                         \
        for (int64_t r = begin, at = begin * n; r < end; r++, at += n) {                                               \
            const T *x = (const T *)k->a + at;                                                                         \
            T best, log_sum;                                                                                           \
            wn__cpu_row_stats_##S(x, n, &best, &log_sum);                                                              \
            WN_STREAM_LOOP(T, k->streams, (T *)k->out, at, at + n, NULL, 0, (x[i - at] - best) - log_sum);             \
        }                                                                                                              \
        if (k->streams) wn__stream_end();                                                                              \
    }

/* SUM: the sum of a row. Its pass prefetches the next row of dy, the other pass that of y. */
#define GRAD_ROWS(NAME, S, T, SUM)                                                                                     \
    static void NAME##_rows_##S(int64_t begin, int64_t end, void *ctx)                                                 \
    {                                                                                                                  \
        const struct softmax *k = ctx;                                                                                 \
        int64_t n = k->axis.n, next = wn__next_row(n * (int64_t)sizeof(T));                                            \
        for (int64_t r = begin, at = begin * n; r < end; r++, at += n) {                                               \
            const T *dy = (const T *)k->a + at, *y = (const T *)k->b + at;                                             \
            T sum = (T)SUM(dy, y, n, next, 0);                                                                         \
            WN_STREAM_LOOP(T, k->streams, (T *)k->out, at, at + n, (const T *)k->b, next,                              \
                           wn_##NAME##_##S(dy[i - at], y[i - at], sum));                                               \
        }                                                                                                              \
        if (k->streams) wn__stream_end();                                                                              \
    }

#define ROW_LOOPS(S, T)                                                                                                \
    SOFTMAX_ROWS(S, T)                                                                                                 \
    LOG_SOFTMAX_ROWS(S, T)                                                                                             \
    GRAD_ROWS(softmax_grad, S, T, wn__row_dot_prefetching_##S)                                                         \
    GRAD_ROWS(log_softmax_grad, S, T, wn__row_sum2_##S)

ROW_LOOPS(f32, float)
ROW_LOOPS(f64, double)

/* ---- another dim: columns side by side ----------------------------------------------------------- */
/* A block of columns is gone over row by row, in the order of memory: for the maxima, for the sums, and to write. Where
 * the block has left the second-level cache in between, it is read from memory each time, so wide blocks are best: a
 * strided read of 1024 columns has the bandwidth of a plain one.
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
    int64_t at, n;            /* index of the first element; columns */
    int64_t ahead;            /* bytes to the row that is prefetched */
    union numbers best, done; /* maxima; 1 / sum of softmax, log sum of log_softmax, else the sum */
    double sum[COLUMNS];
};

/* The loops of an op and a dtype, over all rows of a block. */
struct column_loops {
    int64_t size;                    /* bytes of an element */
    int32_t reads_b;                 /* the sums are of a and b */
    void (*best)(struct block *c);   /* takes the maxima; NULL: the op has none */
    void (*add)(struct block *c);    /* adds to the sums */
    void (*finish)(struct block *c); /* makes `done` of the sums */
    void (*put)(const struct block *c);
};

/* Prefetches the lines of `bytes` bytes, `ahead` bytes behind an address, into the second-level cache. */
static inline __attribute__((always_inline)) void fetch_far(const void *from, int64_t ahead, int64_t bytes)
{
    for (int64_t at = 0; at < bytes; at += 64) wn__fetch_far(from, ahead + at);
}

#define BEST(S, T)                                                                                                     \
    static void best_##S(struct block *c)                                                                              \
    {                                                                                                                  \
        const T *x = (const T *)c->k->a + c->at;                                                                       \
        T *best = c->best.S;                                                                                           \
        for (int64_t r = 0; r < c->k->axis.n; r++, x += c->k->axis.inner)                                              \
            for (int64_t j = 0, stop; j < c->n; j = stop) {                                                            \
                stop = c->n - j < CHUNK ? c->n : j + CHUNK;                                                            \
                fetch_far(x + j, c->ahead, (stop - j) * (int64_t)sizeof(T));                                           \
                _Pragma("omp simd") for (int64_t i = j; i < stop; i++) best[i] =                                       \
                    ((x[i] > best[i]) | (x[i] != x[i])) ? x[i] : best[i];                                              \
            }                                                                                                          \
    }

/* TERM: the term of column i in a row of a, or of a and b. */
#define ADD(NAME, S, T, TERM)                                                                                          \
    static void NAME##_##S(struct block *c)                                                                            \
    {                                                                                                                  \
        const T *a = (const T *)c->k->a + c->at, *b = c->k->b ? (const T *)c->k->b + c->at : a, *best = c->best.S;     \
        int64_t inner = c->k->axis.inner, reads_b = c->k->columns->reads_b;                                            \
        for (int64_t r = 0; r < c->k->axis.n; r++, a += inner, b += inner)                                             \
            for (int64_t j = 0, stop; j < c->n; j = stop) {                                                            \
                stop = c->n - j < CHUNK ? c->n : j + CHUNK;                                                            \
                fetch_far(a + j, c->ahead, (stop - j) * (int64_t)sizeof(T));                                           \
                if (reads_b) fetch_far(b + j, c->ahead, (stop - j) * (int64_t)sizeof(T));                              \
                _Pragma("omp simd") for (int64_t i = j; i < stop; i++) c->sum[i] += (double)(TERM(S));                 \
            }                                                                                                          \
        (void)best;                                                                                                    \
    }

#define FINISH(NAME, S, T, OF)                                                                                         \
    static void finish_##NAME##_##S(struct block *c)                                                                   \
    {                                                                                                                  \
        for (int64_t j = 0; j < c->n; j++) c->done.S[j] = (T)OF(c->sum[j]);                                            \
    }

/* OF: the element of column i in a row of out. */
#define PUT(NAME, S, T, OF)                                                                                            \
    static void put_##NAME##_##S(const struct block *c)                                                                \
    {                                                                                                                  \
        const T *a = (const T *)c->k->a + c->at, *b = c->k->b ? (const T *)c->k->b + c->at : a;                        \
        const T *best = c->best.S, *done = c->done.S;                                                                  \
        T *out = (T *)c->k->out + c->at, own[CHUNK];                                                                   \
        int64_t inner = c->k->axis.inner;                                                                              \
        for (int64_t r = 0; r < c->k->axis.n; r++, a += inner, b += inner, out += inner)                               \
            for (int64_t j = 0, m; j < c->n; j += m) {                                                                 \
                T *to = c->k->streams ? own : out + j;                                                                 \
                m = c->n - j < CHUNK ? c->n - j : CHUNK;                                                               \
                fetch_far(a + j, c->ahead, m * (int64_t)sizeof(T));                                                    \
                if (b != a) fetch_far(b + j, c->ahead, m * (int64_t)sizeof(T));                                        \
                _Pragma("omp simd") for (int64_t i = j; i < j + m; i++) to[i - j] = OF(S);                             \
                if (c->k->streams) wn__stream(out + j, own, m * (int64_t)sizeof(T));                                   \
            }                                                                                                          \
        (void)best;                                                                                                    \
    }

#define EXP(S) wn_exp_below_##S(a[i] - best[i])
#define PRODUCT(S) (double)a[i] * (double)b[i]
#define FIRST(S) a[i]
#define SAME(x) (x)
#define INVERSE(x) (1.0 / (x))
#define SOFTMAX_OF(S) done[i] * wn_exp_below_##S(a[i] - best[i])
#define LOG_SOFTMAX_OF(S) (a[i] - best[i]) - done[i]
#define SOFTMAX_GRAD_OF(S) wn_softmax_grad_##S(a[i], b[i], done[i])
#define LOG_SOFTMAX_GRAD_OF(S) wn_log_softmax_grad_##S(a[i], b[i], done[i])

#define COLUMN_LOOPS(S, T)                                                                                             \
    BEST(S, T)                                                                                                         \
    ADD(add_exp, S, T, EXP)                                                                                            \
    ADD(add_product, S, T, PRODUCT)                                                                                    \
    ADD(add_first, S, T, FIRST)                                                                                        \
    FINISH(inverse, S, T, INVERSE)                                                                                     \
    FINISH(log, S, T, log)                                                                                             \
    FINISH(same, S, T, SAME)                                                                                           \
    PUT(softmax, S, T, SOFTMAX_OF)                                                                                     \
    PUT(log_softmax, S, T, LOG_SOFTMAX_OF)                                                                             \
    PUT(softmax_grad, S, T, SOFTMAX_GRAD_OF)                                                                           \
    PUT(log_softmax_grad, S, T, LOG_SOFTMAX_GRAD_OF)

COLUMN_LOOPS(f32, float)
COLUMN_LOOPS(f64, double)

#define OP_COLUMNS(S, T)                                                                                               \
    {                                                                                                                  \
        [WN_OP_SOFTMAX] = {sizeof(T), 0, best_##S, add_exp_##S, finish_inverse_##S, put_softmax_##S},                  \
        [WN_OP_LOG_SOFTMAX] = {sizeof(T), 0, best_##S, add_exp_##S, finish_log_##S, put_log_softmax_##S},              \
        [WN_OP_SOFTMAX_GRAD] = {sizeof(T), 1, NULL, add_product_##S, finish_same_##S, put_softmax_grad_##S},           \
        [WN_OP_LOG_SOFTMAX_GRAD] = {sizeof(T), 0, NULL, add_first_##S, finish_same_##S, put_log_softmax_grad_##S},     \
    }

static const struct column_loops column_loops[2][WN_OP_COUNT] = {OP_COLUMNS(f32, float), OP_COLUMNS(f64, double)};

static void start_block(struct block *c)
{
    for (int64_t j = 0; j < c->n; j++) {
        c->sum[j] = 0;
        if (c->k->columns->size == sizeof(float)) c->best.f32[j] = -INFINITY;
        else c->best.f64[j] = -INFINITY;
    }
}

static void compute_block(struct block *c)
{
    const struct column_loops *l = c->k->columns;
    start_block(c);
    if (l->best) l->best(c);
    l->add(c);
    l->finish(c);
    l->put(c);
}

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
        rows = AHEAD / (c.n * k->columns->size);
        c.ahead = (rows > 64 ? 64 : rows) * inner * k->columns->size;
        compute_block(&c);
    }
    if (k->streams) wn__stream_end();
}

/* Returns the most columns of a block. */
static int64_t most_columns(const struct softmax *k)
{
    int64_t fit = CACHED / (k->axis.n * k->columns->size) / 16 * 16;
    return fit < LEAST_COLUMNS || fit > COLUMNS ? COLUMNS : fit;
}

/* ---- ops ----------------------------------------------------------------------------------------- */

#define FAMILY(NAME, name) [WN_OP_##NAME] = {name##_rows_f32, name##_rows_f64},

static const wn__parallel_body row_loops[WN_OP_COUNT][2] = {FAMILY(SOFTMAX, softmax) FAMILY(
    LOG_SOFTMAX, log_softmax) FAMILY(SOFTMAX_GRAD, softmax_grad) FAMILY(LOG_SOFTMAX_GRAD, log_softmax_grad)};

static int32_t softmax(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    (void)stream;
    int32_t is_f64 = d->out.dtype == WN_F64;
    struct softmax k = {.a = b->in[0], .out = b->out, .axis = wn__axis_of(&d->out, d->attrs.i[0]), .together = 1};
    if (d->n_in > 1) k.b = b->in[1];
    k.streams = d->op == WN_OP_SOFTMAX_GRAD ? wn__streams(wn__bytes(&d->out), k.out, k.a, k.b)
                                            : wn__streams_math(wn__bytes(&d->out), k.out, k.a, k.b);
    k.columns = &column_loops[is_f64][d->op];
    if (k.axis.n == 0 || k.axis.inner == 0) return WN_OK;
    if (k.axis.inner != 1) k.together = wn__columns_together(k.axis.inner, k.axis.outer, most_columns(&k));
    int64_t units = k.axis.outer * ((k.axis.inner + k.together - 1) / k.together);
    wn__parallel_for(units, WN_CPU_GRAIN_MATH / (k.axis.n * k.together) + 1,
                     k.axis.inner == 1 ? row_loops[d->op][is_f64] : compute_columns, &k);
    return WN_OK;
}

wn_kernel_fn wn__cpu_softmax_kernel(const struct wn_desc *d)
{
    if (!wn__dtype_is_float(d->out.dtype) || d->in[0].dtype != d->out.dtype) return NULL;
    if (d->out.dtype == WN_BF16) return wn__cpu_copies_kernel(d);
    if (d->n_in > 1 && d->in[1].dtype != d->out.dtype) return NULL;
    return row_loops[d->op][0] ? softmax : NULL;
}
