/* MAX_POOL2D_INDEX, MAX_POOL2D, MAX_POOL2D_DX, AVG_POOL2D, AVG_POOL2D_DX over images in memory order (N, H, W, C)
 * (runtime/ops/pool.c has the formulas).
 *
 * Every pixel of a result is computed by itself, LANES channels at a time: a pooling goes over the places of its
 * window, a derivative over the windows that its pixel is in. Both go row by row in ascending order, and that is the
 * order of each sum. Sums of MAX_POOL2D_DX are in f32 for f32 and bf16, sums of means are in double; bf16 is rounded
 * once. Threads share rows of the result. */
#include <math.h>
#include <stddef.h>
#include "../../runtime/base/window.h"
#include "cpu.h"
#include "image.h"

#define LANES 16 /* channels side by side in registers */
#define WIDE 256 /* channels side by side in the first-level cache, where a window costs arithmetic of its own */
#define INLINE static inline __attribute__((always_inline))

/* The part of an input that one pixel of a result reads: rows and columns [begin, end) of an image of x or of dy. */
struct area {
    const void *x;        /* the image */
    const uint8_t *index; /* of MAX_POOL2D: of the pixel; of MAX_POOL2D_DX: of the image */
    int64_t begin[2], end[2];
    int64_t origin[2]; /* where the window begins; of a derivative: the pixel's place within window (0, 0) */
    int64_t places;    /* that a mean divides by */
};

/* One application. */
struct pool {
    struct wn__window w;
    const char *x;
    const uint8_t *index;
    int64_t size;             /* bytes of an element of x */
    int64_t read[2], made[2]; /* rows and columns of what is read, and of the result */
    int32_t is_derivative;
    struct wn__image_out out;
    /* Computes one pixel, all channels. */
    void (*pixel)(const struct pool *p, const struct area *a, void *out);
};

/* Returns the place in its window of element (r, c) of the area; of a derivative, of its pixel in window (r, c). */
INLINE int64_t place_of(const struct pool *p, const struct area *a, int64_t r, int64_t c)
{
    const struct wn__window *w = &p->w;
    if (!p->is_derivative) return (r - a->origin[0]) * w->kernel[1] + c - a->origin[1];
    return (a->origin[0] - r * w->stride[0]) * w->kernel[1] + a->origin[1] - c * w->stride[1];
}

/* Returns 1 / places of window (r, c). */
static double share_of(const struct pool *p, int64_t r, int64_t c)
{
    int64_t end, rows, columns;
    wn__window_span(&p->w, 0, r, &end, &rows);
    wn__window_span(&p->w, 1, c, &end, &columns);
    return 1.0 / (double)(rows * columns);
}

/* ---- lanes: n channels of one pixel, from channel `at` on ---------------------------------------------- */
/* T: the type of an element; A: of a number; I: an integer as wide as A; TAKE: converts an element to a number; PUT:
 * back. */

#define LANES_OF(S, A, I)                                                                                              \
    struct lanes_##S {                                                                                                 \
        A number[LANES];                                                                                               \
        I place[LANES];                                                                                                \
    };

struct sums {
    double number[WIDE];
};

/* Defines the largest number and its place. A number takes over where it is larger, or the first NaN. */
#define LARGEST(S, T, A, I, TAKE)                                                                                      \
    INLINE void largest_##S(const struct pool *p, const struct area *a, int64_t at, int64_t n, struct lanes_##S *v)    \
    {                                                                                                                  \
        A *best = v->number;                                                                                           \
        I *place = v->place, first = (I)place_of(p, a, a->begin[0], a->begin[1]);                                      \
        for (int64_t j = 0; j < n; j++) best[j] = -(A)INFINITY, place[j] = first;                                      \
        for (int64_t r = a->begin[0]; r < a->end[0]; r++, first += (I)p->w.kernel[1]) {                                \
            const T *x = (const T *)a->x + (r * p->read[1] + a->begin[1]) * p->w.c + at;                               \
            for (int64_t c = 0; c < a->end[1] - a->begin[1]; c++, x += p->w.c)                                         \
                _Pragma("omp simd") for (int64_t j = 0; j < n; j++)                                                    \
                {                                                                                                      \
                    int32_t stays = (TAKE(x[j]) <= best[j]) | (best[j] != best[j]);                                    \
                    place[j] = stays ? place[j] : first + (I)c;                                                        \
                    best[j] = stays ? best[j] : TAKE(x[j]);                                                            \
                }                                                                                                      \
        }                                                                                                              \
    }

/* Defines a loop over the area in which a number is chosen where its place is the index. PITCH: elements of index from
 * one element of the area to the next. NEXT: what becomes of the number so far. */
