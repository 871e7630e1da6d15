/* Reading rows and elements by index, and adding gradients at those indices.
 *
 *     embedding       table: (V, D), ids: (...) -> y: (..., D)        y[t, :] = table[ids[t], :]
 *     embedding_grad  dy: (..., D), ids: (...) -> dtable: (V, D)      dtable[v, :] = sum of dy[t, :] where ids[t] = v
 *     gather          x, ids -> y, the shape of ids                   y[.., k, ..] = x[.., ids[.., k, ..], ..]
 *     gather_grad     dy, ids -> dx, the shape of x                   dx[.., ids[.., k, ..], ..] += dy[.., k, ..]
 *
 * gather runs along one dim; the shapes of x and ids are equal in all others. ids are 0-based i32 data, which the
 * kernel checks; no type depends on their values. Gradients are added in the order of ids, so the same ids give the
 * same bits. Each gradient op is linear in dy, and its own gradient is the op itself: embedding or gather. */
#include "helper.h"

/* ---- embedding ------------------------------------------------------------------------------------- */
static int32_t shape_embedding(struct wn_desc *d)
{
    const struct wn_type *table = &d->in[0], *ids = &d->in[1];
    WN_TRY(wn__need_float_at(d, 0));
    WN_TRY(wn__need_ids(d, 1));
    if (table->ndim != 2)
        return wn__fail(WN_SHAPE, "embedding: the table is %s, expected 2 dims: (rows, width)", wn__shape_text(table));
    if (ids->ndim >= WN_MAX_DIMS)
        return wn__fail(WN_SHAPE, "embedding: ids %s leave no room for the width, at most %d dims; reshape them",
                        wn__shape_text(ids), WN_MAX_DIMS - 1);
    d->out = *ids;
    d->out.dtype = table->dtype;
    d->out.dim[d->out.ndim++] = table->dim[1];
    return wn__check_out(d);
}

/* Returns the cost of embedding. Of the table, only the rows that are read count. */
static struct wn_cost cost_embedding(const struct wn_desc *d)
{
    return (struct wn_cost){0, 2.0 * (double)wn__bytes(&d->out) + (double)wn__bytes(&d->in[1])};
}

static void grad_embedding(struct wn__grad *g)
{
    struct wn_node *in[2] = {g->dy, g->in[1]};
    struct wn_attrs attrs = {.n = 1, .i = {g->d->in[0].dim[0]}};
    if (wn__wants(g, 0)) g->dx[0] = wn__emit(g->e, WN_OP_EMBEDDING_GRAD, 2, in, &attrs);
}

const struct wn__rules wn__rules_embedding = {shape_embedding, grad_embedding, .cost = cost_embedding};

/* ---- embedding_grad: attrs.i[0] = V ---------------------------------------------------------------- */
static int32_t shape_embedding_grad(struct wn_desc *d)
{
    const struct wn_type *dy = &d->in[0], *ids = &d->in[1];
    struct wn_type lead = *dy;
    WN_TRY(wn__need_float_at(d, 0));
    WN_TRY(wn__need_ids(d, 1));
    lead.ndim -= dy->ndim > 0;
    if (dy->ndim < 1 || !wn__shape_equal(&lead, ids))
        return wn__fail(WN_SHAPE, "embedding_grad: dy is %s and the ids are %s, expected dy to have one dim more",
                        wn__shape_text(dy), wn__shape_text(ids));
    d->out = (struct wn_type){.dtype = dy->dtype, .ndim = 2, .dim = {d->attrs.i[0], dy->dim[dy->ndim - 1]}};
    return wn__check_out(d);
}

static struct wn_cost cost_scatter(const struct wn_desc *d)
{
    struct wn_cost cost = wn__cost_of(d, (double)wn__numel(&d->in[0]));
    cost.bytes += 2.0 * (double)wn__bytes(&d->in[0]); /* dx is zeroed, then read and written */
    return cost;
}

static void grad_embedding_grad(struct wn__grad *g)
{
    if (wn__wants(g, 0)) g->dx[0] = wn__emit2(g->e, WN_OP_EMBEDDING, g->dy, g->in[1]);
}

/* Each row of dtable is written once, because the CPU first lists, for each row, where ids name it. */
const struct wn__rules wn__rules_embedding_grad = {shape_embedding_grad, grad_embedding_grad, .per_input = 1};

/* ---- gather: attrs.i[0] = dim ---------------------------------------------------------------------- */
/* Returns whether two shapes are equal in all dims but `dim`. */
static int32_t same_but(const struct wn_type *a, const struct wn_type *b, int64_t dim)
{
    int32_t same = a->ndim == b->ndim;
    for (int32_t k = 0; same && k < a->ndim; k++) same = k == dim || a->dim[k] == b->dim[k];
    return same;
}

static int32_t shape_gather(struct wn_desc *d)
{
    const struct wn_type *x = &d->in[0], *ids = &d->in[1];
    WN_TRY(wn__need_element(d, x->dtype));
    WN_TRY(wn__need_ids(d, 1));
    WN_TRY(wn__check_dim(d, d->attrs.i[0], x->ndim));
    if (!same_but(x, ids, d->attrs.i[0]))
        return wn__fail(WN_SHAPE,
                        "gather: the ids are %s, expected the dims of %s but for dim %d; expand or narrow "
                        "them",
                        wn__shape_text(ids), wn__shape_text(x), (int)d->attrs.i[0] + 1);
    d->out = *ids;
    d->out.dtype = x->dtype;
    return wn__check_out(d);
}

static void grad_gather(struct wn__grad *g)
{
    struct wn_node *in[2] = {g->dy, g->in[1]};
    int64_t dim = g->d->attrs.i[0];
    struct wn_attrs attrs = {.n = 2, .i = {dim, g->d->in[0].dim[dim]}};
    if (wn__wants(g, 0)) g->dx[0] = wn__emit(g->e, WN_OP_GATHER_GRAD, 2, in, &attrs);
}

const struct wn__rules wn__rules_gather = {shape_gather, grad_gather, .cost = cost_embedding};

/* ---- gather_grad: attrs.i = {dim, length of x along dim} ------------------------------------------- */
static int32_t shape_gather_grad(struct wn_desc *d)
{
    int64_t dim = d->attrs.i[0];
    WN_TRY(wn__need_float_at(d, 0));
    WN_TRY(wn__need_ids(d, 1));
    WN_TRY(wn__check_dim(d, dim, d->in[0].ndim));
    WN_TRY(wn__need_shape(d, 1, &d->in[0], "input 2"));
    d->out = d->in[0];
    d->out.dim[dim] = d->attrs.i[1];
    return wn__check_out(d);
}

static void grad_gather_grad(struct wn__grad *g)
{
    struct wn_node *in[2] = {g->dy, g->in[1]};
    struct wn_attrs attrs = {.n = 1, .i = {g->d->attrs.i[0]}};
    if (wn__wants(g, 0)) g->dx[0] = wn__emit(g->e, WN_OP_GATHER, 2, in, &attrs);
}

const struct wn__rules wn__rules_gather_grad = {shape_gather_grad, grad_gather_grad, .cost = cost_scatter};
