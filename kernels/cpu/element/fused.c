/* Ops that rewrites make (runtime/plan/ir/rewrite.c): fused elementwise ops, and the lookup of the fused products.
 *
 * A fused elementwise op goes through its operands one tile at a time, all steps over one tile before the next tile:
 *
 *     inputs   | tile 0 | tile 1 | ...         step 0 -> tile buffer -> step 1 -> tile buffer -> last step
 *     result   | tile 0 | tile 1 | ...
 *
 * So values between steps stay in the first-level cache, and only operands and result pass through memory. The loops
 * are those of the ops themselves (elementwise.h). It may run in place: the operands of a tile are read before its
 * result is written, but for the last step, which reads an element before it writes it. */
#include <stddef.h>
#include "../../../runtime/base/type.h"
#include "../common/bf16.h"
#include "elementwise.h"

#define TILE WN_TILE /* elements: 4 KiB of f32; the values of all steps fit the first-level cache */
/* Elements of a tile whose result streams: few lines are prefetched at once, so that they arrive while a step computes;
 * many would wait for each other, and the step for them.
 * Measured, share of the limit, 512 -> 128: relu(x y + b) 69 -> 83 %, silu(x y) 55 -> 90 % (nothing else on the
 * cores). */
#define STREAMED_TILE 128

/* One fused elementwise op. */
struct fused {
    struct wn__broadcast broadcast;              /* over the inputs */
    struct wn__fused steps;                      /* the ops and operands */
    struct wn__elementwise step[WN_FUSED_STEPS]; /* the loops */
    const char *in[WN_FUSED_INPUTS];
    char *out;
    int64_t size;    /* bytes of an element */
    int32_t streams; /* out is stored non-temporally (common/nontemporal.h) */
};

/* Returns the address of an operand of a step: the tile of an earlier step, or an input. */
static const char *operand(const struct fused *k, int32_t v, char *tiles, const int64_t *offset, int64_t at,
                           int64_t *step)
{
    if (v >= WN_FUSED_INPUTS) {
        *step = 1;
        return tiles + (v - WN_FUSED_INPUTS) * TILE * k->size;
    }
    *step = wn__broadcast_inner(&k->broadcast, v);
    return k->in[v] + (offset[v] + at * *step) * k->size;
}

/* Prefetches, block_ahead bytes behind a tile of n elements from `from` on, a part of every operand that is not
 * broadcast. Step `part` calls it, so that lines arrive while the step computes. */
static void prefetch_operands(const struct fused *k, const int64_t *offset, int64_t from, int64_t n, int32_t part)
{
    int64_t begin = n * part / k->steps.n, end = n * (part + 1) / k->steps.n;
    for (int32_t v = 0; v < k->broadcast.n_operands; v++)
        if (wn__broadcast_inner(&k->broadcast, v))
            wn__prefetch_stream(k->in[v] + (offset[v] + from + begin) * k->size, (end - begin) * k->size);
}

static void fused_row(void *ctx, int64_t at, int64_t n, const int64_t *offset)
{
    const struct fused *k = ctx;
    char tiles[WN_FUSED_STEPS * TILE * sizeof(double)] __attribute__((aligned(64)));
    for (int64_t from = 0, stop; from < n; from = stop) {
        stop = k->streams ? ((at + from) / STREAMED_TILE + 1) * STREAMED_TILE - at : from + TILE;
        if (stop > n) stop = n;
        char *out = k->out + (at + from) * k->size, *last = tiles + (k->steps.n - 1) * TILE * k->size;
        for (int32_t s = 0; s < k->steps.n; s++) {
            if (k->streams) prefetch_operands(k, offset, from, stop - from, s);
            const int32_t *v = k->steps.step[s].operand;
            char *to = tiles + s * TILE * k->size;
            struct wn__operands o = {.out = to == last && !k->streams ? out : to, .sb = 1};
            o.a = operand(k, v[0], tiles, offset, from, &o.sa);
            if (wn__elementwise_operands(k->steps.step[s].op) == 2) o.b = operand(k, v[1], tiles, offset, from, &o.sb);
            wn__elementwise_run(&k->step[s], &o, stop - from, at + from);
        }
        if (k->streams) wn__stream(out, last, (stop - from) * k->size);
    }
}

static void fused_part(int64_t begin, int64_t end, void *ctx)
{
    const struct fused *k = ctx;
    wn__broadcast_range(&k->broadcast, begin, end, fused_row, ctx);
    if (k->streams) wn__stream_end();
}

static int32_t fused(const struct wn_desc *d, const struct wn_buffers *b, WN_NO_STREAM)
{
    struct fused k = {.steps = wn__fused_get(&d->attrs), .out = b->out, .size = wn__dtype_size(d->out.dtype)};
    const struct wn_type *in[WN_FUSED_INPUTS];
    int32_t is_math = 0, is_over = 0; /* is_over: out is written over an input */
    for (int32_t i = 0; i < d->n_in; i++) {
        in[i] = &d->in[i];
        k.in[i] = b->in[i];
        is_over |= b->in[i] == b->out;
    }
    for (int32_t s = 0; s < k.steps.n; s++) {
        wn__elementwise_of(k.steps.step[s].op, d->out.dtype, d->attrs.f, b, &k.step[s]);
        is_math |= wn__cpu_is_math(k.steps.step[s].op);
    }
    const void *over = is_over ? b->out : NULL;
    k.streams = is_math ? wn__streams_math(wn__bytes(&d->out), b->out, over, NULL)
                        : wn__streams(wn__bytes(&d->out), b->out, over, NULL);
    wn__broadcast_make(&k.broadcast, &d->out, d->n_in, in);
    wn__parallel_for(k.broadcast.numel, WN_CPU_GRAIN_MATH, fused_part, &k);
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
    struct wn__fused c = wn__fused_get(&d->attrs);
    struct wn__elementwise step;
    for (int32_t i = 0; i < d->n_in; i++)
        if (d->in[i].dtype != d->out.dtype) return NULL;
    for (int32_t s = 0; s < c.n; s++)
        if (!wn__elementwise_of(c.step[s].op, d->out.dtype, d->attrs.f, NULL, &step) || !fits(d, &c.step[s]))
            return NULL;
    return fused;
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