#define CHOSEN(NAME, S, T, I, TAKE, PITCH, NEXT)                                                                       \
    INLINE void NAME##_##S(const struct pool *p, const struct area *a, int64_t at, int64_t n, struct lanes_##S *v)     \
    {                                                                                                                  \
        for (int64_t j = 0; j < n; j++) v->number[j] = 0;                                                              \
        for (int64_t r = a->begin[0]; r < a->end[0]; r++) {                                                            \
            int64_t pixel = r * p->read[1] + a->begin[1];                                                              \
            for (int64_t c = a->begin[1]; c < a->end[1]; c++, pixel++) {                                               \
                const T *x = (const T *)a->x + pixel * p->w.c + at;                                                    \
                const uint8_t *index = a->index + pixel * (PITCH) + at;                                                \
                I place = (I)place_of(p, a, r, c);                                                                     \
                _Pragma("omp simd") for (int64_t j = 0; j < n; j++) v->number[j] =                                     \
                    NEXT(v->number[j], TAKE(x[j]), (I)index[j] == place);                                              \
            }                                                                                                          \
        }                                                                                                              \
    }
#define PICK(so_far, number, is_chosen) (is_chosen) ? (number) : (so_far)
#define ADD(so_far, number, is_chosen) (so_far) + ((is_chosen) ? (number) : 0)

/* Defines the sum of the numbers of the area, each times WEIGHT, which may use r and c. */
#define SUM(NAME, S, T, TAKE, WEIGHT)                                                                                  \
    INLINE void NAME##_##S(const struct pool *p, const struct area *a, int64_t at, int64_t n, struct sums *v)          \
    {                                                                                                                  \
        for (int64_t j = 0; j < n; j++) v->number[j] = 0;                                                              \
        for (int64_t r = a->begin[0]; r < a->end[0]; r++) {                                                            \
            const T *x = (const T *)a->x + (r * p->read[1] + a->begin[1]) * p->w.c + at;                               \
            for (int64_t c = a->begin[1]; c < a->end[1]; c++, x += p->w.c) {                                           \
                double weight = WEIGHT;                                                                                \
                _Pragma("omp simd") for (int64_t j = 0; j < n; j++) v->number[j] += weight * (double)TAKE(x[j]);       \
            }                                                                                                          \
        }                                                                                                              \
    }

/* ---- pixels: all channels, `AT_ONCE` of them at a time ----------------------------------------------------- */

/* Defines NAME_pixel_S: lanes V by NAME_S, of which lane j becomes element VALUE of type O. */
#define PIXEL(NAME, S, V, O, AT_ONCE, VALUE)                                                                           \
    static void NAME##_pixel_##S(const struct pool *p, const struct area *a, void *out)                                \
    {                                                                                                                  \
        V v;                                                                                                           \
        for (int64_t at = 0, n; at < p->w.c; at += n) {                                                                \
            O *to = (O *)out + at;                                                                                     \
            n = p->w.c - at;                                                                                           \
            if (n >= AT_ONCE) {                                                                                        \
                n = AT_ONCE;                                                                                           \
                NAME##_##S(p, a, at, AT_ONCE, &v);                                                                     \
                _Pragma("omp simd") for (int64_t j = 0; j < AT_ONCE; j++) to[j] = VALUE;                               \
            } else {                                                                                                   \
                NAME##_##S(p, a, at, n, &v);                                                                           \
                for (int64_t j = 0; j < n; j++) to[j] = VALUE;                                                         \
            }                                                                                                          \
        }                                                                                                              \
    }

