/* MAX_POOL2D_INDEX, MAX_POOL2D, MAX_POOL2D_DX, AVG_POOL2D, AVG_POOL2D_DX over images in memory order (N, H, W, C)
 * (runtime/ops/pool.c has the formulas).
 *
 * Every pixel of a result is computed by itself, a vector of channels at a time: a pooling goes over the places of its
 * window, a derivative over the windows that its pixel is in. Both go row by row in ascending order, and that is the
 * order of each sum. What pixels of a row read is listed once for a run of them (taps.h): neighbours of a pooling, of a
 * derivative pixels a stride apart. Sums of MAX_POOL2D_DX are in f32 for f32 and bf16, sums of means are in double;
 * bf16 is rounded once. Threads share rows of the result. */
#include <math.h>
#include <stddef.h>
#include "../../../runtime/base/window.h"
#include "../common/cpu.h"
#include "image.h"
#include "../common/lanes.h"
#include "taps.h"

#define MOST_EACH 16384 /* bytes read for a pixel, up to which those of a later pixel are prefetched */

/* The part of an input that one pixel of a result reads: size[0] rows of size[1] pixels of x, or of windows of dy. */
struct area {
    const struct pool *of;
    int64_t begin[2], size[2]; /* begin: row and column of the first of these pixels */
    int32_t place;             /* in the window of the first pixel; of a derivative, of the pixel in the first window */
    int32_t place_of_row;      /* what its rows add to the place */
    int64_t places[2];         /* rows and columns that a mean divides by */
};

/* One application. */
struct pool {
    struct wn__window w;
    const char *x;
    const uint8_t *index;
    int64_t size;                   /* bytes of an element of x */
    int64_t read[2], made[2];       /* rows and columns of what is read, and of the result */
    int64_t ahead, each;            /* bytes that are prefetched ahead, and of what is read for a pixel of the result */
    int32_t step[2];                /* places from one row, and from one column, of an area to the next */
    int32_t is_derivative, is_even; /* is_even: all taps of a list have one weight */
    double share;                   /* of AVG_POOL2D_DX: 1 / places where all windows have as many, else 0 */
    int64_t pixel;                  /* bytes of a pixel of the result */
    const struct wn__taps_loops *sums; /* of means and their derivatives, else NULL */
    /* Computes a run of a maximum or its derivative. x, index: of its first tap. */
    void (*run)(const struct wn__taps *t, const void *x, const uint8_t *index, void *to);
};

#define TYPE f32
#include "pool.inc"
#define TYPE f64
#include "pool.inc"
#define TYPE bf16
#include "pool.inc"

/* ---- what a pixel reads -------------------------------------------------------------------------------- */

/* Fills in along dim k the window of pixel `at` of a pooling. Returns what the dim adds to the place of its first
 * pixel. */
static int32_t window_of(const struct pool *p, int32_t k, int64_t at, struct area *a)
{
    int64_t end;
    a->begin[k] = wn__window_span(&p->w, k, at, &end, &a->places[k]);
    a->size[k] = end - a->begin[k];
    return p->step[k] * (int32_t)(a->begin[k] - at * p->w.stride[k] + p->w.pad[k]);
}

/* Fills in along dim k the windows that pixel `at` of a derivative is in. Returns what the dim adds to the place of the
 * pixel in the first of them. */
static int32_t windows_over(const struct pool *p, int32_t k, int64_t at, struct area *a)
{
    const struct wn__window *w = &p->w;
    int64_t size = w->in[k], n = w->out[k];
    int32_t from = (int32_t)(at + w->pad[k]), stride = (int32_t)w->stride[k], kernel = (int32_t)w->kernel[k];
    int64_t end = wn_min(from / stride + 1, n);
    a->begin[k] = from < kernel ? 0 : (from - kernel) / stride + 1;
    if (w->flags & WN_POOL_IS_ADAPTIVE) {
        a->begin[k] = at * n / size;
        end = ((at + 1) * n + size - 1) / size;
    }
    a->size[k] = end - a->begin[k];
    a->places[k] = 1;
    return (int32_t)((from - a->begin[k] * stride) * (k == 0 ? w->kernel[1] : 1));
}

/* Returns 1 / places of window (r, c) of an area. */
static double share_of(const void *ctx, int64_t r, int64_t c)
{
    const struct area *a = ctx;
    int64_t end, rows, columns;
    if (a->of->share != 0) return a->of->share;
    wn__window_span(&a->of->w, 0, a->begin[0] + r, &end, &rows);
    wn__window_span(&a->of->w, 1, a->begin[1] + c, &end, &columns);
    return 1.0 / (double)(rows * columns);
}

