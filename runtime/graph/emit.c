/* What gradient rules may call (declared in ops/op.h). A node emitted here is an ordinary node: it carries the
 * scope, region and line of the forward node it serves, and takes no random number of its own. */
#include "emit.h"
#include <string.h>
#include "../base/alloc.h"

int32_t wn__wants(const struct wn__grad *g, int32_t i)
{
    return g->in[i]->wanted == g->e->stamp;
}

void wn__give_zero(struct wn__grad *g, int32_t i)
{
    g->dx[i] = &wn__zero_gradient;
}

/* The value that casts and relayouts were made of. */
static const struct wn_node *emit_origin(const struct wn_node *v)
{
    while ((v->op == WN_OP_CAST || v->op == WN_OP_RELAYOUT) && v->n_in > 0) v = v->in[0];
    return v;
}

int32_t wn__is_made_by(const struct wn_node *v, int32_t op, const struct wn_node *x)
{
    if (v->op != op || v->n_in == 0) return 0;
    const struct wn_node *a = emit_origin(v->in[0]), *b = emit_origin(x);
    return a == b || (a->op == WN_OP_CELL && b->op == WN_OP_CELL && a->cell == b->cell && a->version == b->version);
}

const struct wn_type *wn__value_type(const struct wn_node *v)
{
    static const struct wn_type none;
    return v == NULL ? &none : &v->type;
}

struct wn_node *wn__emit_keep(struct wn__emit *e, struct wn_node *node)
{
    struct wn__grads *g = e->g;
    e->code = wn__grow(&g->nodes, &g->capacity, g->count + 1, sizeof *g->nodes);
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

struct wn_node *wn__emit(struct wn__emit *e, int32_t op, int32_t n, struct wn_node *const *in,
                         const struct wn_attrs *attrs)
{
    struct wn_node *plain[WN_GRAD_MAX];
    if (e->code != WN_OK) return NULL;
    for (int32_t i = 0; i < n; i++)
        if (in[i] == NULL) return NULL;
    for (int32_t i = 0; i < n; i++) {
        if (!wn__must_be_plain(op, n, in, attrs, i)) continue;
        if (n > WN_GRAD_MAX) {
            e->code =
                wn__fail(WN_INTERNAL, "%s: a gradient of %d inputs, one of them in panels", wn__op_name(op), (int)n);
            return NULL;
        }
        struct wn_node *made = wn__emit_layout(e, in[i], WN_PLAIN);
        if (made == NULL) return NULL;
        if (in != plain) in = memcpy(plain, in, (size_t)n * sizeof *in);
        plain[i] = made;
    }
    struct wn__context before = wn__here;
    struct wn_node *node = NULL;
    wn__here.scope = e->forward->scope;
    wn__here.region = e->forward->region;
    wn__here.device = e->forward->device;
    e->code = wn__record(op, n, in, attrs, e->forward->line, &node);
    wn__here = before;
    return e->code == WN_OK ? wn__emit_keep(e, node) : NULL;
}

struct wn_node *wn__emit_layout(struct wn__emit *e, struct wn_node *v, int32_t layout)
{
    struct wn_attrs attrs = {.layout = (int16_t)layout};
    if (v == NULL || v->type.layout == layout) return v;
    return wn__emit(e, WN_OP_RELAYOUT, 1, &v, &attrs);
}

struct wn_node *wn__emit1(struct wn__emit *e, int32_t op, struct wn_node *a)
{
    return wn__emit(e, op, 1, &a, NULL);
}

struct wn_node *wn__emit2(struct wn__emit *e, int32_t op, struct wn_node *a, struct wn_node *b)
{
    struct wn_node *in[2] = {a, b};
    return wn__emit(e, op, 2, in, NULL);
}

struct wn_node *wn__emit_scalar(struct wn__emit *e, double value, int32_t dtype)
{
    struct wn_attrs attrs = {.n = 0, .dtype = dtype, .f = {value}};
    return wn__emit(e, WN_OP_FULL, 0, NULL, &attrs);
}

struct wn_node *wn__emit_replay(struct wn__emit *e, int32_t op, int32_t n, struct wn_node *const *in,
                                const struct wn_attrs *attrs, struct wn_node *like)
{
    struct wn_node *node = wn__emit(e, op, n, in, attrs);
    if (node == NULL) return NULL;
    node->seed = like->seed;
    node->counter = like->counter;
    return node;
}

struct wn_node *wn__emit_sum_to(struct wn__emit *e, struct wn_node *g, const struct wn_type *target)
{
    if (g == NULL || wn__shape_equal(&g->type, target)) return g;
    struct wn_attrs sum = {0}, shape = {.n = target->ndim};
    int32_t extra = g->type.ndim - target->ndim;
    for (int32_t i = 0; i < g->type.ndim; i++)
        if (i < extra || (target->dim[i - extra] == 1 && g->type.dim[i] != 1)) sum.i[sum.n++] = i;
    sum.i[WN_MAX_DIMS - 1] = 1;
    if (sum.n > 0) g = wn__emit(e, WN_OP_SUM, 1, &g, &sum);
    if (extra == 0) return g;
    for (int32_t i = 0; i < target->ndim; i++) shape.i[i] = target->dim[i];
    return wn__emit(e, WN_OP_RESHAPE, 1, &g, &shape);
}
