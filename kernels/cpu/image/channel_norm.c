/* BATCH_NORM and BATCH_NORM_DX, and with elementwise ops BATCH_NORM_MAP and RELU_NORM_DX, over images in memory order
 * (N, H, W, C) (runtime/ops/channel.c and fused_image.c have the formulas; the rows are in channel.h). Each element is
 * computed as layer norm computes it, in f32 for f32 and bf16:
 *
 *     y = fma((x - mean) rstd, w, b)        dx = rstd ((dy w - A / n) - (x - mean) rstd (B / n))
 *
 * RELU_NORM_DX takes dy where y is above 0. BATCH_NORM_MAP computes y of a few pixels and then each step over them.
 * A / n and B / n are computed in double, sums over the channels of a group in order, and rounded once. The numbers of
 * the channels are copied before anything is written, and each element is read before its place is written, so the
 * result may be where an input is. Threads share pixels. */
#include "channel_norm.h"
#include <stddef.h>
#include "channel.h"
#include "../common/cpu.h"
#include "../element/elementwise.h"

#define BLOCK 4096 /* bytes that are computed and then streamed; 16384: 1.2x time */

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

/* The numbers of the channels, of any dtype. */
union channels {
    struct wn__channels_f32 f32;
    struct wn__channels_f64 f64;
};

/* The loops of an op and a dtype. */
struct loops {
    int64_t size; /* bytes of an element */
    /* Reads the numbers of n channels from `at` on, of a slab. */
    void (*read)(const struct norm *k, int64_t slab, int64_t at, int64_t n, union channels *v);
    void (*rows)(const struct norm *k, const struct pixels *p, const union channels *v);
};

/* ---- loops ------------------------------------------------------------------------------------------------- */

/* Defines the numbers that both ops read. */
#define READ(S, T, F, TAKE)                                                                                            \
    static void read_##S(const struct norm *k, int64_t slab, int64_t at, int64_t n, union channels *v)                 \
    {                                                                                                                  \
        const T *mean = (const T *)k->in[k->inputs] + slab * k->cut.groups;                                            \
        const T *rstd = (const T *)k->in[k->inputs + 1] + slab * k->cut.groups, *w = k->in[k->inputs + 2];             \
        for (int64_t j = 0; j < n; j++) {                                                                              \
            v->F.mean[j] = TAKE(mean[(at + j) / k->cut.each]);                                                         \
            v->F.rstd[j] = TAKE(rstd[(at + j) / k->cut.each]);                                                         \
            v->F.w[j] = TAKE(w[at + j]);                                                                               \
        }                                                                                                              \
    }

/* Defines the numbers of the derivative: those of a group are summed for each of its channels in a block. */
#define READ_DX(S, T, F, A, TAKE)                                                                                      \
    static void read_dx_##S(const struct norm *k, int64_t slab, int64_t at, int64_t n, union channels *v)              \
    {                                                                                                                  \
        int64_t each = k->cut.each, c = k->cut.channels;                                                               \
        const T *w = k->in[4], *s0 = (const T *)k->in[5] + slab * c, *s1 = s0 + k->cut.slabs * c;                      \
        double sum_a = 0, sum_b = 0, count = (double)(k->cut.rows * each);                                             \
        read_##S(k, slab, at, n, v);                                                                                   \
        for (int64_t j = 0; j < n; j++) {                                                                              \
            int64_t first = (at + j) / each * each;                                                                    \
            if (j == 0 || at + j == first) {                                                                           \
                sum_a = sum_b = 0;                                                                                     \
                for (int64_t i = first; i < first + each; i++) {                                                       \
                    sum_a += (double)TAKE(w[i]) * (double)TAKE(s1[i]);                                                 \
                    sum_b += (double)TAKE(w[i]) * (double)TAKE(s0[i]);                                                 \
                }                                                                                                      \
            }                                                                                                          \
            v->F.c1[j] = (A)(sum_a / count);                                                                           \
            v->F.c2[j] = (A)(sum_b / count);                                                                           \
        }                                                                                                              \
    }

