/* Softmax, its logarithm, and the negative log-likelihood of labels.
 *
 *     softmax           x -> y = exp(x) / sum exp(x)                dx = softmax_grad = y (dy - sum dy y)
 *     log_softmax       x -> y = x - log(sum exp(x))                dx = log_softmax_grad = dy - e^y sum dy
 *     nll               logp: (..., C), labels: (...) -> loss: ()   loss = -(sum over t of logp[t, labels[t]]) / count
 *     nll_grad          dy: (), labels: (...) -> dlogp: (..., C)    -dy / count at labels[t], 0 elsewhere
 *
 * The softmaxes and their sums run along dim attrs.i[0]; both gradients read y, never x. For nll, t runs over the
 * labels that differ from ignore_index = attrs.i[0], and count is their number; where count = 0 the loss is NaN, as in
 * PyTorch. Labels are 0-based i32 data, which the kernel checks. */
#include "helper.h"

enum { ROW_FLOPS = 16, GRAD_FLOPS = 4, LOG_GRAD_FLOPS = 14 }; /* FLOPs of an element */

/* Fails unless attrs.i[0] is a dim of input 0 of length 1 or more. */
static int32_t check_row(const struct wn_desc *d)
{
    int64_t dim = d->attrs.i[0];
    WN_TRY(wn__check_dim(d, dim, d->in[0].ndim));
    if (d->in[0].dim[dim] > 0) return WN_OK;
    return wn__fail(WN_SHAPE, "%s: dim %d of %s is empty, expected 1 or more", wn__op_name(d->op), (int)dim + 1,
                    wn__shape_text(&d->in[0]));
}

static int32_t shape_row(struct wn_desc *d)
{
    WN_TRY(wn__need_float(d));
    WN_TRY(check_row(d));
    return wn__like_first(d);
}

static int32_t shape_row_grad(struct wn_desc *d)
{
    WN_TRY(wn__shape_derivative(d));
    return check_row(d);
}

static void cost_row(const struct wn_desc *d, struct wn_cost *cost)
{
    wn__cost_per_output(d, ROW_FLOPS, cost);
}

/* Records dx = op(dy, y). */
static void grad_row(struct wn__grad *g, int32_t op)
{
    struct wn_node *in[2] = {g->dy, g->out};
    if (wn__wants(g, 0)) g->dx[0] = wn__emit(g->e, op, 2, in, &g->d->attrs);
}

/* ---- softmax, softmax_grad -------------------------------------------------------------------------- */
static void grad_softmax(struct wn__grad *g)
{
    grad_row(g, WN_OP_SOFTMAX_GRAD);
}

static void cost_softmax_grad(const struct wn_desc *d, struct wn_cost *cost)
{
    wn__cost_per_output(d, GRAD_FLOPS, cost);
}

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

const struct wn__rules wn__rules_softmax = {shape_row, cost_row, grad_softmax};
const struct wn__rules wn__rules_softmax_grad = {shape_row_grad, cost_softmax_grad, grad_softmax_grad};

/* ---- log_softmax, log_softmax_grad ----------------------------------------------------------------- */
static void grad_log_softmax(struct wn__grad *g)
{
    grad_row(g, WN_OP_LOG_SOFTMAX_GRAD);
}

static void cost_log_softmax_grad(const struct wn_desc *d, struct wn_cost *cost)
{
    wn__cost_per_output(d, LOG_GRAD_FLOPS, cost);
}

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

const struct wn__rules wn__rules_log_softmax = {shape_row, cost_row, grad_log_softmax};
const struct wn__rules wn__rules_log_softmax_grad = {shape_row_grad, cost_log_softmax_grad, grad_log_softmax_grad};

/* ---- nll ------------------------------------------------------------------------------------------- */
static int32_t shape_nll(struct wn_desc *d)
{
    const struct wn_type *logp = &d->in[0], *labels = &d->in[1];
    struct wn_type lead = *logp;
    WN_TRY(wn__need_float_at(d, 0));
    WN_TRY(wn__need_ids(d, 1));
    lead.ndim -= logp->ndim > 0;
    if (logp->ndim < 1 || !wn__shape_equal(&lead, labels))
        return wn__fail(WN_SHAPE,
                        "nll: log-probabilities %s and labels %s given, expected labels %s; the last dim is "
                        "the classes",
                        wn__shape_text(logp), wn__shape_text(labels), wn__shape_text(&lead));
    if (logp->dim[logp->ndim - 1] < 1)
        return wn__fail(WN_SHAPE, "nll: log-probabilities %s have no classes, expected 1 or more",
                        wn__shape_text(logp));
    d->out = (struct wn_type){.dtype = logp->dtype};
    return WN_OK;
}

/* Writes the cost of nll, whose kernel reads one element of each row. */
static void cost_nll(const struct wn_desc *d, struct wn_cost *cost)
{
    double rows = (double)wn__numel(&d->in[1]);
    cost->flops = 2.0 * rows;
    cost->bytes = rows * (double)(wn__dtype_size(d->out.dtype) + wn__dtype_size(d->in[1].dtype));
}

static void grad_nll(struct wn__grad *g)
{
    const struct wn_type *logp = &g->d->in[0];
    struct wn_node *in[2] = {g->dy, g->in[1]};
    struct wn_attrs attrs = {.n = 2, .i = {g->d->attrs.i[0], logp->dim[logp->ndim - 1]}};
    if (wn__wants(g, 0)) g->dx[0] = wn__emit(g->e, WN_OP_NLL_GRAD, 2, in, &attrs);
}

const struct wn__rules wn__rules_nll = {shape_nll, cost_nll, grad_nll};

/* ---- nll_grad: attrs.i = {ignore_index, C} --------------------------------------------------------- */
static int32_t shape_nll_grad(struct wn_desc *d)
{
    const struct wn_type *dy = &d->in[0], *labels = &d->in[1];
    WN_TRY(wn__need_float_at(d, 0));
    WN_TRY(wn__need_ids(d, 1));
    if (dy->ndim != 0)
        return wn__fail(WN_SHAPE, "nll_grad: dy is %s, expected (): the loss is one number", wn__shape_text(dy));
    if (labels->ndim >= WN_MAX_DIMS)
        return wn__fail(WN_SHAPE, "nll_grad: labels %s leave no room for the classes, at most %d dims",
                        wn__shape_text(labels), WN_MAX_DIMS - 1);
    d->out = *labels;
    d->out.dtype = dy->dtype;
    d->out.dim[d->out.ndim++] = d->attrs.i[1];
    return wn__check_out(d);
}

/* Records the gradient of nll_grad, which is nll: nll is linear in logp, and nll_grad is its transpose. */
static void grad_nll_grad(struct wn__grad *g)
{
    struct wn_node *in[2] = {g->dy, g->in[1]};
    struct wn_attrs attrs = {.n = 1, .i = {g->d->attrs.i[0]}};
    if (wn__wants(g, 0)) g->dx[0] = wn__emit(g->e, WN_OP_NLL, 2, in, &attrs);
}

const struct wn__rules wn__rules_nll_grad = {shape_nll_grad, wn__cost_move, grad_nll_grad};
