/* Proposes what people write by hand, over the planner's blocks:
 *
 *   as marked        the regions and decisions of the script, residuals without a decision kept
 *   save_all         everything kept; "save_all, bits" and the like: in a packed form, where a budget may choose that
 *   every(k)         regions of k blocks
 *   segments(n)      n segments of equal length, the last one kept
 *   proposals of the script (wn__marks_propose), under their own names; the late ones when the search is over
 *
 * Each is compiled as every policy is, so a budget that picks among these and the solver's plans is never worse than
 * they are. Decisions and results of the script stay as they are. */
#include <stdio.h>
#include <string.h>
#include "../recipe/action.h"
#include "frontier.h"

struct portfolio {
    struct wn__building *b;
    struct wn__marks *marks; /* of the proposal that is being made */
};

/* Makes the proposal's marks those of the script, without units around units. */
static void start_over(const struct portfolio *p)
{
    wn__marks_set(p->marks, p->b->marks, p->b->ir->n);
    memset(p->marks->unit_parent, 0, (size_t)p->b->ir->n * sizeof *p->marks->unit_parent);
}

/* Starts over, and takes every node out of all regions. */
static void open_all(const struct portfolio *p)
{
    start_over(p);
    for (int32_t i = 0; i < p->b->ir->n; i++) p->marks->unit[i] = -1;
}

/* Compiles marks, and proposes the recipe. */
static int32_t offer(const struct portfolio *p, const struct wn__marks *marks, const char *name)
{
    struct wn__recipe r;
    int32_t code = wn__recipe_compile(p->b->ir, marks, &r);
    if (code == WN_OK) return wn__frontier_offer(p->b, &r, name);
    wn__recipe_release(&r);
    return code;
}

/* Proposes regions of `size` blocks from the start of each root's n blocks; or, with segments > 0, segments - 1 regions
 * of n / segments blocks. Proposes nothing if a root has too few blocks. */
static int32_t offer_regions(const struct portfolio *p, int32_t segments, int32_t size, const char *name)
{
    const struct wn__recipe *r = &p->b->base;
    int32_t unit = 0;
    start_over(p);
    for (int32_t lo = 0, hi; lo < r->n_blocks; lo = hi) {
        hi = wn__recipe_root_end(p->b->ir, r, lo);
        int32_t n = hi - lo, s = segments > 0 ? n / segments : size, closed = segments > 0 ? s * (segments - 1) : n;
        if (s < 1 || closed < 1) return WN_OK;
        for (int32_t i = 0; i < p->b->ir->n; i++) {
            int32_t b = wn__ir_is_forward(p->b->ir, i) ? r->block_of[i] : -1;
            if (b >= lo && b < hi) p->marks->unit[i] = b - lo < closed ? unit + 1 + (b - lo) / s : -1;
        }
        unit += n / s + 2;
    }
    return offer(p, p->marks, name);
}

/* Proposes the regions of the script, and no region at all. */
static int32_t offer_kept(const struct portfolio *p)
{
    WN_TRY(offer(p, p->b->marks, "as marked"));
    open_all(p);
    return offer(p, p->marks, "save_all");
}

/* Proposes everything kept, in the form of one action wherever a budget may choose it and it is possible. */
static int32_t offer_packed(const struct portfolio *p, int32_t action)
{
    char name[32];
    int32_t n = 0;
    open_all(p);
    for (int32_t i = 0; i < p->b->ir->n; i++) {
        if (!wn__action_may_choose(p->b->ir, p->b->marks, i, action)) continue;
        p->marks->decision[i] = (int8_t)action;
        n++;
    }
    snprintf(name, sizeof name, "save_all, %s", wn__action_name(action));
    return n > 0 ? offer(p, p->marks, name) : WN_OK;
}

/* Proposes those of the script that are late, or the others: with their units and decisions, the plans are those of
 * the same policies. They decide about residuals that the script does not. */
static int32_t offer_proposals(const struct portfolio *p, int32_t is_late)
{
    const int8_t *said = p->b->marks->decision;
    for (const struct wn__marks *c = p->b->marks->proposal; c != NULL; c = c->next) {
        if (c->is_late != is_late) continue;
        wn__marks_set(p->marks, c, p->b->ir->n);
        for (int32_t i = 0; i < p->b->ir->n; i++)
            if (!p->b->ir->node[i].is_residual || said[i] != WN_DECISION_NONE) p->marks->decision[i] = said[i];
        WN_TRY(offer(p, p->marks, c->name));
    }
    return WN_OK;
}

int32_t wn__frontier_portfolio(struct wn__building *b)
{
    struct portfolio p = {.b = b, .marks = wn__marks_new(b->ir->n)};
    char name[32];
    int32_t code = p.marks == NULL ? WN_OOM : WN_OK, blocks = b->base.n_blocks;
    if (code == WN_OK) code = offer_kept(&p);
    if (code == WN_OK && (wn__left_out & WN__PROPOSE_SCRIPT) == 0) code = offer_proposals(&p, 0);
    if (wn__left_out & WN__PROPOSE_BY_HAND) blocks = 0;
    for (int32_t a = WN_DECISION_RECOMPUTE + 1; a < WN_DECISION_COUNT && code == WN_OK; a++)
        if (wn__action_name(a) != NULL) code = offer_packed(&p, a);
    for (int32_t k = 1; k <= blocks && code == WN_OK; k += k < 4 ? 1 : k / 2) {
        snprintf(name, sizeof name, "every(%d)", k);
        code = offer_regions(&p, 0, k, name);
    }
    for (int32_t n = 2; n <= blocks && code == WN_OK; n += n < 8 ? 1 : n / 4) {
        snprintf(name, sizeof name, "segments(%d)", n);
        code = offer_regions(&p, n, 0, name);
    }
    wn__marks_unref(p.marks);
    return code;
}

int32_t wn__frontier_late(struct wn__building *b)
{
    struct portfolio p = {.b = b, .marks = wn__marks_new(b->ir->n)};
    b->is_by_hand = 1;
    b->n_met = 0; /* a plan that an edit found is placed fully now */
    int32_t code = p.marks == NULL ? WN_OOM : offer_proposals(&p, 1);
    wn__marks_unref(p.marks);
    return code;
}
