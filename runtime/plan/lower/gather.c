/* Makes exchanges of the states that are gathered from ranks: each starts before what reads it, and is waited for
 * there.
 *
 *   issued    gather a   run   run   gather b   run
 *   here      [a]   wait a   [b]   run   run   wait b   run        [x]: the exchange of x
 *
 * The next one starts as soon as the one before has been waited for, so that kernels hide it; with a budget of 0, right
 * before its wait, so that one such value at a time is in memory. Gathers keep the order in which they are issued,
 * which is the same on all ranks: they run one recipe. */
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
        code = split(l, &l->item[i], &more[n]);
        at[n++] = budget > 0 && before > 0 ? before : i;
        before = i + 1;
    }
    if (code == WN_OK) code = wn__list_insert(l, n, more, at);
    wn__pool_release(&scratch);
    return code;
}
