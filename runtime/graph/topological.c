/* Orders what a set of roots reaches. A program computes in the order in which its script was written, so nodes are
 * sorted by their place in record order. Leaves (states, inputs, numbers) are not issued, so they take the place
 * before their first reader: a state that is read for the second time gives the same order, and finds the same
 * plan, as one that is read for the first time. */
#include <stdio.h>
#include <stdlib.h>
#include "../base/alloc.h"
#include "../base/outside.h"
#include "graph.h"

void wn__order_release(struct wn__order *w)
{
    wn__free(w->nodes);
    *w = (struct wn__order){0};
}

int32_t wn__order_push(struct wn__order *w, struct wn_node *n)
{
    WN_TRY(wn__grow(&w->nodes, &w->capacity, w->count + 1, sizeof *w->nodes));
    w->nodes[w->count++] = n;
    return WN_OK;
}

int32_t wn__order_want(struct wn__order *w, struct wn_node *n, int64_t mark)
{
    if (n->wanted == mark) return WN_OK;
    n->wanted = mark;
    return wn__order_push(w, n);
}

static const char *order_name(const struct wn_node *n)
{
    return n->name != NULL ? n->name : wn__op_said(n->op);
}

int32_t wn__order_refuse_spent(const struct wn_node *n)
{
    const char *line = wn__line_text(n->line);
    return wn__fail(WN_SPENT,
                    "backward: %s%s%s%s was used up by its own backward; pass {again = true} to that backward, "
                    "or use wane.backward{l1, l2} for one pass over both",
                    order_name(n), line[0] ? " (" : "", line, line[0] ? ")" : "");
}

#define DESCRIBED 160 /* bytes of the description of a value in a message */

/* Fills `text`, (DESCRIBED), with "'hidden' (linear, x.lua:6)", without what is not known. Returns it. */
static const char *order_describe(const struct wn_node *n, char *text)
{
    const char *line = wn__line_text(n->line), *op = wn__op_said(n->op), *between = n->name && line[0] ? ", " : "";
    if (n->name == NULL && line[0] == 0) snprintf(text, DESCRIBED, "%s", op);
    else if (n->name == NULL) snprintf(text, DESCRIBED, "%s (%s)", op, line);
    else snprintf(text, DESCRIBED, "'%s' (%s%s%s)", n->name, op, between, line);
    return text;
}

/* Returns the first of `n` nodes that is n itself or reads it; n where none does. */
static const struct wn_node *order_reader(struct wn_node *const *nodes, int64_t count, const struct wn_node *n)
{
    for (int64_t i = 0; i < count; i++)
        for (int32_t k = 0; k < nodes[i]->n_in; k++)
            if (nodes[i]->in[k] == n) return nodes[i];
    return n;
}

int32_t wn__node_lost(const struct wn_node *n, const struct wn_node *reader)
{
    char text[DESCRIBED];
    if (!n->stale) return wn__fail(WN_STALE, "run: a value this program reads was freed; record it again");
    return wn__fail(WN_STALE,
                    "%.200s was drawn over before %s read it; give its source {buffers = N}, for N batches at a time, "
                    "or call :retain() on the batch when it is drawn",
                    n->name != NULL ? n->name : "data",
                    reader == NULL || reader == n ? "the script" : order_describe(reader, text));
}

/* Fails with WN_STALE: node number `at` of the order, counted from `nodes`, is, or reads, a state that has changed. A
 * value between the roots and it that was retained says why its :retain() did not help. */
