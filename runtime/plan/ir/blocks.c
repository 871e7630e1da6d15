/* Finds residuals, blocks and boundaries in the nodes of an IR; no script declares them.
 *
 * A residual is a forward value that a backward node reads. A state in another dtype or layout is none: it can always
 * be made from the state, so it is issued again wherever it is read, and no policy is asked about it.
 *
 * A cut is a place in the order of recording that at most one computed value crosses. A block starts at every edge of a
 * region, and at a cut if both the block before it and the nodes up to the next cut read a state. So Linear and the
 * ReLU behind it are one block, and the branch of a residual connection is never cut.
 *
 *   nodes     linear   relu   | linear   relu   | linear   add       | linear     |: a block starts
 *   values    h1       a1       h2       a2       h3       h3 + a2     y
 *   block     0        0        1        1        2        2           3          no cut at `add`: h3 and a2 cross
 */
#include "ir.h"

int32_t wn__ir_is_alias(const struct wn__ir *f, int32_t node)
{
    const struct wn__ir_node *p = &f->node[node];
    return p->leaf == WN_LEAF_NONE && !p->bound && p->result < 0 && (wn__op_flags(p->op) & WN_ALIAS) != 0;
}

int32_t wn__ir_storage(const struct wn__ir *f, int32_t node)
{
    while (wn__ir_is_alias(f, node)) node = wn__ir_in(f, node, 0);
    return node;
}

/* Marks casts and relayouts of states as reissued, but for results and bound nodes, which are values like any other. */
static void find_reissued(struct wn__ir *f)
{
    for (int32_t i = 0; i < f->n; i++) {
        struct wn__ir_node *p = &f->node[i];
        if (!wn__ir_node_is_forward(p) || p->result >= 0 || p->bound) continue;
        if (p->op != WN_OP_CAST && p->op != WN_OP_RELAYOUT) continue;
        p->is_reissued = f->node[wn__ir_storage(f, wn__ir_in(f, i, 0))].leaf == WN_LEAF_CELL;
    }
}

int32_t wn__ir_reads_sign(const struct wn__ir *f, int32_t node, int32_t k)
{
    const struct wn__ir_node *p = &f->node[node];
    if (p->op == WN_OP_RELU_GRAD) return k == 1;
    if (p->op == WN_OP_MATMUL_MAP || p->op == WN_OP_LINEAR_MAP)
        return p->attrs.i[2] == WN_OP_RELU_GRAD && k == p->n_in - 1;
    if (p->op != WN_OP_CHAIN) return 0;
    struct wn__fused c = wn__fused_get(&p->attrs);
    for (int32_t s = 0; s < c.n; s++)
        for (int32_t j = 0; j < wn__elementwise_operands(c.step[s].op); j++)
            if (c.step[s].operand[j] == k && !(c.step[s].op == WN_OP_RELU_GRAD && j == 1)) return 0;
    return 1;
}

/* Marks and lists the forward values that backward nodes read. */
static int32_t find_residuals(struct wn__ir *f)
{
    for (int32_t i = 0; i < f->n; i++) {
        if (!wn__ir_is_backward(f, i)) continue;
        for (int32_t k = 0; k < f->node[i].n_in; k++) {
            struct wn__ir_node *v = &f->node[wn__ir_storage(f, wn__ir_in(f, i, k))];
            if (!wn__ir_node_is_forward(v) || v->is_reissued) continue;
            v->is_residual = 1;
            v->n_readers++;
            v->is_read_whole |= !wn__ir_reads_sign(f, i, k);
        }
    }
    for (int32_t i = 0; i < f->n; i++) f->n_residuals += f->node[i].is_residual;
    f->residual = wn__pool_get(&f->pool, (f->n_residuals + 1) * (int64_t)sizeof *f->residual);
    if (f->residual == NULL) return WN_OOM;
    for (int32_t i = 0, at = 0; i < f->n; i++)
        if (f->node[i].is_residual) f->residual[at++] = i;
    return WN_OK;
}

void wn__ir_last_readers(const struct wn__ir *f, int32_t *last)
{
    for (int32_t i = 0; i < f->n; i++) last[i] = i;
    for (int32_t i = 0; i < f->n; i++) {
        if (!wn__ir_is_forward(f, i)) continue;
        for (int32_t k = 0; k < f->node[i].n_in; k++) {
            int32_t v = wn__ir_in(f, i, k);
            last[v] = last[wn__ir_storage(f, v)] = i;
        }
    }
}

