/* Recording again what nothing has run yet: the first value of a state is begun on another device, with the same random
 * numbers, and is never computed where it was recorded; or a rank makes its own range of it, and never the whole.
 *
 * Only ops whose results have the same bits on every device are recorded again: creation, and arithmetic with numbers.
 * The layout of a weight is the device's own, so a RELAYOUT is left out; of a range a RESHAPE is, too. */
#include "graph.h"

#define WN_AGAIN_DEEPEST 16 /* applications above each other; the first value of a parameter has two or three */

/* Says on which device values are made again. own: the range of each that is made, as one row; NULL: the whole. */
struct again {
    int32_t device;
    const struct wn__range *own;
};

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

static int32_t is_creation(int32_t op)
{
    return op == WN_OP_FULL || op == WN_OP_UNIFORM || op == WN_OP_NORMAL || op == WN_OP_RANDINT;
}

/* Returns whether each element of a range follows from the same ones of ranges of the inputs, or from a number. */
static int32_t has_ranges(const struct wn_node *n)
{
    if (n->n_in == 0) return is_creation(n->op);
    for (int32_t i = 0; i < n->n_in; i++)
        if (n->in[i]->type.ndim > 0 && !wn__shape_equal(&n->in[i]->type, &n->type)) return 0;
    return 1;
}

/* Records n, whose inputs were recorded again as `in`. Counted. */
static int32_t record_as(const struct wn_node *n, struct wn_node *const *in, const struct again *a,
                         struct wn_node **out)
{
    const struct wn_context here = wn__here;
    struct wn_attrs attrs = n->attrs;
    if (a->own != NULL && is_creation(n->op) && n->type.ndim > 0) {
        attrs = (struct wn_attrs){.n = 1, .dtype = attrs.dtype, .f = {attrs.f[0], attrs.f[1]}};
        attrs.i[WN_CREATED_COUNT] = a->own->count;
        attrs.i[WN_CREATED_FIRST] = a->own->count > 0 ? a->own->first : 0;
    }
    wn__here.device = a->device;
    wn__here.scope = n->scope;
    int32_t code = wn__record(n->op, n->n_in, in, &attrs, n->line, out);
    wn__here = here;
    if (code != WN_OK) return code;
    (*out)->seed = n->seed;
    (*out)->counter = n->counter;
    return WN_OK;
}

static int32_t is_left_out(const struct wn_node *n, const struct again *a)
{
    return n->op == WN_OP_RELAYOUT || (n->op == WN_OP_RESHAPE && a->own != NULL);
}

static int32_t again(struct wn_node *n, const struct again *a, int32_t room, struct wn_node **out)
{
    struct wn_node *in[2] = {NULL, NULL};
    int32_t code = WN_OK, got = 0;
    *out = NULL;
    if (is_left_out(n, a) && !n->is_held && room > 0) return again(n->in[0], a, room - 1, out);
    if (n->op == WN_OP_CONST && n->hyper == NULL) {
        wn__node_ref(n);
        *out = n;
        return WN_OK;
    }
    if (n->is_held || n->custom != NULL || n->n_in > 2 || room == 0 || !has_equal_bits(n->op)) return WN_OK;
    if (a->own != NULL && !has_ranges(n)) return WN_OK;
    for (; got < n->n_in && code == WN_OK; got++) {
        code = again(n->in[got], a, room - 1, &in[got]);
        if (in[got] == NULL) break;
    }
    if (code == WN_OK && got == n->n_in) code = record_as(n, in, a, out);
    for (int32_t i = 0; i < 2; i++) wn__node_unref(in[i]);
    return code;
}

int32_t wn__record_elsewhere(struct wn_node *n, int32_t device, struct wn_node **out)
{
    return again(n, &(struct again){.device = device}, WN_AGAIN_DEEPEST, out);
}

/* Records the elements of a range of a value that is computed whole. */
static int32_t record_part(struct wn_node *value, struct wn__range own, struct wn_node **out)
{
    struct wn_attrs flat = {.n = 1, .i = {wn__numel(&value->type)}}, part = {.i = {0, own.first, own.count}};
    struct wn_node *plain = NULL, *row = NULL;
    int32_t code = wn__record_layout(value, WN_PLAIN, value->line, &plain);
    if (code == WN_OK) code = wn__record(WN_OP_RESHAPE, 1, &plain, &flat, value->line, &row);
    if (code == WN_OK) code = wn__record(WN_OP_NARROW, 1, &row, &part, value->line, out);
    wn__node_unref(row);
    wn__node_unref(plain);
    return code;
}

int32_t wn__record_range(struct wn_node *value, struct wn__range own, struct wn_node **out)
{
    const struct again a = {.device = value->device, .own = &own};
    WN_TRY(again(value, &a, WN_AGAIN_DEEPEST, out));
    return *out != NULL ? WN_OK : record_part(value, own, out);
}
