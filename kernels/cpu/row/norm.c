/* ROW_MEAN, ROW_RSTD, LAYERNORM, LAYERNORM_DX, LAYERNORM_DX_ADD, LAYERNORM_DW: layer norm over the last dim, x: (rows,
 * n), in pieces that a policy can see (runtime/ops/norm.c has the formulas).
 *
 * Sums over a row or down a column are in double, in an order that the shape fixes. LAYERNORM may overwrite x, and
 * LAYERNORM_DX dy or x: the sums of a row are computed first, then each element is read before it is written. */
#include <math.h>
#include <stddef.h>
#include <string.h>
#include "../../scalar.h"
#include "../common/bf16.h"
#include "../common/cpu.h"
#include "../../row_parts.h"

#define DW_ROWS 4 /* rows added to a column's sum in registers. Measured: 8: 1.1x time, since two arrays are read */

/* One op of the family, over x: (rows, n). */
struct norm {
    const void *const *in;
    void *out;
    int64_t rows, n;
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

/* ---- sums of a row ------------------------------------------------------------------------------- */

/* Sums over more than two arrays, in the lanes of WN_LANE_SUM. A term is rounded to its dtype and then added in double.
 * Measured: converting each factor to double: two thirds of the time of LAYERNORM_DW. */

#define SQUARES(S, T)                                                                                                  \
    static inline __attribute__((always_inline)) double row_square_##S(const T *x, T mean, int64_t n)                  \
    {                                                                                                                  \
        double lane[WN_LANES] = {0}, sum = 0;                                                                          \
        int64_t at = 0;                                                                                                \
        for (; at + WN_LANES <= n; at += WN_LANES)                                                                     \
            _Pragma("omp simd") for (int j = 0; j < WN_LANES; j++) lane[j] +=                                          \
                (double)((x[at + j] - mean) * (x[at + j] - mean));                                                     \
        for (int j = 0; at < n; at++, j++) lane[j] += (double)((x[at] - mean) * (x[at] - mean));                       \
        for (int j = 0; j < WN_LANES; j++) sum += lane[j];                                                             \
        return sum;                                                                                                    \
    }

/* Defines the sum of dy w (x - mean); *dot becomes the sum of dy w, in lanes of its own. */
#define MOMENTS(S, T)                                                                                                  \
    static inline __attribute__((always_inline)) double row_moment_##S(const T *dy, const T *x, const T *w, T mean,    \
                                                                       int64_t n, double *dot)                         \
    {                                                                                                                  \
        double lane[WN_LANES] = {0}, plain[WN_LANES] = {0}, sum = 0;                                                   \
        int64_t at = 0, ahead = wn__next_row(n * (int64_t)sizeof(T));                                                  \
        *dot = 0;                                                                                                      \
        for (; at + WN_LANES <= n; at += WN_LANES) {                                                                   \
            wn__fetch_behind(x + at, ahead, WN_LANES * (int64_t)sizeof(T));                                            \
            _Pragma("omp simd") for (int j = 0; j < WN_LANES; j++)                                                     \
                add_moment_##S(dy[at + j] * w[at + j], x[at + j] - mean, &plain[j], &lane[j]);                         \
        }                                                                                                              \
        for (int j = 0; at < n; at++, j++) add_moment_##S(dy[at] * w[at], x[at] - mean, &plain[j], &lane[j]);          \
        for (int j = 0; j < WN_LANES; j++) sum += lane[j], *dot += plain[j];                                           \
        return sum;                                                                                                    \
    }

#define ADD_MOMENT(S, T)                                                                                               \
    static inline __attribute__((always_inline)) void add_moment_##S(T scaled, T off, double *plain, double *lane)     \
    {                                                                                                                  \
        *plain += (double)scaled;                                                                                      \
        *lane += (double)(scaled * off);                                                                               \
    }

/* ---- loops over rows [begin, end) ---------------------------------------------------------------- */

