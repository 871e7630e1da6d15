/* ARGMAX: x: (outer, n, inner) -> (outer, inner), the 0-based index along n of the first maximum; a NaN counts as
 * maximum.
 *
 * A contiguous row (inner = 1) is divided into stretches: the maximum of each, then the index within the first stretch
 * that has it. Another dim is computed for many columns at once, in parts of the rows (row_parts.h). Neither changes
 * which element it is. */
#include <stddef.h>
#include <string.h>
#include "../scalar.h"
#include "minmax.h"
#include "../row_parts.h"

#define DOWN_ROWS 8 /* rows of 16 columns in registers. Measured: 4, 16: 1.1x time */

struct argmax {
    const void *x;
    int32_t *out;
    struct wn__axis axis;
    int64_t together; /* columns of a block */
    int64_t parts;    /* of the rows, where inner > 1 */
    double *best;     /* (outer, parts, inner) maxima of the parts, where there are several */
    int32_t *place;   /* (outer, parts, inner) their indices */
};

/* Defines the loops of a dtype: rows by stretches of STRETCH elements, and columns. */
#define STRETCH 512
#define ARGMAX(S, T)                                                                                                   \
    /* Returns the index of the first `best` or NaN, which exists. Measured: one by one: +10 % of a row */             \
    static inline __attribute__((always_inline)) int64_t first_of_##S(const T *x, int64_t n, T best)                   \
    {                                                                                                                  \
        int64_t at = 0;                                                                                                \
        for (int32_t here = 0; at + 16 <= n; at += 16) {                                                               \
            _Pragma("omp simd reduction(| : here)") for (int j = 0; j < 16; j++) here |=                               \
                (x[at + j] == best) | (x[at + j] != x[at + j]);                                                        \
            if (here) break;                                                                                           \
        }                                                                                                              \
        while (x[at] != best && x[at] == x[at]) at++;                                                                  \
        return at;                                                                                                     \
    }                                                                                                                  \
    static int64_t row_argmax_##S(const T *x, int64_t n)                                                               \
    {                                                                                                                  \
        int64_t first = 0;                                                                                             \
        T best = x[0];                                                                                                 \
        for (int64_t at = 0; at < n; at += STRETCH) {                                                                  \
            T top = row_max_##S##_lanes(x + at, n - at < STRETCH ? n - at : STRETCH);                                  \
            if (top > best || (top != top && best == best)) best = top, first = at;                                    \
        }                                                                                                              \
        return first + first_of_##S(x + first, n - first, best);                                                       \
    }                                                                                                                  \
    static inline __attribute__((always_inline)) void better_##S(T value, int64_t r, T *best, int32_t *at)             \
    {                                                                                                                  \
        T top = *best;                                                                                                 \
        int32_t wins = (value > top) | ((value != value) & (top == top)), was = *at;                                   \
        *best = wins ? value : top;                                                                                    \
        *at = wins ? (int32_t)r : was;                                                                                 \
    }                                                                                                                  \
    /* Adds DOWN_ROWS rows from row r on to 16 columns; prefetches as many lines of the next rows */                   \
    static inline __attribute__((always_inline)) void argmax_tile_##S(const T *x, int64_t step, int64_t r, T *best,    \
                                                                      int32_t *at, struct wn__prefetch *next)          \
    {                                                                                                                  \
        T top[16];                                                                                                     \
        wn__prefetch_lines(next, DOWN_ROWS * 16 * (int64_t)sizeof(T) / 64);                                            \
        int32_t place[16];                                                                                             \
        for (int j = 0; j < 16; j++) top[j] = best[j], place[j] = at[j];                                               \
        for (int64_t k = 0; k < DOWN_ROWS; k++) {                                                                      \
            const T *row = x + k * step;                                                                               \
            _Pragma("omp simd") for (int j = 0; j < 16; j++) better_##S(row[j], r + k, &top[j], &place[j]);            \
        }                                                                                                              \
        for (int j = 0; j < 16; j++) best[j] = top[j], at[j] = place[j];                                               \
    }                                                                                                                  \
    /* Writes the maximum of each of n columns over rows [first, end), rows `step` apart, and its row */               \
    static void columns_argmax_##S(const T *x, int64_t first, int64_t end, int64_t step, int64_t n, T *best,           \
                                   int32_t *at)                                                                        \
    {                                                                                                                  \
        int64_t r = first + 1, whole = n / 16 * 16, pitch = step * (int64_t)sizeof(T);                                 \
        uintptr_t ahead = (uintptr_t)x + (uintptr_t)((r + DOWN_ROWS) * pitch);                                         \
        struct wn__prefetch next = {ahead, pitch, n * (int64_t)sizeof(T), 0};                                          \
        for (int64_t j = 0; j < n; j++) best[j] = x[first * step + j], at[j] = (int32_t)first;                         \
        for (; r + DOWN_ROWS <= end; r += DOWN_ROWS)                                                                   \
            for (int64_t j = 0; j < whole; j += 16)                                                                    \
                argmax_tile_##S(x + r * step + j, step, r, best + j, at + j, &next);                                   \
        for (int64_t i = first + 1; i < end; i++)                                                                      \
            for (int64_t j = i < r ? whole : 0; j < n; j++) better_##S(x[i * step + j], i, &best[j], &at[j]);          \
    }                                                                                                                  \
    /* Unit u is a block of columns of a part of the rows of an outer index, blocks fastest */                         \
    static void argmax_columns_##S(int64_t begin, int64_t end, void *ctx)                                              \
    {                                                                                                                  \
        const struct argmax *k = ctx;                                                                                  \
        int64_t inner = k->axis.inner, rows = k->axis.n, most = k->together, blocks = (inner + most - 1) / most;       \
        for (int64_t u = begin; u < end; u++) {                                                                        \
            T best[WN_COLUMNS];                                                                                        \
            int32_t at[WN_COLUMNS];                                                                                    \
            int64_t column = u % blocks * most, n = inner - column < most ? inner - column : most;                     \
            int64_t slab = u / blocks / k->parts, part = u / blocks % k->parts, waits = u / blocks * inner + column;   \
            columns_argmax_##S((const T *)k->x + slab * rows * inner + column, rows * part / k->parts,                 \
                               rows * (part + 1) / k->parts, inner, n, best, at);                                      \
            if (k->parts > 1)                                                                                          \
                for (int64_t j = 0; j < n; j++) k->best[waits + j] = (double)best[j], k->place[waits + j] = at[j];     \
            else memcpy(k->out + slab * inner + column, at, (size_t)n * sizeof *at);                                   \
        }                                                                                                              \
    }                                                                                                                  \
    static void argmax_rows_##S(int64_t begin, int64_t end, void *ctx)                                                 \
    {                                                                                                                  \
        const struct argmax *k = ctx;                                                                                  \
        for (int64_t r = begin; r < end; r++)                                                                          \
            k->out[r] = (int32_t)row_argmax_##S((const T *)k->x + r * k->axis.n, k->axis.n);                           \
    }

