/* ARGMAX: where the greatest of a dim stands, 0-based: the first of equals, and NaN counts as greatest. A contiguous row
 * goes by stretches, another dim by columns side by side; neither changes which element it is. */
#include <stddef.h>
#include <string.h>
#include "../scalar.h"
#include "extreme.h"

#define COLUMNS 2048 /* side by side, at most: stretches of pages, as memory likes it */
#define ROWS 4       /* looked at before the best and its place go back to the first cache */
#define AHEAD 16     /* rows: how far ahead of them others are asked for */

struct argmax {
    const void *x;
    int32_t *out;
    struct wn__axis axis;
    int64_t together; /* columns a block */
};

/* The first of the greatest; NaN counts as greatest. Along a contiguous row: the greatest of each stretch, then the
 * place within the first stretch that has it. Else columns side by side. */
#define STRETCH 512
#define ARGMAX(S, T)                                                                                                      \
    /* Where the first that is `best`, or NaN, stands: there is one. By 16: one by one it took a tenth of a row's time */ \
    static inline __attribute__((always_inline)) int64_t first_of_##S(const T *x, int64_t n, T best)                      \
    {                                                                                                                     \
        int64_t at = 0;                                                                                                   \
        for (int32_t here = 0; at + 16 <= n; at += 16) {                                                                  \
            _Pragma("omp simd reduction(| : here)") for (int j = 0; j < 16; j++) here |=                                  \
                (x[at + j] == best) | (x[at + j] != x[at + j]);                                                           \
            if (here) break;                                                                                              \
        }                                                                                                                 \
        while (x[at] != best && x[at] == x[at]) at++;                                                                     \
        return at;                                                                                                        \
    }                                                                                                                     \
    WN_CLONES static int64_t row_argmax_##S(const T *x, int64_t n)                                                        \
    {                                                                                                                     \
        int64_t first = 0;                                                                                                \
        T best = x[0];                                                                                                    \
        for (int64_t at = 0; at < n; at += STRETCH) {                                                                     \
            T top = row_max_##S##_lanes(x + at, n - at < STRETCH ? n - at : STRETCH);                                     \
            if (top > best || (top != top && best == best)) best = top, first = at;                                       \
        }                                                                                                                 \
        return first + first_of_##S(x + first, n - first, best);                                                          \
    }                                                                                                                     \
    static inline __attribute__((always_inline)) void better_##S(T value, int64_t r, T *best, int32_t *at)                \
    {                                                                                                                     \
        T top = *best;                                                                                                    \
        int32_t wins = (value > top) | ((value != value) & (top == top)), was = *at;                                      \
        *best = wins ? value : top;                                                                                       \
        *at = wins ? (int32_t)r : was;                                                                                    \
    }                                                                                                                     \
    /* 16 columns, ROWS rows from row r; as many lines of what comes next are asked for */                                \
    static inline __attribute__((always_inline)) void argmax_tile_##S(const T *x, int64_t step, int64_t r, T *best,       \
                                                                      int32_t *at, struct wn__ahead *next)                \
    {                                                                                                                     \
        T top[16];                                                                                                        \
        wn__ask(next, ROWS * 16 * (int64_t)sizeof(T) / 64);                                                               \
        int32_t place[16];                                                                                                \
        for (int j = 0; j < 16; j++) top[j] = best[j], place[j] = at[j];                                                  \
        for (int64_t k = 0; k < ROWS; k++) {                                                                              \
            const T *row = x + k * step;                                                                                  \
            _Pragma("omp simd") for (int j = 0; j < 16; j++) better_##S(row[j], r + k, &top[j], &place[j]);               \
        }                                                                                                                 \
        for (int j = 0; j < 16; j++) best[j] = top[j], at[j] = place[j];                                                  \
    }                                                                                                                     \
    /* n columns `step` apart from row to row */                                                                          \
    WN_CLONES static void columns_argmax_##S(const T *x, int64_t rows, int64_t step, int64_t n, int32_t *out)             \
    {                                                                                                                     \
        T best[COLUMNS];                                                                                                  \
        int32_t at[COLUMNS];                                                                                              \
        int64_t r = 1, whole = n / 16 * 16, pitch = step * (int64_t)sizeof(T);                                            \
        struct wn__ahead next = {(uintptr_t)x + (uintptr_t)((r + AHEAD) * pitch), pitch, n * (int64_t)sizeof(T), 0};      \
        for (int64_t j = 0; j < n; j++) best[j] = x[j], at[j] = 0;                                                        \
        for (; r + ROWS <= rows; r += ROWS)                                                                               \
            for (int64_t j = 0; j < whole; j += 16)                                                                       \
                argmax_tile_##S(x + r * step + j, step, r, best + j, at + j, &next);                                      \
        for (int64_t i = 1; i < rows; i++)                                                                                \
            for (int64_t j = i < r ? whole : 0; j < n; j++) better_##S(x[i * step + j], i, &best[j], &at[j]);             \
        memcpy(out, at, (size_t)n * sizeof *out);                                                                         \
    }                                                                                                                     \
    /* Units [begin, end): rows, or blocks of columns */                                                                  \
    static void argmax_##S(int64_t begin, int64_t end, void *ctx)                                                         \
    {                                                                                                                     \
        const struct argmax *k = ctx;                                                                                     \
        int64_t inner = k->axis.inner, n = k->axis.n, most = k->together, blocks = (inner + most - 1) / most;             \
        for (int64_t u = begin; u < end; u++) {                                                                           \
            int64_t outer = u / blocks, column = u % blocks * most;                                                       \
            const T *x = (const T *)k->x + outer * n * inner + column;                                                    \
            if (inner == 1) k->out[u] = (int32_t)row_argmax_##S(x, n);                                                    \
            else                                                                                                          \
                columns_argmax_##S(x, n, inner, inner - column < most ? inner - column : most,                            \
                                   k->out + outer * inner + column);                                                      \
        }                                                                                                                 \
    }

