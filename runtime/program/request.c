/* Takes what a program is asked for: checks roots and updates, and orders the recorded graph that they reach.
 *
 * Beside its losses a program computes values that the request names, and retained values that hang off the graph of
 * the losses. They are the last roots, which nothing differentiates, and become results. */
#include "../base/alloc.h"
#include "../base/outside.h"
#include "../plan/ir/costs.h"
#include "program.h"
#include "sequence.h"

/* ---- making and freeing ------------------------------------------------------------------------------- */

int32_t wn__program_new(int32_t n_roots, int32_t n_updates, struct wn_program **out)
{
    const struct wn__retained *retained;
    int64_t most = n_roots + n_updates + wn__retained(&retained);
    struct wn_program *p = wn__alloc(sizeof *p);
    if (p == NULL) return WN_OOM;
    if (!WN_ARRAY(&p->pool, p->request.root, most) || !WN_ARRAY(&p->pool, p->request.assigned, most) ||
        !WN_ARRAY(&p->pool, p->request.update, n_updates)) {
        wn__program_free(p);
        return WN_OOM;
    }
    *out = p;
    return WN_OK;
}

static void let_nodes_go(struct wn_node **nodes, int64_t n)
{
    for (int64_t i = 0; nodes != NULL && i < n; i++) wn__node_unref(nodes[i]);
}

static void let_update_go(const struct wn__update *u)
{
    for (int32_t k = 0; k < 3; k++) wn__cell_unref(u->cell[k]);
    wn__hyper_unref(u->hyper);
}

void wn__request_let_go(struct wn_program *p)
{
    struct wn__request *r = &p->request;
    let_nodes_go(p->bindings.order.nodes, p->bindings.order.count);
    let_nodes_go(r->root, r->n_roots);
    for (int32_t i = 0; i < r->n_roots; i++) wn__cell_unref(r->assigned[i]);
    p->bindings.order.count = 0;
    r->n_roots = 0;
}

void wn__program_free(void *program)
{
    struct wn_program *p = program;
    struct wn__bindings *b = &p->bindings;
    const struct wn__ir *ir = p->plan.ir;
    wn__request_let_go(p);
    for (int32_t i = 0; i < p->request.n_updates; i++) let_update_go(&p->request.update[i]);
    wn__node_unref(b->limit);
    wn__order_release(&b->order);
    if (ir != NULL) {
        let_nodes_go(b->bound, ir->n_bound);
        let_nodes_go(b->scalar, ir->n_scalars);
        let_nodes_go(b->result, ir->n_results);
        for (int32_t i = 0; b->cell != NULL && i < ir->n_cells; i++) wn__cell_unref(b->cell[i]);
        for (int32_t i = 0; b->slab != NULL && i < ir->n_slabs; i++) wn__slab_unref(b->slab[i]);
    }
    wn__frontier_unref(p->plan.frontier);
    wn__recipe_release(&p->plan.by_recipe);
    wn__schedule_unref(p->plan.schedule);
    wn__marks_unref(p->plan.marks);
    wn__ir_unref(ir);
    wn__free(p->plan.key.data);
    wn__pool_release(&p->pool);
    wn__free(p);
}

/* ---- roots ------------------------------------------------------------------------------------------- */

/* Refuses a root that no backward can start from. */
static int32_t check_loss(const struct wn_node *n)
{
    if (n->spent)
        return wn__fail(WN_TWICE, "backward: it ran on this value already and its graph is gone; pass {again = true} "
                                  "to the first one, or compute the value again");
    if (n->stale) return wn__fail(WN_STALE, "backward: the root depends on a state that has changed; record it again");
    if (!n->needs_grad && n->over_spent)
        return wn__fail(WN_SPENT, "backward: the root is built on a value whose own backward used its graph up; pass "
                                  "{again = true} to that one, or use wane.backward{l1, l2} for one pass over both");
    if (!n->needs_grad)
        return wn__fail(WN_VALUE,
                        "backward: %s %s depends on nothing that needs a gradient; check requires_grad, "
                        "detach and no_grad",
                        wn__op_said(n->op), wn__type_text(&n->type));
    if (wn__numel(&n->type) != 1)
        return wn__fail(WN_SHAPE,
                        "backward: the root has shape %s; it must be one number, so reduce it with :sum() "
                        "or :mean()",
                        wn__shape_text(&n->type));
    return WN_OK;
}

