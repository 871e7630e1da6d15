/* Dropout: each element is 0 with probability p, else x / (1 - p).
 *
 * No mask is ever kept. The numbers are addressed by the node's counter, so the gradient is dropout again, of dy
 * under the very same numbers, and reads nothing of the forward. */
#include "helper.h"

enum { DROPOUT_FLOPS = 12 }; /* a quarter of a Philox block, a comparison, a product */

/* ---- dropout --------------------------------------------------------------------------------------- */
static int32_t shape_dropout(struct wn_desc *d)
{
    double p = d->attrs.f[0];
    if (!(p >= 0 && p <= 1)) return wn__fail(WN_VALUE, "dropout: p is %g, expected a probability from 0 to 1", p);
    return wn__like_first(d);
}

static void cost_dropout(const struct wn_desc *d, struct wn_cost *cost)
{
    wn__cost_per_output(d, DROPOUT_FLOPS, cost);
}

static void grad_dropout(struct wn__grad *g)
{
    if (wn__wants(g, 0)) g->dx[0] = wn__emit_replay(g->e, WN_OP_DROPOUT, 1, &g->dy, &g->d->attrs, g->out);
}

const struct wn__rules wn__rules_dropout = {shape_dropout, cost_dropout, grad_dropout, NULL};
