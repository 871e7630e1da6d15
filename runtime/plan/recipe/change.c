/* Changes of recipes. A change says how a block's steps keep one value from one F or Fe step on until the block runs
 * again: as it is, with an action, or not at all. What later blocks still read stays until they have read it, and is
 * let go of right before the next backward step:
 *
 *   recipe                        Fe 1: h1 h2   Fe 2: h4            B 2   B 1
 *   h2 gone from step 1 on        Fe 1: h1      Fe 2: h4            B 2   B 1
 *   h1, which block 2 reads, too  Fe 1: h1      Fe 2: h4   Free 1   B 2   B 1
 *
 * Decisions of 'recompute' are changes, too: proposals of the planner keep what crosses the edges of their blocks until
 * the backward, and such a value must not be there then. Every recipe on its way into the list of plans passes
 * wn__recipe_obey, so no plan of the list breaks a decision: 'save' and the actions are part of every keep set already
 * (wn__recipe_always_keeps). */
#include <string.h>
#include "recipe.h"

enum { AS_BEFORE = -2 }; /* in place of WN__GONE or an action: the value is not changed */

/* A recipe that is being copied with changes. Invariant: to[v] != AS_BEFORE only for values of blocks that ran at a
 * step with a change of v, and did not run since. */
struct changing {
    const struct wn__ir *ir;
    const struct wn__recipe *r;
    const struct wn__change *change;
    int32_t *first, *next; /* (r->n), (n): the changes of each step as a list; -1 ends one */
    int32_t *latest;       /* (n_blocks) the latest step of `out` that ran a block or let go of a part of it; -1 */
    uint8_t *is_changed;   /* (n_blocks) 1: a value of the block is not kept as before */
    int8_t *to;            /* (ir->n) WN__GONE, an action, or AS_BEFORE */
    int32_t front;         /* the block that ran last */
    int32_t is_pending;    /* 1: a change was met since the last backward step */
    struct wn__recipe *out;
};

/* Adds a step of a block that keeps those of n values that the changes keep, and what they add. beyond: values that no
 * forward node from this one on reads may go. A Free that frees nothing is left out. */
static int32_t put_changed(struct changing *x, const struct wn__recipe_step *s, const struct wn__recipe *from,
                           int32_t beyond)
{
    const struct wn__recipe *r = x->r;
    struct wn__recipe *out = x->out;
    int32_t n = 0, k = s->keep_at, end = s->keep_at + s->n_keep;
    WN_TRY(wn__recipe_room(out, r->limit[s->block] - r->first[s->block]));
    for (int32_t v = r->first[s->block]; v < r->limit[s->block]; v++) {
        if (r->block_of[v] != s->block) continue;
        while (k < end && from->keep[k] < v) k++;
        int32_t is_kept = k < end && from->keep[k] == v, action = is_kept ? from->action[k] : 0;
        if (x->to[v] == WN__GONE) is_kept = is_kept && r->last[v] >= beyond;
        if (x->to[v] >= 0) {
            is_kept = 1;
            action = x->to[v];
        }
        if (is_kept) wn__recipe_keep(out, n++, v, action);
    }
    const struct wn__recipe_step *t = x->latest[s->block] >= 0 ? &out->step[x->latest[s->block]] : NULL;
    if (s->kind == WN_STEP_FREE && t != NULL && t->n_keep == n) return WN_OK;
    int32_t kind = s->kind == WN_STEP_F && x->is_changed[s->block] ? WN_STEP_FE : s->kind;
    WN_TRY(wn__recipe_put(out, kind, s->block, s->root, n));
    x->latest[s->block] = out->n - 1;
    return WN_OK;
}

/* Lets every block go of what changes let go of, before the backward. */
static int32_t let_go(struct changing *x)
{
    for (int32_t b = 0; b < x->r->n_blocks; b++) {
        if (!x->is_changed[b] || x->latest[b] < 0) continue;
        struct wn__recipe_step s = x->out->step[x->latest[b]];
        s.kind = WN_STEP_FREE;
        WN_TRY(put_changed(x, &s, x->out, x->ir->n));
    }
    x->is_pending = 0;
    return WN_OK;
}

