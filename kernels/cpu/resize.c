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
#include "../../runtime/base/resample.h"
#include "../../runtime/base/window.h"
#include "bf16.h"
#include "cpu.h"
#include "image.h"
#include "lanes.h"

#define INLINE static inline __attribute__((always_inline))
#define WEIGHTS 16 /* rows and columns of dy whose weights are computed once for all channels of a pixel */

struct rows;
struct area;

/* One application. */
struct resize {
    const char *in;
    int64_t size, channels;             /* size: bytes of an element */
    int64_t read[2], made[2];           /* rows and columns of the input, and of the result */
    const struct wn__resample *part[2]; /* of each row, and of each column, of y */
    struct wn__image_out out;
    wn__image_stretch stretch;
    /* Compute one pixel, all channels: of y by interpolation, of dx. */
    void (*mix)(const struct resize *k, const struct rows *r, const struct wn__resample *part, void *to);
    void (*gather)(const struct resize *k, const struct area *a, void *to);
};

/* Returns how much of element `at` of x is in an element of y. */
static double weight_of(const struct wn__resample *part, int64_t at)
{
    return (part->low == at ? 1.0 - part->weight : 0.0) + (part->high == at ? part->weight : 0.0);
}

/* Moves [*begin, *end) on to the elements of y, of n, that element `at` of x is a part of. `at` only grows. */
static void follow(const struct wn__resample *part, int64_t n, int64_t at, int64_t *begin, int64_t *end)
{
    while (*begin < n && part[*begin].high < at) ++*begin;
    if (*end < *begin) *end = *begin;
    while (*end < n && part[*end].low <= at) ++*end;
}

/* ---- pixels ------------------------------------------------------------------------------------------------ */

/* The rows of x that a row of y is made of, and their weights. */
struct rows {
    const char *top, *bottom;
    double weight;
};

/* Defines one pixel of y with column `part`, all channels. A: of numbers; TAKE and PUT convert. */
#define MIX(S, T, A, TAKE, PUT)                                                                                        \
    static void mix_##S(const struct resize *k, const struct rows *r, const struct wn__resample *part, void *to)       \
    {                                                                                                                  \
        int64_t n = k->channels;                                                                                       \
        const T *a = (const T *)r->top + part->low * n, *b = (const T *)r->top + part->high * n;                       \
        const T *c = (const T *)r->bottom + part->low * n, *d = (const T *)r->bottom + part->high * n;                 \
        A u = (A)part->weight, v = (A)r->weight, left = (A)1 - u, above = (A)1 - v;                                    \
        _Pragma("omp simd") for (int64_t j = 0; j < n; j++)                                                            \
        {                                                                                                              \
            A top = left * TAKE(a[j]) + u * TAKE(b[j]), bottom = left * TAKE(c[j]) + u * TAKE(d[j]);                   \
            ((T *)to)[j] = PUT(above * top + v * bottom);                                                              \
        }                                                                                                              \
    }

/* The part of dy that a pixel of dx at (row, column) gathers: rows and columns [begin, end). */
struct area {
    const void *dy; /* the image */
    int64_t at[2], begin[2], end[2];
    double weight[2][WEIGHTS]; /* of the pixel, in the first rows and columns */
};

/* Returns how much of the pixel is in row (k = 0) or column `at` of dy. */
INLINE double part_of(const struct resize *r, const struct area *a, int32_t k, int64_t at)
{
    int64_t i = at - a->begin[k];
    return i < WEIGHTS ? a->weight[k][i] : weight_of(&r->part[k][at], a->at[k]);
}

/* Moves on along dim k to the pixel at `at`, which only grows. */
static void move(const struct resize *r, int32_t k, int64_t at, struct area *a)
{
    a->at[k] = at;
    follow(r->part[k], r->read[k], at, &a->begin[k], &a->end[k]);
    for (int64_t i = 0; i < WEIGHTS && i < a->end[k] - a->begin[k]; i++)
        a->weight[k][i] = weight_of(&r->part[k][a->begin[k] + i], at);
}

