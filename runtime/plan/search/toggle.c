/* Edits flat recipes (flat.c) of the list: one value more is kept, or one fewer, or one instead of another, or two
 * fewer (local search). An edit that no plan beats joins the list, and is edited in the next round. The edits of a plan
 * are tried in an order of promise; their number follows from the size of the graph, and all edits of a small graph are
 * tried. The plan of least bytes is edited like any other: so plans get below those of the chain solver and of policies
 * by hand, above all for graphs without cuts.
 *
 * Only edits that change the schedule are tried: a value that nothing recomputes need not be kept, and a kept value
 * that the backward does not read matters only where another value is recomputed from it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../recipe/action.h"
#include "frontier.h"

#define ROUNDS 4
#define WORK 200000   /* edits * nodes of a graph of up to SMALL nodes */
#define SMALL 500     /* nodes; above, edits * nodes is WORK * SMALL / nodes */
#define MAX_EDITS 600 /* of a graph */
#define PLANS 24      /* most plans of the list that are edited in a round */
#define MIN_EDITS 6   /* of a plan by forecasts; where there are too many plans for that, some are not edited */
#define SLACK 0.002   /* edits whose forecasts are slower than the list by more than this part are not tried */
#define PAIRED 24     /* the most promising values of each kind that are edited in pairs */
#define ROOM 4096     /* entries of the table of sets: a power of two above 2 * MAX_EDITS */

/* An edit of one value: it is dropped if it is kept, and kept if it is not. */
struct toggle {
    int32_t node;
    double worth; /* the edits with most are tried first */
};
/* An edit of one value (a == b) or two, with its forecast. */
struct forecast_edit {
    int32_t a, b; /* nodes */
    double gain;  /* wn__frontier_gain of the forecast: above 0 if the list is slower within the same bytes */
};
/* A search under way. Invariant: left >= 0 edits may still be tried. */
struct toggling {
    struct wn__building *b;
    const int64_t *ns; /* (ir->n) nanoseconds of a node */
    struct wn__pool pool;
    int8_t *kept;              /* (ir->n) the set of the plan that is being edited, as wn__flat_recipe reads it */
    uint8_t *use;              /* (ir->n) as wn__flat_again fills it */
    int32_t *stack;            /* (ir->n) scratch */
    uint64_t *met;             /* (ROOM) open addressing: hashes of sets that were tried or edited; 0: free */
    struct toggle *drop, *add; /* (n_drop), (n_add) toggles of kept values, of others; by worth, descending */
    int32_t n_drop, n_add;
    struct forecast_edit *edit; /* (n_edits) room for 2 ir->n + 2 PAIRED^2 */
    int64_t n_edits;
    int64_t left;  /* edits that may still be tried */
    char name[32]; /* of the plans that the edits propose */
};
/* The set of a plan of the list. */
struct flat_plan {
    int8_t *kept; /* (ir->n) */
    char name[32];
};

/* ---- sets ------------------------------------------------------------------------------------------------------ */

