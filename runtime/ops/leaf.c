/* Leaves: nodes without inputs that hold a value instead of computing one. A backward pass ends at them.
 *
 *     cell   any shape            reads one version of a cell: a parameter, a gradient, a state
 *     data   any shape            a value that the program holds: an input, or a result of an earlier run
 *     const  () or (k), k <= 8    numbers of the host, bound at each run
 *
 * The runtime writes the type of a leaf when it makes the leaf; the shape rule says whether such a type may exist. A
 * leaf costs nothing. */
#include "helper.h"

/* ---- cell, data ------------------------------------------------------------------------------------ */
static int32_t shape_stored(struct wn_desc *d)
{
    WN_TRY(wn__need_element(d, d->out.dtype));
    return wn__check_out(d);
}

const struct wn__rules wn__rules_cell = {.shape = shape_stored};
const struct wn__rules wn__rules_data = {.shape = shape_stored};

/* ---- const ----------------------------------------------------------------------------------------- */
enum { CONST_MOST = 8 };

static int32_t shape_const(struct wn_desc *d)
{
    WN_TRY(shape_stored(d));
    if (d->out.ndim == 0 || (d->out.ndim == 1 && d->out.dim[0] >= 1 && d->out.dim[0] <= CONST_MOST)) return WN_OK;
    return wn__fail(WN_SHAPE, "const: shape %s given, expected () or (k) with k from 1 to %d; use a tensor instead",
                    wn__shape_text(&d->out), CONST_MOST);
}

const struct wn__rules wn__rules_const = {.shape = shape_const};
