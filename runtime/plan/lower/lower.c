/* Lowering: a recipe becomes a linear list of issues, effects take their places, allocations get lifetimes and the
 * frees follow. One lowering serves every policy. Aliases are never issued: a reshape is its source's bytes.
 *
 * What is kept is decided by the recipe alone; what is computed again, and when, follows from demand: right
 * before the first backward node that reads it, with whatever it needs in turn. */
#include "lower.h"
#include <string.h>

static void *get(struct wn__lowering *l, int64_t n, int64_t size)
{
    void *p = l->code == WN_OK ? wn__pool_get(&l->scratch, (n + 1) * size) : NULL;
    if (p == NULL && l->code == WN_OK) l->code = WN_OOM;
    return p;
}

struct wn__item *wn__lower_item(struct wn__lowering *l, int32_t what, int32_t node, int32_t out, int32_t n_in)
{
    if (l->code == WN_OK) l->code = wn__grow(&l->item, &l->item_capacity, l->n_items + 1, sizeof *l->item);
    if (l->code == WN_OK) l->code = wn__grow(&l->in, &l->in_capacity, l->n_in + n_in, sizeof *l->in);
    if (l->code != WN_OK) return NULL;
    struct wn__item *it = &l->item[l->n_items++];
    *it = (struct wn__item){.what = what,
                            .node = node,
                            .phase = l->in_backward ? WN_PHASE_RECOMPUTE : WN_PHASE_FORWARD,
                            .block = l->r->block_of[node],
                            .out = out,
                            .in_at = (int32_t)l->n_in,
                            .n_in = n_in};
    l->n_in += n_in;
    if (out >= 0) l->used[out] = l->n_items - 1;
    return it;
}

int32_t wn__lower_value(struct wn__lowering *l, int32_t node, int32_t action)
{
    if (l->code == WN_OK) l->code = wn__grow(&l->value, &l->value_capacity, l->n_values + 1, sizeof *l->value);
    if (l->code == WN_OK) l->code = wn__grow(&l->used, &l->used_capacity, l->n_values + 1, sizeof *l->used);
    if (l->code != WN_OK) return -1;
    l->value[l->n_values] = (struct wn__value){.node = node, .allocation = -1, .action = action};
    l->used[l->n_values] = -1;
    return (int32_t)l->n_values++;
}

static void issue(struct wn__lowering *l, int32_t node)
{
    int32_t phase = l->f->node[node].phase, again = l->issued_once[node] && !l->f->node[node].is_reissued;
    if (phase == WN_PHASE_FORWARD && (l->in_backward || again)) phase = WN_PHASE_RECOMPUTE;
    int32_t n_in = l->f->node[node].n_in;
    for (int32_t k = 0; k < n_in; k++) {
        int32_t v = wn__ir_storage(l->f, wn__ir_in(l->f, node, k));
        if (l->cur[v] < 0 && l->part[v] < 0 && wn__lower_has_part(l, node, k)) wn__lower_return(l, v);
    }
    int32_t value = wn__lower_value(l, node, 0);
    struct wn__item *it = wn__lower_item(l, WN_DO_RUN, node, value, n_in);
    if (it == NULL) return;
    it->phase = phase;
    for (int32_t k = 0; k < n_in; k++) {
        int32_t v = wn__ir_storage(l->f, wn__ir_in(l->f, node, k)), c = l->cur[v] >= 0 ? l->cur[v] : l->part[v];
        l->in[it->in_at + k] = c;
        l->used[c] = l->n_items - 1;
    }
    l->cur[node] = value;
    if (l->f->node[node].is_reissued) l->reissued[l->n_reissued++] = node;
    l->issued_once[node] = 1;
}

/* What input k of a node needs, or -1 when it is there, or a part of it that will do. */
static int32_t need_of(const struct wn__lowering *l, int32_t node, int32_t k)
{
    int32_t v = wn__ir_storage(l->f, wn__ir_in(l->f, node, k));
    return l->cur[v] >= 0 || wn__lower_has_part(l, node, k) ? -1 : v;
}

/* Issues `node` and whatever it needs that is not there, in record order; a kept form is brought back instead. The
 * list of needs is its own queue. */