/* Returns a hash of x: the output function of splitmix64 (Steele, Lea, Flood, OOPSLA 2014). */
static uint64_t mix(uint64_t x)
{
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

/* Returns whether a set of kept values is met for the first time, and notes it. `salt` separates the sets that were
 * tried from those that were edited in each phase. */
static int32_t is_new(struct toggling *t, const int8_t *kept, uint64_t salt)
{
    uint64_t h = salt;
    for (int32_t v = 0; v < t->b->ir->n; v++)
        if (kept[v] != WN__GONE) h += mix((uint64_t)v * 16 + (uint64_t)kept[v]);
    h += h == 0;
    int64_t i = (int64_t)(h & (ROOM - 1)), looked = 0;
    while (t->met[i] != 0 && t->met[i] != h && looked++ < ROOM) i = (i + 1) & (ROOM - 1);
    if (t->met[i] == h) return 0;
    t->met[i] = h;
    return 1;
}

/* ---- the edits of one plan ------------------------------------------------------------------------------------- */

int32_t wn__frontier_may_change(const struct wn__building *b, int32_t v)
{
    const struct wn__ir_node *p = &b->ir->node[v];
    return wn__ir_node_is_forward(p) && !wn__ir_is_alias(b->ir, v) && !p->is_reissued && p->bytes > 0 &&
           b->marks->decision[v] == WN_DECISION_NONE && !wn__recipe_always_keeps(b->ir, b->marks, v);
}

/* Inserts a toggle into a list sorted by worth. */
static void put_toggle(struct toggle *list, int32_t *n, int32_t node, double worth)
{
    int32_t k = (*n)++;
    for (; k > 0 && list[k - 1].worth < worth; k--) list[k] = list[k - 1];
    list[k] = (struct toggle){node, worth};
}

/* Lists the toggles that change the schedule. Worth of dropping: bytes / (nanoseconds + 1); worth of adding: its
 * inverse. */
static void find_toggles(struct toggling *t)
{
    const struct wn__ir *ir = t->b->ir;
    t->n_drop = t->n_add = 0;
    wn__flat_again(ir, t->kept, t->use, t->stack);
    for (int32_t v = 0; v < ir->n; v++) {
        if (!wn__frontier_may_change(t->b, v)) continue;
        double bytes = (double)ir->node[v].bytes, ns = (double)t->ns[v] + 1;
        if (t->kept[v] == WN__GONE && t->use[v] == WN__RECOMPUTED) put_toggle(t->add, &t->n_add, v, ns / bytes);
        if (t->kept[v] != WN__GONE && (ir->node[v].is_residual || t->use[v] == WN__READ_FOR_IT))
            put_toggle(t->drop, &t->n_drop, v, bytes / ns);
    }
}

/* Offers the recipe of `kept` unless the set was tried before. */
static int32_t try_set(struct toggling *t)
{
    struct wn__recipe r;
    if (!is_new(t, t->kept, 1)) return WN_OK;
    t->left--;
    WN_TRY(wn__flat_recipe(t->b->ir, &t->b->base, t->kept, &r));
    return wn__frontier_offer(t->b, &r, t->name);
}

/* Offers the set with values a and b toggled; a == b: one value. */
static int32_t try_edit(struct toggling *t, int32_t a, int32_t b)
{
    int8_t before_a = t->kept[a], before_b = t->kept[b];
    t->kept[a] = before_a == WN__GONE ? 0 : WN__GONE;
    if (b != a) t->kept[b] = before_b == WN__GONE ? 0 : WN__GONE;
    int32_t code = try_set(t);
    t->kept[a] = before_a;
    t->kept[b] = before_b;
    return code;
}

/* Tries pairs of toggles x[i] and y[k] in the order of i + k, until `stop` edits are left. x == y: each pair of the one
 * list once. */
static int32_t try_pairs(struct toggling *t, const struct toggle *x, int32_t n_x, const struct toggle *y, int32_t n_y,
                         int64_t stop)
{
    if (n_x > PAIRED) n_x = PAIRED;
    if (n_y > PAIRED) n_y = PAIRED;
    for (int32_t sum = 0; sum < n_x + n_y; sum++)
        for (int32_t i = sum < n_y ? 0 : sum - n_y + 1; i < n_x && i <= sum; i++) {
            if (t->left <= stop) return WN_OK;
            if (x == y && i >= sum - i) break;
            WN_TRY(try_edit(t, x[i].node, y[sum - i].node));
        }
    return WN_OK;
}

/* Tries up to `most` edits of three values: two dropped and one added. Single edits and pairs do not reach these where
 * the peak is at two instants of a step. */
static int32_t edit_triples(struct toggling *t, const struct flat_plan *p, int64_t most)
{
    int64_t stop = t->left > most ? t->left - most : 0;
    memcpy(t->kept, p->kept, (size_t)t->b->ir->n);
    find_toggles(t);
    for (int32_t k = 0; k < t->n_add && k < PAIRED && t->left > stop; k++) {
        t->kept[t->add[k].node] = 0;
        WN_TRY(try_pairs(t, t->drop, t->n_drop, t->drop, t->n_drop, stop));
        t->kept[t->add[k].node] = WN__GONE;
    }
    return WN_OK;
}

/* ---- edits by their forecasts ---------------------------------------------------------------------------------- */

/* Lists the edit of values x and y (x == y: of one) with its forecast, unless that is worse than SLACK. */
static void put_edit(struct toggling *t, const struct wn__forecast *c, int32_t x, int32_t y)
{
    const struct wn__ir *ir = t->b->ir;
    int32_t node[2] = {x, y};
    int64_t bytes[2] = {0, 0};
    double seconds = c->seconds;
    for (int32_t k = 0; k < (x == y ? 1 : 2); k++) {
        int32_t gone = t->kept[node[k]] == WN__GONE;
        bytes[k] = gone ? ir->node[node[k]].bytes : -ir->node[node[k]].bytes;
        seconds += (gone ? -1e-9 : 1e-9) * (double)t->ns[node[k]];
    }
    double gain = wn__frontier_gain(t->b, wn__forecast_reserved(c, x, bytes[0], y, bytes[1]), seconds);
    if (gain > -SLACK) t->edit[t->n_edits++] = (struct forecast_edit){x, y, gain};
}

/* Lists all single edits, and the pairs of the first min(most, PAIRED) values of each kind. */
static void put_edits(struct toggling *t, const struct wn__forecast *c, int64_t most)
{
    int32_t n = most < PAIRED ? (int32_t)most : PAIRED, drops = t->n_drop < n ? t->n_drop : n;
    int32_t adds = t->n_add < n ? t->n_add : n;
    t->n_edits = 0;
    for (int32_t i = 0; i < t->n_drop; i++) put_edit(t, c, t->drop[i].node, t->drop[i].node);
    for (int32_t i = 0; i < t->n_add; i++) put_edit(t, c, t->add[i].node, t->add[i].node);
    for (int32_t i = 0; i < drops; i++) {
        for (int32_t k = 0; k < adds; k++) put_edit(t, c, t->drop[i].node, t->add[k].node);
        for (int32_t k = 0; k < i; k++) put_edit(t, c, t->drop[i].node, t->drop[k].node);
    }
}

static int compare_gain(const void *x, const void *y)
{
    const struct forecast_edit *a = x, *b = y;
    if (a->gain != b->gain) return a->gain > b->gain ? -1 : 1;
    return a->a != b->a ? (a->a < b->a ? -1 : 1) : (a->b > b->b) - (a->b < b->b);
}

/* Tries up to `most` edits of a plan, those with the best forecasts first. */
static int32_t edit_best(struct toggling *t, const struct flat_plan *p, int64_t most)
{
    struct wn__forecast c = {0};
    struct wn__recipe r;
    int64_t stop = t->left > most ? t->left - most : 0;
    memcpy(t->kept, p->kept, (size_t)t->b->ir->n);
    snprintf(t->name, sizeof t->name, "%.30s%s", p->name, strchr(p->name, '+') == NULL ? "+" : "");
    WN_TRY(try_set(t));
    WN_TRY(wn__flat_recipe(t->b->ir, &t->b->base, t->kept, &r));
    int32_t code = wn__forecast_make(t->b->ir, &r, &c);
    wn__recipe_release(&r);
    if (code == WN_OK) {
        find_toggles(t);
        put_edits(t, &c, most);
        qsort(t->edit, (size_t)t->n_edits, sizeof *t->edit, compare_gain);
    }
    for (int64_t i = 0; i < t->n_edits && t->left > stop && code == WN_OK; i++)
        code = try_edit(t, t->edit[i].a, t->edit[i].b);
    wn__forecast_release(&c);
    return code;
}

/* Tries up to `most` edits of a plan by worth: single ones, drops and adds in turn, then pairs of a drop and an add for
 * half of what is left, then pairs of drops. */
static int32_t edit_plan(struct toggling *t, const struct flat_plan *p, int64_t most)
{
    int64_t stop = t->left - most;
    memcpy(t->kept, p->kept, (size_t)t->b->ir->n);
    snprintf(t->name, sizeof t->name, "%.30s%s", p->name, strchr(p->name, '+') == NULL ? "+" : "");
    WN_TRY(try_set(t));
    find_toggles(t);
    for (int32_t i = 0; i < t->n_drop || i < t->n_add; i++) {
        if (t->left <= stop) return WN_OK;
        if (i < t->n_drop) WN_TRY(try_edit(t, t->drop[i].node, t->drop[i].node));
        if (i < t->n_add) WN_TRY(try_edit(t, t->add[i].node, t->add[i].node));
    }
    WN_TRY(try_pairs(t, t->drop, t->n_drop, t->add, t->n_add, stop + (t->left - stop) / 2));
    return try_pairs(t, t->drop, t->n_drop, t->drop, t->n_drop, stop);
}

/* ---- rounds ---------------------------------------------------------------------------------------------------- */

/* Fills the sets of up to `most` plans, spread over the list, the fewest bytes first, without sets that were edited
 * with this salt before. Returns how many. */
static int32_t find_plans(struct toggling *t, struct flat_plan *plan, uint64_t salt, int64_t most)
{
    struct wn__building *b = t->b;
    int32_t n = 0;
    if (most > PLANS) most = PLANS;
    if (most < 1) most = 1;
    int64_t every = (b->n + most - 1) / most;
    for (int64_t k = b->n - 1; k >= 0 && n < most; k--) {
        if ((b->n - 1 - k) % every != 0) continue;
        wn__flat_kept(b->ir, &b->point[k].recipe, plan[n].kept);
        if (!is_new(t, plan[n].kept, salt)) continue;
        memcpy(plan[n].name, b->point[k].name, sizeof plan[n].name);
        n++;
    }
    return n;
}

/* Spends the edits: ROUNDS rounds by forecasts, ROUNDS rounds by worth, then edits of three values. */
static int32_t run_rounds(struct toggling *t, struct flat_plan *plan)
{
    for (int32_t round = 0; round < ROUNDS && t->left > 0; round++) {
        int64_t per = t->left / (ROUNDS - round);
        int32_t n = find_plans(t, plan, 2, per / MIN_EDITS);
        if (n == 0) break;
        for (int32_t k = 0; k < n && t->left > 0; k++) WN_TRY(edit_best(t, &plan[k], per / n > 0 ? per / n : 1));
    }
    for (int32_t round = 0; round < ROUNDS && t->left > 0; round++) {
        int32_t n = find_plans(t, plan, 3, PLANS);
        if (n == 0) break;
        int64_t each = t->left / (ROUNDS - round) / n;
        for (int32_t k = 0; k < n && t->left > 0; k++) WN_TRY(edit_plan(t, &plan[k], each > 0 ? each : 1));
    }
    int32_t n = t->left > 0 ? find_plans(t, plan, 4, PLANS) : 0;
    for (int32_t k = 0; k < n && t->left > 0; k++) WN_TRY(edit_triples(t, &plan[k], t->left / (n - k) + 1));
    return WN_OK;
}

/* Returns the edits that a graph of n nodes is worth: WORK / n, above SMALL nodes WORK * SMALL / n^2, at most
 * MAX_EDITS. */
static int64_t edits_of(int64_t n)
{
    int64_t edits = n > SMALL ? WORK * SMALL / n / n : WORK / n;
    return edits > MAX_EDITS ? MAX_EDITS : edits;
}

int32_t wn__frontier_toggle(struct wn__building *b, const int64_t *ns)
{
    struct toggling t = {.b = b, .ns = ns, .left = edits_of(b->ir->n + 1)};
    struct flat_plan plan[PLANS];
    int64_t n = b->ir->n;
    int32_t is_there = WN_ARRAY(&t.pool, t.kept, n) && WN_ARRAY(&t.pool, t.use, n) && WN_ARRAY(&t.pool, t.stack, n) &&
                       WN_ARRAY(&t.pool, t.met, ROOM) && WN_ARRAY(&t.pool, t.drop, n) && WN_ARRAY(&t.pool, t.add, n) &&
                       WN_ARRAY(&t.pool, t.edit, 2 * n + 2 * PAIRED * PAIRED + 2);
    for (int32_t k = 0; k < PLANS && is_there; k++) is_there = WN_ARRAY(&t.pool, plan[k].kept, n);
    int32_t code = is_there ? run_rounds(&t, plan) : WN_OOM;
    wn__pool_release(&t.pool);
    return code;
}
