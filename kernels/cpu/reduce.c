/* SUM, MEAN, MAX, MIN over any set of dims, and EXTREME_GRAD.
 *
 * Dims are merged into runs of kept and of reduced dims. Then either the last run is reduced (rows: a contiguous row
 * gives one output) or it is kept (columns: rows are added side by side).
 *
 * The order of every sum is fixed by the shapes. f32 sums are in double, in 16 lanes where a run is contiguous; integer
 * sums are in 64 bits. A long reduction to few outputs is divided into a fixed number of chunks, which are joined in
 * order; a reduction down columns is divided into parts of the rows (row_parts.h). Threads share outputs, chunks or
 * parts, so their number changes no bit. */
#include <math.h>
#include <stddef.h>
#include <string.h>
#include "../scalar.h"
#include "bf16.h"
#include "micro.h"
#include "minmax.h"
#include "../reduction.h"
#include "rows.h"

#define FEW WN_FEW_OUTPUTS
#define DOWN_ROWS 4 /* rows of 16 columns in registers. Measured: 8: 1.05x time */

/* One reduction. */
struct plan {
    struct wn__reduction of; /* (reduction.h) */
    int64_t together;        /* columns of a block, where the last run is kept */
    const void *x;
    void *out;
    double scale;    /* 1 / count of MEAN, else 1 */
    double *partial; /* (chunks, outputs), or (outputs / columns, parts, columns), or NULL */
    /* Reduces rows from o on, many at once, at most to `end`; returns the number of rows done. NULL: not for this
     * dtype. */
    int64_t (*many)(const struct plan *p, int64_t o, int64_t end);
};

/* Returns the index in x of element i of an iterator. */
static inline int64_t place(const struct wn__broadcast *w, int64_t i)
{
    int64_t at = 0;
    if (w->ndim == 1) return i * w->step[0][0];
    for (int32_t k = w->ndim - 1; k >= 0; k--) {
        at += i % w->dim[k] * w->step[0][k];
        i /= w->dim[k];
    }
    return at;
}

/* ---- one output from reduced elements [begin, end), contiguous stretches ------------------------- */

#define ROW_SUM(S, T)                                                                                                  \
    static inline double row_sum_##S##_lanes(const T *x, int64_t n)                                                    \
    {                                                                                                                  \
        int64_t sum = 0;                                                                                               \
        for (int64_t i = 0; i < n; i++) sum += x[i];                                                                   \
        return (double)sum;                                                                                            \
    }

#define HALF_EXTREME(NAME, PICK)                                                                                       \
    static inline float NAME##_lanes(const uint16_t *x, int64_t n)                                                     \
    {                                                                                                                  \
        float best = wn_from_bf16(x[0]);                                                                               \
        for (int64_t i = 1; i < n; i++) best = PICK(best, wn_from_bf16(x[i]));                                         \
        return best;                                                                                                   \
    }

#define row_sum_f32_lanes wn__row_sum_f32
#define row_sum_bf16_lanes wn__row_sum_bf16
#define row_sum_f64_lanes wn__row_sum_f64
ROW_SUM(i32, int32_t)
ROW_SUM(u8, uint8_t)
HALF_EXTREME(row_max_bf16, wn_maximum_f32)
HALF_EXTREME(row_min_bf16, wn_minimum_f32)

/* Joins two sums. Sums of integers are doubles here, exact up to 2^53. */
static inline __attribute__((always_inline)) double join_sum_f64(double a, double b)
{
    return a + b;
}

/* Defines the maximum and the minimum of scalar.h with | in place of ||, since nested branches do not vectorise. A: the
 * dtype of the accumulator. */
#define JOIN(A, T)                                                                                                     \
    static inline __attribute__((always_inline)) T join_max_##A(T a, T b)                                              \
    {                                                                                                                  \
        int32_t stays = (a > b) | (a != a);                                                                            \
        return stays ? a : b;                                                                                          \
    }                                                                                                                  \
    static inline __attribute__((always_inline)) T join_min_##A(T a, T b)                                              \
    {                                                                                                                  \
        int32_t stays = (a < b) | (a != a);                                                                            \
        return stays ? a : b;                                                                                          \
    }

typedef float acc_f32;
typedef double acc_f64;
JOIN(f32, float)
JOIN(f64, double)

