/* Softmax and its logarithm; loss.c has the losses of labels.
 *
 *     softmax           x -> y = exp(x) / sum exp(x)                dx = softmax_grad = y (dy - sum dy y)
 *     log_softmax       x -> y = x - log(sum exp(x))                dx = log_softmax_grad = dy - e^y sum dy
 *
 * They and their sums run along dim attrs.i[0]; both gradients read y, never x. */
#include "helper.h"

enum { ROW_FLOPS = 16, GRAD_FLOPS = 4, LOG_GRAD_FLOPS = 14 }; /* FLOPs of an element */

static int32_t shape_row(struct wn_desc *d)
{
    WN_TRY(wn__need_float(d));
    WN_TRY(wn__check_dim(d, d->attrs.i[0], d->in[0].ndim));
    return wn__like_first(d);
}

static int32_t shape_row_grad(struct wn_desc *d)
{
    WN_TRY(wn__shape_derivative(d));
    return wn__check_dim(d, d->attrs.i[0], d->in[0].ndim);
}

/* ---- softmax, softmax_grad -------------------------------------------------------------------------- */
/* dx is linear in dy, by a symmetric matrix. With u the gradient of dx, that of y is u (dy - sum dy y) - dy sum(u
 * y). */
static void grad_softmax_grad(struct wn__grad *g)
{
    int64_t dim = g->d->attrs.i[0];
    struct wn_node *u = g->dy, *dy = g->in[0], *y = g->in[1];
    wn__grad_linear_in_first(g);
    if (!wn__wants(g, 1)) return;
    struct wn_node *a = wn__emit_sum_dim(g, wn__emit_mul(g, dy, y), dim);
    struct wn_node *b = wn__emit_sum_dim(g, wn__emit_mul(g, u, y), dim);
    struct wn_node *first = wn__emit_mul(g, u, wn__emit2(g->e, WN_OP_SUB, dy, a));
    g->dx[1] = wn__emit2(g->e, WN_OP_SUB, first, wn__emit_mul(g, dy, b));
}

const struct wn__rules wn__rules_softmax = {shape_row, wn__grad_by_y, WN_OP_SOFTMAX_GRAD, .per_output = ROW_FLOPS};
const struct wn__rules wn__rules_softmax_grad = {shape_row_grad, grad_softmax_grad, .per_output = GRAD_FLOPS};

/* ---- log_softmax, log_softmax_grad ----------------------------------------------------------------- */
/* With p = exp(y) and u the gradient of dx: the gradient of dy is u - sum(u p), that of y is -u p sum(dy). */
static void grad_log_softmax_grad(struct wn__grad *g)
{
    int64_t dim = g->d->attrs.i[0];
    struct wn_node *u = g->dy, *up = wn__emit_mul(g, u, wn__emit1(g->e, WN_OP_EXP, g->in[1]));
    if (wn__wants(g, 0)) g->dx[0] = wn__emit2(g->e, WN_OP_SUB, u, wn__emit_sum_dim(g, up, dim));
    if (!wn__wants(g, 1)) return;
    struct wn_node *total = wn__emit1(g->e, WN_OP_NEG, wn__emit_sum_dim(g, g->in[0], dim));
    g->dx[1] = wn__emit_mul(g, up, total);
}

const struct wn__rules wn__rules_log_softmax = {shape_row, wn__grad_by_y, WN_OP_LOG_SOFTMAX_GRAD,
                                                .per_output = ROW_FLOPS};
const struct wn__rules wn__rules_log_softmax_grad = {shape_row_grad, grad_log_softmax_grad,
                                                     .per_output = LOG_GRAD_FLOPS};
