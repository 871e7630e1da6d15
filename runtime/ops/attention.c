/* Scaled dot-product attention as one op, and its gradient.
 *
 *     attention       qkv: (B, T, (H + 2 K) hd) -> out: (B, T, H hd)
 *     attention_grad  dout: (B, T, H hd), qkv, out -> dqkv: (B, T, (H + 2 K) hd)
 *
 * B sequences of T positions, H query heads, K key heads and K value heads of hd numbers each. A row of qkv, as one
 * projection writes it:
 *
 *     | q 0 | q 1 | ... | q H-1 | k 0 | ... | k K-1 | v 0 | ... | v K-1 |      hd numbers each
 *
 * Query head h reads key head and value head h / (H / K) (grouped queries: Ainslie and others, "GQA", 2023). For one
 * head, with c the scale, D dropout of probability p, and Q, K, V: (T, hd):
 *
 *     S = c Q K'    P = softmax(S) by rows    W = D(P)    O = W V                     S, P, W: (T, T)
 *     dW = dO V'    dP = D(dW)    dS = P (dP - sum(P dP) by rows)
 *     dQ = c dS K   dK = c dS' Q  dV = W' dO                                          sum(P dP) = sum(dO O) by rows
 *
 * Where causal, row t of S ends at column t. attrs.i = {H, K, causal}, attrs.f = {p, c}. S, P and W are no values of
 * the graph: attention_grad computes them again from qkv, tile by tile, and draws the same dropout again (Dao and
 * others, "FlashAttention", 2022). */
#include "helper.h"
#include <math.h>

/* FLOPs of one weight beside the products: its softmax, its random number, its gradient. */
enum { WEIGHT_FLOPS = 18, DRAW_FLOPS = 12, WEIGHT_GRAD_FLOPS = 6 };

static int32_t check_attrs(const struct wn_desc *d)
{
    int64_t heads = d->attrs.i[0], kv_heads = d->attrs.i[1];
    const char *name = wn__op_name(d->op);
    if (heads < 1 || kv_heads < 1 || heads > INT32_MAX || heads % kv_heads != 0)
        return wn__fail(WN_VALUE,
                        "%s: %" PRId64 " query heads over %" PRId64 " key heads given, expected a multiple; both are "
                        "1 or more",
                        name, heads, kv_heads);
    if (!(d->attrs.f[0] >= 0 && d->attrs.f[0] <= 1))
        return wn__fail(WN_VALUE, "%s: p is %g, expected a probability from 0 to 1", name, d->attrs.f[0]);
    if (!isfinite(d->attrs.f[1]))
        return wn__fail(WN_VALUE, "%s: the scale is %g, expected a finite number, as 1 / sqrt(size of a head)", name,
                        d->attrs.f[1]);
    return WN_OK;
}

/* Writes hd, the size of a head, from the width of input i, which is qkv. */
static int32_t head_size(const struct wn_desc *d, int32_t i, int64_t *size)
{
    const struct wn_type *qkv = &d->in[i];
    WN_TRY(check_attrs(d));
    int64_t all = d->attrs.i[0] + 2 * d->attrs.i[1];
    if (qkv->ndim != 3 || qkv->dim[2] < 1 || qkv->dim[2] % all != 0)
        return wn__fail(WN_SHAPE,
                        "%s: qkv is %s, expected (batch, time, width), the width a multiple of %" PRId64 ": %" PRId64
                        " query heads, %" PRId64 " of keys and %" PRId64 " of values, side by side",
                        wn__op_name(d->op), wn__shape_text(qkv), all, d->attrs.i[0], d->attrs.i[1], d->attrs.i[1]);
    *size = qkv->dim[2] / all;
    return WN_OK;
}

/* Returns the cost of attention, or of its gradient: products of depth hd, and other FLOPs, for every weight that is
 * computed; a head has T (T + 1) / 2 of them where causal, else T T. The kernel of the gradient computes the scores
 * twice: once for the maximum and the sum of each row, once for the weights. */
static struct wn_cost cost_attention(const struct wn_desc *d)
{
    int32_t is_grad = d->op == WN_OP_ATTENTION_GRAD;
    const struct wn_type *qkv = &d->in[is_grad];
    double products = is_grad ? 6 : 2, rest = is_grad ? 2 * WEIGHT_FLOPS + WEIGHT_GRAD_FLOPS : WEIGHT_FLOPS;
    double heads = (double)d->attrs.i[0], time = (double)qkv->dim[1];
    double size = (double)qkv->dim[2] / (heads + 2.0 * (double)d->attrs.i[1]);
    double weights = (double)qkv->dim[0] * heads * (d->attrs.i[2] ? time * (time + 1) / 2 : time * time);
    double draw = d->attrs.f[0] > 0 ? DRAW_FLOPS : 0;
    return wn__cost_of(d, weights * (2 * products * size + rest + draw));
}

/* ---- attention ------------------------------------------------------------------------------------- */
static int32_t shape_attention(struct wn_desc *d)
{
    int64_t size = 0;
    WN_TRY(wn__need_float(d));
    WN_TRY(head_size(d, 0, &size));
    d->out = d->in[0];
    d->out.dim[2] = d->attrs.i[0] * size;
    return WN_OK;
}

static void grad_attention(struct wn__grad *g)
{
    struct wn_node *in[3] = {g->dy, g->in[0], g->out};
    if (wn__wants(g, 0)) g->dx[0] = wn__emit_replay(g->e, WN_OP_ATTENTION_GRAD, 3, in, &g->d->attrs, g->out);
}

const struct wn__rules wn__rules_attention = {shape_attention, grad_attention, .cost = cost_attention};

/* ---- attention_grad -------------------------------------------------------------------------------- */
static int32_t shape_attention_grad(struct wn_desc *d)
{
    int64_t size = 0;
    WN_TRY(wn__need_float(d));
    WN_TRY(head_size(d, 1, &size));
    struct wn_type out = d->in[1];
    out.dim[2] = d->attrs.i[0] * size;
    WN_TRY(wn__need_shape(d, 0, &out, "dy"));
    WN_TRY(wn__need_shape(d, 2, &out, "the forward's result"));
    d->out = d->in[1];
    return WN_OK;
}

const struct wn__rules wn__rules_attention_grad = {shape_attention_grad, wn__grad_attention_grad,
                                                   .cost = cost_attention};
