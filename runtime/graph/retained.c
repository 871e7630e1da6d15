/* The values that a script retained and that no program has computed yet: a program with a backward computes those that
 * hang off its graph. They are not counted: a node leaves the list when it is freed or held. */
#include "../base/alloc.h"
#include "graph.h"

static struct wn__retained *list;
static int64_t capacity, count;

/* Notes whether the value of n is the same whatever the states are, and carries out no effect. */
static int32_t note_whether_lasts(struct wn_node *n)
{
    struct wn__order met = {0};
    int64_t mark = wn__node_stamp();
    int32_t lasts = !n->needs_grad, code = lasts ? wn__order_want(&met, n, mark) : WN_OK;
    for (int64_t at = 0; at < met.count && lasts && code == WN_OK; at++) {
        const struct wn_node *v = met.nodes[at];
        lasts = v->op != WN_OP_CELL && v->effects == NULL;
        for (int32_t k = 0; !v->is_held && !v->lasts && k < v->n_in && code == WN_OK; k++)
            code = wn__order_want(&met, v->in[k], mark);
    }
    wn__order_release(&met);
    n->lasts = (uint8_t)(lasts && code == WN_OK);
    return code;
}

int32_t wn__retained_add(struct wn_node *n, const void *by)
{
    if (n->retained_at > 0) return WN_OK;
    WN_TRY(note_whether_lasts(n));
    WN_TRY(wn__grow(&list, &capacity, count + 1, sizeof *list));
    list[count++] = (struct wn__retained){n, by};
    n->retained_at = (int32_t)count;
    return WN_OK;
}

void wn__retained_remove(struct wn_node *n)
{
    if (n->retained_at == 0) return;
    list[n->retained_at - 1] = list[--count];
    list[n->retained_at - 1].node->retained_at = n->retained_at;
    n->retained_at = 0;
}

void wn__retained_forget(const void *by)
{
    for (int64_t i = count - 1; i >= 0; i--)
        if (list[i].by == by) wn__retained_remove(list[i].node);
}

int64_t wn__retained(const struct wn__retained **out)
{
    *out = list;
    return count;
}
