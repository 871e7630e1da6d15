/* Leaves: cells, held values and host numbers. The runtime sets their type when it makes them; the rule only
 * says whether such a type may exist. They are never computed, cost nothing and end every backward pass. */
#include "helper.h"

static void cost_nothing(const struct wn_desc *d, struct wn_cost *cost)
{
    (void)d;
    cost->flops = cost->bytes = 0;
}

/* ---- cell, data: a type of this version ------------------------------------------------------------ */
static int32_t shape_stored(struct wn_desc *d)
{
    WN_TRY(wn__need_element(d, d->out.dtype));
    return wn__check_out(d);
}

const struct wn__rules wn__rules_cell = {shape_stored, cost_nothing, NULL, NULL};
const struct wn__rules wn__rules_data = {shape_stored, cost_nothing, NULL, NULL};

/* ---- const: a number, or a vector of up to 8 ------------------------------------------------------- */
enum { CONST_MOST = 8 };

static int32_t shape_const(struct wn_desc *d)
{
    WN_TRY(shape_stored(d));
    if (d->out.ndim == 0 || (d->out.ndim == 1 && d->out.dim[0] >= 1 && d->out.dim[0] <= CONST_MOST)) return WN_OK;
    return wn__fail(WN_SHAPE, "const: shape %s given, expected () or (k) with k from 1 to %d; use a tensor instead",
                    wn__shape_text(&d->out), CONST_MOST);
}

const struct wn__rules wn__rules_const = {shape_const, cost_nothing, NULL, NULL};
