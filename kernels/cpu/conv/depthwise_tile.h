/* Micro-tiles of depthwise convolutions (depthwise.c): some neighbours of a row of y or dx over all taps, and some taps
 * of dw over a stretch of pixels, a vector of channels at a time.
 *
 * The image is given as addresses, one a pixel that is read. Rows of taps of common shapes have one list a row, so that
 * each pixel is read once for all taps:
 *
 *     addresses of a row        a b c d e f          stride 1, 3 taps: pixel 0 is a b c, pixel 1 is b c d
 *
 * Other shapes have a list a tap. */
#ifndef WN_CPU_CONV_DEPTHWISE_TILE_H
#define WN_CPU_CONV_DEPTHWISE_TILE_H
#include <math.h>
#include <stdint.h>
#include "../common/lanes.h"

#if defined(__AVX512F__)
#define PIXELS 8 /* of a micro-tile: as many sums as registers hold beside a row of taps */
#else
#define PIXELS 4
#endif
#define TAPS 5       /* of a micro-tile of dw of any shape */
#define CHANNELS 256 /* of a block */

#define INLINE static inline __attribute__((always_inline))

/* ---- lanes --------------------------------------------------------------------------------------- */

/* *to = a b + *to, of the lanes of a vector. f32: rounded once where the target has an instruction for that. */
static inline float multiply_add_one_f32(float a, float b, float c)
{
#if defined(FP_FAST_FMAF)
    return fmaf(a, b, c);
#else
    return a * b + c;
#endif
}

WN_LANES_FN multiply_add_f32(wn__f32 *to, const wn__f32 *a, const wn__f32 *b)
{
#if defined(__AVX512F__)
    *to = (wn__f32)_mm512_fmadd_ps((__m512)*a, (__m512)*b, (__m512)*to);
#elif defined(__FMA__)
    *to = (wn__f32)_mm256_fmadd_ps((__m256)*a, (__m256)*b, (__m256)*to);
#else
    for (int j = 0; j < WN_F32_LANES; j++) (*to)[j] = multiply_add_one_f32((*a)[j], (*b)[j], (*to)[j]);
#endif
}

WN_LANES_FN multiply_add_f64(wn__f64 *to, const wn__f64 *a, const wn__f64 *b)
{
    *to = *a * *b + *to;
}

/* ---- micro-tiles of y and dx --------------------------------------------------------------------- */

/* A row of taps: `step` pixels of the image from a pixel of the result to the next, `each` from tap to tap. */
struct shape {
    int32_t taps, step, each;
};
enum { ANY, ONE, TWO_BACK, THREE, THREE_BACK, THREE_APART, FIVE, FIVE_BACK, FIVE_APART, SHAPES };
static const struct shape shapes[SHAPES] = {
    [ONE] = {1, 1, 1},         [TWO_BACK] = {2, 1, -1}, [THREE] = {3, 1, 1},      [THREE_BACK] = {3, 1, -1},
    [THREE_APART] = {3, 2, 1}, [FIVE] = {5, 1, 1},      [FIVE_BACK] = {5, 1, -1}, [FIVE_APART] = {5, 2, 1}};
#define SPAN(pixels, taps, step) (((pixels)-1) * (step) + (taps)) /* what a row of taps reads for neighbours */

/* One micro-tile: channels [at, at + n) of PIXELS neighbours. */
struct microtile {
    const char *const *from; /* addresses, (rows, SPAN) in ascending order; of any shape (rows, columns, PIXELS) */
    int64_t rows, columns;   /* of taps */
    const void *weight;      /* (taps, CHANNELS) sums */
    const void *bias;        /* NULL, or that of the block */
    int64_t at, n;
    char *out;                /* that of the first pixel, from the first channel of the block on */
    int64_t out_step, pixels; /* bytes from pixel to pixel; how many of them are stored */
};

/* Returns which pixel reads pixel `at` of a row at tap s; -1: none. */
INLINE int32_t pixel_of(const struct shape shape, int32_t at, int32_t s)
{
    const int32_t first = at - (shape.each > 0 ? s : shape.taps - 1 - s);
    return first >= 0 && first % shape.step == 0 && first / shape.step < PIXELS ? first / shape.step : -1;
}

/* Defines the sums of one row of taps after the other; shape: a constant. The pixels of a row are read in the order of
 * taps, so that those of each sum are in ascending order. */
