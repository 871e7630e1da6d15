/* Makes one block of an IR an IR of its own, and says what the block costs with a set of kept values.
 *
 *   ir.node   | leaves | block, forward | sink 1 | stand-ins | block, backward | sink 2 | effects |
 *   leaves     values that the block reads: states, and forward values of other blocks
 *   sink 1     reads what the forward of later blocks reads, so that it stays alive
 *   stand-ins  gradients that come from later blocks, alive when the backward starts
 *   sink 2     reads what the backward of other blocks, and effects elsewhere, read
 *
 * The lowering of a run lowers the subgraph: its reuse of dying inputs, recomputation, frees and workspaces are those
 * of a plan, at the price of one block. The subgraph must never be run. */
#include <string.h>
#include "../../base/interrupt.h"
#include "../../graph/encode.h"
#include "planner.h"

/* A block that is being cut out. */
struct cutting {
    const struct wn__ir *ir;
    const struct wn__marks *marks;
    const int32_t *home; /* (ir->n) as wn__partition_home fills it */
    int32_t block;
    struct wn__subgraph *x;
    int32_t *map;      /* (ir->n) the node's number in the subgraph; -1: it is not there */
    int32_t *cell_map; /* (ir->n_cells) the slot of the cell in the subgraph; -1: it is not there */
};

enum { OUTSIDE, FORWARD, BACKWARD, EFFECT }; /* what a node is to the block */

static int32_t role_of(const struct cutting *c, int32_t i)
{
    if (c->home[i] != c->block) return OUTSIDE;
    if (i >= c->ir->n - c->ir->n_effects) return EFFECT;
    return c->ir->node[i].phase == WN_PHASE_BACKWARD ? BACKWARD : FORWARD;
}

/* Appends a copy of a node without its inputs. own: its number in the whole IR, -1: a stand-in; block: of the
 * recipe. */
static struct wn__ir_node *put_node(struct cutting *c, const struct wn__ir_node *like, int32_t own, int32_t block)
{
    struct wn__ir *g = &c->x->ir;
    struct wn__ir_node *q = &g->node[g->n];
    *q = *like;
    q->in_at = g->n_in;
    q->n_in = 0;
    q->root = q->region = q->block = q->is_data = q->is_weight = 0;
    q->random = q->random < 0 ? -1 : 0; /* slots of a run, which the subgraph has none of */
    q->offset = q->offset < 0 ? -1 : 0;
    c->x->marks.decision[g->n] = (int8_t)(own >= 0 ? c->marks->decision[own] : WN_DECISION_NONE);
    c->x->own[g->n] = own;
    c->x->recipe.block_of[g->n++] = block;
    return q;
}

static void put_input(struct cutting *c, struct wn__ir_node *q, int32_t node, const struct wn_type *type)
{
    struct wn__ir *g = &c->x->ir;
    g->in[g->n_in] = node;
    g->in_type[g->n_in++] = *type;
    q->n_in++;
}

/* Returns the slot of a cell in the subgraph, which gets a copy of the cell when it is first met; -1 for -1. All slabs
 * of the whole IR are slab 0. */
static int32_t map_cell(struct cutting *c, int32_t slot)
{
    struct wn__ir *g = &c->x->ir;
    if (slot < 0 || c->cell_map[slot] >= 0) return slot < 0 ? -1 : c->cell_map[slot];
    struct wn__ir_cell *q = &g->cell[g->n_cells];
    *q = c->ir->cell[slot];
    if (q->slab > 0) q->slab = 0;
    q->gradient_of = q->gradient_of < 0 ? -1 : 0;
    q->slab_offset = q->shares = 0;
    return c->cell_map[slot] = g->n_cells++;
}

/* Puts value v of another block, unless it is there: a leaf as it is, a forward value as a held one, a gradient as a
 * stand-in. phase: forward puts leaves and forward values, backward puts gradients. */
static void put_outside(struct cutting *c, int32_t v, int32_t phase)
{
    struct wn__ir *g = &c->x->ir;
    const struct wn__ir_node *p = &c->ir->node[v];
    int32_t is_gradient = p->leaf == WN_LEAF_NONE && !p->bound && p->phase == WN_PHASE_BACKWARD;
    if (c->map[v] >= 0 || is_gradient != (phase == WN_PHASE_BACKWARD)) return;
    c->map[v] = g->n;
    struct wn__ir_node *q = put_node(c, p, -1, is_gradient ? 0 : -1);
    c->x->marks.decision[c->map[v]] = c->marks->decision[v];
    q->result = q->random = q->forward_of = q->absorbed_by = -1;
    q->is_residual = q->is_boundary = 0;
    if (is_gradient) {
        q->op = WN_OP_FULL;
        c->x->incoming += p->bytes;
    } else if (p->leaf == WN_LEAF_CELL) {
        q->slot = map_cell(c, p->slot);
    } else {
        q->leaf = p->leaf == WN_LEAF_SCALAR || p->bound == WN_BOUND_NUMBER ? WN_LEAF_SCALAR : WN_LEAF_HELD;
        q->slot = q->leaf == WN_LEAF_SCALAR ? g->n_scalars++ : g->n_bound++;
        q->phase = WN_PHASE_FORWARD;
    }
    q->bound = 0;
}

