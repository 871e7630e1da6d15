/* Softmax, its logarithm, and the negative log-likelihood of labels.
 *
 *     softmax           x -> y = exp(x) / sum exp(x)                dx = softmax_grad = y (dy - sum dy y)
 *     log_softmax       x -> y = x - log(sum exp(x))                dx = log_softmax_grad = dy - e^y sum dy
 *     nll               logp: (..., C), labels: (...)[, w: (C)] -> loss: () or (...)
 *     nll_grad          dy: () or (...), labels: (...)[, w: (C)] -> dlogp: (..., C)
 *
 * The softmaxes and their sums run along dim attrs.i[0]; both gradients read y, never x. The loss of row t with label
 * l, where s = attrs.f[0] smooths labels and w_c is 1 without weights, is
 *
 *     v_t = -((1 - s) w_l logp[t, l] + s / C sum over c of w_c logp[t, c]), 0 where l is ignore_index = attrs.i[0]
 *
 * By attrs.i[WN_LOSS_FORM] the result is the sum of v_t over the sum of the w_l that count (NaN where it is 0, as in
 * PyTorch), the sum, or v. Labels are 0-based i32 data, which the kernel checks. w gets no gradient. */
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
/* Fails unless the form of a loss is known and its weights, input `weight` where there is one, are one a class of x. */
static int32_t check_form(const struct wn_desc *d, const struct wn_type *x, int32_t weight)
{
    int64_t form = d->attrs.i[WN_LOSS_FORM];
    const struct wn_type want = {.dtype = x->dtype, .ndim = 1, .dim = {x->dim[x->ndim - 1]}};
    if (form < 0 || form >= WN_LOSS_FORMS || !(d->attrs.f[0] >= 0 && d->attrs.f[0] <= 1))
        return wn__fail(WN_VALUE, "%s: form %d and label smoothing %g given, expected 0 to 2 and 0 to 1",
                        wn__op_name(d->op), (int)form, d->attrs.f[0]);
    if (weight >= d->n_in || wn__type_equal(&d->in[weight], &want)) return WN_OK;
    return wn__fail(WN_SHAPE, "%s: the weights are %s, expected one for each class, %s", wn__op_name(d->op),
                    wn__type_text(&d->in[weight]), wn__type_text(&want));
}

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
    WN_TRY(check_form(d, logp, 2));
    d->out = lead;
    if (d->attrs.i[WN_LOSS_FORM] != WN_LOSS_ROWS) d->out = (struct wn_type){.dtype = logp->dtype};
    return WN_OK;
}

/* Writes the cost of nll, whose kernel reads one element of each row. */
static void cost_nll(const struct wn_desc *d, struct wn_cost *cost)
{
    double rows = (double)wn__numel(&d->in[1]);
    cost->flops = 2.0 * rows;
    cost->bytes = rows * (double)(wn__dtype_size(d->out.dtype) + wn__dtype_size(d->in[1].dtype));
}

/* Records the gradient of input 0 of a nll or nll_grad as the other one, of dy, the labels and the weights. */
static void emit_loss(struct wn__grad *g, int32_t op, const struct wn_attrs *attrs)
{
    struct wn_node *in[3] = {g->dy, g->in[1], g->d->n_in > 2 ? g->in[2] : NULL};
    if (wn__wants(g, 0)) g->dx[0] = wn__emit(g->e, op, g->d->n_in, in, attrs);
}

static void grad_nll(struct wn__grad *g)
{
    const struct wn_type *logp = &g->d->in[0];
    struct wn_attrs attrs = g->d->attrs;
    attrs.i[1] = logp->dim[logp->ndim - 1];
    emit_loss(g, WN_OP_NLL_GRAD, &attrs);
}

const struct wn__rules wn__rules_nll = {shape_nll, cost_nll, grad_nll};

/* ---- nll_grad: attrs.i = {ignore_index, C, form} --------------------------------------------------- */
static int32_t shape_nll_grad(struct wn_desc *d)
{
    const struct wn_type *dy = &d->in[0], *labels = &d->in[1];
    WN_TRY(wn__need_float_at(d, 0));
    WN_TRY(wn__need_ids(d, 1));
    struct wn_type loss = *labels;
    if (d->attrs.i[WN_LOSS_FORM] != WN_LOSS_ROWS) loss.ndim = 0;
    if (!wn__shape_equal(dy, &loss))
        return wn__fail(WN_SHAPE, "nll_grad: dy is %s, expected %s, the shape of the loss", wn__shape_text(dy),
                        wn__shape_text(&loss));
    if (labels->ndim >= WN_MAX_DIMS)
        return wn__fail(WN_SHAPE, "nll_grad: labels %s leave no room for the classes, at most %d dims",
                        wn__shape_text(labels), WN_MAX_DIMS - 1);
    d->out = *labels;
    d->out.dtype = dy->dtype;
    d->out.dim[d->out.ndim++] = d->attrs.i[1];
    WN_TRY(check_form(d, &d->out, 2));
    return wn__check_out(d);
}

/* Records the gradient of nll_grad, which is nll: nll is linear in logp, and nll_grad is its transpose. */
static void grad_nll_grad(struct wn__grad *g)
{
    struct wn_attrs attrs = g->d->attrs;
    attrs.i[1] = 0;
    emit_loss(g, WN_OP_NLL, &attrs);
}

const struct wn__rules wn__rules_nll_grad = {shape_nll_grad, wn__cost_move, grad_nll_grad};
