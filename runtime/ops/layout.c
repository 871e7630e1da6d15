/* Layouts (base/layout.h): who reads and who makes a value that is not plain, and the op that changes one into another.
 *
 * A layout is an order of the same elements. So ops that go over elements of equal operands one by one take any, and
 * their result has it; products read a weight in panels and make its gradient in panels; whoever sums all elements sums
 * them as they lie. Every other op gets a plain copy, made by a node like any other: counted, planned, shown. */
#include "helper.h"

/* ---- who takes what ------------------------------------------------------------------------------------ */

static int32_t reduces_all(const struct wn_attrs *attrs, const struct wn_type *x)
{
    return attrs->n == 0 || attrs->n == x->ndim;
}

/* A number goes with any layout; all that has more elements must lie alike. */
static int32_t lie_alike(int32_t n, const struct wn_type *const *in, const struct wn_type *like)
{
    for (int32_t i = 0; i < n; i++)
        if (wn__numel(in[i]) != 1 && (in[i]->layout != like->layout || !wn__shape_equal(in[i], like))) return 0;
    return 1;
}

int32_t wn__op_takes(int32_t op, int32_t n, const struct wn_type *const *in, const struct wn_attrs *attrs, int32_t i)
{
    switch (op) {
    case WN_OP_CAST:
    case WN_OP_RELAYOUT: return 1;
    case WN_OP_SUM:
    case WN_OP_MEAN: return reduces_all(attrs, in[0]);
    case WN_OP_MATMUL: return i == 1 && attrs->layout == WN_PLAIN && (in[0]->ndim == 2 || attrs->i[0] == 0);
    case WN_OP_LINEAR: return i == 1;
    default: return op != WN_OP_DROPOUT && wn__elementwise_operands(op) > 0 && lie_alike(n, in, in[i]);
    }
}

int32_t wn__op_layout(int32_t op, int32_t n, const struct wn_type *const *in, const struct wn_attrs *attrs)
{
    if (op != WN_OP_CAST && wn__elementwise_operands(op) == 0) return attrs->layout;
    for (int32_t i = 0; i < n; i++)
        if (in[i]->layout != WN_PLAIN) return in[i]->layout;
    return WN_PLAIN;
}

/* ---- relayout: the same value, as attrs.layout has it ---------------------------------------------------- */
static int32_t shape_relayout(struct wn_desc *d)
{
    WN_TRY(wn__need_element(d, d->in[0].dtype));
    return wn__like_first_any(d);
}

static void grad_relayout(struct wn__grad *g)
{
    if (wn__wants(g, 0)) g->dx[0] = g->dy; /* comes as its input lies: graph/grad.c */
}

const struct wn__rules wn__rules_relayout = {shape_relayout, wn__cost_move, grad_relayout, NULL};
