/* CHANNEL_MEAN, CHANNEL_RSTD, BATCH_NORM_SUMS, RELU_NORM_SUMS: sums over the pixels of images in memory order
 * (N, H, W, C) (runtime/ops/channel.c has the formulas). BATCH_NORM and BATCH_NORM_DX are in channel_norm.c.
 *
 * Each channel of each part of a slab (channel.h) has a sum in double, of terms in the element's type (bf16: f32), in
 * the order of the pixels. Then the parts are added in order, then the channels of a group, in order. Threads share
 * parts and blocks of channels, so their number changes no bit. */
#include "channel.h"
#include <math.h>
#include <stddef.h>
#include <string.h>
#include "../common/cpu.h"
#include "../common/lanes.h"

#define LANES WN_F64_LANES
#define ROWS 8 /* pixels that are added to sums in registers */

#define AHEAD 8192 /* bytes of a block that are prefetched ahead */

/* The kinds of sums: of x, of (x - mean)^2, of the gradients of a norm, and of a norm under a ReLU. */
enum sum { MEAN, SQUARE, GRADIENT, RELU };

struct loops;

/* One application. */
struct sums {
    struct wn__channel_cut cut;
    const void *const *in;
    const void *x; /* in[1] of BATCH_NORM_SUMS and RELU_NORM_SUMS, else in[0] */
    void *out;
    double eps;
    int64_t together; /* channels of a block */
    double *partial;  /* (slabs, parts, sums, channels) */
    const struct loops *loops;
};

/* The statistics and the sums of a block of channels. Vectors may reach beyond them. */
struct block {
    int64_t first; /* channel */
    union {
        float f32[WN_COLUMNS + LANES];
        double f64[WN_COLUMNS + LANES];
    } mean, rstd, w, b; /* w, b: of RELU_NORM_SUMS */
    double sum[2][WN_COLUMNS + LANES];
};

/* The loops of an op and a dtype. */
struct loops {
    int64_t size; /* bytes of an element */
    /* Reads the statistics of n channels of a slab. NULL: the op has none. */
    void (*read)(const struct sums *k, int64_t slab, int64_t n, struct block *b);
    /* Adds ROWS pixels from `pixel` on, of the first n / LANES * LANES channels; prefetches as many lines of the next
     * ones. */
    void (*down)(const struct sums *k, int64_t pixel, int64_t n, struct block *b, struct wn__prefetch next[2]);
    /* Adds pixels [pixels[0], pixels[1]), of channels from `at` of the block to n. */
    void (*across)(const struct sums *k, const int64_t pixels[2], int64_t at, int64_t n, struct block *b);
    /* Stores n numbers as elements `at` and following of the result. */
    void (*store)(void *out, int64_t at, const double *value, int64_t n);
};

#define TYPE f32
#include "channel.inc"
#define TYPE f64
#include "channel.inc"
#define TYPE bf16
#include "channel.inc"

/* ---- the driver -------------------------------------------------------------------------------------------- */

/* Adds pixels [pixel, end) to n channels of a block. */
static void add_part(const struct sums *k, int64_t pixel, int64_t end, int64_t n, struct block *b)
{
    int64_t whole = n / LANES * LANES, tail = end - (end - pixel) % ROWS, pitch = k->cut.channels * k->loops->size;
    int64_t ahead = wn_round_up(AHEAD / (n * k->loops->size) + 1, ROWS);
    int64_t from = (pixel + ahead) * pitch + b->first * k->loops->size;
    struct wn__prefetch next[2];
    for (int i = 0; i < 2; i++)
        next[i] =
            (struct wn__prefetch){(uintptr_t)(i ? k->in[0] : k->x) + (uintptr_t)from, pitch, n * k->loops->size, 0};
    if (whole > 0)
        for (int64_t at = pixel; at < tail; at += ROWS) k->loops->down(k, at, n, b, next);
    if (whole < n) k->loops->across(k, (int64_t[2]){pixel, tail}, whole, n, b);
    k->loops->across(k, (int64_t[2]){tail, end}, 0, n, b);
}