#define ROWS_OF(S, T, F, V, SUM, LANES)                                                                                \
    INLINE void rows_##S(const struct microtile *t, const struct shape shape, V sum[PIXELS])                           \
    {                                                                                                                  \
        const int32_t span = SPAN(PIXELS, shape.taps, shape.step);                                                     \
        const char *const *from = t->from;                                                                             \
        const SUM *weight = (const SUM *)t->weight + t->at;                                                            \
        for (int64_t r = 0; r < t->rows; r++, from += span, weight += shape.taps * CHANNELS) {                         \
            V w[5], x;                                                                                                 \
            _Pragma("GCC unroll 8") for (int32_t s = 0; s < shape.taps; s++)                                           \
                wn__read_##F(&w[s], weight + s * CHANNELS, LANES);                                                     \
            _Pragma("GCC unroll 32") for (int32_t i = 0; i < span; i++)                                                \
            {                                                                                                          \
                const int32_t at = shape.each > 0 ? i : span - 1 - i;                                                  \
                wn__read_##S(&x, (const T *)(const void *)from[at] + t->at, LANES);                                    \
                _Pragma("GCC unroll 8") for (int32_t s = 0; s < shape.taps; s++) if (pixel_of(shape, at, s) >= 0)      \
                    multiply_add_##F(&sum[pixel_of(shape, at, s)], &x, &w[s]);                                         \
            }                                                                                                          \
        }                                                                                                              \
    }

/* Defines the sums over taps of any shape. */
#define TAPS_OF_ANY(S, T, F, V, SUM)                                                                                   \
    INLINE void taps_##S(const struct microtile *t, const int64_t n, V sum[PIXELS])                                    \
    {                                                                                                                  \
        const char *const *from = t->from;                                                                             \
        const SUM *weight = (const SUM *)t->weight + t->at;                                                            \
        for (int64_t k = t->rows * t->columns; k > 0; k--, from += PIXELS, weight += CHANNELS) {                       \
            V w, x;                                                                                                    \
            wn__read_##F(&w, weight, n);                                                                               \
            _Pragma("GCC unroll 8") for (int32_t i = 0; i < PIXELS; i++)                                               \
            {                                                                                                          \
                wn__read_##S(&x, (const T *)(const void *)from[i] + t->at, n);                                         \
                multiply_add_##F(&sum[i], &x, &w);                                                                     \
            }                                                                                                          \
        }                                                                                                              \
    }

#define STORE(S, T, V)                                                                                                 \
    INLINE void store_##S(const struct microtile *t, const int64_t n, const V sum[PIXELS])                             \
    {                                                                                                                  \
        const int64_t step = t->out_step, pixels = t->pixels;                                                          \
        char *out = t->out + t->at * (int64_t)sizeof(T);                                                               \
        const int32_t has_bias = t->bias != NULL;                                                                      \
        V bias = {0}, y;                                                                                               \
        if (has_bias) wn__read_##S(&bias, (const T *)t->bias + t->at, n);                                              \
        _Pragma("GCC unroll 8") for (int32_t i = 0; i < PIXELS; i++, out += step)                                      \
        {                                                                                                              \
            if (i >= pixels) break;                                                                                    \
            y = has_bias ? sum[i] + bias : sum[i];                                                                     \
            wn__write_##S((T *)(void *)out, &y, n);                                                                    \
        }                                                                                                              \
    }

#define SHAPED(NAME, SHAPE, S, V, LANES)                                                                               \
    static void NAME##_##S(const struct microtile *t)                                                                  \
    {                                                                                                                  \
        V sum[PIXELS] = {{0}};                                                                                         \
        rows_##S(t, shapes[SHAPE], sum);                                                                               \
        store_##S(t, LANES, sum);                                                                                      \
    }

#define TILES(S, T, F, V, SUM, LANES)                                                                                  \
    ROWS_OF(S, T, F, V, SUM, LANES)                                                                                    \
    TAPS_OF_ANY(S, T, F, V, SUM)                                                                                       \
    STORE(S, T, V)                                                                                                     \
    static void any_##S(const struct microtile *t)                                                                     \
    {                                                                                                                  \
        V sum[PIXELS] = {{0}};                                                                                         \
        if (t->n == LANES) taps_##S(t, LANES, sum);                                                                    \
        else taps_##S(t, t->n, sum);                                                                                   \
        store_##S(t, t->n, sum);                                                                                       \
    }                                                                                                                  \
    SHAPED(one, ONE, S, V, LANES)                                                                                      \
    SHAPED(two_back, TWO_BACK, S, V, LANES)                                                                            \
    SHAPED(three, THREE, S, V, LANES)                                                                                  \
    SHAPED(three_back, THREE_BACK, S, V, LANES)                                                                        \
    SHAPED(three_apart, THREE_APART, S, V, LANES)                                                                      \
    SHAPED(five, FIVE, S, V, LANES)                                                                                    \
    SHAPED(five_back, FIVE_BACK, S, V, LANES)                                                                          \
    SHAPED(five_apart, FIVE_APART, S, V, LANES)

