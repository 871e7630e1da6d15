/* Matrix products.
 *
 *     matmul  A = op(a): (..., M, K), B = op(b): (..., K, N) -> y = A B: (..., M, N), leading dims broadcast
 *             dA = dy B'     dB = A' dy
 *     linear  x: (..., K), W: (N, K), b: (N) -> y = x W' + b: (..., N), rounded once
 *             dx = dy W: (..., K)     dW = dy' x: (N, K)     db = sum of the rows of dy: (N)
 *
 * op transposes the last two dims of a where attrs.i[0] is 1, of b where attrs.i[1] is 1. A transpose is always such a
 * flag, never a node: the gradients of all four cases are products again. Where b has no leading dims, dB is one
 * product over all rows of a, (M... K)' (M... N). A batch of products that are summed afterwards would make partial
 * products that are the largest values of the step. The reshape to rows is an alias. */
#include "helper.h"

/* ---- matmul ---------------------------------------------------------------------------------------- */
struct product {
    int64_t m, k, n, kb; /* op(a): (m, k), op(b): (kb, n); legal where k == kb */
};

static struct product sizes(const struct wn_desc *d)
{
    const struct wn_type *a = &d->in[0], *b = &d->in[1];
    int32_t ta = d->attrs.i[0] != 0, tb = d->attrs.i[1] != 0;
    const int64_t *x = a->dim + a->ndim - 2, *y = b->dim + b->ndim - 2; /* the last two dims */
    return (struct product){.m = x[ta], .k = x[!ta], .kb = y[tb], .n = y[!tb]};
}

static int32_t bad_inner(const struct wn_desc *d, const struct product *p)
{
    static const char *const place[] = {"last", "second last"};
    int32_t ta = d->attrs.i[0] != 0, tb = d->attrs.i[1] != 0;
    return wn__fail(WN_SHAPE,
                    "matmul: inner dimensions differ: %s%s x %s%s; a's %s must equal b's %s (%" PRId64
                    " against %" PRId64 "); transpose or reshape one of them",
                    wn__shape_text(&d->in[0]), ta ? " transposed" : "", wn__shape_text(&d->in[1]),
                    tb ? " transposed" : "", place[ta], place[!tb], p->k, p->kb);
}

static int32_t shape_matmul(struct wn_desc *d)
{
    WN_TRY(wn__need_float(d));
    const struct wn_type *a = &d->in[0], *b = &d->in[1];
    for (int32_t i = 0; i < 2; i++)
        if (d->in[i].ndim < 2)
            return wn__fail(WN_SHAPE,
                            "matmul: input %d is %s, expected 2 dims or more; reshape it to a row (1, n) or "
                            "a column (n, 1)",
                            (int)i + 1, wn__shape_text(&d->in[i]));
    struct product p = sizes(d);
    if (p.k != p.kb) return bad_inner(d, &p);
    struct wn_type lead_a = *a, lead_b = *b, lead = {.dtype = a->dtype};
    lead_a.ndim -= 2;
    lead_b.ndim -= 2;
    if (wn__broadcast_two(d, &lead_a, &lead_b, &lead) != WN_OK)
        return wn__fail(WN_SHAPE,
                        "matmul: leading dims %s of %s and %s of %s do not broadcast; they must be equal or "
                        "1, reshape one of them",
                        wn__shape_text(&lead_a), wn__shape_text(a), wn__shape_text(&lead_b), wn__shape_text(b));
    d->out = lead;
    d->out.dim[d->out.ndim++] = p.m;
    d->out.dim[d->out.ndim++] = p.n;
    return wn__check_out(d);
}

static struct wn_cost cost_matmul(const struct wn_desc *d)
{
    return wn__cost_of(d, 2.0 * (double)wn__numel(&d->out) * (double)sizes(d).k);
}

/* Records op(a) op(b); ta, tb: whether a, b are transposed; layout: of the result, where it is the gradient of a
 * weight. */
static struct wn_node *product(struct wn__grad *g, struct wn_node *a, struct wn_node *b, int32_t ta, int32_t tb,
                               int32_t layout)
{
    struct wn_node *in[2] = {a, b};
    struct wn_attrs attrs = {.n = 2, .layout = (int16_t)layout, .i = {ta, tb}};
    return wn__emit(g->e, WN_OP_MATMUL, 2, in, &attrs);
}

