/* SOFTMAX, LOG_SOFTMAX and their gradients, along any dim (runtime/ops/softmax.c has the formulas).
 *
 * The maximum is subtracted first, so nothing overflows; sums are in double, in an order that the length fixes. They
 * may run in place: the sums of a row are complete before its first element is written, and then each element is read
 * before it is written. A row of -inf alone gives NaN, as the formula does. */
#include <math.h>
#include <stddef.h>
#include "../scalar.h"
#include "bf16.h"
#include "softmax.h"

#define BLOCK 64 /* columns that are computed at once where the dim is not the last */

/* One softmax or gradient. */
struct rows {
    const void *a, *b; /* x, NULL; or dy, y */
    void *out;
    struct wn__axis axis; /* the shape seen from the dim of the softmax */
    int32_t streams;      /* out is stored non-temporally */
};

#define ROW_MOST 4096 /* most elements of a row that softmax computes in a buffer and then streams */

/* ---- the last dim: a row is contiguous ----------------------------------------------------------- */

#define ROWS(S, T)                                                                                                     \
    static inline __attribute__((always_inline)) T row_max_##S(const T *x, int64_t n)                                  \
    {                                                                                                                  \
        T lane[4 * WN_LANES];                                                                                          \
        for (int j = 0; j < 4 * WN_LANES; j++) lane[j] = (T)-INFINITY;                                                 \
        int64_t i = 0;                                                                                                 \
        for (; i + 4 * WN_LANES <= n; i += 4 * WN_LANES)                                                               \
            _Pragma("omp simd") for (int j = 0; j < 4 * WN_LANES; j++) lane[j] = wn_maximum_##S(x[i + j], lane[j]);    \
        for (int j = 0; i < n; i++, j++) lane[j] = wn_maximum_##S(x[i], lane[j]);                                      \
        for (int w = 2 * WN_LANES; w >= WN_LANES; w /= 2)                                                              \
            _Pragma("omp simd") for (int j = 0; j < w; j++) lane[j] = wn_maximum_##S(lane[j + w], lane[j]);            \
        T best = lane[0];                                                                                              \
        for (int j = 1; j < WN_LANES; j++) best = wn_maximum_##S(lane[j], best);                                       \
        return best;                                                                                                   \
    }                                                                                                                  \
    /* Returns the sum of exp(x - max). Terms are rounded to T, as the elements of softmax are */                      \
    static inline __attribute__((always_inline)) double row_exp_sum_##S(const T *x, int64_t n, T best)                 \
    {                                                                                                                  \
        double sum = 0;                                                                                                \
        T term[WN_STRETCH];                                                                                            \
        for (int64_t at = 0; at < n; at += WN_STRETCH) {                                                               \
            int64_t m = n - at < WN_STRETCH ? n - at : WN_STRETCH;                                                     \
            _Pragma("omp simd") for (int64_t i = 0; i < m; i++) term[i] = wn_exp_##S(x[at + i] - best);                \
            sum += wn__row_sum_##S(term, m);                                                                           \
        }                                                                                                              \
        return sum;                                                                                                    \
    }                                                                                                                  \
    static void softmax_rows_##S(int64_t begin, int64_t end, void *ctx)                                                \
    {                                                                                                                  \
        const struct rows *k = ctx;                                                                                    \
        int64_t n = k->axis.n;                                                                                         \
        for (int64_t r = begin; r < end; r++) {                                                                        \
            const T *x = (const T *)k->a + r * n;                                                                      \
            T own[ROW_MOST], best = row_max_##S(x, n), sum;                                                            \
            int32_t streams = k->streams && n <= ROW_MOST;                                                             \
            T *out = streams ? own : (T *)k->out + r * n;                                                              \
            wn__fetch(x + n, n < 1024 ? n * (int64_t)sizeof(T) : 4096);                                                \
            _Pragma("omp simd") for (int64_t i = 0; i < n; i++) out[i] = wn_exp_##S(x[i] - best);                      \
            sum = (T)(1.0 / wn__row_sum_##S(out, n));                                                                  \
            _Pragma("omp simd") for (int64_t i = 0; i < n; i++) out[i] = out[i] * sum;                                 \
            if (streams) wn__stream((T *)k->out + r * n, own, n * (int64_t)sizeof(T));                                 \
        }                                                                                                              \
        if (k->streams) wn__stream_end();                                                                              \
    }                                                                                                                  \
    static void log_softmax_rows_##S(int64_t begin, int64_t end, void *ctx)                                            \
    {                                                                                                                  \
        const struct rows *k = ctx;                                                                                    \
        int64_t n = k->axis.n;                                                                                         \
        for (int64_t r = begin; r < end; r++) {                                                                        \
            const T *x = (const T *)k->a + r * n;                                                                      \
            T best = row_max_##S(x, n);                                                                                \
            T log_sum = (T)log(row_exp_sum_##S(x, n, best));                                                           \
            int64_t at = r * n;                                                                                        \
            WN_STREAM_LOOP(T, k->streams, (T *)k->out, at, at + n, NULL, 0, (x[i - at] - best) - log_sum);             \
        }                                                                                                              \
        if (k->streams) wn__stream_end();                                                                              \
    }                                                                                                                  \
    static void softmax_grad_rows_##S(int64_t begin, int64_t end, void *ctx)                                           \
    {                                                                                                                  \
        const struct rows *k = ctx;                                                                                    \
        int64_t n = k->axis.n;                                                                                         \
        for (int64_t r = begin; r < end; r++) {                                                                        \
            const T *dy = (const T *)k->a + r * n, *y = (const T *)k->b + r * n;                                       \
            T dot = (T)wn__row_dot_prefetching_##S(dy, y, n, wn__next_row(n * (int64_t)sizeof(T)), 0);                 \
            int64_t at = r * n;                                                                                        \
            WN_STREAM_LOOP(T, k->streams, (T *)k->out, at, at + n, (const T *)k->b,                                    \
                           wn__next_row(n * (int64_t)sizeof(T)), wn_softmax_grad_##S(dy[i - at], y[i - at], dot));     \
        }                                                                                                              \
        if (k->streams) wn__stream_end();                                                                              \
    }                                                                                                                  \
    static void log_softmax_grad_rows_##S(int64_t begin, int64_t end, void *ctx)                                       \
    {                                                                                                                  \
        const struct rows *k = ctx;                                                                                    \
        int64_t n = k->axis.n;                                                                                         \
        for (int64_t r = begin; r < end; r++) {                                                                        \
            const T *dy = (const T *)k->a + r * n, *y = (const T *)k->b + r * n;                                       \
            T sum = (T)wn__row_sum2_##S(dy, dy, n, wn__next_row(n * (int64_t)sizeof(T)), 0);                           \
            int64_t at = r * n;                                                                                        \
            WN_STREAM_LOOP(T, k->streams, (T *)k->out, at, at + n, (const T *)k->b,                                    \
                           wn__next_row(n * (int64_t)sizeof(T)), wn_log_softmax_grad_##S(dy[i - at], y[i - at], sum)); \
        }                                                                                                              \
        if (k->streams) wn__stream_end();                                                                              \
    }

ROWS(f32, float)
ROWS(f64, double)

/* ---- another dim: blocks of columns, side by side ------------------------------------------------ */

/* Defines the loop over units [begin, end): unit u is BLOCK columns of an outer index. EACH computes out[at] from
 * a[at], b[at]. */
#define COLUMNS(NAME, S, T, FIRST, GATHER, FINISH, EACH)                                                               \
    static void NAME##_columns_##S(int64_t begin, int64_t end, void *ctx)                                              \
    {                                                                                                                  \
        const struct rows *k = ctx;                                                                                    \
        int64_t n = k->axis.n, inner = k->axis.inner, blocks = (inner + BLOCK - 1) / BLOCK;                            \
        for (int64_t u = begin; u < end; u++) {                                                                        \
            int64_t column = u % blocks * BLOCK, m = inner - column < BLOCK ? inner - column : BLOCK;                  \
            int64_t base = u / blocks * n * inner + column;                                                            \
            const T *a = (const T *)k->a + base, *b = k->b ? (const T *)k->b + base : a;                               \
            T *out = (T *)k->out + base, best[BLOCK];                                                                  \
            double sum[BLOCK];                                                                                         \
            (void)b;                                                                                                   \
            for (int64_t j = 0; j < m; j++) sum[j] = 0, best[j] = (T)-INFINITY;                                        \
            for (int64_t i = 0; FIRST && i < n; i++)                                                                   \
                for (int64_t j = 0; j < m; j++) best[j] = wn_maximum_##S(a[i * inner + j], best[j]);                   \
            for (int64_t i = 0; i < n; i++)                                                                            \
                _Pragma("omp simd") for (int64_t j = 0; j < m; j++) sum[j] += (double)(GATHER(i * inner + j));         \
            T done[BLOCK];                                                                                             \
            for (int64_t j = 0; j < m; j++) done[j] = (T)(FINISH(sum[j]));                                             \
            for (int64_t i = 0; i < n; i++)                                                                            \
                _Pragma("omp simd") for (int64_t j = 0; j < m; j++) out[i * inner + j] = EACH(i * inner + j);          \
        }                                                                                                              \
    }

#define SAME(x) (x)
#define INVERSE(x) (1.0 / (x))
#define COLUMN_LOOPS(S, T, EXP, SOFTMAX_GRAD, LOG_SOFTMAX_GRAD)                                                        \
    COLUMNS(softmax, S, T, 1, EXP, INVERSE, done[j] * EXP)                                                             \
    COLUMNS(log_softmax, S, T, 1, EXP, log, LOG_OF)                                                                    \
    COLUMNS(softmax_grad, S, T, 0, PRODUCT, SAME, SOFTMAX_GRAD)                                                        \
    COLUMNS(log_softmax_grad, S, T, 0, FIRST_OF, SAME, LOG_SOFTMAX_GRAD)

/* Formulas of element `at` of the block, in column j. */
#define EXP_F32(at) wn_exp_f32(a[at] - best[j])
#define EXP_F64(at) wn_exp_f64(a[at] - best[j])
#define LOG_OF(at) (a[at] - best[j]) - done[j]
#define PRODUCT(at) (double)a[at] * (double)b[at]
#define FIRST_OF(at) a[at]
#define SOFTMAX_GRAD_F32(at) wn_softmax_grad_f32(a[at], b[at], done[j])
#define SOFTMAX_GRAD_F64(at) wn_softmax_grad_f64(a[at], b[at], done[j])
#define LOG_SOFTMAX_GRAD_F32(at) wn_log_softmax_grad_f32(a[at], b[at], done[j])
#define LOG_SOFTMAX_GRAD_F64(at) wn_log_softmax_grad_f64(a[at], b[at], done[j])

COLUMN_LOOPS(f32, float, EXP_F32, SOFTMAX_GRAD_F32, LOG_SOFTMAX_GRAD_F32)
COLUMN_LOOPS(f64, double, EXP_F64, SOFTMAX_GRAD_F64, LOG_SOFTMAX_GRAD_F64)

#define FAMILY(NAME, name)                                                                                             \
    [WN_OP_##NAME] = {{name##_rows_f32, name##_columns_f32}, {name##_rows_f64, name##_columns_f64}},

static const wn__parallel_body loops[WN_OP_COUNT][2][2] = {FAMILY(SOFTMAX, softmax) FAMILY(
    LOG_SOFTMAX, log_softmax) FAMILY(SOFTMAX_GRAD, softmax_grad) FAMILY(LOG_SOFTMAX_GRAD, log_softmax_grad)};

static int32_t softmax(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    (void)stream;
    struct rows k = {.a = b->in[0], .out = b->out, .axis = wn__axis_of(&d->out, d->attrs.i[0])};
    if (d->n_in > 1) k.b = b->in[1];
    k.streams = wn__streams(wn__bytes(&d->out), k.out, k.a, k.b);
    int32_t columns = k.axis.inner != 1;
    int64_t units = k.axis.outer * (columns ? (k.axis.inner + BLOCK - 1) / BLOCK : 1);
    int64_t each = k.axis.n * (columns ? BLOCK : 1);
    if (each == 0) return WN_OK;
    wn__parallel_for(units, WN_CPU_GRAIN_MATH / each + 1, loops[d->op][d->out.dtype == WN_F64][columns], &k);
    return WN_OK;
}

/* ---- what a fused loss takes of a row (crossentropy.c) ------------------------------------------- */

#define STATS(S, T)                                                                                                    \
    void wn__cpu_row_stats_##S(const T *x, int64_t n, T *best, T *log_sum)                                             \
    {                                                                                                                  \
        *best = row_max_##S(x, n);                                                                                     \
        *log_sum = (T)log(row_exp_sum_##S(x, n, *best));                                                               \
    }

STATS(f32, float)
STATS(f64, double)

wn_kernel_fn wn__cpu_softmax_kernel(const struct wn_desc *d)
{
    if (!wn__dtype_is_float(d->out.dtype) || d->in[0].dtype != d->out.dtype) return NULL;
    if (d->op == WN_OP_NLL || d->op == WN_OP_NLL_GRAD) return wn__cpu_nll_kernel(d);
    if (d->out.dtype == WN_BF16) return wn__cpu_copies_kernel(d);
    if (d->n_in > 1 && d->in[1].dtype != d->out.dtype) return NULL;
    return loops[d->op][0][0] ? softmax : NULL;
}