TILES(f32, float, f32, wn__f32, float, WN_F32_LANES)
TILES(f64, double, f64, wn__f64, double, WN_F64_LANES)
TILES(bf16, uint16_t, f32, wn__f32, float, WN_F32_LANES)

/* ---- micro-tiles of dw --------------------------------------------------------------------------- */

/* One micro-tile: channels [at, at + n) of a stretch of pixels. */
struct sums {
    const char *const *from; /* addresses: (rows, ld) */
    int64_t rows, ld;        /* rows: of taps; of any shape: taps */
    const char *dy;          /* from the first channel of the block on, rows `step` bytes apart */
    int64_t step, pixels;
    int64_t at, n;
    void *sum; /* (taps, CHANNELS) sums */
};

/* Defines the sums of `rows` rows of taps from row r on; rows and shape are constants. */
#define SUMS_OF(S, T, F, V, SUM)                                                                                       \
    INLINE void add_##S(const struct sums *t, int64_t r, const int32_t rows, const struct shape shape,                 \
                        const int64_t n)                                                                               \
    {                                                                                                                  \
        const char *const *from = t->from + r * t->ld, *dy = t->dy;                                                    \
        SUM *to = (SUM *)t->sum + r * shape.taps * CHANNELS + t->at;                                                   \
        const int32_t taps = rows * shape.taps;                                                                        \
        V sum[10], x, y;                                                                                               \
        _Pragma("GCC unroll 10") for (int32_t i = 0; i < taps; i++) wn__read_##F(&sum[i], to + i * CHANNELS, n);       \
        for (int64_t q = t->pixels; q > 0; q--, dy += t->step, from += shape.step) {                                   \
            wn__read_##S(&y, (const T *)(const void *)dy + t->at, n);                                                  \
            _Pragma("GCC unroll 10") for (int32_t i = 0; i < taps; i++)                                                \
            {                                                                                                          \
                const char *at = from[i / shape.taps * t->ld + i % shape.taps];                                        \
                wn__read_##S(&x, (const T *)(const void *)at + t->at, n);                                              \
                multiply_add_##F(&sum[i], &x, &y);                                                                     \
            }                                                                                                          \
        }                                                                                                              \
        _Pragma("GCC unroll 10") for (int32_t i = 0; i < taps; i++) wn__write_##F(to + i * CHANNELS, &sum[i], n);      \
    }

/* Defines the sums of all rows of taps, `together` at a time. */
#define SHAPED_SUMS(NAME, SHAPE, TOGETHER, S, LANES)                                                                   \
    static void sums_##NAME##_##S(const struct sums *t)                                                                \
    {                                                                                                                  \
        int64_t r = 0;                                                                                                 \
        for (; r + TOGETHER <= t->rows; r += TOGETHER) add_##S(t, r, TOGETHER, shapes[SHAPE], LANES);                  \
        for (; r < t->rows; r++) add_##S(t, r, 1, shapes[SHAPE], LANES);                                               \
    }

#define SUMS(S, T, F, V, SUM, LANES)                                                                                   \
    SUMS_OF(S, T, F, V, SUM)                                                                                           \
    SHAPED_SUMS(one, ONE, TAPS, S, LANES)                                                                              \
    SHAPED_SUMS(part, ONE, TAPS, S, t->n)                                                                              \
    SHAPED_SUMS(three, THREE, 3, S, LANES)                                                                             \
    SHAPED_SUMS(three_apart, THREE_APART, 3, S, LANES)                                                                 \
    SHAPED_SUMS(five, FIVE, 2, S, LANES)                                                                               \
    SHAPED_SUMS(five_apart, FIVE_APART, 2, S, LANES)

SUMS(f32, float, f32, wn__f32, float, WN_F32_LANES)
SUMS(f64, double, f64, wn__f64, double, WN_F64_LANES)
SUMS(bf16, uint16_t, f32, wn__f32, float, WN_F32_LANES)
#endif
