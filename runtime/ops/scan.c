/* Ops along one dim whose result keeps all positions of the dim.
 *
 *     cumsum    x -> y, the shape of x: y[k] = x[0] + ... + x[k], or x[k] + ... + x[n - 1]   dx = cumsum(dy), turned
 *     argsort   x -> y, the shape of x, i32: the 0-based positions of x in order             none
 *
 * attrs.i[0] is the dim. attrs.i[1] = 1: cumsum adds from the last element on, argsort begins with the largest. The
 * order of argsort is complete, so every device gives the same positions: equal elements stay in their order, and NaN
 * is larger than every number. */
#include "helper.h"

enum { DIM, TURNED }; /* attrs.i */

static int32_t check_attrs(const struct wn_desc *d)
{
    WN_TRY(wn__need_arith(d));
    WN_TRY(wn__check_dim(d, d->attrs.i[DIM], d->in[0].ndim));
    if (d->attrs.i[TURNED] == 0 || d->attrs.i[TURNED] == 1) return WN_OK;
    return wn__fail(WN_VALUE, "%s: the direction is %" PRId64 ", expected 0 or 1", wn__op_name(d->op),
                    d->attrs.i[TURNED]);
}

/* ---- cumsum -------------------------------------------------------------------------------------- */
static int32_t shape_cumsum(struct wn_desc *d)
{
    WN_TRY(check_attrs(d));
    return wn__like_first_any(d);
}

static void grad_cumsum(struct wn__grad *g)
{
    struct wn_attrs back = {.n = 2, .i = {g->d->attrs.i[DIM], !g->d->attrs.i[TURNED]}};
    if (wn__wants(g, 0)) g->dx[0] = wn__emit_op(g, WN_OP_CUMSUM, g->dy, &back);
}

const struct wn__rules wn__rules_cumsum = {shape_cumsum, grad_cumsum, .per_output = 1};

/* ---- argsort ------------------------------------------------------------------------------------- */
static int32_t shape_argsort(struct wn_desc *d)
{
    WN_TRY(check_attrs(d));
    int64_t n = d->in[0].dim[d->attrs.i[DIM]];
    if (n > INT32_MAX)
        return wn__fail(WN_SHAPE, "argsort: dim %d of %s has more positions than i32 has numbers",
                        (int)d->attrs.i[DIM] + 1, wn__shape_text(&d->in[0]));
    d->out = d->in[0];
    d->out.dtype = WN_I32;
    return wn__check_out(d);
}

/* Returns the cost of argsort: 2 log2 n comparisons an element. */
static struct wn_cost cost_argsort(const struct wn_desc *d)
{
    double comparisons = 2;
    for (int64_t n = d->in[0].dim[d->attrs.i[DIM]]; n > 1; n /= 2) comparisons += 2;
    return wn__cost_of(d, comparisons * (double)wn__numel(&d->out));
}

const struct wn__rules wn__rules_argsort = {shape_argsort, NULL, .cost = cost_argsort};
