/* MAX_POOL2D_INDEX, MAX_POOL2D, MAX_POOL2D_DX, AVG_POOL2D, AVG_POOL2D_DX over images in memory order (N, H, W, C)
 * (runtime/ops/pool.c has the formulas).
 *
 * Every pixel of a result is computed by itself, a vector of channels at a time: a pooling goes over the places of its
 * window, a derivative over the windows that its pixel is in. Both go row by row in ascending order, and that is the
 * order of each sum. Sums of MAX_POOL2D_DX are in f32 for f32 and bf16, sums of means are in double; bf16 is rounded
 * once. Threads share rows of the result. */
#include <math.h>
#include <stddef.h>
#include "../../runtime/base/window.h"
#include "cpu.h"
#include "image.h"
#include "lanes.h"
#include "taps.h"

#define INLINE static inline __attribute__((always_inline))
#define MOST_EACH 16384 /* bytes read for a pixel, up to which those of a later pixel are prefetched */

/* The part of an input that one pixel of a result reads: size[0] rows of size[1] pixels of x, or of windows of dy. */
struct area {
    const struct pool *of;
    int64_t begin[2], size[2]; /* begin: row and column of the first of these pixels */
    int32_t place;             /* in the window of the first pixel; of a derivative, of the pixel in the first window */
};

/* One application. */
struct pool {
    struct wn__window w;
    const char *x;
    const uint8_t *index;
    int64_t size;             /* bytes of an element of x */
    int64_t read[2], made[2]; /* rows and columns of what is read, and of the result */
    int64_t ahead, each;      /* bytes that are prefetched ahead, and of what is read for a pixel of the result */
    int32_t step[2];          /* places from one row, and from one column, of an area to the next */
    int32_t is_derivative;
    double share; /* of AVG_POOL2D_DX: 1 / places where all windows have as many, else 0 */
    struct wn__image_out out;
    const struct wn__taps_loops *sums; /* of means and their derivatives, else NULL */
    /* Computes one pixel of a maximum or its derivative, all channels. index: of its first tap. */
    void (*pixel)(const struct pool *p, const struct wn__taps *t, const void *x, const uint8_t *index, void *out);
};

/* ---- lanes: n channels of one pixel --------------------------------------------------------------------- */
/* S, T: of an element; V: lanes of numbers (lanes.h); I: the integers beside them. */

/* Defines the largest number and its place. A number takes over where it is larger, or the first NaN. */
#define LARGEST(S, T, V, I)                                                                                            \
    INLINE void largest_of_##S(const struct wn__taps *t, const T *x, int64_t n, V *number, I *place)                   \
    {                                                                                                                  \
        V best = (V){0} - INFINITY, v;                                                                                 \
        I chosen = (I){0} + t->place[0];                                                                               \
        for (int32_t i = 0; i < t->n; i++) {                                                                           \
            wn__read_##S(&v, x + t->at[i], n);                                                                         \
            const I stays = (v <= best) | (best != best);                                                              \
            best = WN_PICK(V, I, stays, best, v);                                                                      \
            chosen = WN_PICK(I, I, stays, chosen, (I){0} + t->place[i]);                                               \
        }                                                                                                              \
        *number = best;                                                                                                \
        *place = chosen;                                                                                               \
    }

/* Define what a maximum writes: the number, its place, the number by its place, and the sum of all dy that chose the
 * pixel. INDEX: where the index of tap i is. NEXT: what becomes of the number so far. */
#define OF_LARGEST(NAME, S, T, V, I, O, WRITTEN)                                                                       \
    INLINE void NAME##_##S(const struct wn__taps *t, const T *x, const uint8_t *index, int64_t n, O *to)               \
    {                                                                                                                  \
        V number;                                                                                                      \
        I place;                                                                                                       \
        (void)index;                                                                                                   \
        largest_of_##S(t, x, n, &number, &place);                                                                      \
        WRITTEN;                                                                                                       \
    }

#define CHOSEN(NAME, S, T, V, I, INDEX, NEXT)                                                                          \
    INLINE void NAME##_##S(const struct wn__taps *t, const T *x, const uint8_t *index, int64_t n, T *to)               \
    {                                                                                                                  \
        V number = {0}, v;                                                                                             \
        I place;                                                                                                       \
        for (int32_t i = 0; i < t->n; i++) {                                                                           \
            wn__read_##S(&v, x + t->at[i], n);                                                                         \
            wn__read_places_##S(&place, index + (INDEX), n);                                                           \
            number = NEXT(V, I, place == t->place[i], v, number);                                                      \
        }                                                                                                              \
        wn__write_##S(to, &number, n);                                                                                 \
    }
