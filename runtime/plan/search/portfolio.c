/* Proposes what people write by hand, over the planner's blocks:
 *
 *   as marked        the regions and decisions of the script, residuals without a decision kept
 *   save_all         everything kept; "save_all, bits" and the like: in a packed form, where a budget may choose that
 *   every(k)         regions of k blocks
 *   segments(n)      n segments of equal length, the last one kept
 *   keep_last(n)     regions of one block, the last n blocks kept
 *   cheap(c)         residuals that cost less than c nanoseconds a KiB recomputed, the others kept
 *   proposals of the script (wn__candidate_put), under their own names
 *
 * Each is compiled as every policy is, so a budget that picks among these and the solver's plans is never worse than
 * they are. Decisions and results of the script stay as they are. */
#include <stdio.h>
#include <string.h>
#include "../recipe/action.h"
#include "planner.h"

/* Invariant: nodes of `copy` differ from those of ir in units and decisions alone. */
struct portfolio {
    const struct wn__ir *ir;
    const struct wn__recipe *base; /* the blocks */
    struct wn__ir copy;            /* ir with nodes of its own, whose units and decisions are those of the proposal */
    wn__recipe_sink put;
    void *ctx; /* the first argument of `put` */
};

/* Makes the copy's nodes those of the IR, without units around units. */
static void start_over(struct portfolio *p)
{
    memcpy(p->copy.node, p->ir->node, (size_t)p->ir->n * sizeof *p->copy.node);
    p->copy.unit_parent = NULL;
}

/* Compiles the copy's units and decisions, and proposes the recipe. */
static int32_t offer(struct portfolio *p, const char *name)
{
    struct wn__recipe r;
    int32_t code = wn__recipe_compile(&p->copy, &r);
    if (code == WN_OK) return p->put(p->ctx, &r, name);
    wn__recipe_release(&r);
    return code;
}

/* Returns the end of the blocks of the root that starts with block lo. */
static int32_t root_end(const struct portfolio *p, int32_t lo)
{
    int32_t hi = lo, root = p->ir->node[p->base->first[lo]].root;
    while (hi < p->base->n_blocks && p->ir->node[p->base->first[hi]].root == root) hi++;
    return hi;
}

/* Proposes regions of `size` blocks from the start of each root's n blocks, the last `keep` blocks outside; or, with
 * segments > 0, segments - 1 regions of n / segments blocks. Proposes nothing if a root has too few blocks. */
static int32_t offer_regions(struct portfolio *p, int32_t segments, int32_t size, int32_t keep, const char *name)
{
    const struct wn__recipe *r = p->base;
    int32_t unit = 0;
    start_over(p);
    for (int32_t lo = 0, hi; lo < r->n_blocks; lo = hi) {
        hi = root_end(p, lo);
        int32_t n = hi - lo, s = segments > 0 ? n / segments : size, closed = n - keep;
        if (segments > 0) closed = s * (segments - 1);
        if (s < 1 || closed < 1) return WN_OK;
        for (int32_t i = 0; i < p->ir->n; i++) {
            int32_t b = wn__ir_is_forward(p->ir, i) ? r->block_of[i] : -1;
            if (b >= lo && b < hi) p->copy.node[i].unit = b - lo < closed ? unit + 1 + (b - lo) / s : -1;
        }
        unit += n / s + 2;
    }
    return offer(p, name);
}

/* Proposes the regions of the script, and no region at all. */
static int32_t offer_kept(struct portfolio *p)
{
    start_over(p);
    p->copy.unit_parent = p->ir->unit_parent;
    WN_TRY(offer(p, "as marked"));
    for (int32_t i = 0; i < p->ir->n; i++) p->copy.node[i].unit = -1;
    return offer(p, "save_all");
}

/* Proposes everything kept, in the form of one action wherever a budget may choose it and it is possible. */
static int32_t offer_packed(struct portfolio *p, int32_t action)
{
    char name[32];
    int32_t n = 0;
    start_over(p);
    for (int32_t i = 0; i < p->ir->n; i++) {
        struct wn__ir_node *q = &p->copy.node[i];
        q->unit = -1;
        if (!wn__action_may_choose(p->ir, i, action)) continue;
        q->decision = action;
        n++;
    }
    snprintf(name, sizeof name, "save_all, %s", wn__action_name(action));
    return n > 0 ? offer(p, name) : WN_OK;
}

