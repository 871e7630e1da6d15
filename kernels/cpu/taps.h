/* Taps: the pixels of an image that one pixel of a result is made of, listed once for all its channels. Shared by pool.c
 * and resize.c, for images in memory order (N, H, W, C). */
#ifndef WN_CPU_TAPS_H
#define WN_CPU_TAPS_H
#include <stdint.h>
#include "../kernel.h"

enum {
    WN_TAPS = 256,   /* most that can be listed */
    WN_FEW_TAPS = 16 /* most of a sum that is faster with a list */
};

struct wn__taps {
    int32_t n;
    int32_t place[WN_TAPS]; /* of a maximum: in the window */
    int64_t at[WN_TAPS];    /* elements from the first tap */
    double weight[WN_TAPS], divisor;
};

/* Pixels in too many rows and columns to list. */
struct wn__area {
    int64_t rows, columns, pitch; /* elements from one row to the next */
    /* Returns the weight of pixel (r, c). NULL: 1. */
    double (*weight)(const void *ctx, int64_t r, int64_t c);
    const void *ctx;
    double divisor;
};

/* Sums over pixels, in double, ascending, rounded once; channels: of a pixel; x: the first pixel. Both give the same
 * bits. */
struct wn__taps_loops {
    /* to = (sum of weight x) / divisor over taps. */
    void (*few)(const struct wn__taps *t, const void *x, int64_t channels, void *to);
    /* The same over an area, row by row. */
    void (*many)(const struct wn__area *a, const void *x, int64_t channels, void *to);
};
/* NULL for dtypes without. */
extern const struct wn__taps_loops *const wn__taps_loops[WN_DTYPE_COUNT];
#endif
