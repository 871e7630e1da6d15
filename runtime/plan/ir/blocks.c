/* Finds residuals, blocks and boundaries in the nodes of an IR; no script declares them.
 *
 * A residual is a forward value that a backward node reads. A state in another dtype or layout is none: it can always
 * be made from the state, so it is issued again wherever it is read, and no policy is asked about it. A state that is
 * gathered from ranks is issued again too, unless a decision saves it: it is a residual of the backward nodes that read
 * it, also in another dtype or layout.
 *
 * Data is a forward value that no state is part of: random numbers, labels, a mask. Like a value that is held already,
 * it crosses no cut, and it is in no block unless a module or a region made it.
 *
 * A weight is a forward value that only parameters feed, and that two nodes or more read which other values feed too:
 * W + a b of low rank, W / |W|, in every step of a loop. Like a parameter it is an input of every block that reads it,
 * and crosses no cut.
 *
 * A cut is a place in the order of recording that at most one other computed value crosses. A block starts at every
 * edge of a region, and at a cut if both the block before it and the nodes up to the next cut read a state. So Linear
 * and the ReLU behind it are one block, and the branch of a residual connection is never cut.
 *
 *   nodes     linear   relu   | linear   relu   | linear   add       | linear     |: a block starts
 *   values    h1       a1       h2       a2       h3       h3 + a2     y
 *   block     0        0        1        1        2        2           3          no cut at `add`: h3 and a2 cross
 */
#include "ir.h"

/* Returns whether node i is a RELAYOUT that the machine which is planned for has no use for: all weights are plain
 * there, while this device has a layout for them. Such a plan does not run here. */
static int32_t is_plain_elsewhere(const struct wn__ir *ir, const struct wn__ir_node *p)
{
    if (p->op != WN_OP_RELAYOUT || ir->machine == 0 || ir->target->weight_layout != WN_PLAIN) return 0;
    const struct wn_type *from = &ir->in_type[p->in_at];
    return p->type.layout != WN_NHWC && from->layout != WN_NHWC;
}

int32_t wn__ir_is_alias(const struct wn__ir *ir, int32_t node)
{
    const struct wn__ir_node *p = &ir->node[node];
    if (p->leaf != WN_LEAF_NONE || p->bound || p->result >= 0) return 0;
    return (wn__op_flags(p->op) & WN_ALIAS) != 0 || is_plain_elsewhere(ir, p);
}

int32_t wn__ir_changes_state(const struct wn__ir *ir, int32_t node)
{
    for (int32_t k = 0; k < 3; k++) {
        const int32_t slot = ir->node[node].cell[k];
        if (slot >= 0 && !(ir->cell[slot].kind == WN_KIND_GRADIENT && ir->cell[slot].allocated_here)) return 1;
    }
    return 0;
}

int32_t wn__ir_gathers(const struct wn__ir *ir)
{
    int32_t n = 0;
    for (int32_t i = 0; i < ir->n; i++) n += ir->node[i].op == WN_OP_ALL_GATHER;
    return n;
}

int32_t wn__ir_storage(const struct wn__ir *ir, int32_t node)
{
    while (wn__ir_is_alias(ir, node)) node = wn__ir_in(ir, node, 0);
    return node;
}

/* Marks casts and relayouts of states as reissued, and states that are gathered from ranks, but for results and bound
 * nodes, which are values like any other. */
static void find_reissued(struct wn__ir *ir)
{
    for (int32_t i = 0; i < ir->n; i++) {
        struct wn__ir_node *p = &ir->node[i];
        if (!wn__ir_node_is_forward(p) || p->result >= 0 || p->bound) continue;
        if (p->op != WN_OP_CAST && p->op != WN_OP_RELAYOUT && p->op != WN_OP_ALL_GATHER) continue;
        const struct wn__ir_node *of = &ir->node[wn__ir_storage(ir, wn__ir_in(ir, i, 0))];
        int32_t is_gathered = p->op == WN_OP_ALL_GATHER || of->op == WN_OP_ALL_GATHER;
        p->is_reissued = of->leaf == WN_LEAF_CELL || (is_gathered && of->is_reissued);
    }
}

/* Marks the forward values that no state is part of, by the inputs that were recorded. */
static void find_data(struct wn__ir *ir)
{
    for (int32_t i = 0; i < ir->n; i++) {
        const struct wn__ir_node *said = &ir->recorded[i];
        int32_t is_data = wn__ir_is_forward(ir, i) && !ir->node[i].needs_grad && !ir->node[i].bound;
        for (int32_t k = 0; k < said->n_in && is_data; k++) {
            const struct wn__ir_node *v = &ir->node[ir->in[said->in_at + k]];
            is_data = v->is_data || v->leaf == WN_LEAF_HELD || v->leaf == WN_LEAF_SCALAR;
        }
        ir->node[i].is_data = (uint8_t)is_data;
    }
}

