/* What is kept with an action leaves after its last forward reader, and comes back right before what reads it next, as a
 * value of its own; then it stays until its last reader, like what is computed again. What left and is never asked for
 * again never left: so nothing is packed in vain.
 *
 * Moves are put in plainly here, each waited for at once, so that the list is right as it stands; prefetch.c then gives
 * them time. */
#include "../recipe/action.h"
#include "lower.h"

/* Returns the action that a node's value is kept with now; 0: none. */
static int32_t action_by(const struct wn__lowering *l, int32_t node)
{
    return l->kept[node] < 0 ? 0 : l->value[l->kept[node]].action;
}

int32_t wn__lower_comes_back(const struct wn__lowering *l, int32_t node)
{
    return action_by(l, node) != 0 && !wn__action_is_partial(action_by(l, node));
}

int32_t wn__lower_has_part(const struct wn__lowering *l, int32_t node, int32_t k)
{
    int32_t v = wn__ir_storage(l->f, wn__ir_in(l->f, node, k));
    return wn__action_is_partial(action_by(l, v)) && wn__ir_reads_sign(l->f, node, k);
}

void wn__lower_kept(struct wn__lowering *l, int32_t node, int32_t action)
{
    if (l->action[node] == 0) l->leaving[l->n_leaving++] = node;
    l->action[node] = action;
}

void wn__lower_forgotten(struct wn__lowering *l, int32_t node)
{
    l->cur[node] = l->kept[node] = l->part[node] = -1;
}

/* Makes the value in use its kept form. What came back and is let go once more has its kept form still. */
static void leave(struct wn__lowering *l, int32_t node, int32_t action)
{
    int32_t value = l->cur[node];
    if (value < 0) return;
    l->cur[node] = -1;
    if (l->kept[node] >= 0) return;
    l->kept[node] = wn__lower_value(l, node, action);
    if (l->code == WN_OK)
        l->code = wn__grow(&l->departure, &l->departure_capacity, l->n_departures + 1, sizeof *l->departure);
    if (l->code != WN_OK) return;
    l->departure[l->n_departures++] =
        (struct wn__departure){.after = l->used[value], .value = value, .kept = l->kept[node]};
}

void wn__lower_leave(struct wn__lowering *l, int32_t limit)
{
    int32_t n = 0;
    for (int32_t i = 0; i < l->n_leaving; i++) {
        int32_t node = l->leaving[i];
        if (l->r->last[node] >= limit) {
            l->leaving[n++] = node;
            continue;
        }
        leave(l, node, l->action[node]);
        l->action[node] = 0;
    }
    l->n_leaving = n;
}

void wn__lower_return(struct wn__lowering *l, int32_t node)
{
    int32_t kept = l->kept[node], value = wn__lower_value(l, node, 0);
    int32_t moves = l->code == WN_OK && wn__action_place(l->value[kept].action) >= 0;
    struct wn__item *it = wn__lower_item(l, moves ? WN_DO_FETCH : WN_DO_UNPACK, node, value, 1);
    if (it == NULL) return;
    l->in[it->in_at] = kept;
    if (moves) {
        it->move = l->n_moves++;
        it = wn__lower_item(l, WN_DO_WAIT, node, -1, 2);
        if (it == NULL) return;
        it->move = l->n_moves - 1;
        l->in[it->in_at] = kept;
        l->in[it->in_at + 1] = value;
    }
    l->used[kept] = l->used[value] = l->n_items - 1;
    l->value[value].back = l->value[kept].action;
    *(wn__lower_comes_back(l, node) ? &l->cur[node] : &l->part[node]) = value;
    for (int64_t d = l->n_departures - 1; d >= 0; d--)
        if (l->departure[d].kept == kept) {
            l->departure[d].is_used = 1;
            return;
        }
}

/* ---- into the list ----------------------------------------------------------------------------------------------- */

static int32_t put_departure(struct wn__lowering *l, const struct wn__departure *d, struct wn__item *out, int64_t *n)
{
    const struct wn__item *before = &l->item[d->after];
    int32_t node = l->value[d->value].node, moves = wn__action_place(l->value[d->kept].action) >= 0;
    WN_TRY(wn__grow(&l->in, &l->in_capacity, l->n_in + 2, sizeof *l->in));
    out += *n;
    *out = (struct wn__item){.what = moves ? WN_DO_OFFLOAD : WN_DO_PACK,
                             .node = node,
                             .phase = before->phase == WN_PHASE_FORWARD ? WN_PHASE_FORWARD : WN_PHASE_RECOMPUTE,
                             .block = l->r->block_of[node],
                             .out = d->kept,
                             .in_at = (int32_t)l->n_in,
                             .n_in = 1};
    l->in[l->n_in++] = d->value;
    *n += 1 + moves;
    if (!moves) return WN_OK;
    l->in[l->n_in++] = d->kept;
    out[0].move = l->n_moves++;
    out[1] = out[0];
    out[1].what = WN_DO_WAIT;
    out[1].out = -1;
    out[1].n_in = 2;
    return WN_OK;
}

int32_t wn__lower_departures(struct wn__lowering *l)
{
    int64_t n = 0, before = l->n_items;
    if (l->n_departures == 0) return WN_OK;
    int64_t *head = wn__pool_get(&l->scratch, (before + 1) * (int64_t)sizeof *head);
    int64_t *next = wn__pool_get(&l->scratch, (l->n_departures + 1) * (int64_t)sizeof *next);
    struct wn__item *merged = wn__alloc((before + 2 * l->n_departures + 1) * (int64_t)sizeof *merged);
    int32_t code = head != NULL && next != NULL && merged != NULL ? WN_OK : WN_OOM;
    for (int64_t i = 0; i < before && code == WN_OK; i++) head[i] = -1;
    for (int64_t d = l->n_departures - 1; d >= 0 && code == WN_OK; d--) {
        if (!l->departure[d].is_used) continue;
        next[d] = head[l->departure[d].after];
        head[l->departure[d].after] = d;
    }
    for (int64_t i = 0; i < before && code == WN_OK; i++) {
        merged[n++] = l->item[i];
        for (int64_t d = head[i]; d >= 0 && code == WN_OK; d = next[d])
            code = put_departure(l, &l->departure[d], merged, &n);
    }
    if (code != WN_OK) {
        wn__free(merged);
        return code;
    }
    wn__free(l->item);
    l->item = merged;
    l->n_items = n;
    l->item_capacity = before + 2 * l->n_departures + 1;
    return WN_OK;
}
