/* Recording: one application of an op becomes a node. Shapes, dtypes and devices are checked here, at the line of the
 * caller; nothing is computed, and nothing is allocated on a device. */
#include <math.h>
#include <string.h>
#include "../base/alloc.h"
#include "../base/memory_order.h"
#include "graph.h"

struct wn_context wn__here = {.grad = 1};

/* Finds the device of an application: that of its inputs, else the one where recording stands. */
static int32_t record_device(int32_t op, int32_t n, struct wn_node *const *in, int32_t *out)
{
    int32_t device = WN_NO_DEVICE;
    for (int32_t i = 0; i < n; i++) {
        if (in[i]->device == WN_NO_DEVICE) continue;
        if (device == WN_NO_DEVICE) device = in[i]->device;
        if (device != in[i]->device)
            return wn__fail(WN_DEVICE, "%s: inputs are on %s and on %s; move one with :to", wn__op_name(op),
                            wn__device(device)->name, wn__device(in[i]->device)->name);
    }
    *out = device == WN_NO_DEVICE ? wn__here.device : device;
    return WN_OK;
}

/* Fails with WN_VALUE unless the op may be recorded with so many inputs. */
static int32_t check_op(int32_t op, int32_t n)
{
    if (!wn__op_is(op)) return wn__fail(WN_VALUE, "record: there is no op %d", op);
    int32_t least = wn__op_rows[op].least, most = wn__op_rows[op].most;
    if (wn__op_flags(op) & WN_LEAF)
        return wn__fail(WN_VALUE, "record: %s cannot be recorded: wn_data, wn_const and wn_cell make it",
                        wn__op_name(op));
    if (n >= least && n <= most) return WN_OK;
    return wn__fail(WN_VALUE, "%s: %d inputs given, expected %d%s", wn__op_name(op), n, least,
                    most > least ? " or more" : "");
}

/* Lists the types of the inputs, for questions of layout. Stops at WN_GRAD_MAX: ops of more inputs read plain ones
 * only. */
static void list_types(int32_t n, struct wn_node *const *in, const struct wn_type *type[WN_GRAD_MAX])
{
    for (int32_t i = 0; i < n && i < WN_GRAD_MAX; i++) type[i] = &in[i]->type;
}

int32_t wn__wanted_layout(int32_t op, int32_t n, struct wn_node *const *in, const struct wn_attrs *attrs, int32_t i)
{
    static const struct wn_attrs none;
    const struct wn_type *type[WN_GRAD_MAX];
    if (n > WN_GRAD_MAX) return WN_PLAIN;
    list_types(n, in, type);
    return wn__op_wants(op, n, type, attrs != NULL ? attrs : &none, i);
}

static int32_t record_layout(const struct wn_node *node, int32_t n, struct wn_node *const *in)
{
    const struct wn_type *type[WN_GRAD_MAX];
    if (n > WN_GRAD_MAX) return WN_PLAIN;
    list_types(n, in, type);
    return wn__op_layout(node->op, n, type, &node->attrs, &node->type);
}

/* Fills the fields that follow from the inputs: type, device, depth, and whether a gradient flows. */
static int32_t record_derive(struct wn_node *node, int32_t n, struct wn_node *const *in)
{
    struct wn_type types[8], *type = types;
    const struct wn__rules *rules = wn__op_rules[node->op];
    if (n > 8) {
        type = wn__alloc(n * (int64_t)sizeof *type);
        if (type == NULL) return WN_OOM;
    }
    int32_t needs = 0, spent = 0;
    for (int32_t i = 0; i < n; i++) {
        type[i] = in[i]->type;
        needs |= in[i]->needs_grad;
        spent |= in[i]->over_spent;
        if (in[i]->depth >= node->depth) node->depth = in[i]->depth + 1;
    }
    struct wn_desc d = {.op = node->op, .n_in = n, .in = type, .attrs = node->attrs};
    int32_t code = rules->shape(&d);
    if (type != types) wn__free(type);
    if (code != WN_OK) return code;
    node->type = d.out;
    node->type.layout = (int16_t)record_layout(node, n, in);
    WN_TRY(wn__type_check(&node->type, wn__op_name(node->op)));
    WN_TRY(record_device(node->op, n, in, &node->device));
    if (node->depth > WN_DEEPEST)
        return wn__fail(WN_VALUE,
                        "%s: a chain of %d applications was recorded without a run point; "
                        "call wane.eval or :item() inside the loop",
                        wn__op_name(node->op), WN_DEEPEST);
    /* Every float result of what needs a gradient needs one, also of an op without a rule: differentiation refuses
     * it by name. Whole numbers (comparisons, indices) are constants. */
    int32_t flows = wn__here.grad && wn__dtype_is_float(node->type.dtype);
    node->is_cut = !wn__here.grad;
    node->needs_grad = (uint8_t)(needs && flows);
    node->over_spent = (uint8_t)(spent && flows);
    return WN_OK;
}

