/* Puts the exchanges among ranks into one order, that of their nodes, whatever the recipe: a rank that waits for one
 * exchange while another rank waits for the next would wait for ever, and each rank may have a recipe of its own. An
 * exchange that comes too early waits for those before it; none is moved to an earlier place.
 *
 *   nodes issued    17   [23]   18   [22]   19   [24]          [n]: an exchange
 *   here            17    18   [22]  [23]   19   [24] */
#include <string.h>
#include "lower.h"

static int32_t is_exchange(const struct wn__ir *ir, const struct wn__item *it)
{
    return it->what == WN_DO_RUN && (wn__ir_flags(ir, it->node) & WN_LINK) != 0;
}

/* Returns how many exchanges are held whose turn it is, and appends them. held: (n_held) in the order of nodes; turn:
 * (n) the exchanges of the list in the order of nodes. */
static int64_t append_due(struct wn__item *held, int64_t n_held, const int32_t *turn, struct wn__item *out)
{
    int64_t n = 0;
    while (n < n_held && held[n].node == turn[n]) n++;
    memcpy(out, held, (size_t)n * sizeof *held);
    memmove(held, held + n, (size_t)(n_held - n) * sizeof *held);
    return n;
}

/* Puts an item among those that are held. */
static void hold(struct wn__item *held, int64_t n_held, const struct wn__item *it)
{
    int64_t k = n_held;
    for (; k > 0 && held[k - 1].node > it->node; k--) held[k] = held[k - 1];
    held[k] = *it;
}

/* Fills turn with the exchanges of a list in the order of their nodes. Returns their number. */
static int64_t find_turns(const struct wn__ir *ir, const struct wn__list *l, int32_t *turn)
{
    int64_t n = 0;
    for (int64_t i = 0; i < l->n_items; i++) {
        int64_t k = n;
        if (!is_exchange(ir, &l->item[i])) continue;
        for (; k > 0 && turn[k - 1] > l->item[i].node; k--) turn[k] = turn[k - 1];
        turn[k] = l->item[i].node;
        n++;
    }
    return n;
}

int32_t wn__lower_exchanges(const struct wn__ir *ir, struct wn__list *l)
{
    struct wn__pool scratch = {0};
    struct wn__item *held, *out;
    int32_t *turn;
    int64_t n_held = 0, n_out = 0, at = 0, n = 0;
    for (int64_t i = 0; i < l->n_items; i++) n += is_exchange(ir, &l->item[i]);
    if (n < 2) return WN_OK;
    if (!WN_ARRAY(&scratch, held, n) || !WN_ARRAY(&scratch, turn, n) || !WN_ARRAY(&scratch, out, l->n_items)) {
        wn__pool_release(&scratch);
        return WN_OOM;
    }
    find_turns(ir, l, turn);
    for (int64_t i = 0; i < l->n_items; i++) {
        if (!is_exchange(ir, &l->item[i])) {
            out[n_out++] = l->item[i];
            continue;
        }
        hold(held, n_held++, &l->item[i]);
        int64_t due = append_due(held, n_held, turn + at, out + n_out);
        n_held -= due;
        n_out += due;
        at += due;
    }
    memcpy(l->item, out, (size_t)n_out * sizeof *out);
    wn__pool_release(&scratch);
    return WN_OK;
}
