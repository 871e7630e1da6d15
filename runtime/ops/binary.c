/* Elementwise ops of two inputs, and where.
 *
 *     op                      y                    da                            db
 *     add                     a + b                dy                            dy
 *     sub                     a - b                dy                            -dy
 *     mul                     a b                  dy b                          dy a
 *     div                     a / b                dy / b                        -dy y / b
 *     pow                     a^b                  dy b a^(b-1)                  dy y log a
 *     maximum                 max(a, b)            dy where a > b, dy/2 at a tie, 0 where a < b; db alike
 *     minimum                 min(a, b)            dy where a < b, dy/2 at a tie, 0 where a > b; db alike
 *     eq ne lt gt le ge       1 or 0 in u8         none
 *     where                   c ? a : b, c in u8   c ? dy : 0                    c ? 0 : dy
 *
 * a, b, c broadcast to the shape of y; wn__emit_sum_to sums each gradient back to the shape of its input. Dtypes never
 * broadcast: inputs of different dtypes are an error. A gradient that is not asked for is not recorded, so its
 * residuals are not kept. The subgradients at ties are PyTorch's: where a or b is NaN, both take dy. */
#include "helper.h"

enum { DIV_FLOPS = 4, POW_FLOPS = 30 };

/* ---- shared ---------------------------------------------------------------------------------------- */
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
    d->out.dtype = d->in[0].dtype;
    return wn__broadcast(d);
}

/* Writes the gradient of input i: v, summed to the shape of input i. */
static void give(struct wn__grad *g, int32_t i, struct wn_node *v)
{
    g->dx[i] = wn__emit_sum_to(g->e, v, &g->d->in[i]);
}

/* Records cond ? yes : no. */
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

const struct wn__rules wn__rules_add = {shape_arith, grad_add, .per_output = 1};

/* ---- sub ------------------------------------------------------------------------------------------- */
static void grad_sub(struct wn__grad *g)
{
    if (wn__wants(g, 0)) give(g, 0, g->dy);
    if (!wn__wants(g, 1)) return;
    give(g, 1, g->dy); /* -sum(dy) has the bits of sum(-dy), and negates fewer elements */
    g->dx[1] = wn__emit1(g->e, WN_OP_NEG, g->dx[1]);
}

const struct wn__rules wn__rules_sub = {shape_arith, grad_sub, .per_output = 1};

/* ---- mul ------------------------------------------------------------------------------------------- */
static void grad_mul(struct wn__grad *g)
{
    for (int32_t i = 0; i < 2; i++)
        if (wn__wants(g, i)) give(g, i, wn__emit2(g->e, WN_OP_MUL, g->dy, g->in[1 - i]));
}

const struct wn__rules wn__rules_mul = {shape_arith, grad_mul, .per_output = 1};

/* ---- div ------------------------------------------------------------------------------------------- */
static void grad_div(struct wn__grad *g)
{
    struct wn_node *b = g->in[1];
    if (wn__wants(g, 0)) give(g, 0, wn__emit2(g->e, WN_OP_DIV, g->dy, b));
    if (!wn__wants(g, 1)) return;
    /* db = -dy y / b reads y instead of a, so a need not be kept. */
    give(g, 1, wn__emit2(g->e, WN_OP_DIV, wn__emit2(g->e, WN_OP_MUL, g->dy, g->out), b));
    g->dx[1] = wn__emit1(g->e, WN_OP_NEG, g->dx[1]);
}

const struct wn__rules wn__rules_div = {shape_float, grad_div, .per_output = DIV_FLOPS};

/* ---- pow ------------------------------------------------------------------------------------------- */
/* Records da = dy b a^e with e = b - 1, and e = 0 where b = 0, so that a = b = 0 gives 0 and not 0 x infinity. */
static struct wn_node *pow_base_grad(struct wn__grad *g)
{
    struct wn_node *a = g->in[0], *b = g->in[1], *zero = wn__emit_number(g, 0);
    struct wn_node *less = wn__emit2(g->e, WN_OP_SUB, b, wn__emit_number(g, 1));
    struct wn_node *exponent = choose(g, wn__emit2(g->e, WN_OP_EQ, b, zero), zero, less);
    struct wn_node *slope = wn__emit2(g->e, WN_OP_MUL, wn__emit2(g->e, WN_OP_POW, a, exponent), b);
    return wn__emit2(g->e, WN_OP_MUL, g->dy, slope);
}

/* Records db = dy y log(s) with s = a, and s = 1 where a = 0 and b >= 0, so that the slope is 0 there. */
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

const struct wn__rules wn__rules_pow = {shape_float, grad_pow, .per_output = POW_FLOPS};

/* ---- maximum, minimum ------------------------------------------------------------------------------ */
/* Records the gradients of maximum or minimum. Each comparison of (a, b) is true where one of them gets no gradient.
 * Both are false where a or b is NaN, so both get dy. */
static void grad_extreme(struct wn__grad *g)
{
    int32_t first_loses = g->d->op == WN_OP_MAXIMUM ? WN_OP_LT : WN_OP_GT;
    int32_t second_loses = g->d->op == WN_OP_MAXIMUM ? WN_OP_GT : WN_OP_LT;
    struct wn_node *a = g->in[0], *b = g->in[1], *zero = wn__emit_number(g, 0);
    struct wn_node *half = wn__emit2(g->e, WN_OP_MUL, g->dy, wn__emit_number(g, 0.5));
    struct wn_node *share = choose(g, wn__emit2(g->e, WN_OP_EQ, a, b), half, g->dy);
    if (wn__wants(g, 0)) give(g, 0, choose(g, wn__emit2(g->e, first_loses, a, b), zero, share));
    if (wn__wants(g, 1)) give(g, 1, choose(g, wn__emit2(g->e, second_loses, a, b), zero, share));
}

const struct wn__rules wn__rules_maximum = {shape_arith, grad_extreme, .per_output = 1};
const struct wn__rules wn__rules_minimum = {shape_arith, grad_extreme, .per_output = 1};

/* ---- eq, ne, lt, gt, le, ge ------------------------------------------------------------------------ */
static int32_t shape_compare(struct wn_desc *d)
{
    WN_TRY(wn__same_dtype(d));
    WN_TRY(wn__need_element(d, d->in[0].dtype));
    d->out.dtype = WN_U8;
    return wn__broadcast(d);
}

const struct wn__rules wn__rules_eq = {shape_compare, NULL, .per_output = 1};
const struct wn__rules wn__rules_ne = {shape_compare, NULL, .per_output = 1};
const struct wn__rules wn__rules_lt = {shape_compare, NULL, .per_output = 1};
const struct wn__rules wn__rules_gt = {shape_compare, NULL, .per_output = 1};
const struct wn__rules wn__rules_le = {shape_compare, NULL, .per_output = 1};
const struct wn__rules wn__rules_ge = {shape_compare, NULL, .per_output = 1};

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

const struct wn__rules wn__rules_where = {shape_where, grad_where, .per_output = 1};
