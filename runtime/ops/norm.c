/* Layer norm over the last dim, of length D (Ba, Kiros, Hinton, "Layer Normalization", 2016).
 *
 *     row_mean      x: (..., D) -> mean: (...)                        mean = m(x)
 *     row_rstd      x, mean -> rstd: (...)                            rstd = 1 / sqrt(m((x - mean)^2) + eps)
 *     layernorm     x, mean, rstd, w: (D), b: (D) -> y: (..., D)      y = h w + b
 *     layernorm_dx  dy: (..., D), x, mean, rstd, w -> dx: (..., D)    dx = rstd (g - m(g) - h m(g h))
 *     layernorm_dw  dy, x, mean, rstd -> dw: (D)                      dw = sum of dy h over all rows
 *
 * with eps = attrs.f[0], m(v) the mean of v over D, h = (x - mean) rstd, g = dy w; db is the sum of dy over all rows.
 * dx is linear in g, by a symmetric matrix. layernorm_dx needs no eps, because rstd contains it.
 *
 * mean and rstd are values of their own, so a policy may save or recompute them. layernorm and its derivatives are
 * differentiated as functions of x alone: what flows through mean and rstd is part of dx, and the inputs mean and rstd
 * get zero. That is right only where they are row_mean and row_rstd of the same x; a gradient through another mean or
 * rstd is refused. */
#include "helper.h"

/* FLOPs of an element of x. */
enum { MEAN_FLOPS = 1, RSTD_FLOPS = 3, NORM_FLOPS = 4, DX_FLOPS = 12, DW_FLOPS = 4 };

/* Splits the type of input i, (..., D) with D > 0: *rows becomes (...), *width becomes (D). */
static int32_t split(const struct wn_desc *d, int32_t i, struct wn_type *rows, struct wn_type *width)
{
    const struct wn_type *x = &d->in[i];
    if (x->ndim < 1 || x->dim[x->ndim - 1] < 1)
        return wn__fail(WN_SHAPE, "%s: input %d is %s, expected a last dim of 1 or more; reshape it",
                        wn__op_name(d->op), (int)i + 1, wn__shape_text(x));
    *rows = *x;
    rows->ndim--;
    rows->dim[rows->ndim] = 0;
    *width = (struct wn_type){.dtype = x->dtype, .ndim = 1, .dim = {x->dim[x->ndim - 1]}};
    return WN_OK;
}

/* Checks that all inputs have one floating-point dtype, and splits the type of input x. */
static int32_t open_rows(const struct wn_desc *d, int32_t x, struct wn_type *rows, struct wn_type *width)
{
    WN_TRY(wn__need_float(d));
    return split(d, x, rows, width);
}

/* ---- nodes that several gradients record -------------------------------------------------------------- */

/* Records v: (...) as (..., 1). rows: the type (...). */
static struct wn_node *column(struct wn__grad *g, struct wn_node *v, const struct wn_type *rows)
{
    struct wn_type t = *rows;
    t.dim[t.ndim++] = 1;
    return wn__emit_reshape(g, v, &t);
}

/* Records m(v): (..., 1) of v: (..., D). */
static struct wn_node *row_mean(struct wn__grad *g, struct wn_node *v, const struct wn_type *rows)
{
    return column(g, wn__emit1(g->e, WN_OP_ROW_MEAN, v), rows);
}

/* Returns whether inputs x + 1 and x + 2 are row_mean and row_rstd of input x. */
static int32_t is_of_rows(const struct wn__grad *g, int32_t x)
{
    return wn__is_made_by(g, g->in[x + 1], WN_OP_ROW_MEAN, g->in[x]) &&
           wn__is_made_by(g, g->in[x + 2], WN_OP_ROW_RSTD, g->in[x]);
}

/* Records h = (x - mean) rstd, of inputs x, x + 1 and x + 2. */
static struct wn_node *normalised(struct wn__grad *g, int32_t x)
{
    const struct wn_type *rows = &g->d->in[x + 1];
    struct wn_node *apart = wn__emit2(g->e, WN_OP_SUB, g->in[x], column(g, g->in[x + 1], rows));
    return wn__emit_mul(g, apart, column(g, g->in[x + 2], rows));
}

