/* Edits recipes of the list: one value more is kept at an Fe step, or one fewer, or one in another form (local search).
 * An edit that no plan beats joins the list, and is edited in turn in the next round. Before that, every plan of the
 * list is offered with everything it keeps packed, by each action that a budget may choose (recipe/action.h). The
 * number of edits follows from the size of the graph, never from a time: the same graph always gives the same list. */
#include <stdio.h>
#include <string.h>
#include "../recipe/action.h"
#include "frontier.h"

#define ROUNDS 3
#define PART 500      /* values below 1/PARTth of the list's span of bytes are not edited */
#define WORK 400000   /* edits * nodes: a fifth of a second at half a microsecond a node */
#define MAX_EDITS 400 /* of a graph */
#define MIN_EDITS 4   /* of a plan; where there are too many plans for that, some are not edited */
#define PACKED_NS 0.1 /* nanoseconds to pack and unpack a byte: a guess, which only orders edits */

enum { GONE = -1 }; /* the value is not kept */

/* A change of how one Fe step keeps one value. */
struct edit {
    int32_t step, node; /* the Fe step that keeps it or not */
    int32_t to;         /* GONE, or the action that it is kept with, 0: as it is */
    double worth;       /* the edits with most are tried */
};

/* The edits of one recipe after the other. */
struct search {
    struct wn__building *b;
    const int64_t *ns; /* (ir->n) nanoseconds of a node */
    struct edit *edit; /* (n) of the recipe that is being edited */
    int64_t n, capacity;
    int32_t code; /* WN_OK, or the first failure */
};

/* Returns the action that a step keeps a value with, 0: as it is; or GONE. */
static int32_t kept_as(const struct wn__recipe *r, const struct wn__recipe_step *s, int32_t node)
{
    for (int32_t k = 0; k < s->n_keep; k++)
        if (r->keep[s->keep_at + k] == node) return r->action[s->keep_at + k];
    return GONE;
}

static void put_edit(struct search *s, int32_t step, int32_t node, int32_t to, double worth)
{
    WN_KEEP(s->code, wn__grow(&s->edit, &s->capacity, s->n + 1, sizeof *s->edit));
    if (s->code == WN_OK) s->edit[s->n++] = (struct edit){step, node, to, worth};
}

/* Lists the edits of a value that the step keeps as `now`. Worth of keeping it: nanoseconds saved a byte, times 1000;
 * worth of dropping or packing it: bytes freed a nanosecond. */
static void find_edits_of(struct search *s, int32_t step, int32_t node, int32_t now)
{
    const struct wn__ir *ir = s->b->ir;
    double bytes = (double)ir->node[node].bytes, ns = (double)s->ns[node];
    if (now != GONE) put_edit(s, step, node, GONE, bytes / (ns + 1));
    if (now != 0) put_edit(s, step, node, 0, (now == GONE ? ns : PACKED_NS * bytes) / bytes * 1e3);
    for (int32_t a = WN_DECISION_RECOMPUTE + 1; a < WN_DECISION_COUNT; a++) {
        if (a == now || !wn__action_may_choose(ir, s->b->marks, node, a)) continue;
        double packed = (double)wn__action_bytes(ir, node, a);
        put_edit(s, step, node, a, now == GONE ? ns / (packed + 1) * 1e3 : (bytes - packed) / (PACKED_NS * bytes + 1));
    }
}

/* Lists the edits of a recipe. */
static void find_edits(struct search *s, const struct wn__recipe *r)
{
    const struct wn__ir *ir = s->b->ir;
    int64_t span = s->b->point[0].reserved - s->b->point[s->b->n - 1].reserved;
    s->n = 0;
    for (int32_t i = 0; i < r->n && s->code == WN_OK; i++) {
        const struct wn__recipe_step *t = &r->step[i];
        if (t->kind != WN_RECIPE_FE) continue;
        for (int32_t v = r->first[t->block]; v < r->limit[t->block] && s->code == WN_OK; v++) {
            if (r->block_of[v] != t->block || r->last[v] >= r->limit[t->block]) continue;
            if (!ir->node[v].is_residual || !wn__frontier_may_change(s->b, v)) continue;
            if (ir->node[v].bytes < span / PART) continue;
            find_edits_of(s, i, v, kept_as(r, t, v));
        }
    }
}

/* Returns whether step i keeps the edited value as the edit says: the edited Fe step, and the Free steps of its block
 * until the block runs again. */
static int32_t is_edited(const struct wn__recipe *r, const struct edit *e, int32_t i)
{
    int32_t block = r->step[e->step].block;
    if (i == e->step) return 1;
    if (i < e->step || r->step[i].kind != WN_RECIPE_FREE || r->step[i].block != block) return 0;
    for (int32_t k = e->step + 1; k < i; k++)
        if (r->step[k].block == block && r->step[k].kind != WN_RECIPE_FREE) return 0;
    return 1;
}

static void keep(struct wn__recipe *out, int32_t node, int32_t action)
{
    wn__recipe_keep(out, 0, node, action);
    out->n_keep++;
}

