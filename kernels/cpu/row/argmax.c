/* ARGMAX: x: (outer, n, inner) -> (outer, inner), the 0-based index along n of the first maximum; a NaN counts as
 * maximum.
 *
 * A contiguous row (inner = 1) is divided into stretches: the maximum of each, then the index within the first stretch
 * that has it. Another dim is computed for many columns at once, in parts of the rows (row_parts.h). Neither changes
 * which element it is. The drivers are the same for all dtypes, over a table of loops. */
#include <stddef.h>
#include <string.h>
#include "minmax.h"
#include "../../row_parts.h"

#define DOWN_ROWS 8 /* rows of 16 columns in registers. Measured: 4, 16: 1.1x time */
#define STRETCH 512 /* elements of a stretch of a row */

/* Columns side by side: for each the maximum so far and its row. */
struct columns {
    void *best;  /* (n) elements of x */
    int32_t *at; /* (n) */
    int64_t n;
};

/* The loops of a dtype. */
struct loops {
    int64_t size; /* bytes of an element */
    /* Returns the index in a contiguous row of n > 0 elements. */
    int64_t (*row)(const void *x, int64_t n);
    /* Adds DOWN_ROWS rows, `step` elements apart, from row r on to the first n / 16 * 16 columns; prefetches as many
     * lines of the next rows. */
    void (*down)(const void *x, int64_t step, int64_t r, const struct columns *c, struct wn__prefetch *next);
    /* Adds rows [rows[0], rows[1]), `step` elements apart, to the columns from column `from` on; x: row 0. */
    void (*across)(const void *x, int64_t step, const int64_t rows[2], int64_t from, const struct columns *c);
    /* Writes n elements as doubles. */
    void (*widen)(double *to, const void *x, int64_t n);
};

struct argmax {
    const struct loops *loops;
    const void *x;
    int32_t *out;
    struct wn__axis axis;
    int64_t together; /* columns of a block */
    int64_t parts;    /* of the rows, where inner > 1 */
    double *best;     /* (outer, parts, inner) maxima of the parts, where there are several */
    int32_t *place;   /* (outer, parts, inner) their indices */
};

#define TYPE f32
#include "argmax.inc"
#define TYPE f64
#include "argmax.inc"
#define TYPE i32
#include "argmax.inc"
#define TYPE u8
#include "argmax.inc"

static const struct loops *const loops_of[WN_DTYPE_COUNT] = {
    [WN_F32] = &loops_f32, [WN_F64] = &loops_f64, [WN_I32] = &loops_i32, [WN_U8] = &loops_u8};

/* ---- drivers ------------------------------------------------------------------------------------- */

static void argmax_rows(int64_t begin, int64_t end, void *ctx)
{
    const struct argmax *k = ctx;
    int64_t bytes = k->axis.n * k->loops->size;
    for (int64_t r = begin; r < end; r++) k->out[r] = (int32_t)k->loops->row((const char *)k->x + r * bytes, k->axis.n);
}

/* Finds the maximum of each column over rows [first, end) of x: (rows, axis.inner), where first < end, and its row. */
static void argmax_block(const struct argmax *k, const char *x, int64_t first, int64_t end, const struct columns *c)
{
    const struct loops *l = k->loops;
    int64_t step = k->axis.inner, pitch = step * l->size, r = first + 1, whole = c->n / 16 * 16;
    struct wn__prefetch next = {(uintptr_t)x + (uintptr_t)((r + DOWN_ROWS) * pitch), pitch, c->n * l->size, 0};
    memcpy(c->best, x + first * pitch, (size_t)(c->n * l->size));
    for (int64_t j = 0; j < c->n; j++) c->at[j] = (int32_t)first;
    for (; r + DOWN_ROWS <= end; r += DOWN_ROWS) l->down(x + r * pitch, step, r, c, &next);
    if (whole < c->n) l->across(x, step, (int64_t[2]){first + 1, r}, whole, c);
    l->across(x, step, (int64_t[2]){r, end}, 0, c);
}