/* Marks the weights, whose readers it counts first. Fills `fed`, (n): 1 of states and numbers, 2 of parameters and what
 * only they and numbers feed. */
static void find_weights(struct wn__ir *ir, uint8_t *fed)
{
    for (int32_t i = 0; i < ir->n; i++) {
        const struct wn__ir_node *p = &ir->node[i], *said = &ir->recorded[i];
        int32_t is_parameter = p->leaf == WN_LEAF_CELL && ir->cell[p->slot].kind == WN_KIND_PARAMETER;
        fed[i] = is_parameter ? 2 : p->leaf == WN_LEAF_SCALAR;
        if (!wn__ir_is_forward(ir, i) || p->bound) continue;
        uint8_t least = 2, most = 0;
        for (int32_t k = 0; k < said->n_in; k++) {
            uint8_t of = fed[ir->in[said->in_at + k]];
            least = of < least ? of : least;
            most = of > most ? of : most;
        }
        fed[i] = least > 0 && most == 2 ? 2 : 0;
        for (int32_t k = 0; k < p->n_in && fed[i] == 0; k++) {
            int32_t v = wn__ir_storage(ir, wn__ir_in(ir, i, k));
            if (fed[v] == 2 && wn__ir_is_forward(ir, v) && ir->node[v].is_weight < 2) ir->node[v].is_weight++;
        }
    }
    for (int32_t i = 0; i < ir->n; i++) ir->node[i].is_weight = ir->node[i].is_weight == 2;
}

int32_t wn__ir_reads_sign(const struct wn__ir *ir, int32_t node, int32_t k)
{
    const struct wn__ir_node *p = &ir->node[node];
    if (p->op == WN_OP_RELU_GRAD) return k == 1;
    if (p->op == WN_OP_MATMUL_MAP || p->op == WN_OP_LINEAR_MAP)
        return p->attrs.i[2] == WN_OP_RELU_GRAD && k == p->n_in - 1;
    if (p->op != WN_OP_ELEMENTWISE) return 0;
    struct wn__fused c = wn__fused_get(&p->attrs, 0);
    for (int32_t s = 0; s < c.n; s++)
        for (int32_t j = 0; j < wn__elementwise_operands(c.step[s].op); j++)
            if (c.step[s].operand[j] == k && !(c.step[s].op == WN_OP_RELU_GRAD && j == 1)) return 0;
    return 1;
}

/* Returns the node whose value a policy decides about where node i reads input k: of a state in another dtype or
 * layout, what it is made from. */
static int32_t decided_input(const struct wn__ir *ir, int32_t i, int32_t k)
{
    int32_t v = wn__ir_storage(ir, wn__ir_in(ir, i, k));
    while (ir->node[v].is_reissued && ir->node[v].op != WN_OP_ALL_GATHER) v = wn__ir_storage(ir, wn__ir_in(ir, v, 0));
    return v;
}

/* Marks and lists the forward values that backward nodes read, or an update that computes the product of a gradient. */
static int32_t find_residuals(struct wn__ir *ir)
{
    for (int32_t i = 0; i < ir->n; i++) {
        if (ir->node[i].phase != WN_PHASE_BACKWARD && ir->node[i].op != WN_OP_PRODUCT_UPDATE) continue;
        for (int32_t k = 0; k < ir->node[i].n_in; k++) {
            struct wn__ir_node *v = &ir->node[decided_input(ir, i, k)];
            if (!wn__ir_node_is_forward(v)) continue;
            v->is_residual = 1;
            v->n_readers++;
            v->is_read_whole |= !wn__ir_reads_sign(ir, i, k);
        }
    }
    for (int32_t i = 0; i < ir->n; i++) ir->n_residuals += ir->node[i].is_residual;
    if (!WN_ARRAY(&ir->pool, ir->residual, ir->n_residuals)) return WN_OOM;
    for (int32_t i = 0, at = 0; i < ir->n; i++)
        if (ir->node[i].is_residual) ir->residual[at++] = i;
    return WN_OK;
}

void wn__ir_last_readers(const struct wn__ir *ir, int32_t *last)
{
    for (int32_t i = 0; i < ir->n; i++) last[i] = i;
    for (int32_t i = 0; i < ir->n; i++) {
        if (!wn__ir_is_forward(ir, i)) continue;
        for (int32_t k = 0; k < ir->node[i].n_in; k++) {
            int32_t v = wn__ir_in(ir, i, k);
            last[v] = last[wn__ir_storage(ir, v)] = i;
        }
    }
}

