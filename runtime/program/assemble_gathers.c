/* Settles the states that are gathered from ranks, once all that reads them has been put. Such a value belongs to the
 * module and the region of the node that reads it first, so that a policy of that module decides about it, and no
 * region is cut in two. */
#include "assembly.h"

int32_t wn__settle_gathers(struct wn__ir *ir)
{
    struct wn__pool scratch = {0};
    uint8_t *is_read; /* (n of the IR) 1: a node before has read it */
    if (wn__ir_gathers(ir) == 0) return WN_OK;
    if (!WN_ARRAY(&scratch, is_read, ir->n)) return WN_OOM;
    for (int32_t i = 0; i < ir->n; i++) {
        const struct wn__ir_node *by = &ir->node[i];
        for (int32_t k = 0; k < by->n_in; k++) {
            int32_t v = wn__ir_in(ir, i, k);
            struct wn__ir_node *p = &ir->node[v];
            if (p->op != WN_OP_ALL_GATHER || is_read[v]++) continue;
            if (wn__ir_node_is_forward(by)) p->scope = by->scope, p->region = by->region;
        }
    }
    wn__pool_release(&scratch);
    return WN_OK;
}
