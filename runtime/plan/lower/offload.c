/* Offload insertion: puts the instructions that pack or offload kept values into the list, each behind the last item
 * that uses the value. A departure that nothing brings back gets none. A transfer is put in with its wait right
 * behind it, so that the list is right as it is; prefetch.c then moves the two apart. */
#include "../recipe/action.h"
#include "lower.h"

/* Writes the items of one departure, one or two, to `out` and returns how many. -1: WN_OOM. */
static int32_t write_departure(const int32_t *block_of, const struct wn__departure *d, struct wn__list *l,
                               struct wn__item *out)
{
    const struct wn__item *before = &l->item[d->after];
    int32_t node = l->value[d->value].node, moves = wn__action_medium(l->value[d->kept].action) >= 0;
    int32_t in_at = wn__list_inputs(l, 1 + moves);
    if (in_at < 0) return -1;
    *out = (struct wn__item){.what = moves ? WN_DO_OFFLOAD : WN_DO_PACK,
                             .node = node,
                             .phase = before->phase == WN_PHASE_FORWARD ? WN_PHASE_FORWARD : WN_PHASE_RECOMPUTE,
                             .block = block_of[node],
                             .step = before->step,
                             .out = d->kept,
                             .in_at = in_at,
                             .n_in = 1};
    l->in[in_at] = d->value;
    if (!moves) return 1;
    l->in[in_at + 1] = d->kept;
    out[0].move = l->n_moves++;
    out[1] = out[0];
    out[1].what = WN_DO_WAIT;
    out[1].out = -1;
    out[1].n_in = 2;
    return 2;
}

/* Threads the departures that are used by the item that they follow: head: (n_items), next: (d->n); -1 ends a list. */
static void thread_departures(const struct wn__departures *d, int64_t n_items, int64_t *head, int64_t *next)
{
    for (int64_t i = 0; i < n_items; i++) head[i] = -1;
    for (int64_t k = d->n - 1; k >= 0; k--) {
        if (!d->departure[k].is_used) continue;
        next[k] = head[d->departure[k].after];
        head[d->departure[k].after] = k;
    }
}

int32_t wn__lower_departures(const int32_t *block_of, const struct wn__departures *d, struct wn__list *l)
{
    int64_t n = 0, before = l->n_items, most = before + 2 * d->n + 1;
    if (d->n == 0) return WN_OK;
    int64_t *head = wn__alloc((before + d->n + 1) * (int64_t)sizeof *head), *next = head + before;
    struct wn__item *merged = wn__alloc(most * (int64_t)sizeof *merged);
    int32_t code = head != NULL && merged != NULL ? WN_OK : WN_OOM;
    if (code == WN_OK) thread_departures(d, before, head, next);
    for (int64_t i = 0; i < before && code == WN_OK; i++) {
        merged[n++] = l->item[i];
        for (int64_t k = head[i]; k >= 0 && code == WN_OK; k = next[k]) {
            int32_t written = write_departure(block_of, &d->departure[k], l, merged + n);
            code = written < 0 ? WN_OOM : WN_OK;
            n += written;
        }
    }
    wn__free(head);
    if (code == WN_OK) wn__list_take_items(l, merged, n, most);
    else wn__free(merged);
    return code;
}