/* Computes units [begin, end): a unit is a block of channels of a part of a slab, blocks fastest. */
static void units(int64_t begin, int64_t end, void *ctx)
{
    const struct sums *k = ctx;
    const struct wn__channel_cut *c = &k->cut;
    int64_t blocks = (c->channels + k->together - 1) / k->together;
    struct block b;
    for (int64_t unit = begin; unit < end; unit++) {
        int64_t part = unit / blocks % c->parts, slab = unit / blocks / c->parts, n;
        double *to = k->partial + unit / blocks * c->sums * c->channels;
        b.first = unit % blocks * k->together;
        n = c->channels - b.first < k->together ? c->channels - b.first : k->together;
        for (int64_t i = 0; i < 2; i++) memset(b.sum[i], 0, (size_t)(n + LANES) * sizeof(double));
        if (k->loops->read != NULL) k->loops->read(k, slab, n, &b);
        add_part(k, slab * c->rows + c->rows * part / c->parts, slab * c->rows + c->rows * (part + 1) / c->parts, n,
                 &b);
        for (int64_t i = 0; i < c->sums; i++)
            memcpy(to + i * c->channels + b.first, b.sum[i], (size_t)n * sizeof(double));
    }
}

/* Turns the sums of a slab's channels into statistics, a number a group, which are at the same place. */
static void join_groups(const struct sums *k, double *sum)
{
    int64_t each = k->cut.each;
    double n = (double)(k->cut.rows * each);
    for (int64_t g = 0; g < k->cut.groups; g++) {
        double all = sum[g * each];
        for (int64_t j = 1; j < each; j++) all += sum[g * each + j];
        sum[g] = k->loops->read == NULL ? all / n : 1.0 / sqrt(all / n + k->eps);
    }
}

/* Adds the parts of slabs [begin, end) to their first part, in order, and stores the results. */
static void join(int64_t begin, int64_t end, void *ctx)
{
    const struct sums *k = ctx;
    const struct wn__channel_cut *c = &k->cut;
    int64_t n = c->sums * c->channels;
    for (int64_t slab = begin; slab < end; slab++) {
        double *first = k->partial + slab * c->parts * n;
        for (int64_t p = 1; p < c->parts; p++)
            for (int64_t j = 0; j < n; j++) first[j] += first[p * n + j];
        if (c->sums == 1) {
            join_groups(k, first);
            k->loops->store(k->out, slab * c->groups, first, c->groups);
        } else
            for (int64_t i = 0; i < 2; i++)
                k->loops->store(k->out, (i * c->slabs + slab) * c->channels, first + i * c->channels, c->channels);
    }
}

/* ---- ops --------------------------------------------------------------------------------------------------- */

static const struct loops *const loops_of[WN_OP_COUNT][WN_DTYPE_COUNT] = {
    [WN_OP_CHANNEL_MEAN] = {WN_FLOATS(&loops_MEAN)},
    [WN_OP_CHANNEL_RSTD] = {WN_FLOATS(&loops_SQUARE)},
    [WN_OP_BATCH_NORM_SUMS] = {WN_FLOATS(&loops_GRADIENT)},
    [WN_OP_RELU_NORM_SUMS] = {WN_FLOATS(&loops_RELU)}};

static int32_t sums(const struct wn_desc *d, const struct wn_buffers *b, WN_NO_STREAM)
{
    struct sums k = {.in = b->in, .out = b->out, .eps = d->attrs.f[0], .partial = b->workspace};
    k.cut = wn__channel_cut_of(d);
    k.x = b->in[k.cut.sums - 1];
    k.loops = loops_of[d->op][d->out.dtype];
    k.together = wn__columns_together(k.cut.channels, k.cut.slabs * k.cut.parts, WN_COLUMNS);
    int64_t blocks = (k.cut.channels + k.together - 1) / k.together;
    int64_t work = k.cut.rows / k.cut.parts * k.together;
    wn__parallel_for(k.cut.slabs * k.cut.parts * blocks, WN_CPU_GRAIN / (work + 1) + 1, units, &k);
    wn__parallel_for(k.cut.slabs, WN_CPU_GRAIN / (k.cut.parts * k.cut.channels) + 1, join, &k);
    return WN_OK;
}

wn_kernel_fn wn__cpu_channel_kernel(const struct wn_desc *d)
{
    return loops_of[d->op][d->out.dtype] ? sums : wn__cpu_batch_norm_kernel(d);
}
