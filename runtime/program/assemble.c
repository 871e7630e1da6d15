/* Builds an IR: differentiates the ordered graph, then copies everything that a plan may depend on, and nothing else,
 * into one flat table. Nodes that differentiation emits live only while this file is at work. */
#include <string.h>
#include "../base/alloc.h"
#include "../plan/ir/costs.h"
#include "assembly.h"

/* ---- the backward ----------------------------------------------------------------------------------- */

/* Tells whether no forward effect before effect i changes its cell. */
static int32_t is_first_effect(const struct wn__bindings *b, int32_t i)
{
    for (int32_t k = 0; k < i; k++)
        if (b->forward_effect[k].what->cell == b->forward_effect[i].what->cell) return 0;
    return 1;
}

/* Emits what all ranks give for the cell of forward effect i, which the micro-batches of each change one after the
 * other. */
static int32_t exchange_statistics(struct wn__assembly *a, const struct wn__pass *last, int32_t i)
{
    const struct wn__ranks *ranks = &a->request->ranks;
    const struct wn__bindings *b = a->bindings;
    const struct wn__forward_effect *what = b->forward_effect[i].what;
    struct wn_node **value;
    int32_t n = 0, differs = 0, passes = wn__passes(a->request);
    if (!WN_ARRAY(&a->ir->pool, value, b->n_forward_effects)) return WN_OOM;
    for (int32_t k = i; k < b->n_forward_effects; k++) {
        const struct wn__forward_effect *other = b->forward_effect[k].what;
        if (other->cell != what->cell) continue;
        differs |= memcmp(&other->attrs, &what->attrs, sizeof what->attrs) != 0;
        value[n++] = b->order.nodes[b->forward_effect[k].node];
    }
    if (n % passes != 0 || differs)
        return wn__fail(WN_UNSUPPORTED,
                        "backward: the micro-batches of a partial sum change %s in different ways, which ranks do not "
                        "follow in this version; give {partial = 1}, or freeze it with model:eval()",
                        what->cell->name ? what->cell->name : "running statistics");
    WN_TRY(wn__values_exchange(last, ranks, value, n, &a->grads));
    a->statistic[i] = value[0];
    a->n_uses[i] = n / passes;
    return WN_OK;
}

/* Emits what moves among ranks: pieces of gradients, and the statistics of forward effects. */
static int32_t exchange(struct wn__assembly *a, const struct wn__pass *last)
{
    const struct wn__ranks *ranks = &a->request->ranks;
    const struct wn__bindings *b = a->bindings;
    if (ranks->given == 0) return WN_OK;
    if (!ranks->is_shared) WN_TRY(wn__grad_exchange(last, ranks, &a->grads));
    if (!WN_ARRAY(&a->ir->pool, a->statistic, b->n_forward_effects) ||
        !WN_ARRAY(&a->ir->pool, a->n_uses, b->n_forward_effects))
        return WN_OOM;
    for (int32_t i = 0; i < b->n_forward_effects; i++)
        if (is_first_effect(b, i)) WN_TRY(exchange_statistics(a, last, i));
    return WN_OK;
}

/* Emits the backward of every root, or of all roots at once where that is one pass, and the nodes that limit the norm
 * of the gradients. Does nothing for a mode without a backward. WN_VALUE: no state that needs a gradient is reached. */
static int32_t differentiate(struct wn__assembly *a)
{
    const struct wn__request *r = a->request;
    const struct wn_cell **only = NULL; /* (n_updates) the cells that need a gradient; NULL: all */
    int32_t code = WN_OK, before = wn__here.grad;
    if (!wn__is_backward(r)) return WN_OK;
    if (r->mode == WN_RUN_STEP) {
        if (!WN_ARRAY(&a->ir->pool, only, r->n_updates)) return WN_OOM;
        for (int32_t i = 0; i < r->n_updates; i++) only[i] = r->update[i].cell[0];
    }
    struct wn__pass pass = {.n_roots = r->joint ? wn__losses(r) : 1,
                            .scale = r->scale,
                            .only = only,
                            .n_only = only == NULL ? 0 : r->n_updates};
    wn__here.grad = 0;
    for (; pass.root < wn__passes(r) && code == WN_OK; pass.root++) {
        pass.roots = &r->root[pass.root];
        pass.forward = (struct wn__order){.from = r->root, .n_from = wn__losses(r)};
        code = r->ranks.is_shared ? wn__grad_share(&pass, &r->ranks, pass.root + 1 == wn__passes(r), &a->grads)
                                  : wn__grad_pass(&pass, &a->grads);
    }
    pass.root--; /* what clipping emits belongs to the last pass, and has the line of the first root */
    pass.roots = r->root;
    if (code == WN_OK && a->bindings->limit != NULL && a->grads.n_cells > 0)
        code = wn__grad_clip(&pass, a->bindings->limit, &a->grads);
    if (code == WN_OK) code = exchange(a, &pass);
    wn__here.grad = before;
    if (code == WN_OK && a->grads.n_cells == 0)
        return wn__fail(WN_VALUE, "backward: no state that needs a gradient is reached from this value");
    return code;
}

