/* Makes exchanges of the states that are gathered from ranks: each starts before what reads it, and is waited for
 * there.
 *
 *   issued    gather a   run   run   gather b   run
 *   here      [a]   wait a   [b]   run   run   wait b   run        [x]: the exchange of x
 *
 * The next one starts as soon as the one before has been waited for, so that kernels hide it; with a budget of 0, right
 * before its wait, so that one such value at a time is in memory. Gathers keep the order in which they are issued,
 * which is the same on all ranks: they run one recipe. A range that is cast before it is gathered is cast where the
 * exchange starts. */
#include <string.h>
#include "lower.h"

static int32_t is_gather(const struct wn__ir *ir, const struct wn__item *it)
{
    return it->what == WN_DO_RUN && ir->node[it->node].op == WN_OP_ALL_GATHER;
}

/* Turns a gather into its wait. Fills *start with its start. */
static int32_t split(struct wn__list *l, struct wn__item *it, struct wn__item *start)
{
    it->move = l->n_moves++;
    *start = *it;
    start->what = WN_DO_EXCHANGE;
    return wn__list_wait(l, it);
}

/* Moves the item that makes the range which item i gathers to item `to`, before which it starts, if it is made behind
 * that. Returns the item that the exchange may start before. */
static int32_t bring_forward(struct wn__list *l, int32_t i, int32_t to)
{
    int32_t made = i - 1;
    while (made >= to && l->item[made].out != l->in[l->item[i].in_at]) made--;
    if (made < to) return to;
    const struct wn__item range = l->item[made];
    memmove(&l->item[to + 1], &l->item[to], (size_t)(made - to) * sizeof range);
    l->item[to] = range;
    return to + 1;
}

int32_t wn__lower_gathers(const struct wn__ir *ir, int32_t budget, struct wn__list *l)
{
    struct wn__pool scratch = {0};
    struct wn__item *more;
    int32_t *at, n = 0, before = 0, code = WN_OK;
    for (int64_t i = 0; i < l->n_items; i++) n += is_gather(ir, &l->item[i]);
    if (n == 0) return WN_OK;
    if (!WN_ARRAY(&scratch, more, n) || !WN_ARRAY(&scratch, at, n)) code = WN_OOM;
    n = 0;
    for (int32_t i = 0; i < l->n_items && code == WN_OK; i++) {
        if (!is_gather(ir, &l->item[i])) continue;
        at[n] = bring_forward(l, i, budget > 0 && before > 0 ? before : i);
        code = split(l, &l->item[i], &more[n++]);
        before = i + 1;
    }
    if (code == WN_OK) code = wn__list_insert(l, n, more, at);
    wn__pool_release(&scratch);
    return code;
}