ARGMAX(f32, float)
ARGMAX(f64, double)
ARGMAX(i32, int32_t)
ARGMAX(u8, uint8_t)

/* Units as above. */
static void argmax_bf16(int64_t begin, int64_t end, void *ctx)
{
    const struct argmax *k = ctx;
    int64_t inner = k->axis.inner, n = k->axis.n, most = k->together, blocks = (inner + most - 1) / most;
    for (int64_t u = begin; u < end; u++) {
        int64_t outer = u / blocks, column = u % blocks * most, stop = column + most < inner ? column + most : inner;
        for (; column < stop; column++) {
            const uint16_t *x = (const uint16_t *)k->x + outer * n * inner + column;
            int64_t best = 0;
            for (int64_t i = 1; i < n; i++) {
                float value = wn_from_bf16(x[i * inner]), top = wn_from_bf16(x[best * inner]);
                if (value > top || (value != value && top == top)) best = i;
            }
            k->out[outer * inner + column] = (int32_t)best;
        }
    }
}

static const wn__parallel_body argmaxes[WN_DTYPE_COUNT] = {
    [WN_F32] = argmax_f32, [WN_F64] = argmax_f64, [WN_BF16] = argmax_bf16, [WN_I32] = argmax_i32, [WN_U8] = argmax_u8};

static int32_t argmax(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    (void)stream;
    struct argmax k = {.x = b->in[0], .out = b->out, .axis = wn__axis_of(&d->in[0], d->attrs.i[0])};
    k.together = k.axis.inner == 1 ? 1 : wn__columns_together(k.axis.inner, k.axis.outer, COLUMNS);
    int64_t blocks = (k.axis.inner + k.together - 1) / k.together;
    int64_t grain = WN_CPU_GRAIN / (k.axis.n * k.together + 1) + 1;
    wn__parallel_for(k.axis.outer * blocks, grain, argmaxes[d->in[0].dtype], &k);
    return WN_OK;
}

wn_kernel_fn wn__cpu_argmax_kernel(const struct wn_desc *d)
{
    return d->out.dtype == WN_I32 && argmaxes[d->in[0].dtype] ? argmax : NULL;
}
