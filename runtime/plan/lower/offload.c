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

int32_t wn__lower_departures(const int32_t *block_of, const struct wn__departures *d, struct wn__list *l)
{
    struct wn__pool scratch = {0};
    struct wn__item *more;
    int32_t *at, n = 0, written = 0;
    int32_t is_there = WN_ARRAY(&scratch, more, 2 * d->n) && WN_ARRAY(&scratch, at, 2 * d->n);
    for (int64_t k = 0; is_there && k < d->n && written >= 0; k++) {
        if (!d->departure[k].is_used) continue;
        written = write_departure(block_of, &d->departure[k], l, more + n);
        for (int32_t i = 0; i < written; i++) at[n++] = (int32_t)d->departure[k].after + 1;
    }
    int32_t code = is_there && written >= 0 ? wn__list_insert(l, n, more, at) : WN_OOM;
    wn__pool_release(&scratch);
    return code;
}