static void demand(struct wn__lowering *l, int32_t node)
{
    const struct wn__ir *f = l->f;
    int32_t n = 0;
    if (l->cur[node] >= 0 || l->code != WN_OK) return;
    l->needed[n++] = node;
    l->mark[node] = 1;
    for (int32_t at = 0; at < n; at++)
        for (int32_t k = 0; !wn__lower_comes_back(l, l->needed[at]) && k < f->node[l->needed[at]].n_in; k++) {
            int32_t v = need_of(l, l->needed[at], k);
            if (v < 0 || l->mark[v]) continue;
            l->mark[v] = 1;
            l->needed[n++] = v;
        }
    wn__sort_ascending(l->needed, n);
    for (int32_t i = 0; i < n; i++) {
        l->mark[l->needed[i]] = 0;
        if (wn__lower_comes_back(l, l->needed[i])) wn__lower_return(l, l->needed[i]);
        else issue(l, l->needed[i]);
    }
}

/* ---- recipe steps ------------------------------------------------------------------------------------------ */

/* A forward value that something outside its block reads, or that was asked for, is what a block is run for. */
static void run_block(struct wn__lowering *l, const struct wn__recipe_step *s)
{
    const struct wn__recipe *r = l->r;
    for (int32_t i = r->first[s->block]; i < r->limit[s->block] && l->code == WN_OK; i++) {
        if (r->block_of[i] != s->block || wn__ir_is_alias(l->f, i) || l->f->node[i].is_reissued) continue;
        int32_t wanted = l->f->node[i].result >= 0 || (l->reached[i] && r->last[i] >= r->limit[s->block]);
        if (wanted) demand(l, i);
    }
}

static void forget(struct wn__lowering *l, const struct wn__recipe_step *s)
{
    const struct wn__recipe *r = l->r;
    int32_t k = 0;
    for (int32_t i = r->first[s->block]; i < r->limit[s->block]; i++) {
        if (r->block_of[i] != s->block) continue;
        while (k < s->n_keep && r->keep[s->keep_at + k] < i) k++;
        int32_t kept = k < s->n_keep && r->keep[s->keep_at + k] == i;
        if (kept && r->action != NULL && r->action[s->keep_at + k] != 0)
            wn__lower_kept(l, i, r->action[s->keep_at + k]);
        if (!kept && !l->f->node[i].bound) wn__lower_forgotten(l, i);
    }
    wn__lower_leave(l, r->limit[s->block]);
}

/* An effect that computes its gradient itself reads what there is when that gradient's turn comes. */
static void note_effect(struct wn__lowering *l, int32_t effect)
{
    const struct wn__ir_node *p = &l->f->node[effect];
    int32_t *noted = &l->effect_in[effect - (l->f->n - l->f->n_effects)];
    for (int32_t k = 0; k < p->n_in; k++) demand(l, wn__ir_storage(l->f, wn__ir_in(l->f, effect, k)));
    if (l->code == WN_OK) l->code = wn__grow(&l->in, &l->in_capacity, l->n_in + p->n_in, sizeof *l->in);
    if (l->code != WN_OK) return;
    *noted = (int32_t)l->n_in;
    for (int32_t k = 0; k < p->n_in; k++) l->in[l->n_in++] = l->cur[wn__ir_storage(l->f, wn__ir_in(l->f, effect, k))];
}

static void forget_reissued(struct wn__lowering *l)
{
    while (l->n_reissued > 0) l->cur[l->reissued[--l->n_reissued]] = -1;
}

static void run_backward(struct wn__lowering *l, const struct wn__recipe_step *s)
{
    const struct wn__ir *f = l->f;
    int32_t at = l->backward_first[s->block];
    for (; at >= 0 && l->code == WN_OK; at = l->backward_next[at]) {
        int32_t into = f->node[at].absorbed_by;
        if (f->node[at].root == s->root && into >= f->n - f->n_effects && !wn__ir_is_alias(f, at)) note_effect(l, into);
        if (f->node[at].root != s->root || !l->useful[at] || wn__ir_is_alias(f, at)) continue;
        for (int32_t k = 0; k < f->node[at].n_in; k++) {
            int32_t v = need_of(l, at, k);
            if (v >= 0) demand(l, v);
        }
        demand(l, at);
    }
}

/* ---- what there is to do -------------------------------------------------------------------------------------- */

/* useful: an effect or a result depends on it. reached: the same through forward values only (a value given
 * already needs nothing below it). */