/* Records v: (..., c), of the type t, as (rows, c); returns v itself where it has two dims. */
static struct wn_node *flat(struct wn__grad *g, struct wn_node *v, const struct wn_type *t)
{
    if (t->ndim == 2) return v;
    struct wn_type rows = {.ndim = 2, .dim = {1, t->dim[t->ndim - 1]}};
    for (int32_t k = 0; k < t->ndim - 1; k++) rows.dim[0] *= t->dim[k];
    return wn__emit_reshape(g, v, &rows);
}

/* da = dA and db = dB, or their transposes B dy' and dy' A where a or b is transposed. */
static void grad_matmul(struct wn__grad *g)
{
    const struct wn_type *ta_type = &g->d->in[0], *tb_type = &g->d->in[1];
    int32_t ta = g->d->attrs.i[0] != 0, tb = g->d->attrs.i[1] != 0;
    struct wn_node *a = g->in[0], *b = g->in[1], *dy = g->dy;
    if (wn__wants(g, 0)) {
        struct wn_node *da = ta ? product(g, b, dy, tb, 1, WN_PLAIN) : product(g, dy, b, 0, !tb, WN_PLAIN);
        g->dx[0] = wn__emit_sum_to(g->e, da, ta_type);
    }
    if (!wn__wants(g, 1)) return;
    if (tb_type->ndim == 2 && ta_type->ndim > 2 && !ta) {
        a = flat(g, a, ta_type);
        dy = flat(g, dy, &g->d->out);
    }
    int32_t layout = ta_type->ndim > 2 && ta ? WN_PLAIN : tb_type->layout; /* panels only where db is a matrix */
    struct wn_node *db = tb ? product(g, dy, a, 1, ta, layout) : product(g, a, dy, !ta, 0, layout);
    g->dx[1] = wn__emit_sum_to(g->e, db, tb_type);
}

const struct wn__rules wn__rules_matmul = {shape_matmul, grad_matmul, .cost = cost_matmul};

/* ---- linear ---------------------------------------------------------------------------------------- */
static int32_t shape_linear(struct wn_desc *d)
{
    WN_TRY(wn__need_float(d));
    const struct wn_type *x = &d->in[0], *w = &d->in[1], *b = &d->in[2];
    if (w->ndim != 2)
        return wn__fail(WN_SHAPE, "linear: the weight is %s, expected 2 dims: (outputs, inputs)", wn__shape_text(w));
    if (x->ndim < 1 || x->dim[x->ndim - 1] != w->dim[1])
        return wn__fail(WN_SHAPE,
                        "linear: the input is %s, expected its last dim to be %" PRId64
                        ", as the weight is %s; reshape the input",
                        wn__shape_text(x), w->dim[1], wn__shape_text(w));
    if (b->ndim != 1 || b->dim[0] != w->dim[0])
        return wn__fail(WN_SHAPE, "linear: the bias is %s, expected (%" PRId64 "), as the weight is %s",
                        wn__shape_text(b), w->dim[0], wn__shape_text(w));
    d->out = *x;
    d->out.dim[x->ndim - 1] = w->dim[0];
    return wn__check_out(d);
}

static struct wn_cost cost_linear(const struct wn_desc *d)
{
    double outputs = (double)wn__numel(&d->out);
    return wn__cost_of(d, 2.0 * outputs * (double)d->in[1].dim[1] + outputs);
}

/* Records the gradients of x, weight and bias, each as one node over all rows of dy at once. */
static void grad_linear(struct wn__grad *g)
{
    const struct wn_type *x = &g->d->in[0];
    struct wn_node *dy = flat(g, g->dy, &g->d->out);
    if (wn__wants(g, 0)) {
        g->dx[0] = product(g, dy, g->in[1], 0, 0, WN_PLAIN);
        if (x->ndim != 2) g->dx[0] = wn__emit_reshape(g, g->dx[0], x);
    }
    if (wn__wants(g, 1)) g->dx[1] = product(g, dy, flat(g, g->in[0], x), 1, 0, g->d->in[1].layout);
    if (wn__wants(g, 2)) {
        struct wn_attrs rows = {.n = 1, .i = {0}};
        g->dx[2] = wn__emit_op(g, WN_OP_SUM, dy, &rows);
    }
}

const struct wn__rules wn__rules_linear = {shape_linear, grad_linear, .cost = cost_linear};
