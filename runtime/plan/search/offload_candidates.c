/* Proposes plans that offload: takes BASES plans of the list, spread evenly, and offloads part of what each of them
 * keeps, where a budget may choose that action. The values of the first blocks go first, as they wait longest. `parts`
 * says which parts of the bytes are tried, `prefetches` with which prefetch budgets. Each proposal is judged like any
 * other, so offloading that does not pay is dropped: recomputing may be faster, or keeping may fit. */
#include <stdio.h>
#include <string.h>
#include "../recipe/action.h"
#include "frontier.h"

#define BASES 8   /* plans of the list whose values are offloaded */
#define PARTS 8   /* the unit of `parts`: 1/PARTS of the bytes that may be offloaded */
#define WORTH 256 /* values below 1/WORTH of the largest are not offloaded */

static const int32_t parts[] = {1, 2, 3, 4, 6, 8};
static const int32_t prefetches[] = {1, 4}; /* prefetch budgets: transfers may hold up to this / 8 of the bytes saved */

/* Marks the values that a recipe keeps as they are and that an action may be applied to; is_kept: (ir->n). Returns how
 * many they are, and their bytes in *bytes. */
static int32_t find_kept(const struct wn__building *b, const struct wn__recipe *r, int32_t action, uint8_t *is_kept,
                         int64_t *bytes)
{
    const struct wn__ir *ir = b->ir;
    int64_t most = 0;
    int32_t n = 0;
    *bytes = 0;
    memset(is_kept, 0, (size_t)ir->n);
    for (int32_t i = 0; i < r->n; i++) {
        const struct wn__recipe_step *s = &r->step[i];
        for (int32_t k = s->keep_at; s->kind != WN_RECIPE_B && k < s->keep_at + s->n_keep; k++) {
            int32_t v = r->keep[k];
            if (wn__ir_is_alias(ir, v) || ir->node[v].is_reissued || b->marks->decision[v] != WN_DECISION_NONE)
                continue;
            if (r->action[k] == 0 && wn__action_refusal(ir, v, action) == NULL) is_kept[v] = 1;
        }
    }
    for (int32_t v = 0; v < ir->n; v++)
        if (is_kept[v] && ir->node[v].bytes > most) most = ir->node[v].bytes;
    for (int32_t v = 0; v < ir->n; v++) {
        if (is_kept[v] && ir->node[v].bytes < most / WORTH) is_kept[v] = 0;
        *bytes += is_kept[v] ? ir->node[v].bytes : 0;
        n += is_kept[v];
    }
    return n;
}

/* An action for the first kept values of a recipe, in the order of the forward. */
struct edit {
    const uint8_t *is_kept; /* (n of the IR) 1: the recipe keeps the value as it is, and may apply the action to it */
    int64_t bytes;          /* the first values that make at least so many bytes get the action */
    int32_t action;
    int32_t prefetch; /* the prefetch budget of the edited recipe, in eighths */
};

/* Copies a recipe with an edit. */
static int32_t copy_with(const struct wn__building *b, const struct wn__recipe *r, const struct edit *e,
                         struct wn__recipe *out)
{
    const struct wn__ir *ir = b->ir;
    int32_t end = 0;
    for (int64_t sum = 0; end < ir->n && sum < e->bytes; end++) sum += e->is_kept[end] ? ir->node[end].bytes : 0;
    WN_TRY(wn__frontier_copy(b, r, out));
    out->prefetch = e->prefetch;
    for (int32_t k = 0; k < r->n_keep; k++)
        if (r->action[k] == 0 && r->keep[k] < end && e->is_kept[r->keep[k]]) out->action[k] = e->action;
    return WN_OK;
}

/* Offers a plan of the list with one action for each part of its kept values and each prefetch budget. is_kept: (ir->n)
 * scratch. */
static int32_t offer_base(struct wn__building *b, const struct wn__recipe *r, int32_t action, uint8_t *is_kept)
{
    int64_t bytes;
    if (r->n_keep == 0 || find_kept(b, r, action, is_kept, &bytes) == 0) return WN_OK;
    for (size_t p = 0; p < sizeof parts / sizeof parts[0]; p++)
        for (int32_t a = 0; a < (int32_t)(sizeof prefetches / sizeof prefetches[0]); a++) {
            struct wn__recipe to;
            char name[32];
            snprintf(name, sizeof name, "%s %d/%d", wn__action_name(action), parts[p], PARTS);
            const struct edit e = {is_kept, bytes / PARTS * parts[p], action, prefetches[a]};
            WN_TRY(copy_with(b, r, &e, &to));
            WN_TRY(wn__frontier_offer(b, &to, name));
        }
    return WN_OK;
}

int32_t wn__frontier_actions(struct wn__building *b)
{
    struct wn__recipe base[BASES];
    uint8_t *is_kept;
    int32_t n = 0, most = b->n < BASES ? (int32_t)b->n : BASES;
    if (b->marks->allowed == 0) return WN_OK;
    int32_t code = WN_ARRAY(&b->pool, is_kept, b->ir->n) ? WN_OK : WN_OOM;
    for (int32_t i = 0; i < most && code == WN_OK; i++) {
        int64_t k = most > 1 ? i * (b->n - 1) / (most - 1) : 0;
        code = wn__frontier_copy(b, &b->point[k].recipe, &base[n]);
        n += code == WN_OK;
    }
    for (int32_t action = WN_DECISION_RECOMPUTE + 1; action < WN_DECISION_COUNT && code == WN_OK; action++)
        for (int32_t i = 0; i < n && code == WN_OK && wn__action_medium(action) >= 0; i++)
            if (b->marks->allowed >> action & 1) code = offer_base(b, &base[i], action, is_kept);
    for (int32_t i = 0; i < n; i++) wn__recipe_release(&base[i]);
    return code;
}
