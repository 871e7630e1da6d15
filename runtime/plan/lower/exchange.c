/* Puts the exchanges among ranks into one order, that of their nodes, whatever the recipe: a rank that waits for one
 * exchange while another rank waits for the next would wait for ever, and each rank may have a recipe of its own.
 *
 *   issued    make a   make b   [b]   [a]   run   run            [x]: the exchange of x
 *   here      make a   [a]   make b   [b]   run   wait a   run   wait b
 *
 * An exchange starts as soon as its value is made and those before it have started. It is waited for once it has ended,
 * by the clock of the cost rules, so that what follows from it starts to move too; and before that when the next one
 * that starts would have more bytes under way than `budget` eighths of those of all exchanges; with 0, at once. So the
 * kernels behind a start hide it, and the effects that read what it brings come behind its wait. Waits need no common
 * order: a rank that waits for an exchange has started all before it. */
#include <string.h>
#include "lower.h"

struct exchanges {
    const struct wn__ir *ir;
    struct wn__list *l;
    struct wn__pool scratch;
    int64_t n;
    int32_t *item;         /* (n) their items, in the order of nodes */
    int32_t *start;        /* (n) the item that each starts before */
    int32_t *made;         /* (n_values) one past the item that makes each value */
    int32_t *left;         /* (n_items + 1) how many items that are no exchanges come before each */
    double *clock;         /* (n_items + 1) seconds before each item, but for waits */
    double *ends;          /* (n) the second at which each has ended */
    double late, lane;     /* seconds of waits so far; the second at which the link is free */
    struct wn__item *more; /* (2 n) starts and waits */
    int32_t *at, n_more;   /* (2 n) the item that each is put before */
};

static int32_t is_exchange(const struct wn__ir *ir, const struct wn__item *it)
{
    return it->what == WN_DO_RUN && (wn__ir_flags(ir, it->node) & WN_LINK) != 0;
}

/* Returns the seconds of an item that runs a node; 0 of others, and where they are not known. */
static double seconds_of(const struct wn__ir *ir, const struct wn__item *it)
{
    return it->what == WN_DO_RUN && !is_exchange(ir, it) && ir->seconds != NULL ? ir->seconds[it->node] : 0;
}

/* Fills the exchanges in the order of their nodes, and when values are made. */
static void find_exchanges(struct exchanges *x)
{
    const struct wn__list *l = x->l;
    int64_t n = 0;
    for (int64_t i = 0; i < l->n_items; i++) {
        x->left[i] = (int32_t)(i - n);
        x->clock[i + 1] = x->clock[i] + seconds_of(x->ir, &l->item[i]);
        if (l->item[i].out >= 0) x->made[l->item[i].out] = (int32_t)i + 1;
        if (l->item[i].what == WN_DO_WAIT) x->made[l->in[l->item[i].in_at + 1]] = (int32_t)i + 1;
        if (!is_exchange(x->ir, &l->item[i])) continue;
        int64_t k = n++;
        for (; k > 0 && l->item[x->item[k - 1]].node > l->item[i].node; k--) x->item[k] = x->item[k - 1];
        x->item[k] = (int32_t)i;
    }
    x->left[l->n_items] = (int32_t)(l->n_items - n);
}

/* Fills where each may start: in the backward, behind its value and the ones before it. */
static void find_starts(struct exchanges *x)
{
    const struct wn__list *l = x->l;
    int32_t from = 0;
    while (from < l->n_items && l->item[from].phase == WN_PHASE_FORWARD) from++;
    for (int64_t k = 0; k < x->n; k++) {
        const struct wn__item *it = &l->item[x->item[k]];
        for (int32_t i = 0; i < it->n_in; i++)
            if (x->made[l->in[it->in_at + i]] > from) from = x->made[l->in[it->in_at + i]];
        x->start[k] = from;
    }
}

