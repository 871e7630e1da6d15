/* Elementwise ops of one input, and their derivatives; x, y, dy, dx have one shape.
 *
 *     op                 y                                  dx                                    residual
 *     neg                -x                                 -dy                                   none
 *     abs                |x|                                abs_grad = dy sign(x)                 x
 *     exp                e^x                                dy y                                  y
 *     log                log x                              dy / x                                x
 *     sqrt               sqrt x                             sqrt_grad = dy / (2 y)                y
 *     rsqrt              1 / sqrt x                         -dy y^3 / 2                           y
 *     relu               max(x, 0)                          relu_grad = dy where y > 0            y
 *     gelu               x Phi(x), Phi with erf             gelu_grad                             x
 *     silu               x sigmoid(x)                       silu_grad                             x
 *     tanh               tanh x                             tanh_grad = dy (1 - y^2)              y
 *     sigmoid            1 / (1 + e^-x)                     sigmoid_grad = dy y (1 - y)           y
 *     softplus           log(1 + e^x)                       dy sigmoid(x)                         x
 *     sin, cos           sin x, cos x                       dy cos x, -dy sin x                   x
 *     log1p              log(1 + x)                         dy / (x + 1)                          x
 *     expm1              e^x - 1                            dy (y + 1)                            y
 *     floor, round       a whole number                     0                                     none
 *     sign               1, 0 or -1                         0                                     none
 *     clamp              min(max(x, low), high)             clamp_grad = dy where low < x < high  x
 *     isnan, isfinite    1 or 0 in u8                       none
 *     within             x, where f[0] <= x <= f[1]         none; raises elsewhere
 *     cast               x in attrs.dtype                   dy in the dtype of x                  none
 *
 * A gradient reads the cheapest residual: y where y suffices, so that x may be freed. dy is input 0 of a derivative op,
 * so its bytes may be reused. Gradients at a kink and at NaN are those of PyTorch 2.15: 0 at x = 0 for abs and relu, 0
 * at the bounds of clamp; at NaN, 0 for abs and clamp, dy for relu. */
#include "helper.h"

enum { CHEAP = 1, ROOT = 4, TRANSCENDENTAL = 12, ERF = 20, SLOPE = 3 }; /* FLOPs of an element */

/* A derivative op is dx = dy f(v), with v = x or y. With u the gradient of dx, that of dy is u f(v), the same op; that
 * of v is u dy f'(v), composed of other ops. */

/* Records the gradients of a derivative op whose f is piecewise constant: f' = 0. */
static void grad_steps(struct wn__grad *g)
{
    wn__grad_linear_in_first(g);
    wn__give_zero(g, 1);
}

/* Records u dy. */
static struct wn_node *both(struct wn__grad *g)
{
    return wn__emit_mul(g, g->dy, g->in[0]);
}

/* Records v a + b. */
static struct wn_node *line(struct wn__grad *g, struct wn_node *v, double a, double b)
{
    return wn__emit2(g->e, WN_OP_ADD, wn__emit_mul(g, v, wn__emit_number(g, a)), wn__emit_number(g, b));
}

/* Records dx = op(dy, v). */
static void by(struct wn__grad *g, int32_t op, struct wn_node *v)
{
    if (wn__wants(g, 0)) g->dx[0] = wn__emit2(g->e, op, g->dy, v);
}

/* ---- neg ------------------------------------------------------------------------------------------- */
static void grad_neg(struct wn__grad *g)
{
    if (wn__wants(g, 0)) g->dx[0] = wn__emit1(g->e, WN_OP_NEG, g->dy);
}

const struct wn__rules wn__rules_neg = {wn__like_first_arith, grad_neg, .per_output = CHEAP};

/* ---- abs ----------------------------------------------------------------------------------------- */
const struct wn__rules wn__rules_abs = {wn__like_first_arith, wn__grad_by_x, WN_OP_ABS_GRAD, .per_output = CHEAP};
const struct wn__rules wn__rules_abs_grad = {wn__shape_derivative, grad_steps, .per_output = CHEAP};