/* Defines the numbers of the ops that read a bias: the norm's input 4, the last of the derivative with relu. */
#define READ_BIAS(S, T, F, TAKE)                                                                                       \
    static void read_norm_##S(const struct norm *k, int64_t slab, int64_t at, int64_t n, union channels *v)            \
    {                                                                                                                  \
        read_##S(k, slab, at, n, v);                                                                                   \
        for (int64_t j = 0; j < n; j++) v->F.b[j] = TAKE(((const T *)k->in[4])[at + j]);                               \
    }                                                                                                                  \
    static void read_relu_##S(const struct norm *k, int64_t slab, int64_t at, int64_t n, union channels *v)            \
    {                                                                                                                  \
        read_dx_##S(k, slab, at, n, v);                                                                                \
        for (int64_t j = 0; j < n; j++) v->F.b[j] = TAKE(((const T *)k->in[6])[at + j]);                               \
    }

#define ROWS(S, T, F)                                                                                                  \
    static void rows_norm_##S(const struct norm *k, const struct pixels *p, const union channels *v)                   \
    {                                                                                                                  \
        int64_t c = k->cut.channels, from = p->first * c + p->at;                                                      \
        const T *x = (const T *)k->in[0] + from;                                                                       \
        for (int64_t i = 0; i < p->count; i++) {                                                                       \
            if (k->streams) wn__fetch_behind(x + i * c, 2 * wn__tuning.stream_ahead, p->n * (int64_t)sizeof(T));       \
            wn__batch_norm_row_##S((T *)p->to + i * p->step, x + i * c, &v->F, p->n);                                  \
        }                                                                                                              \
    }

#define ROWS_DX(NAME, ROW, S, T, F)                                                                                    \
    static void NAME##_##S(const struct norm *k, const struct pixels *p, const union channels *v)                      \
    {                                                                                                                  \
        int64_t c = k->cut.channels, from = p->first * c + p->at;                                                      \
        const T *dy = (const T *)k->in[0] + from, *x = (const T *)k->in[1] + from;                                     \
        for (int64_t i = 0; i < p->count; i++) {                                                                       \
            if (k->streams) wn__fetch_behind(dy + i * c, 2 * wn__tuning.stream_ahead, p->n * (int64_t)sizeof(T));      \
            if (k->streams) wn__fetch_behind(x + i * c, 2 * wn__tuning.stream_ahead, p->n * (int64_t)sizeof(T));       \
            ROW##_##S((T *)p->to + i * p->step, dy + i * c, x + i * c, &v->F, p->n);                                   \
        }                                                                                                              \
    }

#define LOOPS(S, T, F, A, TAKE, PUT)                                                                                   \
    WN_CHANNEL_ROWS(S, T, F, TAKE, PUT)                                                                                \
    WN_RELU_NORM_ROWS(S, T, F, TAKE, PUT)                                                                              \
    READ(S, T, F, TAKE)                                                                                                \
    READ_DX(S, T, F, A, TAKE)                                                                                          \
    READ_BIAS(S, T, F, TAKE)                                                                                           \
    ROWS(S, T, F)                                                                                                      \
    ROWS_DX(rows_dx, wn__batch_norm_dx_row, S, T, F)                                                                   \
    ROWS_DX(rows_relu, wn__relu_norm_dx_row, S, T, F)                                                                  \
    static const struct loops norm_##S = {sizeof(T), read_norm_##S, rows_norm_##S};                                    \
    static const struct loops dx_##S = {sizeof(T), read_dx_##S, rows_dx_##S};                                          \
    static const struct loops relu_##S = {sizeof(T), read_relu_##S, rows_relu_##S};

LOOPS(f32, float, f32, float, WN_SAME, WN_SAME)
LOOPS(f64, double, f64, double, WN_SAME, WN_SAME)
LOOPS(bf16, uint16_t, f32, float, wn_from_bf16, wn_to_bf16)

/* ---- the driver -------------------------------------------------------------------------------------------- */