#define ROW_MEAN(S, T)                                                                                                 \
    static void row_mean_##S(int64_t begin, int64_t end, void *ctx)                                                    \
    {                                                                                                                  \
        const struct norm *k = ctx;                                                                                    \
        const T *x = k->in[0];                                                                                         \
        for (int64_t r = begin; r < end; r++)                                                                          \
            ((T *)k->out)[r] = (T)(wn__row_sum_##S(x + r * k->n, k->n) / (double)k->n);                                \
    }

#define ROW_RSTD(S, T)                                                                                                 \
    static void row_rstd_##S(int64_t begin, int64_t end, void *ctx)                                                    \
    {                                                                                                                  \
        const struct norm *k = ctx;                                                                                    \
        const T *x = k->in[0], *mean = k->in[1];                                                                       \
        for (int64_t r = begin; r < end; r++) {                                                                        \
            double square = row_square_##S(x + r * k->n, mean[r], k->n);                                               \
            ((T *)k->out)[r] = (T)(1.0 / sqrt(square / (double)k->n + k->eps));                                        \
        }                                                                                                              \
    }

#define LAYERNORM(S, T)                                                                                                \
    static void layernorm_##S(int64_t begin, int64_t end, void *ctx)                                                   \
    {                                                                                                                  \
        const struct norm *k = ctx;                                                                                    \
        const T *mean = k->in[1], *rstd = k->in[2], *w = k->in[3], *b = k->in[4];                                      \
        for (int64_t r = begin, at = begin * k->n; r < end; r++, at += k->n) {                                         \
            const T *x = (const T *)k->in[0] + at;                                                                     \
            T m = mean[r], s = rstd[r];                                                                                \
            WN_STREAM_LOOP(T, k->streams, (T *)k->out, at, at + k->n, (const T *)k->in[0], wn__tuning.stream_ahead,    \
                           wn_layernorm_##S(x[i - at], m, s, w[i - at], b[i - at]));                                   \
        }                                                                                                              \
        if (k->streams) wn__stream_end();                                                                              \
    }

/* Defines the gradient of x in row r; plus: NULL, or (rows, n), added to it. */
#define DX_ROW(S, T)                                                                                                   \
    static inline __attribute__((always_inline)) void dx_row_##S(const struct norm *k, int64_t r, const T *plus)       \
    {                                                                                                                  \
        int64_t n = k->n, at = r * n, next = wn__next_row(n * (int64_t)sizeof(T));                                     \
        const T *dy = (const T *)k->in[0] + at, *x = (const T *)k->in[1] + at, *w = k->in[4];                          \
        T m = ((const T *)k->in[2])[r], s = ((const T *)k->in[3])[r];                                                  \
        double dot, moment = row_moment_##S(dy, x, w, m, n, &dot);                                                     \
        T c1 = (T)(dot / (double)n), c2 = (T)(moment * (double)s / (double)n);                                         \
        if (plus)                                                                                                      \
            WN_STREAM_LOOP(T, k->streams, (T *)k->out, at, at + n, (const T *)k->in[0], next,                          \
                           wn_layernorm_dx_##S(dy[i - at] * w[i - at], x[i - at], m, s, c1, c2) + plus[i]);            \
        else                                                                                                           \
            WN_STREAM_LOOP(T, k->streams, (T *)k->out, at, at + n, (const T *)k->in[0], next,                          \
                           wn_layernorm_dx_##S(dy[i - at] * w[i - at], x[i - at], m, s, c1, c2));                      \
    }

#define LAYERNORM_DX(S, T)                                                                                             \
    static void layernorm_dx_##S(int64_t begin, int64_t end, void *ctx)                                                \
    {                                                                                                                  \
        const struct norm *k = ctx;                                                                                    \
        for (int64_t r = begin; r < end; r++) dx_row_##S(k, r, NULL);                                                  \
        if (k->streams) wn__stream_end();                                                                              \
    }                                                                                                                  \
    static void layernorm_dx_add_##S(int64_t begin, int64_t end, void *ctx)                                            \
    {                                                                                                                  \
        const struct norm *k = ctx;                                                                                    \
        for (int64_t r = begin; r < end; r++) dx_row_##S(k, r, k->in[5]);                                              \
        if (k->streams) wn__stream_end();                                                                              \
    }

#define ROW_LOOPS(S, T)                                                                                                \
    SQUARES(S, T)                                                                                                      \
    ADD_MOMENT(S, T)                                                                                                   \
    MOMENTS(S, T)                                                                                                      \
    ROW_MEAN(S, T)                                                                                                     \
    ROW_RSTD(S, T)                                                                                                     \
    LAYERNORM(S, T)                                                                                                    \
    DX_ROW(S, T)                                                                                                       \
    LAYERNORM_DX(S, T)

ROW_LOOPS(f32, float)
ROW_LOOPS(f64, double)

/* ---- the gradient of w: sums down columns -------------------------------------------------------- */

#define DW_DOWN(S, T)                                                                                                  \
    static void dw_down_##S(const struct norm *k, int64_t r, int64_t at, int64_t m, double *sum,                       \
                            struct wn__prefetch next[2])                                                               \
    {                                                                                                                  \
        const T *mean = (const T *)k->in[2] + r, *rstd = (const T *)k->in[3] + r;                                      \
        const T *dy = (const T *)k->in[0] + r * k->n + at, *x = (const T *)k->in[1] + r * k->n + at;                   \
        for (int64_t c = 0; c + 16 <= m; c += 16) {                                                                    \
            double so_far[16];                                                                                         \
            for (int i = 0; i < 2; i++) wn__prefetch_lines_far(&next[i], DW_ROWS * 16 * (int64_t)sizeof(T) / 64);      \
            memcpy(so_far, sum + c, sizeof so_far);                                                                    \
            for (int64_t i = 0; i < DW_ROWS; i++)                                                                      \
                _Pragma("omp simd") for (int64_t j = c; j < c + 16; j++) so_far[j - c] +=                              \
                    (double)(dy[i * k->n + j] * ((x[i * k->n + j] - mean[i]) * rstd[i]));                              \
            memcpy(sum + c, so_far, sizeof so_far);                                                                    \
        }                                                                                                              \
    }

#define DW_ACROSS(S, T)                                                                                                \
    static void dw_across_##S(const struct norm *k, const int64_t rows[2], int64_t at, int64_t m, double *sum)         \
    {                                                                                                                  \
        const T *dy = (const T *)k->in[0] + at, *x = (const T *)k->in[1] + at, *mean = k->in[2], *rstd = k->in[3];     \
        for (int64_t r = rows[0]; r < rows[1]; r++)                                                                    \
            for (int64_t j = 0; j < m; j++)                                                                            \
                sum[j] += (double)(dy[r * k->n + j] * ((x[r * k->n + j] - mean[r]) * rstd[r]));                        \
    }                                                                                                                  \
    static void dw_store_##S(void *out, const double *sum, int64_t n)                                                  \
    {                                                                                                                  \
        for (int64_t j = 0; j < n; j++) ((T *)out)[j] = (T)sum[j];                                                     \
    }

#define DW_LOOPS(S, T)                                                                                                 \
    DW_DOWN(S, T)                                                                                                      \
    DW_ACROSS(S, T)                                                                                                    \
    static const struct dw_loops dw_##S = {sizeof(T), dw_down_##S, dw_across_##S, dw_store_##S};

DW_LOOPS(f32, float)
DW_LOOPS(f64, double)

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

#define FAMILY(NAME, name) [WN_OP_##NAME] = {name##_f32, name##_f64},

static const wn__parallel_body loops[WN_OP_COUNT][2] = {FAMILY(ROW_MEAN, row_mean) FAMILY(ROW_RSTD, row_rstd) FAMILY(
    LAYERNORM, layernorm) FAMILY(LAYERNORM_DX, layernorm_dx) FAMILY(LAYERNORM_DX_ADD, layernorm_dx_add)};

static int32_t norm(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    (void)stream;
    int32_t backward = d->op == WN_OP_LAYERNORM_DX || d->op == WN_OP_LAYERNORM_DW || d->op == WN_OP_LAYERNORM_DX_ADD;
    int32_t is_f64 = d->out.dtype == WN_F64;
    const struct wn_type *x = &d->in[backward ? 1 : 0];
    struct norm k = {.in = b->in, .out = b->out, .rows = 1, .n = x->dim[x->ndim - 1], .eps = d->attrs.f[0]};
    k.streams = wn__streams(wn__bytes(&d->out), b->out, b->in[0], d->n_in > 1 ? b->in[1] : NULL);
    if (d->op == WN_OP_LAYERNORM_DX_ADD && b->in[5] == b->out) k.streams = 0;
    for (int32_t i = 0; i < x->ndim - 1; i++) k.rows *= x->dim[i];
    k.partial = b->workspace;
    k.dw = is_f64 ? &dw_f64 : &dw_f32;
    if (d->op == WN_OP_LAYERNORM_DW) layernorm_dw(&k);
    else wn__parallel_for(k.rows, WN_CPU_GRAIN_MATH / (k.n + 1) + 1, loops[d->op][is_f64], &k);
    return WN_OK;
}

wn_kernel_fn wn__cpu_norm_kernel(const struct wn_desc *d)
{
    if (d->out.dtype == WN_BF16) return wn__cpu_copies_kernel(d);
    if (d->out.dtype != WN_F32 && d->out.dtype != WN_F64) return NULL;
    for (int32_t i = 0; i < d->n_in; i++)
        if (d->in[i].dtype != d->out.dtype) return NULL;
    return d->op == WN_OP_LAYERNORM_DW || loops[d->op][0] ? norm : NULL;
}
