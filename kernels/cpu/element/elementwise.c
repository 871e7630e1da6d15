/* The driver of elementwise ops (elementwise.h), the fused elementwise op that rewrites make
 * (runtime/plan/ir/rewrite.c), and the lookup of the other ops that they make.
 *
 * An application is a list of steps, of which most have one, over the rows of the broadcast iterator
 * (common/broadcast.c), which makes equal shapes and scalar operands one long row. A fused elementwise op goes through
 * its operands one tile at a time, all steps over one tile before the next tile:
 *
 *     inputs   | tile 0 | tile 1 | ...         step 0 -> tile buffer -> step 1 -> tile buffer -> last step
 *     result   | tile 0 | tile 1 | ...
 *
 * So values between steps stay in the first-level cache, and only operands and result pass through memory. It may run
 * in place: the operands of a tile are read before its result is written, but for the last step, which reads an element
 * before it writes it. bf16 is computed by tiles in the f32 loops. */
#include "elementwise.h"
#include <stddef.h>
#include "../../../runtime/base/number.h"
#include "../../../runtime/base/type.h"
#include "../common/bf16.h"

#define TILE WN_TILE /* elements: 4 KiB of f32; the values of all steps fit the first-level cache */
/* Bytes of a tile whose result streams, of its narrowest operand or the result: few lines are prefetched at once, so
 * that they arrive while a step computes; many would wait for each other, and the step for them. Elements of 8 bytes
 * count as 4.
 * Measured, share of the limit, f32, 2048 -> 512 bytes: relu(x y + b) 69 -> 83 %, silu(x y) 55 -> 90 % (nothing else on
 * the cores). Time: exp 0.80x, gelu 0.82x, dropout 0.78x, f32 to f64 0.90x, relu and add 0.97 to 1.00x. Time of
 * u8 to f32 and f32 to u8, 128 -> 512 bytes: 0.80x (Zen 2). */
#define STREAMED_TILE 512

/* ---- one op over a row --------------------------------------------------------------------------- */

int32_t wn__elementwise_of(int32_t op, int32_t dtype, const double f[2], const struct wn_buffers *b,
                           struct wn__elementwise *e)
{
    const int32_t number = dtype == WN_BF16 ? WN_F32 : dtype;
    *e = (struct wn__elementwise){.n = wn__elementwise_operands(op),
                                  .is_bf16 = dtype == WN_BF16,
                                  .is_math = op == WN_OP_POW || op == WN_OP_DROPOUT || wn__cpu_unary_is_math(op),
                                  .size = wn__dtype_size(dtype),
                                  .f = {f[0], f[1]}};
    e->loop = op == WN_OP_DROPOUT ? wn__cpu_dropout_loop(number) : wn__cpu_unary_loop(op, number);
    if (e->loop == NULL) e->loop = wn__cpu_binary_loop(op, number);
    if (op == WN_OP_DROPOUT && b != NULL) e->seed = b->seed, e->counter = b->counter;
    return e->loop != NULL;
}

/* Computes bf16 elements, one tile at a time: converts operands, runs the f32 loop, rounds a result of bf16. */
static void run_halves(const struct wn__elementwise *e, const struct wn__operands *o, int64_t n, int64_t at)
{
    float wide[WN_OPERANDS][WN_TILE], result[WN_TILE];
    struct wn__operands tile = *o;
    for (int64_t i = 0; i < n; i += WN_TILE) {
        int64_t m = n - i < WN_TILE ? n - i : WN_TILE;
        for (int32_t k = 0; k < e->n; k++) {
            wn__widen(wide[k], (const uint16_t *)o->in[k] + i * o->step[k], o->step[k] ? m : 1);
            tile.in[k] = wide[k];
        }
        tile.out = e->size == 1 ? (void *)((char *)o->out + i) : result;
        e->loop(e, &tile, m, at + i);
        if (e->size != 1) wn__round((uint16_t *)o->out + i, result, m);
    }
}

void wn__elementwise_run(const struct wn__elementwise *e, const struct wn__operands *o, int64_t n, int64_t at)
{
    if (e->is_bf16) run_halves(e, o, n, at);
    else e->loop(e, o, n, at);
}

int32_t wn__elementwise_steps(const struct wn__fused *c, const struct wn_desc *d, const struct wn_buffers *b,
                              struct wn__elementwise *step)
{
    for (int32_t s = 0; s < c->n; s++)
        if (!wn__elementwise_of(c->step[s].op, d->out.dtype, d->attrs.f, b, &step[s])) return 0;
    return 1;
}

