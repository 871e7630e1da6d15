/* Effects that hang on values of the forward: running statistics, which change when the mean that they follow is
 * computed.
 *
 * An effect is no node, and nothing reads it. It is listed at the node of its value, in the order of recording, and
 * belongs to that node. The first program that computes the value and commits carries the effects out (program/open.c
 * lists them, run/commit.c marks them as done); a copy that is recomputed, a plan and a program that
 * states end with it carry out none. */
#include "../base/alloc.h"
#include "graph.h"

static int32_t check(const struct wn_node *value, int32_t op, const struct wn_cell *cell, const struct wn_attrs *attrs)
{
    const char *name = wn__op_name(op);
    if (op != WN_OP_RUNNING_MEAN && op != WN_OP_RUNNING_VAR)
        return wn__fail(WN_VALUE, "effect: %s is no effect of a forward value", name);
    if (value->is_held || wn__node_is_leaf(value))
        return wn__fail(WN_VALUE, "%s: the value is there already; record the effect right after its value", name);
    if (cell->kind != WN_KIND_BUFFER)
        return wn__fail(WN_VALUE, "%s: a state of kind %s was given, expected a buffer", name,
                        cell->kind == WN_KIND_PARAMETER ? "parameter" : "other");
    if (!wn__type_equal(&value->type, &cell->whole) || cell->is_sharded)
        return wn__fail(WN_SHAPE, "%s: the buffer is %s, expected %s, as the statistic is", name,
                        wn__type_text(&cell->type), wn__type_text(&value->type));
    struct wn_desc d = {.op = op, .n_in = 1, .in = &value->type, .attrs = *attrs};
    WN_TRY(wn__op_rules[op]->shape(&d));
    if (value->device != WN_NO_DEVICE && value->device != cell->device)
        return wn__fail(WN_DEVICE, "%s: the buffer is on another device than the statistic; move one with :to", name);
    return WN_OK;
}

int32_t wn__node_affect(struct wn_node *value, int32_t op, struct wn_cell *cell, const struct wn_attrs *attrs)
{
    WN_TRY(check(value, op, cell, attrs));
    struct wn__forward_effect *e = wn__alloc(sizeof *e), **end = &value->effects;
    if (e == NULL) return WN_OOM;
    *e = (struct wn__forward_effect){.op = op, .cell = cell, .attrs = *attrs};
    wn__cell_ref(cell);
    while (*end != NULL) end = &(*end)->next;
    *end = e;
    return WN_OK;
}

void wn__forward_effects_free(struct wn__forward_effect *first)
{
    while (first != NULL) {
        struct wn__forward_effect *next = first->next;
        wn__cell_unref(first->cell);
        wn__free(first);
        first = next;
    }
}
