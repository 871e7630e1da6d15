/* Layouts (base/layout.h): which ops read and write a value that is not plain, and RELAYOUT, which changes a layout.
 *
 * A layout is an order of the same elements. Therefore:
 * - an elementwise op of operands of one type reads any layout, and its result has that layout;
 * - SUM and MEAN of all elements read any layout, in the order of memory;
 * - a product reads a weight in panels, and writes the gradient of a weight in panels;
 * - every other op reads plain values. Whoever records such an op puts a RELAYOUT before it, a node like any other:
 *   counted, planned and shown.
 *
 *     relayout: x (any shape) -> y, the same elements in attrs.layout;    dx = dy */
#include "helper.h"

/* ---- which layouts an op reads -------------------------------------------------------------------------- */

static int32_t reduces_all(const struct wn_attrs *attrs, const struct wn_type *x)
{
    return attrs->n == 0 || attrs->n == x->ndim;
}

/* Returns whether every input of more than one element has the shape and layout of `like`. One element has any
 * layout. */
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

/* ---- whether kernels read and write the operands as they are ------------------------------------------------ */

/* Returns whether all n types are plain. t: (n) */
static int32_t is_plain(const struct wn_type *t, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        if (t[i].layout != WN_PLAIN) return 0;
    return 1;
}

static int32_t is_update(int32_t op)
{
    return (wn__op_flags(op) & WN_EFFECT) != 0 && op != WN_OP_PRODUCT_UPDATE;
}

/* Answers for an op that scripts record, by wn__op_takes and wn__op_layout. */
static int32_t reads_recorded(const struct wn_desc *d)
{
    const struct wn_type *in[WN_GRAD_MAX];
    if (is_plain(d->in, d->n_in) && d->attrs.layout == WN_PLAIN) return d->out.layout == WN_PLAIN;
    if (d->n_in > WN_GRAD_MAX) return 0;
    for (int32_t i = 0; i < d->n_in; i++) in[i] = &d->in[i];
    for (int32_t i = 0; i < d->n_in; i++)
        if (in[i]->layout != WN_PLAIN && !wn__op_takes(d->op, d->n_in, in, &d->attrs, i)) return 0;
    return d->out.layout == wn__op_layout(d->op, d->n_in, in, &d->attrs);
}

/* Answers for MATMUL_MAP and LINEAR_MAP: the product reads its own operands, and the epilogue's second operand, which
 * comes last, has the type of the result. */
static int32_t reads_map(const struct wn_desc *d)
{
    struct wn_desc p = *d;
    p.op = d->op == WN_OP_LINEAR_MAP ? WN_OP_LINEAR : WN_OP_MATMUL;
    p.n_in = d->op == WN_OP_LINEAR_MAP ? 3 : 2;
    if (d->in[0].dtype != d->out.dtype || d->in[1].dtype != d->out.dtype || !reads_recorded(&p)) return 0;
    return d->n_in == p.n_in || wn__type_equal(&d->in[p.n_in], &d->out);
}

/* Answers for PRODUCT_UPDATE: the kernels pack plain operands of f32, and write cells of either layout. */
static int32_t reads_product_update(const struct wn_desc *d)
{
    if (d->in[0].dtype != WN_F32 || d->in[1].dtype != WN_F32 || d->out.dtype != WN_F32) return 0;
    return is_plain(d->in, d->n_in);
}

/* Answers for CHAIN: operands that are not plain are single elements, or have the type of the result. */
static int32_t reads_chain(const struct wn_desc *d)
{
    for (int32_t i = 0; i < d->n_in; i++)
        if (d->in[i].dtype != d->out.dtype) return 0;
    if (is_plain(d->in, d->n_in)) return d->out.layout == WN_PLAIN;
    for (int32_t i = 0; i < d->n_in; i++)
        if (wn__numel(&d->in[i]) != 1 && !wn__type_equal(&d->in[i], &d->out)) return 0;
    return 1;
}

int32_t wn__op_reads(const struct wn_desc *d)
{
    switch (d->op) {
    case WN_OP_MATMUL_MAP:
    case WN_OP_LINEAR_MAP: return reads_map(d);
    case WN_OP_PRODUCT_UPDATE: return reads_product_update(d);
    case WN_OP_CHAIN: return reads_chain(d);
    default:
        if (is_update(d->op)) return d->in[0].layout == d->out.layout && is_plain(d->in + 1, d->n_in - 1);
        return reads_recorded(d);
    }
}

/* ---- relayout ------------------------------------------------------------------------------------------- */
static int32_t shape_relayout(struct wn_desc *d)
{
    WN_TRY(wn__need_element(d, d->in[0].dtype));
    return wn__like_first_any(d);
}

static void grad_relayout(struct wn__grad *g)
{
    if (wn__wants(g, 0)) g->dx[0] = g->dy; /* the pass gives dx the layout of x: wn__emit_gradient in graph/grad.c */
}

const struct wn__rules wn__rules_relayout = {shape_relayout, wn__cost_move, grad_relayout};
