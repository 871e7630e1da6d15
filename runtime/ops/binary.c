/* Elementwise ops of two inputs, and where.
 *
 * Shapes broadcast, dtypes never do: two inputs of different dtypes are an error. Every gradient is summed
 * back to its input's shape (wn__emit_sum_to), and an expression an input did not ask for is not emitted, so
 * a residual is kept only for who wants it. Subgradients at ties are PyTorch's. */
#include "helper.h"

enum { DIV_FLOPS = 4, POW_FLOPS = 30 };

/* ---- shapes and costs shared here ------------------------------------------------------------------ */
static int32_t shape_arith(struct wn_desc *d)
{
    WN_TRY(wn__need_arith(d));
    WN_TRY(wn__same_dtype(d));
    d->out.dtype = d->in[0].dtype;
    return wn__broadcast(d);
}

static int32_t shape_float(struct wn_desc *d)
{
    WN_TRY(wn__need_float(d));
    WN_TRY(wn__same_dtype(d));
    d->out.dtype = d->in[0].dtype;
    return wn__broadcast(d);
}

static void give(struct wn__grad *g, int32_t i, struct wn_node *v)
{
    g->dx[i] = wn__emit_sum_to(g->e, v, &g->d->in[i]);
}

static struct wn_node *choose(struct wn__grad *g, struct wn_node *cond, struct wn_node *yes, struct wn_node *no)
{
    struct wn_node *in[3] = {cond, yes, no};
    return wn__emit(g->e, WN_OP_WHERE, 3, in, NULL);
}

/* ---- add ------------------------------------------------------------------------------------------- */
static void grad_add(struct wn__grad *g)
{
    for (int32_t i = 0; i < 2; i++)
        if (wn__wants(g, i)) give(g, i, g->dy);
}

const struct wn__rules wn__rules_add = {shape_arith, wn__cost_elementwise, grad_add, NULL};

/* ---- sub ------------------------------------------------------------------------------------------- */
static void grad_sub(struct wn__grad *g)
{
    if (wn__wants(g, 0)) give(g, 0, g->dy);
    if (!wn__wants(g, 1)) return;
    give(g, 1, g->dy); /* negated after the sum: the smaller value, the same bits */
    g->dx[1] = wn__emit1(g->e, WN_OP_NEG, g->dx[1]);
}

const struct wn__rules wn__rules_sub = {shape_arith, wn__cost_elementwise, grad_sub, NULL};

/* ---- mul ------------------------------------------------------------------------------------------- */
static void grad_mul(struct wn__grad *g)
{
    for (int32_t i = 0; i < 2; i++)
        if (wn__wants(g, i)) give(g, i, wn__emit2(g->e, WN_OP_MUL, g->dy, g->in[1 - i]));
}

const struct wn__rules wn__rules_mul = {shape_arith, wn__cost_elementwise, grad_mul, NULL};

/* ---- div: d(a/b) = dy/b, -dy y/b ------------------------------------------------------------------- */
static void cost_div(const struct wn_desc *d, struct wn_cost *cost)
{
    wn__cost_per_output(d, DIV_FLOPS, cost);
}

static void grad_div(struct wn__grad *g)
{
    struct wn_node *b = g->in[1];
    if (wn__wants(g, 0)) give(g, 0, wn__emit2(g->e, WN_OP_DIV, g->dy, b));
    if (!wn__wants(g, 1)) return;
    /* y stands for a/b: a itself need not be kept */
    give(g, 1, wn__emit2(g->e, WN_OP_DIV, wn__emit2(g->e, WN_OP_MUL, g->dy, g->out), b));
    g->dx[1] = wn__emit1(g->e, WN_OP_NEG, g->dx[1]);
}

const struct wn__rules wn__rules_div = {shape_float, cost_div, grad_div, NULL};

/* ---- pow: d(a^b) = dy b a^(b-1), dy y log a -------------------------------------------------------- */
static void cost_pow(const struct wn_desc *d, struct wn_cost *cost)
{
    wn__cost_per_output(d, POW_FLOPS, cost);
}

/* Where b is 0 the exponent stays 0, so that a = 0 gives 0 and not 0 x infinity. */
static struct wn_node *pow_base_grad(struct wn__grad *g)
{
    struct wn_node *a = g->in[0], *b = g->in[1], *zero = wn__emit_number(g, 0);
    struct wn_node *less = wn__emit2(g->e, WN_OP_SUB, b, wn__emit_number(g, 1));
    struct wn_node *exponent = choose(g, wn__emit2(g->e, WN_OP_EQ, b, zero), zero, less);
    struct wn_node *slope = wn__emit2(g->e, WN_OP_MUL, wn__emit2(g->e, WN_OP_POW, a, exponent), b);
    return wn__emit2(g->e, WN_OP_MUL, g->dy, slope);
}