void wn__elementwise_run_steps(const struct wn__elementwise_run *r, int64_t n, int64_t at)
{
    for (int32_t s = 0; s < r->c->n; s++) {
        struct wn__operands o = {.out = s + 1 == r->c->n ? r->out : r->value, .step = {1, 1}};
        for (int32_t j = 0; j < 2; j++) {
            const int32_t v = r->c->step[s].operand[j];
            o.in[j] = v == 0 ? r->value : (const char *)r->in[v - 1] + at * r->step[s].size;
        }
        wn__elementwise_run(&r->step[s], &o, n, at);
    }
}

/* ---- the driver ---------------------------------------------------------------------------------- */

/* One application. */
struct application {
    struct wn__broadcast broadcast; /* over the inputs */
    int32_t n;                      /* steps */
    struct wn__elementwise step[WN_FUSED_STEPS];
    int32_t operand[WN_FUSED_STEPS][WN_OPERANDS]; /* as those of struct wn__fused */
    const char *in[WN_FUSED_INPUTS];
    int64_t in_size[WN_FUSED_INPUTS], size; /* bytes of an element of an input, of the result */
    char *out;
    int64_t tile;    /* elements of a tile, a power of two; 0: a row is one tile */
    int64_t share;   /* elements of a tile that a step prefetches */
    int32_t streams; /* out is stored non-temporally (common/nontemporal.h) */
};

/* Returns the address of an operand, an input or the tile of an earlier step, from element `at` of the row on. */
static const char *operand(const struct application *k, int32_t v, char *tiles, const int64_t *offset, int64_t at,
                           int64_t *step)
{
    if (v >= WN_FUSED_INPUTS) {
        *step = 1;
        return tiles + (v - WN_FUSED_INPUTS) * TILE * k->size;
    }
    *step = wn__broadcast_inner(&k->broadcast, v);
    return k->in[v] + (offset[v] + at * *step) * k->in_size[v];
}

/* Prefetches, block_ahead bytes behind a tile of n elements from `from` on, a part of every operand that is not
 * broadcast. Step `part` calls it, so that lines arrive while the step computes. */
static void prefetch_operands(const struct application *k, const int64_t *offset, int64_t from, int64_t n, int32_t part)
{
    const int64_t begin = wn_min(part * k->share, n), end = part + 1 == k->n ? n : wn_min(begin + k->share, n);
    for (int32_t v = 0; v < k->broadcast.n_operands; v++)
        if (wn__broadcast_inner(&k->broadcast, v))
            wn__prefetch_stream(k->in[v] + (offset[v] + from + begin) * k->in_size[v], (end - begin) * k->in_size[v]);
}

static void compute_row(void *ctx, int64_t at, int64_t n, const int64_t *offset)
{
    const struct application *k = ctx;
    char tiles[WN_FUSED_STEPS * TILE * sizeof(double)] __attribute__((aligned(64)));
    for (int64_t from = 0, stop; from < n; from = stop) {
        stop = k->tile == 0 ? n : k->streams ? ((at + from) | (k->tile - 1)) + 1 - at : from + k->tile;
        if (stop > n) stop = n;
        char *out = k->out + (at + from) * k->size, *last = tiles + (k->n - 1) * TILE * k->size;
        for (int32_t s = 0; s < k->n; s++) {
            if (k->streams) prefetch_operands(k, offset, from, stop - from, s);
            char *to = tiles + s * TILE * k->size;
            struct wn__operands o = {.out = to == last && !k->streams ? out : to};
            for (int32_t j = 0; j < k->step[s].n; j++)
                o.in[j] = operand(k, k->operand[s][j], tiles, offset, from, &o.step[j]);
            wn__elementwise_run(&k->step[s], &o, stop - from, at + from);
        }
        if (k->streams) wn__stream(out, last, (stop - from) * k->size);
    }
}

static void compute_part(int64_t begin, int64_t end, void *ctx)
{
    const struct application *k = ctx;
    wn__broadcast_range(&k->broadcast, begin, end, compute_row, ctx);
    if (k->streams) wn__stream_end();
}

