/* Layouts (base/layout.h): which layout an op reads each input in, which one its result has, and RELAYOUT, which
 * changes a layout.
 *
 * A layout is an order of the same elements. Therefore:
 * - an elementwise op of operands of one type reads any layout, and its result has that layout;
 * - SUM and MEAN of all elements read any layout, in the order of memory;
 * - a product reads a weight in panels, and writes the gradient of a weight in panels; so does a convolution;
 * - convolutions, poolings, norms over channels and resizing read and write images with their channels last;
 * - elementwise ops, CAT, NARROW, EXPAND, and sums that leave no order to choose, take such images as they are;
 * - every other op reads plain values. Whoever records an op puts a RELAYOUT before an input that it reads otherwise, a
 *   node like any other: counted, planned and shown.
 *
 *     relayout: x (any shape) -> y, the same elements in attrs.layout;    dx = dy */
#include "../base/memory_order.h"
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

static int32_t is_elementwise(int32_t op)
{
    switch (op) {
    case WN_OP_EQ:
    case WN_OP_NE:
    case WN_OP_LT:
    case WN_OP_GT:
    case WN_OP_LE:
    case WN_OP_GE:
    case WN_OP_WHERE:
    case WN_OP_ISNAN:
    case WN_OP_ISFINITE: return 1;
    default: return op != WN_OP_DROPOUT && wn__elementwise_operands(op) > 0;
    }
}

static int32_t has_images(int32_t n, const struct wn_type *const *in)
{
    for (int32_t i = 0; i < n; i++)
        if (in[i]->layout == WN_NHWC) return 1;
    return 0;
}

/* Returns the layout of a value of type t that is read with its channels last. */
static int32_t channels_last(const struct wn_type *t)
{
    return t->ndim == 4 ? wn__layout_normal(WN_NHWC, t) : WN_PLAIN;
}

/* Returns whether an elementwise op computes all its operands with channels last: some are images, and the others can
 * be, or are order-free. */
static int32_t computes_images(int32_t n, const struct wn_type *const *in)
{
    for (int32_t i = 0; i < n; i++)
        if (in[i]->ndim != 4 && !wn__is_order_free(in[i])) return 0;
    return has_images(n, in);
}

/* Returns whether what a reduction of the image x leaves, kept as dims of length 1, is order-free. */
static int32_t leaves_order_free(const struct wn_attrs *attrs, const struct wn_type *x)
{
    struct wn_type kept = *x;
    for (int32_t k = 0; k < attrs->n; k++) {
        if (attrs->i[k] < 0 || attrs->i[k] >= x->ndim) return 0; /* the rule of the op will refuse it */
        kept.dim[attrs->i[k]] = 1;
    }
    return wn__is_order_free(&kept);
}

/* Returns the input from which on an op over images, under elementwise ops, has further images. */
static int32_t further_images_from(int32_t op, const struct wn_attrs *attrs)
{
    if (op == WN_OP_BATCH_NORM_MAP) return WN_NORM_INPUTS;
    return op == WN_OP_CONV2D_MAP ? wn__conv_map_get(attrs).image : WN_GRAD_MAX;
}

int32_t wn__op_wants(int32_t op, int32_t n, const struct wn_type *const *in, const struct wn_attrs *attrs, int32_t i)
{
    int32_t own = in[i]->layout;
    if (i < wn__op_images(op)) return channels_last(in[i]);
    if (i >= further_images_from(op, attrs)) return channels_last(in[i]);
    switch (op) {
    case WN_OP_CONV2D:
    case WN_OP_CONV2D_DX:
    case WN_OP_CONV2D_MAP: return i == 1 && own == WN_CONV48 ? own : WN_PLAIN;
    case WN_OP_CAST:
    case WN_OP_ALL_TO_ALL:
    case WN_OP_RELAYOUT: return own;
    case WN_OP_SUM:
    case WN_OP_MEAN:
        if (reduces_all(attrs, in[0])) return own;
        return own == WN_NHWC && leaves_order_free(attrs, in[0]) ? own : WN_PLAIN;
    case WN_OP_MATMUL:
        if (own != WN_PANEL48 || i != 1 || attrs->layout != WN_PLAIN) return WN_PLAIN;
        return in[0]->ndim == 2 || attrs->i[0] == 0 ? own : WN_PLAIN;
    case WN_OP_LINEAR: return i == 1 && own == WN_PANEL48 ? own : WN_PLAIN;
    case WN_OP_CAT: return has_images(n, in) ? channels_last(in[i]) : WN_PLAIN;
    case WN_OP_NARROW:
    case WN_OP_NARROW_GRAD: return own == WN_NHWC ? own : WN_PLAIN;
    default:
        if (!is_elementwise(op)) return WN_PLAIN;
        if (computes_images(n, in)) return channels_last(in[i]);
        return lie_alike(n, in, in[i]) ? own : WN_PLAIN;
    }
}

