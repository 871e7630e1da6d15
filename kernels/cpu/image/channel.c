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
#include "../common/bf16.h"
#include "channel_norm.h"
#include "../common/cpu.h"
#include "../common/lanes.h"

#define INLINE static inline __attribute__((always_inline))
#define LANES WN_F64_LANES
#define ROWS 8 /* pixels that are added to sums in registers */

#ifndef AHEAD
#define AHEAD 8192 /* bytes of a block that are prefetched ahead */
#endif

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

/* ---- loops ------------------------------------------------------------------------------------------------- */

/* Define what the lanes of an element add to its sums. FEW: lanes of numbers, WN_F64_LANES of them; v: mean, rstd, and
 * of the last one w, b and the limit of relu. */
#define STATISTIC_TERMS(F, FEW)                                                                                        \
    INLINE void mean_term_##F(const FEW *dy, const FEW *x, const FEW v[5], wn__f64 sum[2])                             \
    {                                                                                                                  \
        wn__f64 wide;                                                                                                  \
        (void)dy, (void)v;                                                                                             \
        wn__double_##F(&wide, x);                                                                                      \
        sum[0] += wide;                                                                                                \
    }                                                                                                                  \
    INLINE void square_term_##F(const FEW *dy, const FEW *x, const FEW v[5], wn__f64 sum[2])                           \
    {                                                                                                                  \
        wn__f64 wide;                                                                                                  \
        const FEW square = (*x - v[0]) * (*x - v[0]);                                                                  \
        (void)dy;                                                                                                      \
        wn__double_##F(&wide, &square);                                                                                \
        sum[0] += wide;                                                                                                \
    }

#define GRADIENT_TERMS(F, FEW)                                                                                         \
    INLINE void gradient_term_##F(const FEW *dy, const FEW *x, const FEW v[5], wn__f64 sum[2])                         \
    {                                                                                                                  \
        wn__f64 wide[2];                                                                                               \
        const FEW product = *dy * ((*x - v[0]) * v[1]);                                                                \
        wn__double_##F(&wide[0], &product);                                                                            \
        wn__double_##F(&wide[1], dy);                                                                                  \
        sum[0] += wide[0];                                                                                             \
        sum[1] += wide[1];                                                                                             \
    }                                                                                                                  \
    INLINE void relu_term_##F(const FEW *dy, const FEW *x, const FEW v[5], wn__f64 sum[2])                             \
    {                                                                                                                  \
        FEW y = v[3], h = (*x - v[0]) * v[1];                                                                          \
        wn__fma_few_##F(&y, &h, &v[2]);                                                                                \
        h = (FEW)(~(y <= v[4]) & (__typeof__(y <= v[4]))*dy);                                                          \
        gradient_term_##F(&h, x, v, sum);                                                                              \
    }

STATISTIC_TERMS(f32, wn__few)
STATISTIC_TERMS(f64, wn__f64)
GRADIENT_TERMS(f32, wn__few)
GRADIENT_TERMS(f64, wn__f64)

/* Defines the sums over `rows` pixels of n channels from `at` of the block on; n is at most LANES. */
#define ADD(NAME, S, T, F, FEW)                                                                                        \
    INLINE void NAME##_add_##S(const struct sums *k, int64_t pixel, int64_t rows, int64_t at, int64_t n,               \
                               struct block *b)                                                                        \
    {                                                                                                                  \
        int64_t c = k->cut.channels, from = pixel * c + b->first + at;                                                 \
        const T *in[2] = {(const T *)k->in[0] + from, (const T *)k->x + from};                                         \
        wn__f64 sum[2];                                                                                                \
        FEW v[5] = {[4] = (FEW){0} + WN_RELU_LIMIT_##S}, dy, x;                                                        \
        for (int i = 0; i < 2; i++) wn__read_f64(&sum[i], b->sum[i] + at, LANES);                                      \
        wn__read_few_##F(&v[0], b->mean.F + at, LANES);                                                                \
        wn__read_few_##F(&v[1], b->rstd.F + at, LANES);                                                                \
        wn__read_few_##F(&v[2], b->w.F + at, LANES);                                                                   \
        wn__read_few_##F(&v[3], b->b.F + at, LANES);                                                                   \
        for (int64_t i = 0; i < rows; i++) {                                                                           \
            wn__read_few_##S(&dy, in[0] + i * c, n);                                                                   \
            wn__read_few_##S(&x, in[1] + i * c, n);                                                                    \
            NAME##_term_##F(&dy, &x, v, sum);                                                                          \
        }                                                                                                              \
        for (int i = 0; i < 2; i++) wn__write_f64(b->sum[i] + at, &sum[i], LANES);                                     \
    }

/* INPUTS: images that are read. */
#define LOOPS(NAME, S, T, F, FEW, INPUTS, READ)                                                                        \
    ADD(NAME, S, T, F, FEW)                                                                                            \
    static void NAME##_down_##S(const struct sums *k, int64_t pixel, int64_t n, struct block *b,                       \
                                struct wn__prefetch next[2])                                                           \
    {                                                                                                                  \
        for (int64_t at = 0; at + LANES <= n; at += LANES) {                                                           \
            for (int i = 0; i < INPUTS; i++) wn__prefetch_lines_far(&next[i], ROWS *LANES *(int64_t)sizeof(T) / 64);   \
            NAME##_add_##S(k, pixel, ROWS, at, LANES, b);                                                              \
        }                                                                                                              \
    }                                                                                                                  \
    static void NAME##_across_##S(const struct sums *k, const int64_t pixels[2], int64_t at, int64_t n,                \
                                  struct block *b)                                                                     \
    {                                                                                                                  \
        for (; at < n; at += LANES)                                                                                    \
            NAME##_add_##S(k, pixels[0], pixels[1] - pixels[0], at, n - at < LANES ? n - at : LANES, b);               \
    }                                                                                                                  \
    static const struct loops NAME##_##S = {sizeof(T), READ, NAME##_down_##S, NAME##_across_##S, store_##S};

