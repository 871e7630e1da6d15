/* The losses of labels, row by row: a mean is a sum over rows, divided by a count.
 *
 *     row_stats      x: (..., C) -> (..., 2): m = max x, s = log(sum exp(x - m)); log softmax(x)_c = (x_c - m) - s
 *     row_nll        x: (..., C), labels: (...)[, stats: (..., 2)][, w: (C)] -> v: (...)
 *     row_nll_grad   dv: (...), labels: (...)[, x, stats][, w] -> dx: (..., C)
 *     row_count      labels: (...)[, w: (C)] -> (): the sum of the w_l of the labels that count
 *
 * With p = log softmax(x) where there are statistics, else p = x, the loss of row t with label l is
 *
 *     v_t = -sum over c of q_c p_c,    q_c = w_c ((1 - e) [c = l] + e / C),    e = attrs.f[0]
 *
 * and 0 where l is ignore_index = attrs.i[0], which row_count leaves out too. w_c is 1 without weights. Labels are
 * 0-based i32 data, which the kernels of row_nll check. x may be bf16: all other values are f32 then, and dx is rounded
 * once.
 *
 * The gradient of x contains that through the statistics, dv (softmax(x)_c sum q - q_c), and they get zero, which is
 * right only where they are row_stats of the same x. They are a value of their own, so that a policy decides whether 8
 * bytes a row are kept or made again. w gets no gradient. */
#include "helper.h"

enum { STATS_FLOPS = 16, GRAD_FLOPS = 14 }; /* FLOPs of an element of x */

/* Returns the dtype that losses of x are computed in. */
static int32_t dtype_of_loss(int32_t x)
{
    return x == WN_F64 ? WN_F64 : WN_F32;
}

/* Returns the type of a value of rows of x, which has `width` numbers a row; 0: (...), one number. */
static struct wn_type of_rows(const struct wn_type *x, int64_t width)
{
    struct wn_type t = *x;
    t.dtype = dtype_of_loss(x->dtype);
    t.dim[--t.ndim] = 0;
    if (width > 0) t.dim[t.ndim++] = width;
    return t;
}

/* Fails unless input i is x: (..., C) of C >= 1 classes. */
static int32_t need_classes(const struct wn_desc *d, int32_t i)
{
    const struct wn_type *x = &d->in[i];
    WN_TRY(wn__need_float_at(d, i));
    if (x->ndim > 0 && x->dim[x->ndim - 1] > 0) return WN_OK;
    return wn__fail(WN_SHAPE, "%s: %s has no classes, expected (..., classes) with 1 or more", wn__op_name(d->op),
                    wn__type_text(x));
}

/* Fails unless input i, where there is one, has the type `want`. who: what the message calls the input. */
static int32_t need_type(const struct wn_desc *d, int32_t i, const struct wn_type *want, const char *who)
{
    if (i < 0 || wn__type_equal(&d->in[i], want)) return WN_OK;
    return wn__fail(WN_SHAPE, "%s: %s are %s, expected %s", wn__op_name(d->op), who, wn__type_text(&d->in[i]),
                    wn__type_text(want));
}

/* Fails unless the labels, statistics and weights fit x: (..., C), and the share of smoothing is one. */
static int32_t check_loss(const struct wn_desc *d, const struct wn_type *x)
{
    const struct wn__loss_inputs at = wn__loss_inputs(d);
    const struct wn_type labels = of_rows(x, 0), stats = of_rows(x, 2),
                         weight = {.dtype = labels.dtype, .ndim = 1, .dim = {x->dim[x->ndim - 1]}};
    WN_TRY(wn__need_ids(d, 1));
    if (d->n_in != at.n)
        return wn__fail(WN_VALUE, "%s: %d inputs given, expected %d", wn__op_name(d->op), (int)d->n_in, (int)at.n);
    if (!(d->attrs.f[0] >= 0 && d->attrs.f[0] <= 1))
        return wn__fail(WN_VALUE, "%s: label smoothing %g given, expected 0 to 1", wn__op_name(d->op), d->attrs.f[0]);
    if (!wn__shape_equal(&labels, &d->in[1]))
        return wn__fail(WN_SHAPE, "%s: rows %s and labels %s given, expected labels %s; the last dim is the classes",
                        wn__op_name(d->op), wn__shape_text(x), wn__shape_text(&d->in[1]), wn__shape_text(&labels));
    WN_TRY(need_type(d, at.stats, &stats, "the statistics"));
    return need_type(d, at.weight, &weight, "the weights");
}

