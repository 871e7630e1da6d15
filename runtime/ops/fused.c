/* Ops that rewrites make of several recorded ops (plan/ir/rewrite.c). The rules of a fused op are composed of the rules
 * of the ops it replaces, and every element of its result has the bits that those ops give. A fused op has no gradient:
 * graphs are differentiated before they are rewritten.
 *
 *     elementwise         x0 .. x3, broadcast -> y: 1 to 6 elementwise steps (struct wn__fused in base/opcode.h)
 *     matmul_map          a, b, z -> f(op(a) op(b), z), f the elementwise op attrs.i[2]; z: the shape of y
 *     linear_map          x: (..., K), W: (N, K), b: (N), z: (..., N) -> f(x W' + b, z)
 *     layernorm_dx_add    dy, x, mean, rstd, w, z -> layernorm_dx(dy, x, mean, rstd, w) + z       (norm.c)
 *     product_update      a, b, numbers -> the update attrs.i[2] of its cells with the gradient op(a) op(b)
 *
 * z is there only where f has two operands; numbers, (8) f64, only where the update takes some. */
#include "../base/layout.h"
#include "helper.h"

static double step_flops(const struct wn_desc *d, int32_t op)
{
    return wn__flops_over(d, op, wn__elementwise_operands(op));
}

/* ---- elementwise -------------------------------------------------------------------------------------- */
int32_t wn__check_steps(const struct wn_desc *d, const struct wn__fused *c, int32_t least, int32_t most, int32_t inputs)
{
    const char *name = wn__op_name(d->op);
    const int32_t is_chain = d->op == WN_OP_ELEMENTWISE;
    if (c->n < least || c->n > most)
        return wn__fail(WN_VALUE, "%s: %d steps given, expected %d to %d", name, (int)c->n, (int)least, (int)most);
    for (int32_t k = 0; k < c->n; k++) {
        const int32_t op = c->step[k].op, n = wn__elementwise_operands(op);
        if (n == 0 || (op == WN_OP_DROPOUT && !is_chain))
            return wn__fail(WN_VALUE, "%s: step %d is %s, expected an elementwise op", name, (int)k + 1,
                            wn__op_name(op));
        for (int32_t i = 0; i < n; i++) {
            const int32_t v = c->step[k].operand[i], step = v - WN_FUSED_INPUTS;
            if (v >= inputs && !(is_chain && step >= 0 && step < k))
                return wn__fail(WN_VALUE,
                                "%s: step %d reads operand %d, which is neither an input nor a step before it", name,
                                (int)k + 1, (int)v);
        }
    }
    return WN_OK;
}

static int32_t shape_elementwise(struct wn_desc *d)
{
    struct wn__fused c = wn__fused_get(&d->attrs, 0);
    WN_TRY(wn__need_float(d));
    WN_TRY(wn__check_steps(d, &c, 1, WN_FUSED_STEPS, d->n_in));
    if (wn__fused_numbers(&c) > 1)
        return wn__fail(WN_VALUE, "elementwise: %d steps take numbers, expected at most one", wn__fused_numbers(&c));
    d->out.dtype = d->in[0].dtype;
    return wn__broadcast(d);
}

static struct wn_cost cost_elementwise(const struct wn_desc *d)
{
    struct wn__fused c = wn__fused_get(&d->attrs, 0);
    double flops = 0;
    for (int32_t k = 0; k < c.n; k++) flops += step_flops(d, c.step[k].op);
    return wn__cost_of(d, flops);
}

const struct wn__rules wn__rules_elementwise = {shape_elementwise, NULL, .cost = cost_elementwise};

/* ---- a product and one elementwise op over it -------------------------------------------------------- */
static int32_t shape_map(struct wn_desc *d)
{
    struct wn_desc p = wn__product_inside(d);
    int32_t op = (int32_t)d->attrs.i[2], n = wn__elementwise_operands(op);
    if (n == 0 || op == WN_OP_DROPOUT)
        return wn__fail(WN_VALUE, "%s: %s given, expected an elementwise op", wn__op_name(d->op), wn__op_name(op));
    if (d->n_in != p.n_in + n - 1)
        return wn__fail(WN_VALUE, "%s: %d inputs given, expected %d with %s", wn__op_name(d->op), (int)d->n_in,
                        (int)p.n_in + n - 1, wn__op_name(op));
    WN_TRY(wn__op_rules[p.op]->shape(&p));
    d->out = p.out;
    if (n == 1 || wn__type_equal(&d->in[d->n_in - 1], &d->out)) return WN_OK;
    return wn__fail(WN_SHAPE, "%s: the last input is %s, expected %s", wn__op_name(d->op),
                    wn__type_text(&d->in[d->n_in - 1]), wn__type_text(&d->out));
}

static struct wn_cost cost_map(const struct wn_desc *d)
{
    struct wn_desc p = wn__product_inside(d);
    return wn__cost_of(d, wn__op_cost(&p).flops + step_flops(d, (int32_t)d->attrs.i[2]));
}

const struct wn__rules wn__rules_matmul_map = {shape_map, NULL, .cost = cost_map};
const struct wn__rules wn__rules_linear_map = {shape_map, NULL, .cost = cost_map};

/* ---- layernorm_dx_add: the gradient of a layer norm plus that of the residual connection --------------- */
static int32_t shape_layernorm_dx_add(struct wn_desc *d)
{
    struct wn_desc dx = wn__inside(d, WN_OP_LAYERNORM_DX, 5);
    WN_TRY(wn__op_rules[dx.op]->shape(&dx));
    d->out = dx.out;
    return wn__need_shape(d, 5, &d->out, "what is added");
}

static struct wn_cost cost_layernorm_dx_add(const struct wn_desc *d)
{
    const struct wn_desc dx = wn__inside(d, WN_OP_LAYERNORM_DX, 5);
    return wn__cost_of(d, wn__op_cost(&dx).flops + (double)wn__numel(&d->out));
}

const struct wn__rules wn__rules_layernorm_dx_add = {shape_layernorm_dx_add, NULL, .cost = cost_layernorm_dx_add};

/* ---- a product that goes straight into an update ------------------------------------------------------ */
static int32_t shape_product_update(struct wn_desc *d)
{
    struct wn_desc p = wn__product_inside(d);
    int32_t op = (int32_t)d->attrs.i[2];
    if (op != WN_OP_ACCUMULATE && wn__optimizer_cells(op) == 0)
        return wn__fail(WN_VALUE, "product_update: %s given, expected an update", wn__op_name(op));
    WN_TRY(wn__op_rules[p.op]->shape(&p));
    d->out = p.out;
    return WN_OK;
}

/* Returns the sum of the costs of the product and of the update, less the bytes of the gradient, which is neither
 * written nor read. */
static struct wn_cost cost_product_update(const struct wn_desc *d)
{
    const struct wn_desc p = wn__product_inside(d);
    struct wn_type in[2] = {d->out, d->n_in > 2 ? d->in[2] : d->out};
    struct wn_desc update = {.op = (int32_t)d->attrs.i[2], .n_in = d->n_in - 1, .out = d->out, .in = in};
    struct wn_cost product = wn__op_cost(&p), sum = wn__op_cost(&update);
    sum.flops += product.flops;
    sum.bytes += product.bytes - 2.0 * (double)wn__bytes(&d->out);
    return sum;
}

const struct wn__rules wn__rules_product_update = {shape_product_update, NULL, .cost = cost_product_update};
