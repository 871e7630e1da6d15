/* Sums over taps and areas (taps.h). With few taps the sum of a vector of channels is in a register from the first tap
 * to the last; with many, the pixels of the area are read one after the other, in the order of memory, and the sums of
 * CHANNELS channels are in the first-level cache. */
#include "taps.h"
#include "../common/lanes.h"

#define CHANNELS 512

/* Adds a product whose factors have at most 53 bits together: rounded once or twice, the sum has the same bits.
 * Measured, in the caches, one thread: gradient of bilinear interpolation 0.78 of the time, of 2 x 2 means 0.88, 3 x 3
 * means 0.81 (Zen 4). */
WN_LANES_FN add_exact(wn__f64 *sum, const wn__f64 *a, const wn__f64 *weight)
{
#if defined(__FMA__)
    wn__fma_few_f64(sum, a, weight);
#else
    *sum += *a * *weight;
#endif
}

/* The taps of a run, copied so that no store to the result can change them. */
struct few {
    struct wn__grid g;
    wn__f64 weight[WN_FEW_TAPS];
    int32_t is_exact; /* products have at most 53 bits */
};

static inline __attribute__((always_inline)) struct few few_of(const struct wn__taps *t, int64_t rows, int64_t columns,
                                                               int32_t is_exact)
{
    struct few f;
    f.g = wn__grid_of(t, rows, columns);
    f.is_exact = is_exact;
    for (int64_t i = 0; i < rows * columns; i++) f.weight[i] = (wn__f64){0} + t->weight[i];
    return f;
}

/* Defines the sum over taps of `vectors` vectors of channels; of a single one, n are channels. FEW: lanes of numbers.
 * Measured: two vectors at once, whose additions do not wait for each other: 0.75 to 0.88 of the time of 4 x 4 taps. */
#define FEW_TAPS(S, T, FEW)                                                                                            \
    WN_LANES_FN lanes_##S(const struct few *f, int32_t vectors, const T *x, int64_t n, T *to)                          \
    {                                                                                                                  \
        wn__f64 sum[2] = {{0}}, wide;                                                                                  \
        FEW few;                                                                                                       \
        for (int64_t r = 0, i = 0; r < f->g.rows; r++)                                                                 \
            for (int64_t c = 0; c < f->g.columns; c++, i++)                                                            \
                for (int32_t v = 0; v < vectors; v++) {                                                                \
                    wn__read_few_##S(&few, x + r * f->g.pitch + c * f->g.channels + v * WN_F64_LANES, n);              \
                    wn__double_##S(&wide, &few);                                                                       \
                    if (f->is_exact) add_exact(&sum[v], &wide, &f->weight[i]);                                         \
                    else sum[v] += wide * f->weight[i];                                                                \
                }                                                                                                      \
        for (int32_t v = 0; v < vectors; v++) {                                                                        \
            if (f->g.divisor != 1) sum[v] /= f->g.divisor;                                                             \
            wn__single_##S(&few, &sum[v]);                                                                             \
            wn__write_few_##S(to + v * WN_F64_LANES, &few, n);                                                         \
        }                                                                                                              \
    }