/* ---- exp ----------------------------------------------------------------------------------------- */
const struct wn__rules wn__rules_exp = {wn__like_first, wn__grad_by_y, WN_OP_MUL, .per_output = TRANSCENDENTAL};

/* ---- log ----------------------------------------------------------------------------------------- */
const struct wn__rules wn__rules_log = {wn__like_first, wn__grad_by_x, WN_OP_DIV, .per_output = TRANSCENDENTAL};

/* ---- sqrt ---------------------------------------------------------------------------------------- */
/* f(y) = 1 / (2 y), f'(y) = -f(y) / y, and g->out = dy f(y). */
static void grad_sqrt_grad(struct wn__grad *g)
{
    wn__grad_linear_in_first(g);
    if (!wn__wants(g, 1)) return;
    struct wn_node *slope = wn__emit2(g->e, WN_OP_DIV, wn__emit_mul(g, g->dy, g->out), g->in[1]);
    g->dx[1] = wn__emit1(g->e, WN_OP_NEG, slope);
}

const struct wn__rules wn__rules_sqrt = {wn__like_first, wn__grad_by_y, WN_OP_SQRT_GRAD, .per_output = ROOT};
const struct wn__rules wn__rules_sqrt_grad = {wn__shape_derivative, grad_sqrt_grad, .per_output = ROOT};

/* ---- rsqrt --------------------------------------------------------------------------------------- */
static void grad_rsqrt(struct wn__grad *g)
{
    if (!wn__wants(g, 0)) return;
    struct wn_node *y = g->out, *half = wn__emit_scalar(g->e, -0.5, g->d->out.dtype);
    struct wn_node *cube = wn__emit2(g->e, WN_OP_MUL, wn__emit2(g->e, WN_OP_MUL, y, y), y);
    g->dx[0] = wn__emit2(g->e, WN_OP_MUL, wn__emit2(g->e, WN_OP_MUL, g->dy, cube), half);
}

const struct wn__rules wn__rules_rsqrt = {wn__like_first, grad_rsqrt, .per_output = ROOT};

/* ---- relu ---------------------------------------------------------------------------------------- */
const struct wn__rules wn__rules_relu = {wn__like_first, wn__grad_by_y, WN_OP_RELU_GRAD, .per_output = CHEAP};
const struct wn__rules wn__rules_relu_grad = {wn__shape_derivative, grad_steps, .per_output = CHEAP};

/* ---- gelu ---------------------------------------------------------------------------------------- */
/* f(x) = Phi(x) + x phi(x), f'(x) = (2 - x^2) exp(-x^2 / 2) / sqrt(2 pi). Where |x| > BELL_ENDS the exponential is 0 in
 * every dtype; x is clamped there so that its square stays finite. */
#define BELL_ENDS 40.0
#define BELL_TOP 0.39894228040143267794 /* 1 / sqrt(2 pi) */
static void grad_gelu_grad(struct wn__grad *g)
{
    struct wn_attrs ends = {.f = {-BELL_ENDS, BELL_ENDS}};
    wn__grad_linear_in_first(g);
    if (!wn__wants(g, 1)) return;
    struct wn_node *x = wn__emit_op(g, WN_OP_CLAMP, g->in[1], &ends), *square = wn__emit_mul(g, x, x);
    struct wn_node *bell = wn__emit1(g->e, WN_OP_EXP, wn__emit_mul(g, square, wn__emit_number(g, -0.5)));
    struct wn_node *slope = wn__emit_mul(g, bell, line(g, square, -BELL_TOP, 2 * BELL_TOP));
    g->dx[1] = wn__emit_mul(g, both(g), slope);
}

const struct wn__rules wn__rules_gelu = {wn__like_first, wn__grad_by_x, WN_OP_GELU_GRAD, .per_output = ERF};
const struct wn__rules wn__rules_gelu_grad = {wn__shape_derivative, grad_gelu_grad, .per_output = ERF};

