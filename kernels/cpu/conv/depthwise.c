/* Depthwise convolutions: as many groups as channels, one output each. All three are loops over channels, which are
 * contiguous, a vector at a time:
 *
 *     y, dx    sum over taps of image(pixel at tap, channel) w(channel, tap), for PIXELS pixels of a row at a time
 *     dw       sum over pixels of image(pixel at tap, channel) dy(pixel, channel), for some rows of taps at a time; the
 *              sums of all taps and channels of a block are on the stack from one stretch of pixels to the next
 *
 * Micro-tiles (depthwise_tile.h) read the image through lists of addresses, in which pixels beside the image are those
 * of zeros.
 *
 * The sums are those of conv.h, with the same zeros: y and dx over (kh, kw), dw over (n, p, q). bf16 is widened to
 * f32 on all processors, and rounded once. f64 rounds each product (words.c). */
#include <string.h>
#include "conv.h"
#include "depthwise_tile.h"

#define TAPS_MOST 64 /* of a kernel */
#define KC 32        /* pixels of a stretch of dw */
#define ROWS 256     /* pixels of a block of y and dx */

static const double zeros[CHANNELS]; /* what pixels outside of the image are, in any dtype */

/* ---- element types ------------------------------------------------------------------------------- */

#define TYPE f32
#include "depthwise_tile.inc"
#define TYPE f64
#include "depthwise_tile.inc"
#define TYPE bf16
#include "depthwise_tile.inc"

/* A block: channels [channel, channel + n), of which dw stores those from `stored` on. */
struct block {
    const struct wn__conv_job *w;
    int64_t channel, n, stored, taps;
    int32_t shape;
};

static const struct loops *loops_of(const struct wn__conv_job *w)
{
    return w->words.gemm.size == 8 ? &loops_f64 : w->words.gemm.size == 4 ? &loops_f32 : &loops_bf16;
}

/* ---- y and dx ---------------------------------------------------------------------------------- */

/* Copies the weight of a block: to (taps, CHANNELS) sums. */
static void take_weight(const struct block *f, const struct loops *loops, char *to)
{
    const struct wn__conv_job *w = f->w;
    const int32_t is_plain = w->weight->layout == WN_PLAIN;
    for (int64_t tap = 0; tap < f->taps; tap++)
        for (int64_t c = 0, n; c < f->n; c += n) {
            const int64_t at = wn__conv_weight_at(w->weight, f->channel + c, 0, wn__conv_kernel_tap(w, tap));
            n = is_plain ? f->n : wn__gemm_in_panel(f->channel + c, f->n - c);
            loops->widen(w->w + at * w->words.gemm.size, is_plain ? w->weight->dim[2] * w->weight->dim[3] : 1, n,
                         to + (tap * CHANNELS + c) * loops->sum);
        }
}

/* Returns the shape of the rows of taps of y or dx. */
static int32_t shape_of(const struct wn__conv_axis *a, int64_t channels, int64_t lanes)
{
    for (int32_t i = ONE; i < SHAPES && channels >= lanes; i++)
        if (a->taps == shapes[i].taps && a->step == shapes[i].step && (a->taps == 1 || a->each == shapes[i].each))
            return i;
    return ANY;
}

/* Lists the addresses of n pixels of a row of the image from column x on, `step` columns apart; row: NULL beside the
 * image. */
static void list_pixels(const struct block *f, const char *row, int64_t x, int64_t step, int64_t n, const char **to)
{
    const int64_t bytes = f->w->channels * f->w->words.gemm.size, size = f->w->axis[1].size;
    for (int64_t i = 0; i < n; i++, x += step)
        to[i] = row != NULL && x >= 0 && x < size ? row + x * bytes : (const char *)zeros;
}

/* Lists what n neighbours read, the first of which has its first tap at row y and column x of an image: (rows, SPAN)
 * addresses in ascending order, of any shape (rows, columns, ld). */
static void list_stretch(const struct block *f, const char *image, const int64_t at[2], int64_t n, const char **to)
{
    const struct wn__conv_axis *rows = &f->w->axis[0], *columns = &f->w->axis[1];
    const int64_t bytes = columns->size * f->w->channels * f->w->words.gemm.size;
    const int64_t span = SPAN(n, columns->taps, columns->step);
    const int64_t left = columns->each > 0 ? at[1] : at[1] + 1 - columns->taps;
    for (int64_t r = 0, y = at[0]; r < rows->taps; r++, y += rows->each) {
        const char *row = y >= 0 && y < rows->size ? image + y * bytes : NULL;
        if (f->shape != ANY) {
            list_pixels(f, row, left, 1, span, to);
            to += span;
            continue;
        }
        for (int64_t s = 0; s < columns->taps; s++, to += n)
            list_pixels(f, row, at[1] + s * columns->each, columns->step, n, to);
    }
}

/* Prefetches, for the line of channels that begins at `at`, what n neighbours read that those of the row above them did
 * not. next: address of the first of these pixels. */
