/* SUM, MEAN, MAX, MIN over any set of dims. EXTREME_GRAD is in extreme_grad.c.
 *
 * Dims are merged into runs of kept and of reduced dims. Then either the last run is reduced (rows: a contiguous row
 * gives one output) or it is kept (columns: rows are added side by side).
 *
 * The order of every sum is fixed by the shapes. f32 sums are in double, in 16 lanes where a run is contiguous; sums of
 * i32 are in 64 bits, and one that leaves 32 bits is told of (element/whole.h). A long reduction to few outputs is
 * divided into a fixed number of chunks, which are joined in order; a reduction down columns is divided into parts of
 * the rows (row_parts.h). Threads share outputs, chunks or parts, so their number changes no bit. The drivers are the
 * same for all kinds and dtypes, over a table of loops. */
#include <math.h>
#include <stddef.h>
#include "reduce.h"
#include "../common/micro.h"
#include "minmax.h"
#include "rows.h"
#include "../element/whole.h"

#define FEW WN_FEW_OUTPUTS
#define DOWN_ROWS 4 /* rows of 16 columns in registers. Measured: 8: 1.05x time */
#define ROWS 16     /* rows that one call reduces */

enum kind { SUM, MAX, MIN };

/* The loops of a kind and a dtype. */
struct loops {
    enum kind kind;
    int32_t is_whole;   /* a sum of i32: what is a double else is the bits of an int64_t */
    int64_t size;       /* bytes of an element */
    int32_t is_f32_acc; /* the accumulator of a column is f32, else f64 or, where is_whole, int64_t */
    /* Reduces `rows` contiguous rows of n > 0 elements each, `pitch` elements apart. */
    void (*rows)(const void *x, int64_t pitch, int64_t rows, int64_t n, double *value);
    /* Adds DOWN_ROWS rows, `step` elements apart, to the accumulators of the first n / 16 * 16 columns; prefetches as
     * many lines of the next rows. */
    void (*down)(const void *x, int64_t step, int64_t n, void *acc, struct wn__prefetch *next);
    /* Adds `rows` rows, `step` elements apart, to n accumulators. */
    void (*across)(const void *x, int64_t step, int64_t rows, int64_t n, void *acc);
    /* Stores n values times scale as elements. */
    void (*store)(void *out, const double *value, int64_t n, double scale);
};

/* One reduction. */
struct plan {
    const struct loops *loops;
    struct wn__reduction of; /* (reduction.h) */
    int64_t together;        /* columns of a block, where the last run is kept */
    const void *x;
    void *out;
    double scale; /* 1 / count of MEAN, else 1 */
    struct wn__whole *whole;
    double *partial; /* (chunks, outputs), or (outputs / columns, parts, columns), or NULL */
    int32_t is_many; /* the class reduces many such rows at once (rows.h) */
};

/* ---- joining two results ------------------------------------------------------------------------- */

/* A result as a double, or as the bits of one. */
union result {
    double number;
    int64_t whole;
};

/* Joins two results. */
static double join_results(const struct loops *l, double a, double b)
{
    union result x = {a}, y = {b};
    if (!l->is_whole) return l->kind == SUM ? a + b : (l->kind == MAX ? a > b : a < b) || a != a ? a : b;
    x.whole += y.whole;
    return x.number;
}

/* Returns the result of no elements. */
static double start_of(enum kind kind)
{
    return kind == SUM ? 0 : kind == MAX ? -INFINITY : INFINITY;
}

/* Joins n results to others. */
static void join_each(const struct loops *l, double *value, const double *more, int64_t n)
{
    for (int64_t j = 0; j < n; j++) value[j] = join_results(l, value[j], more[j]);
}

/* Returns a result joined with n others, in order. */
static double join_all(const struct loops *l, double value, const double *more, int64_t n)
{
    for (int64_t j = 0; j < n; j++) value = join_results(l, value, more[j]);
    return value;
}

/* ---- loops --------------------------------------------------------------------------------------- */

INLINE double wn__row_sum_i32(const int32_t *x, int64_t n)
{
    union result sum = {.whole = 0};
    for (int64_t i = 0; i < n; i++) sum.whole += x[i];
    return sum.number;
}

INLINE float wn__row_extreme_bf16(const int32_t is_max, const uint16_t *x, int64_t n)
{
    float best = wn_from_bf16(x[0]);
    for (int64_t i = 1; i < n; i++)
        best = is_max ? wn_maximum_f32(best, wn_from_bf16(x[i])) : wn_minimum_f32(best, wn_from_bf16(x[i]));
    return best;
}

