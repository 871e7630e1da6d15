/* Reductions, and expand, which is the gradient of a sum.
 *
 *     sum           x -> y = sum of x over the dims reduced          dx = expand(dy)
 *     mean          x -> y = sum / count                             dx = expand(dy / count)
 *     max, min      x -> y, extreme over the dims reduced            dx = extreme_grad(dy, x, y)
 *     extreme_grad  dy, x, y -> dx: dy shared equally by the elements of x that equal y, 0 elsewhere
 *     argmax        x -> the 0-based i32 index along one dim         none; the first of equal elements
 *     expand        x -> y: the shape attrs.i[0 .. attrs.n)          dx = dy summed to the shape of x
 *
 * attrs.i[0 .. attrs.n) are the 0-based dims reduced, all of them where attrs.n = 0; attrs.i[KEEP] = 1 keeps them as
 * dims of length 1; count is the product of their lengths. argmax reduces dim attrs.i[0]. The sum of no elements is 0,
 * an extreme of no elements is an error. A gradient computes on the smaller value as long as it can: the mean divides
 * dy before the expand. */
#include "helper.h"

enum { KEEP = WN_MAX_DIMS - 1 };

/* Writes the shape that the reduction d->attrs leaves of x to *out, and the number of elements that become one to
 * *count. keep: the reduced dims stay as dims of length 1. */
static int32_t reduced(const struct wn_desc *d, const struct wn_type *x, int32_t keep, struct wn_type *out,
                       int64_t *count)
{
    int32_t n = d->attrs.n, gone[WN_MAX_DIMS] = {0};
    if (n < 0 || n > KEEP)
        return wn__fail(WN_VALUE, "%s: %d dims given, expected 0 (all) to %d", wn__op_name(d->op), (int)n, KEEP);
    for (int32_t k = 0; k < n; k++) {
        WN_TRY(wn__check_dim(d, d->attrs.i[k], x->ndim));
        if (gone[d->attrs.i[k]]++)
            return wn__fail(WN_VALUE, "%s: dim %d is given twice; name each dim once", wn__op_name(d->op),
                            (int)d->attrs.i[k] + 1);
    }
    struct wn_type r = {.dtype = x->dtype};
    int64_t c = 1;
    for (int32_t k = 0; k < x->ndim; k++) {
        int32_t drop = n == 0 || gone[k];
        if (drop) c *= x->dim[k];
        if (!drop) r.dim[r.ndim++] = x->dim[k];
        else if (keep) r.dim[r.ndim++] = 1;
    }
    *out = r;
    *count = c;
    return WN_OK;
}

static int32_t shape_reduce(struct wn_desc *d, int64_t *count)
{
    return reduced(d, &d->in[0], d->attrs.i[KEEP] != 0, &d->out, count);
}

/* Records v, of the shape of the result, with the reduced dims as dims of length 1. */
static struct wn_node *kept(struct wn__grad *g, struct wn_node *v)
{
    struct wn_type t = {0};
    int64_t count = 0;
    if (reduced(g->d, &g->d->in[0], 1, &t, &count) != WN_OK || wn__shape_equal(&t, &g->d->out)) return v;
    return wn__emit_reshape(g, v, &t);
}

/* Records v, of the shape of the result, broadcast to the shape of the input. */
static struct wn_node *expanded(struct wn__grad *g, struct wn_node *v)
{
    struct wn_attrs shape = wn__attrs_shape(&g->d->in[0]);
    if (g->d->in[0].layout == WN_NHWC) shape.layout = WN_NHWC; /* what a sum leaves of an image is order-free */
    return wn__emit_op(g, WN_OP_EXPAND, kept(g, v), &shape);
}

/* ---- sum ------------------------------------------------------------------------------------------- */
static int32_t shape_sum(struct wn_desc *d)
{
    int64_t count;
    WN_TRY(wn__need_arith(d));
    return shape_reduce(d, &count);
}

static void grad_sum(struct wn__grad *g)
{
    if (wn__wants(g, 0)) g->dx[0] = expanded(g, g->dy);
}

const struct wn__rules wn__rules_sum = {shape_sum, grad_sum, .per_input = 1};

/* ---- mean ------------------------------------------------------------------------------------------ */
static int32_t shape_mean(struct wn_desc *d)
{
    int64_t count;
    WN_TRY(wn__need_float(d));
    return shape_reduce(d, &count);
}

static void grad_mean(struct wn__grad *g)
{
    struct wn_type t;
    int64_t count = 1;
    if (!wn__wants(g, 0) || reduced(g->d, &g->d->in[0], 1, &t, &count) != WN_OK) return;
    struct wn_node *share = wn__emit_scalar(g->e, 1.0 / (double)count, g->d->out.dtype);
    g->dx[0] = expanded(g, wn__emit2(g->e, WN_OP_MUL, g->dy, share));
}

const struct wn__rules wn__rules_mean = {shape_mean, grad_mean, .per_input = 1};

