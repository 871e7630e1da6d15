/* UPSAMPLE2D, UPSAMPLE2D_DX over images in memory order (N, H, W, C) (runtime/base/resample.h has the formulas).
 *
 * The workspace holds which rows and columns make each row and each column of the larger image, in the sense of the
 * forward op: | rows of y | columns of y |. UPSAMPLE2D interpolates along columns, then along rows, in f32 for f32 and
 * bf16:
 *
 *     y = (1 - v) ((1 - u) x[top][left] + u x[top][right]) + v ((1 - u) x[bottom][left] + u x[bottom][right])
 *
 * UPSAMPLE2D_DX adds, for each pixel of dx, the dy of all that it is a part of, times their weights, in double, row by
 * row in ascending order. Threads share rows of the result. */
#include <stddef.h>
#include <string.h>
#include "../../../runtime/base/resample.h"
#include "../../../runtime/base/window.h"
#include "../common/cpu.h"
#include "image.h"
#include "taps.h"

#define MOST_EACH 16384 /* bytes of dy a pixel of dx, up to which those of a later pixel are prefetched */

struct rows;

/* One application. */
struct resize {
    const char *in;
    int64_t size, channels;             /* size: bytes of an element */
    int64_t read[2], made[2];           /* rows and columns of the input, and of the result */
    const struct wn__resample *part[2]; /* of each row, and of each column, of y */
    int64_t ahead, each; /* of dx: bytes that are prefetched ahead, and of dy a channel of a pixel, 0: nothing */
    int64_t pixel;       /* bytes of a pixel */
    /* Computes one pixel of y by interpolation, all channels. */
    void (*mix)(const struct resize *k, const struct rows *r, const struct wn__resample *part, void *to);
    const struct wn__taps_loops *sums; /* of dx */
};

/* Returns how much of element `at` of x is in an element of y. */
static double weight_of(const struct wn__resample *part, int64_t at)
{
    return (part->low == at ? 1.0 - part->weight : 0.0) + (part->high == at ? part->weight : 0.0);
}

/* The part of dy that a pixel of dx, at row at[0] and column at[1], gathers: rows and columns [begin, end). weight: how
 * much of the pixel is in each of them, of the first WN_FEW_TAPS. */
struct area {
    const struct resize *of;
    int64_t at[2], begin[2], end[2];
    double weight[2][WN_FEW_TAPS];
};

/* Moves an area on along dim k to the pixel at `at`, which only grows. */
static void move(struct area *a, int32_t k, int64_t at)
{
    const struct wn__resample *part = a->of->part[k];
    int64_t n = a->of->read[k];
    a->at[k] = at;
    while (a->begin[k] < n && part[a->begin[k]].high < at) a->begin[k]++;
    a->end[k] = wn_max(a->begin[k], a->end[k]);
    while (a->end[k] < n && part[a->end[k]].low <= at) a->end[k]++;
}

/* Returns how much of the pixel is in pixel (r, c) of its area. */
static double share_of(const void *ctx, int64_t r, int64_t c)
{
    const struct area *a = ctx;
    return weight_of(&a->of->part[0][a->begin[0] + r], a->at[0]) *
           weight_of(&a->of->part[1][a->begin[1] + c], a->at[1]);
}

/* Fills in the weights of rows (k = 0) or columns (k = 1). Returns whether they are what they were. */
static int32_t weigh(struct area *a, int32_t k)
{
    const struct wn__resample *part = a->of->part[k] + a->begin[k];
    int32_t is_same = 1;
    for (int64_t i = 0; i < wn_min(a->end[k] - a->begin[k], WN_FEW_TAPS); i++) {
        double weight = weight_of(&part[i], a->at[k]);
        is_same &= weight == a->weight[k][i];
        a->weight[k][i] = weight;
    }
    return is_same;
}

/* Moves an area on to the next column. Returns whether its taps are what they were, from its first pixel on. */
static int32_t move_on(struct area *a)
{
    const int64_t columns = a->end[1] - a->begin[1];
    move(a, 1, a->at[1] + 1);
    return weigh(a, 1) & (a->end[1] - a->begin[1] == columns);
}

/* Lists the taps of an area. */
static void list_taps(const struct area *a, struct wn__taps *t)
{
    const int64_t rows = a->end[0] - a->begin[0], columns = a->end[1] - a->begin[1];
    t->grid.rows = rows;
    t->grid.columns = columns;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++) t->weight[r * columns + c] = a->weight[0][r] * a->weight[1][c];
}

/* Computes the run of dx that begins at the pixel of an area, before column `end`, and moves the area on behind it.
 * row: of dy, where the area begins; t: all but the taps and the run. */
static int64_t gather(struct area *a, int64_t end, const char *row, struct wn__taps *t, char *to)
{
    const struct resize *k = a->of;
    const int64_t rows = a->end[0] - a->begin[0], columns = a->end[1] - a->begin[1], from = a->at[1];
    const char *x = row + a->begin[1] * k->pixel;
    int64_t before = a->begin[1], apart = 0;
    if (rows * columns > WN_FEW_TAPS) {
        struct wn__area all = {
            .rows = rows, .columns = columns, .pitch = t->grid.pitch, .weight = share_of, .ctx = a, .divisor = 1};
        k->sums->many(&all, x, k->channels, to);
        move_on(a);
        return 1;
    }
    list_taps(a, t);
    for (t->grid.pixels = 1; from + t->grid.pixels < end && move_on(a); t->grid.pixels++, before = a->begin[1]) {
        if (t->grid.pixels == 1) apart = a->begin[1] - before;
        if (a->begin[1] - before != apart) break;
    }
    t->grid.x_step = apart * k->channels;
    k->sums->few(t, x, to);
    return t->grid.pixels;
}