#define PIXELS(S, T, A, I, TAKE, PUT)                                                                                  \
    LANES_OF(S, A, I)                                                                                                  \
    LARGEST(S, T, A, I, TAKE)                                                                                          \
    CHOSEN(picked, S, T, I, TAKE, 0, PICK)                                                                             \
    CHOSEN(returned, S, T, I, TAKE, p->w.c, ADD)                                                                       \
    SUM(total, S, T, TAKE, 1)                                                                                          \
    SUM(shares, S, T, TAKE, share_of(p, r, c))                                                                         \
    PIXEL(largest, S, struct lanes_##S, T, LANES, PUT(v.number[j]))                                                    \
    PIXEL(picked, S, struct lanes_##S, T, LANES, PUT(v.number[j]))                                                     \
    PIXEL(returned, S, struct lanes_##S, T, LANES, PUT(v.number[j]))                                                   \
    PIXEL(total, S, struct sums, T, LANES, PUT((A)(v.number[j] / (double)a->places)))                                  \
    PIXEL(shares, S, struct sums, T, WIDE, PUT((A)v.number[j]))

/* Defines the index of the largest number. */
#define PLACES(S)                                                                                                      \
    INLINE void places_##S(const struct pool *p, const struct area *a, int64_t at, int64_t n, struct lanes_##S *v)     \
    {                                                                                                                  \
        largest_##S(p, a, at, n, v);                                                                                   \
    }                                                                                                                  \
    PIXEL(places, S, struct lanes_##S, uint8_t, LANES, (uint8_t)v.place[j])

PIXELS(f32, float, float, int32_t, WN_SAME, WN_SAME)
PIXELS(f64, double, double, int64_t, WN_SAME, WN_SAME)
PIXELS(bf16, uint16_t, float, int32_t, wn_from_bf16, wn_to_bf16)
PLACES(f32)
PLACES(f64)
PLACES(bf16)

/* ---- what a pixel reads -------------------------------------------------------------------------------- */

/* Fills in along dim k what pixel `at` of a pooling reads: its window. Returns the places of the window along it. */
static int64_t window_of(const struct pool *p, int32_t k, int64_t at, struct area *a)
{
    int64_t places;
    a->begin[k] = wn__window_span(&p->w, k, at, &a->end[k], &places);
    a->origin[k] = at * p->w.stride[k] - p->w.pad[k];
    return places;
}

/* Fills in along dim k what pixel `at` of a derivative reads: the windows that it is in. */
static void windows_over(const struct pool *p, int32_t k, int64_t at, struct area *a)
{
    const struct wn__window *w = &p->w;
    int64_t size = w->in[k], n = w->out[k], from = at + w->pad[k];
    a->origin[k] = from;
    if (w->flags & WN_POOL_IS_ADAPTIVE) {
        a->begin[k] = at * n / size;
        a->end[k] = ((at + 1) * n + size - 1) / size;
        return;
    }
    a->begin[k] = from < w->kernel[k] ? 0 : (from - w->kernel[k]) / w->stride[k] + 1;
    a->end[k] = wn_min(from / w->stride[k] + 1, n);
}

static void stretch(const void *ctx, int64_t row, int64_t at, int64_t n, char *to)
{
    const struct pool *p = ctx;
    int64_t image = row / p->made[0], pixels = p->read[0] * p->read[1], places = 1;
    struct area a = {.x = p->x + image * pixels * p->w.c * p->size};
    if (p->is_derivative) windows_over(p, 0, row % p->made[0], &a);
    else places = window_of(p, 0, row % p->made[0], &a);
    if (p->index != NULL) a.index = p->index + (p->is_derivative ? image * pixels : row * p->made[1] + at) * p->w.c;
    for (int64_t end = at + n; at < end; at++, to += p->out.bytes) {
        if (p->is_derivative) windows_over(p, 1, at, &a);
        else a.places = places * window_of(p, 1, at, &a);
        p->pixel(p, &a, to);
        if (p->index != NULL && !p->is_derivative) a.index += p->w.c;
    }
}

static void rows(int64_t begin, int64_t end, void *ctx)
{
    const struct pool *p = ctx;
    wn__image_rows(&p->out, begin, end, stretch, p);
}

/* ---- ops --------------------------------------------------------------------------------------------------- */

typedef void (*pixel_of)(const struct pool *p, const struct area *a, void *out);

#define KERNELS(name)                                                                                                  \
    {                                                                                                                  \
        [WN_F32] = name##_pixel_f32, [WN_F64] = name##_pixel_f64, [WN_BF16] = name##_pixel_bf16                        \
    }
static const pixel_of places_of[WN_DTYPE_COUNT] = KERNELS(places), largest_of[WN_DTYPE_COUNT] = KERNELS(largest),
                      picked_of[WN_DTYPE_COUNT] = KERNELS(picked), returned_of[WN_DTYPE_COUNT] = KERNELS(returned),
                      total_of[WN_DTYPE_COUNT] = KERNELS(total), shares_of[WN_DTYPE_COUNT] = KERNELS(shares);

static pixel_of find(const struct wn_desc *d)
{
    int32_t dtype = d->in[0].dtype;
    switch (d->op) {
    case WN_OP_MAX_POOL2D_INDEX: return places_of[dtype];
    case WN_OP_MAX_POOL2D: return d->n_in > 1 ? picked_of[dtype] : largest_of[dtype];
    case WN_OP_MAX_POOL2D_DX: return returned_of[dtype];
    case WN_OP_AVG_POOL2D: return total_of[dtype];
    default: return shares_of[dtype];
    }
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
    }
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
