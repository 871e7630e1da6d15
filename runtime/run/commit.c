/* Commits a run, or rolls back its effects: what it made is kept, or what it changed is taken back.
 * Invariant: nothing here can fail, so a run is either committed whole or rolled back whole. */
#include "../base/outside.h"
#include "../base/warning.h"
#include "run.h"

/* Gives the results their bytes; without a gradient they let go of what they were made of. */
static void keep_results(struct wn__run *r)
{
    struct wn_program *p = r->p;
    for (int32_t i = 0; i < p->ir->n_results; i++) {
        struct wn_node *n = p->result[i];
        struct wn__buffer *made = r->result[i];
        r->result[i] = NULL;
        if (p->taken_results != NULL) { /* first values: the node stays without a value, its bytes become a cell's */
            p->taken_results[i] = made;
            continue;
        }
        wn__buffer_unref(n->held); /* held since a program that was opened earlier and ran in between */
        n->held = made;
        n->is_held = 1;
        n->retain = 0;
        wn__retained_remove(n);
        if (n->needs_grad) continue;
        wn__past_note(n);
        wn__node_drop_inputs(n);
    }
}

/* Gives every cell that an effect wrote a new version, and notes gradients that are allocated now. */
static void keep_effects(struct wn_program *p)
{
    const struct wn__ir *ir = p->ir;
    for (int32_t i = 0; i < p->n_forward_effects; i++) p->order.nodes[p->forward_effect[i].node]->effects_done = 1;
    for (int32_t i = ir->n - ir->n_effects; i < ir->n; i++)
        for (int32_t k = 0; k < 3; k++) {
            if (ir->node[i].cell[k] < 0) continue;
            struct wn_cell *c = p->cell[ir->node[i].cell[k]];
            if (c->kind == WN_KIND_GRADIENT && c->slab != NULL) wn__cell_allocate(c);
            if (c->kind == WN_KIND_PARAMETER) wn__here.updated = wn__here.counter + 1;
            c->invalid = 0;
            wn__cell_changed(c);
        }
}

static void spend_roots(struct wn_program *p)
{
    if ((p->mode != WN_RUN_BACKWARD && p->mode != WN_RUN_STEP) || p->again) return;
    for (int32_t i = 0; i < p->n_roots - p->n_also; i++) {
        p->root[i]->spent = p->root[i]->over_spent = 1;
        wn__node_drop_inputs(p->root[i]);
    }
}

/* Counts how often each node was computed, and warns at the third program that does so. */
static void count_issues(struct wn_program *p)
{
    for (int64_t i = 0; i < p->order.count; i++) {
        struct wn_node *n = p->order.nodes[i];
        int32_t at = p->ir->order_node[i];
        while (p->ir->node[at].absorbed_by >= 0) at = p->ir->node[at].absorbed_by;
        if (p->ir->node[at].leaf != WN_LEAF_NONE || p->schedule->node_issues[at] == 0 || n->is_held) continue;
        if (n->issued < 3) n->issued++;
        if (n->issued < 3 || n->warned) continue;
        n->warned = 1;
        wn__warn("%s%s%s was computed by three programs; call :retain() on it to keep its value%s",
                 n->line ? wn__line_text(n->line) : "", n->line ? ": " : "", n->name ? n->name : wn__op_said(n->op),
                 n->line ? "" : " (wane.lines(true) tells where it is recorded)");
    }
}

/* Releases the topological order of this run. What the program bound stays until it is closed. */
static void let_walk_go(struct wn_program *p)
{
    for (int64_t i = 0; i < p->order.count; i++) wn__node_unref(p->order.nodes[i]);
    for (int32_t i = 0; i < p->n_roots; i++) {
        wn__node_unref(p->root[i]);
        wn__cell_unref(p->assigned[i]);
    }
    p->order.count = 0;
    p->n_roots = 0;
}

void wn__effects_roll_back(struct wn_program *p, int32_t code)
{
    const struct wn__ir *ir = p->ir;
    int32_t dropped = 0;
    for (int32_t i = ir->n - ir->n_effects; i < ir->n; i++)
        for (int32_t k = 0; k < 3; k++) {
            struct wn_cell *c = ir->node[i].cell[k] < 0 ? NULL : p->cell[ir->node[i].cell[k]];
            if (c == NULL) continue;
            if (c->kind != WN_KIND_GRADIENT) {
                c->invalid = 1;
            } else if (c->allocated) {
                wn__cell_drop_own(c);
                dropped = 1;
            }
        }
    if (dropped)
        wn__fail(code,
                 "%s; gradients this run had begun to change were dropped: run each backward since zero_grad again",
                 wn__message());
    wn__program_end_first(p, WN_FIRST_COMMIT_WRITTEN);
}

void wn__commit(struct wn__run *r)
{
    struct wn_program *p = r->p;
    keep_results(r);
    keep_effects(p);
    int64_t live = wn__ledger(p->device)->live;
    wn__program_end_first(p, WN_FIRST_COMMIT);
    /* The data that states began as ends with this run: no later step has it beside it. */
    p->measured.beside -= live - wn__ledger(p->device)->live;
    if (p->taken_results == NULL) count_issues(p);
    spend_roots(p);
    let_walk_go(p);
    p->ran = 1;
}