/* ---- nodes ------------------------------------------------------------------------------------------ */

struct wn__ir_node *wn__put_node(struct wn__assembly *a, int32_t op, int32_t phase, const struct wn_type *type)
{
    struct wn__ir_node *q = &a->ir->node[a->at++];
    *q = (struct wn__ir_node){.op = op,
                              .phase = phase,
                              .forward_of = -1,
                              .slot = -1,
                              .random = -1,
                              .offset = -1,
                              .absorbed_by = -1,
                              .result = -1,
                              .cell = {-1, -1, -1},
                              .type = *type,
                              .in_at = a->in_at};
    q->bytes = wn__padded(wn__bytes(type));
    return q;
}

void wn__put_input(struct wn__assembly *a, struct wn__ir_node *q, int32_t node)
{
    a->ir->in[a->in_at] = node;
    a->ir->in_type[a->in_at++] = a->ir->node[node].type;
    q->n_in++;
}

static int32_t is_scalar_leaf(const struct wn_node *n)
{
    return n->op == WN_OP_CONST || ((n->is_held || n->closed) && n->type.ndim == 0);
}

/* Makes a node a leaf: a cell, a number of the host, or a held value, each with its slot. */
static void put_leaf(struct wn__assembly *a, struct wn__ir_node *q, const struct wn_node *n)
{
    if (n->op == WN_OP_CELL) {
        q->leaf = WN_LEAF_CELL;
        q->slot = n->cell->local;
    } else if (is_scalar_leaf(n)) {
        q->leaf = WN_LEAF_SCALAR;
        q->slot = a->ir->n_scalars++;
    } else {
        q->leaf = WN_LEAF_HELD;
        q->slot = a->ir->n_bound++;
    }
}

static int32_t is_root(const struct wn__request *r, const struct wn_node *n)
{
    for (int32_t i = 0; i < r->n_roots; i++)
        if (r->root[i] == n) return 1;
    return 0;
}

/* Returns the slot of a backward node's random numbers: that of the forward node it was emitted for. Equal numbers
 * alone would not do, for two nodes recorded after the same seed share them in one recording and not in the next. */
static int32_t random_of(struct wn__assembly *a, const struct wn_node *n)
{
    if (n->phase == WN_PHASE_FORWARD) return a->ir->n_random++;
    return n->forward_of == NULL ? -1 : a->ir->node[n->forward_of->local].random;
}

/* Gives a node its slot of offsets, a backward node that of the forward node whose offset it repeats. The IR keeps no
 * offset of this recording, so that no decision can depend on it. */
static void put_offset(struct wn__assembly *a, struct wn__ir_node *q, const struct wn_node *n)
{
    if (!wn__op_has_offset(n->op)) return;
    const struct wn_node *like = n->phase == WN_PHASE_FORWARD ? n : n->forward_of;
    if (like == NULL || !wn__op_has_offset(like->op) || like->attrs.i[WN_OFFSET_AT] != n->attrs.i[WN_OFFSET_AT]) return;
    q->offset = like == n ? a->ir->n_offsets++ : a->ir->node[like->local].offset;
    if (q->offset >= 0) q->attrs.i[WN_OFFSET_AT] = 0;
}

static void put_result(struct wn__assembly *a, struct wn__ir_node *q)
{
    q->result = a->ir->n_results;
    a->ir->result_node[a->ir->n_results++] = (int32_t)(q - a->ir->node);
}

/* Puts a state of which each rank has a range alone, and the value that is gathered from all of them, which stands for
 * the state. */