/* Begins a run of a block: its former changes end, and those of step i begin. */
static void begin_run(struct changing *x, int32_t i)
{
    int32_t block = x->r->step[i].block;
    if (x->is_changed[block])
        for (int32_t v = x->r->first[block]; v < x->r->limit[block]; v++)
            if (x->r->block_of[v] == block) x->to[v] = AS_BEFORE;
    x->front = block;
    x->is_changed[block] = x->first[i] >= 0;
    x->is_pending |= x->first[i] >= 0;
    for (int32_t k = x->first[i]; k >= 0; k = x->next[k]) x->to[x->change[k].node] = (int8_t)x->change[k].to;
}

static int32_t copy_changed(struct changing *x)
{
    const struct wn__recipe *r = x->r;
    for (int32_t i = 0; i < r->n; i++) {
        const struct wn__recipe_step *s = &r->step[i];
        if (s->kind == WN_STEP_B) {
            if (x->is_pending) WN_TRY(let_go(x));
            WN_TRY(wn__recipe_put(x->out, s->kind, s->block, s->root, 0));
            continue;
        }
        if (s->kind != WN_STEP_FREE) begin_run(x, i);
        int32_t before = s->kind == WN_STEP_FREE ? x->front : s->block;
        WN_TRY(put_changed(x, s, r, r->limit[before]));
    }
    return WN_OK;
}

int32_t wn__recipe_change(const struct wn__ir *ir, const struct wn__recipe *r, const struct wn__change *change,
                          int32_t n, struct wn__recipe *out)
{
    struct changing x = {.ir = ir, .r = r, .change = change, .out = out};
    struct wn__pool scratch = {0};
    int32_t code = WN_OOM;
    if (WN_ARRAY(&scratch, x.first, r->n) && WN_ARRAY(&scratch, x.next, n) &&
        WN_ARRAY(&scratch, x.latest, r->n_blocks) && WN_ARRAY(&scratch, x.is_changed, r->n_blocks) &&
        WN_ARRAY(&scratch, x.to, ir->n)) {
        memset(x.to, AS_BEFORE, (size_t)ir->n);
        for (int32_t i = 0; i < r->n; i++) x.first[i] = -1;
        for (int32_t b = 0; b < r->n_blocks; b++) x.latest[b] = -1;
        for (int32_t k = n - 1; k >= 0; k--) {
            x.next[k] = x.first[change[k].step];
            x.first[change[k].step] = k;
        }
        code = copy_changed(&x);
    }
    wn__pool_release(&scratch);
    return code;
}

/* Lists the values that must go at each step that runs a block forward for the first time in a root, in `change`. With
 * change == NULL it counts them. */
static int32_t list_decided(const struct wn__ir *ir, const struct wn__marks *marks, const struct wn__recipe *r,
                            struct wn__change *change)
{
    int32_t n = 0, in_backward = 0;
    for (int32_t i = 0; i < r->n; i++) {
        const struct wn__recipe_step *s = &r->step[i];
        if (i > 0 && s->root != r->step[i - 1].root) in_backward = 0;
        in_backward |= s->kind == WN_STEP_B;
        if (in_backward || s->kind == WN_STEP_FREE) continue;
        for (int32_t k = s->keep_at; k < s->keep_at + s->n_keep; k++) {
            if (!wn__recipe_must_go(ir, marks, r->keep[k])) continue;
            if (change != NULL) change[n] = (struct wn__change){i, r->keep[k], WN__GONE};
            n++;
        }
    }
    return n;
}

int32_t wn__recipe_obey(const struct wn__ir *ir, const struct wn__marks *marks, struct wn__recipe *r)
{
    struct wn__pool scratch = {0};
    struct wn__change *change;
    struct wn__recipe out;
    int32_t n = list_decided(ir, marks, r, NULL);
    if (n == 0) return WN_OK;
    wn__recipe_begin(r, &out);
    out.pool = r->pool;
    int32_t code = WN_ARRAY(&scratch, change, n) ? WN_OK : WN_OOM;
    if (code == WN_OK) code = wn__recipe_change(ir, r, change, list_decided(ir, marks, r, change), &out);
    wn__pool_release(&scratch);
    *r = out;
    return code;
}