/* Puts every value of other blocks that the block reads, of one phase. */
static void put_outsides(struct cutting *c, int32_t phase)
{
    const struct wn__ir *ir = c->ir;
    for (int32_t i = 0; i < ir->n; i++) {
        if (role_of(c, i) == OUTSIDE) continue;
        for (int32_t k = 0; k < ir->node[i].n_in; k++) {
            int32_t v = wn__ir_in(ir, i, k), s = wn__ir_storage(ir, v);
            if (role_of(c, v) == OUTSIDE) put_outside(c, s, phase);
        }
    }
}

/* Puts the block's nodes of one role, with their inputs. */
static void put_own(struct cutting *c, int32_t role)
{
    const struct wn__ir *ir = c->ir;
    struct wn__ir *g = &c->x->ir;
    for (int32_t i = 0; i < ir->n; i++) {
        if (role_of(c, i) != role) continue;
        const struct wn__ir_node *p = &ir->node[i];
        c->map[i] = g->n;
        struct wn__ir_node *q = put_node(c, p, i, role == EFFECT ? -1 : 0);
        for (int32_t k = 0; k < p->n_in; k++) {
            int32_t v = wn__ir_in(ir, i, k);
            int32_t from = role_of(c, v) == OUTSIDE ? wn__ir_storage(ir, v) : v;
            put_input(c, q, c->map[from], &ir->in_type[p->in_at + k]);
        }
        if (p->result >= 0) q->result = g->n_results++;
        for (int32_t k = 0; k < 3; k++) q->cell[k] = map_cell(c, p->cell[k]);
        g->n_effects += role == EFFECT;
    }
}

/* Returns whether a node that mark_read looked at reads the value of node i, which is no alias. */
static int32_t is_read_outside(const struct cutting *c, const uint8_t *outside, int32_t i)
{
    return outside[i] && !wn__ir_is_alias(c->ir, i);
}

/* Fills `outside`, (ir->n): 1 for storages that nodes of other blocks read: forward nodes (phase forward), or backward
 * nodes and effects (phase backward). */
static void mark_read(const struct cutting *c, int32_t phase, uint8_t *outside)
{
    const struct wn__ir *ir = c->ir;
    memset(outside, 0, (size_t)ir->n);
    for (int32_t i = 0; i < ir->n; i++) {
        int32_t backward = ir->node[i].phase != WN_PHASE_FORWARD;
        if (ir->node[i].leaf != WN_LEAF_NONE || backward != (phase == WN_PHASE_BACKWARD) || role_of(c, i) != OUTSIDE)
            continue;
        for (int32_t k = 0; k < ir->node[i].n_in; k++) outside[wn__ir_storage(ir, wn__ir_in(ir, i, k))] = 1;
    }
}

/* Puts a node that reads the block's values of one phase that other blocks read. */
static void put_sink(struct cutting *c, int32_t phase, const uint8_t *outside)
{
    static const struct wn_type number = {.dtype = WN_F32};
    struct wn__ir *g = &c->x->ir;
    struct wn__ir_node like = {.op = WN_OP_FULL,
                               .phase = phase,
                               .forward_of = -1,
                               .slot = -1,
                               .random = -1,
                               .offset = -1,
                               .absorbed_by = -1,
                               .cell = {-1, -1, -1},
                               .type = number,
                               .bytes = WN_GRANULE};
    like.result = g->n_results++;
    struct wn__ir_node *q = put_node(c, &like, -1, phase == WN_PHASE_FORWARD ? 1 : 0);
    int32_t wanted = phase == WN_PHASE_FORWARD ? FORWARD : BACKWARD;
    for (int32_t i = 0; i < c->ir->n; i++)
        if (role_of(c, i) == wanted && !c->ir->node[i].is_reissued && is_read_outside(c, outside, i))
            put_input(c, q, c->map[i], &c->ir->node[i].type);
}

/* Translates absorbed_by and forward_of to numbers of the subgraph. */
static void link_absorbed(struct cutting *c)
{
    struct wn__ir *g = &c->x->ir;
    for (int32_t i = 0; i < g->n; i++) {
        int32_t *into = &g->node[i].absorbed_by, *of = &g->node[i].forward_of;
        if (*into >= 0) *into = c->map[*into];
        if (*of >= 0) *of = c->map[*of];
    }
}

