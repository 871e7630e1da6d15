/* Dropout (Srivastava and others, 2014): each element is zeroed with probability p, independently.
 *
 *     y[k] = u[k] < p ? 0 : x[k] / (1 - p)        dx[k] = u[k] < p ? 0 : dy[k] / (1 - p)        x, y: any shape
 *
 * u[k] is a function of the seed, the counter of the node and k, so no mask is kept: the gradient is dropout of dy with
 * the numbers drawn again, and reads no value of the forward. p = attrs.f[0]. */
#include "helper.h"

enum { DROPOUT_FLOPS = 12 }; /* of an element: a quarter of a Philox block, a comparison, a product */

static int32_t shape_dropout(struct wn_desc *d)
{
    double p = d->attrs.f[0];
    if (!(p >= 0 && p <= 1)) return wn__fail(WN_VALUE, "dropout: p is %g, expected a probability from 0 to 1", p);
    return wn__like_first(d);
}

static void grad_dropout(struct wn__grad *g)
{
    if (wn__wants(g, 0)) g->dx[0] = wn__emit_replay(g->e, WN_OP_DROPOUT, 1, &g->dy, &g->d->attrs, g->out);
}

const struct wn__rules wn__rules_dropout = {shape_dropout, grad_dropout, .per_output = DROPOUT_FLOPS};