/* Refuses root i, a value beside the losses, that cannot be one. */
static int32_t check_also(const struct wn__request *r, int32_t i)
{
    const struct wn_node *n = r->root[i], *loss = r->root[0];
    int32_t losses = wn__losses(r);
    for (int32_t k = 0; k < i; k++)
        if (r->root[k] == n && k < losses)
            return wn__fail(WN_VALUE, "step: also: entry %d is the loss", i - losses + 1);
        else if (r->root[k] == n)
            return wn__fail(WN_VALUE, "step: also: entries %d and %d are the same value", k - losses + 1,
                            i - losses + 1);
    if (n->device != WN_NO_DEVICE && loss->device != WN_NO_DEVICE && n->device != loss->device)
        return wn__fail(WN_DEVICE, "step: also: entry %d lies on %s, the loss on %s", i - losses + 1,
                        wn__device(n->device)->name, wn__device(loss->device)->name);
    return WN_OK;
}

/* Checks the cell that an assigned value goes into, and gives the value its layout. stamp: of this check. */
static int32_t lay_assigned(struct wn_node **root, struct wn_cell *c, int64_t stamp)
{
    struct wn_node *value = *root;
    if (c->stamp == stamp)
        return wn__fail(WN_VALUE, "assign: %s is given two values; assign once", c->name ? c->name : "a state");
    if (c->kind == WN_KIND_GRADIENT && !c->allocated)
        return wn__fail(WN_VALUE, "assign: this gradient does not exist yet; run a backward first");
    c->stamp = stamp;
    if (!wn__type_agrees(&c->whole, &value->type))
        return wn__fail(WN_SHAPE, "assign: a value of %s cannot go into a state of %s", wn__type_text(&value->type),
                        wn__type_text(&c->whole));
    if (c->is_sharded) WN_TRY(wn__record_range(value, c->own, root));
    else WN_TRY(wn__record_layout(value, c->type.layout, value->line, root));
    wn__node_unref(value);
    return WN_OK;
}

static int32_t take_roots(struct wn__request *r)
{
    int64_t stamp = wn__node_stamp();
    for (int32_t i = 0; i < r->n_roots; i++) {
        if (i >= wn__losses(r)) WN_TRY(check_also(r, i));
        else if (wn__is_backward(r)) WN_TRY(check_loss(r->root[i]));
        if (r->mode == WN_RUN_ASSIGN) WN_TRY(lay_assigned(&r->root[i], r->assigned[i], stamp));
    }
    return WN_OK;
}

/* ---- updates ----------------------------------------------------------------------------------------- */

/* Refuses an update that is no optimizer's, or whose cells are not as many as its op writes, of floats, of one type, or
 * are written by an update before it. stamp: of this check. */
static int32_t check_update(const struct wn__update *u, int64_t stamp)
{
    int32_t n = wn__optimizer_cells(u->op);
    if (n == 0) return wn__fail(WN_VALUE, "step: %s (%d) is no update", wn__op_name(u->op), u->op);
    for (int32_t k = 0; k < 3; k++) {
        struct wn_cell *c = u->cell[k];
        if ((c != NULL) != (k < n))
            return wn__fail(WN_VALUE, "step: %s writes %d states, %s given", wn__op_name(u->op), n,
                            k < n ? "fewer were" : "a further one was");
        if (c == NULL) continue;
        if (c->kind == WN_KIND_GRADIENT || !wn__dtype_is_float(c->type.dtype))
            return wn__fail(WN_VALUE, "step: %s cannot write a %s of %s", wn__op_name(u->op),
                            c->kind == WN_KIND_GRADIENT ? "gradient" : "state", wn__type_text(&c->type));
        if (c->stamp == stamp)
            return wn__fail(WN_VALUE, "step: %s is written by two updates; list a parameter once",
                            c->name ? c->name : "a state");
        const struct wn_type type = k == 0 ? c->type : wn__cell_own_type(u->cell[0]);
        if (!wn__type_equal(&c->type, &type))
            return wn__fail(WN_SHAPE, "step: optimizer state of %s for a parameter of %s", wn__type_text(&c->type),
                            wn__type_text(&u->cell[0]->type));
        c->stamp = stamp;
    }
    return WN_OK;
}

/* Checks the updates. In UPDATE mode each gradient that exists becomes a root, and updates of other cells are left
 * out. */
static int32_t take_updates(struct wn__request *r)
{
    int32_t n = r->n_updates;
    int64_t stamp = wn__node_stamp();
    for (int32_t i = 0; i < n; i++) WN_TRY(check_update(&r->update[i], stamp));
    r->n_updates = 0;
    for (int32_t i = 0; i < n; i++) {
        const struct wn_cell *g = r->update[i].cell[0]->grad;
        if (r->mode == WN_RUN_UPDATE && (g == NULL || !g->allocated)) let_update_go(&r->update[i]);
        else r->update[r->n_updates++] = r->update[i];
    }
    for (int32_t i = 0; r->mode == WN_RUN_UPDATE && i < r->n_updates; i++) {
        WN_TRY(wn__cell_reader(r->update[i].cell[0]->grad, &r->root[r->n_roots]));
        r->n_roots++;
    }
    return WN_OK;
}