/* The accumulators of a column: of a sum, and of a maximum or minimum. */
typedef double sum_f32, sum_f64, sum_bf16, extreme_f64, extreme_i32;
typedef int64_t sum_i32;
typedef float extreme_f32, extreme_bf16;

#define TYPE f32
#include "reduce.inc"
#define TYPE f64
#include "reduce.inc"
#define TYPE bf16
#include "reduce.inc"
#define TYPE i32
#include "reduce.inc"

static const struct loops *const loops_of[WN_OP_COUNT][WN_DTYPE_COUNT] = {
    [WN_OP_SUM] = {WN_FLOATS(&loops_SUM), [WN_I32] = &loops_SUM_i32},
    [WN_OP_MAX] = {WN_FLOATS(&loops_MAX), [WN_I32] = &loops_MAX_i32},
    [WN_OP_MIN] = {WN_FLOATS(&loops_MIN), [WN_I32] = &loops_MIN_i32},
    [WN_OP_MEAN] = {WN_FLOATS(&loops_SUM)}};

/* ---- rows: the last run is reduced --------------------------------------------------------------- */

static const char *element(const struct plan *p, int64_t i)
{
    return (const char *)p->x + i * p->loops->size;
}

/* Stores n results from output o on, and tells of those that 32 bits do not hold. */
static void store(const struct plan *p, int64_t o, const double *value, int64_t n)
{
    if (!p->loops->is_whole) p->loops->store((char *)p->out + o * p->loops->size, value, n, p->scale);
    for (int64_t j = 0; p->loops->is_whole && j < n; j++) {
        const union result r = {value[j]};
        ((int32_t *)p->out)[o + j] = (int32_t)r.whole;
        if (!wn__whole_fits(r.whole)) wn__whole_tell(p->whole, o + j, r.whole);
    }
}

/* Returns the reduction of elements [begin, end) of output o, run by run; many short runs in a call. */
static double reduce_elements(const struct plan *p, int64_t o, int64_t begin, int64_t end)
{
    const struct wn__broadcast *w = &p->of.reduced;
    int32_t last = w->ndim - 1;
    int64_t base = wn__operand_at(&p->of.kept, o), run = w->dim[last];
    double value = start_of(p->loops->kind), part[ROWS];
    while (begin < end) {
        int64_t n = run - begin % run, rows = 1, pitch = last > 0 ? w->step[0][last - 1] : 0;
        if (n > end - begin) n = end - begin;
        if (last > 0 && n == run) {
            int64_t left = w->dim[last - 1] - begin / run % w->dim[last - 1], fit = (end - begin) / run;
            rows = left < fit ? left : fit;
            if (rows > ROWS) rows = ROWS;
        }
        p->loops->rows(element(p, base + wn__operand_at(w, begin)), pitch, rows, n, part);
        value = join_all(p->loops, value, part, rows);
        begin += rows * n;
    }
    return value;
}

/* Reduces rows of f32 that follow each other in x, from o on, many at once; returns the number of rows done. */
static int64_t reduce_many(const struct plan *p, int64_t o, int64_t end)
{
    const struct wn__rows_kernel *rows = wn__micro.rows;
    const float *x = (const float *)p->x + o * p->of.length;
    float *out = (float *)p->out + o;
    if (p->loops->kind == SUM) return rows->sum(x, end - o, p->of.length, p->scale, out);
    return rows->extreme(p->loops->kind == MAX, x, end - o, p->of.length, out);
}

/* Reduces outputs [begin, end), each of one contiguous row. */
static void reduce_rows(const struct plan *p, int64_t begin, int64_t end)
{
    const struct wn__broadcast *w = &p->of.kept;
    int32_t last = w->ndim - 1;
    double value[ROWS];
    for (int64_t o = begin, rows; o < end; o += rows) {
        if (p->is_many && (o += reduce_many(p, o, end)) == end) return;
        rows = w->dim[last] - o % w->dim[last];
        if (rows > ROWS) rows = ROWS;
        if (rows > end - o) rows = end - o;
        p->loops->rows(element(p, wn__operand_at(w, o)), w->step[0][last], rows, p->of.length, value);
        store(p, o, value, rows);
    }
}

