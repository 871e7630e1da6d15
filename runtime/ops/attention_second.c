/* The gradient of attention's gradient, composed of matrix products, softmax and dropout.
 *
 * No kernel computes it tile by tile: the (T, T) matrices of scores and weights are values of the graph, some ten for
 * each query head, which a plan counts like any others. Query heads are (B, K, H / K, T, hd), key and value heads (B,
 * K, 1, T, hd), so that the query heads of a group share theirs by broadcasting. bf16 is computed in f32.
 *
 * For one head, with c the scale, D dropout under the forward's numbers, and r(v) the sum of v over a row:
 *     S = c Q K',  P = softmax(S),  W = D(P),  O = W V;      dP = D(dO V'),  dS = P (dP - r(P dP)),
 *     dQ = c dS K,  dK = c dS' Q,  dV = W' dO.
 * With uQ, uK, uV the gradients of dQ, dK, dV, and E = c (uQ K' + Q uK'), F = P (E - r(P E)), the gradients are
 *     of dO: D(F) V + W uV,
 *     of P: G = E (dP - r(P dP)) - dP r(P E) + D(dO uV'),      of S: A = P (G - r(P G)),
 *     of Q: c (A K + dS uK),      of K: c (A' Q + dS' uQ),      of V: D(F)' dO.
 * The head of attention.c derives dQ, dK and dV. */
#include <math.h>
#include "helper.h"

struct heads {
    struct wn_node *q;     /* (B, K, H / K, T, hd) */
    struct wn_node *k, *v; /* (B, K, 1, T, hd) */
};

/* One attention_grad that is being differentiated, and the matrices of the head comment. */
struct second {
    struct wn__grad *g;
    int64_t batch, time, heads, kv, size; /* B, T, H, K, hd */
    int32_t dtype;                        /* of all nodes between the casts of inputs and results: f32 or f64 */
    struct heads x;                       /* Q, K, V */
    struct heads u;                       /* uQ, uK, uV */
    struct wn_node *dout;                 /* dO: (B, K, H / K, T, hd) */
    struct wn_node *p, *dp, *e, *ds, *f;  /* P, dP, E, dS, D(F): (B, K, H / K, T, T) */
};

/* Records op(a) op(b), where op transposes the last two dims of a where ta is 1, of b where tb is 1. */
static struct wn_node *product(struct second *s, struct wn_node *a, struct wn_node *b, int32_t ta, int32_t tb)
{
    struct wn_node *in[2] = {a, b};
    struct wn_attrs attrs = {.n = 2, .i = {ta, tb}};
    return wn__emit(s->g->e, WN_OP_MATMUL, 2, in, &attrs);
}

static struct wn_node *add(struct second *s, struct wn_node *a, struct wn_node *b)
{
    return wn__emit2(s->g->e, WN_OP_ADD, a, b);
}

/* Records c v. */
static struct wn_node *scaled(struct second *s, struct wn_node *v)
{
    return wn__emit_mul(s->g, v, wn__emit_scalar(s->g->e, s->g->d->attrs.f[1], s->dtype));
}

/* Records v: (a, b, c, d) as (a, c, b, d). */
static struct wn_node *swapped(struct second *s, struct wn_node *v)
{
    struct wn_attrs order = {.n = 4, .i = {0, 2, 1, 3}};
    return wn__emit_op(s->g, WN_OP_PERMUTE, v, &order);
}

/* Records heads first to first + n - 1 of v: (B, T, all, hd) as (B, K, n / K, T, hd). */
static struct wn_node *take(struct second *s, struct wn_node *v, int64_t first, int64_t n)
{
    struct wn_attrs part = {.n = 3, .i = {2, first, n}};
    struct wn_type t = {.ndim = 5, .dim = {s->batch, s->kv, n / s->kv, s->time, s->size}};
    return wn__emit_reshape(s->g, swapped(s, wn__emit_op(s->g, WN_OP_NARROW, v, &part)), &t);
}

/* Records v: (B, T, all hd) as (B, T, all, hd), in s->dtype. */
static struct wn_node *open_heads(struct second *s, struct wn_node *v, int64_t all)
{
    struct wn_type t = {.ndim = 4, .dim = {s->batch, s->time, all, s->size}};
    return wn__emit_reshape(s->g, wn__emit_as(s->g, v, s->dtype), &t);
}

/* Records the heads of qkv: (B, T, (H + 2 K) hd). */
static struct heads split(struct second *s, struct wn_node *qkv)
{
    struct wn_node *v = open_heads(s, qkv, s->heads + 2 * s->kv);
    return (struct heads){take(s, v, 0, s->heads), take(s, v, s->heads, s->kv), take(s, v, s->heads + s->kv, s->kv)};
}

/* Inverts `take`: records v: (B, K, H / K, T, hd), summed to n heads, as (B, T, n, hd). */
static struct wn_node *give_back(struct second *s, struct wn_node *v, int64_t n)
{
    struct wn_type own = {.dtype = s->dtype, .ndim = 5, .dim = {s->batch, s->kv, n / s->kv, s->time, s->size}};
    struct wn_type t = {.ndim = 4, .dim = {s->batch, n, s->time, s->size}};
    return swapped(s, wn__emit_reshape(s->g, wn__emit_sum_to(s->g->e, v, &own), &t));
}

/* Records D(v): dropout under the numbers that the forward drew. */
static struct wn_node *dropped(struct second *s, struct wn_node *v)
{
    struct wn_attrs attrs = {.f = {s->g->d->attrs.f[0]}};
    if (s->g->d->attrs.f[0] == 0) return v;
    return wn__emit_replay(s->g->e, WN_OP_DROPOUT, 1, &v, &attrs, s->g->out);
}

