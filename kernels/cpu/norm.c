/* ROW_MEAN, ROW_RSTD, LAYERNORM, LAYERNORM_DX, LAYERNORM_DX_ADD, LAYERNORM_DW: layer norm over the last dim, x: (rows,
 * n), in pieces that a policy can see (runtime/ops/norm.c has the formulas).
 *
 * Sums over a row or down a column are in double, in an order that the shape fixes. LAYERNORM may overwrite x, and
 * LAYERNORM_DX dy or x: the sums of a row are computed first, then each element is read before it is written. */
#include <math.h>
#include <stddef.h>
#include <string.h>
#include "../scalar.h"
#include "bf16.h"
#include "cpu.h"
#include "../row_parts.h"

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
};

/* The body of a sum over more than two arrays, in the lanes of WN_LANE_SUM: EXPR_AT(i) is the term of index i. A term
 * is rounded to its dtype and then added in double.
 * Measured: converting each factor to double: two thirds of the time of LAYERNORM_DW. */
#define LANES(EXPR_AT)                                                                                                 \
    double lane[WN_LANES] = {0}, sum = 0;                                                                              \
    int64_t at = 0;                                                                                                    \
    for (; at + WN_LANES <= n; at += WN_LANES)                                                                         \
        _Pragma("omp simd") for (int j = 0; j < WN_LANES; j++) lane[j] += EXPR_AT(at + j);                             \
    for (int j = 0; at < n; at++, j++) lane[j] += EXPR_AT(at);                                                         \
    for (int j = 0; j < WN_LANES; j++) sum += lane[j];                                                                 \
    return sum;

#define SQUARE_AT(i) (double)((x[i] - mean) * (x[i] - mean))
#define SUMS(S, T)                                                                                                     \
    static inline __attribute__((always_inline)) double row_square_##S(const T *x, T mean, int64_t n)                  \
    {                                                                                                                  \
        LANES(SQUARE_AT)                                                                                               \
    }                                                                                                                  \
    /* Returns the sum of dy w (x - mean); *dot becomes the sum of dy w, in lanes of its own */                        \
    static inline __attribute__((always_inline)) double row_moment_##S(const T *dy, const T *x, const T *w, T mean,    \
                                                                       int64_t n, double *dot)                         \
    {                                                                                                                  \
        double lane[WN_LANES] = {0}, plain[WN_LANES] = {0}, sum = 0;                                                   \
        int64_t at = 0;                                                                                                \
        *dot = 0;                                                                                                      \
        for (; at + WN_LANES <= n; at += WN_LANES) {                                                                   \
            wn__fetch_behind(x + at, wn__next_row(n * (int64_t)sizeof(T)), WN_LANES * (int64_t)sizeof(T));             \
            _Pragma("omp simd") for (int j = 0; j < WN_LANES; j++)                                                     \
            {                                                                                                          \
                T scaled = dy[at + j] * w[at + j];                                                                     \
                plain[j] += (double)scaled;                                                                            \
                lane[j] += (double)(scaled * (x[at + j] - mean));                                                      \
            }                                                                                                          \
        }                                                                                                              \
        for (int j = 0; at < n; at++, j++) {                                                                           \
            T scaled = dy[at] * w[at];                                                                                 \
            plain[j] += (double)scaled;                                                                                \
            lane[j] += (double)(scaled * (x[at] - mean));                                                              \
        }                                                                                                              \
        for (int j = 0; j < WN_LANES; j++) sum += lane[j], *dot += plain[j];                                           \
        return sum;                                                                                                    \
    }