/* ---- silu ---------------------------------------------------------------------------------------- */
/* With s = sigmoid(x): f(x) = s (1 + x (1 - s)), f'(x) = s (1 - s) (2 + x (1 - 2 s)). */
static void grad_silu_grad(struct wn__grad *g)
{
    wn__grad_linear_in_first(g);
    if (!wn__wants(g, 1)) return;
    struct wn_node *x = g->in[1], *s = wn__emit1(g->e, WN_OP_SIGMOID, x);
    struct wn_node *bent = wn__emit_mul(g, x, line(g, s, -2, 1));
    struct wn_node *factor = wn__emit2(g->e, WN_OP_ADD, bent, wn__emit_number(g, 2));
    g->dx[1] = wn__emit_mul(g, wn__emit2(g->e, WN_OP_SIGMOID_GRAD, both(g), s), factor);
}

const struct wn__rules wn__rules_silu = {wn__like_first, wn__grad_by_x, WN_OP_SILU_GRAD, .per_output = TRANSCENDENTAL};
const struct wn__rules wn__rules_silu_grad = {wn__shape_derivative, grad_silu_grad, .per_output = TRANSCENDENTAL};

/* ---- tanh ---------------------------------------------------------------------------------------- */
/* f(y) = 1 - y^2, f'(y) = -2 y. */
static void grad_tanh_grad(struct wn__grad *g)
{
    wn__grad_linear_in_first(g);
    if (wn__wants(g, 1)) g->dx[1] = wn__emit_mul(g, both(g), wn__emit_mul(g, g->in[1], wn__emit_number(g, -2)));
}

const struct wn__rules wn__rules_tanh = {wn__like_first, wn__grad_by_y, WN_OP_TANH_GRAD, .per_output = TRANSCENDENTAL};
const struct wn__rules wn__rules_tanh_grad = {wn__shape_derivative, grad_tanh_grad, .per_output = SLOPE};

/* ---- sigmoid ------------------------------------------------------------------------------------- */
/* f(y) = y (1 - y), f'(y) = 1 - 2 y. */
static void grad_sigmoid_grad(struct wn__grad *g)
{
    wn__grad_linear_in_first(g);
    if (wn__wants(g, 1)) g->dx[1] = wn__emit_mul(g, both(g), line(g, g->in[1], -2, 1));
}

const struct wn__rules wn__rules_sigmoid = {wn__like_first, wn__grad_by_y, WN_OP_SIGMOID_GRAD,
                                            .per_output = TRANSCENDENTAL};
const struct wn__rules wn__rules_sigmoid_grad = {wn__shape_derivative, grad_sigmoid_grad, .per_output = SLOPE};

/* ---- softplus ------------------------------------------------------------------------------------ */
static void grad_softplus(struct wn__grad *g)
{
    if (wn__wants(g, 0)) by(g, WN_OP_MUL, wn__emit1(g->e, WN_OP_SIGMOID, g->in[0]));
}

const struct wn__rules wn__rules_softplus = {wn__like_first, grad_softplus, .per_output = TRANSCENDENTAL};

/* ---- sin, cos ------------------------------------------------------------------------------------ */
static void grad_sin(struct wn__grad *g)
{
    if (wn__wants(g, 0)) by(g, WN_OP_MUL, wn__emit1(g->e, WN_OP_COS, g->in[0]));
}

static void grad_cos(struct wn__grad *g)
{
    if (!wn__wants(g, 0)) return;
    by(g, WN_OP_MUL, wn__emit1(g->e, WN_OP_SIN, g->in[0]));
    g->dx[0] = wn__emit1(g->e, WN_OP_NEG, g->dx[0]);
}

const struct wn__rules wn__rules_sin = {wn__like_first, grad_sin, .per_output = TRANSCENDENTAL};
const struct wn__rules wn__rules_cos = {wn__like_first, grad_cos, .per_output = TRANSCENDENTAL};

