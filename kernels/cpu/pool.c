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

#define INLINE static inline __attribute__((always_inline))
#define SHARES 16 /* windows over a pixel whose shares are computed once for all channels */

/* The part of an input that one pixel of a result reads: size[0] rows of size[1] pixels of x, or of windows of dy. */
struct area {
    const void *x;        /* the first of these pixels */
    const uint8_t *index; /* of MAX_POOL2D: of its pixel; of MAX_POOL2D_DX: of the first window */
    int64_t begin[2];     /* row and column of the first */
    int32_t size[2];
    int32_t place;        /* in the window of the first pixel; of a derivative, of the pixel in the first window */
    double places;        /* that a mean divides by */
    double share[SHARES]; /* 1 / places of each window, of AVG_POOL2D_DX */
};

/* One application. */
struct pool {
    struct wn__window w;
    const char *x;
    const uint8_t *index;
    int64_t size;             /* bytes of an element of x */
    int64_t read[2], made[2]; /* rows and columns of what is read, and of the result */
    int64_t pitch;            /* elements of a row that is read */
    int32_t step[2];          /* places from one row, and from one column, of an area to the next */
    int64_t ahead, each;      /* bytes that are prefetched ahead, and of what is read for a pixel of the result */
    double share;             /* of AVG_POOL2D_DX: 1 / places where all windows have as many, else 0 */
    int32_t is_derivative;
    struct wn__image_out out;
    /* Computes one pixel, all channels. */
    void (*pixel)(const struct pool *p, const struct area *a, void *out);
};

/* Returns 1 / places of window (r, c) of an area. */
static double share_of(const struct pool *p, const struct area *a, int32_t r, int32_t c)
{
    int64_t end, rows, columns;
    wn__window_span(&p->w, 0, a->begin[0] + r, &end, &rows);
    wn__window_span(&p->w, 1, a->begin[1] + c, &end, &columns);
    return 1.0 / (double)(rows * columns);
}

/* Does the same, where the first SHARES are at hand. */
INLINE double share_at(const struct pool *p, const struct area *a, int32_t r, int32_t c)
{
    int32_t i = r * a->size[1] + c;
    if (p->share != 0) return p->share;
    return i < SHARES ? a->share[i] : share_of(p, a, r, c);
}

/* ---- lanes: n channels of one pixel, from channel `at` on ---------------------------------------------- */
/* S, T: of an element; V: lanes of numbers (lanes.h); I: the integers beside them. */

/* Defines the largest number and its place. A number takes over where it is larger, or the first NaN. */
#define LARGEST(S, T, V, I)                                                                                            \
    INLINE void largest_of_##S(const struct pool *p, const struct area *a, int64_t at, int64_t n, V *number, I *place) \
    {                                                                                                                  \
        const T *row = (const T *)a->x + at;                                                                           \
        V best = (V){0} - INFINITY, x;                                                                                 \
        I chosen = (I){0} + a->place;                                                                                  \
        for (int32_t r = 0, first = a->place; r < a->size[0]; r++, first += p->step[0], row += p->pitch) {             \
            const T *from = row;                                                                                       \
            for (int32_t c = 0, here = first; c < a->size[1]; c++, here += p->step[1], from += p->w.c) {               \
                wn__read_##S(&x, from, n);                                                                             \
                const I stays = (x <= best) | (best != best);                                                          \
                best = WN_PICK(V, I, stays, best, x);                                                                  \
                chosen = WN_PICK(I, I, stays, chosen, (I){0} + here);                                                  \
            }                                                                                                          \
        }                                                                                                              \
        *number = best;                                                                                                \
        *place = chosen;                                                                                               \
    }

/* Defines a loop over the area in which a number is chosen where its place is the index. NEXT: what becomes of the
 * number so far. */
#define CHOSEN(NAME, S, T, V, I, NEXT)                                                                                 \
    INLINE void NAME##_##S(const struct pool *p, const struct area *a, int64_t at, int64_t n, T *to)                   \
    {                                                                                                                  \
        V number = {0}, x;                                                                                             \
        I index;                                                                                                       \
        for (int32_t r = 0, first = a->place; r < a->size[0]; r++, first += p->step[0]) {                              \
            int64_t from = r * p->pitch + at;                                                                          \
            for (int32_t c = 0, here = first; c < a->size[1]; c++, here += p->step[1], from += p->w.c) {               \
                wn__read_##S(&x, (const T *)a->x + from, n);                                                           \
                wn__read_places_##S(&index, a->index + (p->is_derivative ? from : at), n);                             \
                number = NEXT(V, I, index == here, x, number);                                                         \
            }                                                                                                          \
        }                                                                                                              \
        wn__write_##S(to, &number, n);                                                                                 \
    }
#define ADD(V, I, is, x, number) (number) + WN_PICK(V, I, is, x, (V){0})

