/* Puts the exchanges among ranks into one order, that of their nodes, whatever the recipe: a rank that waits for one
 * exchange while another rank waits for the next would wait for ever, and each rank may have a recipe of its own.
 *
 *   issued    make a   make b   [b]   [a]   run   run            [x]: the exchange of x
 *   here      make a   [a]   make b   [b]   run   wait a   run   wait b
 *
 * An exchange starts as soon as its value is made and those before it have started. Consecutive ones start together, as
 * a group, until they are `group` bytes: the link takes a while to start, and takes several at once. A group starts as
 * soon as the last of its values is made. It is waited for once it has ended,
 * by the clock of the cost rules, so that what follows from it starts to move too; and before that when the next one
 * that starts would have more bytes under way than `budget` eighths of those of all exchanges; with 0, at once. So the
 * kernels behind a start hide it, and the effects that read what it brings come behind its wait. So does the partial
 * sum of a team, from which an exchange across teams goes on: that one starts once the first has ended. Waits need no
 * common order: a rank that waits for an exchange has started all before it. */
#include <string.h>
#include "../ir/costs.h"
#include "lower.h"

struct exchanges {
    const struct wn__ir *ir;
    struct wn__list *l;
    struct wn__pool scratch;
    int64_t n;
    int32_t *item;         /* (n) their items, in the order of nodes */
    int32_t *reader;       /* (n) the items of the partial sums that read what each brings; -1: none does */
    int32_t *after;        /* (n) the exchange that each one goes on from, by such a sum; -1: none */
    int32_t *start;        /* (n) the item that each starts before, or a later one */
    int32_t *end;          /* (n) of the first of a group: one past its last; start and after are of all of it then */
    int32_t *made;         /* (n_values) one past the item that makes each value */
    int32_t *from;         /* (n_values) one past the exchange that brings each value, or what it is the sum of */
    int32_t *left;         /* (n_items + 1) how many items that stay where they are come before each */
    double *clock;         /* (n_items + 1) seconds before each item, of those that stay */
    double *ends;          /* (n) the second at which each has ended, with its group */
    int32_t has_gathers;   /* 1: states are gathered among them */
    double late, lane;     /* seconds of waits so far; the second at which the link is free */
    struct wn__item *more; /* (3 n) starts, waits and partial sums */
    int32_t *at, n_more;   /* (3 n) the item that each is put before */
};

static int32_t is_exchange(const struct wn__ir *ir, const struct wn__item *it)
{
    return it->what == WN_DO_RUN && (wn__ir_flags(ir, it->node) & WN_LINK) != 0 &&
           ir->node[it->node].op != WN_OP_ALL_GATHER;
}

static int32_t is_partial_sum(const struct wn__ir *ir, const struct wn__item *it)
{
    return it->what == WN_DO_RUN && ir->node[it->node].op == WN_OP_PARTIAL_SUM;
}

/* Returns the seconds of an item that runs a node; 0 of others, and where they are not known. */
static double seconds_of(const struct wn__ir *ir, const struct wn__item *it)
{
    return it->what == WN_DO_RUN && ir->seconds != NULL ? ir->seconds[it->node] : 0;
}

/* Fills the exchanges in the order of their nodes, and when the values of what stays are made. */
static void find_exchanges(struct exchanges *x)
{
    const struct wn__list *l = x->l;
    int64_t n = 0, moved = 0;
    for (int64_t i = 0; i < l->n_items; i++) {
        const struct wn__item *it = &l->item[i];
        int32_t stays = !is_exchange(x->ir, it) && !is_partial_sum(x->ir, it);
        x->left[i] = (int32_t)(i - moved);
        x->clock[i + 1] = x->clock[i] + (stays ? seconds_of(x->ir, it) : 0);
        moved += !stays;
        if (stays && it->out >= 0) x->made[it->out] = (int32_t)i + 1;
        if (it->what == WN_DO_WAIT) x->made[l->in[it->in_at + 1]] = (int32_t)i + 1;
        if (!is_exchange(x->ir, it)) continue;
        int64_t k = n++;
        for (; k > 0 && l->item[x->item[k - 1]].node > it->node; k--) x->item[k] = x->item[k - 1];
        x->item[k] = (int32_t)i;
    }
    x->left[l->n_items] = (int32_t)(l->n_items - moved);
}

