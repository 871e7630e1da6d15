/* Puts every effect into the list as early as it may be: its inputs are made, and every read of the old version of the
 * states that it writes has been issued (tied uses, values computed again, the gradient of the input). Early, so that a
 * gradient that an optimizer consumes dies at once.
 *
 * An exchange of states, REFRESH, starts where it may, and is waited for at the end: nothing here reads what it brings.
 * Effects of forward values come behind that: until then ranks may find that one of them has failed.
 *
 * Else effects of forward values wait for the first effect that changes a state, or for the end where there is none:
 * what stops a run before that, ^C or a failure, leaves every state as it was. They keep the order of recording. */
#include "lower.h"

/* Returns the cell whose state a value is; -1: it is no leaf of a cell. */
static int32_t cell_of(const struct wn__ir *ir, const struct wn__list *l, int32_t value)
{
    const struct wn__ir_node *p = &ir->node[l->value[value].node];
    return p->leaf == WN_LEAF_CELL ? p->slot : -1;
}

/* When things have happened, as numbers of items: a thing has happened before item `time`.
 * Invariant: a value that no item makes has made 0, a cell that no item reads has read 0. */
struct times {
    int32_t *made; /* (n_values) one past the item that makes a value, or waits until it has arrived */
    int32_t *read; /* (n_cells) one past the last item that reads a cell */
};

/* Fills when each value is made and when each cell is read last. */
static void find_times(const struct wn__ir *ir, const struct wn__list *l, struct times *t)
{
    for (int64_t i = 0; i < l->n_items; i++) {
        const struct wn__item *it = &l->item[i];
        if (it->out >= 0) t->made[it->out] = (int32_t)i + 1;
        if (it->what == WN_DO_WAIT) t->made[l->in[it->in_at + 1]] = (int32_t)i + 1;
        for (int32_t k = 0; k < it->n_in; k++) {
            int32_t slot = cell_of(ir, l, l->in[it->in_at + k]);
            if (slot >= 0) t->read[slot] = (int32_t)i + 1;
        }
    }
}

/* Returns the number of the item that an effect may be put before. in: (n_in of the effect) values. */
static int32_t effect_time(const struct wn__ir_node *p, const int32_t *in, const struct times *t)
{
    int32_t time = 0;
    for (int32_t k = 0; k < p->n_in; k++)
        if (t->made[in[k]] > time) time = t->made[in[k]];
    for (int32_t k = 0; k < 3; k++)
        if (p->cell[k] >= 0 && t->read[p->cell[k]] > time) time = t->read[p->cell[k]];
    return time;
}

/* Fills time: (n_effects), the number of the item that each effect is put before. */
static void find_effect_times(const struct wn__ir *ir, const int32_t *effect_in, const struct wn__list *l,
                              const struct times *t, int32_t *time)
{
    int32_t first = ir->n - ir->n_effects, least = (int32_t)l->n_items;
    for (int32_t e = 0; e < ir->n_effects; e++) {
        time[e] = effect_time(&ir->node[first + e], l->in + effect_in[e], t);
        if (wn__is_forward_effect(ir, first + e) || !wn__ir_changes_state(ir, first + e)) continue;
        if (time[e] < least) least = time[e];
    }
    for (int32_t e = 0; e < ir->n_effects && wn__is_forward_effect(ir, first + e); e++) {
        int32_t is_among_ranks = ir->node[wn__ir_in(ir, first + e, 0)].op == WN_OP_ALL_TO_ALL;
        if (is_among_ranks) least = (int32_t)l->n_items;
        if (time[e] > least) least = time[e];
        time[e] = least;
    }
}

static struct wn__item item_of(const struct wn__ir *ir, int32_t node, int32_t in_at, int32_t what, int32_t move)
{
    return (struct wn__item){.what = what,
                             .node = node,
                             .phase = WN_PHASE_UPDATE,
                             .block = -1,
                             .out = -1,
                             .in_at = in_at,
                             .n_in = what == WN_DO_WAIT ? 0 : ir->node[node].n_in,
                             .move = move};
}

/* Fills more with what is put into the list, and at with the item that each is put before: effects at their times,
 * which start exchanges where they are ones; at the end the waits of those, then late effects, those of forward values
 * among ranks. Returns how many. */
static int32_t fill(const struct wn__ir *ir, const int32_t *effect_in, const int32_t *time, struct wn__list *l,
                    struct wn__item *more, int32_t *at)
{
    int32_t first = ir->n - ir->n_effects, moves = l->n_moves, n = 0, late = 0;
    for (int32_t e = 0; e < ir->n_effects; e++) {
        int32_t is_exchange = (wn__ir_flags(ir, first + e) & WN_LINK) != 0;
        if (late == e && time[e] == l->n_items && wn__is_forward_effect(ir, first + e)) {
            late++;
            continue;
        }
        at[n] = time[e];
        more[n++] = item_of(ir, first + e, effect_in[e], is_exchange ? WN_DO_EXCHANGE : WN_DO_RUN, l->n_moves);
        l->n_moves += is_exchange;
    }
    for (int32_t e = 0, effects = n; e < effects; e++) {
        if (more[e].what != WN_DO_EXCHANGE) continue;
        at[n] = (int32_t)l->n_items;
        more[n++] = item_of(ir, more[e].node, more[e].in_at, WN_DO_WAIT, moves++);
    }
    for (int32_t e = 0; e < late; e++) {
        at[n] = (int32_t)l->n_items;
        more[n++] = item_of(ir, first + e, effect_in[e], WN_DO_RUN, 0);
    }
    return n;
}

int32_t wn__lower_effects(const struct wn__ir *ir, const int32_t *effect_in, struct wn__list *l)
{
    struct wn__pool scratch = {0};
    int32_t *time, *at, code = WN_OOM;
    struct wn__item *more;
    struct times t;
    if (WN_ARRAY(&scratch, t.made, l->n_values) && WN_ARRAY(&scratch, t.read, ir->n_cells) &&
        WN_ARRAY(&scratch, time, ir->n_effects) && WN_ARRAY(&scratch, more, 2 * ir->n_effects) &&
        WN_ARRAY(&scratch, at, 2 * ir->n_effects)) {
        find_times(ir, l, &t);
        find_effect_times(ir, effect_in, l, &t, time);
        code = wn__list_insert(l, fill(ir, effect_in, time, l, more, at), more, at);
    }
    wn__pool_release(&scratch);
    return code;
}