/* Defines channels [first, first + n) of one pixel of dx, n at most WN_F64_LANES. FEW: lanes of numbers (lanes.h). */
#define GATHER(S, T, FEW)                                                                                              \
    INLINE void gather_##S(const struct resize *k, const struct area *a, int64_t first, int64_t n, T *to)              \
    {                                                                                                                  \
        wn__f64 sum = {0}, wide;                                                                                       \
        FEW x;                                                                                                         \
        for (int64_t p = a->begin[0]; p < a->end[0]; p++) {                                                            \
            double of_row = part_of(k, a, 0, p);                                                                       \
            const T *dy = (const T *)a->dy + (p * k->read[1] + a->begin[1]) * k->channels + first;                     \
            for (int64_t q = a->begin[1]; q < a->end[1]; q++, dy += k->channels) {                                     \
                wn__read_few_##S(&x, dy, n);                                                                           \
                wn__double_##S(&wide, &x);                                                                             \
                sum += wide * (of_row * part_of(k, a, 1, q));                                                          \
            }                                                                                                          \
        }                                                                                                              \
        wn__single_##S(&x, &sum);                                                                                      \
        wn__write_few_##S(to, &x, n);                                                                                  \
    }                                                                                                                  \
    static void gather_pixel_##S(const struct resize *k, const struct area *a, void *to)                               \
    {                                                                                                                  \
        int64_t at = 0, n = k->channels;                                                                               \
        for (; at + WN_F64_LANES <= n; at += WN_F64_LANES) gather_##S(k, a, at, WN_F64_LANES, (T *)to + at);           \
        if (at < n) gather_##S(k, a, at, n - at, (T *)to + at);                                                        \
    }

MIX(f32, float, float, WN_SAME, WN_SAME)
MIX(f64, double, double, WN_SAME, WN_SAME)
MIX(bf16, uint16_t, float, wn_from_bf16, wn_to_bf16)
GATHER(f32, float, wn__few)
GATHER(f64, double, wn__f64)
GATHER(bf16, uint16_t, wn__few)

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
    for (int64_t end = at + n; at < end; at++, to += k->out.bytes)
        memcpy(to, from + k->part[1][at].low * k->out.bytes, (size_t)k->out.bytes);
}

static void bilinear(const void *ctx, int64_t row, int64_t at, int64_t n, char *to)
{
    const struct resize *k = ctx;
    const struct wn__resample *part = &k->part[0][row % k->made[0]];
    struct rows r = {input_row(k, row, part->low), input_row(k, row, part->high), part->weight};
    for (int64_t end = at + n; at < end; at++, to += k->out.bytes) k->mix(k, &r, &k->part[1][at], to);
}

static void derivative(const void *ctx, int64_t row, int64_t at, int64_t n, char *to)
{
    const struct resize *k = ctx;
    struct area a = {.dy = input_row(k, row, 0)};
    move(k, 0, row % k->made[0], &a);
    for (int64_t end = at + n; at < end; at++, to += k->out.bytes) {
        move(k, 1, at, &a);
        k->gather(k, &a, to);
    }
}

static void rows(int64_t begin, int64_t end, void *ctx)
{
    const struct resize *k = ctx;
    wn__image_rows(&k->out, begin, end, k->stretch, k);
}

/* ---- ops --------------------------------------------------------------------------------------------------------- */

#define KERNELS(name)                                                                                                  \
    {                                                                                                                  \
        [WN_F32] = name##_f32, [WN_F64] = name##_f64, [WN_BF16] = name##_bf16                                          \
    }
static void (*const mix_of[WN_DTYPE_COUNT])(const struct resize *, const struct rows *, const struct wn__resample *,
                                            void *) = KERNELS(mix);
static void (*const gather_of[WN_DTYPE_COUNT])(const struct resize *, const struct area *,
                                               void *) = KERNELS(gather_pixel);

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

static int32_t resize(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    int32_t is_derivative = d->op == WN_OP_UPSAMPLE2D_DX, dtype = d->out.dtype;
    struct wn__resample *part = b->workspace;
    struct resize k = {.in = b->in[0], .size = wn__dtype_size(dtype), .channels = d->out.dim[1]};
    (void)stream;
    if (wn__numel(&d->out) == 0) return WN_OK;
    for (int32_t i = 0; i < 2; i++) {
        k.read[i] = d->in[0].dim[2 + i];
        k.made[i] = d->out.dim[2 + i];
        k.part[i] = part;
        fill_parts(d, i, part);
        part += is_derivative ? k.read[i] : k.made[i];
    }
    k.mix = mix_of[dtype];
    k.gather = gather_of[dtype];
    k.stretch = stretch_of(d);
    k.out = (struct wn__image_out){b->out, k.made[1], k.channels * k.size, 0};
    k.out.streams = wn__streams(wn__bytes(&d->out), b->out, NULL, NULL);
    int64_t n_rows = d->out.dim[0] * k.made[0], work = wn_max(wn__numel(&d->in[0]), wn__numel(&d->out)) / n_rows;
    wn__parallel_for(n_rows, WN_CPU_GRAIN / (work + 1) + 1, rows, &k);
    return WN_OK;
}

wn_kernel_fn wn__cpu_resize_kernel(const struct wn_desc *d)
{
    return mix_of[d->out.dtype] ? resize : NULL;
}
