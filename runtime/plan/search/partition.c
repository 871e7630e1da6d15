/* Partitions the forward of an IR into the blocks that the planner works with: makes the blocks of a recipe.
 *
 * 1. The blocks start where the IR's own blocks start (ir/blocks.c), at cuts that a single value crosses.
 * 2. A graph with long skips has few such cuts. A block with more than 1/SHARE of the nodes is cut further: before a
 *    node that reads a state, if at most one value computed since the last cut crosses. Older values may cross too;
 *    they pass the block on their way to a later one.
 * 3. A value whose decision is 'recompute' is not kept, so no cut may be where one crosses: such a cut moves to the
 *    nearest place that only another single value crosses, or is removed.
 * 4. Neighbouring blocks are merged in pairs until at most MAX_BLOCKS remain, never across roots.
 *
 *   layers without skips     linear   gelu | linear   gelu | linear      |: a block starts
 *   the same, fine           linear | gelu | linear | gelu | linear
 *
 * The fine partition replaces step 4 by a cut at every place that a single value crosses. Linear and GELU are then two
 * blocks, and a plan may keep the input of the GELU and drop its output, which is cheap to compute again. */
#include <string.h>
#include "planner.h"

#define SHARE 4        /* a block with more than 1/SHARE of the forward's nodes is cut further */
#define MAX_BLOCKS 160 /* the chain solver's time grows with the square of the blocks */

/* Cuts the block [from, to) further: step 2. cut: (ir->n) 1 where a block starts. */
static void cut_inside(const struct wn__ir *ir, const int32_t *last, int32_t from, int32_t to, uint8_t *cut)
{
    int32_t start = from;
    for (int32_t i = from + 1; i < to; i++) {
        if (!wn__ir_is_forward(ir, i) || !wn__ir_reads_state(ir, i) || ir->node[i].is_reissued) continue;
        int32_t fresh = 0, stateful = 0;
        for (int32_t j = start; j < i; j++) {
            if (!wn__ir_is_forward(ir, j) || ir->node[j].is_reissued) continue;
            stateful |= wn__ir_reads_state(ir, j);
            fresh += !wn__ir_is_alias(ir, j) && !ir->node[j].is_weight && last[j] >= i;
        }
        if (fresh > 1 || !stateful) continue;
        cut[i] = 1;
        start = i;
    }
}

/* Fills `cut` by steps 1 and 2. */
static void find_cuts(const struct wn__ir *ir, const int32_t *last, uint8_t *cut)
{
    int32_t before = -1, own = -1, n = 0, from = 0; /* own: the IR's block of what is since the cut; -1: only data */
    for (int32_t i = 0; i < ir->n; i++) {
        if (!wn__ir_is_forward(ir, i)) continue;
        const struct wn__ir_node *p = &ir->node[i], *q = before >= 0 ? &ir->node[before] : NULL;
        cut[i] = q == NULL || p->root != q->root || (p->block >= 0 && own >= 0 && p->block != own);
        own = p->block >= 0 ? p->block : cut[i] ? -1 : own;
        before = i;
        n++;
    }
    for (int32_t i = 0; i <= ir->n; i++) { /* block [from, i): i is the first node of the next one, or the end */
        if (i < ir->n && !(wn__ir_is_forward(ir, i) && cut[i])) continue;
        int32_t size = 0;
        for (int32_t j = from; j < i; j++) size += wn__ir_is_forward(ir, j);
        if (size * SHARE > n) cut_inside(ir, last, from, i, cut);
        from = i;
    }
}

/* ---- cuts that no decision forbids ----------------------------------------------------------------------------- */

/* Values that cross a cut before node i: computed before it, and read by a forward node from i on. */
struct crossing {
    int32_t *all;       /* (ir->n + 1) how many that are no data and no weights */
    int32_t *recompute; /* (ir->n + 1) how many of all have the decision 'recompute', and are not always kept */
};

/* Counts the values that cross each cut, as prefix sums over the first and the last node that each value crosses. */
static void count_crossing(const struct wn__ir *ir, const struct wn__marks *marks, const int32_t *last,
                           struct crossing *x)
{
    for (int32_t v = 0; v < ir->n; v++) {
        if (!wn__ir_is_forward(ir, v) || wn__ir_is_alias(ir, v) || ir->node[v].is_reissued || last[v] == v) continue;
        int32_t must_go = wn__recipe_must_go(ir, marks, v);
        int32_t counts = !ir->node[v].is_data && !ir->node[v].is_weight;
        x->all[v + 1] += counts;
        x->all[last[v] + 1] -= counts;
        x->recompute[v + 1] += must_go;
        x->recompute[last[v] + 1] -= must_go;
    }
    for (int32_t i = 1; i <= ir->n; i++) {
        x->all[i] += x->all[i - 1];
        x->recompute[i] += x->recompute[i - 1];
    }
}

/* Returns the nearest node from cut i in steps of `by` (1 or -1), up to the next cut, that may be a cut: at most one
 * value crosses, none to be recomputed. -1: there is none. */
