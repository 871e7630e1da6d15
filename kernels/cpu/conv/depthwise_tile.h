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
#include <stdint.h>
#include "../common/lanes.h"

#if defined(__AVX512F__)
#define PIXELS 8 /* of a micro-tile: as many sums as registers hold beside a row of taps */
#else
#define PIXELS 4
#endif
#define TAPS 5       /* of a micro-tile of dw of any shape */
#define CHANNELS 256 /* of a block */

/* ---- lanes --------------------------------------------------------------------------------------- */

/* *to = a b + *to, of the lanes of a vector. f32: rounded once where the target has an instruction for that. */
WN_LANES_FN multiply_add_f32(wn__f32 *to, const wn__f32 *a, const wn__f32 *b)
{
#if defined(__AVX512F__)
    *to = (wn__f32)_mm512_fmadd_ps((__m512)*a, (__m512)*b, (__m512)*to);
#elif defined(__FMA__)
    *to = (wn__f32)_mm256_fmadd_ps((__m256)*a, (__m256)*b, (__m256)*to);
#else
    for (int j = 0; j < WN_F32_LANES; j++) (*to)[j] = wn__multiply_add((*a)[j], (*b)[j], (*to)[j]);
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
    const char *const *from;  /* addresses, (rows, SPAN) in ascending order; of any shape (rows, columns, PIXELS) */
    int64_t rows, columns;    /* of taps */
    const void *weight;       /* (taps, CHANNELS) sums */
    const void *bias;         /* NULL, or biases from the first channel of the block on */
    int64_t at, n;            /* channels of the block */
    char *out;                /* the result at the first pixel and at the first channel of the block */
    int64_t out_step, pixels; /* bytes from pixel to pixel; how many of them are stored */
};

/* Returns which pixel reads pixel `at` of a row at tap s; -1: none. */
INLINE int32_t pixel_of(const struct shape shape, int32_t at, int32_t s)
{
    const int32_t first = at - (shape.each > 0 ? s : shape.taps - 1 - s);
    return first >= 0 && first % shape.step == 0 && first / shape.step < PIXELS ? first / shape.step : -1;
}

/* ---- micro-tiles of dw --------------------------------------------------------------------------- */

/* One micro-tile: channels [at, at + n) of a stretch of pixels. */
struct sums {
    const char *const *from; /* addresses: (rows, ld) */
    int64_t rows, ld;        /* rows: of taps; of any shape: taps */
    const char *dy;          /* from the first channel of the block on, rows `step` bytes apart */
    int64_t step, pixels;
    int64_t at, n; /* channels of the block */
    void *sum;     /* (taps, CHANNELS) sums */
};

/* Holds all that differs between element types. */
struct loops {
    int64_t sum, lanes; /* bytes of a sum; lanes of a vector of sums */
    void (*tile[SHAPES])(const struct microtile *t);
    void (*sums[SHAPES])(const struct sums *t); /* ANY: of all lanes of a vector; NULL: there are none */
    void (*part)(const struct sums *t);         /* of any shape */
    /* Converts n elements `step` apart to sums. */
    void (*widen)(const void *from, int64_t step, int64_t n, void *to);
};
#endif