/* Lists the taps of an area. */
static void list_taps(const struct area *a, struct wn__taps *t)
{
    const struct pool *p = a->of;
    t->grid.rows = a->size[0];
    t->grid.columns = a->size[1];
    t->grid.channels = p->w.c;
    t->grid.pitch = p->read[1] * p->w.c;
    t->grid.divisor = (double)(a->places[0] * a->places[1]);
    for (int64_t r = 0, i = 0; r < a->size[0]; r++)
        for (int64_t c = 0; c < a->size[1]; c++, i++) {
            if (p->sums == NULL) t->place[i] = a->place + (int32_t)r * p->step[0] + (int32_t)c * p->step[1];
            else t->weight[i] = p->is_derivative ? share_of(a, r, c) : 1;
        }
}

/* Fills in along dim k what pixel `at` reads. Returns what the dim adds to the place. */
static int32_t reach(const struct pool *p, int32_t k, int64_t at, struct area *a)
{
    return p->is_derivative ? windows_over(p, k, at, a) : window_of(p, k, at, a);
}

/* Returns whether all windows of an area have as many columns as a window can have. */
static int32_t is_whole(const struct area *a)
{
    const struct wn__window *w = &a->of->w;
    const int64_t first = a->begin[1] * w->stride[1] - w->pad[1];
    if (w->flags & WN_POOL_IS_ADAPTIVE) return 0;
    return first >= 0 && first + (a->size[1] - 1) * w->stride[1] + w->kernel[1] <= w->in[1];
}

/* Returns whether two areas of a row of the result have the same taps, from their first pixels on. */
static int32_t are_alike(const struct area *a, const struct area *b)
{
    const struct pool *p = a->of;
    if (a->size[1] != b->size[1] || a->places[1] != b->places[1]) return 0;
    if (p->run != NULL) return a->place == b->place;
    return p->is_even || (is_whole(a) && is_whole(b));
}

/* Returns whether column `at`, of the row of area a, has the taps of a, from *begin on. */
static int32_t has_taps_of(const struct area *a, int64_t at, int64_t *begin)
{
    struct area b = *a;
    b.place = a->place_of_row + reach(a->of, 1, at, &b);
    *begin = b.begin[1];
    return are_alike(a, &b);
}

/* Sets the run that begins at column `at`, whose area is `a`, and has every step-th column before `end` at most. Taps
 * begin evenly apart between two columns where they do so at both: `begin` as a function of the column is convex, and
 * the end of the taps is concave. That does not hold for windows of various sizes, whose runs have two pixels. */
static void set_run(const struct area *a, int64_t at, int64_t step, int64_t end, struct wn__grid *g)
{
    const struct pool *p = a->of;
    const int64_t last = p->w.flags & WN_POOL_IS_ADAPTIVE && p->w.out[1] > 1 ? 1 : (end - 1 - at) / step;
    int64_t n = at + step < end ? last : 0, begin, apart = 0;
    if (n > 0 && has_taps_of(a, at + step, &begin)) apart = begin - a->begin[1];
    else n = 0;
    while (n > 1 && !(has_taps_of(a, at + n * step, &begin) && begin - a->begin[1] == n * apart)) n--;
    g->pixels = n + 1;
    g->x_step = apart * p->w.c;
    g->to_step = step * p->w.c;
    g->index_step = p->is_derivative ? g->x_step : g->to_step;
    g->next_step = step * p->each;
}

/* Computes the run that begins at a pixel, at most those of every step-th column before `end`; pixel: its number in the
 * result. Returns how many pixels it has. */
static int64_t run(const struct area *a, int64_t pixel, int64_t step, int64_t end, char *to)
{
    const struct pool *p = a->of;
    const int64_t channels = p->w.c, at = pixel % p->made[1], image = pixel / p->made[1] / p->made[0] * p->read[0];
    const int64_t first = ((image + a->begin[0]) * p->read[1] + a->begin[1]) * channels;
    const char *x = p->x + first * p->size;
    struct wn__taps t;
    if (p->sums != NULL && a->size[0] * a->size[1] > WN_FEW_TAPS) {
        const struct wn__area all = {.rows = a->size[0],
                                     .columns = a->size[1],
                                     .pitch = p->read[1] * channels,
                                     .weight = p->is_derivative ? share_of : NULL,
                                     .ctx = a,
                                     .divisor = (double)(a->places[0] * a->places[1])};
        p->sums->many(&all, x, channels, to);
        return 1;
    }
    list_taps(a, &t);
    set_run(a, at, step, end, &t.grid);
    t.grid.next = p->x + pixel * p->each + p->ahead;
    t.grid.each = p->each / channels;
    if (p->sums != NULL) p->sums->few(&t, x, to);
    else p->run(&t, x, p->index + (p->is_derivative ? first : pixel * channels), to);
    return t.grid.pixels;
}

