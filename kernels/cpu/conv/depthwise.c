/* Depthwise convolutions: as many groups as channels, one output each. All three are loops over channels, which are
 * contiguous, LANES at a time:
 *
 *     y, dx    sum over taps of image(pixel at tap, channel) w(channel, tap), for PIXELS pixels at a time
 *     dw       sum over pixels of image(pixel at tap, channel) dy(pixel, channel), for TAPS taps at a time; the sums of
 *              all taps and channels of a block are on the stack from one k-block of pixels to the next
 *
 * The chains are those of conv.h, with the same zeros: y and dx over (kh, kw), dw over (n, p, q). bf16 is widened to
 * f32 on all processors, and rounded once. f64 rounds each product (words.c). */
#include <math.h>
#include <string.h>
#include "conv.h"

#define LANES 16
#define PIXELS 4
#define TAPS 5
#define CHANNELS 256 /* of a block */
#define TAPS_MOST 64 /* of a kernel */
#define KC 32        /* pixels of a k-block of dw */
#define ROWS 256     /* pixels of a block of y and dx */
#define AHEAD 4      /* pixels by which y and dx are prefetched */
#define SMALL 16384  /* so many multiply-adds are not worth a thread */

static const double zeros[CHANNELS]; /* what pixels outside of the image are, in any dtype */

static inline float multiply_add_f32(float a, float b, float c)
{
#if defined(FP_FAST_FMAF)
    return fmaf(a, b, c);
#else
    return a * b + c;
#endif
}

static inline double multiply_add_f64(double a, double b, double c)
{
    return a * b + c;
}

/* A block: channels [channel, channel + n) of pixels [row, row + rows). */
struct block {
    const struct wn__conv_job *w;
    int64_t channel, n, row, rows, taps;
};

/* Writes what n pixels read, from the first channel of the block on: at: (taps, n) pointers, `ld` from tap to tap. */
static void set_pointers(const struct block *f, const struct wn__conv_pixel *p, int64_t n, const char **at, int64_t ld)
{
    const struct wn__conv_job *w = f->w;
    const int64_t size = w->words.gemm.size;
    for (int64_t r = 0; r < w->axis[0].taps; r++)
        for (int64_t s = 0; s < w->axis[1].taps; s++, at += ld)
            for (int64_t i = 0; i < n; i++) {
                const int64_t y = p[i].at[0] + r * w->axis[0].each, x = p[i].at[1] + s * w->axis[1].each;
                const int32_t is_inside = y >= 0 && y < w->axis[0].size && x >= 0 && x < w->axis[1].size;
                at[i] = is_inside ? p[i].image + ((y * w->axis[1].size + x) * w->channels + f->channel) * size
                                  : (const char *)zeros;
            }
}

/* The sums of one micro-tile: those of PIXELS pixels, or of TAPS taps. */
union tile {
    float f32[TAPS][LANES];
    double f64[TAPS][LANES];
};
_Static_assert(TAPS >= PIXELS, "a tile has room for pixels");

/* One micro-tile: channels [at, at + n) of a block. */
struct microtile {
    const char *const *from; /* y, dx: (steps, PIXELS); dw: (TAPS, KC), of which `steps` are pixels of the k-block */
    int64_t steps;           /* of k */
    const char *other;       /* y, dx: the weight, (steps, CHANNELS) sums; dw: dy, rows `stride` bytes apart */
    int64_t stride;
    int64_t at, n;
};

/* Holds all that differs between element types. */
struct loops {
    int64_t sum; /* bytes of a sum */
    void (*pixels)(const struct microtile *t, union tile *out);
    void (*taps)(const struct microtile *t, union tile *sums);
    void (*widen)(const void *from, int64_t at, void *to, int64_t to_at); /* an element to a sum */
};

#define SAME(x) (x)
#define INLINE static inline __attribute__((always_inline))