/* Records y (dy - r(y dy)). */
static struct wn_node *softmax_grad(struct second *s, struct wn_node *dy, struct wn_node *y)
{
    struct wn_node *in[2] = {dy, y};
    struct wn_attrs attrs = {.n = 1, .i = {4}};
    return wn__emit(s->g->e, WN_OP_SOFTMAX_GRAD, 2, in, &attrs);
}

/* Records the scores with minus infinity where the key comes after the query; without a causal mask, as they are. */
static struct wn_node *masked(struct second *s, struct wn_node *scores)
{
    if (s->g->d->attrs.i[2] == 0) return scores;
    struct wn__emit *e = s->g->e;
    struct wn_attrs count = {.n = 1, .dtype = WN_I32, .i = {s->time}, .f = {0, 1}};
    struct wn_type t = {.ndim = 2, .dim = {s->time, 1}};
    struct wn_node *key = wn__emit(e, WN_OP_ARANGE, 0, NULL, &count), *query = wn__emit_reshape(s->g, key, &t);
    struct wn_node *in[3] = {wn__emit2(e, WN_OP_GE, query, key), scores, wn__emit_scalar(e, -INFINITY, s->dtype)};
    return wn__emit(e, WN_OP_WHERE, 3, in, NULL);
}

static void make_matrices(struct second *s)
{
    struct wn_attrs last = {.n = 1, .i = {4}};
    struct wn_node *scores = masked(s, scaled(s, product(s, s->x.q, s->x.k, 0, 1)));
    s->p = wn__emit_op(s->g, WN_OP_SOFTMAX, scores, &last);
    s->dp = dropped(s, product(s, s->dout, s->x.v, 0, 1));
    s->e = scaled(s, add(s, product(s, s->u.q, s->x.k, 0, 1), product(s, s->x.q, s->u.k, 0, 1)));
    s->ds = softmax_grad(s, s->dp, s->p);
    s->f = dropped(s, softmax_grad(s, s->e, s->p));
}

static struct wn_node *grad_dy(struct second *s)
{
    struct wn_node *dy = add(s, product(s, s->f, s->x.v, 0, 0), product(s, dropped(s, s->p), s->u.v, 0, 0));
    dy = wn__emit_reshape(s->g, give_back(s, dy, s->heads), &s->g->d->in[0]);
    return wn__emit_as(s->g, dy, s->g->d->out.dtype);
}

/* Records A, the gradient of S. */
static struct wn_node *grad_scores(struct second *s)
{
    struct wn__grad *g = s->g;
    struct wn_node *r = wn__emit_sum_dim(g, wn__emit_mul(g, s->p, s->dp), 4);
    struct wn_node *pe = wn__emit_sum_dim(g, wn__emit_mul(g, s->p, s->e), 4);
    struct wn_node *a = wn__emit_mul(g, s->e, wn__emit2(g->e, WN_OP_SUB, s->dp, r));
    struct wn_node *b = wn__emit2(g->e, WN_OP_SUB, a, wn__emit_mul(g, s->dp, pe));
    return softmax_grad(s, add(s, b, dropped(s, product(s, s->dout, s->u.v, 0, 1))), s->p);
}

static struct wn_node *grad_qkv(struct second *s)
{
    struct wn_node *a = grad_scores(s);
    struct wn_node *q = scaled(s, add(s, product(s, a, s->x.k, 0, 0), product(s, s->ds, s->u.k, 0, 0)));
    struct wn_node *k = scaled(s, add(s, product(s, a, s->x.q, 1, 0), product(s, s->ds, s->u.q, 1, 0)));
    struct wn_node *v = product(s, s->f, s->dout, 1, 0);
    struct wn_node *in[3] = {give_back(s, q, s->heads), give_back(s, k, s->kv), give_back(s, v, s->kv)};
    struct wn_attrs dim = {.n = 1, .i = {2}};
    struct wn_node *all = wn__emit(s->g->e, WN_OP_CAT, 3, in, &dim);
    return wn__emit_as(s->g, wn__emit_reshape(s->g, all, &s->g->d->in[1]), s->g->d->out.dtype);
}

/* Records the gradients of the inputs dO, qkv and O of attention_grad. O is a function of qkv, so what flows through O
 * is part of the gradient of qkv, and O itself gets zero. Another O is refused: dx stays NULL. */
void wn__grad_attention_grad(struct wn__grad *g)
{
    const struct wn_type *qkv = &g->d->in[1];
    if (!wn__is_made_by(g, g->in[2], WN_OP_ATTENTION, g->in[1])) return;
    struct second s = {.g = g, .batch = qkv->dim[0], .time = qkv->dim[1], .heads = g->d->attrs.i[0]};
    s.kv = g->d->attrs.i[1];
    s.size = qkv->dim[2] / (s.heads + 2 * s.kv);
    s.dtype = qkv->dtype == WN_F64 ? WN_F64 : WN_F32;
    s.x = split(&s, g->in[1]);
    s.u = split(&s, g->dy);
    s.dout = take(&s, open_heads(&s, g->in[0], s.heads), 0, s.heads);
    make_matrices(&s);
    if (wn__wants(g, 0)) g->dx[0] = grad_dy(&s);
    if (wn__wants(g, 1)) g->dx[1] = grad_qkv(&s);
    wn__give_zero(g, 2);
}
