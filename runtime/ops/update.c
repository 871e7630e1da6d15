/* Effects: what writes state cells.
 *
 * A rule sees the value or gradient as input 0 and, for optimizers, the hyperparameters as input 1: a CONST of
 * 8 f64, bound at run. The cells written are listed with the node, have input 0's type, and are not inputs;
 * costs count their bytes, read and written. No effect has a gradient. */
#include "helper.h"

enum { HYPERS = 8, SGD_FLOPS = 4, MOMENTUM_FLOPS = 6, ADAM_FLOPS = 14 }; /* an element */

/* Each element: the gradient read, `cells` cells read and written. */
static void cost_update(const struct wn_desc *d, double flops, double cells, struct wn_cost *cost)
{
    double bytes = (double)wn__bytes(&d->in[0]);
    cost->flops = flops * (double)wn__numel(&d->in[0]);
    cost->bytes = bytes + 2.0 * cells * bytes;
}

/* ---- assign ---------------------------------------------------------------------------------------- */
static int32_t shape_assign(struct wn_desc *d)
{
    WN_TRY(wn__need_element(d, d->in[0].dtype));
    return wn__like_first_any(d);
}

const struct wn__rules wn__rules_assign = {shape_assign, wn__cost_move, NULL, NULL};

/* ---- accumulate ------------------------------------------------------------------------------------ */
static int32_t shape_accumulate(struct wn_desc *d)
{
    WN_TRY(wn__need_arith(d));
    return wn__like_first_any(d);
}

static void cost_accumulate(const struct wn_desc *d, struct wn_cost *cost)
{
    cost_update(d, 1, 1, cost);
}

const struct wn__rules wn__rules_accumulate = {shape_accumulate, cost_accumulate, NULL, NULL};

/* ---- sgd, momentum, adam --------------------------------------------------------------------------- */
static int32_t shape_optimizer(struct wn_desc *d)
{
    const struct wn_type *hyper = &d->in[1];
    WN_TRY(wn__need_float_at(d, 0));
    if (hyper->dtype != WN_F64 || hyper->ndim != 1 || hyper->dim[0] != HYPERS)
        return wn__fail(WN_SHAPE, "%s: the hyperparameters are %s, expected (%d) f64", wn__op_name(d->op),
                        wn__type_text(hyper), HYPERS);
    return wn__like_first(d);
}

static void cost_sgd(const struct wn_desc *d, struct wn_cost *cost)
{
    cost_update(d, SGD_FLOPS, 1, cost);
}

static void cost_momentum(const struct wn_desc *d, struct wn_cost *cost)
{
    cost_update(d, MOMENTUM_FLOPS, 2, cost);
}

static void cost_adam(const struct wn_desc *d, struct wn_cost *cost)
{
    cost_update(d, ADAM_FLOPS, 3, cost);
}

const struct wn__rules wn__rules_sgd = {shape_optimizer, cost_sgd, NULL, NULL};
const struct wn__rules wn__rules_momentum = {shape_optimizer, cost_momentum, NULL, NULL};
const struct wn__rules wn__rules_adam = {shape_optimizer, cost_adam, NULL, NULL};