/* Makes the limit of the gradients' norm a number among the leaves, in the dtype that the norm has. */
static int32_t take_clip(struct wn_program *p)
{
    const struct wn__request *r = &p->request;
    if (r->clip == 0) return WN_OK;
    int32_t dtype = r->update[0].cell[0]->type.dtype == WN_F64 ? WN_F64 : WN_F32;
    return wn__record_const(&r->clip, 0, dtype, &p->bindings.limit);
}

/* ---- the order --------------------------------------------------------------------------------------- */

/* Appends the retained values that hang off the graph of the losses, which carries the stamp, in record order. Those of
 * another function that is planned are left out. */
static int32_t take_retained(struct wn__request *r, int64_t stamp)
{
    const struct wn__retained *list;
    int64_t n = wn__retained(&list);
    int32_t first = r->n_roots, given = wn__losses(r); /* the request named root[given .. first) */
    for (int64_t i = 0; i < n; i++) {
        struct wn_node *node = list[i].node;
        int32_t shares, at = r->n_roots, is_given = node->stamp == stamp;
        for (int32_t k = given; k < first; k++) is_given |= r->root[k] == node;
        if (is_given || (list[i].by != NULL && list[i].by != wn__sequence_now())) continue;
        WN_TRY(wn__order_shares(node, stamp, &shares));
        if (shares != 1) continue;
        for (; at > first && r->root[at - 1]->seq > node->seq; at--) r->root[at] = r->root[at - 1];
        r->root[at] = node;
        wn__node_ref(node);
        r->n_roots++;
        r->n_also++;
    }
    return WN_OK;
}

/* Adds what is computed beside the losses to their order, which carries the stamp. WN_VALUE: a value is made of nothing
 * that the program computes. */
static int32_t walk_also(struct wn__request *r, int64_t stamp, struct wn__order *order)
{
    int32_t losses = wn__losses(r);
    for (int32_t i = losses; i < r->n_roots; i++) {
        const struct wn_node *n = r->root[i];
        int32_t shares = n->is_held && !wn__node_is_leaf(n);
        if (shares == 0) WN_TRY(wn__order_shares(r->root[i], stamp, &shares));
        if (shares == 0)
            return wn__fail(WN_VALUE,
                            "step: also: entry %d, %s %s, is made of nothing that this step computes; wane.eval "
                            "computes it",
                            i - losses + 1, wn__op_name(n->op), wn__type_text(&n->type));
    }
    WN_TRY(take_retained(r, stamp));
    if (r->n_also == 0) return WN_OK;
    order->count = order->reach = 0;
    return wn__topological_order(r->root, r->n_roots, wn__node_stamp(), order);
}

/* Orders what the roots reach, root by root. The limit of the norm is its last leaf, so that it is encoded and bound as
 * any number is. */
static int32_t walk(struct wn_program *p, int64_t stamp)
{
    struct wn__request *r = &p->request;
    struct wn__order *order = &p->bindings.order;
    const struct wn__retained *retained;
    int32_t losses = wn__losses(r), passes = wn__passes(r), at_once = passes == 1 ? losses : 1;
    if (!WN_ARRAY(&p->pool, p->bindings.root_end, passes)) return WN_OOM;
    if (wn__is_backward(r)) order->from = r->root, order->n_from = losses;
    for (int32_t i = 0; i < passes; i++) {
        WN_TRY(wn__topological_order(&r->root[i], at_once, stamp, order));
        p->bindings.root_end[i] = (int32_t)order->count;
    }
    if (wn__is_backward(r) && passes == 1 && (r->n_also > 0 || wn__retained(&retained) > 0))
        WN_TRY(walk_also(r, stamp, order));
    if (p->bindings.limit != NULL) WN_TRY(wn__order_push(order, p->bindings.limit));
    p->bindings.root_end[passes - 1] = (int32_t)order->count;
    return WN_OK;
}

/* Lists the effects of the order's values, in the order of recording, that no program has carried out yet. A value that
 * is held was computed already. */
static int32_t list_forward_effects(struct wn_program *p)
{
    struct wn__bindings *b = &p->bindings;
    int32_t n = 0;
    for (int64_t i = 0; i < b->order.count; i++)
        for (const struct wn__forward_effect *e = b->order.nodes[i]->effects; e != NULL; e = e->next) n++;
    if (n == 0) return WN_OK;
    if (!WN_ARRAY(&p->pool, b->forward_effect, n)) return WN_OOM;
    for (int64_t i = 0; i < b->order.count; i++) {
        const struct wn_node *v = b->order.nodes[i];
        if (v->effects_done || v->is_held || wn__node_is_leaf(v)) continue;
        for (const struct wn__forward_effect *e = v->effects; e != NULL; e = e->next)
            b->forward_effect[b->n_forward_effects++] = (struct wn__pending_effect){(int32_t)i, e};
    }
    return WN_OK;
}

