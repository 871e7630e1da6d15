/* Makes flat recipes: every block runs forward once, a set of values is kept, and the backward recomputes what it
 * misses. Such a recipe follows from its set alone. So the set is described by one number a value (`kept`: the action
 * it is kept with, 0 for none, WN__GONE for a value that is not kept), and is written out over the blocks of any
 * partition:
 *
 *   root 0: Fe 1 .. Fe m     Free of values that only the forward reads   B m .. B 1
 *   root 1: Fe m+1 .. Fe n   Free of values that only the forward reads   B n .. B m+1, B m .. B 1
 */
#include <string.h>
#include "planner.h"

/* Returns whether v is a value of the block that has bytes of its own and is kept or dropped. */
static int32_t is_value(const struct wn__ir *ir, const struct wn__recipe *r, int32_t v, int32_t block)
{
    return r->block_of[v] == block && !wn__ir_is_alias(ir, v) && !ir->node[v].is_reissued;
}

/* Puts a step of a block that keeps the values of the set, and those that a node from `beyond` on reads. */
static int32_t put_step(const struct wn__ir *ir, const int8_t *kept, int32_t kind, int32_t block, int32_t beyond,
                        struct wn__recipe *r)
{
    int32_t n = 0;
    WN_TRY(wn__recipe_room(r, r->limit[block] - r->first[block]));
    for (int32_t v = r->first[block]; v < r->limit[block]; v++) {
        if (!is_value(ir, r, v, block)) continue;
        if (kept[v] != WN__GONE || r->last[v] >= beyond) wn__recipe_keep(r, n++, v, kept[v] > 0 ? kept[v] : 0);
    }
    return wn__recipe_put(r, kind, block, ir->node[r->first[block]].root, n);
}

/* Returns whether a later block reads a value of the block that is not in the set, so that the value is freed when the
 * forward is over. */
static int32_t has_more(const struct wn__ir *ir, const int8_t *kept, const struct wn__recipe *r, int32_t block)
{
    for (int32_t v = r->first[block]; v < r->limit[block]; v++)
        if (is_value(ir, r, v, block) && kept[v] == WN__GONE && r->last[v] >= r->limit[block]) return 1;
    return 0;
}

/* Puts the steps of one root, whose blocks are [lo, hi): Fe of each, Free of what only the forward needed, B of each
 * and of all blocks before, as a root may go backward through a trunk that earlier roots ran. */
static int32_t put_root(const struct wn__ir *ir, const int8_t *kept, int32_t lo, int32_t hi, struct wn__recipe *r)
{
    for (int32_t b = lo; b < hi; b++) WN_TRY(put_step(ir, kept, WN_RECIPE_FE, b, r->limit[b], r));
    for (int32_t b = lo; b < hi; b++)
        if (has_more(ir, kept, r, b)) WN_TRY(put_step(ir, kept, WN_RECIPE_FREE, b, ir->n, r));
    for (int32_t b = hi - 1; b >= 0; b--) WN_TRY(wn__recipe_put(r, WN_RECIPE_B, b, ir->node[r->first[lo]].root, 0));
    return WN_OK;
}

int32_t wn__flat_recipe(const struct wn__ir *ir, const struct wn__recipe *base, const int8_t *kept,
                        struct wn__recipe *out)
{
    int32_t code = WN_OK;
    wn__recipe_begin(base, out);
    for (int32_t lo = 0, hi; lo < base->n_blocks && code == WN_OK; lo = hi) {
        hi = wn__recipe_root_end(ir, base, lo);
        code = put_root(ir, kept, lo, hi, out);
    }
    if (code != WN_OK) wn__recipe_release(out);
    return code;
}

void wn__flat_kept(const struct wn__ir *ir, const struct wn__recipe *r, int8_t *kept)
{
    int32_t in_backward = 0;
    for (int32_t v = 0; v < ir->n; v++) kept[v] = WN__GONE;
    for (int32_t i = 0; i < r->n; i++) {
        const struct wn__recipe_step *s = &r->step[i];
        if (i > 0 && s->root != r->step[i - 1].root) in_backward = 0;
        in_backward |= s->kind == WN_RECIPE_B;
        if (in_backward) continue;
        for (int32_t v = r->first[s->block]; v < r->limit[s->block]; v++)
            if (r->block_of[v] == s->block) kept[v] = WN__GONE;
        for (int32_t k = s->keep_at; k < s->keep_at + s->n_keep; k++)
            if (is_value(ir, r, r->keep[k], s->block)) kept[r->keep[k]] = (int8_t)r->action[k];
    }
}

int32_t wn__flat_again(const struct wn__ir *ir, const int8_t *kept, uint8_t *use, int32_t *stack)
{
    int32_t n = 0;
    memset(use, 0, (size_t)ir->n);
    for (int32_t k = 0; k < ir->n_residuals; k++) {
        int32_t v = ir->residual[k];
        if (kept[v] != WN__GONE || ir->node[v].bound) continue;
        use[v] = WN__RECOMPUTED;
        stack[n++] = v;
    }
    for (int32_t at = 0; at < n; at++)
        for (int32_t k = 0; k < ir->node[stack[at]].n_in; k++) {
            int32_t v = wn__ir_storage(ir, wn__ir_in(ir, stack[at], k));
            if (use[v] || !wn__ir_is_forward(ir, v) || ir->node[v].bound) continue;
            use[v] = kept[v] != WN__GONE ? WN__READ_FOR_IT : WN__RECOMPUTED;
            if (use[v] == WN__RECOMPUTED) stack[n++] = v;
        }
    return n;
}