int32_t wn__record(int32_t op, int32_t n, struct wn_node *const *in, const struct wn_attrs *attrs, int32_t line,
                   struct wn_node **out)
{
    static const struct wn_attrs none;
    WN_TRY(check_op(op, n));
    struct wn_node *node = wn__node_new(n);
    if (node == NULL) return WN_OOM;
    node->op = op;
    node->attrs = attrs != NULL ? *attrs : none;
    node->scope = wn__here.scope;
    node->region = wn__here.region;
    node->line = line;
    int32_t code = record_derive(node, n, in);
    if (code != WN_OK) {
        node->n_in = 0; /* nothing is referenced yet */
        wn__node_unref(node);
        return code;
    }
    for (int32_t i = 0; i < n; i++) {
        node->in[i] = in[i];
        wn__node_ref(in[i]);
    }
    if (wn__op_draws(op, &node->attrs)) {
        node->seed = wn__here.seed;
        node->counter = wn__here.counter++;
    }
    *out = node;
    return WN_OK;
}

/* Returns the RELAYOUT of v that was recorded last, where it is in this layout and a new one would be its equal. Values
 * that steps share have none, leaves and those that a program has computed: a step that was recorded and never ran
 * would hold the RELAYOUT that a later one computes, and with it its bytes. */
static struct wn_node *laid_before(const struct wn_node *v, int32_t layout)
{
    struct wn_node *n = v->laid;
    if (v->n_in == 0 || v->issued > 0 || v->is_held) return NULL;
    if (n == NULL || n->type.layout != layout || n->is_held || n->stale || n->issued > 0) return NULL;
    int32_t is_here = n->scope == wn__here.scope && n->region == wn__here.region;
    return is_here && n->is_cut == !wn__here.grad ? n : NULL;
}

int32_t wn__record_layout(struct wn_node *v, int32_t layout, int32_t line, struct wn_node **out)
{
    struct wn_attrs attrs = {.layout = (int16_t)wn__layout_normal(layout, &v->type)};
    struct wn_node *plain = NULL;
    int32_t is_back = v->op == WN_OP_RELAYOUT && v->n_in == 1 && v->in[0]->type.layout == attrs.layout;
    if (v->type.layout == attrs.layout || is_back) {
        *out = is_back ? v->in[0] : v;
        wn__node_ref(*out);
        return WN_OK;
    }
    if (v->type.layout != WN_PLAIN && attrs.layout != WN_PLAIN) {
        WN_TRY(wn__record_layout(v, WN_PLAIN, line, &plain));
        v = plain;
    }
    struct wn_node *before = laid_before(v, attrs.layout);
    int32_t code = WN_OK;
    if (before == NULL) code = wn__record(WN_OP_RELAYOUT, 1, &v, &attrs, line, out);
    else wn__node_ref(*out = before);
    if (code == WN_OK) v->laid = *out;
    wn__node_unref(plain);
    return code;
}

int32_t wn__record_const(const double *v, int32_t n, int32_t dtype, struct wn_node **out)
{
    const struct wn_type type = {.dtype = dtype, .ndim = n > 0, .dim = {n}};
    struct wn_node *node = wn__leaf_new(WN_OP_CONST, &type, WN_NO_DEVICE);
    if (node == NULL) return WN_OOM;
    node->number = v[0];
    if (n > 0) {
        node->hyper = wn__alloc(sizeof *node->hyper);
        if (node->hyper == NULL) {
            wn__node_unref(node);
            return WN_OOM;
        }
        node->hyper->refs = 1;
        memcpy(node->hyper->v, v, (size_t)n * sizeof *v);
    }
    *out = node;
    return WN_OK;
}

int32_t wn__record_hyper(struct wn__hyper *h, struct wn_node **out)
{
    static const struct wn_type eight = {.dtype = WN_F64, .ndim = 1, .dim = {8}};
    struct wn_node *node = wn__leaf_new(WN_OP_CONST, &eight, WN_NO_DEVICE);
    if (node == NULL) return WN_OOM;
    node->hyper = h;
    h->refs++;
    *out = node;
    return WN_OK;
}
