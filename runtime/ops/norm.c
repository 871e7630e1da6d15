/* Layer norm over the last dim, D wide.
 *
 * The rows' mean and rstd are values of their own, so a policy may keep or drop them. Their gradient is inside
 * layernorm_dx: layernorm gives nothing back to its mean and rstd inputs, and row_mean and row_rstd, used
 * alone, are not differentiable. layernorm_dx needs no eps: rstd holds it. */
#include "helper.h"

/* FLOPs an element of x */
enum { MEAN_FLOPS = 1, RSTD_FLOPS = 3, NORM_FLOPS = 4, DX_FLOPS = 12, DW_FLOPS = 4 };

/* x is (..., D) with D > 0; *rows becomes (...), *width (D). */
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

static int32_t open_rows(const struct wn_desc *d, int32_t x, struct wn_type *rows, struct wn_type *width)
{
    WN_TRY(wn__need_float(d));
    WN_TRY(wn__same_dtype(d));
    return split(d, x, rows, width);
}

/* ---- row_mean -------------------------------------------------------------------------------------- */
static int32_t shape_row_mean(struct wn_desc *d)
{
    struct wn_type width;
    return open_rows(d, 0, &d->out, &width);
}

static void cost_row_mean(const struct wn_desc *d, struct wn_cost *cost)
{
    wn__cost_per_input(d, MEAN_FLOPS, cost);
}

const struct wn__rules wn__rules_row_mean = {shape_row_mean, cost_row_mean, NULL, wn__workspace_f32_copies};

/* ---- row_rstd: 1 / sqrt(variance + eps), the variance over D --------------------------------------- */
static int32_t shape_row_rstd(struct wn_desc *d)
{
    struct wn_type rows, width;
    WN_TRY(open_rows(d, 0, &rows, &width));
    WN_TRY(wn__need_shape(d, 1, &rows, "the mean"));
    if (!(d->attrs.f[0] >= 0)) return wn__fail(WN_VALUE, "row_rstd: eps %g given, expected 0 or more", d->attrs.f[0]);
    d->out = rows;
    return WN_OK;
}

static void cost_row_rstd(const struct wn_desc *d, struct wn_cost *cost)
{
    wn__cost_per_input(d, RSTD_FLOPS, cost);
}

const struct wn__rules wn__rules_row_rstd = {shape_row_rstd, cost_row_rstd, NULL, wn__workspace_f32_copies};

/* ---- layernorm: (x - mean) rstd w + b -------------------------------------------------------------- */
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

static void cost_layernorm(const struct wn_desc *d, struct wn_cost *cost)
{
    wn__cost_per_output(d, NORM_FLOPS, cost);
}

static void grad_layernorm(struct wn__grad *g)
{
    struct wn_node *dx_in[5] = {g->dy, g->in[0], g->in[1], g->in[2], g->in[3]};
    if (wn__wants(g, 0)) g->dx[0] = wn__emit(g->e, WN_OP_LAYERNORM_DX, 5, dx_in, NULL);
    for (int32_t i = 1; i < 3; i++) wn__give_zero(g, i); /* what flows through mean and rstd is in dx[0] */
    if (wn__wants(g, 3)) g->dx[3] = wn__emit(g->e, WN_OP_LAYERNORM_DW, 4, dx_in, NULL);
    if (wn__wants(g, 4)) g->dx[4] = wn__emit_sum_to(g->e, g->dy, &g->d->in[4]);
}

const struct wn__rules wn__rules_layernorm = {shape_layernorm, cost_layernorm, grad_layernorm,
                                              wn__workspace_f32_copies};

/* ---- layernorm_dx: dy, x, mean, rstd, w ------------------------------------------------------------ */
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

static void cost_layernorm_dx(const struct wn_desc *d, struct wn_cost *cost)
{
    wn__cost_per_output(d, DX_FLOPS, cost);
}

const struct wn__rules wn__rules_layernorm_dx = {shape_layernorm_dx, cost_layernorm_dx, NULL, wn__workspace_f32_copies};

/* ---- layernorm_dw: dy, x, mean, rstd -> (D) -------------------------------------------------------- */
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

static void cost_layernorm_dw(const struct wn_desc *d, struct wn_cost *cost)
{
    wn__cost_per_input(d, DW_FLOPS, cost);
}

/* Beside the copies, what parts of the rows add up to. */
static int64_t workspace_layernorm_dw(const struct wn_desc *d, const struct wn__target *t)
{
    int64_t parts = wn__parts_of(wn__numel(&d->in[2])), bytes = wn__workspace_f32_copies(d, t);
    return t->kind == WN_TARGET_CPU && parts > 1 ? bytes + parts * wn__numel(&d->out) * WN_PART_BYTES : bytes;
}

const struct wn__rules wn__rules_layernorm_dw = {shape_layernorm_dw, cost_layernorm_dw, NULL, workspace_layernorm_dw};