/* Computes PIXELS pixels over all taps; n: t->n, a constant where all lanes are channels. */
#define PIXELS_OF(S, T, F, SUM, LOAD, MULTIPLY_ADD)                                                                    \
    INLINE void pixels_n_##S(const struct microtile *t, const int64_t n, union tile *out)                              \
    {                                                                                                                  \
        SUM acc[PIXELS][LANES] = {{0}};                                                                                \
        const char *const *from = t->from;                                                                             \
        const SUM *weight = (const SUM *)(const void *)t->other + t->at;                                               \
        for (int64_t k = t->steps; k > 0; k--, from += PIXELS, weight += CHANNELS)                                     \
            _Pragma("GCC unroll 4") for (int32_t i = 0; i < PIXELS; i++)                                               \
            {                                                                                                          \
                const T *x = (const T *)(const void *)from[i] + t->at;                                                 \
                for (int64_t j = 0; j < n; j++) acc[i][j] = MULTIPLY_ADD(LOAD(x[j]), weight[j], acc[i][j]);            \
            }                                                                                                          \
        for (int32_t i = 0; i < PIXELS; i++)                                                                           \
            for (int64_t j = 0; j < LANES; j++) out->F[i][j] = acc[i][j];                                              \
    }

/* Computes TAPS taps over all pixels of a k-block. */
#define TAPS_OF(S, T, F, SUM, LOAD, MULTIPLY_ADD)                                                                      \
    INLINE void taps_n_##S(const struct microtile *t, const int64_t n, union tile *sums)                               \
    {                                                                                                                  \
        SUM acc[TAPS][LANES];                                                                                          \
        const char *other = t->other;                                                                                  \
        for (int32_t i = 0; i < TAPS; i++)                                                                             \
            for (int64_t j = 0; j < LANES; j++) acc[i][j] = sums->F[i][j];                                             \
        for (int64_t k = 0; k < t->steps; k++, other += t->stride) {                                                   \
            const T *dy = (const T *)(const void *)other + t->at;                                                      \
            _Pragma("GCC unroll 5") for (int32_t i = 0; i < TAPS; i++)                                                 \
            {                                                                                                          \
                const T *x = (const T *)(const void *)t->from[i * KC + k] + t->at;                                     \
                for (int64_t j = 0; j < n; j++) acc[i][j] = MULTIPLY_ADD(LOAD(x[j]), LOAD(dy[j]), acc[i][j]);          \
            }                                                                                                          \
        }                                                                                                              \
        for (int32_t i = 0; i < TAPS; i++)                                                                             \
            for (int64_t j = 0; j < LANES; j++) sums->F[i][j] = acc[i][j];                                             \
    }

#define LOOPS(S, T, F, SUM, LOAD, MULTIPLY_ADD)                                                                        \
    PIXELS_OF(S, T, F, SUM, LOAD, MULTIPLY_ADD)                                                                        \
    TAPS_OF(S, T, F, SUM, LOAD, MULTIPLY_ADD)                                                                          \
    static void pixels_##S(const struct microtile *t, union tile *out)                                                 \
    {                                                                                                                  \
        if (t->n == LANES) pixels_n_##S(t, LANES, out);                                                                \
        else pixels_n_##S(t, t->n, out);                                                                               \
    }                                                                                                                  \
    static void taps_##S(const struct microtile *t, union tile *sums)                                                  \
    {                                                                                                                  \
        if (t->n == LANES) taps_n_##S(t, LANES, sums);                                                                 \
        else taps_n_##S(t, t->n, sums);                                                                                \
    }                                                                                                                  \
    static void widen_##S(const void *from, int64_t at, void *to, int64_t to_at)                                       \
    {                                                                                                                  \
        ((SUM *)to)[to_at] = LOAD(((const T *)from)[at]);                                                              \
    }                                                                                                                  \
    static const struct loops loops_##S = {sizeof(SUM), pixels_##S, taps_##S, widen_##S};
LOOPS(f32, float, f32, float, SAME, multiply_add_f32)
LOOPS(f64, double, f64, double, SAME, multiply_add_f64)
LOOPS(bf16, uint16_t, f32, float, wn_from_bf16, multiply_add_f32)

static const struct loops *loops_of(const struct wn__conv_job *w)
{
    return w->words.gemm.size == 8 ? &loops_f64 : w->words.gemm.size == 4 ? &loops_f32 : &loops_bf16;
}

/* ---- y and dx ---------------------------------------------------------------------------------- */

