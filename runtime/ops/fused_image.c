/* Ops over images that rewrites make of several recorded ops (plan/ir/image_patterns.c): see fused.c for what holds of
 * all of them.
 *
 *     conv2d_map      x, w[, b][, mean, rstd, v, c][, z] -> y: up to 2 elementwise steps over conv2d(x, w, b), or over
 *                     batch_norm(conv2d(x, w, b), mean, rstd, v, c), and z
 *     batch_norm_map  x, mean, rstd, w, b[, c[, d]] -> y: 1 to 4 elementwise steps over batch_norm(x, ..), c and d
 *     relu_norm_sums  dy, x, mean, rstd, w, b -> batch_norm_sums(g, x, mean, rstd)
 *     relu_norm_dx    dy, x, mean, rstd, w, s, b -> batch_norm_dx(g, x, mean, rstd, w, s)
 *
 * where g is relu_grad(dy, batch_norm(x, mean, rstd, w, b)): dy where that norm is above 0, and 0 elsewhere. The last
 * two compute the norm again instead of reading it, so neither it nor g is kept or written. */
#include "helper.h"

enum { AGAIN_FLOPS = 5 }; /* of an element whose norm is computed again, and compared */

/* Returns the FLOPs of an elementwise op, or of a batch norm, over the elements of the result. */
static double flops_over(const struct wn_desc *d, int32_t op)
{
    return wn__flops_over(d, op, op == WN_OP_BATCH_NORM ? WN_NORM_INPUTS : wn__elementwise_operands(op));
}

/* Fails unless the inputs from `first` on have the type of the result. */
static int32_t need_operands(const struct wn_desc *d, int32_t first)
{
    for (int32_t i = first; i < d->n_in; i++)
        if (!wn__type_agrees(&d->in[i], &d->out))
            return wn__fail(WN_SHAPE, "%s: input %d is %s, expected %s", wn__op_name(d->op), (int)i + 1,
                            wn__type_text(&d->in[i]), wn__type_text(&d->out));
    return WN_OK;
}

/* ---- conv2d_map ---------------------------------------------------------------------------------------- */
static struct wn_desc conv_of(const struct wn_desc *d)
{
    return wn__inside(d, WN_OP_CONV2D, wn__conv_map_get(&d->attrs).conv);
}

/* Fails unless the inputs from `norm` on are those of a batch norm over the result. */
static int32_t need_norm(const struct wn_desc *d, int32_t norm)
{
    const char *const what[] = {"the mean", "the rstd", "the weight", "the bias"};
    const struct wn_type channels = {.dtype = d->out.dtype, .ndim = 1, .dim = {d->out.dim[1]}};
    for (int32_t i = 0; i < 4; i++) WN_TRY(wn__need_shape(d, norm + i, &channels, what[i]));
    return WN_OK;
}

static int32_t shape_conv2d_map(struct wn_desc *d)
{
    const struct wn__conv_map m = wn__conv_map_get(&d->attrs);
    if (m.conv < 2 || m.conv > 3 || d->n_in < m.image || d->n_in > m.image + 1)
        return wn__fail(WN_VALUE, "conv2d_map: %d inputs given, expected %d and at most one image", (int)d->n_in,
                        (int)m.image);
    WN_TRY(wn__check_steps(d, &m.steps, m.norm ? 0 : 1, WN_CONV_STEPS, d->n_in - m.image + 1));
    struct wn_desc c = conv_of(d);
    WN_TRY(wn__same_dtype(d));
    WN_TRY(wn__op_rules[c.op]->shape(&c));
    d->out = c.out;
    if (m.norm) WN_TRY(need_norm(d, m.norm));
    return need_operands(d, m.image);
}

static struct wn_cost cost_conv2d_map(const struct wn_desc *d)
{
    const struct wn__conv_map m = wn__conv_map_get(&d->attrs);
    struct wn_desc c = conv_of(d);
    double flops = wn__op_cost(&c).flops;
    if (m.norm) flops += flops_over(d, WN_OP_BATCH_NORM);
    for (int32_t k = 0; k < m.steps.n; k++) flops += flops_over(d, m.steps.step[k].op);
    return wn__cost_of(d, flops);
}

const struct wn__rules wn__rules_conv2d_map = {shape_conv2d_map, NULL, .cost = cost_conv2d_map};

/* ---- batch_norm_map ------------------------------------------------------------------------------------ */
static struct wn_desc norm_of(const struct wn_desc *d)
{
    struct wn_desc n = wn__inside(d, WN_OP_BATCH_NORM, WN_NORM_INPUTS);
    n.attrs.i[0] = d->attrs.i[WN_NORM_MAP_GROUPS];
    return n;
}

static int32_t shape_batch_norm_map(struct wn_desc *d)
{
    struct wn_desc norm = norm_of(d);
    struct wn__fused c = wn__fused_get(&d->attrs, 0);
    WN_TRY(wn__check_steps(d, &c, 1, WN_NORM_STEPS, d->n_in - WN_NORM_INPUTS + 1));
    WN_TRY(wn__op_rules[norm.op]->shape(&norm));
    d->out = norm.out;
    return need_operands(d, WN_NORM_INPUTS);
}

static struct wn_cost cost_batch_norm_map(const struct wn_desc *d)
{
    struct wn_desc norm = norm_of(d);
    struct wn__fused c = wn__fused_get(&d->attrs, 0);
    double flops = wn__op_cost(&norm).flops;
    for (int32_t k = 0; k < c.n; k++) flops += flops_over(d, c.step[k].op);
    return wn__cost_of(d, flops);
}

const struct wn__rules wn__rules_batch_norm_map = {shape_batch_norm_map, NULL, .cost = cost_batch_norm_map};

/* ---- relu_norm_sums, relu_norm_dx ---------------------------------------------------------------------- */
/* Returns the application without relu, whose inputs are the first ones. */
static struct wn_desc without_relu(const struct wn_desc *d)
{
    return d->op == WN_OP_RELU_NORM_SUMS ? wn__inside(d, WN_OP_BATCH_NORM_SUMS, 4)
                                         : wn__inside(d, WN_OP_BATCH_NORM_DX, 6);
}

/* Writes the type by the rule of the op without relu; the last input, b, is like w. */
static int32_t shape_relu_norm(struct wn_desc *d)
{
    struct wn_desc plain = without_relu(d);
    WN_TRY(wn__need_float(d));
    WN_TRY(wn__op_rules[plain.op]->shape(&plain));
    d->out = plain.out;
    struct wn_type channels = {.dtype = d->in[1].dtype, .ndim = 1, .dim = {d->in[1].dim[1]}};
    WN_TRY(wn__need_shape(d, 4, &channels, "the weight"));
    return wn__need_shape(d, d->n_in - 1, &channels, "the bias");
}

static struct wn_cost cost_relu_norm(const struct wn_desc *d)
{
    const struct wn_desc plain = without_relu(d);
    return wn__cost_of(d, wn__op_cost(&plain).flops + AGAIN_FLOPS * (double)wn__numel(&d->in[1]));
}

const struct wn__rules wn__rules_relu_norm_sums = {shape_relu_norm, NULL, .cost = cost_relu_norm};
const struct wn__rules wn__rules_relu_norm_dx = {shape_relu_norm, NULL, .cost = cost_relu_norm};
