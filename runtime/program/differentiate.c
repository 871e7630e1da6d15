/* Differentiates the ordered graph of a program: emits the nodes of the backward, from the roots to the cells, and
 * those that limit the norm of the gradients. The nodes live only while the program's IR is built (assemble.c). */
#include "../base/alloc.h"
#include "program.h"

/* Differentiates root i, or all roots at once when they are joint. only: the cells that need a gradient; NULL: all. */
static int32_t differentiate_root(struct wn_program *p, int32_t i, const struct wn_cell **only, struct wn__grads *grads)
{
    struct wn__order order = {.from = p->root, .n_from = p->n_roots - p->n_also};
    struct wn_node **roots = p->joint ? p->root : &p->root[i];
    int32_t n = p->joint ? p->n_roots - p->n_also : 1;
    int32_t code = wn__topological_order(roots, n, wn__node_stamp(), &order);
    if (code == WN_OK) {
        struct wn__pass pass = {.forward = order.nodes,
                                .n_forward = order.count,
                                .roots = roots,
                                .n_roots = n,
                                .root = i,
                                .scale = p->scale,
                                .only = only,
                                .n_only = only == NULL ? 0 : p->n_updates};
        code = wn__grad_pass(&pass, grads);
    }
    wn__order_release(&order);
    return code;
}

int32_t wn__program_differentiate(struct wn_program *p, struct wn__grads *grads)
{
    const struct wn_cell **only = NULL;
    int32_t code = WN_OK, before = wn__here.grad_off;
    if (p->mode != WN_RUN_BACKWARD && p->mode != WN_RUN_STEP) return WN_OK;
    if (p->mode == WN_RUN_STEP) {
        only = wn__pool_get(&p->pool, p->n_updates * (int64_t)sizeof *only);
        if (only == NULL) return WN_OOM;
        for (int32_t i = 0; i < p->n_updates; i++) only[i] = p->update[i].cell[0];
    }
    wn__here.grad_off = 1;
    for (int32_t i = 0; i < (p->joint ? 1 : p->n_roots - p->n_also) && code == WN_OK; i++)
        code = differentiate_root(p, i, only, grads);
    if (code == WN_OK && p->clip != NULL && grads->n_cells > 0) {
        struct wn__clip clip = {only, p->n_updates, p->joint ? 0 : p->n_roots - p->n_also - 1, p->clip, p->root[0]};
        code = wn__grad_clip(&clip, grads);
    }
    wn__here.grad_off = before;
    if (code == WN_OK && grads->n_cells == 0)
        return wn__fail(WN_VALUE, "backward: no state that needs a gradient is reached from this value");
    return code;
}