/* Defines the loops of KIND, which is sum, max or min, for a dtype. at: the index in x of the first reduced element of
 * an output. TAKE converts an element to a number, TO a double to an element. */
#define REDUCE(KIND, S, T, A, START, TAKE, TO)                                                                         \
    static double row_##KIND##_##S(const T *x, int64_t n)                                                              \
    {                                                                                                                  \
        return (double)row_##KIND##_##S##_lanes(x, n);                                                                 \
    }                                                                                                                  \
    /* Reduces outputs [begin, end), each of one contiguous row */                                                     \
    static void rows_##KIND##_##S(const struct plan *p, int64_t begin, int64_t end)                                    \
    {                                                                                                                  \
        double start = START;                                                                                          \
        for (int64_t o = begin; o < end; o++) {                                                                        \
            if (p->many && (o += p->many(p, o, end)) == end) return;                                                   \
            double row = (double)row_##KIND##_##S##_lanes((const T *)p->x + place(&p->of.kept, o), p->of.length);      \
            ((T *)p->out)[o] = TO(join_##KIND##_f64(start, row) * p->scale);                                           \
        }                                                                                                              \
    }                                                                                                                  \
    static double stretch_##KIND##_##S(const struct plan *p, const T *x, int64_t begin, int64_t end)                   \
    {                                                                                                                  \
        const struct wn__broadcast *w = &p->of.reduced;                                                                \
        int64_t run = w->dim[w->ndim - 1];                                                                             \
        double value = START;                                                                                          \
        if (w->ndim == 1 && begin < end) return join_##KIND##_f64(value, row_##KIND##_##S(x + begin, end - begin));    \
        while (begin < end) {                                                                                          \
            int64_t n = run - begin % run;                                                                             \
            if (n > end - begin) n = end - begin;                                                                      \
            value = join_##KIND##_f64(value, row_##KIND##_##S(x + place(w, begin), n));                                \
            begin += n;                                                                                                \
        }                                                                                                              \
        return value;                                                                                                  \
    }                                                                                                                  \
    static void outputs_##KIND##_##S(int64_t begin, int64_t end, void *ctx)                                            \
    {                                                                                                                  \
        const struct plan *p = ctx;                                                                                    \
        if (p->of.reduced.ndim == 1 && p->of.length > 0 && wn__broadcast_inner(&p->of.reduced, 0) == 1) {              \
            rows_##KIND##_##S(p, begin, end);                                                                          \
            return;                                                                                                    \
        }                                                                                                              \
        T *out = p->out;                                                                                               \
        for (int64_t o = begin; o < end; o++)                                                                          \
            out[o] = TO(stretch_##KIND##_##S(p, (const T *)p->x + place(&p->of.kept, o), 0, p->of.length) * p->scale); \
    }                                                                                                                  \
    static void chunks_##KIND##_##S(int64_t begin, int64_t end, void *ctx)                                             \
    {                                                                                                                  \
        const struct plan *p = ctx;                                                                                    \
        for (int64_t i = begin; i < end; i++) {                                                                        \
            int64_t chunk = i / p->of.outputs, o = i % p->of.outputs;                                                  \
            p->partial[i] =                                                                                            \
                stretch_##KIND##_##S(p, (const T *)p->x + place(&p->of.kept, o), p->of.length * chunk / p->of.chunks,  \
                                     p->of.length * (chunk + 1) / p->of.chunks);                                       \
        }                                                                                                              \
    }                                                                                                                  \
    static void join_chunks_##KIND##_##S(const struct plan *p)                                                         \
    {                                                                                                                  \
        T *out = p->out;                                                                                               \
        for (int64_t o = 0; o < p->of.outputs; o++) {                                                                  \
            double value = p->partial[o];                                                                              \
            for (int64_t c = 1; c < p->of.chunks; c++)                                                                 \
                value = join_##KIND##_f64(value, p->partial[c * p->of.outputs + o]);                                   \
            out[o] = TO(value * p->scale);                                                                             \
        }                                                                                                              \
    }                                                                                                                  \
    /* Adds DOWN_ROWS rows to 16 columns; prefetches as many lines of the next rows */                                 \
    static inline __attribute__((always_inline)) void columns_tile_##KIND##_##S(                                       \
        const T *x, int64_t step, acc_##A *value, struct wn__prefetch *next)                                           \
    {                                                                                                                  \
        acc_##A sum[16];                                                                                               \
        wn__prefetch_lines(next, DOWN_ROWS * 16 * (int64_t)sizeof(T) / 64);                                            \
        for (int j = 0; j < 16; j++) sum[j] = value[j];                                                                \
        for (int64_t k = 0; k < DOWN_ROWS; k++) {                                                                      \
            const T *row = x + k * step;                                                                               \
            _Pragma("omp simd") for (int j = 0; j < 16; j++) sum[j] =                                                  \
                join_##KIND##_##A(sum[j], (acc_##A)TAKE(row[j]));                                                      \
        }                                                                                                              \
        for (int j = 0; j < 16; j++) value[j] = sum[j];                                                                \
    }                                                                                                                  \
    /* Adds reduced elements [begin, end), row by row, to n kept columns from column o on */                           \
    static void columns_##KIND##_##S(const struct plan *p, int64_t o, int64_t n, int64_t begin, int64_t end,           \
                                     acc_##A *value)                                                                   \
    {                                                                                                                  \
        const T *x = (const T *)p->x + place(&p->of.kept, o);                                                          \
        for (int64_t j = 0; j < n; j++) value[j] = START;                                                              \
        int64_t r = begin, whole = n / 16 * 16, step = p->of.reduced.step[0][0];                                       \
        int64_t pitch = step * (int64_t)sizeof(T);                                                                     \
        struct wn__prefetch next = {(uintptr_t)x + (uintptr_t)((r + DOWN_ROWS) * pitch), pitch,                        \
                                    n * (int64_t)sizeof(T), 0};                                                        \
        for (; p->of.reduced.ndim == 1 && r + DOWN_ROWS <= end; r += DOWN_ROWS) {                                      \
            const T *row = x + r * step;                                                                               \
            for (int64_t j = 0; j < whole; j += 16) columns_tile_##KIND##_##S(row + j, step, value + j, &next);        \
            for (int64_t k = 0; k < DOWN_ROWS; k++)                                                                    \
                for (int64_t j = whole; j < n; j++)                                                                    \
                    value[j] = join_##KIND##_##A(value[j], (acc_##A)TAKE(row[k * step + j]));                          \
        }                                                                                                              \
        for (; r < end; r++) {                                                                                         \
            const T *row = x + place(&p->of.reduced, r);                                                               \
            _Pragma("omp simd") for (int64_t j = 0; j < n; j++) value[j] =                                             \
                join_##KIND##_##A(value[j], (acc_##A)TAKE(row[j]));                                                    \
        }                                                                                                              \
    }                                                                                                                  \
    /* Unit u is a block of columns of a part of the rows of an outer index, blocks fastest */                         \
    static void blocks_##KIND##_##S(int64_t begin, int64_t end, void *ctx)                                             \
    {                                                                                                                  \
        const struct plan *p = ctx;                                                                                    \
        int64_t width = p->of.kept.dim[p->of.kept.ndim - 1], most = p->together, blocks = (width + most - 1) / most;   \
        for (int64_t i = begin; i < end; i++) {                                                                        \
            acc_##A value[WN_COLUMNS];                                                                                 \
            int64_t column = i % blocks * most, n = width - column < most ? width - column : most;                     \
            int64_t slab = i / blocks / p->of.parts, part = i / blocks % p->of.parts, o = slab * width + column;       \
            columns_##KIND##_##S(p, o, n, p->of.length *part / p->of.parts, p->of.length * (part + 1) / p->of.parts,   \
                                 value);                                                                               \
            if (p->of.parts > 1)                                                                                       \
                for (int64_t j = 0; j < n; j++) p->partial[i / blocks * width + column + j] = (double)value[j];        \
            else                                                                                                       \
                for (int64_t j = 0; j < n; j++) ((T *)p->out)[o + j] = TO((double)value[j] * p->scale);                \
        }                                                                                                              \
    }                                                                                                                  \
    /* Adds the parts of outer indices [begin, end) to their first part, in order */                                   \
    static void join_parts_##KIND##_##S(int64_t begin, int64_t end, void *ctx)                                         \
    {                                                                                                                  \
        const struct plan *p = ctx;                                                                                    \
        int64_t width = p->of.kept.dim[p->of.kept.ndim - 1];                                                           \
        for (int64_t slab = begin; slab < end; slab++) {                                                               \
            double *first = p->partial + slab * p->of.parts * width;                                                   \
            for (int64_t c = 1; c < p->of.parts; c++)                                                                  \
                for (int64_t j = 0; j < width; j++) first[j] = join_##KIND##_f64(first[j], first[c * width + j]);      \
            for (int64_t j = 0; j < width; j++) ((T *)p->out)[slab * width + j] = TO(first[j] * p->scale);             \
        }                                                                                                              \
    }                                                                                                                  \
    static void column_chunks_##KIND##_##S(int64_t begin, int64_t end, void *ctx)                                      \
    {                                                                                                                  \
        const struct plan *p = ctx;                                                                                    \
        for (int64_t c = begin; c < end; c++) {                                                                        \
            acc_##A value[FEW];                                                                                        \
            columns_##KIND##_##S(p, 0, p->of.outputs, p->of.length *c / p->of.chunks,                                  \
                                 p->of.length * (c + 1) / p->of.chunks, value);                                        \
            for (int64_t j = 0; j < p->of.outputs; j++) p->partial[c * p->of.outputs + j] = (double)value[j];          \
        }                                                                                                              \
    }                                                                                                                  \
    static void reduce_##KIND##_##S(struct plan *p)                                                                    \
    {                                                                                                                  \
        double partial[WN_CHUNKS * FEW];                                                                               \
        int64_t work = p->of.length > 0 ? WN_CPU_GRAIN / p->of.length + 1 : WN_CPU_GRAIN;                              \
        /* Few outputs: chunks of rows, or of all columns of one outer index. */                                       \
        if (p->of.chunks > 1) {                                                                                        \
            p->partial = partial;                                                                                      \
            if (p->of.is_columns) wn__parallel_for(p->of.chunks, 1, column_chunks_##KIND##_##S, p);                    \
            else wn__parallel_for(p->of.chunks * p->of.outputs, 1, chunks_##KIND##_##S, p);                            \
            join_chunks_##KIND##_##S(p);                                                                               \
        } else if (p->of.is_columns && wn__broadcast_inner(&p->of.kept, 0) == 1) {                                     \
            int64_t width = p->of.kept.dim[p->of.kept.ndim - 1], outer = p->of.outputs / (width ? width : 1);          \
            p->together = wn__columns_together(width, outer * p->of.parts, WN_COLUMNS);                                \
            int64_t units = outer * p->of.parts * ((width + p->together - 1) / p->together);                           \
            wn__parallel_for(units, work * p->of.parts / p->together + 1, blocks_##KIND##_##S, p);                     \
            if (p->of.parts > 1) wn__parallel_for(outer, work / width + 1, join_parts_##KIND##_##S, p);                \
        } else {                                                                                                       \
            wn__parallel_for(p->of.outputs, work, outputs_##KIND##_##S, p);                                            \
        }                                                                                                              \
    }

#define TO_BF16(x) wn_to_bf16((float)(x))

REDUCE(sum, f32, float, f64, 0, WN_SAME, (float))
REDUCE(sum, f64, double, f64, 0, WN_SAME, (double))
REDUCE(sum, bf16, uint16_t, f64, 0, wn_from_bf16, TO_BF16)
REDUCE(sum, i32, int32_t, f64, 0, WN_SAME, (int32_t)(int64_t))
REDUCE(sum, u8, uint8_t, f64, 0, WN_SAME, (uint8_t)(int64_t))
REDUCE(max, f32, float, f32, -INFINITY, WN_SAME, (float))
REDUCE(max, f64, double, f64, -INFINITY, WN_SAME, (double))
REDUCE(max, bf16, uint16_t, f32, -INFINITY, wn_from_bf16, TO_BF16)
REDUCE(max, i32, int32_t, f64, -INFINITY, WN_SAME, wn_to_i32)
REDUCE(max, u8, uint8_t, f64, -INFINITY, WN_SAME, wn_to_u8)
REDUCE(min, f32, float, f32, INFINITY, WN_SAME, (float))
REDUCE(min, f64, double, f64, INFINITY, WN_SAME, (double))
REDUCE(min, bf16, uint16_t, f32, INFINITY, wn_from_bf16, TO_BF16)
REDUCE(min, i32, int32_t, f64, INFINITY, WN_SAME, wn_to_i32)
REDUCE(min, u8, uint8_t, f64, INFINITY, WN_SAME, wn_to_u8)

#define REDUCE_ROW(NAME, kind)                                                                                         \
    [WN_OP_##NAME] = {[WN_F32] = reduce_##kind##_f32,                                                                  \
                      [WN_F64] = reduce_##kind##_f64,                                                                  \
                      [WN_BF16] = reduce_##kind##_bf16,                                                                \
                      [WN_I32] = reduce_##kind##_i32,                                                                  \
                      [WN_U8] = reduce_##kind##_u8},

static void (*const reductions[WN_OP_COUNT][WN_DTYPE_COUNT])(struct plan *) = {
    REDUCE_ROW(SUM, sum) REDUCE_ROW(MAX, max) REDUCE_ROW(MIN, min)[WN_OP_MEAN] = {
        [WN_F32] = reduce_sum_f32, [WN_F64] = reduce_sum_f64, [WN_BF16] = reduce_sum_bf16}};

/* Reduce rows of f32 that follow each other in x. */
static int64_t many_sums(const struct plan *p, int64_t o, int64_t end)
{
    const float *x = (const float *)p->x + o * p->of.length;
    return wn__micro.rows->sum(x, end - o, p->of.length, p->scale, (float *)p->out + o);
}

static int64_t many_maxima(const struct plan *p, int64_t o, int64_t end)
{
    return wn__micro.rows->max((const float *)p->x + o * p->of.length, end - o, p->of.length, (float *)p->out + o);
}

static int64_t many_minima(const struct plan *p, int64_t o, int64_t end)
{
    return wn__micro.rows->min((const float *)p->x + o * p->of.length, end - o, p->of.length, (float *)p->out + o);
}

/* Returns what reduces many rows of an op at once; NULL where rows are too long for it, or the class has nothing. */
static int64_t (*many_of(int32_t op, int64_t length))(const struct plan *, int64_t, int64_t)
{
    int32_t is_extreme = op == WN_OP_MAX || op == WN_OP_MIN;
    if (wn__micro.rows == NULL || length <= 0 || length >= (is_extreme ? WN_SHORT_EXTREME : WN_SHORT_SUM)) return NULL;
    return op == WN_OP_MAX ? many_maxima : op == WN_OP_MIN ? many_minima : many_sums;
}

static int32_t reduce(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    (void)stream;
    struct plan p;
    p.of = wn__reduction_of(d, &d->in[0]);
    p.x = b->in[0];
    p.out = b->out;
    p.scale = d->op == WN_OP_MEAN ? 1.0 / (double)p.of.length : 1.0;
    p.many = NULL;
    if (d->out.dtype == WN_F32 && p.of.kept.ndim == 1) p.many = many_of(d->op, p.of.length);
    p.partial = b->workspace;
    reductions[d->op][d->out.dtype](&p);
    return WN_OK;
}

/* ---- the gradient of max and min ----------------------------------------------------------------- */

/* One EXTREME_GRAD; plan: the reduction, whose x and out are those of the gradient. */
struct extreme_grad {
    struct plan plan;
    const void *dy, *y;
    int32_t streams; /* out is stored non-temporally */
    int32_t is_all;  /* all dims were reduced by naming none */
};

#define EXTREME_GRAD(S, T)                                                                                             \
    /* Computes a contiguous row; block: a buffer of WN_STREAM_BLOCK elements where out streams, else NULL */          \
    static void extreme_grad_row_##S(const T *x, T *out, int64_t n, T y, T dy, T *block)                               \
    {                                                                                                                  \
        int64_t ties = 0;                                                                                              \
        _Pragma("omp simd reduction(+ : ties)") for (int64_t i = 0; i < n; i++) ties += x[i] == y;                     \
        T share = ties ? dy / (T)ties : (T)0;                                                                          \
        for (int64_t at = 0, stop; at < n; at = stop) {                                                                \
            stop = n - at > WN_STREAM_BLOCK ? at + WN_STREAM_BLOCK : n;                                                \
            T *to = block ? block : out + at;                                                                          \
            _Pragma("omp simd") for (int64_t i = 0; i < stop - at; i++) to[i] = x[at + i] == y ? share : (T)0;         \
            const char *next = (const char *)((uintptr_t)(x + at) + (uintptr_t)wn__next_row(n * (int64_t)sizeof(T)));  \
            if (block) wn__stream_fetching(out + at, block, (stop - at) * (int64_t)sizeof(T), next);                   \
        }                                                                                                              \
    }                                                                                                                  \
    /* Shares dy among the NaNs where max() or min() named no dim; else writes NaN, as PyTorch's amax does. */         \
    static void extreme_grad_nan_##S(const struct extreme_grad *g, int64_t base, T dy)                                 \
    {                                                                                                                  \
        const struct plan *p = &g->plan;                                                                               \
        const T *x = (const T *)p->x + base;                                                                           \
        T *out = (T *)p->out + base;                                                                                   \
        int64_t ties = 0;                                                                                              \
        for (int64_t r = 0; r < p->of.length; r++) ties += x[place(&p->of.reduced, r)] != x[place(&p->of.reduced, r)]; \
        T won = g->is_all && ties > 0 ? dy / (T)ties : (T)NAN, lost = g->is_all ? (T)0 : (T)NAN;                       \
        for (int64_t r = 0; r < p->of.length; r++) {                                                                   \
            int64_t at = place(&p->of.reduced, r);                                                                     \
            out[at] = x[at] != x[at] ? won : lost;                                                                     \
        }                                                                                                              \
    }                                                                                                                  \
    static void extreme_grad_##S(int64_t begin, int64_t end, void *ctx)                                                \
    {                                                                                                                  \
        const struct extreme_grad *g = ctx;                                                                            \
        const struct plan *p = &g->plan;                                                                               \
        int32_t rows = p->of.reduced.ndim == 1 && wn__broadcast_inner(&p->of.reduced, 0) == 1;                         \
        T block[WN_STREAM_BLOCK];                                                                                      \
        for (int64_t o = begin; o < end; o++) {                                                                        \
            int64_t base = place(&p->of.kept, o), ties = 0;                                                            \
            const T *x = (const T *)p->x + base;                                                                       \
            T *out = (T *)p->out + base, y = ((const T *)g->y)[o], dy = ((const T *)g->dy)[o];                         \
            if (y != y) {                                                                                              \
                extreme_grad_nan_##S(g, base, dy);                                                                     \
                continue;                                                                                              \
            }                                                                                                          \
            if (rows) {                                                                                                \
                extreme_grad_row_##S(x, out, p->of.length, y, dy, g->streams ? block : NULL);                          \
                continue;                                                                                              \
            }                                                                                                          \
            for (int64_t r = 0; r < p->of.length; r++) ties += x[place(&p->of.reduced, r)] == y;                       \
            T share = ties ? dy / (T)ties : (T)0;                                                                      \
            for (int64_t r = 0; r < p->of.length; r++) {                                                               \
                int64_t at = place(&p->of.reduced, r);                                                                 \
                out[at] = x[at] == y ? share : (T)0;                                                                   \
            }                                                                                                          \
        }                                                                                                              \
        if (g->streams) wn__stream_end();                                                                              \
    }

EXTREME_GRAD(f32, float)
EXTREME_GRAD(f64, double)

static int32_t extreme_grad(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    (void)stream;
    struct extreme_grad g = {.dy = b->in[0], .y = b->in[2], .is_all = d->attrs.n == 0};
    g.plan.of = wn__reduction_of(d, &d->in[1]);
    g.plan.x = b->in[1];
    g.plan.out = b->out;
    g.streams = wn__streams(wn__bytes(&d->out), b->out, b->in[0], b->in[1]);
    int64_t grain = WN_CPU_GRAIN_MATH / (g.plan.of.length + 1) + 1;
    wn__parallel_for(g.plan.of.outputs, grain, d->out.dtype == WN_F32 ? extreme_grad_f32 : extreme_grad_f64, &g);
    return WN_OK;
}

wn_kernel_fn wn__cpu_reduce_kernel(const struct wn_desc *d)
{
    int32_t in = d->in[0].dtype, out = d->out.dtype, is_float = out == WN_F32 || out == WN_F64;
    switch (d->op) {
    case WN_OP_EXPAND: return wn__cpu_expand_kernel(d);
    case WN_OP_ARGMAX: return wn__cpu_argmax_kernel(d);
    case WN_OP_EXTREME_GRAD: return is_float && in == out ? extreme_grad : wn__cpu_copies_kernel(d);
    default: return in == out && reductions[d->op][out] ? reduce : NULL;
    }
}