/* Makes the key: everything that options depend on, so that blocks with equal keys have equal options. */
static int32_t write_key(struct wn__subgraph *x)
{
    struct wn__bytes b = {0};
    wn__ir_encode(&b, &x->ir, &x->marks, WN_FIELD_ALL);
    for (int32_t i = 0; i < x->ir.n; i++) {
        wn__bytes_int(&b, x->own[i] >= 0);
        wn__bytes_int(&b, x->ns[i]);
    }
    return wn__bytes_keep(&b, &x->pool, &x->key, &x->key_bytes);
}

/* Fills bounds of the number of nodes and of inputs of the subgraph. */
static void count(const struct cutting *c, int64_t *nodes, int64_t *inputs)
{
    *nodes = 4;
    *inputs = 4;
    for (int32_t i = 0; i < c->ir->n; i++) {
        if (role_of(c, i) == OUTSIDE) continue;
        *nodes += 1 + c->ir->node[i].n_in;
        *inputs += 3 + c->ir->node[i].n_in;
    }
}

static int32_t make_room(struct cutting *c)
{
    struct wn__subgraph *x = c->x;
    int64_t nodes, inputs;
    count(c, &nodes, &inputs);
    struct wn__pool *p = &x->pool;
    struct wn__recipe *r = &x->recipe;
    int32_t is_there =
        WN_ARRAY(p, x->ir.node, nodes) && WN_ARRAY(p, x->ir.in, inputs) && WN_ARRAY(p, x->ir.in_type, inputs) &&
        WN_ARRAY(p, x->ir.cell, nodes + 3 * (int64_t)c->ir->n_effects) && WN_ARRAY(p, x->marks.decision, nodes) &&
        WN_ARRAY(p, x->own, nodes) && WN_ARRAY(p, x->ns, nodes) && WN_ARRAY(p, r->block_of, nodes) &&
        WN_ARRAY(p, r->last, nodes) && WN_ARRAY(p, r->first, 3) && WN_ARRAY(p, r->limit, 3) &&
        WN_ARRAY(p, r->keep, 2 * nodes) && WN_ARRAY(p, r->step, 3);
    return is_there ? WN_OK : WN_OOM;
}

/* Fills the subgraph in the order that the head of this file draws. outside: (ir->n) scratch. */
static int32_t cut_out(struct cutting *c, uint8_t *outside, const int64_t *ns)
{
    struct wn__subgraph *x = c->x;
    WN_TRY(make_room(c));
    x->ir.device = c->ir->device;
    x->ir.machine = c->ir->machine;
    x->ir.target = c->ir->target;
    x->ir.n_slabs = c->ir->n_slabs > 0;
    x->ir.slab = c->ir->slab;
    put_outsides(c, WN_PHASE_FORWARD);
    x->recipe.first[0] = x->ir.n;
    put_own(c, FORWARD);
    x->recipe.limit[0] = x->recipe.first[1] = x->ir.n;
    mark_read(c, WN_PHASE_FORWARD, outside);
    put_sink(c, WN_PHASE_FORWARD, outside);
    x->recipe.limit[1] = x->ir.n;
    x->recipe.n_blocks = 2;
    put_outsides(c, WN_PHASE_BACKWARD);
    put_own(c, BACKWARD);
    mark_read(c, WN_PHASE_BACKWARD, outside);
    put_sink(c, WN_PHASE_BACKWARD, outside);
    put_own(c, EFFECT);
    x->ir.recorded = x->ir.node;
    link_absorbed(c);
    wn__ir_last_readers(&x->ir, x->recipe.last);
    for (int32_t i = 0; i < x->ir.n; i++) x->ns[i] = x->own[i] >= 0 ? ns[x->own[i]] : 0;
    return write_key(x);
}

int32_t wn__subgraph_make(const struct wn__ir *ir, const struct wn__marks *marks, const int32_t *home, int32_t block,
                          const int64_t *ns, struct wn__subgraph *out)
{
    struct wn__pool scratch = {0};
    memset(out, 0, sizeof *out);
    struct cutting c = {.ir = ir, .marks = marks, .home = home, .block = block, .x = out};
    uint8_t *outside;
    int32_t code = WN_OOM;
    if (WN_ARRAY(&scratch, c.map, ir->n) && WN_ARRAY(&scratch, c.cell_map, ir->n_cells) &&
        WN_ARRAY(&scratch, outside, ir->n)) {
        for (int32_t i = 0; i < ir->n; i++) c.map[i] = -1;
        for (int32_t i = 0; i < ir->n_cells; i++) c.cell_map[i] = -1;
        code = cut_out(&c, outside, ns);
    }
    wn__pool_release(&scratch);
    return code;
}

void wn__subgraph_release(struct wn__subgraph *x)
{
    wn__pool_release(&x->pool);
    memset(x, 0, sizeof *x);
}

