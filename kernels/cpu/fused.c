/* What rewrites make (plan/ir/rewrite.c): elementwise chains, and the way to the fused products.
 *
 * A chain goes through its operands a tile at a time: every step over one tile before the next tile, so that what is
 * between two steps stays in the nearest cache and only the operands and the result pass through memory. The loops
 * are the ops' own (elementwise.h). In place is safe: a tile's operands are read before its result is written, but
 * for the last step, which reads an element before it writes it. */
#include <stddef.h>
#include "bf16.h"
#include "elementwise.h"

#define TILE WN_TILE /* elements: 4 KiB a value, all values of a chain within the first cache */
/* Elements of a tile whose result goes past the caches: few lines asked for at once, so that they arrive while a
 * step computes; more of them wait for each other and the step for them. Shares of the limit with the cores alone,
 * at 512 and at 128: relu(x y + b) 69 and 83 %, silu(x y) 55 and 90. */
#define STREAMED_TILE 128

struct chain {
    struct wn__broadcast broadcast;
    struct wn__fused steps;
    struct wn__elementwise step[WN_CHAIN_STEPS];
    const char *in[WN_CHAIN_INPUTS];
    char *out;
    int64_t size;    /* bytes an element */
    int32_t streams; /* the result goes past the caches (nontemporal.h) */
};

/* Where a step finds an operand: in a tile of a step before, or among the inputs. */
static const char *operand(const struct chain *k, int32_t v, char *tiles, const int64_t *offset, int64_t at,
                           int64_t *step)
{
    if (v >= WN_CHAIN_INPUTS) {
        *step = 1;
        return tiles + (v - WN_CHAIN_INPUTS) * TILE * k->size;
    }
    *step = wn__broadcast_inner(&k->broadcast, v);
    return k->in[v] + (offset[v] + at * *step) * k->size;
}

/* What is read soon, of the operands that go on with the result: a part of it before each step, so that lines arrive
 * while the step computes. */
static void prefetch_operands(const struct chain *k, const int64_t *offset, int64_t from, int64_t n, int32_t part)
{
    int64_t begin = n * part / k->steps.n, end = n * (part + 1) / k->steps.n;
    for (int32_t v = 0; v < k->broadcast.n_operands; v++)
        if (wn__broadcast_inner(&k->broadcast, v))
            wn__prefetch_stream(k->in[v] + (offset[v] + from + begin) * k->size, (end - begin) * k->size);
}

static void chain_row(void *ctx, int64_t at, int64_t n, const int64_t *offset)
{
    const struct chain *k = ctx;
    char tiles[WN_CHAIN_STEPS * TILE * sizeof(double)] __attribute__((aligned(64)));
    for (int64_t from = 0, stop; from < n; from = stop) {
        stop = k->streams ? ((at + from) / STREAMED_TILE + 1) * STREAMED_TILE - at : from + TILE;
        if (stop > n) stop = n;
        char *out = k->out + (at + from) * k->size, *last = tiles + (k->steps.n - 1) * TILE * k->size;
        for (int32_t s = 0; s < k->steps.n; s++) {
            if (k->streams) prefetch_operands(k, offset, from, stop - from, s);
            const int32_t *v = k->steps.step[s].operand;
            int64_t sa, sb = 1;
            const char *a = operand(k, v[0], tiles, offset, from, &sa), *b = NULL;
            if (wn__elementwise_operands(k->steps.step[s].op) == 2) b = operand(k, v[1], tiles, offset, from, &sb);
            char *to = tiles + s * TILE * k->size;
            if (to == last && !k->streams) to = out;
            wn__elementwise_run(&k->step[s], to, a, b, stop - from, sa, sb, at + from);
        }
        if (k->streams) wn__stream(out, last, (stop - from) * k->size);
    }
}

static void chain_part(int64_t begin, int64_t end, void *ctx)
{
    const struct chain *k = ctx;
    wn__broadcast_range(&k->broadcast, begin, end, chain_row, ctx);
    if (k->streams) wn__stream_end();
}

static int32_t chain(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    (void)stream;
    struct chain k = {.steps = wn__fused_get(&d->attrs), .out = b->out, .size = wn__dtype_size(d->out.dtype)};
    const struct wn_type *in[WN_CHAIN_INPUTS];
    k.streams = wn__streams(wn__bytes(&d->out), b->out, NULL, NULL);
    for (int32_t i = 0; i < d->n_in; i++) {
        in[i] = &d->in[i];
        k.in[i] = b->in[i];
        if (b->in[i] == b->out) k.streams = 0;
    }
    for (int32_t s = 0; s < k.steps.n; s++)
        wn__elementwise_of(k.steps.step[s].op, d->out.dtype, d->attrs.f, b, &k.step[s]);
    wn__broadcast_make(&k.broadcast, &d->out, d->n_in, in);
    wn__parallel_for(k.broadcast.numel, WN_CPU_GRAIN_MATH, chain_part, &k);
    return WN_OK;
}

/* Ops outside binary.c take no broadcast operand. */
static int32_t fits(const struct wn_desc *d, const struct wn__fused_step *s)
{
    if (wn__cpu_binary_loop(s->op, WN_F32)) return 1;
    for (int32_t j = 0; j < wn__elementwise_operands(s->op); j++)
        if (s->operand[j] < WN_CHAIN_INPUTS && !wn__type_equal(&d->in[s->operand[j]], &d->out)) return 0;
    return 1;
}

static wn_kernel_fn chain_kernel(const struct wn_desc *d)
{
    struct wn__fused c = wn__fused_get(&d->attrs);
    struct wn__elementwise step;
    for (int32_t i = 0; i < d->n_in; i++)
        if (d->in[i].dtype != d->out.dtype) return NULL;
    for (int32_t s = 0; s < c.n; s++)
        if (!wn__elementwise_of(c.step[s].op, d->out.dtype, d->attrs.f, NULL, &step) || !fits(d, &c.step[s]))
            return NULL;
    return chain;
}

wn_kernel_fn wn__cpu_fused_kernel(const struct wn_desc *d)
{
    switch (d->op) {
    case WN_OP_CHAIN: return wn__dtype_is_float(d->out.dtype) ? chain_kernel(d) : NULL;
    case WN_OP_MATMUL_MAP:
    case WN_OP_LINEAR_MAP: return wn__cpu_epilogue_kernel(d);
    case WN_OP_LAYERNORM_DX_ADD: return d->out.dtype == WN_BF16 ? NULL : wn__cpu_norm_kernel(d);
    case WN_OP_CROSS_ENTROPY:
    case WN_OP_CROSS_ENTROPY_GRAD: return wn__cpu_cross_entropy_kernel(d);
    case WN_OP_PRODUCT_UPDATE: return wn__cpu_product_update_kernel(d);
    default: return NULL;
    }
}