static int32_t reads_state(const struct wn__ir *f, int32_t node)
{
    for (int32_t k = 0; k < f->node[node].n_in; k++)
        if (f->node[wn__ir_storage(f, wn__ir_in(f, node, k))].leaf == WN_LEAF_CELL) return 1;
    return 0;
}

/* Returns whether a forward node from `first` up to the next cut reads a state. */
static int32_t reads_state_before_cut(const struct wn__ir *f, int32_t first, const uint8_t *is_cut)
{
    for (int32_t i = first; i < f->n; i++) {
        if (!wn__ir_node_is_forward(&f->node[i])) continue;
        if (i > first && is_cut[i]) return 0;
        if (reads_state(f, i)) return 1;
    }
    return 0;
}

/* Fills is_cut, (n): 1 where at most one value computed before node i is read by a forward node from i on. last: as
 * wn__ir_last_readers fills it; ends: (n) scratch, the values whose last reader a node is. */
static void find_cuts(const struct wn__ir *f, const int32_t *last, int32_t *ends, uint8_t *is_cut)
{
    int32_t crossing = 0;
    for (int32_t i = 0; i < f->n; i++) ends[i] = 0;
    for (int32_t i = 0; i < f->n; i++) {
        const struct wn__ir_node *p = &f->node[i];
        is_cut[i] = crossing <= 1;
        crossing -= ends[i];
        if (!wn__ir_node_is_forward(p) || wn__ir_is_alias(f, i) || last[i] == i) continue;
        crossing++;
        ends[last[i]]++;
    }
}

/* Numbers the blocks of the forward nodes in record order. */
static void number_blocks(struct wn__ir *f, const uint8_t *is_cut)
{
    int32_t before = -1, has_state = 0;
    for (int32_t i = 0; i < f->n; i++) {
        struct wn__ir_node *p = &f->node[i];
        if (!wn__ir_node_is_forward(p)) continue;
        const struct wn__ir_node *q = before >= 0 ? &f->node[before] : NULL;
        int32_t edge = q == NULL || q->root != p->root || q->region != p->region;
        int32_t starts = is_cut[i] && p->region == 0 && has_state && reads_state_before_cut(f, i, is_cut);
        if (edge || starts) {
            f->n_blocks++;
            has_state = 0;
        }
        has_state |= reads_state(f, i);
        p->block = f->n_blocks - 1;
        before = i;
    }
}

/* Marks values that the forward of another block reads, and gives backward nodes the blocks of their forward nodes. */
static void find_boundaries(struct wn__ir *f)
{
    for (int32_t i = 0; i < f->n; i++) {
        struct wn__ir_node *p = &f->node[i];
        if (p->phase == WN_PHASE_BACKWARD && p->forward_of >= 0) p->block = f->node[p->forward_of].block;
        if (!wn__ir_node_is_forward(p)) continue;
        for (int32_t k = 0; k < p->n_in; k++) {
            struct wn__ir_node *v = &f->node[wn__ir_storage(f, wn__ir_in(f, i, k))];
            if (wn__ir_node_is_forward(v) && !v->is_reissued && v->block != p->block) v->is_boundary = 1;
        }
    }
}

int32_t wn__ir_blocks(struct wn__ir *f)
{
    struct wn__pool scratch = {0};
    int32_t *last = wn__pool_get(&scratch, (f->n + 1) * (int64_t)sizeof *last);
    int32_t *ends = wn__pool_get(&scratch, (f->n + 1) * (int64_t)sizeof *ends);
    uint8_t *is_cut = wn__pool_get(&scratch, f->n + 1);
    find_reissued(f);
    int32_t code = last == NULL || ends == NULL || is_cut == NULL ? WN_OOM : find_residuals(f);
    if (code == WN_OK) {
        wn__ir_last_readers(f, last);
        find_cuts(f, last, ends, is_cut);
        number_blocks(f, is_cut);
        find_boundaries(f);
    }
    wn__pool_release(&scratch);
    return code;
}

void wn__ir_unref(struct wn__ir *f)
{
    if (f == NULL || --f->refs > 0) return;
    struct wn__pool pool = f->pool;
    wn__pool_release(&pool);
}