static int32_t order_refuse_stale(struct wn_node *const *nodes, int64_t at)
{
    const struct wn_node *n = nodes[at], *kept = NULL;
    if (n->op == WN_OP_DATA) return wn__node_lost(n, order_reader(nodes, at, n));
    const char *state = n->op == WN_OP_CELL && n->cell->name ? n->cell->name : "a state";
    char value[DESCRIBED], retained[DESCRIBED], versions[64] = "";
    if (n->op == WN_OP_CELL)
        snprintf(versions, sizeof versions, " (version %lld, now %lld)", (long long)n->version,
                 (long long)n->cell->version);
    const struct wn_node *before = NULL, *held = NULL;
    for (const struct wn_node *r = n; r != before; r = order_reader(nodes, at, r)) {
        if (r->retain && kept == NULL) kept = r;
        if (r->is_held && held == NULL) held = r;
        before = r;
    }
    order_describe(n->op == WN_OP_CELL ? order_reader(nodes, at, n) : n, value);
    if (held != NULL)
        return wn__fail(WN_STALE,
                        "%s has changed since %s was recorded%s, and a gradient would flow there through the value of "
                        "%s, which was kept; cut it with :detach(), or record it again",
                        state, value, versions, order_describe(held, retained));
    if (kept == NULL)
        return wn__fail(WN_STALE,
                        "%s has changed since %s was recorded%s; call :retain() on the value before the step, or "
                        "record it again",
                        state, value, versions);
    return wn__fail(WN_STALE,
                    "%s has changed since %s was recorded%s; :retain() on %s kept nothing, because no program had "
                    "computed it before the step: wane.eval computes it at once, or record it again",
                    state, value, versions, order_describe(kept, retained));
}

/* Marks the values that gradients from w->from reach: none flows into a value that needs no gradient, or out of it. */
static int32_t order_reach(struct wn__order *w)
{
    struct wn__order met = {0};
    int32_t code = WN_OK;
    w->reach = wn__node_stamp();
    for (int32_t i = 0; i < w->n_from && code == WN_OK; i++)
        if (w->from[i]->needs_grad) code = wn__order_want(&met, w->from[i], w->reach);
    for (int64_t at = 0; at < met.count && code == WN_OK; at++)
        for (int32_t k = 0; k < met.nodes[at]->n_in && code == WN_OK; k++)
            if (met.nodes[at]->in[k]->needs_grad) code = wn__order_want(&met, met.nodes[at]->in[k], w->reach);
    wn__order_release(&met);
    return code;
}

/* Sets *is to 1 if a gradient reaches n. Most graphs have no held value that asks, so the marks are made when one
 * does. */
static int32_t order_reaches(struct wn__order *w, const struct wn_node *n, int32_t *is)
{
    *is = 0;
    if (w->from == NULL || !n->needs_grad) return WN_OK;
    if (w->reach == 0) WN_TRY(order_reach(w));
    *is = n->wanted == w->reach;
    return WN_OK;
}

/* Enters node number `at` of the order, which began at `first`: closes it where its value will do. WN_STALE where it
 * can no longer be computed. */
static int32_t order_enter(struct wn__order *w, int64_t first, int64_t at)
{
    struct wn_node *n = w->nodes[at];
    int32_t is_reached = 0;
    if ((n->op == WN_OP_CELL && n->version != n->cell->version) || n->stale)
        return order_refuse_stale(w->nodes + first, at - first);
    if (n->is_held && n->n_in > 0) WN_TRY(order_reaches(w, n, &is_reached));
    n->closed = (n->is_held && !is_reached) || (w->from != NULL && wn__node_is_missing(n));
    return WN_OK;
}

/* Fails with WN_SPENT where a gradient of n would flow into an input that is used up. */
static int32_t order_check_spent(struct wn__order *w, const struct wn_node *n, const struct wn_node *in)
{
    int32_t is_reached;
    if (!in->over_spent) return WN_OK;
    WN_TRY(order_reaches(w, n, &is_reached));
    return is_reached ? wn__order_refuse_spent(in) : WN_OK;
}

int32_t wn__order_shares(struct wn_node *n, int64_t stamp, int32_t *is)
{
    struct wn__order met = {0};
    int64_t mark = wn__node_stamp();
    int32_t is_lost = 0;
    *is = 0;
    int32_t code = wn__order_want(&met, n, mark);
    for (int64_t at = 0; at < met.count && code == WN_OK; at++) {
        struct wn_node *v = met.nodes[at];
        int32_t is_there = v->is_held || (wn__op_flags(v->op) & WN_LEAF) != 0;
        is_lost |= v->stale || (v->op == WN_OP_CELL && v->version != v->cell->version);
        *is |= v->stamp == stamp && !is_there;
        for (int32_t k = 0; !is_there && v->stamp != stamp && k < v->n_in && code == WN_OK; k++)
            code = wn__order_want(&met, v->in[k], mark);
    }
    if (is_lost) *is = -1;
    wn__order_release(&met);
    return code;
}