/* ---- pixels ------------------------------------------------------------------------------------------------ */

/* The rows of x that a row of y is made of, and their weights. */
struct rows {
    const char *top, *bottom;
    double weight;
};

#define TYPE f32
#include "resize.inc"
#define TYPE f64
#include "resize.inc"
#define TYPE bf16
#include "resize.inc"

/* ---- stretches of rows --------------------------------------------------------------------------------------- */

/* Returns the address of a row of the input, in the image of row `row` of the result. */
static const char *input_row(const struct resize *k, int64_t row, int64_t at)
{
    return k->in + (row / k->made[0] * k->read[0] + at) * k->read[1] * k->channels * k->size;
}

static void nearest(const void *ctx, int64_t row, int64_t at, int64_t n, char *to)
{
    const struct resize *k = ctx;
    const char *from = input_row(k, row, k->part[0][row % k->made[0]].low);
    for (int64_t end = at + n; at < end; at++, to += k->pixel)
        memcpy(to, from + k->part[1][at].low * k->pixel, (size_t)k->pixel);
}

static void bilinear(const void *ctx, int64_t row, int64_t at, int64_t n, char *to)
{
    const struct resize *k = ctx;
    const struct wn__resample *part = &k->part[0][row % k->made[0]];
    struct rows r = {input_row(k, row, part->low), input_row(k, row, part->high), part->weight};
    for (int64_t end = at + n; at < end; at++, to += k->pixel) k->mix(k, &r, &k->part[1][at], to);
}

static void derivative(const void *ctx, int64_t row, int64_t at, int64_t n, char *to)
{
    const struct resize *k = ctx;
    struct area a = {.of = k};
    struct wn__taps t;
    t.grid.divisor = 1;
    t.grid.channels = t.grid.to_step = k->channels;
    t.grid.pitch = k->read[1] * k->channels;
    t.grid.each = k->each;
    t.grid.next_step = k->each * k->channels;
    move(&a, 0, row % k->made[0]);
    move(&a, 1, at);
    weigh(&a, 0);
    weigh(&a, 1);
    const char *dy = input_row(k, row, a.begin[0]);
    for (int64_t end = at + n, pixels; at < end; at += pixels, to += pixels * k->pixel) {
        t.grid.next = k->in + (row * k->made[1] + at) * t.grid.next_step + k->ahead;
        pixels = gather(&a, end, dy, &t, to);
    }
}

/* ---- ops --------------------------------------------------------------------------------------------------------- */

static void (*const mix_of[WN_DTYPE_COUNT])(const struct resize *, const struct rows *, const struct wn__resample *,
                                            void *) = {WN_FLOATS(mix)};
/* Returns what computes a stretch of a row. */
static wn__image_stretch stretch_of(const struct wn_desc *d)
{
    if (d->op == WN_OP_UPSAMPLE2D_DX) return derivative;
    return d->attrs.i[WN_RESAMPLE_MODE] == WN_RESAMPLE_NEAREST ? nearest : bilinear;
}

/* Writes how each row (k = 0) or column (k = 1) of y is made, (elements of y) to `part`. */
static void fill_parts(const struct wn_desc *d, int32_t k, struct wn__resample *part)
{
    int32_t is_derivative = d->op == WN_OP_UPSAMPLE2D_DX;
    int64_t of_y = is_derivative ? d->in[0].dim[2 + k] : d->out.dim[2 + k];
    int64_t of_x = is_derivative ? d->out.dim[2 + k] : d->in[0].dim[2 + k];
    for (int64_t at = 0; at < of_y; at++)
        part[at] = wn__resample_at(at, of_x, of_y, d->attrs.f[k], (int32_t)d->attrs.i[WN_RESAMPLE_MODE],
                                   d->attrs.i[WN_RESAMPLE_ALIGN] != 0);
}

static int32_t resize(const struct wn_desc *d, const struct wn_buffers *b, WN_NO_STREAM)
{
    int32_t is_derivative = d->op == WN_OP_UPSAMPLE2D_DX, dtype = d->out.dtype;
    struct wn__resample *part = b->workspace;
    struct resize k = {.in = b->in[0], .size = wn__dtype_size(dtype), .channels = d->out.dim[1]};
    if (wn__numel(&d->out) == 0) return WN_OK;
    for (int32_t i = 0; i < 2; i++) {
        k.read[i] = d->in[0].dim[2 + i];
        k.made[i] = d->out.dim[2 + i];
        k.part[i] = part;
        fill_parts(d, i, part);
        part += is_derivative ? k.read[i] : k.made[i];
    }
    k.mix = mix_of[dtype];
    k.sums = wn__taps_loops[dtype];
    k.pixel = k.channels * k.size;
    k.each = is_derivative ? wn__bytes(&d->in[0]) / wn__numel(&d->out) : 0;
    if (k.each * k.channels > MOST_EACH) k.each = 0;
    k.ahead = (k.read[0] / k.made[0] + 1) * k.read[1] * k.channels * k.size + wn__tuning.stream_ahead;
    return wn__image_run(d, b->out, k.pixel, stretch_of(d), &k);
}

wn_kernel_fn wn__cpu_resize_kernel(const struct wn_desc *d)
{
    return mix_of[d->out.dtype] ? resize : NULL;
}