/* Records layernorm_dx(dy, inputs x, x + 1 and x + 2, w). */
static struct wn_node *through(struct wn__grad *g, struct wn_node *dy, int32_t x, struct wn_node *w)
{
    struct wn_node *in[5] = {dy, g->in[x], g->in[x + 1], g->in[x + 2], w};
    return wn__emit(g->e, WN_OP_LAYERNORM_DX, 5, in, NULL);
}

/* ---- row_mean -------------------------------------------------------------------------------------- */
static int32_t shape_row_mean(struct wn_desc *d)
{
    struct wn_type width;
    return open_rows(d, 0, &d->out, &width);
}

/* Records v / D, v: (...), as (..., D): each element of a row is the same. */
static struct wn_node *spread(struct wn__grad *g, struct wn_node *v)
{
    const struct wn_type *x = &g->d->in[0];
    struct wn_attrs shape = wn__attrs_shape(x);
    struct wn_node *share = wn__emit_mul(g, v, wn__emit_number(g, 1.0 / (double)x->dim[x->ndim - 1]));
    return wn__emit_op(g, WN_OP_EXPAND, column(g, share, &g->d->out), &shape);
}

static void grad_row_mean(struct wn__grad *g)
{
    if (wn__wants(g, 0)) g->dx[0] = spread(g, g->dy);
}

const struct wn__rules wn__rules_row_mean = {shape_row_mean, grad_row_mean, .per_input = MEAN_FLOPS};

/* ---- row_rstd -------------------------------------------------------------------------------------- */
static int32_t shape_row_rstd(struct wn_desc *d)
{
    struct wn_type rows, width;
    WN_TRY(open_rows(d, 0, &rows, &width));
    WN_TRY(wn__need_shape(d, 1, &rows, "the mean"));
    if (!(d->attrs.f[0] >= 0)) return wn__fail(WN_VALUE, "row_rstd: eps %g given, expected 0 or more", d->attrs.f[0]);
    d->out = rows;
    return WN_OK;
}

/* dx = -dy rstd^3 (x - mean) / D, dmean = -(sum of dx over the row). */
static void grad_row_rstd(struct wn__grad *g)
{
    struct wn_node *r = g->out, *cube = wn__emit_mul(g, wn__emit_mul(g, r, r), r);
    struct wn_node *apart = wn__emit2(g->e, WN_OP_SUB, g->in[0], column(g, g->in[1], &g->d->out));
    struct wn_node *share = spread(g, wn__emit1(g->e, WN_OP_NEG, wn__emit_mul(g, g->dy, cube)));
    struct wn_node *dx = wn__emit_mul(g, share, apart);
    struct wn_attrs row = {.n = 1, .i = {g->d->in[0].ndim - 1}};
    if (wn__wants(g, 0)) g->dx[0] = dx;
    if (wn__wants(g, 1)) g->dx[1] = wn__emit1(g->e, WN_OP_NEG, wn__emit_op(g, WN_OP_SUM, dx, &row));
}

const struct wn__rules wn__rules_row_rstd = {shape_row_rstd, grad_row_rstd, .per_input = RSTD_FLOPS};

/* ---- layernorm ------------------------------------------------------------------------------------- */
static int32_t shape_layernorm(struct wn_desc *d)
{
    struct wn_type rows, width;
    WN_TRY(open_rows(d, 0, &rows, &width));
    WN_TRY(wn__need_shape(d, 1, &rows, "the mean"));
    WN_TRY(wn__need_shape(d, 2, &rows, "the rstd"));
    WN_TRY(wn__need_shape(d, 3, &width, "the weight"));
    WN_TRY(wn__need_shape(d, 4, &width, "the bias"));
    return wn__like_first(d);
}

static void grad_layernorm(struct wn__grad *g)
{
    struct wn_node *dx_in[5] = {g->dy, g->in[0], g->in[1], g->in[2], g->in[3]};
    if (wn__wants(g, 0) && is_of_rows(g, 0)) g->dx[0] = wn__emit(g->e, WN_OP_LAYERNORM_DX, 5, dx_in, NULL);
    for (int32_t i = 1; i < 3 && wn__wants(g, 0); i++) wn__give_zero(g, i); /* dx[0] contains it */
    if (wn__wants(g, 3)) g->dx[3] = wn__emit(g->e, WN_OP_LAYERNORM_DW, 4, dx_in, NULL);
    if (wn__wants(g, 4)) g->dx[4] = wn__emit_sum_to(g->e, g->dy, &g->d->in[4]);
}