/* Fills which partial sum reads what each exchange brings, and which exchange goes on from such a sum. */
static void find_readers(struct exchanges *x)
{
    const struct wn__list *l = x->l;
    for (int32_t k = 0; k < x->n; k++) {
        x->reader[k] = x->after[k] = -1;
        x->from[l->item[x->item[k]].out] = k + 1;
    }
    for (int32_t i = 0; i < l->n_items; i++) {
        const struct wn__item *it = &l->item[i];
        if (!is_partial_sum(x->ir, it)) continue;
        int32_t k = x->from[l->in[it->in_at]] - 1;
        x->reader[k] = i;
        x->from[it->out] = k + 1;
    }
    for (int32_t k = 0; k < x->n; k++) {
        const struct wn__item *it = &l->item[x->item[k]];
        if (it->n_in > 0) x->after[k] = x->from[l->in[it->in_at]] - 1;
    }
}

/* Fills where each may start: in the backward, behind its value. */
static void find_starts(struct exchanges *x)
{
    const struct wn__list *l = x->l;
    int32_t from = 0;
    while (from < l->n_items && l->item[from].phase == WN_PHASE_FORWARD) from++;
    for (int64_t k = 0; k < x->n; k++) {
        const struct wn__item *it = &l->item[x->item[k]];
        x->start[k] = from;
        for (int32_t i = 0; i < it->n_in; i++)
            if (x->made[l->in[it->in_at + i]] > x->start[k]) x->start[k] = x->made[l->in[it->in_at + i]];
    }
}

static const struct wn__ir_node *node_of(const struct exchanges *x, int64_t k)
{
    return &x->ir->node[x->l->item[x->item[k]].node];
}

/* Cuts the exchanges into groups: of the same ranks, until they are `group` bytes, and none goes on from another one of
 * its group. */
static void find_groups(struct exchanges *x, int64_t group)
{
    for (int32_t k = 0, next; k < x->n; k = next) {
        int64_t bytes = 0;
        for (next = k; next < x->n && (next == k || bytes < group); next++) {
            if (node_of(x, next)->attrs.i[WN_RANKS_GROUP] != node_of(x, k)->attrs.i[WN_RANKS_GROUP]) break;
            if (next > k && x->after[next] >= k) break;
            bytes += wn__exchange_bytes(x->ir, x->l->item[x->item[next]].node);
            if (x->start[next] > x->start[k]) x->start[k] = x->start[next];
            if (x->after[next] > x->after[k]) x->after[k] = x->after[next];
        }
        x->end[k] = next;
    }
}

/* Returns the bytes that the group of exchange k holds while it is under way: values, and what all ranks give. */
static int64_t bytes_of(const struct exchanges *x, int64_t first)
{
    const struct wn__list *l = x->l;
    int64_t bytes = 0;
    for (int64_t k = first; k < x->end[first]; k++) {
        const struct wn__item *it = &l->item[x->item[k]];
        bytes += wn__value_bytes(x->ir, &l->value[it->out]);
        for (int32_t i = 0; i < it->n_in; i++) bytes += wn__value_bytes(x->ir, &l->value[l->in[it->in_at + i]]);
    }
    return bytes;
}

/* Puts the start of exchange k, or its wait, before item `at`. */
static int32_t put(struct exchanges *x, int64_t k, int32_t what, int32_t at)
{
    struct wn__list *l = x->l;
    struct wn__item *it = &x->more[x->n_more];
    *it = l->item[x->item[k]];
    it->what = what;
    it->move = l->n_moves + (int32_t)k;
    x->at[x->n_more++] = x->left[at];
    return what == WN_DO_WAIT ? wn__list_wait(l, it) : WN_OK;
}

/* Returns the first item, from `from` on, before which second t has come; n_items: the end. */
static int32_t item_at(const struct exchanges *x, double t, int32_t from)
{
    int32_t to = (int32_t)x->l->n_items;
    while (from < to) {
        int32_t middle = from + (to - from) / 2;
        if (x->clock[middle] + x->late >= t) to = middle;
        else from = middle + 1;
    }
    return from;
}

/* Returns the seconds that exchange k of a group takes on the link. */
static double takes(const struct exchanges *x, int64_t first, int64_t k)
{
    return seconds_of(x->ir, &x->l->item[x->item[k]]) - (k > first ? wn__exchange_start_seconds() : 0);
}

/* Puts the starts of the group of exchange k before item `at`. */
static int32_t start(struct exchanges *x, int64_t first, int32_t at)
{
    double now = x->clock[at] + x->late;
    if (x->lane < now) x->lane = now;
    for (int64_t k = first; k < x->end[first]; k++) x->lane += takes(x, first, k);
    for (int64_t k = first; k < x->end[first]; k++) {
        x->ends[k] = x->lane;
        WN_TRY(put(x, k, WN_DO_EXCHANGE, at));
    }
    return WN_OK;
}

/* Puts the waits of the group of exchange k before item `at`, and the partial sums that read it behind them. The ranges
 * that follow from a sum of all take the link for as long again. */