int32_t wn__ir_reads_state(const struct wn__ir *ir, int32_t node)
{
    for (int32_t k = 0; k < ir->node[node].n_in; k++) {
        const struct wn__ir_node *v = &ir->node[wn__ir_storage(ir, wn__ir_in(ir, node, k))];
        if (v->leaf == WN_LEAF_CELL || v->is_reissued || v->is_weight) return 1;
    }
    return 0;
}

/* Returns whether a forward node from `first` up to the next cut reads a state. */
static int32_t reads_state_before_cut(const struct wn__ir *ir, int32_t first, const uint8_t *is_cut)
{
    for (int32_t i = first; i < ir->n; i++) {
        if (!wn__ir_node_is_forward(&ir->node[i])) continue;
        if (i > first && is_cut[i]) return 0;
        if (wn__ir_reads_state(ir, i)) return 1;
    }
    return 0;
}

/* Fills is_cut, (n): 1 where at most one value computed before node i, but for data and weights, is read by a forward
 * node from i on. last: as wn__ir_last_readers fills it; ends: (n) scratch, the values whose last reader a node is. */
static void find_cuts(const struct wn__ir *ir, const int32_t *last, int32_t *ends, uint8_t *is_cut)
{
    int32_t crossing = 0;
    for (int32_t i = 0; i < ir->n; i++) ends[i] = 0;
    for (int32_t i = 0; i < ir->n; i++) {
        const struct wn__ir_node *p = &ir->node[i];
        is_cut[i] = crossing <= 1;
        crossing -= ends[i];
        if (!wn__ir_node_is_forward(p) || p->is_data || p->is_weight || wn__ir_is_alias(ir, i) || last[i] == i)
            continue;
        crossing++;
        ends[last[i]]++;
    }
}

/* Numbers the blocks of the forward nodes in record order; -1: nodes of other phases, and data outside of modules and
 * regions. */
static void number_blocks(struct wn__ir *ir, const uint8_t *is_cut)
{
    int32_t before = -1, has_state = 0;
    for (int32_t i = 0; i < ir->n; i++) {
        struct wn__ir_node *p = &ir->node[i];
        p->block = -1;
        if (!wn__ir_node_is_forward(p) || (p->is_data && p->region == 0 && p->scope == 0)) continue;
        const struct wn__ir_node *q = before >= 0 ? &ir->node[before] : NULL;
        int32_t edge = q == NULL || q->root != p->root || q->region != p->region;
        int32_t starts = is_cut[i] && p->region == 0 && has_state && reads_state_before_cut(ir, i, is_cut);
        if (edge || starts) {
            ir->n_blocks++;
            has_state = 0;
        }
        has_state |= wn__ir_reads_state(ir, i);
        p->block = ir->n_blocks - 1;
        before = i;
    }
}

/* Marks values that the forward of another block reads, and gives backward nodes the blocks of their forward nodes. */
static void find_boundaries(struct wn__ir *ir)
{
    for (int32_t i = 0; i < ir->n; i++) {
        struct wn__ir_node *p = &ir->node[i];
        ir->has_backward |= p->phase == WN_PHASE_BACKWARD;
        if (p->phase == WN_PHASE_BACKWARD && p->forward_of >= 0) p->block = ir->node[p->forward_of].block;
        if (!wn__ir_node_is_forward(p)) continue;
        for (int32_t k = 0; k < p->n_in; k++) {
            struct wn__ir_node *v = &ir->node[wn__ir_storage(ir, wn__ir_in(ir, i, k))];
            if (wn__ir_node_is_forward(v) && !v->is_reissued && v->block != p->block) v->is_boundary = 1;
        }
    }
}

int32_t wn__ir_blocks(struct wn__ir *ir)
{
    struct wn__pool scratch = {0};
    int32_t *last, *ends, n = ir->n, code = WN_OOM;
    uint8_t *is_cut;
    find_reissued(ir);
    if (WN_ARRAY(&scratch, last, n) && WN_ARRAY(&scratch, ends, n) && WN_ARRAY(&scratch, is_cut, n))
        code = find_residuals(ir);
    if (code == WN_OK) {
        wn__ir_last_readers(ir, last);
        find_data(ir);
        find_weights(ir, is_cut);
        find_cuts(ir, last, ends, is_cut);
        number_blocks(ir, is_cut);
        find_boundaries(ir);
    }
    wn__pool_release(&scratch);
    return code;
}

const struct wn__ir *wn__ir_ref(const struct wn__ir *ir)
{
    ++*ir->refs;
    return ir;
}

void wn__ir_unref(const struct wn__ir *ir)
{
    if (ir == NULL || --*ir->refs > 0) return;
    struct wn__pool pool = ir->pool;
    wn__pool_release(&pool);
}