const struct wn__rules wn__rules_layernorm = {shape_layernorm, grad_layernorm, .per_output = NORM_FLOPS};

/* ---- layernorm_dx ---------------------------------------------------------------------------------- */
static int32_t shape_layernorm_dx(struct wn_desc *d)
{
    struct wn_type rows, width;
    WN_TRY(open_rows(d, 1, &rows, &width));
    WN_TRY(wn__need_shape(d, 0, &d->in[1], "dy"));
    WN_TRY(wn__need_shape(d, 2, &rows, "the mean"));
    WN_TRY(wn__need_shape(d, 3, &rows, "the rstd"));
    WN_TRY(wn__need_shape(d, 4, &width, "the weight"));
    return wn__like_first(d);
}

/* With u the gradient of dx and v = layernorm_dx(u, w = 1): the gradient of dy is v w, that of w the sum of v dy over
 * rows. Records the gradient of x: through h, layernorm_dx of -rstd (u m(g h) + g m(u h)) with w = 1; through rstd,
 * -rstd h m(u dx). */
static struct wn_node *dx_by_x(struct wn__grad *g, struct wn_node *ones)
{
    const struct wn_type *rows = &g->d->in[2];
    struct wn_node *u = g->dy, *scaled = wn__emit_mul(g, g->in[0], g->in[4]), *h = normalised(g, 1);
    struct wn_node *rstd = column(g, g->in[3], rows), *down = wn__emit1(g->e, WN_OP_NEG, rstd);
    struct wn_node *a = wn__emit_mul(g, u, row_mean(g, wn__emit_mul(g, scaled, h), rows));
    struct wn_node *b = wn__emit_mul(g, scaled, row_mean(g, wn__emit_mul(g, u, h), rows));
    struct wn_node *by_h = wn__emit_mul(g, down, wn__emit2(g->e, WN_OP_ADD, a, b));
    struct wn_node *by_rstd = wn__emit_mul(g, row_mean(g, wn__emit_mul(g, u, g->out), rows), down);
    return wn__emit2(g->e, WN_OP_ADD, through(g, by_h, 1, ones), wn__emit_mul(g, h, by_rstd));
}

static void grad_layernorm_dx(struct wn__grad *g)
{
    struct wn_node *ones = wn__emit_full(g, &g->d->in[4], 1), *v = through(g, g->dy, 1, ones);
    if (wn__wants(g, 0)) g->dx[0] = wn__emit_mul(g, v, g->in[4]);
    if (wn__wants(g, 4)) g->dx[4] = wn__emit_sum_to(g->e, wn__emit_mul(g, v, g->in[0]), &g->d->in[4]);
    if (!wn__wants(g, 1) || !is_of_rows(g, 1)) return;
    g->dx[1] = dx_by_x(g, ones);
    for (int32_t i = 2; i < 4; i++) wn__give_zero(g, i); /* dx[1] contains it */
}

const struct wn__rules wn__rules_layernorm_dx = {shape_layernorm_dx, grad_layernorm_dx, .per_output = DX_FLOPS};

/* ---- layernorm_dw ---------------------------------------------------------------------------------- */
static int32_t shape_layernorm_dw(struct wn_desc *d)
{
    struct wn_type rows, width;
    WN_TRY(open_rows(d, 1, &rows, &width));
    WN_TRY(wn__need_shape(d, 0, &d->in[1], "dy"));
    WN_TRY(wn__need_shape(d, 2, &rows, "the mean"));
    WN_TRY(wn__need_shape(d, 3, &rows, "the rstd"));
    d->out = width;
    return WN_OK;
}

/* With u: (D) the gradient of dw: the gradient of dy is u h, that of x is layernorm_dx of dy with w = u. */
static void grad_layernorm_dw(struct wn__grad *g)
{
    if (wn__wants(g, 0)) g->dx[0] = wn__emit_mul(g, normalised(g, 1), g->dy);
    if (!wn__wants(g, 1) || !is_of_rows(g, 1)) return;
    g->dx[1] = through(g, g->in[0], 1, g->dy);
    for (int32_t i = 2; i < 4; i++) wn__give_zero(g, i); /* dx[1] contains it */
}

const struct wn__rules wn__rules_layernorm_dw = {shape_layernorm_dw, grad_layernorm_dw, .per_input = DW_FLOPS};
