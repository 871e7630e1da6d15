/* Follows a recipe: the order in which nodes are issued, and issued again. Aliases are never issued: a reshape is its
 * source's bytes.
 *
 * The recipe alone decides what is kept. What is computed again, and when, follows from demand: right before the first
 * backward node that reads it, with whatever it needs in turn. */
#include "issue.h"
#include <string.h>

int32_t wn__issue_value(struct wn__issuing *x, int32_t node, int32_t action)
{
    int64_t n = x->out->list.n_values;
    WN_KEEP(x->code, wn__grow(&x->last.item, &x->last.capacity, n + 1, sizeof *x->last.item));
    if (x->code != WN_OK) return -1;
    x->last.item[n] = -1;
    int32_t value = wn__list_value(&x->out->list, node, action);
    if (value < 0) x->code = WN_OOM;
    return value;
}

struct wn__item *wn__issue_item(struct wn__issuing *x, int32_t what, int32_t node, int32_t out, int32_t n_in)
{
    struct wn__item *it = x->code == WN_OK ? wn__list_item(&x->out->list, n_in) : NULL;
    if (it == NULL) {
        WN_KEEP(x->code, WN_OOM);
        return NULL;
    }
    it->what = what;
    it->node = node;
    it->phase = x->in_backward ? WN_PHASE_RECOMPUTE : WN_PHASE_FORWARD;
    it->block = x->r->block_of[node];
    it->step = x->step;
    it->out = out;
    if (out >= 0) x->last.item[out] = x->out->list.n_items - 1;
    return it;
}

/* Notes the effects of a forward value, which is there now for the first time: a value that is dropped is not computed
 * again for them. */
static void note_forward_effects(struct wn__issuing *x, int32_t node)
{
    const struct wn__ir *ir = x->ir;
    int32_t first = ir->n - ir->n_effects;
    for (int32_t i = first; i < ir->n && wn__is_forward_effect(ir, i); i++) {
        if (wn__ir_in(ir, i, 0) != node || x->code != WN_OK) continue;
        int32_t in_at = wn__list_inputs(&x->out->list, 1);
        if (in_at < 0) x->code = WN_OOM;
        if (in_at < 0) return;
        x->out->effect_in[i - first] = in_at;
        x->out->list.in[in_at] = x->at.now[node];
    }
}

/* ---- demand ------------------------------------------------------------------------------------------------------ */

/* Appends the item that runs a node. Requires that its inputs are there, or come back in part. */
static void issue(struct wn__issuing *x, int32_t node)
{
    const struct wn__ir_node *p = &x->ir->node[node];
    int32_t phase = p->phase, again = x->is_issued[node] && !p->is_reissued;
    if (phase == WN_PHASE_FORWARD && (x->in_backward || again)) phase = WN_PHASE_RECOMPUTE;
    for (int32_t k = 0; k < p->n_in; k++) {
        int32_t v = wn__ir_storage(x->ir, wn__ir_in(x->ir, node, k));
        if (x->at.now[v] < 0 && x->at.part[v] < 0 && wn__residency_has_part(x, node, k)) wn__residency_return(x, v);
    }
    int32_t value = wn__issue_value(x, node, 0);
    struct wn__item *it = wn__issue_item(x, WN_DO_RUN, node, value, p->n_in);
    if (it == NULL) return;
    it->phase = phase;
    for (int32_t k = 0; k < p->n_in; k++) {
        int32_t v = wn__ir_storage(x->ir, wn__ir_in(x->ir, node, k)),
                in = x->at.now[v] >= 0 ? x->at.now[v] : x->at.part[v];
        x->out->list.in[it->in_at + k] = in;
        x->last.item[in] = x->out->list.n_items - 1;
    }
    x->at.now[node] = value;
    if (p->has_effects && !x->is_issued[node]) note_forward_effects(x, node);
    if (p->is_reissued) x->reissued[x->n_reissued++] = node;
    x->is_issued[node] = 1;
}

/* Returns the node that input k of a node needs; -1: its value is there, or a part of it will do. */
static int32_t need_of(const struct wn__issuing *x, int32_t node, int32_t k)
{
    int32_t v = wn__ir_storage(x->ir, wn__ir_in(x->ir, node, k));
    return x->at.now[v] >= 0 || wn__residency_has_part(x, node, k) ? -1 : v;
}

/* Sorts n numbers. Needs come almost sorted and are few: up to 32 are sorted by insertion, more by halves. */
static void sort_ascending(int32_t *v, int32_t n)
{
    if (n > 32) {
        int32_t pivot = v[n / 2], i = 0, j = n - 1;
        while (i <= j) {
            while (v[i] < pivot) i++;
            while (v[j] > pivot) j--;
            if (i > j) break;
            int32_t t = v[i];
            v[i++] = v[j];
            v[j--] = t;
        }
        sort_ascending(v, j + 1);
        sort_ascending(v + i, n - i);
        return;
    }
    for (int32_t i = 1; i < n; i++) {
        int32_t x = v[i], k = i;
        for (; k > 0 && v[k - 1] > x; k--) v[k] = v[k - 1];
        v[k] = x;
    }
}