#define READ_AND_STORE(S, T, F, A, TAKE, PUT)                                                                          \
    static void read_##S(const struct sums *k, int64_t slab, int64_t n, struct block *b)                               \
    {                                                                                                                  \
        const int32_t has_rstd = k->cut.sums == 2;                                                                     \
        const T *mean = (const T *)k->in[has_rstd ? 2 : 1] + slab * k->cut.groups;                                     \
        const T *rstd = (const T *)k->in[has_rstd ? 3 : 1] + slab * k->cut.groups;                                     \
        for (int64_t j = 0; j < n; j++) b->mean.F[j] = TAKE(mean[(b->first + j) / k->cut.each]);                       \
        for (int64_t j = 0; j < n; j++) b->rstd.F[j] = TAKE(rstd[(b->first + j) / k->cut.each]);                       \
    }                                                                                                                  \
    static void read_relu_##S(const struct sums *k, int64_t slab, int64_t n, struct block *b)                          \
    {                                                                                                                  \
        read_##S(k, slab, n, b);                                                                                       \
        for (int64_t j = 0; j < n; j++) b->w.F[j] = TAKE(((const T *)k->in[4])[b->first + j]);                         \
        for (int64_t j = 0; j < n; j++) b->b.F[j] = TAKE(((const T *)k->in[5])[b->first + j]);                         \
    }                                                                                                                  \
    static void store_##S(void *out, int64_t at, const double *value, int64_t n)                                       \
    {                                                                                                                  \
        for (int64_t j = 0; j < n; j++) ((T *)out)[at + j] = PUT((A)value[j]);                                         \
    }

#define DTYPE(S, T, F, A, FEW, TAKE, PUT)                                                                              \
    READ_AND_STORE(S, T, F, A, TAKE, PUT)                                                                              \
    LOOPS(mean, S, T, F, FEW, 1, NULL)                                                                                 \
    LOOPS(square, S, T, F, FEW, 1, read_##S)                                                                           \
    LOOPS(gradient, S, T, F, FEW, 2, read_##S)                                                                         \
    LOOPS(relu, S, T, F, FEW, 2, read_relu_##S)

DTYPE(f32, float, f32, float, wn__few, WN_SAME, WN_SAME)
DTYPE(f64, double, f64, double, wn__f64, WN_SAME, WN_SAME)
DTYPE(bf16, uint16_t, f32, float, wn__few, wn_from_bf16, wn_to_bf16)

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

#define LOOPS_OF(name)                                                                                                 \
    {                                                                                                                  \
        [WN_F32] = &name##_f32, [WN_F64] = &name##_f64, [WN_BF16] = &name##_bf16                                       \
    }
static const struct loops *const loops_of[WN_OP_COUNT][WN_DTYPE_COUNT] = {[WN_OP_CHANNEL_MEAN] = LOOPS_OF(mean),
                                                                          [WN_OP_CHANNEL_RSTD] = LOOPS_OF(square),
                                                                          [WN_OP_BATCH_NORM_SUMS] = LOOPS_OF(gradient),
                                                                          [WN_OP_RELU_NORM_SUMS] = LOOPS_OF(relu)};

static int32_t sums(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    struct sums k = {.in = b->in, .out = b->out, .eps = d->attrs.f[0], .partial = b->workspace};
    (void)stream;
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
    if (loops_of[d->op][d->out.dtype] == NULL) return wn__cpu_batch_norm_kernel(d);
    return loops_of[d->op][d->out.dtype] ? sums : NULL;
}