static void put_gathered(struct wn__assembly *a, struct wn_node *n)
{
    const struct wn_cell *c = n->cell;
    struct wn__ir_node *q = wn__put_node(a, n->op, n->phase, &c->type);
    put_leaf(a, q, n);
    q->root = n->root;
    q->line = n->line;
    q->name = n->name;
    q = wn__put_node(a, WN_OP_ALL_GATHER, n->phase, &c->whole);
    wn__cut_attrs(&a->request->ranks, c, &q->attrs);
    wn__put_input(a, q, a->at - 2);
    q->scope = n->scope;
    q->line = n->line;
    q->name = n->name;
    q->needs_grad = n->needs_grad;
    n->local = a->at - 1;
    if (is_root(a->request, n) && a->request->mode <= WN_RUN_STEP) put_result(a, q);
}

/* Copies a node of the graph to the IR, and makes it a leaf, bound or a result where it is one. */
static int32_t put_graph_node(struct wn__assembly *a, struct wn_node *n)
{
    if (n->op == WN_OP_CELL && n->cell->is_sharded) {
        put_gathered(a, n);
        return WN_OK;
    }
    struct wn__ir_node *q = wn__put_node(a, n->op, n->phase, &n->type);
    n->local = a->at - 1;
    q->attrs = n->attrs;
    q->scope = n->scope;
    q->line = n->line;
    q->name = n->name;
    q->root = n->phase == WN_PHASE_BACKWARD ? n->root : q->root;
    q->needs_grad = n->needs_grad;
    if (n->forward_of != NULL) q->forward_of = n->forward_of->local;
    WN_TRY(wn__regions_local(&a->regions, n->region, &q->region));
    if (wn__node_is_leaf(n) || n->is_held || n->closed) {
        put_leaf(a, q, n);
        if (n->n_in == 0 || n->closed) return WN_OK;
        q->leaf = WN_LEAF_NONE;
        q->bound = is_scalar_leaf(n) ? WN_BOUND_NUMBER : WN_BOUND_HELD;
    }
    int32_t n_in =
        n->custom != NULL ? 1 : n->n_in; /* the other inputs of a custom gradient are read by its backward alone */
    for (int32_t i = 0; i < n_in; i++) wn__put_input(a, q, n->in[i]->local);
    if (wn__op_draws(n->op, &n->attrs)) q->random = random_of(a, n);
    put_offset(a, q, n);
    int32_t is_asked = is_root(a->request, n) && a->request->mode <= WN_RUN_STEP && !a->request->ranks.has_no_part;
    int32_t wanted = n->retain || is_asked;
    if (n->phase == WN_PHASE_FORWARD && wanted && !q->bound) put_result(a, q);
    return WN_OK;
}

/* Puts the graph root by root: the nodes that its forward adds, then its backward, in the order of emission. */
static int32_t put_graph(struct wn__assembly *a)
{
    int64_t k = 0;
    for (int64_t i = 0, r = 0; r < wn__passes(a->request); r++) {
        for (; i < a->bindings->root_end[r]; i++) {
            a->ir->order_node[i] = a->at;
            int32_t first = a->at;
            WN_TRY(put_graph_node(a, a->bindings->order.nodes[i]));
            for (int32_t at = first; at < a->at; at++) a->ir->node[at].root = (int32_t)r;
        }
        for (; k < a->grads.count && a->grads.nodes[k]->root == r; k++) WN_TRY(put_graph_node(a, a->grads.nodes[k]));
    }
    a->ir->norm = a->grads.norm == NULL ? -1 : a->ir->n_results;
    if (a->grads.norm != NULL) put_result(a, &a->ir->node[a->grads.norm->local]);
    if (k != a->grads.count) return wn__fail(WN_INTERNAL, "backward: a gradient belongs to no pass");
    for (int32_t i = 0; i < a->request->n_roots; i++) a->ir->root_node[i] = a->request->root[i]->local;
    return WN_OK;
}

/* ---- the whole -------------------------------------------------------------------------------------------- */