static int32_t nearest_free(const struct wn__ir *ir, const struct crossing *x, const uint8_t *cut, int32_t i,
                            int32_t by)
{
    for (int32_t j = i + by; j > 0 && j < ir->n; j += by) {
        if (!wn__ir_is_forward(ir, j)) continue;
        if (ir->node[j].root != ir->node[i].root || cut[j]) return -1;
        if (x->all[j] <= 1 && x->recompute[j] == 0 && !ir->node[j].is_reissued) return j;
    }
    return -1;
}

/* Moves or removes cuts that a value to be recomputed crosses: step 3. */
static void move_cuts(const struct wn__ir *ir, const struct crossing *x, uint8_t *cut)
{
    int32_t before = -1;
    for (int32_t i = 0; i < ir->n; i++) {
        if (!wn__ir_is_forward(ir, i)) continue;
        int32_t starts_root = before < 0 || ir->node[before].root != ir->node[i].root;
        before = i;
        if (!cut[i] || starts_root || x->recompute[i] == 0) continue;
        int32_t to = nearest_free(ir, x, cut, i, -1);
        if (to < 0) to = nearest_free(ir, x, cut, i, 1);
        cut[i] = 0;
        if (to >= 0) cut[to] = 1;
    }
}

/* Cuts before every node that a single value crosses, if a node was there before it: the fine partition. */
static void cut_finely(const struct wn__ir *ir, const struct crossing *x, uint8_t *cut)
{
    int32_t has_op = 0;
    for (int32_t i = 0; i < ir->n; i++) {
        if (!wn__ir_is_forward(ir, i) || ir->node[i].is_reissued || wn__ir_is_alias(ir, i)) continue;
        if (ir->node[i].absorbed_by >= 0) continue;
        if (has_op && x->all[i] <= 1 && x->recompute[i] == 0) cut[i] = 1;
        has_op = 1;
    }
}

/* Merges neighbouring blocks in pairs until at most MAX_BLOCKS remain, never across roots: step 4. */
static void merge_pairs(const struct wn__ir *ir, uint8_t *cut)
{
    for (int32_t left = INT32_MAX;;) {
        int32_t n = 0, before = -1;
        for (int32_t i = 0; i < ir->n; i++) n += wn__ir_is_forward(ir, i) && cut[i];
        if (n <= MAX_BLOCKS || n == left) return;
        left = n;
        for (int32_t i = 0, k = 0; i < ir->n; i++) {
            if (!wn__ir_is_forward(ir, i)) continue;
            int32_t same = before >= 0 && ir->node[before].root == ir->node[i].root;
            if (cut[i] && same && k++ % 2 == 0) cut[i] = 0;
            before = i;
        }
    }
}

int32_t wn__partition(const struct wn__ir *ir, const struct wn__marks *marks, int32_t is_fine, struct wn__recipe *r)
{
    struct wn__pool scratch = {0};
    struct crossing x;
    uint8_t *cut;
    int32_t code = wn__recipe_make(ir, ir->n, r), n = ir->n + 1;
    if (code == WN_OK &&
        !(WN_ARRAY(&scratch, cut, n) && WN_ARRAY(&scratch, x.all, n) && WN_ARRAY(&scratch, x.recompute, n)))
        code = WN_OOM;
    if (code == WN_OK) {
        wn__ir_last_readers(ir, r->last);
        find_cuts(ir, r->last, cut);
        count_crossing(ir, marks, r->last, &x);
        move_cuts(ir, &x, cut);
        if (is_fine) cut_finely(ir, &x, cut);
        else merge_pairs(ir, cut);
        for (int32_t i = 0; i < ir->n; i++) {
            r->block_of[i] = -1;
            if (!wn__ir_is_forward(ir, i)) continue;
            if (cut[i]) r->first[r->n_blocks++] = i;
            r->block_of[i] = r->n_blocks - 1;
            r->limit[r->n_blocks - 1] = i + 1;
        }
        wn__recipe_serve(ir, r);
    }
    wn__pool_release(&scratch);
    return code;
}

/* An effect belongs to the block of the gradient or the forward value that it reads, or of the gradient that its own
 * kernel computes. */
void wn__partition_home(const struct wn__ir *ir, const struct wn__recipe *r, int32_t *home)
{
    int32_t effects = ir->n - ir->n_effects;
    for (int32_t i = 0; i < ir->n; i++) home[i] = -1;
    for (int32_t i = 0; i < effects; i++) {
        const struct wn__ir_node *p = &ir->node[i];
        int32_t block = r->block_of[i];
        if (p->leaf != WN_LEAF_NONE || p->bound || block < 0 || p->root != ir->node[r->first[block]].root) continue;
        home[i] = block;
        if (p->absorbed_by >= effects) home[p->absorbed_by] = block;
    }
    for (int32_t i = effects; i < ir->n; i++)
        for (int32_t k = 0; k < ir->node[i].n_in && home[i] < 0; k++) {
            int32_t v = wn__ir_storage(ir, wn__ir_in(ir, i, k));
            if (ir->node[v].phase == WN_PHASE_BACKWARD || wn__is_forward_effect(ir, i)) home[i] = home[v];
        }
}