/* Issues a node and whatever it needs that is not there, in record order; what has a kept form is brought back instead.
 * The list of needs is the queue of the search for them. */
static void demand(struct wn__issuing *x, int32_t node)
{
    struct wn__needs *needs = &x->needs;
    int32_t n = 0;
    if (x->at.now[node] >= 0 || x->code != WN_OK) return;
    needs->node[n++] = node;
    needs->is_needed[node] = 1;
    for (int32_t at = 0; at < n; at++) {
        int32_t by = needs->node[at], n_in = wn__residency_comes_back(x, by) ? 0 : x->ir->node[by].n_in;
        for (int32_t k = 0; k < n_in; k++) {
            int32_t v = need_of(x, by, k);
            if (v < 0 || needs->is_needed[v]) continue;
            needs->is_needed[v] = 1;
            needs->node[n++] = v;
        }
    }
    sort_ascending(needs->node, n);
    for (int32_t i = 0; i < n; i++) {
        needs->is_needed[needs->node[i]] = 0;
        if (wn__residency_comes_back(x, needs->node[i])) wn__residency_return(x, needs->node[i]);
        else issue(x, needs->node[i]);
    }
}

/* ---- steps of the recipe
 * ------------------------------------------------------------------------------------------ */

/* Runs the forward of a block for the sake of its results and of what later blocks read. */
static void run_block(struct wn__issuing *x, const struct wn__recipe_step *s)
{
    const struct wn__recipe *r = x->r;
    for (int32_t i = r->first[s->block]; i < r->limit[s->block] && x->code == WN_OK; i++) {
        if (r->block_of[i] != s->block || wn__ir_is_alias(x->ir, i) || x->ir->node[i].is_reissued) continue;
        int32_t wanted = x->ir->node[i].result >= 0 || (x->goals.is_reached[i] && r->last[i] >= r->limit[s->block]);
        if (wanted) demand(x, i);
    }
}

/* Lets go of what a step does not keep of its block. */
static void forget(struct wn__issuing *x, const struct wn__recipe_step *s)
{
    const struct wn__recipe *r = x->r;
    int32_t k = 0;
    for (int32_t i = r->first[s->block]; i < r->limit[s->block]; i++) {
        if (r->block_of[i] != s->block) continue;
        while (k < s->n_keep && r->keep[s->keep_at + k] < i) k++;
        int32_t kept = k < s->n_keep && r->keep[s->keep_at + k] == i;
        x->is_held[i] = kept && x->ir->node[i].is_reissued;
        if (kept && r->action != NULL && r->action[s->keep_at + k] != 0)
            wn__residency_keep(x, i, r->action[s->keep_at + k]);
        if (!kept && !x->ir->node[i].bound) wn__residency_forget(x, i);
    }
    wn__residency_leave(x, r->limit[s->block]);
}

/* Notes the values that an effect reads. An effect that computes its gradient itself reads what is there when that
 * gradient is due, every other one what is there at the end. */
static void note_effect(struct wn__issuing *x, int32_t effect)
{
    const struct wn__ir_node *p = &x->ir->node[effect];
    for (int32_t k = 0; k < p->n_in; k++) demand(x, wn__ir_storage(x->ir, wn__ir_in(x->ir, effect, k)));
    int32_t in_at = x->code == WN_OK ? wn__list_inputs(&x->out->list, p->n_in) : 0;
    if (in_at < 0) x->code = WN_OOM;
    if (x->code != WN_OK) return;
    x->out->effect_in[effect - (x->ir->n - x->ir->n_effects)] = in_at;
    for (int32_t k = 0; k < p->n_in; k++)
        x->out->list.in[in_at + k] = x->at.now[wn__ir_storage(x->ir, wn__ir_in(x->ir, effect, k))];
}

/* Lets go of the states in another layout that a step issued, unless their block keeps them. */
static void forget_reissued(struct wn__issuing *x)
{
    while (x->n_reissued > 0) {
        int32_t node = x->reissued[--x->n_reissued];
        if (!x->is_held[node]) x->at.now[node] = -1;
    }
}

/* Issues the backward nodes of a block that an effect or a result needs, and notes effects that compute a gradient
 * of the block themselves. */
static void run_backward(struct wn__issuing *x, const struct wn__recipe_step *s)
{
    const struct wn__ir *ir = x->ir;
    int32_t at = x->backward.first[s->block];
    for (; at >= 0 && x->code == WN_OK; at = x->backward.next[at]) {
        int32_t into = ir->node[at].absorbed_by;
        if (ir->node[at].root == s->root && into >= ir->n - ir->n_effects && !wn__ir_is_alias(ir, at))
            note_effect(x, into);
        if (ir->node[at].root != s->root || !x->goals.is_useful[at] || wn__ir_is_alias(ir, at)) continue;
        for (int32_t k = 0; k < ir->node[at].n_in; k++) {
            int32_t v = need_of(x, at, k);
            if (v >= 0) demand(x, v);
        }
        demand(x, at);
    }
}

/* Issues what is asked for and is no block's output: a leaf's alias, a gradient that nothing led to, effects'
 * inputs. */
