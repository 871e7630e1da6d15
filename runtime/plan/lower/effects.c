/* Puts every effect into the list as early as it may be: its inputs are made, and every read of the old version of the
 * states that it writes has been issued (tied uses, values computed again, the gradient of the input). Early, so that a
 * gradient that an optimizer consumes dies at once.
 *
 * An exchange of states, REFRESH, starts where it may, in a group as exchanges of values do (exchange.c), and is
 * waited for at the end: nothing here reads what it brings. Where devices have a link of their own, on which all
 * exchanges have one order on all ranks, those start at the end, in the order of what they read: when they may start
 * depends on the plan, and each rank has its own. One inside of a team, which hands on what one across teams brings,
 * starts there, behind the wait of that. Effects of forward values come behind both: until then ranks may find that one
 * of them has failed.
 *
 * Else effects of forward values wait for the first effect that changes a state, or for the end where there is none:
 * what stops a run before that, ^C or a failure, leaves every state as it was. They keep the order of recording. */
#include "../ir/costs.h"
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

/* Holds what is put into a list. */
struct additions {
    const struct wn__ir *ir;
    const int32_t *effect_in;
    struct wn__list *l;
    struct wn__item *more;
    int32_t *at, n;        /* (n) the item that each is put before */
    int32_t *order, *move; /* (n_effects) effects by their times; the move of each that exchanges states */
    int32_t *read_by;      /* (n of the IR) one past the exchange of states that reads each node; 0: none does */
};

/* Tells whether an effect exchanges states: across teams, or inside of one behind that. */
static int32_t is_exchange(const struct wn__ir *ir, int32_t node, int32_t is_inside)
{
    const struct wn__ir_node *p = &ir->node[node];
    return (wn__ir_flags(ir, node) & WN_LINK) != 0 && is_inside == (p->attrs.i[WN_RANKS_GROUP] == WN_GROUP_TEAM);
}

static void put(struct additions *a, int32_t effect, int32_t what, int32_t move, int32_t at)
{
    int32_t first = a->ir->n - a->ir->n_effects;
    a->at[a->n] = at;
    a->more[a->n++] = item_of(a->ir, first + effect, a->effect_in[effect], what, move);
}

/* Fills order: (n) effects from `late` on by their times; those of one time keep their order. */
static void sort_by_time(const int32_t *time, int32_t late, int32_t n, int32_t *order)
{
    for (int32_t e = late; e < late + n; e++) {
        int32_t k = e - late;
        for (; k > 0 && time[order[k - 1]] > time[e]; k--) order[k] = order[k - 1];
        order[k] = e;
    }
}

/* Puts effects from `late` on at their times. Those that exchange states start together, as a group, until they are
 * `group` bytes. */
static void put_in_time(struct additions *a, const int32_t *time, int32_t late, int64_t group)
{
    const struct wn__ir *ir = a->ir;
    int32_t first = ir->n - ir->n_effects, n = ir->n_effects - late;
    int32_t waiting = 0;
    int64_t bytes = 0;
    sort_by_time(time, late, n, a->order);
    for (int32_t k = 0, due = 0; k < n; k++) {
        int32_t e = a->order[k];
        if ((wn__ir_flags(ir, first + e) & WN_LINK) == 0) put(a, e, WN_DO_RUN, 0, time[e]);
        if (is_exchange(ir, first + e, 0) && !ir->target->has_link) {
            bytes += wn__exchange_bytes(ir, first + e);
            waiting++;
        }
        if (waiting == 0 || (bytes < group && k + 1 < n)) continue;
        for (; due <= k; due++) {
            if (!is_exchange(ir, first + a->order[due], 0)) continue;
            a->move[a->order[due]] = a->l->n_moves++;
            put(a, a->order[due], WN_DO_EXCHANGE, a->move[a->order[due]], time[e]);
        }
        bytes = waiting = 0;
    }
}

/* Puts the exchanges of states across teams at the end, in the order of the nodes that they read. */
static void put_in_one_order(struct additions *a, int32_t late)
{
    const struct wn__ir *ir = a->ir;
    int32_t first = ir->n - ir->n_effects, end = (int32_t)a->l->n_items;
    for (int32_t e = late; e < ir->n_effects; e++)
        if (is_exchange(ir, first + e, 0)) a->read_by[wn__ir_in(ir, first + e, 0)] = e + 1;
    for (int32_t i = 0; i < ir->n; i++) {
        if (a->read_by[i] == 0) continue;
        a->move[a->read_by[i] - 1] = a->l->n_moves;
        put(a, a->read_by[i] - 1, WN_DO_EXCHANGE, a->l->n_moves++, end);
    }
}

/* Puts effects at their times, which start exchanges where they are ones; at the end the waits of those, each with the
 * start of the one behind it, and the waits of these; then late effects, those of forward values among ranks. */
static void put_all(struct additions *a, const int32_t *time, int64_t group)
{
    const struct wn__ir *ir = a->ir;
    int32_t first = ir->n - ir->n_effects, end = (int32_t)a->l->n_items, inside, late = 0;
    while (late < ir->n_effects && time[late] == end && wn__is_forward_effect(ir, first + late)) late++;
    put_in_time(a, time, late, group);
    if (ir->target->has_link) put_in_one_order(a, late);
    inside = a->l->n_moves;
    for (int32_t e = late; e < ir->n_effects; e++) {
        if (is_exchange(ir, first + e, 0)) put(a, e, WN_DO_WAIT, a->move[e], end);
        if (is_exchange(ir, first + e, 1)) put(a, e, WN_DO_EXCHANGE, a->l->n_moves++, end);
    }
    for (int32_t e = late; e < ir->n_effects; e++)
        if (is_exchange(ir, first + e, 1)) put(a, e, WN_DO_WAIT, inside++, end);
    for (int32_t e = 0; e < late; e++) put(a, e, WN_DO_RUN, 0, end);
}

int32_t wn__lower_effects(const struct wn__ir *ir, const int32_t *effect_in, int64_t group, struct wn__list *l)
{
    struct wn__pool scratch = {0};
    struct additions a = {.ir = ir, .effect_in = effect_in, .l = l};
    int32_t *time, code = WN_OOM;
    struct times t;
    if (WN_ARRAY(&scratch, t.made, l->n_values) && WN_ARRAY(&scratch, t.read, ir->n_cells) &&
        WN_ARRAY(&scratch, time, ir->n_effects) && WN_ARRAY(&scratch, a.more, 2 * ir->n_effects) &&
        WN_ARRAY(&scratch, a.at, 2 * ir->n_effects) && WN_ARRAY(&scratch, a.order, ir->n_effects) &&
        WN_ARRAY(&scratch, a.move, ir->n_effects) && WN_ARRAY(&scratch, a.read_by, ir->n)) {
        find_times(ir, l, &t);
        find_effect_times(ir, effect_in, l, &t, time);
        put_all(&a, time, group);
        code = wn__list_insert(l, a.n, a.more, a.at);
    }
    wn__pool_release(&scratch);
    return code;
}
