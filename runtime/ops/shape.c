/* Ops that move elements and compute nothing, for every element type of this version.
 *
 *     reshape      x -> y, the same bytes as the shape attrs.i[0 .. attrs.n)       dx = dy in the shape of x
 *     permute      x -> y, dim k of y is dim attrs.i[k] of x                       dx = dy in the inverse order
 *     narrow       x -> y = x[start .. start + length) along dim                   dx = narrow_grad(dy)
 *     narrow_grad  dy -> dx: zeros, and dy at start along dim                      gradient: narrow
 *     cat          x0, x1, .. -> y, one after the other along dim                  dxi = its part of dy, a narrow
 *
 * Values are dense, so permute, narrow and cat copy. A reshape is an alias: no bytes move. */
#include "helper.h"

static int32_t need_elements(const struct wn_desc *d)
{
    return wn__need_element(d, d->in[0].dtype);
}

/* ---- reshape --------------------------------------------------------------------------------------- */
static int32_t shape_reshape(struct wn_desc *d)
{
    WN_TRY(need_elements(d));
    d->out.dtype = d->in[0].dtype;
    WN_TRY(wn__shape_from_attrs(d));
    WN_TRY(wn__check_out(d));
    int64_t have = wn__numel(&d->in[0]), want = wn__numel(&d->out);
    if (have == want) return WN_OK;
    return wn__fail(WN_SHAPE, "reshape: %s has %" PRId64 " elements, %s has %" PRId64 "; they must be equal",
                    wn__shape_text(&d->in[0]), have, wn__shape_text(&d->out), want);
}

static void grad_reshape(struct wn__grad *g)
{
    if (wn__wants(g, 0)) g->dx[0] = wn__emit_reshape(g, g->dy, &g->d->in[0]);
}

const struct wn__rules wn__rules_reshape = {shape_reshape, grad_reshape, .per_output = 0};

/* ---- permute --------------------------------------------------------------------------------------- */
static int32_t shape_permute(struct wn_desc *d)
{
    const struct wn_type *x = &d->in[0];
    int32_t seen[WN_MAX_DIMS] = {0};
    WN_TRY(need_elements(d));
    if (d->attrs.n != x->ndim)
        return wn__fail(WN_SHAPE, "permute: an order of %d dims given for %s, expected %d; name every dim once",
                        (int)d->attrs.n, wn__shape_text(x), (int)x->ndim);
    d->out = *x;
    for (int32_t k = 0; k < x->ndim; k++) {
        int64_t from = d->attrs.i[k];
        WN_TRY(wn__check_dim(d, from, x->ndim));
        if (seen[from]++)
            return wn__fail(WN_SHAPE, "permute: dim %d is named twice for %s; name every dim once", (int)from + 1,
                            wn__shape_text(x));
        d->out.dim[k] = x->dim[from];
    }
    return WN_OK;
}

static void grad_permute(struct wn__grad *g)
{
    struct wn_attrs back = {.n = g->d->attrs.n};
    if (!wn__wants(g, 0)) return;
    for (int32_t k = 0; k < back.n; k++) back.i[g->d->attrs.i[k]] = k;
    g->dx[0] = wn__emit_op(g, WN_OP_PERMUTE, g->dy, &back);
}

const struct wn__rules wn__rules_permute = {shape_permute, grad_permute, .per_output = 0};

/* ---- narrow: attrs.i = {dim, start, length} -------------------------------------------------------- */
static int32_t shape_narrow(struct wn_desc *d)
{
    const struct wn_type *x = &d->in[0];
    int64_t dim = d->attrs.i[0], start = d->attrs.i[1], length = d->attrs.i[2];
    WN_TRY(need_elements(d));
    WN_TRY(wn__check_dim(d, dim, x->ndim));
    if (start < 0 || length < 0 || start > x->dim[dim] || length > x->dim[dim] - start)
        return wn__fail(WN_SHAPE,
                        "narrow: %" PRId64 " elements from %" PRId64 " of dim %d given, %s has %" PRId64
                        " there; start at 1 and stay inside",
                        length, wn__from_one(start), (int)dim + 1, wn__shape_text(x), x->dim[dim]);
    d->out = *x;
    d->out.dim[dim] = length;
    return WN_OK;
}

