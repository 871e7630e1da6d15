/* Differentiates a graph into the same graph. Nodes are visited in reverse record order and the rule of each is
 * called once. Gradients of one value are added in the order in which they arise, so the order of additions, and
 * with it every bit, is fixed by the forward alone. Nothing runs here. */
#include <stdio.h>
#include "../base/alloc.h"
#include "../base/outside.h"
#include "emit.h"

/* Returns whether the gradient of an input of n is asked for. A node that brought its own gradient passes it to those
 * inputs alone. */
static int32_t pass_goes_on(const struct wn_node *n, int64_t stamp)
{
    int32_t first = n->custom != NULL, end = n->custom != NULL ? 1 + wn__template_count(n->custom) : n->n_in;
    for (int32_t k = first; k < end && k < n->n_in; k++)
        if (n->in[k]->wanted == stamp) return 1;
    return 0;
}

static int32_t is_listed(const struct wn__pass *p, const struct wn_cell *c)
{
    int32_t listed = p->only == NULL;
    for (int32_t k = 0; k < p->n_only && !listed; k++) listed = p->only[k] == c;
    return listed;
}

/* Returns the number of the entry of wrt, from 0, that n is or that n, which let go of its inputs, was made of; n_wrt
 * for none. */
static int32_t pass_entry(const struct wn__pass *p, const struct wn_node *n, int32_t was_made_of)
{
    int32_t i = 0;
    while (i < p->n_wrt && !(was_made_of ? wn__past_has(n, p->wrt[i]) : wn__node_is_same(n, p->wrt[i]))) i++;
    return i;
}

/* Marks the values whose gradients are asked for: the cells that need one, or those in wrt, and every value built on
 * one. With wrt the way to a value is all that counts, whether or not the value needs a gradient by itself. */
static void pass_mark(const struct wn__pass *p, int64_t stamp)
{
    for (int32_t i = 0; i < p->n_wrt; i++) p->wrt[i]->wanted = stamp;
    for (int64_t i = 0; i < p->forward.count; i++) {
        struct wn_node *n = p->forward.nodes[i];
        int32_t flows = p->wrt == NULL ? n->needs_grad : !n->is_cut && wn__dtype_is_float(n->type.dtype);
        if (!flows) continue;
        if (p->wrt == NULL) n->wanted = n->op == WN_OP_CELL && is_listed(p, n->cell) ? stamp : n->wanted;
        else if (n->op == WN_OP_CELL) n->wanted = pass_entry(p, n, 0) < p->n_wrt ? stamp : n->wanted;
        else if (n->spent || pass_entry(p, n, 1) < p->n_wrt) n->wanted = stamp;
        if (pass_goes_on(n, stamp)) n->wanted = stamp;
    }
}

static struct wn_node *pass_add(struct wn__emitter *e, struct wn_node *so_far, struct wn_node *more)
{
    if (so_far == &wn__zero_gradient) return more;
    return so_far == NULL || more == NULL ? more : wn__emit2(&e->base, WN_OP_ADD, so_far, more);
}

void wn__emit_gradient(struct wn__emitter *e, struct wn_node *v, struct wn_node *dx)
{
    v->grad = pass_add(e, v->grad, wn__emit_layout(e, dx, v->type.layout));
}

/* ---- zeros ------------------------------------------------------------------------------------------- */

static void pass_zero(struct wn_node *v)
{
    if (v->grad == NULL) v->grad = &wn__zero_gradient;
}

/* Passes a gradient of zeros on to each input of n whose gradient is asked for. */
static void pass_zeros_on(struct wn__emitter *e, struct wn_node *n)
{
    for (int32_t i = 0; i < n->n_in; i++)
        if (n->in[i]->wanted == e->stamp) pass_zero(n->in[i]);
}

/* Emits the zeros of a gradient that is still the mark for zeros. */
static void pass_write_zeros(struct wn__emitter *e, struct wn_node *v)
{
    struct wn_attrs zeros = {.n = v->type.ndim, .dtype = v->type.dtype, .layout = v->type.layout};
    if (v->grad != &wn__zero_gradient) return;
    for (int32_t k = 0; k < v->type.ndim; k++) zeros.i[k] = v->type.dim[k];
    e->forward = v;
    v->grad = wn__emit(&e->base, WN_OP_FULL, 0, NULL, &zeros);
}