/* ---- the cost of a set of kept values ---------------------------------------------------------------------------- */

static int32_t is_always_kept(const struct wn__subgraph *x, int32_t i)
{
    int32_t is_output = x->recipe.last[i] >= x->recipe.limit[0] && !x->ir.node[i].is_reissued;
    return is_output || wn__recipe_always_keeps(&x->ir, &x->marks, i);
}

/* Writes the recipe that keeps n nodes, ascending: Fe of the block, Fe of sink 1, B of the block. */
static void write_recipe(struct wn__subgraph *x, const int32_t *keep, int32_t n)
{
    struct wn__recipe *r = &x->recipe;
    r->n = r->n_keep = 0;
    for (int32_t i = r->first[0], k = 0; i < r->limit[0]; i++) {
        while (k < n && keep[k] < i) k++;
        if ((k < n && keep[k] == i) || is_always_kept(x, i)) r->keep[r->n_keep++] = i;
    }
    r->step[r->n++] = (struct wn__recipe_step){.kind = WN_STEP_FE, .n_keep = r->n_keep};
    r->step[r->n++] = (struct wn__recipe_step){.kind = WN_STEP_FE, .block = 1, .keep_at = r->n_keep};
    r->step[r->n++] = (struct wn__recipe_step){.kind = WN_STEP_B};
}

/* A walk over the subgraph's schedule that adds up its cost. Invariant: live is the bytes of the allocations that are
 * alive, but for those of the block's inputs, and in the backward the gradients from later blocks. */
struct meter {
    const struct wn__subgraph *x;
    const struct wn__schedule *s;
    uint8_t *alive; /* (n_allocations of s) */
    int64_t live;   /* bytes */
    struct wn__subgraph_cost *out;
    int32_t in_backward; /* 1: sink 1 has run */
};

/* Counts the bytes of an allocation that holds a value from now on. Cells and held values are not the block's. */
static void make_alive(struct meter *m, int32_t allocation)
{
    const struct wn__allocation *t = &m->s->allocation[allocation];
    if (allocation == m->s->scalars || t->space == WN_SPACE_CELL || t->space == WN_SPACE_BOUND || m->alive[allocation])
        return;
    m->alive[allocation] = 1;
    m->live += t->bytes;
    if (t->space == WN_SPACE_SLAB) m->out->allocated += t->bytes;
}

/* Counts one run of a node: what it allocates, the peak, the nanoseconds. */
static void meter_run(struct meter *m, const struct wn__instr *n)
{
    const struct wn__ir *g = &m->x->ir;
    int32_t is_sink = n->node == m->x->recipe.limit[0];
    if (is_sink) {
        m->out->saved = m->live;
        m->in_backward = 1;
        m->live += m->x->incoming;
        return;
    }
    int32_t stand_in = m->x->own[n->node] < 0;
    if (stand_in && g->node[n->node].n_in == 0 && g->node[n->node].result < 0) {
        m->alive[m->s->value[n->out].allocation] = 1; /* a gradient of `incoming`, counted when the backward began */
        return;
    }
    if (stand_in) return; /* sink 2 */
    if (n->out >= 0) make_alive(m, m->s->value[n->out].allocation);
    for (int32_t k = 0; k < 3; k++)
        if (n->cell[k] >= 0) make_alive(m, n->cell[k]);
    int64_t *peak = m->in_backward ? &m->out->backward_peak : &m->out->forward_peak;
    int64_t *ns = m->in_backward ? &m->out->backward_ns : &m->out->forward_ns;
    if (m->live + n->work_bytes > *peak) *peak = m->live + n->work_bytes;
    *ns += m->x->ns[n->node];
    m->out->recomputed += n->recompute;
}

int32_t wn__subgraph_try(struct wn__subgraph *x, const int32_t *keep, int32_t n, struct wn__subgraph_cost *out)
{
    struct wn__schedule *s = NULL;
    memset(out, 0, sizeof *out);
    WN_TRY(wn__heed_interrupt());
    write_recipe(x, keep, n);
    WN_TRY(wn__lower(&x->ir, &x->recipe, &s));
    struct meter m = {.x = x, .s = s, .out = out};
    m.alive = wn__alloc(s->n_allocations + 1);
    for (int32_t i = 0; m.alive != NULL && i < s->n; i++) {
        const struct wn__instr *p = &s->instr[i];
        if (wn__instr_is_node(p)) meter_run(&m, p);
        if (p->what != WN_DO_FREE || !m.alive[p->out]) continue;
        m.alive[p->out] = 0;
        m.live -= s->allocation[p->out].bytes;
    }
    wn__schedule_unref(s);
    if (m.alive == NULL) return WN_OOM;
    wn__free(m.alive);
    return WN_OK;
}