INLINE void prefetch_rows(const struct wn__conv_job *w, const char *next, int64_t n, int64_t at)
{
    const int64_t size = w->words.gemm.size, pixel = w->channels * size, row = w->axis[1].size * pixel;
    for (int64_t y = 0; y < w->axis[0].step; y++)
        for (int64_t x = 0; x < n * w->axis[1].step; x++) wn__fetch_far(next, y * row + x * pixel + at * size);
}

/* Returns the row of the image that the pixels below those whose first tap is at row y read first. */
static int64_t row_after(const struct wn__conv_axis *a, int64_t y)
{
    return y + 1 + wn_max(a->taps - 1, 0) * wn_max(a->each, 0);
}

/* Computes a micro-tile for all channels of a block, and prefetches the output of the next one and, of the rows of the
 * image that the next row of the result reads first, the pixels from `next` on. */
static void run_tile(const struct block *f, const struct loops *loops, struct microtile *t, const char *next)
{
    const int64_t size = f->w->words.gemm.size;
    for (int64_t at = 0; at < f->n; at += loops->lanes) {
        t->at = wn_max(wn_min(at, f->n - loops->lanes), 0);
        t->n = wn_min(f->n, loops->lanes);
        if (at * size % 64 == 0) {
            prefetch_rows(f->w, next, t->pixels, at);
            for (int64_t i = 0; i < t->pixels; i++)
                __builtin_prefetch(t->out + (i + PIXELS) * t->out_step + at * size, 1);
        }
        loops->tile[f->shape](t);
    }
}

/* Computes row `row` of a block, of the rows of all images. */
static void run_row(const struct block *f, const struct loops *loops, int64_t row, const void *weight)
{
    const struct wn__conv_job *w = f->w;
    const struct wn__conv_axis *rows = &w->axis[0], *columns = &w->axis[1];
    const int64_t size = w->words.gemm.size, pixel = w->channels * size, u = row % rows->pixels;
    const int64_t out =
        (row / rows->pixels * rows->out_size + rows->out_first + u * rows->out_step) * columns->out_size;
    const int64_t y = u * rows->step + rows->first, after = row_after(rows, y);
    const char *image = w->image + row / rows->pixels * rows->size * columns->size * pixel + f->channel * size;
    const char *from[TAPS_MOST * PIXELS];
    struct microtile t = {.from = from, .rows = rows->taps, .columns = columns->taps, .weight = weight};
    t.bias = w->bias ? (const char *)w->bias + f->channel * size : NULL;
    t.out_step = columns->out_step * w->out_channels * size;
    t.out = w->out + ((out + columns->out_first) * w->out_channels + f->channel) * size;
    for (int64_t v = 0; v < columns->pixels; v += PIXELS, t.out += PIXELS * t.out_step) {
        const int64_t x = v * columns->step + columns->first;
        t.pixels = wn_min(columns->pixels - v, PIXELS);
        list_stretch(f, image, (int64_t[2]){y, x}, PIXELS, from);
        run_tile(f, loops, &t, image + (after * columns->size + x) * pixel);
        wn__conv_finish(w->epilogue, out + v, t.pixels, f->channel, f->n); /* pixels of y are in order */
    }
}

static void images_tasks(int64_t begin, int64_t end, void *ctx)
{
    const struct wn__conv_job *w = ctx;
    const struct loops *loops = loops_of(w);
    char weight[TAPS_MOST * CHANNELS * sizeof(double)] __attribute__((aligned(64)));
    for (int64_t task = begin; task < end; task++) {
        struct block f = {.w = w, .taps = w->steps};
        f.channel = task / w->row_parts * w->column_block;
        f.n = wn_min(w->groups - f.channel, w->column_block);
        f.shape = shape_of(&w->axis[1], f.n, loops->lanes);
        if (loops->tile[f.shape] == NULL) f.shape = ANY;
        take_weight(&f, loops, weight);
        const int64_t first = task % w->row_parts * w->row_block;
        const int64_t last = wn_min(first + w->row_block, w->images * w->axis[0].pixels);
        for (int64_t row = first; row < last; row++) run_row(&f, loops, row, weight);
    }
}

static void images(struct wn__conv_job *w)
{
    const int64_t rows = w->images * w->axis[0].pixels, columns = w->axis[1].pixels;
    const int64_t parts = (w->groups + CHANNELS - 1) / CHANNELS;
    if (rows * columns == 0) return;
    w->column_block = wn_round_up((w->groups + parts - 1) / parts, loops_of(w)->lanes);
    w->column_parts = (w->groups + w->column_block - 1) / w->column_block;
    w->row_block = wn_max(ROWS / columns, 1);
    w->row_parts = (rows + w->row_block - 1) / w->row_block;
    const int64_t work = w->row_block * columns * w->column_block * w->steps;
    wn__parallel_tasks(w->row_parts * w->column_parts, WN_CONV_SMALL / (work + 1) + 1, images_tasks, w);
}

