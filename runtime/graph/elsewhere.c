/* Recording again on another device: the first value of a state that nothing has run yet is begun there, with the same
 * random numbers, and is never computed where it was recorded.
 *
 * Only ops whose results have the same bits on every device are recorded again: creation, and arithmetic with numbers.
 * The layout of a weight is the device's own, so a RELAYOUT is left out. */
#include "graph.h"

#define WN_AGAIN_DEEPEST 16 /* applications above each other; the first value of a parameter has two or three */

static int32_t has_equal_bits(int32_t op)
{
    switch (op) {
    case WN_OP_ADD:
    case WN_OP_SUB:
    case WN_OP_MUL:
    case WN_OP_DIV:
    case WN_OP_NEG:
    case WN_OP_CAST:
    case WN_OP_RESHAPE:
    case WN_OP_FULL:
    case WN_OP_ARANGE:
    case WN_OP_EYE:
    case WN_OP_UNIFORM:
    case WN_OP_NORMAL:
    case WN_OP_RANDINT: return 1;
    default: return 0;
    }
}

/* Records n, whose inputs were recorded again as `in`. Counted. */
static int32_t record_as(const struct wn_node *n, struct wn_node *const *in, int32_t device, struct wn_node **out)
{
    const struct wn_context here = wn__here;
    wn__here.device = device;
    wn__here.scope = n->scope;
    int32_t code = wn__record(n->op, n->n_in, in, &n->attrs, n->line, out);
    wn__here = here;
    if (code != WN_OK) return code;
    (*out)->seed = n->seed;
    (*out)->counter = n->counter;
    return WN_OK;
}

static int32_t again(struct wn_node *n, int32_t device, int32_t room, struct wn_node **out)
{
    struct wn_node *in[2] = {NULL, NULL};
    int32_t code = WN_OK, got = 0;
    *out = NULL;
    if (n->op == WN_OP_RELAYOUT && !n->is_held && room > 0) return again(n->in[0], device, room - 1, out);
    if (n->op == WN_OP_CONST && n->hyper == NULL) {
        wn__node_ref(n);
        *out = n;
        return WN_OK;
    }
    if (n->is_held || n->custom != NULL || n->n_in > 2 || room == 0 || !has_equal_bits(n->op)) return WN_OK;
    for (; got < n->n_in && code == WN_OK; got++) {
        code = again(n->in[got], device, room - 1, &in[got]);
        if (in[got] == NULL) break;
    }
    if (code == WN_OK && got == n->n_in) code = record_as(n, in, device, out);
    for (int32_t i = 0; i < 2; i++) wn__node_unref(in[i]);
    return code;
}

int32_t wn__record_elsewhere(struct wn_node *n, int32_t device, struct wn_node **out)
{
    return again(n, device, WN_AGAIN_DEEPEST, out);
}