static struct wn_cost cost_narrow(const struct wn_desc *d)
{
    return (struct wn_cost){0, 2.0 * (double)wn__bytes(&d->out)}; /* reads only what it copies */
}

static void grad_narrow(struct wn__grad *g)
{
    int64_t dim = g->d->attrs.i[0];
    struct wn_attrs attrs = {.n = 3, .i = {dim, g->d->attrs.i[1], g->d->in[0].dim[dim]}};
    if (g->d->in[0].layout == WN_NHWC) attrs.layout = WN_NHWC; /* dy may be order-free, and plain */
    if (wn__wants(g, 0)) g->dx[0] = wn__emit_op(g, WN_OP_NARROW_GRAD, g->dy, &attrs);
}

const struct wn__rules wn__rules_narrow = {shape_narrow, grad_narrow, .cost = cost_narrow};

/* ---- narrow_grad: attrs.i = {dim, start, length of x along dim} ------------------------------------ */
static int32_t shape_narrow_grad(struct wn_desc *d)
{
    const struct wn_type *dy = &d->in[0];
    int64_t dim = d->attrs.i[0], start = d->attrs.i[1], full = d->attrs.i[2];
    WN_TRY(need_elements(d));
    WN_TRY(wn__check_dim(d, dim, dy->ndim));
    if (start < 0 || start > full || dy->dim[dim] > full - start)
        return wn__fail(WN_SHAPE, "narrow_grad: %s from %" PRId64 " of dim %d does not fit a length of %" PRId64,
                        wn__shape_text(dy), wn__from_one(start), (int)dim + 1, full);
    d->out = *dy;
    d->out.dim[dim] = full;
    return wn__check_out(d);
}

static void grad_narrow_grad(struct wn__grad *g)
{
    int64_t dim = g->d->attrs.i[0];
    struct wn_attrs attrs = {.n = 3, .i = {dim, g->d->attrs.i[1], g->d->in[0].dim[dim]}};
    if (wn__wants(g, 0)) g->dx[0] = wn__emit_op(g, WN_OP_NARROW, g->dy, &attrs);
}

const struct wn__rules wn__rules_narrow_grad = {shape_narrow_grad, grad_narrow_grad, .per_output = 0};

/* ---- cat: attrs.i[0] = dim ------------------------------------------------------------------------- */
static int32_t shape_cat(struct wn_desc *d)
{
    const struct wn_type *x = &d->in[0];
    int64_t dim = d->attrs.i[0], total = 0;
    WN_TRY(need_elements(d));
    WN_TRY(wn__same_dtype(d));
    WN_TRY(wn__check_dim(d, dim, x->ndim));
    for (int32_t i = 0; i < d->n_in; i++) {
        const struct wn_type *t = &d->in[i];
        int32_t fits = t->ndim == x->ndim;
        for (int32_t k = 0; fits && k < x->ndim; k++) fits = k == dim || t->dim[k] == x->dim[k];
        if (!fits)
            return wn__fail(WN_SHAPE, "cat: input %d is %s, input 1 is %s; all dims but dim %d must be equal",
                            (int)i + 1, wn__shape_text(t), wn__shape_text(x), (int)dim + 1);
        if (wn__add(total, t->dim[dim], &total) != WN_OK) return wn__fail_more(WN_VALUE, "cat: ");
    }
    d->out = *x;
    d->out.dim[dim] = total;
    return wn__check_out(d);
}

static void grad_cat(struct wn__grad *g)
{
    int64_t dim = g->d->attrs.i[0], start = 0;
    for (int32_t i = 0; i < g->d->n_in; i++) {
        int64_t length = g->d->in[i].dim[dim];
        struct wn_attrs attrs = {.n = 3, .i = {dim, start, length}};
        if (wn__wants(g, i)) g->dx[i] = wn__emit_op(g, WN_OP_NARROW, g->dy, &attrs);
        start += length;
    }
}

const struct wn__rules wn__rules_cat = {shape_cat, grad_cat, .per_output = 0};