/* Appends a cell that is not named yet. */
static void name_cell(struct wn__bindings *b, struct wn_cell *c, int64_t stamp)
{
    if (c == NULL || c->stamp == stamp) return;
    c->stamp = stamp;
    c->local = b->n_named;
    b->named[b->n_named++] = c;
}

/* Gives the nodes of the order local numbers, and lists the cells that it reads, then those that others name, under
 * theirs. */
static int32_t number(struct wn_program *p, int64_t stamp)
{
    struct wn__bindings *b = &p->bindings;
    const struct wn__request *r = &p->request;
    int64_t most = b->order.count + 3 * (int64_t)r->n_updates + r->n_roots + b->n_forward_effects;
    if (!WN_ARRAY(&p->pool, b->named, most)) return WN_OOM;
    for (int64_t i = 0; i < b->order.count; i++) {
        struct wn_node *n = b->order.nodes[i];
        n->local = (int32_t)i;
        if (n->op == WN_OP_CELL) name_cell(b, n->cell, stamp);
    }
    b->n_read = b->n_named;
    p->request.ranks.has_no_part = r->ranks.is_idle;
    for (int32_t i = 0; i < b->n_read; i++)
        if (b->named[i]->is_sharded) p->request.ranks.has_no_part = 0;
    for (int32_t i = 0; i < r->n_updates * 3; i++) name_cell(b, r->update[i / 3].cell[i % 3], stamp);
    for (int32_t i = 0; i < r->n_roots; i++) name_cell(b, r->assigned[i], stamp);
    for (int32_t i = 0; i < b->n_forward_effects; i++) name_cell(b, b->forward_effect[i].what->cell, stamp);
    return WN_OK;
}

/* Refuses gradients that are there already, where the request asks for none. */
static int32_t check_fresh(const struct wn__request *r, const struct wn__bindings *b)
{
    for (int32_t i = 0; r->is_fresh && i < b->n_read; i++) {
        const struct wn_cell *c = b->named[i];
        if (c->grad != NULL && c->grad->allocated)
            return wn__fail(WN_VALUE,
                            "backward: %s has a gradient already, and the mean by weights is one of "
                            "micro-batches alone; call zero_grad() before",
                            c->name ? c->name : "a parameter");
    }
    return WN_OK;
}

/* Numbers the sets of optimizers' numbers. A cell that a step does not read is not updated either, and how often it
 * was updated before must not change the program of the others. */
static void number_sets(struct wn__request *r, int32_t n_read)
{
    for (int32_t i = 0, k; i < r->n_updates; i++) {
        struct wn__update *u = &r->update[i];
        u->set = -1;
        if (r->mode == WN_RUN_STEP && u->cell[0]->local >= n_read) continue;
        for (k = 0; k < i && (r->update[k].set < 0 || r->update[k].hyper != u->hyper);) k++;
        u->set = k < i ? r->update[k].set : r->n_sets++;
    }
}

/* Finds the one device of all roots and named cells. WN_DEVICE: there are two. */
static int32_t find_device(struct wn__request *r, const struct wn__bindings *b)
{
    int32_t all = WN_NO_DEVICE;
    for (int32_t i = 0; i < r->n_roots + b->n_named; i++) {
        int32_t is_cell = i >= r->n_roots, own = is_cell ? b->named[i - r->n_roots]->device : r->root[i]->device;
        if (all == WN_NO_DEVICE) all = own;
        if (own != WN_NO_DEVICE && own != all)
            return wn__fail(WN_DEVICE, "run: values on %s and %son %s in one program; move one with :to",
                            wn__device(all)->name, is_cell ? "a state " : "", wn__device(own)->name);
    }
    r->device = all != WN_NO_DEVICE ? all : wn__here.device;
    return WN_OK;
}

int32_t wn__request_take(struct wn_program *p)
{
    struct wn__request *r = &p->request;
    int64_t stamp = wn__node_stamp();
    if (wn__machine(r->target) == NULL) return wn__fail(WN_VALUE, "run: there is no target %d", r->target);
    WN_TRY(take_roots(r));
    WN_TRY(take_updates(r));
    WN_TRY(take_clip(p));
    int32_t code = walk(p, stamp);
    for (int64_t i = 0; i < p->bindings.order.count; i++) wn__node_ref(p->bindings.order.nodes[i]);
    WN_TRY(code);
    WN_TRY(list_forward_effects(p));
    WN_TRY(number(p, stamp));
    WN_TRY(check_fresh(r, &p->bindings));
    WN_TRY(find_device(r, &p->bindings));
    number_sets(r, p->bindings.n_read);
    return WN_OK;
}
