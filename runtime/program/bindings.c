/* Binds this run's values, cells and numbers to the IR's slots. The order and the IR number things alike, so nothing
 * is searched. */
#include "../base/alloc.h"
#include "program.h"

static int32_t bind_cells(struct wn__bindings *b, const struct wn__ir *ir)
{
    for (int32_t i = 0; i < ir->n_cells; i++) {
        if (i < b->n_named) b->cell[i] = b->named[i];
        else WN_TRY(wn__cell_gradient(b->cell[ir->cell[i].gradient_of], &b->cell[i]));
        wn__cell_ref(b->cell[i]);
    }
    return WN_OK;
}

static struct wn_node *counted(struct wn_node *n)
{
    wn__node_ref(n);
    return n;
}

/* Binds a recorded node to the slots of q, the IR's node as it was recorded: the random numbers that a node drew are
 * its own, whatever node a rewrite made use them. */
static void bind_node(struct wn__bindings *b, struct wn_node *n, const struct wn__ir_node *q)
{
    if (q->leaf == WN_LEAF_SCALAR || q->bound == WN_BOUND_NUMBER) b->scalar[q->slot] = counted(n);
    if (q->leaf == WN_LEAF_HELD || q->bound == WN_BOUND_HELD) b->bound[q->slot] = counted(n);
    if (q->result >= 0) b->result[q->result] = counted(n);
    if (q->random >= 0) b->random[q->random] = (struct wn__numbers){n->seed, n->counter};
    if (q->offset >= 0) b->offset[q->offset] = n->attrs.i[WN_OFFSET_AT];
}

/* Takes the lines of this recording where they are not those of the one that the IR was made of. */
static int32_t bind_lines(struct wn_program *p)
{
    const struct wn__ir *ir = p->plan.ir;
    struct wn__bindings *b = &p->bindings;
    int64_t i = 0;
    while (i < b->order.count && b->order.nodes[i]->line == ir->recorded[ir->order_node[i]].line) i++;
    if (i == b->order.count) return WN_OK;
    if (!WN_ARRAY(&p->pool, b->line, ir->n)) return WN_OOM;
    for (i = 0; i < b->order.count; i++) b->line[ir->order_node[i]] = b->order.nodes[i]->line;
    for (int32_t k = 0; k < ir->n; k++)
        if (ir->node[k].phase == WN_PHASE_BACKWARD && ir->node[k].forward_of >= 0)
            b->line[k] = b->line[ir->node[k].forward_of];
    return WN_OK;
}

struct wn_cell *wn__effect_cell(const struct wn_program *p, int32_t k)
{
    const struct wn__ir *ir = p->plan.ir;
    int32_t slot = ir->node[ir->n - ir->n_effects + k / 3].cell[k % 3];
    return slot < 0 ? NULL : p->bindings.cell[slot];
}

int32_t wn__program_line(const struct wn_program *p, int32_t node)
{
    return p->bindings.line != NULL ? p->bindings.line[node] : p->plan.ir->node[node].line;
}

void wn__program_attrs(const struct wn_program *p, int32_t node, struct wn_attrs *attrs)
{
    int32_t slot = p->plan.ir->recorded[node].offset;
    if (slot >= 0) attrs->i[WN_OFFSET_AT] = p->bindings.offset[slot];
}

/* Makes a node for each set of an optimizer's numbers, so that these are bound like any other leaf. */
static int32_t bind_hypers(struct wn__bindings *b, const struct wn__request *r, const struct wn__ir *ir)
{
    for (int32_t i = 0; i < r->n_updates; i++) {
        int32_t slot = r->update[i].set >= 0 ? ir->set_slot[r->update[i].set] : -1;
        if (slot >= 0 && b->scalar[slot] == NULL) WN_TRY(wn__record_hyper(r->update[i].hyper, &b->scalar[slot]));
    }
    return WN_OK;
}

/* Makes the value that the norm of the gradients becomes, which no node of the recording is. */
static int32_t bind_norm(struct wn__bindings *b, const struct wn__ir *ir)
{
    if (ir->norm < 0) return WN_OK;
    b->result[ir->norm] = wn__leaf_new(WN_OP_DATA, &ir->node[ir->result_node[ir->norm]].type, ir->device);
    return b->result[ir->norm] == NULL ? WN_OOM : WN_OK;
}

int32_t wn__program_bind(struct wn_program *p)
{
    const struct wn__ir *ir = p->plan.ir;
    struct wn__bindings *b = &p->bindings;
    if (!WN_ARRAY(&p->pool, b->bound, ir->n_bound) || !WN_ARRAY(&p->pool, b->scalar, ir->n_scalars) ||
        !WN_ARRAY(&p->pool, b->result, ir->n_results) || !WN_ARRAY(&p->pool, b->cell, ir->n_cells) ||
        !WN_ARRAY(&p->pool, b->slab, ir->n_slabs) || !WN_ARRAY(&p->pool, b->random, ir->n_random) ||
        !WN_ARRAY(&p->pool, b->offset, ir->n_offsets))
        return WN_OOM;
    for (int64_t i = 0; i < b->order.count; i++) bind_node(b, b->order.nodes[i], &ir->recorded[ir->order_node[i]]);
    WN_TRY(bind_norm(b, ir));
    WN_TRY(bind_lines(p));
    WN_TRY(bind_hypers(b, &p->request, ir));
    return bind_cells(b, ir);
}

/* Binds slab k: the one that a gradient has its place in already, or a new one. */
static int32_t bind_slab(struct wn_program *p, int32_t k)
{
    const struct wn__ir *ir = p->plan.ir;
    struct wn__bindings *b = &p->bindings;
    for (int32_t i = b->n_named; i < ir->n_cells; i++) {
        if (ir->cell[i].slab != k || b->cell[i]->slab == NULL) continue;
        b->slab[k] = b->cell[i]->slab;
        b->slab[k]->refs++;
        return WN_OK;
    }
    WN_TRY(wn__slab_get(ir->device, ir->slab[k].bytes, &b->slab[k]));
    b->slab[k]->maker = p->plan.as_new;
    return WN_OK;
}

int32_t wn__program_bind_slabs(struct wn_program *p)
{
    const struct wn__ir *ir = p->plan.ir;
    struct wn__bindings *b = &p->bindings;
    for (int32_t k = 0; k < ir->n_slabs; k++)
        if (b->slab[k] == NULL) WN_TRY(bind_slab(p, k));
    for (int32_t i = b->n_named; i < ir->n_cells; i++) {
        struct wn_cell *g = b->cell[i];
        const struct wn__ir_cell *q = &ir->cell[i];
        if (q->slab < 0) continue;
        if (g->slab == NULL) {
            g->slab = b->slab[q->slab];
            g->slab->refs++;
            g->slab_offset = q->slab_offset;
        }
        if (g->slab != b->slab[q->slab] || g->slab_offset != q->slab_offset)
            return wn__fail(WN_STALE,
                            "run: a gradient got another place since this program was opened; record it again");
    }
    return WN_OK;
}
