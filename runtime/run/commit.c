/* Commits a run, or rolls back its effects: what it made is kept, or what it changed is taken back.
 * Invariant: nothing here can fail, so a run is either committed whole or rolled back whole. */
#include "../base/outside.h"
#include "../base/warning.h"
#include "run.h"

/* Gives the results their bytes; without a gradient they let go of what they were made of. Of first values those of
 * data are results; cells have the others, whose nodes stay without a value. */
static void keep_results(struct wn__run *r)
{
    for (int32_t i = 0; i < r->ir->n_results; i++) {
        struct wn_node *n = r->p->bindings.result[i];
        int32_t is_taken = r->result[i] == NULL && n->type.ndim > 0;
        if (r->result_kind != NULL && (is_taken || !wn__node_is_missing(n))) continue;
        wn__buffer_unref(n->held); /* held since a program that was opened earlier and ran in between */
        n->held = r->result[i];
        r->result[i] = NULL;
        n->is_held = 1;
        n->retain = 0;
        wn__retained_remove(n);
        if (n->needs_grad) continue;
        wn__past_note(n);
        wn__node_drop_inputs(n);
    }
}

/* Gives every cell that an effect wrote a new version, and notes gradients that are allocated now. */
static void keep_effects(const struct wn_program *p)
{
    const struct wn__bindings *b = &p->bindings;
    for (int32_t i = 0; i < b->n_forward_effects; i++) b->order.nodes[b->forward_effect[i].node]->effects_done = 1;
    for (int32_t k = 0; k < 3 * p->plan.ir->n_effects; k++) {
        struct wn_cell *c = wn__effect_cell(p, k);
        if (c == NULL) continue;
        if (c->kind == WN_KIND_GRADIENT && c->slab != NULL) wn__cell_allocate(c);
        if (c->kind == WN_KIND_PARAMETER) wn__here.updated = wn__here.counter + 1;
        c->invalid = 0;
        wn__cell_changed(c);
    }
}

static void spend_roots(const struct wn__request *r)
{
    for (int32_t i = 0; wn__is_backward(r) && !r->again && i < wn__losses(r); i++) {
        r->root[i]->spent = r->root[i]->over_spent = 1;
        wn__node_drop_inputs(r->root[i]);
    }
}

/* Counts how often each node was computed, and warns at the third program that does so. */
static void count_issues(const struct wn__run *r)
{
    const struct wn__order *order = &r->p->bindings.order;
    for (int64_t i = 0; i < order->count; i++) {
        struct wn_node *n = order->nodes[i];
        int32_t at = r->ir->order_node[i];
        while (r->ir->node[at].absorbed_by >= 0) at = r->ir->node[at].absorbed_by;
        if (r->ir->node[at].leaf != WN_LEAF_NONE || r->schedule->node_issues[at] == 0 || n->is_held) continue;
        if (n->issued < 3) n->issued++;
        if (n->issued < 3 || n->warned) continue;
        n->warned = 1;
        wn__warn("%s%s%s was computed by three programs; call :retain() on it to keep its value%s",
                 n->line ? wn__line_text(n->line) : "", n->line ? ": " : "", n->name ? n->name : wn__op_said(n->op),
                 n->line ? "" : " (wane.lines(true) tells where it is recorded)");
    }
}

void wn__effects_roll_back(struct wn__run *r, int32_t code)
{
    int32_t dropped = 0;
    for (int32_t k = 0; k < 3 * r->ir->n_effects; k++) {
        struct wn_cell *c = wn__effect_cell(r->p, k);
        if (c == NULL) continue;
        if (c->kind != WN_KIND_GRADIENT) {
            c->invalid |= wn__exchange_has_passed(r);
        } else if (c->allocated) {
            wn__cell_drop_own(c);
            dropped = 1;
        }
    }
    if (dropped)
        wn__fail(code,
                 "%s; gradients this run had begun to change were dropped: run each backward since zero_grad again",
                 wn__message());
    wn__run_end_first(r, WN_FIRST_COMMIT_WRITTEN);
}

void wn__commit(struct wn__run *r)
{
    struct wn_program *p = r->p;
    keep_results(r);
    keep_effects(p);
    int64_t live = wn__ledger(r->ir->device)->live;
    wn__run_end_first(r, WN_FIRST_COMMIT);
    /* The data that states began as ends with this run: no later step has it beside it. */
    p->run.measured.beside -= live - wn__ledger(r->ir->device)->live;
    if (r->result_kind == NULL) count_issues(r);
    spend_roots(&p->request);
    wn__request_let_go(p);
    p->run.ran = 1;
}