/* Copies the weight of a block: to (taps, CHANNELS) sums. */
static void take_weight(const struct block *f, const struct loops *loops, void *to)
{
    for (int64_t tap = 0; tap < f->taps; tap++) {
        const int64_t at = wn__conv_kernel_tap(f->w, tap);
        for (int64_t c = 0; c < f->n; c++)
            loops->widen(f->w->w, wn__conv_weight_at(f->w->weight, f->channel + c, 0, at), to, tap * CHANNELS + c);
    }
}

/* Computes n pixels, at most PIXELS; p has PIXELS. */
static void run_pixels(const struct block *f, const struct loops *loops, const struct wn__conv_pixel *p, int64_t n,
                       const void *weight)
{
    const struct wn__conv_job *w = f->w;
    const int64_t size = w->words.gemm.size;
    const char *from[TAPS_MOST * PIXELS];
    union tile tile;
    set_pointers(f, p, PIXELS, from, PIXELS);
    struct microtile t = {.from = from, .steps = f->taps, .other = weight};
    for (t.at = 0; t.at < f->n; t.at += LANES) {
        t.n = wn_min(f->n - t.at, LANES);
        loops->pixels(&t, &tile);
        const int64_t c = f->channel + t.at;
        for (int64_t i = 0; i < n; i++)
            w->words.gemm.store((const float *)(const void *)((const char *)&tile + i * LANES * loops->sum),
                                w->bias ? (const char *)w->bias + c * size : NULL, t.n,
                                w->out + (p[i].out * w->out_channels + c) * size);
    }
}

/* Prefetches what a pixel reads at its last tap, and its result. */
static void prefetch_pixel(const struct block *f, const struct wn__conv_pixel *p)
{
    const struct wn__conv_job *w = f->w;
    const int64_t size = w->words.gemm.size, x = p->at[1] + (w->axis[1].taps - 1) * w->axis[1].each;
    const int64_t y = p->at[0] + (w->axis[0].each > 0 ? (w->axis[0].taps - 1) * w->axis[0].each : 0);
    char *out = w->out + (p->out * w->out_channels + f->channel) * size;
    for (int64_t at = 0; at < f->n * size; at += 64) __builtin_prefetch(out + at, 1);
    if (y < 0 || y >= w->axis[0].size || x < 0 || x >= w->axis[1].size) return;
    wn__fetch(p->image + ((y * w->axis[1].size + x) * w->channels + f->channel) * size, f->n * size);
}

static void images_block(const struct block *f)
{
    char weight[TAPS_MOST * CHANNELS * sizeof(double)] __attribute__((aligned(64)));
    struct wn__conv_pixel p[ROWS + PIXELS];
    const struct loops *loops = loops_of(f->w);
    take_weight(f, loops, weight);
    wn__conv_pixels(f->w, 0, f->row, f->rows, p);
    for (int64_t i = 0; i < PIXELS; i++) p[f->rows + i] = p[f->rows - 1];
    for (int64_t i = 0; i < f->rows; i += PIXELS) {
        for (int64_t j = i + AHEAD; j < wn_min(i + AHEAD + PIXELS, f->rows); j++) prefetch_pixel(f, p + j);
        const int64_t n = wn_min(f->rows - i, PIXELS);
        run_pixels(f, loops, p + i, n, weight);
        wn__conv_finish(f->w->epilogue, p[i].out, n, f->channel, f->n); /* pixels of y are in order */
    }
}

static void images_tasks(int64_t begin, int64_t end, void *ctx)
{
    const struct wn__conv_job *w = ctx;
    const int64_t rows = w->images * w->axis[0].pixels * w->axis[1].pixels;
    for (int64_t task = begin; task < end; task++) {
        struct block f = {.w = w, .taps = w->steps};
        f.channel = task / w->row_parts * w->column_block;
        f.n = wn_min(w->groups - f.channel, w->column_block);
        f.row = task % w->row_parts * w->row_block;
        f.rows = wn_min(rows - f.row, w->row_block);
        images_block(&f);
    }
}