static void outputs(int64_t begin, int64_t end, void *ctx)
{
    const struct plan *p = ctx;
    if (p->of.reduced.ndim == 1 && p->of.length > 0 && wn__broadcast_inner(&p->of.reduced, 0) == 1) {
        reduce_rows(p, begin, end);
        return;
    }
    for (int64_t o = begin; o < end; o++) {
        double value = reduce_elements(p, o, 0, p->of.length);
        store(p, o, &value, 1);
    }
}

/* Reduces chunks [begin, end) of outputs, outputs fastest. */
static void chunks(int64_t begin, int64_t end, void *ctx)
{
    const struct plan *p = ctx;
    for (int64_t i = begin; i < end; i++) {
        int64_t chunk = i / p->of.outputs;
        p->partial[i] = reduce_elements(p, i % p->of.outputs, p->of.length * chunk / p->of.chunks,
                                        p->of.length * (chunk + 1) / p->of.chunks);
    }
}

/* ---- columns: the last run is kept --------------------------------------------------------------- */

/* The accumulators of a block of columns. */
union accumulators {
    float f32[WN_COLUMNS];
    double f64[WN_COLUMNS];
};

static void start_columns(const struct loops *l, int64_t n, union accumulators *acc)
{
    double start = start_of(l->kind);
    if (l->is_f32_acc)
        for (int64_t j = 0; j < n; j++) acc->f32[j] = (float)start;
    else
        for (int64_t j = 0; j < n; j++) acc->f64[j] = start;
}

/* Writes accumulators [at, at + n) as doubles. */
static void widen(const struct loops *l, const union accumulators *acc, int64_t at, int64_t n, double *to)
{
    for (int64_t j = 0; j < n; j++) to[j] = l->is_f32_acc ? (double)acc->f32[at + j] : acc->f64[at + j];
}

/* Stores n accumulators as elements, from output o on. */
static void store_columns(const struct plan *p, const union accumulators *acc, int64_t n, int64_t o)
{
    double block[WN_STRETCH];
    for (int64_t at = 0, m; at < n; at += m) {
        m = n - at < WN_STRETCH ? n - at : WN_STRETCH;
        if (p->loops->is_f32_acc) widen(p->loops, acc, at, m, block);
        store(p, o + at, p->loops->is_f32_acc ? block : acc->f64 + at, m);
    }
}

/* Returns accumulator j. */
static void *accumulator(const struct loops *l, union accumulators *acc, int64_t j)
{
    return l->is_f32_acc ? (void *)&acc->f32[j] : (void *)&acc->f64[j];
}

/* Reduces elements [begin, end) of n outputs from o on, side by side. */
static void reduce_columns(const struct plan *p, int64_t o, int64_t n, int64_t begin, int64_t end,
                           union accumulators *acc)
{
    const struct loops *l = p->loops;
    const char *x = element(p, wn__operand_at(&p->of.kept, o));
    int64_t r = begin, whole = n / 16 * 16, step = p->of.reduced.step[0][0], pitch = step * l->size;
    struct wn__prefetch next = {(uintptr_t)x + (uintptr_t)((r + DOWN_ROWS) * pitch), pitch, n * l->size, 0};
    start_columns(l, n, acc);
    for (; p->of.reduced.ndim == 1 && r + DOWN_ROWS <= end; r += DOWN_ROWS) {
        l->down(x + r * pitch, step, n, acc, &next);
        if (whole < n)
            l->across(x + r * pitch + whole * l->size, step, DOWN_ROWS, n - whole, accumulator(l, acc, whole));
    }
    for (; r < end; r++) l->across(x + wn__operand_at(&p->of.reduced, r) * l->size, step, 1, n, acc);
}

/* Computes units [begin, end): a unit is a block of columns of a part of the rows of an outer index, blocks fastest. */
static void blocks(int64_t begin, int64_t end, void *ctx)
{
    const struct plan *p = ctx;
    int64_t width = p->of.kept.dim[p->of.kept.ndim - 1], most = p->together, across = (width + most - 1) / most;
    for (int64_t i = begin; i < end; i++) {
        union accumulators acc;
        int64_t column = i % across * most, n = width - column < most ? width - column : most;
        int64_t slab = i / across / p->of.parts, part = i / across % p->of.parts, o = slab * width + column;
        reduce_columns(p, o, n, p->of.length * part / p->of.parts, p->of.length * (part + 1) / p->of.parts, &acc);
        if (p->of.parts > 1) widen(p->loops, &acc, 0, n, p->partial + i / across * width + column);
        else store_columns(p, &acc, n, o);
    }
}

