/* Puts the cells of a program into its IR, and the effects that write them: gradients, running statistics, updates and
 * assigned values. They are the last nodes, and each knows its cells by their slots. */
#include <string.h>
#include "assembly.h"

/* Appends an effect that reads a value and writes a cell, which has the type of the value. */
static struct wn__ir_node *put_effect(struct wn__assembly *a, int32_t op, int32_t value, int32_t cell)
{
    struct wn__ir_node *e = wn__put_node(a, op, WN_PHASE_UPDATE, &a->ir->node[value].type);
    wn__put_input(a, e, value);
    e->cell[0] = cell;
    return e;
}

/* ---- cells and slabs ---------------------------------------------------------------------------------- */

/* Tells of the cells of an update what a rank has of them. */
static void put_ranges(struct wn__assembly *a, int32_t update)
{
    const struct wn__update *u = &a->request->update[update];
    const struct wn_cell *c = u->cell[0];
    if (!c->is_sliced) return;
    if (!c->is_sharded) a->ir->cell[c->local].own_at = c->own.first * wn__dtype_size(c->type.dtype);
    a->ir->cell[a->request->root[update]->cell->local].is_range = 1;
    for (int32_t k = 1; k < 3; k++)
        if (u->cell[k] != NULL) a->ir->cell[u->cell[k]->local].is_range = 1;
}

/* Puts the cells that the program reads, updates and assigns. */
static void put_cells(struct wn__assembly *a)
{
    for (; a->ir->n_cells < a->bindings->n_named; a->ir->n_cells++) {
        const struct wn_cell *c = a->bindings->named[a->ir->n_cells];
        a->ir->cell[a->ir->n_cells] = (struct wn__ir_cell){.gradient_of = -1,
                                                           .slab = -1,
                                                           .kind = c->kind,
                                                           .is_range = c->is_sharded,
                                                           .bytes = wn__padded(wn__bytes(&c->type))};
    }
    for (int32_t i = 0; a->request->mode == WN_RUN_UPDATE && i < a->request->n_updates; i++) put_ranges(a, i);
}

/* Returns the number of the slab that a gradient which is not allocated has its place in, numbered as the key does;
 * or that of the new slab. */
static int32_t put_slab(struct wn__assembly *a, const struct wn_cell *g, int32_t *new_slab)
{
    struct wn__ir *ir = a->ir;
    int32_t existing = g != NULL && g->slab != NULL && !a->is_as_new ? g->slab->local : -1;
    if (existing < 0 && *new_slab >= 0) return *new_slab;
    for (int32_t i = 0; i < ir->n_slabs && existing >= 0; i++)
        if (ir->slab[i].existing == existing) return i;
    ir->slab[ir->n_slabs] = (struct wn__ir_slab){existing >= 0 ? g->slab->bytes : 0, existing};
    if (existing < 0) *new_slab = ir->n_slabs;
    return ir->n_slabs++;
}

static int32_t gradient_of(const struct wn__assembly *a, int32_t slot)
{
    for (int64_t i = 0; i < a->grads.n_cells; i++)
        if (a->grads.cells[i]->local == slot) return (int32_t)i;
    return -1;
}

/* Puts an effect among ranks, whose type is that of what it writes: the own range, or everybody's. attrs: of what they
 * cut, whose dtype is that of the cell; value: the node that it follows from, whose pieces may be narrower. */
static struct wn__ir_node *put_exchanged(struct wn__assembly *a, int32_t op, int32_t group,
                                         const struct wn_attrs *attrs, int32_t value, int32_t cell)
{
    struct wn__ir_node *e = put_effect(a, op, value, cell);
    e->attrs = *attrs;
    e->attrs.i[WN_RANKS_GROUP] = group;
    e->attrs.i[WN_RANKS_GIVEN] = wn__group_size(&e->attrs);
    int64_t own = wn__own_range(&e->attrs).count, all = attrs->i[WN_RANKS_ELEMENTS];
    e->type = (struct wn_type){.dtype = attrs->dtype, .ndim = 1, .dim = {op == WN_OP_REFRESH ? all : own}};
    return e;
}

/* Puts the effects by which every rank gets everybody's ranges of a cell: first those of other teams, which a slow link
 * carries once, then those of the own team. */
static void put_refresh(struct wn__assembly *a, const struct wn_attrs *attrs, int32_t value, int32_t cell)
{
    int32_t first = wn__first_group(&a->request->ranks);
    put_exchanged(a, WN_OP_REFRESH, first, attrs, value, cell);
    if (first == WN_GROUP_ACROSS) put_exchanged(a, WN_OP_REFRESH, WN_GROUP_TEAM, attrs, value, cell);
}

/* Puts the effects that give a gradient cell a value, or add to the one that it has: among ranks to the own range, and
 * everybody's at last, where ranks keep whole gradients. */