/* ---- row_stats -------------------------------------------------------------------------------------- */
static int32_t shape_row_stats(struct wn_desc *d)
{
    WN_TRY(need_classes(d, 0));
    d->out = of_rows(&d->in[0], 2);
    return WN_OK;
}

const struct wn__rules wn__rules_row_stats = {shape_row_stats, NULL, .per_input = STATS_FLOPS};

/* ---- row_nll ---------------------------------------------------------------------------------------- */
static int32_t shape_row_nll(struct wn_desc *d)
{
    WN_TRY(need_classes(d, 0));
    WN_TRY(check_loss(d, &d->in[0]));
    d->out = of_rows(&d->in[0], 0);
    return WN_OK;
}

/* Returns the cost of row_nll, whose kernel reads one element of each row, or all where all classes have a share. */
static struct wn_cost cost_row_nll(const struct wn_desc *d)
{
    double rows = (double)wn__numel(&d->in[1]), read = d->attrs.f[0] > 0 ? (double)wn__numel(&d->in[0]) : rows;
    struct wn_cost cost = wn__cost_of(d, 4.0 * read);
    cost.bytes -= (double)wn__bytes(&d->in[0]) - read * (double)wn__dtype_size(d->in[0].dtype);
    return cost;
}

/* Returns whether the statistics of an application, where it has some, are those of its x. */
static int32_t is_of_rows(const struct wn__grad *g, struct wn__loss_inputs at)
{
    return at.stats < 0 || wn__is_made_by(g, g->in[at.stats], WN_OP_ROW_STATS, g->in[at.x]);
}

/* Records dx = row_nll_grad(dy, labels[, x, stats][, w]). */
static void grad_row_nll(struct wn__grad *g)
{
    const struct wn__loss_inputs at = wn__loss_inputs(g->d);
    const struct wn_type *x = &g->d->in[0];
    struct wn_node *in[5] = {g->dy, g->in[1]};
    struct wn_attrs attrs = g->d->attrs;
    int32_t n = 2;
    if (!wn__wants(g, 0) || !is_of_rows(g, at)) return;
    if (at.stats > 0) wn__give_zero(g, at.stats);
    if (at.stats > 0) in[n++] = g->in[0], in[n++] = g->in[at.stats];
    if (at.weight > 0) in[n++] = g->in[at.weight];
    attrs.n = 3;
    attrs.i[WN_LOSS_CLASSES] = x->dim[x->ndim - 1];
    attrs.dtype = x->dtype;
    g->dx[0] = wn__emit(g->e, WN_OP_ROW_NLL_GRAD, n, in, &attrs);
}

const struct wn__rules wn__rules_row_nll = {shape_row_nll, grad_row_nll, .cost = cost_row_nll};

/* ---- row_nll_grad ----------------------------------------------------------------------------------- */
static int32_t shape_row_nll_grad(struct wn_desc *d)
{
    const struct wn__loss_inputs at = wn__loss_inputs(d);
    WN_TRY(wn__need_ids(d, 1));
    WN_TRY(wn__need_element(d, d->attrs.dtype));
    if (d->in[1].ndim >= WN_MAX_DIMS)
        return wn__fail(WN_SHAPE, "row_nll_grad: labels %s leave no room for the classes, at most %d dims",
                        wn__shape_text(&d->in[1]), WN_MAX_DIMS - 1);
    d->out = d->in[1];
    d->out.dtype = d->attrs.dtype;
    d->out.dim[d->out.ndim++] = d->attrs.i[WN_LOSS_CLASSES];
    WN_TRY(wn__check_out(d));
    const struct wn_type dy = of_rows(&d->out, 0);
    WN_TRY(need_type(d, 0, &dy, "the gradients of rows"));
    WN_TRY(check_loss(d, &d->out));
    return need_type(d, at.x, &d->out, "the logits");
}