#define NORM(S, T)                                                                                                     \
    static void row_mean_##S(int64_t begin, int64_t end, void *ctx)                                                    \
    {                                                                                                                  \
        const struct norm *k = ctx;                                                                                    \
        const T *x = k->in[0];                                                                                         \
        for (int64_t r = begin; r < end; r++)                                                                          \
            ((T *)k->out)[r] = (T)(wn__row_sum_##S(x + r * k->n, k->n) / (double)k->n);                                \
    }                                                                                                                  \
    static void row_rstd_##S(int64_t begin, int64_t end, void *ctx)                                                    \
    {                                                                                                                  \
        const struct norm *k = ctx;                                                                                    \
        const T *x = k->in[0], *mean = k->in[1];                                                                       \
        for (int64_t r = begin; r < end; r++) {                                                                        \
            double square = row_square_##S(x + r * k->n, mean[r], k->n);                                               \
            ((T *)k->out)[r] = (T)(1.0 / sqrt(square / (double)k->n + k->eps));                                        \
        }                                                                                                              \
    }                                                                                                                  \
    static void layernorm_##S(int64_t begin, int64_t end, void *ctx)                                                   \
    {                                                                                                                  \
        const struct norm *k = ctx;                                                                                    \
        const T *mean = k->in[1], *rstd = k->in[2], *w = k->in[3], *b = k->in[4];                                      \
        for (int64_t r = begin; r < end; r++) {                                                                        \
            const T *x = (const T *)k->in[0] + r * k->n;                                                               \
            T m = mean[r], s = rstd[r];                                                                                \
            int64_t at = r * k->n;                                                                                     \
            WN_STREAM_LOOP(T, k->streams, (T *)k->out, at, at + k->n, (const T *)k->in[0], WN_STREAM_AHEAD,            \
                           wn_layernorm_##S(x[i - at], m, s, w[i - at], b[i - at]));                                   \
        }                                                                                                              \
        if (k->streams) wn__stream_end();                                                                              \
    }                                                                                                                  \
    /* plus: NULL, or (rows, n), added to the gradient */                                                              \
    static inline __attribute__((always_inline)) void dx_rows_##S(int64_t begin, int64_t end, const struct norm *k,    \
                                                                  const T *plus)                                       \
    {                                                                                                                  \
        const T *mean = k->in[2], *rstd = k->in[3], *w = k->in[4];                                                     \
        for (int64_t r = begin; r < end; r++) {                                                                        \
            const T *dy = (const T *)k->in[0] + r * k->n, *x = (const T *)k->in[1] + r * k->n;                         \
            T m = mean[r], s = rstd[r];                                                                                \
            double dot, moment = row_moment_##S(dy, x, w, m, k->n, &dot);                                              \
            T c1 = (T)(dot / (double)k->n), c2 = (T)(moment * (double)s / (double)k->n);                               \
            int64_t at = r * k->n, next = wn__next_row(k->n * (int64_t)sizeof(T));                                     \
            if (plus)                                                                                                  \
                WN_STREAM_LOOP(T, k->streams, (T *)k->out, at, at + k->n, (const T *)k->in[0], next,                   \
                               wn_layernorm_dx_##S(dy[i - at], x[i - at], m, s, w[i - at], c1, c2) + plus[i]);         \
            else                                                                                                       \
                WN_STREAM_LOOP(T, k->streams, (T *)k->out, at, at + k->n, (const T *)k->in[0], next,                   \
                               wn_layernorm_dx_##S(dy[i - at], x[i - at], m, s, w[i - at], c1, c2));                   \
        }                                                                                                              \
        if (k->streams) wn__stream_end();                                                                              \
    }                                                                                                                  \
    static void layernorm_dx_##S(int64_t begin, int64_t end, void *ctx)                                                \
    {                                                                                                                  \
        dx_rows_##S(begin, end, ctx, NULL);                                                                            \
    }                                                                                                                  \
    static void layernorm_dx_add_##S(int64_t begin, int64_t end, void *ctx)                                            \
    {                                                                                                                  \
        const struct norm *k = ctx;                                                                                    \
        dx_rows_##S(begin, end, k, k->in[5]);                                                                          \
    }                                                                                                                  \
    /* Adds DW_ROWS rows to 16 columns of dw; prefetches as many lines of the next rows */                             \
    static inline __attribute__((always_inline)) void dw_tile_##S(                                                     \
        const T *dy, const T *x, int64_t n, const T *mean, const T *rstd, double *sum, struct wn__prefetch next[2])    \
    {                                                                                                                  \
        double so_far[16];                                                                                             \
        for (int k = 0; k < 2; k++) wn__prefetch_lines(&next[k], DW_ROWS * 16 * (int64_t)sizeof(T) / 64);              \
        for (int j = 0; j < 16; j++) so_far[j] = sum[j];                                                               \
        for (int64_t i = 0; i < DW_ROWS; i++) {                                                                        \
            const T *dy_row = dy + i * n, *x_row = x + i * n;                                                          \
            _Pragma("omp simd") for (int j = 0; j < 16; j++) so_far[j] +=                                              \
                (double)(dy_row[j] * ((x_row[j] - mean[i]) * rstd[i]));                                                \
        }                                                                                                              \
        for (int j = 0; j < 16; j++) sum[j] = so_far[j];                                                               \
    }                                                                                                                  \
    /* Adds rows [r, end) to m columns from column `at` on */                                                          \
    static inline __attribute__((always_inline)) void dw_block_##S(const struct norm *k, int64_t at, int64_t m,        \
                                                                   int64_t r, int64_t end, double *sum)                \
    {                                                                                                                  \
        const T *mean = k->in[2], *rstd = k->in[3], *dy = (const T *)k->in[0] + at, *x = (const T *)k->in[1] + at;     \
        int64_t whole = m / 16 * 16, tail = end - (end - r) % DW_ROWS, pitch = k->n * (int64_t)sizeof(T);              \
        struct wn__prefetch next[2] = {{(uintptr_t)dy, pitch, m * (int64_t)sizeof(T), 0},                              \
                                       {(uintptr_t)x, pitch, m * (int64_t)sizeof(T), 0}};                              \
        for (int i = 0; i < 2; i++) next[i].row += (uintptr_t)((r + DW_ROWS) * pitch);                                 \
        for (int64_t i = r; i < tail; i += DW_ROWS)                                                                    \
            for (int64_t j = 0; j < whole; j += 16)                                                                    \
                dw_tile_##S(dy + i * k->n + j, x + i * k->n + j, k->n, mean + i, rstd + i, sum + j, next);             \
        for (int64_t i = r; i < end; i++)                                                                              \
            for (int64_t j = i < tail ? whole : 0; j < m; j++)                                                         \
                sum[j] += (double)(dy[i * k->n + j] * ((x[i * k->n + j] - mean[i]) * rstd[i]));                        \
    }                                                                                                                  \
    /* Unit u is a block of columns of a part of the rows, blocks fastest */                                           \
    static void layernorm_dw_##S(int64_t begin, int64_t end, void *ctx)                                                \
    {                                                                                                                  \
        const struct norm *k = ctx;                                                                                    \
        int64_t blocks = (k->n + k->together - 1) / k->together;                                                       \
        for (int64_t unit = begin; unit < end; unit++) {                                                               \
            double sum[WN_COLUMNS] = {0};                                                                              \
            int64_t at = unit % blocks * k->together, m = k->n - at < k->together ? k->n - at : k->together;           \
            int64_t part = unit / blocks;                                                                              \
            dw_block_##S(k, at, m, k->rows *part / k->parts, k->rows * (part + 1) / k->parts, sum);                    \
            if (k->parts > 1) memcpy(k->partial + part * k->n + at, sum, (size_t)m * sizeof *sum);                     \
            else                                                                                                       \
                for (int64_t j = 0; j < m; j++) ((T *)k->out)[at + j] = (T)sum[j];                                     \
        }                                                                                                              \
    }                                                                                                                  \
    static void join_dw_##S(int64_t begin, int64_t end, void *ctx)                                                     \
    {                                                                                                                  \
        const struct norm *k = ctx;                                                                                    \
        for (int64_t c = 1; c < k->parts; c++)                                                                         \
            for (int64_t j = begin; j < end; j++) k->partial[j] += k->partial[c * k->n + j];                           \
        for (int64_t j = begin; j < end; j++) ((T *)k->out)[j] = (T)k->partial[j];                                     \
    }

SUMS(f32, float)
SUMS(f64, double)
NORM(f32, float)
NORM(f64, double)

#define FAMILY(NAME, name) [WN_OP_##NAME] = {name##_f32, name##_f64},

static const wn__parallel_body loops[WN_OP_COUNT][2] = {FAMILY(ROW_MEAN, row_mean) FAMILY(ROW_RSTD, row_rstd) FAMILY(
    LAYERNORM, layernorm) FAMILY(LAYERNORM_DX, layernorm_dx) FAMILY(LAYERNORM_DW, layernorm_dw)
                                                            FAMILY(LAYERNORM_DX_ADD, layernorm_dx_add)};

static int32_t norm(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    (void)stream;
    int32_t backward = d->op == WN_OP_LAYERNORM_DX || d->op == WN_OP_LAYERNORM_DW || d->op == WN_OP_LAYERNORM_DX_ADD;
    const struct wn_type *x = &d->in[backward ? 1 : 0];
    struct norm k = {.in = b->in, .out = b->out, .rows = 1, .n = x->dim[x->ndim - 1], .eps = d->attrs.f[0]};
    k.streams = wn__streams(wn__bytes(&d->out), b->out, b->in[0], d->n_in > 1 ? b->in[1] : NULL);
    if (d->op == WN_OP_LAYERNORM_DX_ADD && b->in[5] == b->out) k.streams = 0;
    for (int32_t i = 0; i < x->ndim - 1; i++) k.rows *= x->dim[i];
    wn__parallel_body loop = loops[d->op][d->out.dtype == WN_F64];
    if (d->op == WN_OP_LAYERNORM_DW) {
        k.parts = wn__parts_of(k.rows);
        k.partial = b->workspace;
        k.together = wn__columns_together(k.n, k.parts, WN_COLUMNS);
        int64_t units = k.parts * ((k.n + k.together - 1) / k.together);
        wn__parallel_for(units, WN_CPU_GRAIN_MATH * k.parts / (k.together * (k.rows + 1)) + 1, loop, &k);
        if (k.parts > 1)
            wn__parallel_for(k.n, WN_CPU_GRAIN / k.parts, d->out.dtype == WN_F64 ? join_dw_f64 : join_dw_f32, &k);
    } else wn__parallel_for(k.rows, WN_CPU_GRAIN_MATH / (k.n + 1) + 1, loop, &k);
    return WN_OK;
}

wn_kernel_fn wn__cpu_norm_kernel(const struct wn_desc *d)
{
    if (d->out.dtype == WN_BF16) return wn__cpu_copies_kernel(d);
    if (d->out.dtype != WN_F32 && d->out.dtype != WN_F64) return NULL;
    for (int32_t i = 0; i < d->n_in; i++)
        if (d->in[i].dtype != d->out.dtype) return NULL;
    return loops[d->op][0] ? norm : NULL;
}