/* ---- log1p, expm1 -------------------------------------------------------------------------------- */
/* Records v + 1. */
static struct wn_node *next(struct wn__grad *g, struct wn_node *v)
{
    return wn__emit2(g->e, WN_OP_ADD, v, wn__emit_number(g, 1));
}

static void grad_log1p(struct wn__grad *g)
{
    if (wn__wants(g, 0)) by(g, WN_OP_DIV, next(g, g->in[0]));
}

static void grad_expm1(struct wn__grad *g)
{
    if (wn__wants(g, 0)) by(g, WN_OP_MUL, next(g, g->out));
}

const struct wn__rules wn__rules_log1p = {wn__like_first, grad_log1p, .per_output = TRANSCENDENTAL};
const struct wn__rules wn__rules_expm1 = {wn__like_first, grad_expm1, .per_output = TRANSCENDENTAL};

/* ---- floor, round, sign -------------------------------------------------------------------------- */
/* Records the gradient of a function that is constant but for its steps: 0. */
static void grad_flat(struct wn__grad *g)
{
    if (wn__wants(g, 0)) wn__give_zero(g, 0);
}

const struct wn__rules wn__rules_floor = {wn__like_first, grad_flat, .per_output = CHEAP};
const struct wn__rules wn__rules_round = {wn__like_first, grad_flat, .per_output = CHEAP};
const struct wn__rules wn__rules_sign = {wn__like_first_arith, grad_flat, .per_output = CHEAP};

/* ---- clamp --------------------------------------------------------------------------------------- */
static int32_t check_bounds(const struct wn_desc *d)
{
    double low = d->attrs.f[0], high = d->attrs.f[1];
    if (low <= high) return WN_OK; /* infinities are bounds too; a NaN is not */
    return wn__fail(WN_VALUE, "%s: bounds %g and %g given, expected low <= high", wn__op_name(d->op), low, high);
}

static int32_t shape_clamp(struct wn_desc *d)
{
    WN_TRY(check_bounds(d));
    return wn__like_first(d);
}

static int32_t shape_clamp_grad(struct wn_desc *d)
{
    WN_TRY(check_bounds(d));
    return wn__shape_derivative(d);
}

const struct wn__rules wn__rules_clamp = {shape_clamp, wn__grad_by_x, WN_OP_CLAMP_GRAD, .per_output = CHEAP};
const struct wn__rules wn__rules_clamp_grad = {shape_clamp_grad, grad_steps, .per_output = CHEAP};

/* ---- isnan, isfinite ----------------------------------------------------------------------------- */
static int32_t shape_finite(struct wn_desc *d)
{
    WN_TRY(wn__need_float(d));
    d->out = d->in[0];
    d->out.dtype = WN_U8;
    return WN_OK;
}

const struct wn__rules wn__rules_isnan = {shape_finite, NULL, .per_output = CHEAP};
const struct wn__rules wn__rules_isfinite = {shape_finite, NULL, .per_output = CHEAP};

/* ---- within -------------------------------------------------------------------------------------- */
const struct wn__rules wn__rules_within = {wn__like_first, wn__grad_same, .per_output = CHEAP};

/* ---- cast ------------------------------------------------------------------------------------------ */
static int32_t shape_cast(struct wn_desc *d)
{
    WN_TRY(wn__need_element(d, d->in[0].dtype));
    WN_TRY(wn__need_element(d, d->attrs.dtype));
    d->out = d->in[0];
    d->out.dtype = d->attrs.dtype;
    return wn__check_out(d);
}

/* Records the gradient of a cast; a cast from or to whole numbers has none. */
static void grad_cast(struct wn__grad *g)
{
    int32_t from = g->d->in[0].dtype;
    if (!wn__wants(g, 0) || !wn__dtype_is_float(from) || !wn__dtype_is_float(g->d->out.dtype)) return;
    struct wn_attrs back = {.dtype = from};
    g->dx[0] = wn__emit_op(g, WN_OP_CAST, g->dy, &back);
}

const struct wn__rules wn__rules_cast = {shape_cast, grad_cast, .per_output = CHEAP};