/* ---- rules ------------------------------------------------------------------------------------------- */

/* Returns where a node was recorded, as messages add it to its op: its line, the path of its module, or how to see
 * it. */
static const char *pass_place(const struct wn_node *n)
{
    static char text[256];
    const char *line = wn__line_text(n->line), *path = wn__scope_get(n->scope)->path;
    if (line[0]) snprintf(text, sizeof text, " (recorded at %s)", line);
    else if (path[0]) snprintf(text, sizeof text, " (recorded in %s; wane.lines(true) shows the line)", path);
    else snprintf(text, sizeof text, " (wane.lines(true) shows where it was recorded)");
    return text;
}

static int32_t pass_refuse(const struct wn_node *n)
{
    return wn__fail(
        WN_UNSUPPORTED,
        "backward: %s%s has no gradient rule, and a gradient flows into it; detach its result with :detach(), "
        "or give it a gradient of your own with wane.custom",
        wn__op_name(n->op), pass_place(n));
}

/* Fails where a gradient has arrived at n and n let go of inputs on the way to an entry of wrt. */
static int32_t pass_check_past(const struct wn__pass *p, const struct wn_node *n)
{
    int32_t entry = pass_entry(p, n, 1);
    if (n->spent) return wn__order_refuse_spent(n);
    if (entry == p->n_wrt) return WN_OK;
    return wn__fail(WN_VALUE,
                    "grad: %s%s was read or evaluated before, so it is no longer known what it was made of, entry %d "
                    "perhaps; make that entry with nn.Parameter(t), or record what follows from it again",
                    wn__op_said(n->op), pass_place(n), (int)entry + 1);
}

/* Adds the gradients that a rule has filled in to those of the inputs. */
static int32_t pass_take(struct wn__emitter *e, const struct wn__grad *g, struct wn_node *n)
{
    for (int32_t i = 0; i < n->n_in && e->code == WN_OK; i++) {
        if (!wn__wants(g, i)) continue;
        if (g->dx[i] == NULL)
            return wn__fail(
                WN_UNSUPPORTED,
                "backward: %s%s has no gradient rule for its input %d, and a gradient flows into it; detach "
                "that input with :detach()",
                wn__op_name(n->op), pass_place(n), (int)i + 1);
        if (g->dx[i] == &wn__zero_gradient) pass_zero(n->in[i]);
        else wn__emit_gradient(e, n->in[i], g->dx[i]);
    }
    return e->code;
}

/* Hands out the gradient of a cell, which is complete, added to the one that an earlier pass or reader gave. */
static int32_t pass_cell(struct wn__emitter *e, struct wn_cell *c, struct wn_node *dy)
{
    struct wn__grads *g = e->g;
    for (int64_t i = 0; i < g->n_cells; i++) {
        if (g->cells[i] != c) continue;
        g->values[i] = pass_add(e, g->values[i], dy);
        return e->code;
    }
    WN_TRY(wn__grow(&g->cells, &g->cells_capacity, g->n_cells + 1, sizeof *g->cells));
    WN_TRY(wn__grow(&g->values, &g->values_capacity, g->n_cells + 1, sizeof *g->values));
    g->cells[g->n_cells] = c;
    g->values[g->n_cells++] = dy;
    return WN_OK;
}

static int32_t pass_rule(struct wn__emitter *e, struct wn_node *n)
{
    struct wn_type types[WN_GRAD_MAX], *type = types;
    struct wn_node *outcome[WN_GRAD_MAX] = {0}, **dx = outcome;
    int32_t code = WN_OK;
    if (wn__op_rules[n->op]->grad == NULL) return pass_refuse(n);
    if (n->n_in > WN_GRAD_MAX) {
        type = wn__alloc(n->n_in * (int64_t)sizeof *type);
        dx = wn__alloc(n->n_in * (int64_t)sizeof *dx);
        if (type == NULL || dx == NULL) code = WN_OOM;
    }
    if (code == WN_OK) {
        for (int32_t i = 0; i < n->n_in; i++) type[i] = n->in[i]->type;
        struct wn_desc d = {.op = n->op, .n_in = n->n_in, .out = n->type, .in = type, .attrs = n->attrs};
        struct wn__grad g = {.e = &e->base, .d = &d, .in = n->in, .out = n, .dy = n->grad, .dx = dx};
        wn__op_rules[n->op]->grad(&g);
        code = e->code == WN_OK ? pass_take(e, &g, n) : e->code;
    }
    if (n->n_in > WN_GRAD_MAX) {
        wn__free(type);
        wn__free(dx);
    }
    return code;
}