/* Defines the sum of the numbers of the area in double, each WEIGHTED; SCALED is what is written. */
#define SUM(NAME, S, T, FEW, WEIGHTED, SCALED)                                                                         \
    INLINE void NAME##_##S(const struct pool *p, const struct area *a, int64_t at, int64_t n, T *to)                   \
    {                                                                                                                  \
        const T *row = (const T *)a->x + at;                                                                           \
        wn__f64 sum = {0}, wide;                                                                                       \
        FEW x;                                                                                                         \
        for (int32_t r = 0; r < a->size[0]; r++, row += p->pitch) {                                                    \
            const T *from = row;                                                                                       \
            for (int32_t c = 0; c < a->size[1]; c++, from += p->w.c) {                                                 \
                wn__read_few_##S(&x, from, n);                                                                         \
                wn__double_##S(&wide, &x);                                                                             \
                sum += WEIGHTED(wide);                                                                                 \
            }                                                                                                          \
        }                                                                                                              \
        sum = SCALED(sum);                                                                                             \
        wn__single_##S(&x, &sum);                                                                                      \
        wn__write_few_##S(to, &x, n);                                                                                  \
    }
#define AS_IT_IS(x) (x)
#define SHARED(x) (x) * share_at(p, a, r, c)
#define MEAN(x) (x) / a->places

#define LANES(S, T, V, I, FEW)                                                                                         \
    LARGEST(S, T, V, I)                                                                                                \
    CHOSEN(picked, S, T, V, I, WN_PICK)                                                                                \
    CHOSEN(returned, S, T, V, I, ADD)                                                                                  \
    SUM(mean, S, T, FEW, AS_IT_IS, MEAN)                                                                               \
    SUM(shares, S, T, FEW, SHARED, AS_IT_IS)                                                                           \
    INLINE void largest_##S(const struct pool *p, const struct area *a, int64_t at, int64_t n, T *to)                  \
    {                                                                                                                  \
        V number;                                                                                                      \
        I place;                                                                                                       \
        largest_of_##S(p, a, at, n, &number, &place);                                                                  \
        wn__write_##S(to, &number, n);                                                                                 \
    }                                                                                                                  \
    INLINE void places_##S(const struct pool *p, const struct area *a, int64_t at, int64_t n, uint8_t *to)             \
    {                                                                                                                  \
        V number;                                                                                                      \
        I place;                                                                                                       \
        largest_of_##S(p, a, at, n, &number, &place);                                                                  \
        wn__write_places_##S(to, &place, n);                                                                           \
    }

/* ---- pixels: all channels ------------------------------------------------------------------------------------ */

/* Defines NAME_pixel_S, whose elements are O. */
#define PIXEL(NAME, S, O, LANES)                                                                                       \
    static void NAME##_pixel_##S(const struct pool *p, const struct area *a, void *out)                                \
    {                                                                                                                  \
        int64_t at = 0, n = p->w.c;                                                                                    \
        for (; at + LANES <= n; at += LANES) NAME##_##S(p, a, at, LANES, (O *)out + at);                               \
        if (at < n) NAME##_##S(p, a, at, n - at, (O *)out + at);                                                       \
    }

#define PIXELS(S, T, V, I, FEW, WIDTH)                                                                                 \
    LANES(S, T, V, I, FEW)                                                                                             \
    PIXEL(places, S, uint8_t, WIDTH)                                                                                   \
    PIXEL(largest, S, T, WIDTH)                                                                                        \
    PIXEL(picked, S, T, WIDTH)                                                                                         \
    PIXEL(returned, S, T, WIDTH)                                                                                       \
    PIXEL(mean, S, T, WN_F64_LANES)                                                                                    \
    PIXEL(shares, S, T, WN_F64_LANES)

PIXELS(f32, float, wn__f32, wn__i32, wn__few, WN_F32_LANES)
PIXELS(f64, double, wn__f64, wn__i64, wn__f64, WN_F64_LANES)
PIXELS(bf16, uint16_t, wn__f32, wn__i32, wn__few, WN_F32_LANES)

/* ---- what a pixel reads -------------------------------------------------------------------------------- */

/* Fills in along dim k the window of pixel `at` of a pooling; *places: along that dim. Returns what the dim adds to the
 * place of its first pixel. */
static int32_t window_of(const struct pool *p, int32_t k, int64_t at, struct area *a, int64_t *places)
{
    int64_t end;
    a->begin[k] = wn__window_span(&p->w, k, at, &end, places);
    a->size[k] = (int32_t)(end - a->begin[k]);
    return p->step[k] * (int32_t)(a->begin[k] - at * p->w.stride[k] + p->w.pad[k]);
}

/* Fills in along dim k the windows that pixel `at` of a derivative is in. Returns what the dim adds to the place of the
 * pixel in the first of them. */
static int32_t windows_over(const struct pool *p, int32_t k, int64_t at, struct area *a)
{
    const struct wn__window *w = &p->w;
    int64_t size = w->in[k], n = w->out[k], from = at + w->pad[k], end = wn_min(from / w->stride[k] + 1, n);
    a->begin[k] = from < w->kernel[k] ? 0 : (from - w->kernel[k]) / w->stride[k] + 1;
    if (w->flags & WN_POOL_IS_ADAPTIVE) {
        a->begin[k] = at * n / size;
        end = ((at + 1) * n + size - 1) / size;
    }
    a->size[k] = (int32_t)(end - a->begin[k]);
    return (int32_t)((from - a->begin[k] * w->stride[k]) * (k == 0 ? w->kernel[1] : 1));
}