int32_t wn__op_layout(int32_t op, int32_t n, const struct wn_type *const *in, const struct wn_attrs *attrs,
                      const struct wn_type *out)
{
    switch (op) {
    case WN_OP_CONV2D_DW:
    case WN_OP_CHANNEL_MEAN:
    case WN_OP_CHANNEL_RSTD:
    case WN_OP_BATCH_NORM_SUMS:
    case WN_OP_RELU_NORM_SUMS: return attrs->layout;
    case WN_OP_CAT:
    case WN_OP_NARROW:
    case WN_OP_NARROW_GRAD: return has_images(n, in) || attrs->layout == WN_NHWC ? channels_last(out) : WN_PLAIN;
    default: break;
    }
    if (wn__op_images(op) > 0) return channels_last(out);
    if (op != WN_OP_CAST && !is_elementwise(op)) return wn__layout_normal(attrs->layout, out);
    for (int32_t i = 0; i < n; i++)
        if (in[i]->layout != WN_PLAIN) return wn__layout_normal(in[i]->layout, out);
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

/* Answers for an op that scripts record, by wn__op_wants and wn__op_layout. */
static int32_t reads_recorded(const struct wn_desc *d)
{
    const struct wn_type *in[WN_GRAD_MAX];
    if (d->n_in > WN_GRAD_MAX) return is_plain(d->in, d->n_in) && d->out.layout == WN_PLAIN;
    for (int32_t i = 0; i < d->n_in; i++) in[i] = &d->in[i];
    for (int32_t i = 0; i < d->n_in; i++)
        if (in[i]->layout != wn__op_wants(d->op, d->n_in, in, &d->attrs, i)) return 0;
    return d->out.layout == wn__op_layout(d->op, d->n_in, in, &d->attrs, &d->out);
}

/* Answers for MATMUL_MAP and LINEAR_MAP: the product reads its own operands, and the epilogue's second operand, which
 * comes last, has the type of the result. */
static int32_t reads_map(const struct wn_desc *d)
{
    const struct wn_desc p = wn__product_inside(d);
    if (d->in[0].dtype != d->out.dtype || d->in[1].dtype != d->out.dtype || !reads_recorded(&p)) return 0;
    return d->n_in == p.n_in || wn__type_equal(&d->in[p.n_in], &d->out);
}

/* Answers for PRODUCT_UPDATE: the kernels pack plain operands of f32, and write cells of either layout. */
static int32_t reads_product_update(const struct wn_desc *d)
{
    if (d->in[0].dtype != WN_F32 || d->in[1].dtype != WN_F32 || d->out.dtype != WN_F32) return 0;
    return is_plain(d->in, d->n_in);
}

/* Answers for ELEMENTWISE: where operands are not plain, each is a single element, or has the type of the result, or is
 * order-free and broadcast to an image. */
static int32_t reads_fused(const struct wn_desc *d)
{
    for (int32_t i = 0; i < d->n_in; i++)
        if (d->in[i].dtype != d->out.dtype) return 0;
    if (is_plain(d->in, d->n_in)) return d->out.layout == WN_PLAIN;
    for (int32_t i = 0; i < d->n_in; i++) {
        int32_t is_free = d->out.layout == WN_NHWC && d->in[i].layout == WN_PLAIN && wn__is_order_free(&d->in[i]);
        if (wn__numel(&d->in[i]) != 1 && !is_free && !wn__type_equal(&d->in[i], &d->out)) return 0;
    }
    return 1;
}

/* Answers for an application of which a value is in padded rows: kernels of a few ops read and write those as they do
 * plain ones (plan/ir/rows.c). */
static int32_t reads_rows(const struct wn_desc *d)
{
    static const int32_t ops[] = {WN_OP_MATMUL, WN_OP_LINEAR, WN_OP_ROW_STATS, WN_OP_ROW_NLL, WN_OP_ROW_NLL_GRAD};
    struct wn_type in[WN_GRAD_MAX];
    struct wn_desc plain = *d;
    int32_t is_known = 0;
    for (size_t k = 0; k < sizeof ops / sizeof ops[0]; k++) is_known |= d->op == ops[k];
    if (!is_known || d->n_in > WN_GRAD_MAX) return 0;
    for (int32_t i = 0; i < d->n_in; i++) {
        in[i] = d->in[i];
        if (in[i].layout == WN_ROWS) in[i].layout = WN_PLAIN;
    }
    plain.in = in;
    if (plain.out.layout == WN_ROWS) plain.out.layout = plain.attrs.layout = WN_PLAIN;
    return reads_recorded(&plain);
}

static int32_t has_rows(const struct wn_desc *d)
{
    for (int32_t i = 0; i < d->n_in; i++)
        if (d->in[i].layout == WN_ROWS) return 1;
    return d->out.layout == WN_ROWS;
}

int32_t wn__op_reads(const struct wn_desc *d)
{
    if (has_rows(d)) return reads_rows(d);
    switch (d->op) {
    case WN_OP_MATMUL_MAP:
    case WN_OP_LINEAR_MAP: return reads_map(d);
    case WN_OP_PRODUCT_UPDATE: return reads_product_update(d);
    case WN_OP_ELEMENTWISE: return reads_fused(d);
    default:
        if (is_update(d->op)) return d->in[0].layout == d->out.layout && is_plain(d->in + 1, d->n_in - 1);
        return reads_recorded(d);
    }
}

/* ---- relayout ------------------------------------------------------------------------------------------- */
/* The pass gives dx the layout of x: wn__emit_gradient in graph/grad.c. */
const struct wn__rules wn__rules_relayout = {wn__like_first_element, wn__grad_same, .per_output = 0};