/* Computes the steps over n elements of the norm, from element `at` of the images on, which are in `block`. */
static void run_steps(const struct norm *k, int64_t at, int64_t n, char *block, char *out)
{
    for (int32_t s = 0; s < k->steps.n; s++) {
        const int32_t *v = k->steps.step[s].operand;
        const char *in[2];
        for (int32_t j = 0; j < 2; j++)
            in[j] = v[j] == 0 ? block : (const char *)k->in[WN_NORM_INPUTS + v[j] - 1] + at * k->loops->size;
        int32_t has_two = wn__elementwise_operands(k->steps.step[s].op) == 2;
        struct wn__operands o = {
            .out = s + 1 == k->steps.n ? out : block, .a = in[0], .b = has_two ? in[1] : NULL, .sa = 1, .sb = 1};
        wn__elementwise_run(&k->step[s], &o, n, at);
    }
}

/* Computes channels [at, at + n) of pixels [begin, end), which are of one slab. */
static void pass(const struct norm *k, int64_t begin, int64_t end, int64_t at, int64_t n, const union channels *v)
{
    _Alignas(64) char block[WN_CHANNELS * sizeof(double)]; /* a pixel, or BLOCK */
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
        k->loops->rows(k, &p, v);
        if (k->steps.n > 0) run_steps(k, pixel * c + at, p.count * n, block, k->streams ? block : out);
        if (k->streams) wn__stream(out, block, p.count * n * size);
    }
}

/* Computes pixels [begin, end). */
static void norm_pixels(int64_t begin, int64_t end, void *ctx)
{
    const struct norm *k = ctx;
    union channels v;
    for (int64_t at = 0; at < k->cut.channels; at += WN_CHANNELS) {
        int64_t n = wn_min(k->cut.channels - at, WN_CHANNELS);
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

#define LOOPS_OF(name)                                                                                                 \
    {                                                                                                                  \
        [WN_F32] = &name##_f32, [WN_F64] = &name##_f64, [WN_BF16] = &name##_bf16                                       \
    }
static const struct loops *const loops_of[WN_OP_COUNT][WN_DTYPE_COUNT] = {[WN_OP_BATCH_NORM] = LOOPS_OF(norm),
                                                                          [WN_OP_BATCH_NORM_MAP] = LOOPS_OF(norm),
                                                                          [WN_OP_BATCH_NORM_DX] = LOOPS_OF(dx),
                                                                          [WN_OP_RELU_NORM_DX] = LOOPS_OF(relu)};

static int32_t norm(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    struct norm k = {.in = b->in, .out = b->out, .loops = loops_of[d->op][d->out.dtype], .steps = {.n = 0}};
    (void)stream;
    k.inputs = d->op == WN_OP_BATCH_NORM || d->op == WN_OP_BATCH_NORM_MAP ? 1 : 2;
    k.cut = wn__channel_cut_of(d);
    k.streams = wn__streams(wn__bytes(&d->out), b->out, b->in[0], b->in[1]);
    if (d->op == WN_OP_BATCH_NORM_MAP) k.steps = wn__fused_get(&d->attrs);
    for (int32_t s = 0; s < k.steps.n; s++)
        wn__elementwise_of(k.steps.step[s].op, d->out.dtype, d->attrs.f, b, &k.step[s]);
    wn__parallel_for(k.cut.slabs * k.cut.rows, WN_CPU_GRAIN / k.cut.channels + 1, norm_pixels, &k);
    return WN_OK;
}

wn_kernel_fn wn__cpu_batch_norm_kernel(const struct wn_desc *d)
{
    struct wn__elementwise step;
    struct wn__fused c = {.n = 0};
    if (d->op == WN_OP_BATCH_NORM_MAP) c = wn__fused_get(&d->attrs);
    for (int32_t s = 0; s < c.n; s++)
        if (!wn__elementwise_of(c.step[s].op, d->out.dtype, d->attrs.f, NULL, &step)) return NULL;
    return loops_of[d->op][d->out.dtype] != NULL ? norm : NULL;
}