static void images(struct wn__conv_job *w)
{
    const int64_t rows = w->images * w->axis[0].pixels * w->axis[1].pixels;
    if (rows == 0) return;
    w->column_block = CHANNELS;
    w->column_parts = (w->groups + CHANNELS - 1) / CHANNELS;
    w->row_parts = (rows + ROWS - 1) / ROWS;
    w->row_block = ROWS;
    wn__parallel_tasks(w->row_parts * w->column_parts, SMALL / (ROWS * wn_min(w->groups, CHANNELS) * w->steps + 1) + 1,
                       images_tasks, w);
}

/* ---- dw ---------------------------------------------------------------------------------------- */

/* Adds the pixels of a k-block, n of them from `at` on: sums: (taps rounded up to TAPS, CHANNELS / LANES) rows of
 * LANES. */
static void add_pixels(const struct block *f, const struct loops *loops, int64_t at, int64_t n, char *sums)
{
    const struct wn__conv_job *w = f->w;
    const int64_t size = w->words.gemm.size, row = LANES * loops->sum;
    const char *from[(TAPS_MOST + TAPS) * KC];
    struct wn__conv_pixel p[KC];
    wn__conv_pixels(w, 0, at, n, p);
    set_pointers(f, p, n, from, KC);
    for (int64_t i = f->taps; i % TAPS != 0; i++)
        memcpy(from + i * KC, from, KC * sizeof *from); /* sums that nobody reads */
    struct microtile t = {.steps = n, .stride = w->out_channels * size};
    t.other = w->w + (at * w->out_channels + f->channel) * size;
    for (t.at = 0; t.at < f->n; t.at += LANES) {
        t.n = wn_min(f->n - t.at, LANES);
        for (int64_t tap = 0; tap < f->taps; tap += TAPS) {
            t.from = from + tap * KC;
            loops->taps(&t, (union tile *)(void *)(sums + (t.at / LANES * (TAPS_MOST + TAPS) + tap) * row));
        }
    }
}

static void gradient_block(const struct block *f)
{
    char sums[(TAPS_MOST + TAPS) * CHANNELS * sizeof(double)] __attribute__((aligned(64)));
    const struct wn__conv_job *w = f->w;
    const struct loops *loops = loops_of(w);
    const int64_t size = w->words.gemm.size;
    memset(sums, 0, sizeof sums);
    for (int64_t at = 0; at < f->rows; at += KC) add_pixels(f, loops, at, wn_min(f->rows - at, KC), sums);
    for (int64_t c = 0; c < f->n; c++)
        for (int64_t tap = 0; tap < f->taps; tap++) {
            const int64_t at = (c / LANES * (TAPS_MOST + TAPS) + tap) * LANES + c % LANES;
            w->words.gemm.store((const float *)(const void *)(sums + at * loops->sum), NULL, 1,
                                w->out + wn__conv_weight_at(w->weight, f->channel + c, 0, tap) * size);
        }
}

static void gradient_tasks(int64_t begin, int64_t end, void *ctx)
{
    const struct wn__conv_job *w = ctx;
    for (int64_t task = begin; task < end; task++) {
        struct block f = {.w = w, .channel = task * w->column_block, .taps = w->steps};
        f.n = wn_min(w->groups - f.channel, w->column_block);
        f.rows = w->images * w->axis[0].pixels * w->axis[1].pixels;
        gradient_block(&f);
    }
}

static void gradient(struct wn__conv_job *w)
{
    const int64_t vectors = (w->groups + LANES - 1) / LANES, threads = wn_cpu_threads();
    const int64_t parts = wn_max((w->groups + CHANNELS - 1) / CHANNELS, wn_min(threads, vectors));
    w->column_block = (vectors + parts - 1) / parts * LANES;
    w->column_parts = (w->groups + w->column_block - 1) / w->column_block;
    const int64_t pixels = w->images * w->axis[0].pixels * w->axis[1].pixels;
    wn__parallel_tasks(w->column_parts, SMALL / (pixels * w->column_block * w->steps + 1) + 1, gradient_tasks, w);
}

int32_t wn__conv_depthwise(struct wn__conv_job *w, int32_t is_gradient)
{
    if (w->depth != 1 || w->columns != 1 || w->groups == 1 || w->steps > TAPS_MOST) return 0;
    if (is_gradient) gradient(w);
    else images(w);
    return 1;
}
