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

/* Returns whether all weights have at most 24 bits, as numbers in f32 have. */
static int32_t are_exact(const struct wn__taps *t)
{
    int32_t are = 1;
    for (int64_t i = 0; i < t->grid.rows * t->grid.columns; i++) are &= (double)(float)t->weight[i] == t->weight[i];
    return are;
}

#define TYPE f32
#include "taps.inc"
#define TYPE f64
#include "taps.inc"
#define TYPE bf16
#include "taps.inc"

const struct wn__taps_loops *const wn__taps_loops[WN_DTYPE_COUNT] = {WN_FLOATS(&loops)};