static struct wn_cost cost_row_nll_grad(const struct wn_desc *d)
{
    return wn__cost_of(d, wn__loss_inputs(d).stats > 0 ? GRAD_FLOPS * (double)wn__numel(&d->out) : 0);
}

/* Records the application of op to a first input, the labels and the weights: that of log-probabilities. */
static struct wn_node *emit_plain(struct wn__grad *g, int32_t op, struct wn_node *first)
{
    const struct wn__loss_inputs at = wn__loss_inputs(g->d);
    struct wn_node *in[3] = {first, g->in[1], at.weight > 0 ? g->in[at.weight] : NULL};
    struct wn_attrs attrs = g->d->attrs;
    attrs.i[WN_LOSS_STATS] = 0;
    return wn__emit(g->e, op, at.weight > 0 ? 3 : 2, in, &attrs);
}

/* Records the gradients of dy and x, u being that of dx = dy (p sum q - q), p = softmax(x):
 *
 *     dy    sum over c of u_c (p_c sum q - q_c) = row_nll of log-probabilities u - sum u p
 *     x     dy (sum q) softmax_grad(u, p), and dy sum q = -sum over c of the row_nll_grad of log-probabilities
 *
 * Without statistics dx = -dy q is linear in dy, and row_nll is its transpose. */
static void grad_row_nll_grad(struct wn__grad *g)
{
    const struct wn__loss_inputs at = wn__loss_inputs(g->d);
    if (at.stats < 0) {
        if (wn__wants(g, 0)) g->dx[0] = emit_plain(g, WN_OP_ROW_NLL, g->dy);
        return;
    }
    int64_t dim = g->d->out.ndim - 1;
    const struct wn_attrs along = {.n = 1, .i = {dim}};
    struct wn_node *p = wn__emit_op(g, WN_OP_SOFTMAX, g->in[at.x], &along);
    if (wn__wants(g, 0)) {
        struct wn_node *mean = wn__emit_sum_dim(g, wn__emit_mul(g, g->dy, p), dim);
        g->dx[0] = emit_plain(g, WN_OP_ROW_NLL, wn__emit2(g->e, WN_OP_SUB, g->dy, mean));
    }
    if (!wn__wants(g, at.x) || !is_of_rows(g, at)) return;
    wn__give_zero(g, at.stats);
    struct wn_node *in[2] = {g->dy, p};
    struct wn_node *total = wn__emit_sum_dim(g, emit_plain(g, WN_OP_ROW_NLL_GRAD, g->in[0]), dim);
    g->dx[at.x] = wn__emit_mul(g, wn__emit(g->e, WN_OP_SOFTMAX_GRAD, 2, in, &along), wn__emit1(g->e, WN_OP_NEG, total));
}

const struct wn__rules wn__rules_row_nll_grad = {shape_row_nll_grad, grad_row_nll_grad, .cost = cost_row_nll_grad};

/* ---- row_count ------------------------------------------------------------------------------------------ */
static int32_t shape_row_count(struct wn_desc *d)
{
    WN_TRY(wn__need_ids(d, 0));
    d->out = (struct wn_type){.dtype = d->attrs.dtype};
    if (d->out.dtype != dtype_of_loss(d->out.dtype))
        return wn__fail(WN_DTYPE, "row_count: dtype %s given, expected f32 or f64", wn__dtype_name(d->out.dtype));
    if (d->n_in < 2) return WN_OK;
    const struct wn_type *w = &d->in[1];
    if (w->ndim == 1 && w->dtype == d->out.dtype) return WN_OK;
    return wn__fail(WN_SHAPE, "row_count: the weights are %s, expected one %s for each class", wn__type_text(w),
                    wn__dtype_name(d->out.dtype));
}

const struct wn__rules wn__rules_row_count = {shape_row_count, NULL, .per_input = 1};