/* Fills in the shares of the windows that are at hand. */
static void fill_shares(const struct pool *p, struct area *a)
{
    if (p->share != 0) return;
    for (int32_t i = 0, r = 0; r < a->size[0]; r++)
        for (int32_t c = 0; c < a->size[1] && i < SHARES; c++) a->share[i++] = share_of(p, a, r, c);
}

/* Compute n pixels of a row from column `at` on: of a pooling, and of a derivative. */
static void stretch(const void *ctx, int64_t row, int64_t at, int64_t n, char *to)
{
    const struct pool *p = ctx;
    int64_t image = row / p->made[0] * p->read[0] * p->read[1], rows, columns;
    struct area a;
    int32_t place = window_of(p, 0, row % p->made[0], &a, &rows);
    for (int64_t end = at + n; at < end; at++, to += p->out.bytes) {
        a.place = place + window_of(p, 1, at, &a, &columns);
        a.places = (double)(rows * columns);
        a.x = p->x + (image + a.begin[0] * p->read[1] + a.begin[1]) * p->w.c * p->size;
        if (p->index != NULL) a.index = p->index + (row * p->made[1] + at) * p->w.c;
        wn__fetch_behind(p->x + (row * p->made[1] + at) * p->each, p->ahead, p->each);
        p->pixel(p, &a, to);
    }
}

static void derivative(const void *ctx, int64_t row, int64_t at, int64_t n, char *to)
{
    const struct pool *p = ctx;
    int64_t image = row / p->made[0] * p->read[0] * p->read[1];
    struct area a;
    int32_t place = windows_over(p, 0, row % p->made[0], &a);
    for (int64_t end = at + n; at < end; at++, to += p->out.bytes) {
        a.place = place + windows_over(p, 1, at, &a);
        int64_t first = (image + a.begin[0] * p->read[1] + a.begin[1]) * p->w.c;
        a.x = p->x + first * p->size;
        if (p->index != NULL) a.index = p->index + first;
        else fill_shares(p, &a);
        p->pixel(p, &a, to);
    }
}

static void rows(int64_t begin, int64_t end, void *ctx)
{
    const struct pool *p = ctx;
    wn__image_rows(&p->out, begin, end, p->is_derivative ? derivative : stretch, p);
}

/* ---- ops --------------------------------------------------------------------------------------------------- */

typedef void (*pixel_of)(const struct pool *p, const struct area *a, void *out);

#define KERNELS(name)                                                                                                  \
    {                                                                                                                  \
        [WN_F32] = name##_pixel_f32, [WN_F64] = name##_pixel_f64, [WN_BF16] = name##_pixel_bf16                        \
    }
static const pixel_of places_of[WN_DTYPE_COUNT] = KERNELS(places), largest_of[WN_DTYPE_COUNT] = KERNELS(largest),
                      picked_of[WN_DTYPE_COUNT] = KERNELS(picked), returned_of[WN_DTYPE_COUNT] = KERNELS(returned),
                      mean_of[WN_DTYPE_COUNT] = KERNELS(mean), shares_of[WN_DTYPE_COUNT] = KERNELS(shares);

static pixel_of find(const struct wn_desc *d)
{
    int32_t dtype = d->in[0].dtype;
    switch (d->op) {
    case WN_OP_MAX_POOL2D_INDEX: return places_of[dtype];
    case WN_OP_MAX_POOL2D: return d->n_in > 1 ? picked_of[dtype] : largest_of[dtype];
    case WN_OP_MAX_POOL2D_DX: return returned_of[dtype];
    case WN_OP_AVG_POOL2D: return mean_of[dtype];
    default: return shares_of[dtype];
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
    p.pitch = p.read[1] * p.w.c;
    p.each = wn__bytes(&d->in[0]) / (p.w.n * p.made[0] * p.made[1]);
    p.ahead = wn_min(p.w.kernel[0], p.read[0]) * p.pitch * p.size + wn__tuning.stream_ahead;
    p.share = even_share(&p.w);
    p.index = d->n_in > 1 ? b->in[1] : NULL;
    p.pixel = find(d);
    p.out = (struct wn__image_out){b->out, p.made[1], p.w.c * wn__dtype_size(d->out.dtype), 0};
    p.out.streams = wn__streams(wn__bytes(&d->out), b->out, NULL, NULL);
    int64_t n_rows = p.w.n * p.made[0], work = wn_max(wn__numel(&d->in[0]), wn__numel(&d->out)) / n_rows;
    wn__parallel_for(n_rows, WN_CPU_GRAIN / (work + 1) + 1, rows, &p);
    return WN_OK;
}

wn_kernel_fn wn__cpu_pool_kernel(const struct wn_desc *d)
{
    return find(d) ? pool : NULL;
}
