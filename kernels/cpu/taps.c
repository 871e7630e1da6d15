/* Sums over taps and areas (taps.h). With few taps the sum of a vector of channels is in a register from the first tap
 * to the last; with many, the pixels of the area are read one after the other, in the order of memory, and the sums of
 * CHANNELS channels are in the first-level cache. */
#include "taps.h"
#include "lanes.h"

#define CHANNELS 512

/* Defines the sum over taps. FEW: lanes of numbers. Measured: two vectors at a time, whose additions do not wait for
 * each other: no less time. */
#define FEW_TAPS(S, T, FEW)                                                                                            \
    WN_LANES_FN lanes_##S(const struct wn__taps *t, const T *x, int64_t n, T *to)                                      \
    {                                                                                                                  \
        wn__f64 sum = {0}, wide;                                                                                       \
        FEW few;                                                                                                       \
        for (int32_t i = 0; i < t->n; i++) {                                                                           \
            wn__read_few_##S(&few, x + t->at[i], n);                                                                   \
            wn__double_##S(&wide, &few);                                                                               \
            sum += wide * t->weight[i];                                                                                \
        }                                                                                                              \
        if (t->divisor != 1) sum /= t->divisor;                                                                        \
        wn__single_##S(&few, &sum);                                                                                    \
        wn__write_few_##S(to, &few, n);                                                                                \
    }

#define FEW_PIXEL(S, T)                                                                                                \
    static void few_##S(const struct wn__taps *t, const void *from, int64_t channels, void *result)                    \
    {                                                                                                                  \
        const T *x = from;                                                                                             \
        T *to = result;                                                                                                \
        int64_t at = 0, full = channels / WN_F64_LANES * WN_F64_LANES;                                                 \
        for (; at < full; at += WN_F64_LANES) {                                                                        \
            wn__taps_fetch(t, at, WN_F64_LANES);                                                                       \
            lanes_##S(t, x + at, WN_F64_LANES, to + at);                                                               \
        }                                                                                                              \
        if (at < channels) lanes_##S(t, x + at, channels - at, to + at);                                               \
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
FEW_PIXEL(f32, float)
FEW_PIXEL(f64, double)
FEW_PIXEL(bf16, uint16_t)
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