static void put_gradient(struct wn__assembly *a, int32_t i, int32_t cell, int32_t is_new)
{
    const struct wn__ranks *ranks = &a->request->ranks;
    const struct wn_node *value = a->grads.values[i];
    const struct wn_cell *c = a->grads.cells[i];
    if (ranks->given == 0) {
        put_effect(a, is_new ? WN_OP_ASSIGN : WN_OP_ACCUMULATE, value->local, cell);
        return;
    }
    struct wn_attrs attrs = value->attrs;
    attrs.dtype = (int16_t)c->type.dtype;
    attrs.f[0] = is_new;
    struct wn__ir_node *e = put_exchanged(a, WN_OP_ORDERED_SUM, WN_GROUP_ALL, &attrs, value->local, cell);
    a->ir->cell[cell].is_range = c->is_sliced;
    if (!c->is_sliced) a->ir->cell[cell].own_at = wn__own_range(&e->attrs).first * wn__dtype_size(c->type.dtype);
    if (ranks->is_last && !c->is_sliced) put_refresh(a, &attrs, value->local, cell);
}

/* Puts gradient cells in the order of their parameters. The first layers' gradients are allocated last, so
 * activations borrow the low end of the slab longest. */
static void put_gradients(struct wn__assembly *a)
{
    struct wn__ir *ir = a->ir;
    int32_t new_slab = -1;
    for (int32_t slot = 0; slot < a->bindings->n_read; slot++) {
        int32_t i = gradient_of(a, slot);
        if (i < 0) continue;
        const struct wn_cell *c = a->grads.cells[i], *g = c->grad;
        struct wn__ir_cell *q = &ir->cell[ir->n_cells];
        *q = (struct wn__ir_cell){.kind = WN_KIND_GRADIENT, .gradient_of = slot, .slab = -1};
        const struct wn_type own = wn__cell_own_type(c);
        q->bytes = wn__padded(wn__bytes(&own));
        q->allocated_here = g == NULL || !g->allocated;
        if (q->allocated_here) {
            q->slab = put_slab(a, g, &new_slab);
            struct wn__ir_slab *s = &ir->slab[q->slab];
            q->slab_offset = s->existing >= 0 ? g->slab_offset : s->bytes;
            if (s->existing < 0) s->bytes += q->bytes;
        }
        put_gradient(a, i, ir->n_cells++, q->allocated_here);
    }
}

/* Notes gradients that are added to and whose slab holds others that are allocated now: the bytes of such a slab
 * count once. */
static void find_shared_slabs(struct wn__assembly *a)
{
    struct wn__ir *ir = a->ir;
    for (int32_t i = a->bindings->n_named; i < ir->n_cells; i++) {
        if (ir->cell[i].allocated_here) continue;
        int32_t met = a->bindings->named[ir->cell[i].gradient_of]->grad->slab->local;
        for (int32_t k = 0; k < ir->n_slabs; k++)
            if (ir->slab[k].existing == met) ir->cell[i].shares = k + 1;
    }
}

/* ---- effects -------------------------------------------------------------------------------------------- */

/* Returns the gradient that update i of a step uses; -1: none reaches its cell, which is left as it is. */
static int32_t gradient_for(const struct wn__assembly *a, int32_t i)
{
    return a->request->mode == WN_RUN_STEP ? gradient_of(a, a->request->update[i].cell[0]->local) : i;
}

/* Puts one leaf for each set of numbers that an update reads. */
static int32_t put_hypers(struct wn__assembly *a)
{
    static const struct wn_type vector = {.dtype = WN_F64, .ndim = 1, .dim = {8}};
    struct wn__ir *ir = a->ir;
    ir->n_sets = a->request->n_sets;
    if (!WN_ARRAY(&ir->pool, ir->set_slot, ir->n_sets) || !WN_ARRAY(&ir->pool, a->hyper, ir->n_sets)) return WN_OOM;
    for (int32_t k = 0; k < ir->n_sets; k++) ir->set_slot[k] = -1;
    for (int32_t i = 0; i < a->request->n_updates; i++) {
        int32_t k = a->request->update[i].set;
        if (k < 0 || ir->set_slot[k] >= 0 || gradient_for(a, i) < 0) continue;
        struct wn__ir_node *q = wn__put_node(a, WN_OP_CONST, WN_PHASE_FORWARD, &vector);
        q->leaf = WN_LEAF_SCALAR;
        q->slot = ir->set_slot[k] = ir->n_scalars++;
        a->hyper[k] = a->at - 1;
    }
    return WN_OK;
}

/* Puts the effects of forward values, in the order of recording: of two that change one cell, the second sees what the
 * first has written. Among ranks one effect changes a cell by what all of them give for it. */
