/* Taps: the pixels of an image that one pixel of a result is made of, listed once for all its channels, and for all
 * pixels of a run: pixels of one row of the result, evenly apart, whose taps are evenly apart too. Shared by pool.c and
 * resize.c, for images in memory order (N, H, W, C). */
#ifndef WN_CPU_TAPS_H
#define WN_CPU_TAPS_H
#include <stdint.h>
#include "../../kernel.h"
#include "../common/nontemporal.h"

enum {
    WN_TAPS = 256,   /* most that can be listed */
    WN_FEW_TAPS = 25 /* most of a sum that is faster with a list */
};

/* Says where the taps of a pixel are, and the pixels of a run. Counts are of elements. */
struct wn__grid {
    int64_t rows, columns;       /* the taps of a pixel, row by row */
    int64_t channels, pitch;     /* from a tap to the next of its row; from one row to the next */
    int64_t pixels, x_step;      /* pixels of the run; from the taps of a pixel to those of the next */
    int64_t index_step, to_step; /* from the index of a pixel to the next, and from pixel to pixel of the result */
    double divisor;              /* of a sum */
    const char *next;            /* what is prefetched at the first pixel: `each` bytes a channel; 0: nothing */
    int64_t each, next_step;     /* next_step: bytes from pixel to pixel */
};

struct wn__taps {
    struct wn__grid grid;
    double weight[WN_FEW_TAPS]; /* of a sum */
    int32_t place[WN_TAPS];     /* of a maximum: in the window */
};

/* Returns the grid of taps, with its rows and columns as they are given: constants, so that loops over taps unroll. */
static inline __attribute__((always_inline)) struct wn__grid wn__grid_of(const struct wn__taps *t, int64_t rows,
                                                                         int64_t columns)
{
    struct wn__grid g = t->grid;
    g.rows = rows;
    g.columns = columns;
    return g;
}

/* Prefetches what a later pixel reads for channels [at, at + n), each line once. */
static inline __attribute__((always_inline)) void wn__taps_fetch(const struct wn__grid *g, int64_t at, int64_t n)
{
    const int64_t end = (at + n) * g->each;
    if (end == 0) return;
    for (int64_t line = (at * g->each + 63) & -64; line < end; line += 64) wn__fetch_far(g->next, line);
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
    /* Writes (sum of weight x) / divisor over taps, for all pixels of a run. */
    void (*few)(const struct wn__taps *t, const void *x, void *to);
    /* Writes (sum of weight x) / divisor over an area, row by row. */
    void (*many)(const struct wn__area *a, const void *x, int64_t channels, void *to);
};
/* NULL for dtypes without. */
extern const struct wn__taps_loops *const wn__taps_loops[WN_DTYPE_COUNT];
#endif