/* ---- dw ---------------------------------------------------------------------------------------- */

/* Returns where the sum of channel c of a block is. The last vector of channels begins within the one before it where
 * they are no multiple of its lanes, and its sums are behind those of that one. */
static int64_t sum_at(const struct block *f, int64_t lanes, int64_t c)
{
    const int64_t whole = f->n / lanes * lanes;
    return c < whole || whole == 0 ? c : c + whole + lanes - f->n;
}

/* Adds row `row` of dy, of the rows of all images, to the sums of a block: (taps, CHANNELS). */
static void add_row(const struct block *f, const struct loops *loops, int64_t row, char *sum)
{
    const struct wn__conv_job *w = f->w;
    const struct wn__conv_axis *rows = &w->axis[0], *columns = &w->axis[1];
    const int64_t size = w->words.gemm.size, pixel = w->channels * size;
    const int64_t y = row % rows->pixels * rows->step + rows->first, after = row_after(rows, y);
    const char *image = w->image + row / rows->pixels * rows->size * columns->size * pixel + f->channel * size;
    const char *from[TAPS_MOST * KC];
    struct sums t = {.from = from, .rows = f->shape == ANY ? f->taps : rows->taps, .step = pixel};
    for (int64_t v = 0; v < columns->pixels; v += KC) {
        const int64_t x = v * columns->step + columns->first;
        t.pixels = wn_min(columns->pixels - v, KC);
        t.ld = f->shape == ANY ? t.pixels : SPAN(t.pixels, columns->taps, columns->step);
        t.dy = w->w + (row * columns->pixels + v) * pixel + f->channel * size;
        list_stretch(f, image, (int64_t[2]){y, x}, t.pixels, from);
        for (int64_t at = 0; at < f->n; at += loops->lanes) {
            t.at = wn_max(wn_min(at, f->n - loops->lanes), 0);
            t.n = wn_min(f->n, loops->lanes);
            t.sum = sum + (at - t.at) * loops->sum;
            if (at * size % 64 == 0) {
                prefetch_rows(w, image + (after * columns->size + x) * pixel, t.pixels, at);
                for (int64_t i = 0; i < t.pixels; i++) wn__fetch_far(t.dy, (columns->pixels + i) * pixel + at * size);
            }
            if (t.n < loops->lanes) loops->part(&t);
            else loops->sums[f->shape](&t);
        }
    }
}

static void gradient_block(const struct block *f, const struct loops *loops)
{
    char sum[TAPS_MOST * CHANNELS * sizeof(double)] __attribute__((aligned(64)));
    const struct wn__conv_job *w = f->w;
    memset(sum, 0, sizeof sum);
    for (int64_t row = 0; row < w->images * w->axis[0].pixels; row++) add_row(f, loops, row, sum);
    for (int64_t c = f->stored; c < f->n; c++)
        for (int64_t tap = 0; tap < f->taps; tap++)
            w->words.gemm.store(
                (const float *)(const void *)(sum + (tap * CHANNELS + sum_at(f, loops->lanes, c)) * loops->sum), NULL,
                1, w->out + wn__conv_weight_at(w->weight, f->channel + c, 0, tap) * w->words.gemm.size);
}

static void gradient_tasks(int64_t begin, int64_t end, void *ctx)
{
    const struct wn__conv_job *w = ctx;
    const struct loops *loops = loops_of(w);
    for (int64_t task = begin; task < end; task++) {
        const int64_t first = task * w->column_block, n = wn_min(w->groups - first, w->column_block);
        struct block f = {.w = w, .channel = wn_max(wn_min(first, w->groups - loops->lanes), 0), .taps = w->steps};
        f.stored = first - f.channel;
        f.n = f.stored + n;
        f.shape = shape_of(&w->axis[1], f.n, loops->lanes);
        if (loops->sums[f.shape] == NULL) f.shape = ANY;
        gradient_block(&f, loops);
    }
}

static void gradient(struct wn__conv_job *w)
{
    const int64_t lanes = loops_of(w)->lanes, vectors = (w->groups + lanes - 1) / lanes, threads = wn_cpu_threads();
    const int64_t parts = wn_max((w->groups + CHANNELS - 1) / CHANNELS, wn_min(threads, vectors));
    w->column_block = (vectors + parts - 1) / parts * lanes;
    w->column_parts = (w->groups + w->column_block - 1) / w->column_block;
    const int64_t pixels = w->images * w->axis[0].pixels * w->axis[1].pixels;
    wn__parallel_tasks(w->column_parts, WN_CONV_SMALL / (pixels * w->column_block * w->steps + 1) + 1, gradient_tasks,
                       w);
}

int32_t wn__conv_depthwise(struct wn__conv_job *w, int32_t is_gradient)
{
    if (w->depth != 1 || w->columns != 1 || w->groups == 1 || w->steps > TAPS_MOST) return 0;
    if (is_gradient) gradient(w);
    else images(w);
    return 1;
}