/* Where a is 0 and b is not negative the slope is 0: the logarithm is taken of 1 there. */
static struct wn_node *pow_exponent_grad(struct wn__grad *g)
{
    struct wn_node *a = g->in[0], *b = g->in[1], *zero = wn__emit_number(g, 0);
    struct wn_node *at_zero = choose(g, wn__emit2(g->e, WN_OP_GE, b, zero), wn__emit_number(g, 1), a);
    struct wn_node *safe = choose(g, wn__emit2(g->e, WN_OP_EQ, a, zero), at_zero, a);
    struct wn_node *slope = wn__emit2(g->e, WN_OP_MUL, wn__emit1(g->e, WN_OP_LOG, safe), g->out);
    return wn__emit2(g->e, WN_OP_MUL, g->dy, slope);
}

static void grad_pow(struct wn__grad *g)
{
    if (wn__wants(g, 0)) give(g, 0, pow_base_grad(g));
    if (wn__wants(g, 1)) give(g, 1, pow_exponent_grad(g));
}

const struct wn__rules wn__rules_pow = {shape_float, cost_pow, grad_pow, NULL};

/* ---- maximum, minimum: the winner takes dy, a tie half each, and where one is NaN both take it ------- */
static void grad_extreme(struct wn__grad *g, int32_t first_loses, int32_t second_loses)
{
    struct wn_node *a = g->in[0], *b = g->in[1], *zero = wn__emit_number(g, 0);
    struct wn_node *half = wn__emit2(g->e, WN_OP_MUL, g->dy, wn__emit_number(g, 0.5));
    struct wn_node *share = choose(g, wn__emit2(g->e, WN_OP_EQ, a, b), half, g->dy);
    if (wn__wants(g, 0)) give(g, 0, choose(g, wn__emit2(g->e, first_loses, a, b), zero, share));
    if (wn__wants(g, 1)) give(g, 1, choose(g, wn__emit2(g->e, second_loses, a, b), zero, share));
}

static void grad_maximum(struct wn__grad *g)
{
    grad_extreme(g, WN_OP_LT, WN_OP_GT);
}

static void grad_minimum(struct wn__grad *g)
{
    grad_extreme(g, WN_OP_GT, WN_OP_LT);
}

const struct wn__rules wn__rules_maximum = {shape_arith, wn__cost_elementwise, grad_maximum, NULL};
const struct wn__rules wn__rules_minimum = {shape_arith, wn__cost_elementwise, grad_minimum, NULL};

/* ---- eq, ne, lt, gt, le, ge: 1 or 0 in u8 ---------------------------------------------------------- */
static int32_t shape_compare(struct wn_desc *d)
{
    WN_TRY(wn__same_dtype(d));
    WN_TRY(wn__need_element(d, d->in[0].dtype));
    d->out.dtype = WN_U8;
    return wn__broadcast(d);
}

const struct wn__rules wn__rules_eq = {shape_compare, wn__cost_elementwise, NULL, NULL};
const struct wn__rules wn__rules_ne = {shape_compare, wn__cost_elementwise, NULL, NULL};
const struct wn__rules wn__rules_lt = {shape_compare, wn__cost_elementwise, NULL, NULL};
const struct wn__rules wn__rules_gt = {shape_compare, wn__cost_elementwise, NULL, NULL};
const struct wn__rules wn__rules_le = {shape_compare, wn__cost_elementwise, NULL, NULL};
const struct wn__rules wn__rules_ge = {shape_compare, wn__cost_elementwise, NULL, NULL};

/* ---- where ----------------------------------------------------------------------------------------- */
static int32_t shape_where(struct wn_desc *d)
{
    if (d->in[0].dtype != WN_U8)
        return wn__fail(WN_DTYPE, "where: the condition is %s, expected u8; compare first, as a:ne(b) does",
                        wn__type_text(&d->in[0]));
    WN_TRY(wn__same_dtype_at(d, 1, 2));
    WN_TRY(wn__need_element(d, d->in[1].dtype));
    d->out.dtype = d->in[1].dtype;
    return wn__broadcast(d);
}

static void grad_where(struct wn__grad *g)
{
    struct wn_node *zero = wn__emit_number(g, 0);
    if (wn__wants(g, 1)) give(g, 1, choose(g, g->in[0], g->dy, zero));
    if (wn__wants(g, 2)) give(g, 2, choose(g, g->in[0], zero, g->dy));
}

const struct wn__rules wn__rules_where = {shape_where, wn__cost_elementwise, grad_where, NULL};