static void put_forward_effects(struct wn__assembly *a)
{
    const struct wn__ranks *ranks = &a->request->ranks;
    for (int32_t i = 0; i < a->bindings->n_forward_effects; i++) {
        const struct wn__pending_effect *f = &a->bindings->forward_effect[i];
        if (a->statistic != NULL && a->statistic[i] == NULL) continue;
        int32_t value = a->statistic == NULL ? a->ir->order_node[f->node] : a->statistic[i]->local;
        struct wn__ir_node *e = put_effect(a, f->what->op, value, f->what->cell->local);
        e->attrs = f->what->attrs;
        a->ir->node[value].has_effects = 1;
        if (a->statistic == NULL) continue;
        e->type = f->what->cell->type; /* and not that of the rows, which all ranks give */
        e->attrs.i[WN_RUNNING_PASSES] = wn__passes(a->request);
        e->attrs.i[WN_RUNNING_SHARE] = ranks->is_shared ? ranks->team : 1;
        e->attrs.i[WN_RUNNING_USES] = a->n_uses[i];
    }
}

/* Puts the effects by which every rank gets what the others have updated of a cell. */
static void put_updated(struct wn__assembly *a, const struct wn_cell *c, int32_t gradient)
{
    struct wn_attrs attrs;
    wn__cut_attrs(&a->request->ranks, c, &attrs);
    put_refresh(a, &attrs, gradient, c->local);
}

static void put_updates(struct wn__assembly *a)
{
    const struct wn__request *r = a->request;
    for (int32_t i = 0; i < r->n_updates; i++) {
        const struct wn__update *u = &r->update[i];
        int32_t k = gradient_for(a, i);
        if (k < 0) continue;
        const struct wn_node *gradient = r->mode == WN_RUN_STEP ? a->grads.values[k] : r->root[i];
        struct wn__ir_node *e = put_effect(a, u->op, gradient->local, u->cell[0]->local);
        wn__put_input(a, e, a->hyper[u->set]);
        for (int32_t j = 1; j < 3; j++) e->cell[j] = u->cell[j] == NULL ? -1 : u->cell[j]->local;
        if (u->cell[0]->is_sliced && !u->cell[0]->is_sharded) put_updated(a, u->cell[0], gradient->local);
    }
}

static void put_targets(struct wn__assembly *a)
{
    const struct wn__request *r = a->request;
    for (int32_t i = 0; r->mode == WN_RUN_ASSIGN && i < r->n_roots; i++)
        put_effect(a, WN_OP_ASSIGN, r->root[i]->local, r->assigned[i]->local);
}

static int32_t is_written(const struct wn__ir *ir, int32_t first, int32_t end, int32_t slot)
{
    for (int32_t i = first; i < end; i++)
        for (int32_t k = 0; k < 3; k++)
            if (ir->node[i].cell[k] == slot) return 1;
    return 0;
}

/* Returns whether an effect reads the state of a cell, as it is, that another effect writes: parameters that change
 * places, or a gradient of the caller's own that is another parameter. No order of two such effects is right. */
static int32_t needs_copy(const struct wn__ir *ir, int32_t effect, int32_t first, int32_t end)
{
    int32_t v = wn__ir_storage(ir, wn__ir_in(ir, effect, 0));
    if (ir->node[v].leaf != WN_LEAF_CELL) return 0;
    if (ir->node[effect].op == WN_OP_ASSIGN && ir->node[effect].cell[0] == ir->node[v].slot) return 0;
    return is_written(ir, first, end, ir->node[v].slot);
}

/* Puts a copy of every state that needs one before all effects. The effects are the last nodes so far; nothing reads
 * them. */
static void copy_states(struct wn__assembly *a, int32_t first)
{
    struct wn__ir *ir = a->ir;
    int32_t end = a->at, n = 0;
    for (int32_t i = first; i < end; i++) n += needs_copy(ir, i, first, end);
    if (n == 0) return;
    memmove(&ir->node[first + n], &ir->node[first], (size_t)(end - first) * sizeof *ir->node);
    a->at = first;
    for (int32_t i = first + n; i < end + n; i++) {
        if (!needs_copy(ir, i, first + n, end + n)) continue;
        int32_t phase = a->request->mode == WN_RUN_ASSIGN ? WN_PHASE_FORWARD : WN_PHASE_BACKWARD,
                v = wn__ir_in(ir, i, 0);
        struct wn__ir_node *q = wn__put_node(a, WN_OP_RELAYOUT, phase, &ir->node[v].type);
        q->attrs.layout = q->type.layout;
        q->root = ir->node[v].root;
        wn__put_input(a, q, v);
        ir->in[ir->node[i].in_at] = a->at - 1;
    }
    a->at = end + n;
}

int32_t wn__put_effects(struct wn__assembly *a)
{
    put_cells(a);
    WN_TRY(put_hypers(a));
    int32_t before = a->at;
    put_forward_effects(a);
    if (a->request->mode == WN_RUN_BACKWARD) {
        put_gradients(a);
        find_shared_slabs(a);
    }
    put_updates(a);
    put_targets(a);
    a->ir->n_effects = a->at - before;
    copy_states(a, before);
    return WN_OK;
}
