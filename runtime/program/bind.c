/* Binds this run's values, cells and numbers to the IR's slots. The order and the IR number things alike, so nothing
 * is searched. */
#include "../base/alloc.h"
#include "program.h"

static int32_t bind_cells(struct wn_program *p)
{
    const struct wn__ir *ir = p->ir;
    for (int32_t i = 0; i < p->n_named; i++) {
        p->cell[i] = p->named[i];
        wn__cell_ref(p->cell[i]);
    }
    for (int32_t i = p->n_named; i < ir->n_cells; i++) {
        struct wn_cell *owner = p->cell[ir->cell[i].gradient_of];
        WN_TRY(wn__cell_gradient(owner, &p->cell[i]));
        wn__cell_ref(p->cell[i]);
    }
    return WN_OK;
}

/* Binds a recorded node to the slots of q, the IR's node as it was recorded: the random numbers that a node drew are
 * its own, whatever node a rewrite made use them. */
static void bind_node(struct wn_program *p, struct wn_node *n, const struct wn__ir_node *q)
{
    int32_t scalar = q->leaf == WN_LEAF_SCALAR || q->bound == WN_BOUND_NUMBER,
            bound = q->leaf == WN_LEAF_HELD || q->bound == WN_BOUND_HELD;
    struct wn_node **slot = scalar ? &p->scalar[q->slot] : bound ? &p->bound[q->slot] : NULL;
    if (slot != NULL) {
        *slot = n;
        wn__node_ref(n);
    }
    if (q->result >= 0) {
        p->result[q->result] = n;
        wn__node_ref(n);
    }
    if (q->random >= 0) p->random[q->random] = (struct wn__numbers){n->seed, n->counter};
    if (q->offset >= 0) p->offset[q->offset] = n->attrs.i[WN_OFFSET_AT];
}

/* Takes the lines of this recording where they are not those of the one that the IR was made of. */
static int32_t bind_lines(struct wn_program *p)
{
    const struct wn__ir *ir = p->ir;
    int64_t i = 0;
    while (i < p->order.count && p->order.nodes[i]->line == ir->recorded[ir->order_node[i]].line) i++;
    if (i == p->order.count) return WN_OK;
    if (!WN_ARRAY(&p->pool, p->line, ir->n)) return WN_OOM;
    for (i = 0; i < p->order.count; i++) p->line[ir->order_node[i]] = p->order.nodes[i]->line;
    for (int32_t k = 0; k < ir->n; k++)
        if (ir->node[k].phase == WN_PHASE_BACKWARD && ir->node[k].forward_of >= 0)
            p->line[k] = p->line[ir->node[k].forward_of];
    return WN_OK;
}

int32_t wn__program_line(const struct wn_program *p, int32_t node)
{
    return p->line != NULL ? p->line[node] : p->ir->node[node].line;
}

void wn__program_attrs(const struct wn_program *p, int32_t node, struct wn_attrs *attrs)
{
    int32_t slot = p->ir->recorded[node].offset;
    if (slot >= 0) attrs->i[WN_OFFSET_AT] = p->offset[slot];
}

/* Makes a node for each set of an optimizer's numbers, so that these are bound like any other leaf. */
static int32_t bind_hypers(struct wn_program *p)
{
    for (int32_t i = 0; i < p->n_updates; i++) {
        int32_t slot = p->update[i].set >= 0 ? p->ir->set_slot[p->update[i].set] : -1;
        if (slot >= 0 && p->scalar[slot] == NULL) WN_TRY(wn__record_hyper(p->update[i].hyper, &p->scalar[slot]));
    }
    return WN_OK;
}

/* Makes the value that the norm of the gradients becomes, which no node of the recording is. */
static int32_t bind_norm(struct wn_program *p)
{
    if (p->ir->norm < 0) return WN_OK;
    struct wn_node *n = wn__node_new(0);
    if (n == NULL) return WN_OOM;
    n->op = WN_OP_DATA;
    n->type = p->ir->node[p->ir->result_node[p->ir->norm]].type;
    n->device = p->device;
    p->result[p->ir->norm] = n;
    return WN_OK;
}

int32_t wn__program_bind(struct wn_program *p)
{
    const struct wn__ir *ir = p->ir;
    if (!WN_ARRAY(&p->pool, p->bound, ir->n_bound) || !WN_ARRAY(&p->pool, p->scalar, ir->n_scalars) ||
        !WN_ARRAY(&p->pool, p->result, ir->n_results) || !WN_ARRAY(&p->pool, p->cell, ir->n_cells) ||
        !WN_ARRAY(&p->pool, p->slab, ir->n_slabs) || !WN_ARRAY(&p->pool, p->random, ir->n_random) ||
        !WN_ARRAY(&p->pool, p->offset, ir->n_offsets))
        return WN_OOM;
    for (int64_t i = 0; i < p->order.count; i++) bind_node(p, p->order.nodes[i], &ir->recorded[ir->order_node[i]]);
    WN_TRY(bind_norm(p));
    WN_TRY(bind_lines(p));
    WN_TRY(bind_hypers(p));
    WN_TRY(bind_cells(p));
    return WN_OK;
}

/* Binds slab k: the one that a gradient has its place in already, or a new one. */
static int32_t bind_slab(struct wn_program *p, int32_t k)
{
    const struct wn__ir *ir = p->ir;
    for (int32_t i = p->n_named; i < ir->n_cells; i++) {
        if (ir->cell[i].slab != k || p->cell[i]->slab == NULL) continue;
        p->slab[k] = p->cell[i]->slab;
        p->slab[k]->refs++;
        return WN_OK;
    }
    WN_TRY(wn__slab_get(p->device, ir->slab[k].bytes, &p->slab[k]));
    p->slab[k]->maker = p->as_new;
    return WN_OK;
}

int32_t wn__program_bind_slabs(struct wn_program *p)
{
    const struct wn__ir *ir = p->ir;
    for (int32_t k = 0; k < ir->n_slabs; k++)
        if (p->slab[k] == NULL) WN_TRY(bind_slab(p, k));
    for (int32_t i = p->n_named; i < ir->n_cells; i++) {
        struct wn_cell *g = p->cell[i];
        if (ir->cell[i].slab < 0) continue;
        if (g->slab == NULL) {
            g->slab = p->slab[ir->cell[i].slab];
            g->slab->refs++;
            g->slab_offset = ir->cell[i].slab_offset;
        }
        if (g->slab != p->slab[ir->cell[i].slab] || g->slab_offset != ir->cell[i].slab_offset)
            return wn__fail(WN_STALE,
                            "run: a gradient got another place since this program was opened; record it again");
    }
    return WN_OK;
}