/* Computes n pixels of a row from column `at` on. Runs of a derivative have every stride-th column. */
static void stretch(const void *ctx, int64_t row, int64_t at, int64_t n, char *to)
{
    const struct pool *p = ctx;
    const int64_t step = p->is_derivative ? wn_min(p->w.stride[1], n) : 1, end = at + n;
    struct area a = {.of = p};
    a.place_of_row = reach(p, 0, row % p->made[0], &a);
    for (int64_t from = at; from < at + step; from++)
        for (int64_t c = from, pixels; c < end; c += pixels * step) {
            a.place = a.place_of_row + reach(p, 1, c, &a);
            pixels = run(&a, row * p->made[1] + c, step, end, to + (c - at) * p->pixel);
        }
}

/* ---- ops --------------------------------------------------------------------------------------------------- */

typedef void (*run_of)(const struct wn__taps *t, const void *x, const uint8_t *index, void *to);

/* The runs of a maximum and its derivative, without and with places among the inputs; NULL of a mean. */
static const run_of runs[WN_OP_COUNT][2][WN_DTYPE_COUNT] = {
    [WN_OP_MAX_POOL2D_INDEX] = {{WN_FLOATS(places_run)}},
    [WN_OP_MAX_POOL2D] = {{WN_FLOATS(largest_run)}, {WN_FLOATS(picked_run)}},
    [WN_OP_MAX_POOL2D_DX] = {[1] = {WN_FLOATS(returned_run)}}};

/* Returns 1 / places where all windows have as many, else 0. */
static double even_share(const struct wn__window *w)
{
    double places = 1;
    for (int32_t k = 0; k < 2; k++) {
        int32_t is_adaptive = (w->flags & WN_POOL_IS_ADAPTIVE) != 0;
        if (is_adaptive ? w->in[k] % w->out[k] != 0 : w->pad[k] != 0 || (w->flags & WN_POOL_CEIL)) return 0;
        places *= (double)(is_adaptive ? w->in[k] / w->out[k] : w->kernel[k]);
    }
    return 1.0 / places;
}

static int32_t pool(const struct wn_desc *d, const struct wn_buffers *b, WN_NO_STREAM)
{
    int32_t is_derivative = d->op == WN_OP_MAX_POOL2D_DX || d->op == WN_OP_AVG_POOL2D_DX;
    struct pool p = {.x = b->in[0], .size = wn__dtype_size(d->in[0].dtype), .is_derivative = is_derivative};
    if (wn__numel(&d->out) == 0) return WN_OK;
    wn__window_pool(&d->attrs, is_derivative ? &d->out : &d->in[0], is_derivative ? &d->in[0] : &d->out, &p.w);
    for (int32_t k = 0; k < 2; k++) {
        p.read[k] = d->in[0].dim[2 + k];
        p.made[k] = d->out.dim[2 + k];
        p.step[k] = (int32_t)((k == 0 ? p.w.kernel[1] : 1) * (is_derivative ? -p.w.stride[k] : 1));
    }
    p.each = wn__bytes(&d->in[0]) / (p.w.n * p.made[0] * p.made[1]);
    if (p.each > MOST_EACH) p.each = 0;
    p.ahead = wn_min(p.w.kernel[0], p.read[0]) * p.read[1] * p.w.c * p.size + wn__tuning.stream_ahead;
    p.share = even_share(&p.w);
    p.index = d->n_in > 1 ? b->in[1] : NULL;
    p.run = runs[d->op][p.index != NULL][d->in[0].dtype];
    p.is_even = p.run != NULL || !is_derivative || p.share != 0;
    if (p.run == NULL) p.sums = wn__taps_loops[d->in[0].dtype];
    p.pixel = p.w.c * wn__dtype_size(d->out.dtype);
    return wn__image_run(d, b->out, p.pixel, stretch, &p);
}

wn_kernel_fn wn__cpu_pool_kernel(const struct wn_desc *d)
{
    return wn__taps_loops[d->in[0].dtype] ? pool : NULL;
}