static void find_useful(struct wn__lowering *l)
{
    const struct wn__ir *f = l->f;
    for (int32_t i = f->n - 1; i >= 0; i--) {
        const struct wn__ir_node *p = &f->node[i];
        int32_t effect = i >= f->n - f->n_effects;
        if (effect || p->result >= 0) l->useful[i] = 1;
        if (p->result >= 0) l->reached[i] = 1;
        for (int32_t k = 0; k < p->n_in; k++) {
            int32_t v = wn__ir_in(f, i, k);
            if (l->useful[i] && !p->bound) l->useful[v] = 1;
            if (l->reached[i] && !p->bound) l->reached[v] = 1;
            if (effect && f->node[v].phase == WN_PHASE_FORWARD) l->reached[v] = 1;
        }
    }
}

/* Backward nodes of each block in the order of emission, as threaded lists. */
static void thread_backward(struct wn__lowering *l)
{
    for (int32_t b = 0; b <= l->r->n_blocks; b++) l->backward_first[b] = -1;
    for (int32_t i = l->f->n - 1; i >= 0; i--) {
        if (l->f->node[i].phase != WN_PHASE_BACKWARD) continue;
        int32_t b = l->r->block_of[i];
        l->backward_next[i] = l->backward_first[b];
        l->backward_first[b] = i;
    }
}

static void put_leaves(struct wn__lowering *l)
{
    for (int32_t i = 0; i < l->f->n; i++) {
        const struct wn__ir_node *p = &l->f->node[i];
        l->cur[i] = p->leaf != WN_LEAF_NONE || p->bound ? wn__lower_value(l, i, 0) : -1;
        l->kept[i] = l->part[i] = -1;
    }
}

static void follow_recipe(struct wn__lowering *l)
{
    for (int32_t i = 0; i < l->r->n && l->code == WN_OK; i++) {
        const struct wn__recipe_step *s = &l->r->step[i];
        if (i == 0 || s->root != l->r->step[i - 1].root) l->in_backward = 0;
        if (s->kind == WN_RECIPE_B) {
            l->in_backward = 1;
            run_backward(l, s);
        } else {
            if (s->kind != WN_RECIPE_FREE) run_block(l, s);
            forget(l, s);
        }
        forget_reissued(l);
    }
    /* What is asked for without being anyone's block output: a leaf's alias, a gradient nothing led to. */
    for (int32_t i = 0; i < l->f->n && l->code == WN_OK; i++) {
        if (l->f->node[i].result >= 0 && !l->issued_once[i]) demand(l, i);
        int32_t effect = i - (l->f->n - l->f->n_effects);
        for (int32_t k = 0; effect >= 0 && l->effect_in[effect] < 0 && k < l->f->node[i].n_in; k++)
            demand(l, wn__ir_storage(l->f, wn__ir_in(l->f, i, k)));
    }
}

static void prepare(struct wn__lowering *l)
{
    int64_t n = l->f->n;
    l->cur = get(l, n, sizeof *l->cur);
    l->kept = get(l, n, sizeof *l->kept);
    l->part = get(l, n, sizeof *l->part);
    l->leaving = get(l, n, sizeof *l->leaving);
    l->action = get(l, n, sizeof *l->action);
    l->needed = get(l, n, sizeof *l->needed);
    l->reissued = get(l, n, sizeof *l->reissued);
    l->mark = get(l, n, 1);
    l->useful = get(l, n, 1);
    l->reached = get(l, n, 1);
    l->issued_once = get(l, n, 1);
    l->backward_first = get(l, l->r->n_blocks, sizeof *l->backward_first);
    l->backward_next = get(l, n, sizeof *l->backward_next);
    l->effect_in = get(l, l->f->n_effects, sizeof *l->effect_in);
    if (l->code != WN_OK) return;
    for (int32_t e = 0; e < l->f->n_effects; e++) l->effect_in[e] = -1;
    put_leaves(l);
    find_useful(l);
    thread_backward(l);
}

int32_t wn__lower(const struct wn__ir *f, const struct wn__recipe *r, struct wn__schedule **out)
{
    struct wn__lowering l = {.f = f, .r = r, .code = WN_OK};
    prepare(&l);
    if (l.code == WN_OK) follow_recipe(&l);
    if (l.code == WN_OK) l.code = wn__lower_departures(&l);
    if (l.code == WN_OK) l.code = wn__lower_effects(&l);
    if (l.code == WN_OK) l.code = wn__lower_prefetch(&l);
    if (l.code == WN_OK) l.code = wn__lower_finish(&l, out);
    wn__free(l.item);
    wn__free(l.in);
    wn__free(l.value);
    wn__free(l.used);
    wn__free(l.departure);
    wn__pool_release(&l.scratch);
    return l.code;
}