/* Defines the sums of a run. */
#define FEW_RUN(S, T, IS_EXACT)                                                                                        \
    WN_LANES_FN run_##S(const struct wn__taps *t, int64_t rows, int64_t columns, int32_t is_exact, const T *x, T *to)  \
    {                                                                                                                  \
        struct few f = few_of(t, rows, columns, is_exact);                                                             \
        const int64_t n = f.g.channels, pair = 2 * WN_F64_LANES;                                                       \
        for (; f.g.pixels > 0; f.g.pixels--, x += f.g.x_step, to += f.g.to_step, f.g.next += f.g.next_step) {          \
            int64_t at = 0;                                                                                            \
            for (; at + pair <= n; at += pair) {                                                                       \
                wn__taps_fetch(&f.g, at, pair);                                                                        \
                lanes_##S(&f, 2, x + at, WN_F64_LANES, to + at);                                                       \
            }                                                                                                          \
            for (; at < n; at += WN_F64_LANES) lanes_##S(&f, 1, x + at, n - at, to + at);                              \
        }                                                                                                              \
    }                                                                                                                  \
    static void few_##S(const struct wn__taps *t, const void *x, void *to)                                             \
    {                                                                                                                  \
        if (IS_EXACT && are_exact(t)) WN_TAPS_CALL(run_##S, t, 1, x, to)                                               \
        else WN_TAPS_CALL(run_##S, t, 0, x, to)                                                                        \
    }

/* Returns whether all weights have at most 24 bits, as numbers in f32 have. */
static int32_t are_exact(const struct wn__taps *t)
{
    int32_t are = 1;
    for (int64_t i = 0; i < t->grid.rows * t->grid.columns; i++) are &= (double)(float)t->weight[i] == t->weight[i];
    return are;
}

/* Define what adds one pixel of n channels to their sums, and what divides and rounds the sums. */
#define AREA_ADD(S, T, FEW)                                                                                            \
    WN_LANES_FN add_##S(const T *x, double weight, int64_t n, double *sum)                                             \
    {                                                                                                                  \
        wn__f64 so_far, wide;                                                                                          \
        FEW few;                                                                                                       \
        for (int64_t at = 0; at < n; at += WN_F64_LANES) {                                                             \
            if (n - at < WN_F64_LANES) wn__read_few_##S(&few, x + at, n - at);                                         \
            else wn__read_few_##S(&few, x + at, WN_F64_LANES);                                                         \
            wn__double_##S(&wide, &few);                                                                               \
            wn__read_f64(&so_far, sum + at, WN_F64_LANES);                                                             \
            so_far += wide * weight;                                                                                   \
            wn__write_f64(sum + at, &so_far, WN_F64_LANES);                                                            \
        }                                                                                                              \
    }

#define AREA_END(S, T, FEW)                                                                                            \
    WN_LANES_FN end_##S(const double *sum, double divisor, int64_t n, T *to)                                           \
    {                                                                                                                  \
        wn__f64 value;                                                                                                 \
        FEW few;                                                                                                       \
        for (int64_t at = 0; at < n; at += WN_F64_LANES) {                                                             \
            wn__read_f64(&value, sum + at, WN_F64_LANES);                                                              \
            if (divisor != 1) value /= divisor;                                                                        \
            wn__single_##S(&few, &value);                                                                              \
            wn__write_few_##S(to + at, &few, n - at);                                                                  \
        }                                                                                                              \
    }

#define MANY(S, T)                                                                                                     \
    static void many_##S(const struct wn__area *a, const void *from, int64_t channels, void *result)                   \
    {                                                                                                                  \
        const T *x = from;                                                                                             \
        T *to = result;                                                                                                \
        double sum[CHANNELS];                                                                                          \
        for (int64_t first = 0, n; first < channels; first += n) {                                                     \
            n = channels - first < CHANNELS ? channels - first : CHANNELS;                                             \
            memset(sum, 0, sizeof sum);                                                                                \
            for (int64_t r = 0; r < a->rows; r++)                                                                      \
                for (int64_t c = 0; c < a->columns; c++)                                                               \
                    add_##S(x + r * a->pitch + c * channels + first, a->weight ? a->weight(a->ctx, r, c) : 1.0, n,     \
                            sum);                                                                                      \
            end_##S(sum, a->divisor, n, to + first);                                                                   \
        }                                                                                                              \
    }

FEW_TAPS(f32, float, wn__few)
FEW_TAPS(f64, double, wn__f64)
FEW_TAPS(bf16, uint16_t, wn__few)
FEW_RUN(f32, float, 1)
FEW_RUN(f64, double, 0)
FEW_RUN(bf16, uint16_t, 1)
AREA_ADD(f32, float, wn__few)
AREA_ADD(f64, double, wn__f64)
AREA_ADD(bf16, uint16_t, wn__few)
AREA_END(f32, float, wn__few)
AREA_END(f64, double, wn__f64)
AREA_END(bf16, uint16_t, wn__few)
MANY(f32, float)
MANY(f64, double)
MANY(bf16, uint16_t)

#define LOOPS(S) static const struct wn__taps_loops loops_##S = {few_##S, many_##S};
LOOPS(f32)
LOOPS(f64)
LOOPS(bf16)

const struct wn__taps_loops *const wn__taps_loops[WN_DTYPE_COUNT] = {
    [WN_F32] = &loops_f32, [WN_F64] = &loops_f64, [WN_BF16] = &loops_bf16};
