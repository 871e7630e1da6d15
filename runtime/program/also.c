/* Finds what a program computes beside its losses: values that the request names, and retained values that hang off the
 * graph of the losses. They are roots that nothing differentiates, and become results. */
#include "program.h"
#include "sequence.h"

int32_t wn__program_check_also(const struct wn__program_request *r, int32_t i)
{
    const struct wn_node *n = r->root[i];
    int32_t losses = r->n_roots - r->n_also;
    for (int32_t k = 0; k < i; k++)
        if (r->root[k] == n && k < losses)
            return wn__fail(WN_VALUE, "step: also: entry %d is the loss", i - losses + 1);
        else if (r->root[k] == n)
            return wn__fail(WN_VALUE, "step: also: entries %d and %d are the same value", k - losses + 1,
                            i - losses + 1);
    if (n->device != WN_NO_DEVICE && r->root[0]->device != WN_NO_DEVICE && n->device != r->root[0]->device)
        return wn__fail(WN_DEVICE, "step: also: entry %d lies on %s, the loss on %s", i - losses + 1,
                        wn__device(n->device)->name, wn__device(r->root[0]->device)->name);
    return WN_OK;
}

/* Appends the retained values that hang off the graph of the losses, which carries the stamp, in record order. Those of
 * another function that is planned are left out. */
static int32_t take_retained(struct wn_program *p, int64_t stamp)
{
    const struct wn__retained *list;
    int64_t n = wn__retained(&list);
    int32_t first = p->n_roots, given = first - p->n_also; /* the request named root[given .. first) */
    for (int64_t i = 0; i < n; i++) {
        struct wn_node *node = list[i].node;
        int32_t shares, at = p->n_roots, is_given = node->stamp == stamp;
        for (int32_t k = given; k < first; k++) is_given |= p->root[k] == node;
        if (is_given || (list[i].by != NULL && list[i].by != wn__sequence_now())) continue;
        WN_TRY(wn__order_shares(node, stamp, &shares));
        if (shares != 1) continue;
        for (; at > first && p->root[at - 1]->seq > node->seq; at--) p->root[at] = p->root[at - 1];
        p->root[at] = node;
        wn__node_ref(node);
        p->n_roots++;
        p->n_also++;
    }
    return WN_OK;
}

int32_t wn__program_walk_also(struct wn_program *p, int64_t stamp)
{
    for (int32_t i = p->n_roots - p->n_also; i < p->n_roots; i++) {
        int32_t shares = p->root[i]->is_held && !wn__node_is_leaf(p->root[i]);
        if (shares == 0) WN_TRY(wn__order_shares(p->root[i], stamp, &shares));
        if (shares == 0)
            return wn__fail(WN_VALUE,
                            "step: also: entry %d, %s %s, is made of nothing that this step computes; wane.eval "
                            "computes it",
                            i - (p->n_roots - p->n_also) + 1, wn__op_name(p->root[i]->op),
                            wn__type_text(&p->root[i]->type));
    }
    WN_TRY(take_retained(p, stamp));
    if (p->n_also == 0) return WN_OK;
    p->order.count = p->order.reach = 0;
    return wn__topological_order(p->root, p->n_roots, wn__node_stamp(), &p->order);
}