/* Returns the bytes that exchange k holds while it is under way: its value, and what all ranks give. */
static int64_t bytes_of(const struct exchanges *x, int64_t k)
{
    const struct wn__list *l = x->l;
    const struct wn__item *it = &l->item[x->item[k]];
    int64_t bytes = wn__value_bytes(x->ir, &l->value[it->out]);
    for (int32_t i = 0; i < it->n_in; i++) bytes += wn__value_bytes(x->ir, &l->value[l->in[it->in_at + i]]);
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
    if (what == WN_DO_EXCHANGE) return WN_OK;
    int32_t source = it->n_in > 0 ? l->in[it->in_at] : it->out, target = it->out;
    it->out = -1;
    it->n_in = 2;
    it->in_at = wn__list_inputs(l, 2);
    if (it->in_at < 0) return WN_OOM;
    l->in[it->in_at] = source;
    l->in[it->in_at + 1] = target;
    return WN_OK;
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

/* Puts the start of exchange k. */
static int32_t start(struct exchanges *x, int64_t k)
{
    double now = x->clock[x->start[k]] + x->late, seconds = 0;
    if (x->ir->seconds != NULL) seconds = x->ir->seconds[x->l->item[x->item[k]].node];
    x->lane = x->ends[k] = (x->lane > now ? x->lane : now) + seconds;
    return put(x, k, WN_DO_EXCHANGE, x->start[k]);
}

/* Puts the wait of exchange k before item `at`. The ranges that follow from it take the link for as long again. */
static int32_t wait(struct exchanges *x, int64_t k, int32_t at)
{
    double now = x->clock[at] + x->late;
    if (x->ends[k] > now) x->late += x->ends[k] - now;
    if (x->ir->seconds != NULL) x->lane += x->ir->seconds[x->l->item[x->item[k]].node];
    return put(x, k, WN_DO_WAIT, at);
}

/* Puts all starts and waits, in their order. */
static int32_t put_all(struct exchanges *x, int32_t budget)
{
    int64_t all = 0, under_way = 0, first = 0;
    int32_t before = 0; /* the item that the last one is put before */
    for (int64_t i = 0; i < x->n; i++) all += bytes_of(x, i);
    for (int64_t k = 0; k <= x->n; k++) {
        int32_t next = k < x->n ? x->start[k] : (int32_t)x->l->n_items;
        for (; first < k; first++) {
            int32_t ended = item_at(x, x->ends[first], before);
            int32_t is_full = k < x->n && under_way + bytes_of(x, k) > all / 8 * budget;
            if (ended > next && !is_full && k < x->n) break;
            before = ended < next ? ended : next;
            WN_TRY(wait(x, first, before));
            under_way -= bytes_of(x, first);
        }
        if (k == x->n) break;
        WN_TRY(start(x, k));
        before = next;
        under_way += bytes_of(x, k);
        if (budget == 0) WN_TRY(wait(x, first++, next));
    }
    return WN_OK;
}

/* Takes the exchanges out of the list, and puts their starts and waits in. */
static int32_t rebuild(struct exchanges *x)
{
    struct wn__list *l = x->l;
    int64_t n = 0;
    for (int64_t i = 0; i < l->n_items; i++)
        if (!is_exchange(x->ir, &l->item[i])) l->item[n++] = l->item[i];
    l->n_items = n;
    l->n_moves += (int32_t)x->n;
    return wn__list_insert(l, x->n_more, x->more, x->at);
}

int32_t wn__lower_exchanges(const struct wn__ir *ir, int32_t budget, struct wn__list *l)
{
    struct exchanges x = {.ir = ir, .l = l};
    int32_t code = WN_OOM;
    for (int64_t i = 0; i < l->n_items; i++) x.n += is_exchange(ir, &l->item[i]);
    if (x.n == 0) return WN_OK;
    if (WN_ARRAY(&x.scratch, x.item, x.n) && WN_ARRAY(&x.scratch, x.start, x.n) &&
        WN_ARRAY(&x.scratch, x.made, l->n_values) && WN_ARRAY(&x.scratch, x.left, l->n_items + 1) &&
        WN_ARRAY(&x.scratch, x.clock, l->n_items + 1) && WN_ARRAY(&x.scratch, x.ends, x.n) &&
        WN_ARRAY(&x.scratch, x.more, 2 * x.n) && WN_ARRAY(&x.scratch, x.at, 2 * x.n)) {
        find_exchanges(&x);
        find_starts(&x);
        code = put_all(&x, budget);
    }
    if (code == WN_OK) code = rebuild(&x);
    wn__pool_release(&x.scratch);
    return code;
}