static int32_t wait(struct exchanges *x, int64_t first, int32_t at)
{
    const struct wn__list *l = x->l;
    double now = x->clock[at] + x->late;
    if (x->ends[first] > now) x->late += x->ends[first] - now;
    for (int64_t k = first; k < x->end[first]; k++) {
        WN_TRY(put(x, k, WN_DO_WAIT, at));
        if (x->reader[k] < 0) x->lane += takes(x, first, k);
        if (x->reader[k] < 0) continue;
        x->late += seconds_of(x->ir, &l->item[x->reader[k]]);
        x->at[x->n_more] = x->left[at];
        x->more[x->n_more++] = l->item[x->reader[k]];
    }
    return WN_OK;
}

/* Returns the item before which the group of exchange k goes on from exchange `after`: once that has ended, by the
 * clock. Where states are gathered, whose order among the exchanges is one on all ranks and no rank's clock decides it:
 * once the next value is made. */
static int32_t goes_on_at(const struct exchanges *x, int64_t k, int32_t after, int32_t from)
{
    if (!x->has_gathers) return item_at(x, x->ends[after], from);
    return x->end[k] < x->n ? x->start[x->end[k]] : (int32_t)x->l->n_items;
}

/* Puts all starts and waits, group by group. */
static int32_t put_all(struct exchanges *x, int32_t budget)
{
    int64_t all = 0, under_way = 0, first = 0;
    int32_t before = 0; /* the item that the last one is put before */
    for (int64_t i = 0; i < x->n; i = x->end[i]) all += bytes_of(x, i);
    for (int64_t k = 0; k <= x->n; k = x->end[k]) {
        int32_t next = k < x->n ? x->start[k] : (int32_t)x->l->n_items, after = k < x->n ? x->after[k] : -1;
        if (next < before) next = before;
        if (after >= first) { /* not before that one has ended */
            int32_t ended = goes_on_at(x, k, after, before);
            if (ended > next) next = ended;
        }
        for (; first < k; first = x->end[first]) {
            int32_t ended = item_at(x, x->ends[first], before);
            int32_t is_full = k < x->n && under_way + bytes_of(x, k) > all / 8 * budget;
            if (ended > next && !is_full && k < x->n && first > after) break;
            before = ended < next ? ended : next;
            WN_TRY(wait(x, first, before));
            under_way -= bytes_of(x, first);
        }
        if (k == x->n) break;
        WN_TRY(start(x, k, next));
        before = next;
        under_way += bytes_of(x, k);
        if (budget > 0) continue;
        WN_TRY(wait(x, first, next));
        first = x->end[first];
    }
    return WN_OK;
}

/* Takes the exchanges out of the list, and puts their starts and waits in. */
static int32_t rebuild(struct exchanges *x)
{
    struct wn__list *l = x->l;
    int64_t n = 0;
    for (int64_t i = 0; i < l->n_items; i++)
        if (!is_exchange(x->ir, &l->item[i]) && !is_partial_sum(x->ir, &l->item[i])) l->item[n++] = l->item[i];
    l->n_items = n;
    l->n_moves += (int32_t)x->n;
    return wn__list_insert(l, x->n_more, x->more, x->at);
}

int32_t wn__lower_exchanges(const struct wn__ir *ir, int32_t budget, int64_t group, struct wn__list *l)
{
    struct exchanges x = {.ir = ir, .l = l};
    int32_t code = WN_OOM;
    for (int64_t i = 0; i < l->n_items; i++) x.n += is_exchange(ir, &l->item[i]);
    if (x.n == 0) return WN_OK;
    x.has_gathers = wn__ir_gathers(ir) > 0;
    if (WN_ARRAY(&x.scratch, x.item, x.n) && WN_ARRAY(&x.scratch, x.reader, x.n) &&
        WN_ARRAY(&x.scratch, x.after, x.n) && WN_ARRAY(&x.scratch, x.start, x.n) &&
        WN_ARRAY(&x.scratch, x.made, l->n_values) && WN_ARRAY(&x.scratch, x.from, l->n_values) &&
        WN_ARRAY(&x.scratch, x.left, l->n_items + 1) && WN_ARRAY(&x.scratch, x.clock, l->n_items + 1) &&
        WN_ARRAY(&x.scratch, x.ends, x.n) && WN_ARRAY(&x.scratch, x.end, x.n) &&
        WN_ARRAY(&x.scratch, x.more, 3 * x.n) && WN_ARRAY(&x.scratch, x.at, 3 * x.n)) {
        find_exchanges(&x);
        find_readers(&x);
        find_starts(&x);
        find_groups(&x, group);
        code = put_all(&x, budget);
    }
    if (code == WN_OK) code = rebuild(&x);
    wn__pool_release(&x.scratch);
    return code;
}
