/* BATCH_NORM and BATCH_NORM_DX, and with elementwise ops BATCH_NORM_MAP and RELU_NORM_DX, over images in memory order
 * (N, H, W, C) (runtime/ops/channel.c and fused_image.c have the formulas). Each element is computed as layer norm
 * computes it, in f32 for f32 and bf16:
 *
 *     y = fma((x - mean) rstd, w, b)        dx = rstd ((dy w - A / n) - (x - mean) rstd (B / n))
 *
 * RELU_NORM_DX takes dy where y is above 0. BATCH_NORM_MAP computes y of a few pixels and then each step over them.
 * A / n and B / n are computed in double, sums over the channels of a group in order, and rounded once. The numbers of
 * the channels are copied before anything is written, and each element is read before its place is written, so the
 * result may be where an input is. Threads share pixels. */
#include "channel.h"
#include <stddef.h>
#include "../common/cpu.h"
#include "../element/elementwise.h"

#define CHANNELS 2048 /* most channels whose numbers are at hand at once */
#define BLOCK 4096    /* bytes that are computed and then streamed; 16384: 1.2x time */

struct loops;

/* One application. */
struct norm {
    struct wn__channel_cut cut;
    const void *const *in;
    char *out;
    int32_t inputs; /* images among the first inputs */
    int32_t streams;
    const struct loops *loops;
    struct wn__fused steps; /* of BATCH_NORM_MAP, else none */
    struct wn__elementwise step[WN_NORM_STEPS];
};

/* Pixels of which a pass computes n channels, from channel `at` on. */
struct pixels {
    int64_t first, count, at, n;
    char *to;
    int64_t step; /* elements from one pixel to the next in `to` */
};

/* The numbers of up to CHANNELS channels. w, c1 and c2: the weight, and (A, B) / n of BATCH_NORM_DX; b: the bias of
 * BATCH_NORM. */
struct channels_f32 {
    float mean[CHANNELS], rstd[CHANNELS], w[CHANNELS], b[CHANNELS], c1[CHANNELS], c2[CHANNELS];
};
struct channels_f64 {
    double mean[CHANNELS], rstd[CHANNELS], w[CHANNELS], b[CHANNELS], c1[CHANNELS], c2[CHANNELS];
};

union channels {
    struct channels_f32 f32;
    struct channels_f64 f64;
};

/* The loops of an op and a dtype. */
struct loops {
    int64_t size; /* bytes of an element */
    /* Reads the numbers of n channels from `at` on, of a slab. */
    void (*read)(const struct norm *k, int64_t slab, int64_t at, int64_t n, union channels *v);
    void (*rows)(const struct norm *k, const struct pixels *p, const union channels *v);
};

#define TYPE f32
#include "channel_norm.inc"
#define TYPE f64
#include "channel_norm.inc"
#define TYPE bf16
#include "channel_norm.inc"

/* ---- the driver -------------------------------------------------------------------------------------------- */

/* Computes channels [at, at + n) of pixels [begin, end), which are of one slab. */
static void pass(const struct norm *k, int64_t begin, int64_t end, int64_t at, int64_t n, const union channels *v)
{
    _Alignas(64) char block[CHANNELS * sizeof(double)]; /* a pixel, or BLOCK */
    int64_t c = k->cut.channels, size = k->loops->size, is_whole = n == c, fit = end - begin;
    int32_t in_blocks = k->streams || k->steps.n > 0;
    if (in_blocks) fit = is_whole ? wn_max(BLOCK / (n * size), 1) : 1;
    for (int64_t pixel = begin; pixel < end; pixel += fit) {
        char *out = k->out + (pixel * c + at) * size;
        struct pixels p = {.first = pixel,
                           .count = wn_min(fit, end - pixel),
                           .at = at,
                           .n = n,
                           .to = in_blocks ? block : out,
                           .step = in_blocks ? n : c};
        const struct wn__elementwise_run steps = {.c = &k->steps,
                                                  .step = k->step,
                                                  .in = k->in + WN_NORM_INPUTS,
                                                  .value = block,
                                                  .out = k->streams ? block : out};
        k->loops->rows(k, &p, v);
        if (k->steps.n > 0) wn__elementwise_run_steps(&steps, p.count * n, pixel * c + at);
        if (k->streams) wn__stream(out, block, p.count * n * size);
    }
}

/* Computes pixels [begin, end). */
static void norm_pixels(int64_t begin, int64_t end, void *ctx)
{
    const struct norm *k = ctx;
    union channels v;
    for (int64_t at = 0; at < k->cut.channels; at += CHANNELS) {
        int64_t n = wn_min(k->cut.channels - at, CHANNELS);
        for (int64_t pixel = begin, stop; pixel < end; pixel = stop) {
            int64_t slab = pixel / k->cut.rows;
            stop = wn_min(end, (slab + 1) * k->cut.rows);
            k->loops->read(k, slab, at, n, &v);
            pass(k, pixel, stop, at, n, &v);
        }
    }
    if (k->streams) wn__stream_end();
}

/* ---- ops --------------------------------------------------------------------------------------------------- */

static const struct loops *const loops_of[WN_OP_COUNT][WN_DTYPE_COUNT] = {[WN_OP_BATCH_NORM] = {WN_FLOATS(&norm)},
                                                                          [WN_OP_BATCH_NORM_MAP] = {WN_FLOATS(&norm)},
                                                                          [WN_OP_BATCH_NORM_DX] = {WN_FLOATS(&dx)},
                                                                          [WN_OP_RELU_NORM_DX] = {WN_FLOATS(&relu)}};

static int32_t norm(const struct wn_desc *d, const struct wn_buffers *b, WN_NO_STREAM)
{
    struct norm k = {.in = b->in, .out = b->out, .loops = loops_of[d->op][d->out.dtype], .steps = {.n = 0}};
    k.inputs = d->op == WN_OP_BATCH_NORM || d->op == WN_OP_BATCH_NORM_MAP ? 1 : 2;
    k.cut = wn__channel_cut_of(d);
    k.streams = wn__streams(wn__bytes(&d->out), b->out, b->in[0], b->in[1]);
    if (d->op == WN_OP_BATCH_NORM_MAP) k.steps = wn__fused_get(&d->attrs, 0);
    wn__elementwise_steps(&k.steps, d, b, k.step);
    wn__parallel_for(k.cut.slabs * k.cut.rows, WN_CPU_GRAIN / k.cut.channels + 1, norm_pixels, &k);
    return WN_OK;
}

wn_kernel_fn wn__cpu_batch_norm_kernel(const struct wn_desc *d)
{
    struct wn__elementwise step[WN_FUSED_STEPS];
    const struct wn__fused c = wn__fused_get(&d->attrs, 0);
    if (d->op == WN_OP_BATCH_NORM_MAP && !wn__elementwise_steps(&c, d, NULL, step)) return NULL;
    return loops_of[d->op][d->out.dtype] != NULL ? norm : NULL;
}