static void issue_rest(struct wn__issuing *x)
{
    const struct wn__ir *ir = x->ir;
    for (int32_t i = 0; i < ir->n && x->code == WN_OK; i++) {
        if (ir->node[i].result >= 0 && !x->is_issued[i]) demand(x, i);
        int32_t effect = i - (ir->n - ir->n_effects);
        if (effect >= 0 && x->out->effect_in[effect] < 0) note_effect(x, i);
    }
}

/* Issues the steps of the recipe one after the other, then what no step asked for. */
static void follow_recipe(struct wn__issuing *x)
{
    for (int32_t i = 0; i < x->r->n && x->code == WN_OK; i++) {
        const struct wn__recipe_step *s = &x->r->step[i];
        x->step = i;
        if (i == 0 || s->root != x->r->step[i - 1].root) x->in_backward = 0;
        if (s->kind == WN_STEP_B) {
            x->in_backward = 1;
            run_backward(x, s);
        } else {
            if (s->kind != WN_STEP_FREE) run_block(x, s);
            forget(x, s);
        }
        forget_reissued(x);
    }
    issue_rest(x);
}

/* ---- what there is to do -------------------------------------------------------------------------------------- */

/* Finds the goals from the last node to the first, so that a node is looked at after all its readers. */
static void find_goals(const struct wn__ir *ir, struct wn__goals *g)
{
    for (int32_t i = ir->n - 1; i >= 0; i--) {
        const struct wn__ir_node *p = &ir->node[i];
        int32_t effect = i >= ir->n - ir->n_effects;
        if (effect || p->result >= 0) g->is_useful[i] = 1;
        if (p->result >= 0) g->is_reached[i] = 1;
        for (int32_t k = 0; k < p->n_in; k++) {
            int32_t v = wn__ir_in(ir, i, k);
            if (g->is_useful[i] && !p->bound) g->is_useful[v] = 1;
            if (g->is_reached[i] && !p->bound) g->is_reached[v] = 1;
            if (effect && ir->node[v].phase == WN_PHASE_FORWARD) g->is_reached[v] = 1;
        }
    }
}

/* Fills the lists of backward nodes. */
static void thread_backward(const struct wn__ir *ir, const struct wn__recipe *r, struct wn__backward_lists *l)
{
    for (int32_t b = 0; b <= r->n_blocks; b++) l->first[b] = -1;
    for (int32_t i = ir->n - 1; i >= 0; i--) {
        if (ir->node[i].phase != WN_PHASE_BACKWARD) continue;
        int32_t b = r->block_of[i];
        l->next[i] = l->first[b];
        l->first[b] = i;
    }
}

/* Adds a value of every leaf and of every bound input; every other node has none yet. */
static void put_leaves(struct wn__issuing *x)
{
    for (int32_t i = 0; i < x->ir->n; i++) {
        const struct wn__ir_node *p = &x->ir->node[i];
        x->at.now[i] = p->leaf != WN_LEAF_NONE || p->bound ? wn__issue_value(x, i, 0) : -1;
        x->at.kept[i] = x->at.part[i] = -1;
    }
}

/* Takes the arrays of x, zeroed. WN_OOM. */
static int32_t take_arrays(struct wn__issuing *x, struct wn__pool *scratch)
{
    int32_t n = x->ir->n;
    if (!WN_ARRAY(scratch, x->at.now, n) || !WN_ARRAY(scratch, x->at.kept, n) || !WN_ARRAY(scratch, x->at.part, n) ||
        !WN_ARRAY(scratch, x->leaving.node, n) || !WN_ARRAY(scratch, x->leaving.action, n) ||
        !WN_ARRAY(scratch, x->needs.node, n) || !WN_ARRAY(scratch, x->needs.is_needed, n) ||
        !WN_ARRAY(scratch, x->goals.is_useful, n) || !WN_ARRAY(scratch, x->goals.is_reached, n) ||
        !WN_ARRAY(scratch, x->backward.first, x->r->n_blocks) || !WN_ARRAY(scratch, x->backward.next, n) ||
        !WN_ARRAY(scratch, x->is_issued, n) || !WN_ARRAY(scratch, x->is_held, n) || !WN_ARRAY(scratch, x->reissued, n))
        return WN_OOM;
    x->out->effect_in = wn__alloc((x->ir->n_effects + 1) * (int64_t)sizeof *x->out->effect_in);
    return x->out->effect_in == NULL ? WN_OOM : WN_OK;
}

int32_t wn__lower_issue(const struct wn__ir *ir, const struct wn__recipe *r, struct wn__issued *out)
{
    struct wn__issuing x = {.ir = ir, .r = r, .out = out};
    struct wn__pool scratch = {0};
    WN_KEEP(x.code, take_arrays(&x, &scratch));
    if (x.code == WN_OK) {
        for (int32_t e = 0; e < ir->n_effects; e++) out->effect_in[e] = -1;
        put_leaves(&x);
        find_goals(ir, &x.goals);
        thread_backward(ir, r, &x.backward);
        follow_recipe(&x);
    }
    wn__free(x.last.item);
    wn__pool_release(&scratch);
    return x.code;
}
