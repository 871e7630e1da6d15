/* Where the values of nodes are while a recipe is followed. A value that is kept with an action leaves after its last
 * forward reader, and comes back right before what reads it next, as a value of its own; then it stays until its last
 * reader, like one that is computed again. A value that left and is never asked for again never left: so nothing is
 * packed in vain.
 *
 *   computed --------> now --- last forward reader ---> kept form --- next reader ---> now, or a part of it
 *      ^                |                                  |
 *      '--- demanded ---+--------- let go by a step -------' */
#include "../recipe/action.h"
#include "issue.h"

/* Returns the action that a node's value is kept with now; 0: none. */
static int32_t action_by(const struct wn__issuing *x, int32_t node)
{
    return x->at.kept[node] < 0 ? 0 : x->out->list.value[x->at.kept[node]].action;
}

int32_t wn__residency_comes_back(const struct wn__issuing *x, int32_t node)
{
    return action_by(x, node) != 0 && !wn__action_is_partial(action_by(x, node));
}

int32_t wn__residency_has_part(const struct wn__issuing *x, int32_t node, int32_t k)
{
    int32_t v = wn__ir_storage(x->ir, wn__ir_in(x->ir, node, k));
    return wn__action_is_partial(action_by(x, v)) && wn__ir_reads_sign(x->ir, node, k);
}

void wn__residency_keep(struct wn__issuing *x, int32_t node, int32_t action)
{
    struct wn__leaving *l = &x->leaving;
    if (l->action[node] == 0) l->node[l->n++] = node;
    l->action[node] = action;
}

void wn__residency_forget(struct wn__issuing *x, int32_t node)
{
    x->at.now[node] = x->at.kept[node] = x->at.part[node] = -1;
}

/* Replaces a node's value by its kept form. What came back and is let go once more has its kept form still. */
static void leave(struct wn__issuing *x, int32_t node, int32_t action)
{
    struct wn__departures *d = &x->out->departures;
    int32_t value = x->at.now[node];
    if (value < 0) return;
    x->at.now[node] = -1;
    if (x->at.kept[node] >= 0) return;
    x->at.kept[node] = wn__issue_value(x, node, action);
    WN_KEEP(x->code, wn__grow(&d->departure, &d->capacity, d->n + 1, sizeof *d->departure));
    if (x->code != WN_OK) return;
    d->departure[d->n++] =
        (struct wn__departure){.after = x->last.item[value], .value = value, .kept = x->at.kept[node]};
}

void wn__residency_leave(struct wn__issuing *x, int32_t limit)
{
    struct wn__leaving *l = &x->leaving;
    int32_t n = 0;
    for (int32_t i = 0; i < l->n; i++) {
        int32_t node = l->node[i];
        if (x->r->last[node] >= limit) {
            l->node[n++] = node;
            continue;
        }
        leave(x, node, l->action[node]);
        l->action[node] = 0;
    }
    l->n = n;
}

static void mark_used(struct wn__departures *d, int32_t kept)
{
    for (int64_t i = d->n - 1; i >= 0; i--)
        if (d->departure[i].kept == kept) {
            d->departure[i].is_used = 1;
            return;
        }
}

void wn__residency_return(struct wn__issuing *x, int32_t node)
{
    struct wn__list *l = &x->out->list;
    int32_t kept = x->at.kept[node], value = wn__issue_value(x, node, 0);
    int32_t moves = x->code == WN_OK && wn__action_medium(l->value[kept].action) >= 0;
    struct wn__item *it = wn__issue_item(x, moves ? WN_DO_FETCH : WN_DO_UNPACK, node, value, 1);
    if (it == NULL) return;
    l->in[it->in_at] = kept;
    if (moves) {
        it->move = l->n_moves++;
        it = wn__issue_item(x, WN_DO_WAIT, node, -1, 2);
        if (it == NULL) return;
        it->move = l->n_moves - 1;
        l->in[it->in_at] = kept;
        l->in[it->in_at + 1] = value;
    }
    x->last.item[kept] = x->last.item[value] = l->n_items - 1;
    l->value[value].back = l->value[kept].action;
    *(wn__residency_comes_back(x, node) ? &x->at.now[node] : &x->at.part[node]) = value;
    mark_used(&x->out->departures, kept);
}