/* Adds the parts of outer indices [begin, end) to their first part, in order. */
static void join_parts(int64_t begin, int64_t end, void *ctx)
{
    const struct plan *p = ctx;
    int64_t width = p->of.kept.dim[p->of.kept.ndim - 1];
    for (int64_t slab = begin; slab < end; slab++) {
        double *first = p->partial + slab * p->of.parts * width;
        for (int64_t c = 1; c < p->of.parts; c++) join_each(p->loops, first, first + c * width, width);
        store(p, slab * width, first, width);
    }
}

/* Reduces chunks [begin, end) of all outputs, which are columns. */
static void column_chunks(int64_t begin, int64_t end, void *ctx)
{
    const struct plan *p = ctx;
    for (int64_t c = begin; c < end; c++) {
        union accumulators acc;
        reduce_columns(p, 0, p->of.outputs, p->of.length * c / p->of.chunks, p->of.length * (c + 1) / p->of.chunks,
                       &acc);
        widen(p->loops, &acc, 0, p->of.outputs, p->partial + c * p->of.outputs);
    }
}

/* ---- reductions ---------------------------------------------------------------------------------- */

/* Reduces to few outputs: chunks of rows, or of all columns of one outer index. */
static void reduce_to_few(struct plan *p)
{
    double partial[WN_CHUNKS * FEW];
    p->partial = partial;
    if (p->of.is_columns) wn__parallel_for(p->of.chunks, 1, column_chunks, p);
    else wn__parallel_for(p->of.chunks * p->of.outputs, 1, chunks, p);
    for (int64_t c = 1; c < p->of.chunks; c++) join_each(p->loops, partial, partial + c * p->of.outputs, p->of.outputs);
    store(p, 0, partial, p->of.outputs);
}

/* work: least outputs of a thread. */
static void reduce_blocks(struct plan *p, int64_t work)
{
    int64_t width = p->of.kept.dim[p->of.kept.ndim - 1], outer = p->of.outputs / (width ? width : 1);
    p->together = wn__columns_together(width, outer * p->of.parts, WN_COLUMNS);
    int64_t units = outer * p->of.parts * ((width + p->together - 1) / p->together);
    wn__parallel_for(units, work * p->of.parts / p->together + 1, blocks, p);
    if (p->of.parts > 1) wn__parallel_for(outer, work / width + 1, join_parts, p);
}

/* Returns whether rows of so many elements are short enough to be reduced many at once, where the class does that. */
static int32_t is_short(enum kind kind, int64_t length)
{
    return wn__micro.rows != NULL && length > 0 && length < (kind == SUM ? WN_SHORT_SUM : WN_SHORT_EXTREME);
}

static int32_t reduce(const struct wn_desc *d, const struct wn_buffers *b, WN_NO_STREAM)
{
    struct plan p = {.loops = loops_of[d->op][d->out.dtype], .x = b->in[0], .out = b->out, .partial = b->workspace};
    struct wn__whole whole = WN_WHOLE_NONE;
    p.whole = &whole;
    p.of = wn__reduction_of(d, &d->in[0]);
    p.scale = d->op == WN_OP_MEAN ? 1.0 / (double)p.of.length : 1.0;
    p.is_many = d->out.dtype == WN_F32 && p.of.kept.ndim == 1 && is_short(p.loops->kind, p.of.length);
    int64_t work = p.of.length > 0 ? WN_CPU_GRAIN / p.of.length + 1 : WN_CPU_GRAIN;
    if (p.of.chunks > 1) reduce_to_few(&p);
    else if (p.of.is_columns && wn__broadcast_inner(&p.of.kept, 0) == 1) reduce_blocks(&p, work);
    else wn__parallel_for(p.of.outputs, work, outputs, &p);
    return wn__whole_check(&whole, d);
}

wn_kernel_fn wn__cpu_reduce_kernel(const struct wn_desc *d)
{
    int32_t in = d->in[0].dtype, out = d->out.dtype;
    switch (d->op) {
    case WN_OP_EXPAND: return wn__cpu_expand_kernel(d);
    case WN_OP_ARGMAX: return wn__cpu_argmax_kernel(d);
    case WN_OP_SQUARES: return wn__cpu_squares_kernel(d);
    case WN_OP_EXTREME_GRAD: return wn__cpu_extreme_grad_kernel(d);
    default: return in == out && loops_of[d->op][out] ? reduce : NULL;
    }
}