/* Copies a recipe with one edit. */
static int32_t copy_edited(const struct wn__building *b, const struct wn__recipe *r, const struct edit *e,
                           struct wn__recipe *out)
{
    WN_TRY(wn__frontier_copy(b, r, out));
    out->n_keep = 0;
    for (int32_t i = 0; i < r->n; i++) {
        struct wn__recipe_step t = r->step[i];
        int32_t from = t.keep_at, edited = is_edited(r, e, i), placed = !edited || e->to == GONE;
        t.keep_at = out->n_keep;
        for (int32_t k = 0; k < r->step[i].n_keep; k++) {
            int32_t v = r->keep[from + k];
            if (!placed && v >= e->node) {
                keep(out, e->node, e->to);
                placed = 1;
            }
            if (!edited || v != e->node) keep(out, v, r->action[from + k]);
        }
        if (!placed) keep(out, e->node, e->to);
        t.n_keep = out->n_keep - t.keep_at;
        out->step[i] = t;
    }
    return WN_OK;
}

/* Copies a recipe with one action for every value that it keeps as it is and that a budget may choose the action for.
 * *n: how many those are. */
static int32_t copy_packed(const struct wn__building *b, const struct wn__recipe *r, int32_t action,
                           struct wn__recipe *out, int32_t *n)
{
    *n = 0;
    WN_TRY(wn__frontier_copy(b, r, out));
    for (int32_t k = 0; k < r->n_keep; k++) {
        if (r->action[k] != 0 || !wn__action_may_choose(b->ir, b->marks, r->keep[k], action)) continue;
        out->action[k] = action;
        ++*n;
    }
    return WN_OK;
}

/* Tries one action on every plan of the list. */
static int32_t pack_points(struct wn__building *b, int32_t action)
{
    for (int64_t k = b->n - 1; k >= 0; k--) {
        struct wn__recipe to;
        int32_t n;
        char name[32];
        if (k >= b->n) continue;
        snprintf(name, sizeof name, "%.16s, %.13s", b->point[k].name, wn__action_name(action));
        WN_TRY(copy_packed(b, &b->point[k].recipe, action, &to, &n));
        if (n > 0) WN_TRY(wn__frontier_offer(b, &to, name));
        else wn__recipe_release(&to);
    }
    return WN_OK;
}

/* Moves the n edits of most worth to the front, in their order (selection sort: n is small). */
static void best_first(struct search *s, int64_t n)
{
    for (int64_t i = 0; i < n && i < s->n; i++) {
        int64_t best = i;
        for (int64_t k = i + 1; k < s->n; k++)
            if (s->edit[k].worth > s->edit[best].worth) best = k;
        struct edit t = s->edit[i];
        s->edit[i] = s->edit[best];
        s->edit[best] = t;
    }
}

/* Offers up to n edits of point k. Offers change the list, so the recipe is copied first. */
static int32_t edit_point(struct search *s, int64_t k, int64_t n)
{
    struct wn__building *b = s->b;
    struct wn__recipe from, to;
    char name[32];
    snprintf(name, sizeof name, "%.30s%s", b->point[k].name, strchr(b->point[k].name, '+') == NULL ? "+" : "");
    WN_TRY(wn__frontier_copy(b, &b->point[k].recipe, &from));
    find_edits(s, &from);
    best_first(s, n);
    for (int64_t i = 0; i < n && i < s->n && s->code == WN_OK; i++) {
        WN_KEEP(s->code, copy_edited(b, &from, &s->edit[i], &to));
        WN_KEEP(s->code, wn__frontier_offer(b, &to, name));
    }
    wn__recipe_release(&from);
    return s->code;
}

int32_t wn__frontier_edits(const struct wn__ir *ir)
{
    int64_t edits = WORK / (ir->n + 1);
    return edits > MAX_EDITS ? MAX_EDITS : (int32_t)edits;
}

int32_t wn__frontier_search(struct wn__building *b, const int64_t *ns)
{
    struct search s = {.b = b, .ns = ns, .code = WN_OK};
    int64_t edits = wn__frontier_edits(b->ir);
    for (int32_t a = WN_DECISION_RECOMPUTE + 1; a < WN_DECISION_COUNT && s.code == WN_OK; a++)
        if (wn__action_name(a) != NULL) WN_KEEP(s.code, pack_points(b, a));
    for (int32_t round = 0; round < ROUNDS && s.code == WN_OK; round++) {
        int64_t points = b->n, per = edits / ROUNDS;
        if (per < 1 || points < 1) break;
        int64_t stride = (points * MIN_EDITS + per - 1) / per, each = per / ((points + stride - 1) / stride);
        /* From the last point on: edits of a point join the list near it, so the points still to come keep their
         * indices. */
        for (int64_t k = points - 1; k >= 0 && s.code == WN_OK; k -= stride)
            if (k < b->n) WN_KEEP(s.code, edit_point(&s, k, each < MIN_EDITS ? MIN_EDITS : each));
    }
    wn__free(s.edit);
    return s.code;
}