/* Runs the steps of an application, in threads of at least `grain` elements. */
static void run(struct application *k, const struct wn_desc *d, const struct wn_buffers *b, int64_t grain)
{
    const struct wn_type *in[WN_FUSED_INPUTS];
    int32_t is_math = 0, is_over = 0; /* is_over: out is written over an input */
    k->out = b->out;
    k->size = wn__dtype_size(d->out.dtype);
    int64_t narrowest = wn_min(k->size, 4);
    for (int32_t i = 0; i < d->n_in; i++) {
        in[i] = &d->in[i];
        k->in[i] = b->in[i];
        k->in_size[i] = wn__dtype_size(d->in[i].dtype);
        narrowest = wn_min(narrowest, k->in_size[i]);
        is_over |= b->in[i] == b->out;
    }
    for (int32_t s = 0; s < k->n; s++) is_math |= k->step[s].is_math;
    const void *over = is_over ? b->out : NULL;
    k->streams = is_math ? wn__streams_math(wn__bytes(&d->out), b->out, over, NULL)
                         : wn__streams(wn__bytes(&d->out), b->out, over, NULL);
    k->tile = k->streams ? (d->n_in > 0 ? STREAMED_TILE / narrowest : WN_STREAM_BLOCK) : k->n > 1 ? TILE : 0;
    k->share = k->tile / k->n;
    wn__broadcast_make(&k->broadcast, &d->out, d->n_in, in);
    wn__parallel_for(k->broadcast.numel, grain, compute_part, k);
}

void wn__elementwise_whole(const struct wn_desc *d, const struct wn_buffers *b, const struct wn__elementwise *e,
                           int64_t grain)
{
    struct application k = {.n = 1, .step[0] = *e, .operand[0] = {0, 1, 2}};
    k.step[0].n = d->n_in;
    run(&k, d, b, grain);
}

/* ---- the fused op -------------------------------------------------------------------------------- */

static int32_t fused(const struct wn_desc *d, const struct wn_buffers *b, WN_NO_STREAM)
{
    const struct wn__fused steps = wn__fused_get(&d->attrs, 0);
    struct application k = {.n = steps.n};
    wn__elementwise_steps(&steps, d, b, k.step);
    for (int32_t s = 0; s < steps.n; s++)
        for (int32_t j = 0; j < 2; j++) k.operand[s][j] = steps.step[s].operand[j];
    run(&k, d, b, WN_CPU_GRAIN_MATH);
    return WN_OK;
}

/* Returns whether the operands of a step fit its loop: ops outside binary.c take no broadcast operand. */
static int32_t fits(const struct wn_desc *d, const struct wn__fused_step *s)
{
    if (wn__cpu_binary_loop(s->op, WN_F32)) return 1;
    for (int32_t j = 0; j < wn__elementwise_operands(s->op); j++)
        if (s->operand[j] < WN_FUSED_INPUTS && !wn__type_equal(&d->in[s->operand[j]], &d->out)) return 0;
    return 1;
}

static wn_kernel_fn fused_kernel(const struct wn_desc *d)
{
    struct wn__fused c = wn__fused_get(&d->attrs, 0);
    struct wn__elementwise step[WN_FUSED_STEPS];
    for (int32_t i = 0; i < d->n_in; i++)
        if (d->in[i].dtype != d->out.dtype) return NULL;
    for (int32_t s = 0; s < c.n; s++)
        if (!fits(d, &c.step[s])) return NULL;
    return wn__elementwise_steps(&c, d, NULL, step) ? fused : NULL;
}

wn_kernel_fn wn__cpu_fused_kernel(const struct wn_desc *d)
{
    switch (d->op) {
    case WN_OP_ELEMENTWISE: return wn__dtype_is_float(d->out.dtype) ? fused_kernel(d) : NULL;
    case WN_OP_MATMUL_MAP:
    case WN_OP_LINEAR_MAP: return wn__cpu_epilogue_kernel(d);
    case WN_OP_CONV2D_MAP: return wn__cpu_conv_map_kernel(d);
    case WN_OP_BATCH_NORM_MAP:
    case WN_OP_RELU_NORM_SUMS:
    case WN_OP_RELU_NORM_DX: return wn__cpu_channel_kernel(d);
    case WN_OP_LAYERNORM_DX_ADD: return d->out.dtype == WN_BF16 ? NULL : wn__cpu_norm_kernel(d);
    case WN_OP_PRODUCT_UPDATE: return wn__cpu_product_update_kernel(d);
    default: return NULL;
    }
}