ARGMAX(f32, float)
ARGMAX(f64, double)
ARGMAX(i32, int32_t)
ARGMAX(u8, uint8_t)

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

static const wn__parallel_body argmaxes[WN_DTYPE_COUNT][2] = {[WN_F32] = {argmax_rows_f32, argmax_columns_f32},
                                                              [WN_F64] = {argmax_rows_f64, argmax_columns_f64},
                                                              [WN_BF16] = {argmax_bf16, argmax_bf16},
                                                              [WN_I32] = {argmax_rows_i32, argmax_columns_i32},
                                                              [WN_U8] = {argmax_rows_u8, argmax_columns_u8}};

static int32_t argmax(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    (void)stream;
    struct argmax k = {.x = b->in[0], .out = b->out, .axis = wn__axis_of(&d->in[0], d->attrs.i[0])};
    int32_t columns = k.axis.inner != 1 && d->in[0].dtype != WN_BF16;
    int64_t units = k.axis.outer * k.axis.inner;
    k.together = k.parts = 1;
    if (columns) {
        k.parts = wn__reduce_parts(d);
        k.best = b->workspace;
        if (k.parts > 1) k.place = (int32_t *)(void *)(k.best + k.parts * units);
        k.together = wn__columns_together(k.axis.inner, k.axis.outer * k.parts, WN_COLUMNS);
        units = k.axis.outer * k.parts * ((k.axis.inner + k.together - 1) / k.together);
    }
    int64_t grain = WN_CPU_GRAIN * k.parts / (k.axis.n * k.together + 1) + 1;
    wn__parallel_for(units, grain, argmaxes[d->in[0].dtype][columns], &k);
    if (k.parts > 1) wn__parallel_for(k.axis.outer, 1, join_parts, &k);
    return WN_OK;
}

wn_kernel_fn wn__cpu_argmax_kernel(const struct wn_desc *d)
{
    return d->out.dtype == WN_I32 && argmaxes[d->in[0].dtype][0] ? argmax : NULL;
}
