/* The recorder behind gradient rules. A node that is emitted is an ordinary node: it carries the scope, region and
 * line of the forward node that it serves, and takes no random number of its own. */
#include "emit.h"
#include <string.h>
#include "../base/alloc.h"
#include "../base/memory_order.h"

struct wn_node wn__zero_gradient;

static int32_t is_wanted(const struct wn__emit *e, const struct wn_node *v)
{
    return v->wanted == ((const struct wn__emitter *)e)->stamp;
}

/* Returns the value that casts and relayouts were made of. */
static const struct wn_node *origin_of(const struct wn_node *v)
{
    while ((v->op == WN_OP_CAST || v->op == WN_OP_RELAYOUT) && v->n_in > 0) v = v->in[0];
    return v;
}

static int32_t is_made_by(const struct wn_node *v, int32_t op, const struct wn_node *x)
{
    if (v->op != op || v->n_in == 0) return 0;
    return wn__node_is_same(origin_of(v->in[0]), origin_of(x));
}

static const struct wn_type *type_of(const struct wn_node *v)
{
    return &v->type;
}

struct wn_node *wn__emit_keep(struct wn__emitter *e, struct wn_node *node)
{
    struct wn__grads *g = e->g;
    WN_KEEP(e->code, wn__grow(&g->nodes, &g->capacity, g->count + 1, sizeof *g->nodes));
    if (e->code != WN_OK) {
        wn__node_unref(node);
        return NULL;
    }
    g->nodes[g->count++] = node;
    node->phase = WN_PHASE_BACKWARD;
    node->root = e->root;
    node->forward_of = e->forward;
    return node;
}

static struct wn_node *record(struct wn__emit *base, int32_t op, int32_t n, struct wn_node *const *in,
                              const struct wn_attrs *attrs, const struct wn_node *like)
{
    struct wn__emitter *e = (struct wn__emitter *)base;
    struct wn_node *laid[WN_GRAD_MAX];
    if (e->code != WN_OK) return NULL;
    for (int32_t i = 0; i < n; i++)
        if (in[i] == NULL) return NULL;
    for (int32_t i = 0; i < n; i++) {
        int32_t layout = wn__wanted_layout(op, n, in, attrs, i);
        if (in[i]->type.layout == layout) continue;
        if (n > WN_GRAD_MAX) {
            WN_KEEP(e->code, wn__fail(WN_INTERNAL, "%s: a gradient of %d inputs, one of them not plain",
                                      wn__op_name(op), (int)n));
            return NULL;
        }
        struct wn_node *made = wn__emit_layout(e, in[i], layout);
        if (made == NULL) return NULL;
        if (in != laid) in = memcpy(laid, in, (size_t)n * sizeof *in);
        laid[i] = made;
    }
    struct wn_context before = wn__here;
    struct wn_node *node = NULL;
    wn__here.scope = e->forward->scope;
    wn__here.region = e->forward->region;
    wn__here.device = e->forward->device;
    WN_KEEP(e->code, wn__record(op, n, in, attrs, e->forward->line, &node));
    wn__here = before;
    node = e->code == WN_OK ? wn__emit_keep(e, node) : NULL;
    if (node == NULL || like == NULL) return node;
    node->seed = like->seed;
    node->counter = like->counter;
    return node;
}

const struct wn__recorder wn__graph_recorder = {
    .record = record, .is_wanted = is_wanted, .is_made_by = is_made_by, .type = type_of, .zero = &wn__zero_gradient};

struct wn_node *wn__emit_layout(struct wn__emitter *e, struct wn_node *v, int32_t layout)
{
    if (v == NULL) return v;
    struct wn_attrs attrs = {.layout = (int16_t)wn__layout_normal(layout, &v->type)};
    if (v->type.layout == attrs.layout) return v;
    if (v->type.layout != WN_PLAIN && attrs.layout != WN_PLAIN) v = wn__emit_layout(e, v, WN_PLAIN);
    return wn__emit(&e->base, WN_OP_RELAYOUT, 1, &v, &attrs);
}
