/* Taps: the pixels of an image that one pixel of a result is made of, listed once for all its channels. Shared by
 * pool.c and resize.c, for images in memory order (N, H, W, C). */
#ifndef WN_CPU_TAPS_H
#define WN_CPU_TAPS_H
#include <stdint.h>
#include "../kernel.h"
#include "nontemporal.h"

enum {
    WN_TAPS = 256,   /* most that can be listed */
    WN_FEW_TAPS = 16 /* most of a sum that is faster with a list */
};

struct wn__taps {
    int32_t n;
    int32_t place[WN_TAPS]; /* of a maximum: in the window */
    int64_t at[WN_TAPS];    /* elements from the first tap */
    double weight[WN_TAPS], divisor;
    const char *next; /* what is prefetched meanwhile: `each` bytes a channel; 0: nothing */
    int64_t each;
};

/* Prefetches the part of a later pixel that belongs to n channels from `at` on. */
static inline __attribute__((always_inline)) void wn__taps_fetch(const struct wn__taps *t, int64_t at, int64_t n)
{
    for (int64_t i = 0; i < n * t->each; i += 64) wn__fetch_far(t->next, at * t->each + i);
}

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
    /* Writes (sum of weight x) / divisor over taps. */
    void (*few)(const struct wn__taps *t, const void *x, int64_t channels, void *to);
    /* Writes (sum of weight x) / divisor over an area, row by row. */
    void (*many)(const struct wn__area *a, const void *x, int64_t channels, void *to);
};
/* NULL for dtypes without. */
extern const struct wn__taps_loops *const wn__taps_loops[WN_DTYPE_COUNT];
#endif