/* Completes the gradient of an entry of wrt: of a state, adds those of its other readers, which were recorded while it
 * was frozen, or trained. */
static void pass_value(struct wn__emitter *e, const struct wn__pass *p, struct wn_node *v)
{
    for (int64_t i = 0; i < p->forward.count && v->op == WN_OP_CELL && e->code == WN_OK; i++) {
        struct wn_node *n = p->forward.nodes[i];
        if (n == v || n->grad == NULL || !wn__node_is_same(n, v)) continue;
        e->forward = v;
        if (n->grad == &wn__zero_gradient) pass_zero(v);
        else v->grad = pass_add(e, v->grad, n->grad);
        n->grad = NULL;
    }
    pass_write_zeros(e, v);
}

/* Begins each root's gradient with scale. */
static int32_t pass_seed(struct wn__emitter *e, const struct wn__pass *p)
{
    for (int32_t i = 0; i < p->n_roots; i++) {
        struct wn_node *r = p->roots[i];
        struct wn_attrs ones = {.n = r->type.ndim, .dtype = r->type.dtype, .f = {p->scale}};
        for (int32_t k = 0; k < r->type.ndim; k++) ones.i[k] = r->type.dim[k];
        e->forward = r;
        r->grad = pass_add(e, r->grad, wn__emit(&e->base, WN_OP_FULL, 0, NULL, &ones));
        if (e->code != WN_OK) return e->code;
    }
    return WN_OK;
}

static int32_t pass_walk(struct wn__emitter *e, const struct wn__pass *p)
{
    WN_TRY(pass_seed(e, p));
    for (int64_t i = p->forward.count - 1; i >= 0; i--) {
        struct wn_node *n = p->forward.nodes[i];
        if (n->wanted != e->stamp) continue;
        if (n->slice != NULL) WN_TRY(wn__tiles_join(e, n, pass_rule));
        if (n->grad == NULL) continue;
        e->forward = n;
        if (n->op == WN_OP_CELL && p->wrt == NULL) pass_write_zeros(e, n);
        if (e->code != WN_OK) return e->code;
        if (p->wrt != NULL && n->n_in == 0 && n->grad != &wn__zero_gradient) WN_TRY(pass_check_past(p, n));
        if (n->op == WN_OP_CELL && p->wrt == NULL) WN_TRY(pass_cell(e, n->cell, n->grad));
        if (n->grad == &wn__zero_gradient) pass_zeros_on(e, n);
        else if (n->custom != NULL) WN_TRY(wn__template_emit(e, n));
        else if (n->op == WN_OP_NARROW && n->in[0]->wanted == e->stamp) wn__tiles_wait(n);
        else if (pass_goes_on(n, e->stamp)) WN_TRY(pass_rule(e, n));
    }
    for (int32_t i = 0; i < p->n_wrt && e->code == WN_OK; i++) pass_value(e, p, p->wrt[i]);
    return e->code;
}

int32_t wn__grad_pass(struct wn__pass *p, struct wn__grads *g)
{
    struct wn__emitter e = {.base = {&wn__graph_recorder}, .g = g, .root = p->root, .stamp = wn__node_stamp()};
    int32_t code = wn__topological_order(p->roots, p->n_roots, wn__node_stamp(), &p->forward);
    for (int64_t i = 0; i < p->forward.count; i++) p->forward.nodes[i]->grad = p->forward.nodes[i]->slice = NULL;
    for (int32_t i = 0; i < p->n_roots; i++) p->roots[i]->grad = NULL;
    for (int32_t i = 0; i < p->n_wrt; i++) p->wrt[i]->grad = NULL;
    uint64_t counter = wn__here.counter;
    if (code == WN_OK) {
        pass_mark(p, e.stamp);
        code = pass_walk(&e, p);
    }
    wn__here.counter = counter;
    wn__order_release(&p->forward);
    return code;
}

void wn__grads_release(struct wn__grads *g)
{
    for (int64_t i = 0; i < g->count; i++) wn__node_unref(g->nodes[i]);
    wn__free(g->nodes);
    wn__free(g->cells);
    wn__free(g->values);
    *g = (struct wn__grads){0};
}