int wn__node_by_record(const void *a, const void *b)
{
    const struct wn_node *x = *(struct wn_node *const *)a, *y = *(struct wn_node *const *)b;
    return (x->seq > y->seq) - (x->seq < y->seq);
}

/* Returns whether the order takes in n without its inputs: its value is there, or comes from outside. */
static int32_t order_ends(const struct wn_node *n)
{
    return (wn__op_flags(n->op) & WN_LEAF) != 0 || n->closed;
}

/* Sorts by record order the nodes that the order takes in with their inputs, behind those that it takes in without.
 * Nodes of one step have places close to each other, so each goes to its own, without a comparison. */
static int32_t order_sort(struct wn_node **nodes, int64_t n)
{
    int64_t low = INT64_MAX, high = 0, k = 0;
    for (int64_t i = 0; i < n; i++) {
        if (order_ends(nodes[i])) continue;
        low = nodes[i]->seq < low ? nodes[i]->seq : low;
        high = nodes[i]->seq > high ? nodes[i]->seq : high;
    }
    if (high - low >= 8 * n) qsort(nodes, (size_t)n, sizeof *nodes, wn__node_by_record);
    if (high < low || high - low >= 8 * n) return WN_OK;
    struct wn_node **place = wn__alloc((high - low + 1) * (int64_t)sizeof *place);
    if (place == NULL) return WN_OOM;
    for (int64_t i = 0; i < n; i++) {
        if (order_ends(nodes[i])) nodes[k++] = nodes[i];
        else place[nodes[i]->seq - low] = nodes[i];
    }
    for (int64_t i = 0; i <= high - low; i++)
        if (place[i] != NULL) nodes[k++] = place[i];
    wn__free(place);
    return WN_OK;
}

/* Appends a node, unless it was appended before: `local` is -1 until then. */
static void order_put(struct wn_node **to, int64_t *n, struct wn_node *node)
{
    if (node->local == 0) return;
    node->local = 0;
    to[(*n)++] = node;
}

/* Moves nodes without inputs in the order to before their first reader; roots that nothing reads come last, in the
 * order of the roots. */
static int32_t order_place_leaves(struct wn__order *w, int64_t first, struct wn_node *const *roots, int32_t n_roots)
{
    struct wn_node **to = wn__alloc(w->capacity * (int64_t)sizeof *to);
    int64_t n = first;
    if (to == NULL) return WN_OOM;
    for (int64_t i = 0; i < first; i++) to[i] = w->nodes[i];
    for (int64_t i = first; i < w->count; i++) w->nodes[i]->local = -1;
    for (int64_t i = first; i < w->count; i++) {
        struct wn_node *node = w->nodes[i];
        if (order_ends(node)) continue;
        for (int32_t k = 0; k < node->n_in; k++)
            if (order_ends(node->in[k])) order_put(to, &n, node->in[k]);
        order_put(to, &n, node);
    }
    for (int32_t i = 0; i < n_roots; i++) order_put(to, &n, roots[i]);
    wn__free(w->nodes);
    w->nodes = to;
    return WN_OK;
}

int32_t wn__topological_order(struct wn_node *const *roots, int32_t n, int64_t stamp, struct wn__order *w)
{
    int64_t first = w->count, at = w->count;
    for (int32_t i = 0; i < n; i++) {
        if (roots[i]->stamp == stamp) continue;
        roots[i]->stamp = stamp;
        WN_TRY(wn__order_push(w, roots[i]));
    }
    /* The list is its own queue: the inputs of every node before `at` are in it. */
    for (; at < w->count; at++) {
        struct wn_node *node = w->nodes[at];
        WN_TRY(order_enter(w, first, at));
        for (int32_t i = 0; !node->closed && i < node->n_in; i++) {
            WN_TRY(order_check_spent(w, node, node->in[i]));
            if (node->in[i]->stamp == stamp) continue;
            node->in[i]->stamp = stamp;
            WN_TRY(wn__order_push(w, node->in[i]));
        }
    }
    if (w->count == first) return WN_OK;
    WN_TRY(order_sort(w->nodes + first, w->count - first));
    return order_place_leaves(w, first, roots, n);
}