/* Proposes to recompute the residuals that cost less than `ns_a_kib` nanoseconds a KiB. */
static int32_t offer_cheap(struct portfolio *p, const int64_t *ns, int64_t ns_a_kib, const char *name)
{
    start_over(p);
    for (int32_t i = 0; i < p->ir->n; i++) {
        struct wn__ir_node *q = &p->copy.node[i];
        q->unit = -1;
        if (q->is_residual && q->decision == WN_DECISION_NONE && ns[i] * 1024 < ns_a_kib * q->bytes)
            q->decision = WN_DECISION_RECOMPUTE;
    }
    return offer(p, name);
}

/* Proposes the candidates of the script: with their units and decisions, the plans are those of the same policies. */
static int32_t offer_candidates(struct portfolio *p)
{
    for (const struct wn__candidate *c = p->ir->candidate; c != NULL; c = c->next) {
        start_over(p);
        p->copy.unit_parent = c->parent;
        for (int32_t i = 0; i < p->ir->n; i++) {
            struct wn__ir_node *q = &p->copy.node[i];
            q->unit = c->unit[i];
            if (q->is_residual && q->decision == WN_DECISION_NONE) q->decision = c->decision[i];
        }
        WN_TRY(offer(p, c->name));
    }
    return WN_OK;
}

int32_t wn__candidate_put(struct wn__ir *ir, const char *name, const int32_t *unit, const int32_t *parent,
                          const int32_t *decision)
{
    struct wn__candidate *c = wn__pool_get(&ir->pool, sizeof *c), **end = &ir->candidate;
    if (c != NULL) {
        c->unit = wn__pool_get(&ir->pool, (ir->n + 1) * (int64_t)sizeof *c->unit);
        c->parent = wn__pool_get(&ir->pool, (ir->n + 1) * (int64_t)sizeof *c->parent);
        c->decision = wn__pool_get(&ir->pool, ir->n + 1);
    }
    if (c == NULL || c->unit == NULL || c->parent == NULL || c->decision == NULL) {
        ir->candidate = NULL; /* all or none, so that a list does not depend on which proposal failed */
        ir->n_candidates = 0;
        return WN_OOM;
    }
    for (int32_t i = 0; i < ir->n; i++) {
        c->unit[i] = unit[i];
        c->parent[i] = parent != NULL ? parent[i] : 0;
        c->decision[i] = (int8_t)(decision != NULL ? decision[i] : WN_DECISION_NONE);
    }
    snprintf(c->name, sizeof c->name, "%s", name);
    while (*end != NULL) end = &(*end)->next;
    *end = c;
    ir->n_candidates++;
    return WN_OK;
}

int32_t wn__portfolio(const struct wn__ir *ir, const struct wn__recipe *base, const int64_t *ns, wn__recipe_sink put,
                      void *ctx)
{
    struct wn__pool scratch = {0};
    struct portfolio p = {.ir = ir, .base = base, .copy = *ir, .put = put, .ctx = ctx};
    char name[32];
    p.copy.node = wn__pool_get(&scratch, (ir->n + 1) * (int64_t)sizeof *p.copy.node);
    int32_t code = p.copy.node == NULL ? WN_OOM : WN_OK, blocks = base->n_blocks;
    if (code == WN_OK) code = offer_kept(&p);
    if (code == WN_OK) code = offer_candidates(&p);
    for (int32_t a = WN_DECISION_RECOMPUTE + 1; a < WN_DECISION_COUNT && code == WN_OK; a++)
        if (wn__action_name(a) != NULL) code = offer_packed(&p, a);
    for (int32_t k = 1; k <= blocks && code == WN_OK; k += k < 4 ? 1 : k / 2) {
        snprintf(name, sizeof name, "every(%d)", k);
        code = offer_regions(&p, 0, k, 0, name);
    }
    for (int32_t n = 2; n <= blocks && code == WN_OK; n += n < 8 ? 1 : n / 4) {
        snprintf(name, sizeof name, "segments(%d)", n);
        code = offer_regions(&p, n, 0, 0, name);
    }
    for (int32_t n = 1; n < blocks && code == WN_OK; n += n < 4 ? 1 : n / 2) {
        snprintf(name, sizeof name, "keep_last(%d)", n);
        code = offer_regions(&p, 0, 1, n, name);
    }
    for (int64_t cost = 100; cost <= 1600 && code == WN_OK; cost *= 2) {
        snprintf(name, sizeof name, "cheap(%d)", (int)cost);
        code = offer_cheap(&p, ns, cost, name);
    }
    wn__pool_release(&scratch);
    return code;
}