#define ADD(V, I, is, v, number) (number) + WN_PICK(V, I, is, v, (V){0})

#define LANES(S, T, V, I)                                                                                              \
    LARGEST(S, T, V, I)                                                                                                \
    OF_LARGEST(largest, S, T, V, I, T, wn__write_##S(to, &number, n))                                                  \
    OF_LARGEST(places, S, T, V, I, uint8_t, wn__write_places_##S(to, &place, n))                                       \
    CHOSEN(picked, S, T, V, I, 0, WN_PICK)                                                                             \
    CHOSEN(returned, S, T, V, I, t->at[i], ADD)

/* ---- pixels: all channels ------------------------------------------------------------------------------------ */

/* Defines NAME_pixel_S, whose elements are O. */
#define PIXEL(NAME, S, T, O, LANES)                                                                                    \
    static void NAME##_pixel_##S(const struct pool *p, const struct wn__taps *t, const void *from,                     \
                                 const uint8_t *index, void *out)                                                      \
    {                                                                                                                  \
        const T *x = from;                                                                                             \
        O *to = out;                                                                                                   \
        int64_t at = 0, n = p->w.c;                                                                                    \
        for (; at + LANES <= n; at += LANES) {                                                                         \
            wn__taps_fetch(t, at, LANES);                                                                              \
            NAME##_##S(t, x + at, index + at, LANES, to + at);                                                         \
        }                                                                                                              \
        if (at < n) NAME##_##S(t, x + at, index + at, n - at, to + at);                                                \
    }

#define PIXELS(S, T, V, I, WIDTH)                                                                                      \
    LANES(S, T, V, I)                                                                                                  \
    PIXEL(places, S, T, uint8_t, WIDTH)                                                                                \
    PIXEL(largest, S, T, T, WIDTH)                                                                                     \
    PIXEL(picked, S, T, T, WIDTH)                                                                                      \
    PIXEL(returned, S, T, T, WIDTH)

PIXELS(f32, float, wn__f32, wn__i32, WN_F32_LANES)
PIXELS(f64, double, wn__f64, wn__i64, WN_F64_LANES)
PIXELS(bf16, uint16_t, wn__f32, wn__i32, WN_F32_LANES)

/* ---- what a pixel reads -------------------------------------------------------------------------------- */

/* Fills in along dim k the window of pixel `at` of a pooling; *places: along that dim. Returns what the dim adds to the
 * place of its first pixel. */
static int32_t window_of(const struct pool *p, int32_t k, int64_t at, struct area *a, int64_t *places)
{
    int64_t end;
    a->begin[k] = wn__window_span(&p->w, k, at, &end, places);
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
    t->n = 0;
    for (int32_t r = 0; r < (int32_t)a->size[0]; r++)
        for (int32_t c = 0; c < (int32_t)a->size[1]; c++, t->n++) {
            t->at[t->n] = (r * p->read[1] + c) * p->w.c;
            t->place[t->n] = a->place + r * p->step[0] + c * p->step[1];
            t->weight[t->n] = p->is_derivative && p->sums != NULL ? share_of(a, r, c) : 1;
        }
}

/* Computes n pixels of a row from column `at` on. */
static void stretch(const void *ctx, int64_t row, int64_t at, int64_t n, char *to)
{
    const struct pool *p = ctx;
    int64_t image = row / p->made[0] * p->read[0] * p->read[1], channels = p->w.c, in_row = row % p->made[0];
    int64_t rows = 1, columns = 1, pixel = row * p->made[1] + at;
    struct area a = {.of = p};
    int32_t before = 0, is_even = p->sums == NULL || !p->is_derivative || p->share != 0;
    struct wn__taps t;
    t.n = 0;
    t.each = p->each / channels;
    int32_t place = p->is_derivative ? windows_over(p, 0, in_row, &a) : window_of(p, 0, in_row, &a, &rows);
    for (int64_t end = at + n; at < end; at++, pixel++, to += p->out.bytes) {
        a.place = place + (p->is_derivative ? windows_over(p, 1, at, &a) : window_of(p, 1, at, &a, &columns));
        int64_t first = (image + a.begin[0] * p->read[1] + a.begin[1]) * channels;
        const char *x = p->x + first * p->size;
        t.next = p->x + pixel * p->each + p->ahead;
        if (p->sums != NULL && a.size[0] * a.size[1] > WN_FEW_TAPS) {
            struct wn__area all = {a.size[0],
                                   a.size[1],
                                   p->read[1] * channels,
                                   p->is_derivative ? share_of : NULL,
                                   &a,
                                   (double)(rows * columns)};
            p->sums->many(&all, x, channels, to);
            continue;
        }
        if (!is_even || t.n != a.size[0] * a.size[1] || a.place != before) list_taps(&a, &t);
        before = a.place;
        t.divisor = (double)(rows * columns);
        if (p->sums != NULL) p->sums->few(&t, x, channels, to);
        else p->pixel(p, &t, x, p->index + (p->is_derivative ? first : pixel * channels), to);
    }
}

static void rows(int64_t begin, int64_t end, void *ctx)
{
    const struct pool *p = ctx;
    wn__image_rows(&p->out, begin, end, stretch, p);
}

/* ---- ops --------------------------------------------------------------------------------------------------- */

typedef void (*pixel_of)(const struct pool *p, const struct wn__taps *t, const void *x, const uint8_t *index,
                         void *out);

#define KERNELS(name)                                                                                                  \
    {                                                                                                                  \
        [WN_F32] = name##_pixel_f32, [WN_F64] = name##_pixel_f64, [WN_BF16] = name##_pixel_bf16                        \
    }
static const pixel_of places_of[WN_DTYPE_COUNT] = KERNELS(places), largest_of[WN_DTYPE_COUNT] = KERNELS(largest),
                      picked_of[WN_DTYPE_COUNT] = KERNELS(picked), returned_of[WN_DTYPE_COUNT] = KERNELS(returned);

/* Returns the pixels of a maximum or its derivative; NULL of a mean. */
static pixel_of find(const struct wn_desc *d)
{
    int32_t dtype = d->in[0].dtype;
    switch (d->op) {
    case WN_OP_MAX_POOL2D_INDEX: return places_of[dtype];
    case WN_OP_MAX_POOL2D: return d->n_in > 1 ? picked_of[dtype] : largest_of[dtype];
    case WN_OP_MAX_POOL2D_DX: return returned_of[dtype];
    default: return NULL;
    }
}

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

static int32_t pool(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    int32_t is_derivative = d->op == WN_OP_MAX_POOL2D_DX || d->op == WN_OP_AVG_POOL2D_DX;
    struct pool p = {.x = b->in[0], .size = wn__dtype_size(d->in[0].dtype), .is_derivative = is_derivative};
    (void)stream;
    if (wn__numel(&d->out) == 0) return WN_OK;
    wn__window_pool(&d->attrs, is_derivative ? &d->out : &d->in[0], is_derivative ? &d->in[0] : &d->out, &p.w);
    for (int32_t k = 0; k < 2; k++) {
        p.read[k] = d->in[0].dim[2 + k];
        p.made[k] = d->out.dim[2 + k];
        p.step[k] = (int32_t)((k == 0 ? p.w.kernel[1] : 1) * (is_derivative ? -p.w.stride[k] : 1));
    }
    p.each = is_derivative ? 0 : wn__bytes(&d->in[0]) / (p.w.n * p.made[0] * p.made[1]);
    if (p.each > MOST_EACH) p.each = 0;
    p.ahead = wn_min(p.w.kernel[0], p.read[0]) * p.read[1] * p.w.c * p.size + wn__tuning.stream_ahead;
    p.share = even_share(&p.w);
    p.index = d->n_in > 1 ? b->in[1] : NULL;
    p.pixel = find(d);
    if (p.pixel == NULL) p.sums = wn__taps_loops[d->in[0].dtype];
    p.out = (struct wn__image_out){b->out, p.made[1], p.w.c * wn__dtype_size(d->out.dtype), 0};
    p.out.streams = wn__streams(wn__bytes(&d->out), b->out, NULL, NULL);
    int64_t n_rows = p.w.n * p.made[0], work = wn_max(wn__numel(&d->in[0]), wn__numel(&d->out)) / n_rows;
    wn__parallel_for(n_rows, WN_CPU_GRAIN / (work + 1) + 1, rows, &p);
    return WN_OK;
}

wn_kernel_fn wn__cpu_pool_kernel(const struct wn_desc *d)
{
    return wn__taps_loops[d->in[0].dtype] ? pool : NULL;
}