/* Computes units [begin, end): a unit is a block of columns of a part of the rows of an outer index, blocks fastest. */
static void argmax_columns(int64_t begin, int64_t end, void *ctx)
{
    const struct argmax *k = ctx;
    int64_t inner = k->axis.inner, rows = k->axis.n, most = k->together, blocks = (inner + most - 1) / most;
    for (int64_t u = begin; u < end; u++) {
        double best[WN_COLUMNS];
        int32_t at[WN_COLUMNS];
        int64_t column = u % blocks * most, n = inner - column < most ? inner - column : most;
        int64_t slab = u / blocks / k->parts, part = u / blocks % k->parts, waits = u / blocks * inner + column;
        const struct columns c = {best, k->parts > 1 ? k->place + waits : at, n};
        argmax_block(k, (const char *)k->x + (slab * rows * inner + column) * k->loops->size, rows * part / k->parts,
                     rows * (part + 1) / k->parts, &c);
        if (k->parts > 1) k->loops->widen(k->best + waits, best, n);
        else memcpy(k->out + slab * inner + column, at, (size_t)n * sizeof *at);
    }
}

/* Computes outputs [begin, end), one after the other. */
static void argmax_bf16(int64_t begin, int64_t end, void *ctx)
{
    const struct argmax *k = ctx;
    int64_t inner = k->axis.inner, n = k->axis.n;
    for (int64_t o = begin; o < end; o++) {
        const uint16_t *x = (const uint16_t *)k->x + o / inner * n * inner + o % inner;
        int64_t best = 0;
        for (int64_t i = 1; i < n; i++) {
            float value = wn_from_bf16(x[i * inner]), top = wn_from_bf16(x[best * inner]);
            if (value > top || (value != value && top == top)) best = i;
        }
        k->out[o] = (int32_t)best;
    }
}

/* Joins the parts of outer indices [begin, end): the first maximum wins. */
static void join_parts(int64_t begin, int64_t end, void *ctx)
{
    const struct argmax *k = ctx;
    int64_t inner = k->axis.inner;
    for (int64_t slab = begin; slab < end; slab++) {
        int32_t *out = k->out + slab * inner;
        memcpy(out, k->place + slab * k->parts * inner, (size_t)inner * sizeof *out);
        for (int64_t c = 1; c < k->parts; c++) {
            double *first = k->best + slab * k->parts * inner, *best = first + c * inner;
            for (int64_t j = 0; j < inner; j++)
                better_f64(best[j], k->place[(slab * k->parts + c) * inner + j], &first[j], &out[j]);
        }
    }
}

static int32_t argmax(const struct wn_desc *d, const struct wn_buffers *b, WN_NO_STREAM)
{
    int32_t is_bf16 = d->in[0].dtype == WN_BF16;
    struct argmax k = {.loops = loops_of[d->in[0].dtype], .x = b->in[0], .out = b->out, .together = 1, .parts = 1};
    k.axis = wn__axis_of(&d->in[0], d->attrs.i[0]);
    int32_t columns = k.axis.inner != 1 && !is_bf16;
    int64_t units = k.axis.outer * k.axis.inner;
    if (columns) {
        k.parts = wn__reduce_parts(d);
        k.best = b->workspace;
        if (k.parts > 1) k.place = (int32_t *)(void *)(k.best + k.parts * units);
        k.together = wn__columns_together(k.axis.inner, k.axis.outer * k.parts, WN_COLUMNS);
        units = k.axis.outer * k.parts * ((k.axis.inner + k.together - 1) / k.together);
    }
    int64_t grain = WN_CPU_GRAIN * k.parts / (k.axis.n * k.together + 1) + 1;
    wn__parallel_for(units, grain, is_bf16 ? argmax_bf16 : columns ? argmax_columns : argmax_rows, &k);
    if (k.parts > 1) wn__parallel_for(k.axis.outer, 1, join_parts, &k);
    return WN_OK;
}

wn_kernel_fn wn__cpu_argmax_kernel(const struct wn_desc *d)
{
    int32_t in = d->in[0].dtype;
    return d->out.dtype == WN_I32 && (loops_of[in] || in == WN_BF16) ? argmax : NULL;
}