/* Takes room for the largest IR that the graph can become, and copies what the program is made for. */
static int32_t size_ir(struct wn__assembly *a)
{
    const struct wn__request *r = a->request;
    const struct wn__bindings *b = a->bindings;
    struct wn__ir *ir = a->ir;
    int64_t n = b->order.count, cells = b->n_named + a->grads.n_cells;
    /* each effect may need a copy of a state */
    int64_t effects = 3 * r->n_updates + r->n_roots + b->n_forward_effects + 3 * a->grads.n_cells;
    int64_t nodes = n + a->grads.count + r->n_updates + 2 * effects, inputs = 3 * effects;
    for (int64_t i = 0; i < n; i++)
        if (b->order.nodes[i]->op == WN_OP_CELL && b->order.nodes[i]->cell->is_sharded) nodes++, inputs++;
    for (int64_t i = 0; i < n; i++) inputs += b->order.nodes[i]->n_in;
    for (int64_t i = 0; i < a->grads.count; i++) inputs += a->grads.nodes[i]->n_in;
    ir->n_roots = wn__losses(r);
    ir->device = r->device;
    ir->machine = r->target;
    ir->target = ir->machine == 0 ? &wn__device(r->device)->target : wn__machine(ir->machine);
    int32_t is_there = WN_ARRAY(&ir->pool, ir->node, nodes) && WN_ARRAY(&ir->pool, ir->in, inputs) &&
                       WN_ARRAY(&ir->pool, ir->in_type, inputs) && WN_ARRAY(&ir->pool, ir->cell, cells) &&
                       WN_ARRAY(&ir->pool, ir->slab, a->grads.n_cells) && WN_ARRAY(&ir->pool, ir->result_node, n) &&
                       WN_ARRAY(&ir->pool, ir->order_node, n) && WN_ARRAY(&ir->pool, ir->root_node, r->n_roots);
    return is_there ? WN_OK : WN_OOM;
}

/* Copies the tree of the regions that were met. */
static int32_t keep_regions(struct wn__assembly *a)
{
    struct wn__ir *ir = a->ir;
    ir->n_regions = (int32_t)a->regions.count;
    if (!WN_ARRAY(&ir->pool, ir->region_parent, ir->n_regions)) return WN_OOM;
    for (int32_t i = 0; i < ir->n_regions; i++)
        WN_TRY(wn__regions_local(&a->regions, wn__region_parent(a->regions.seen[i]), &ir->region_parent[i]));
    return WN_OK;
}

/* Writes the key of schedules: a device's target may change while the process runs, and so may costs. */
static int32_t write_key(struct wn__assembly *a)
{
    struct wn__bytes b = {0};
    wn__target_encode(&b, &wn__device(a->ir->device)->target);
    wn__bytes_int(&b, wn__costs_id());
    wn__ir_encode(&b, a->ir, NULL, WN_FIELD_PLAN);
    return wn__bytes_keep(&b, &a->ir->pool, &a->ir->key, &a->ir->key_bytes);
}

static int32_t build(struct wn__assembly *a)
{
    WN_TRY(differentiate(a));
    WN_TRY(size_ir(a));
    WN_TRY(put_graph(a));
    WN_TRY(wn__put_effects(a));
    a->ir->n = a->at;
    a->ir->n_in = a->in_at;
    WN_TRY(keep_regions(a));
    WN_TRY(wn__settle_gathers(a->ir));
    WN_TRY(wn__ir_rewrite(a->ir));
    for (int32_t i = 0; i < a->ir->n; i++)
        if (a->ir->node[i].n_in > a->ir->most_in) a->ir->most_in = a->ir->node[i].n_in;
    WN_TRY(wn__ir_blocks(a->ir));
    WN_TRY(wn__ir_costs(a->ir));
    return write_key(a);
}

int32_t wn__program_assemble(struct wn_program *p)
{
    struct wn__assembly a = {.request = &p->request, .bindings = &p->bindings, .is_as_new = p->plan.as_new != 0};
    struct wn__pool first = {0};
    a.ir = wn__pool_get(&first, sizeof *a.ir);
    int64_t *refs = wn__pool_get(&first, sizeof *refs);
    if (a.ir == NULL || refs == NULL) {
        wn__pool_release(&first);
        return WN_OOM;
    }
    *refs = 1;
    a.ir->pool = first;
    a.ir->refs = refs;
    p->plan.ir = a.ir;
    int32_t code = build(&a);
    wn__grads_release(&a.grads);
    wn__free(a.regions.seen);
    for (int64_t i = 0; i < p->bindings.order.count; i++) p->bindings.order.nodes[i]->local = (int32_t)i;
    return code;
}
