/* Effects: ops that write cells. All cells of an effect have the type of its input 0, x or g.
 *
 *     assign      x -> cell c          c = x
 *     accumulate  x -> cell c          c = c + x
 *     sgd         g -> cell p          g' = g + wd p;  p = p - lr g'
 *     momentum    g -> cells p, buf    g' = g + wd p;  buf = first ? g' : mu buf + (1 - dampening) g';
 *                                      p = p - lr (nesterov ? g' + mu buf : buf)
 *     adam        g -> cells p, m, v   decoupled ? p = (1 - lr wd) p : g = g + wd p;
 *                                      m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2;
 *                                      p = p - lr (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps)
 *     rmsprop     g -> cells p, v      g' = g + wd p;  v = alpha v + (1 - alpha) g'^2;  p = p - lr g' / (sqrt(v) + eps)
 *     rmsprop_momentum  g -> cells p, v, buf   v as rmsprop;  buf = mu buf + g' / (sqrt(v) + eps);  p = p - lr buf
 *     rmsprop_centered  g -> cells p, v, mean  v as rmsprop;  mean = alpha mean + (1 - alpha) g';
 *                                      p = p - lr g' / (sqrt(v - mean^2) + eps)
 *     lion        g -> cells p, m      p = (1 - lr wd) p - lr sign(b1 m + (1 - b1) g);  m = b2 m + (1 - b2) g
 *     running_mean  m: (C) -> cell c   c = (1 - f) c + f m, f = attrs.f[0]
 *     running_var   r: (C) -> cell c   c = (1 - f) c + f n / (n - 1) (1 / r^2 - eps), eps = attrs.f[1], n = attrs.i[0]
 *
 * The last two follow the statistics of a batch norm's batches of n elements a channel: m is channel_mean, r
 * channel_rstd, so that 1 / r^2 - eps is the variance, which n / (n - 1) makes unbiased. These are PyTorch's formulas
 * (kernels/updates.h keeps the order of its operations). Adam: Kingma and Ba, 2015; decoupled weight decay:
 * Loshchilov and Hutter, 2019; RMSprop: Tieleman and Hinton, 2012; Lion: Chen et al., 2023. p is a parameter, g its
 * gradient.
 *
 * Input 1 of an optimizer's op holds the numbers, a CONST: (8) f64, bound at each run: sgd {lr, wd}; momentum
 * {lr, wd, mu, dampening, nesterov, first}; adam {lr, wd, b1, b2, eps, 1 - b1^t, 1 - b2^t, decoupled}; rmsprop {lr, wd,
 * alpha, eps}, rmsprop_centered too; rmsprop_momentum {lr, wd, alpha, eps, mu}; lion {lr, wd, b1, b2}.
 *
 * The cells that an effect writes are listed with its node and are no inputs; the cost counts their bytes as read and
 * as written. No effect has a gradient. */
#include "helper.h"

enum { HYPERS = 8 };

/* FLOPs of an element. */
static const double flops[WN_OP_COUNT] = {
    [WN_OP_ACCUMULATE] = 1,        [WN_OP_RUNNING_MEAN] = 3, [WN_OP_RUNNING_VAR] = 3, [WN_OP_SGD] = 4,
    [WN_OP_MOMENTUM] = 6,          [WN_OP_ADAM] = 14,        [WN_OP_RMSPROP] = 9,     [WN_OP_RMSPROP_MOMENTUM] = 10,
    [WN_OP_RMSPROP_CENTERED] = 14, [WN_OP_LION] = 8,
};

/* Returns the cost of reading the gradient, and of reading and writing the cells. */
static struct wn_cost cost_update(const struct wn_desc *d)
{
    double bytes = (double)wn__bytes(&d->in[0]), cells = (double)wn_max(wn__optimizer_cells(d->op), 1);
    return (struct wn_cost){flops[d->op] * (double)wn__numel(&d->in[0]), bytes + 2.0 * cells * bytes};
}

/* ---- assign ---------------------------------------------------------------------------------------- */
const struct wn__rules wn__rules_assign = {.shape = wn__like_first_element};

/* ---- accumulate ------------------------------------------------------------------------------------ */
const struct wn__rules wn__rules_accumulate = {wn__like_first_arith, NULL, .cost = cost_update};

/* ---- running_mean, running_var --------------------------------------------------------------------- */
static int32_t shape_running(struct wn_desc *d)
{
    WN_TRY(wn__need_float_at(d, 0));
    if (!(d->attrs.f[0] >= 0 && d->attrs.f[0] <= 1))
        return wn__fail(WN_VALUE, "%s: momentum %g given, expected 0 to 1", wn__op_name(d->op), d->attrs.f[0]);
    if (d->op == WN_OP_RUNNING_VAR && d->attrs.i[0] < 2)
        return wn__fail(WN_VALUE, "running_var: a batch of %" PRId64 " elements a channel has no variance",
                        d->attrs.i[0]);
    return wn__like_first(d);
}

const struct wn__rules wn__rules_running_mean = {shape_running, NULL, .cost = cost_update};
const struct wn__rules wn__rules_running_var = {shape_running, NULL, .cost = cost_update};

/* ---- optimizers ------------------------------------------------------------------------------------ */
static int32_t shape_optimizer(struct wn_desc *d)
{
    const struct wn_type *hyper = &d->in[1];
    WN_TRY(wn__need_float_at(d, 0));
    if (hyper->dtype != WN_F64 || hyper->ndim != 1 || hyper->dim[0] != HYPERS)
        return wn__fail(WN_SHAPE, "%s: the hyperparameters are %s, expected (%d) f64", wn__op_name(d->op),
                        wn__type_text(hyper), HYPERS);
    return wn__like_first(d);
}

const struct wn__rules wn__rules_sgd = {shape_optimizer, NULL, .cost = cost_update};
const struct wn__rules wn__rules_momentum = {shape_optimizer, NULL, .cost = cost_update};
const struct wn__rules wn__rules_adam = {shape_optimizer, NULL, .cost = cost_update};
const struct wn__rules wn__rules_rmsprop = {shape_optimizer, NULL, .cost = cost_update};
const struct wn__rules wn__rules_rmsprop_momentum = {shape_optimizer, NULL, .cost = cost_update};
const struct wn__rules wn__rules_rmsprop_centered = {shape_optimizer, NULL, .cost = cost_update};
const struct wn__rules wn__rules_lion = {shape_optimizer, NULL, .cost = cost_update};