/* ---- max, min -------------------------------------------------------------------------------------- */
static int32_t shape_extreme(struct wn_desc *d)
{
    int64_t count;
    WN_TRY(wn__need_arith(d));
    WN_TRY(shape_reduce(d, &count));
    if (count > 0) return WN_OK;
    return wn__fail(WN_SHAPE, "%s: %s has no elements to choose from along the dims reduced; each needs 1 or more",
                    wn__op_name(d->op), wn__shape_text(&d->in[0]));
}

static void grad_extreme(struct wn__grad *g)
{
    struct wn_node *in[3] = {g->dy, g->in[0], g->out};
    if (wn__wants(g, 0)) g->dx[0] = wn__emit(g->e, WN_OP_EXTREME_GRAD, 3, in, &g->d->attrs);
}

const struct wn__rules wn__rules_max = {shape_extreme, grad_extreme, .per_input = 1};
const struct wn__rules wn__rules_min = {shape_extreme, grad_extreme, .per_input = 1};

/* ---- extreme_grad ---------------------------------------------------------------------------------- */
static int32_t shape_extreme_grad(struct wn_desc *d)
{
    struct wn_type want;
    int64_t count;
    WN_TRY(wn__need_float(d));
    WN_TRY(reduced(d, &d->in[1], d->attrs.i[KEEP] != 0, &want, &count));
    for (int32_t i = 0; i < 3; i += 2)
        if (!wn__shape_equal(&d->in[i], &want))
            return wn__fail(WN_SHAPE, "extreme_grad: input %d is %s, expected %s, what the reduction leaves of %s",
                            (int)i + 1, wn__shape_text(&d->in[i]), wn__shape_text(&want), wn__shape_text(&d->in[1]));
    d->out = d->in[1];
    return WN_OK;
}

/* Returns the cost of extreme_grad, which reads x twice: ties are counted, then each gets its share. */
static struct wn_cost cost_extreme_grad(const struct wn_desc *d)
{
    struct wn_cost cost = wn__cost_of(d, 3 * (double)wn__numel(&d->out));
    cost.bytes += (double)wn__bytes(&d->in[1]);
    return cost;
}

/* dx = dy share(x, y), where share is piecewise constant in x and y, which get zero. With u the gradient of dx, that of
 * dy is the sum of u share over the dims reduced; share = extreme_grad(ones, x, y). */
static void grad_extreme_grad(struct wn__grad *g)
{
    if (wn__wants(g, 0)) {
        struct wn_node *in[3] = {wn__emit_full(g, &g->d->in[0], 1), g->in[1], g->in[2]};
        struct wn_node *share = wn__emit(g->e, WN_OP_EXTREME_GRAD, 3, in, &g->d->attrs);
        g->dx[0] = wn__emit_op(g, WN_OP_SUM, wn__emit_mul(g, g->dy, share), &g->d->attrs);
    }
    wn__give_zero(g, 1);
    wn__give_zero(g, 2);
}

const struct wn__rules wn__rules_extreme_grad = {shape_extreme_grad, grad_extreme_grad, .cost = cost_extreme_grad};

/* ---- argmax ---------------------------------------------------------------------------------------- */
static int32_t shape_argmax(struct wn_desc *d)
{
    struct wn_desc one = *d;
    int64_t count;
    WN_TRY(wn__need_arith(d));
    one.attrs.n = 1;
    WN_TRY(shape_reduce(&one, &count));
    if (count < 1 || count > INT32_MAX)
        return wn__fail(WN_SHAPE, "argmax: dim %d of %s is %" PRId64 ", expected 1 or more, its indices in i32",
                        (int)d->attrs.i[0] + 1, wn__shape_text(&d->in[0]), count);
    d->out = one.out;
    d->out.dtype = WN_I32;
    return wn__check_out(d);
}

const struct wn__rules wn__rules_argmax = {shape_argmax, NULL, .per_input = 1};

/* ---- expand ---------------------------------------------------------------------------------------- */
static int32_t shape_expand(struct wn_desc *d)
{
    const struct wn_type *x = &d->in[0];
    WN_TRY(wn__need_element(d, x->dtype));
    d->out.dtype = x->dtype;
    WN_TRY(wn__shape_from_attrs(d));
    WN_TRY(wn__check_out(d));
    int32_t fits = x->ndim <= d->out.ndim;
    for (int32_t k = 1; fits && k <= x->ndim; k++) {
        int64_t from = x->dim[x->ndim - k];
        fits = from == 1 || from == d->out.dim[d->out.ndim - k];
    }
    if (fits) return WN_OK;
    return wn__fail(WN_SHAPE, "expand: %s does not stretch to %s; dims are aligned at the last, only dims of 1 stretch",
                    wn__shape_text(x), wn__shape_text(&d->out));
}

static void grad_expand(struct wn__grad *g)
{
    if (wn__wants(g, 0)) g->dx[0] = wn__emit_sum_to(g->e, g->dy, &g->d->in[0]);
}

const struct wn__rules wn__rules_expand = {shape_expand, grad_expand, .per_output = 0};
