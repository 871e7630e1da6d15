/* Opens a program: takes the request, orders the graph that it reaches, writes the key, looks the plan up. On a hit
 * nothing is differentiated; on a miss the program stays open to a policy's decisions.
 *
 * The key of a request is of another kind than the keys that the table of fields gives (plan/ir/ir.def): it is written
 * of the recorded graph at every step, before there is an IR, and finds the IR itself. So what decides which IR is made
 * belongs to it, names, scopes and the places of gradients too. The two share the writes of graph/encode.h and the
 * fields of a target. */
#include <string.h>
#include "../base/alloc.h"
#include "../base/outside.h"
#include "../plan/ir/costs.h"
#include "program.h"
#include "sequence.h"

static int32_t is_backward(int32_t mode)
{
    return mode == WN_RUN_BACKWARD || mode == WN_RUN_STEP;
}

/* Refuses a root that no backward can start from. */
static int32_t check_root(const struct wn_program *p, const struct wn_node *n)
{
    if (!is_backward(p->mode)) return WN_OK;
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

/* Takes the roots; of an assignment with the cells that get them, in the layout of the cell. Room is left for
 * retained values. */
static int32_t take_roots(struct wn_program *p, const struct wn__program_request *r)
{
    const struct wn__retained *retained;
    int64_t most = r->n_roots + r->n_updates + wn__retained(&retained);
    if (!WN_ARRAY(&p->pool, p->root, most) || !WN_ARRAY(&p->pool, p->assigned, most)) return WN_OOM;
    for (int32_t i = 0; i < r->n_roots; i++) {
        p->root[i] = r->root[i];
        wn__node_ref(p->root[i]);
        p->n_roots++;
        p->n_also += i >= r->n_roots - r->n_also;
        WN_TRY(p->n_also > 0 ? wn__program_check_also(r, i) : check_root(p, p->root[i]));
        if (p->mode != WN_RUN_ASSIGN) continue;
        struct wn_cell *c = r->cell[i];
        if (!wn__type_agrees(&c->type, &p->root[i]->type))
            return wn__fail(WN_SHAPE, "assign: a value of %s cannot go into a state of %s",
                            wn__type_text(&p->root[i]->type), wn__type_text(&c->type));
        struct wn_node *value = p->root[i];
        WN_TRY(wn__record_layout(value, c->type.layout, value->line, &p->root[i]));
        wn__node_unref(value);
        p->assigned[i] = c;
        wn__cell_ref(c);
    }
    return WN_OK;
}

/* Takes one update, whose states must have the type of its parameter. */
static int32_t take_update(struct wn_program *p, const struct wn__program_update *u, int32_t at)
{
    const struct wn_type *type = &u->cell[0]->type;
    p->update[at] = *u;
    u->hyper->refs++;
    for (int32_t k = 0; k < 3; k++)
        if (u->cell[k] != NULL) wn__cell_ref(u->cell[k]);
    for (int32_t k = 1; k < 3; k++)
        if (u->cell[k] != NULL && !wn__type_equal(&u->cell[k]->type, type))
            return wn__fail(WN_SHAPE, "step: optimizer state of %s for a parameter of %s",
                            wn__type_text(&u->cell[k]->type), wn__type_text(type));
    return WN_OK;
}

/* Makes the limit of the gradients' norm a number among the leaves, in the dtype that the norm has. */
static int32_t take_clip(struct wn_program *p, double limit)
{
    if (limit == 0) return WN_OK;
    if (!(limit > 0) || p->mode != WN_RUN_STEP || p->n_updates == 0)
        return wn__fail(WN_VALUE,
                        "step: a limit of %g for the norm of the gradients; it must be above 0, and of a step", limit);
    return wn__record_const(&limit, 0, p->update[0].cell[0]->type.dtype == WN_F64 ? WN_F64 : WN_F32, &p->clip);
}

/* Takes the updates. In UPDATE mode each gradient that exists becomes a root, and updates of other cells are left
 * out. */
static int32_t take_updates(struct wn_program *p, const struct wn__program_request *r)
{
    if (!WN_ARRAY(&p->pool, p->update, r->n_updates)) return WN_OOM;
    for (int32_t i = 0; i < r->n_updates; i++) {
        const struct wn__program_update *u = &r->update[i];
        const struct wn_cell *c = u->cell[0];
        if (p->mode == WN_RUN_UPDATE && (c->grad == NULL || !c->grad->allocated)) continue;
        int32_t at = p->n_updates++;
        WN_TRY(take_update(p, u, at));
        if (p->mode != WN_RUN_UPDATE) continue;
        WN_TRY(wn__cell_reader(c->grad, &p->root[p->n_roots]));
        p->n_roots++;
    }
    return WN_OK;
}

/* Finds the one device of all roots and named cells. WN_DEVICE: there are two. */
static int32_t find_device(struct wn_program *p)
{
    p->device = WN_NO_DEVICE;
    for (int32_t i = 0; i < p->n_roots; i++) {
        int32_t d = p->root[i]->device;
        if (d == WN_NO_DEVICE) continue;
        if (p->device != WN_NO_DEVICE && p->device != d)
            return wn__fail(WN_DEVICE, "run: values on %s and on %s in one program; move one with :to",
                            wn__device(p->device)->name, wn__device(d)->name);
        p->device = d;
    }
    for (int32_t i = 0; i < p->n_named; i++) {
        const struct wn_cell *c = p->named[i];
        if (p->device == WN_NO_DEVICE) p->device = c->device;
        if (p->device != c->device)
            return wn__fail(WN_DEVICE, "run: values on %s and a state on %s in one program; move one with :to",
                            wn__device(p->device)->name, wn__device(c->device)->name);
    }
    if (p->device == WN_NO_DEVICE) p->device = wn__here.device;
    return WN_OK;
}

/* Appends the limit of the norm as the last leaf of the order, so that it is encoded and bound as any number is. */
static int32_t walk_clip(struct wn_program *p, int32_t passes)
{
    WN_TRY(wn__grow(&p->order.nodes, &p->order.capacity, p->order.count + 1, sizeof *p->order.nodes));
    p->order.nodes[p->order.count++] = p->clip;
    p->root_end[passes - 1] = (int32_t)p->order.count;
    return WN_OK;
}

/* Lists the effects of the order's values, in the order of recording, that no program has carried out yet. A value that
 * is held was computed already. */
static int32_t list_forward_effects(struct wn_program *p)
{
    int32_t n = 0;
    for (int64_t i = 0; i < p->order.count; i++)
        for (const struct wn__forward_effect *e = p->order.nodes[i]->effects; e != NULL; e = e->next) n++;
    if (n == 0) return WN_OK;
    if (!WN_ARRAY(&p->pool, p->forward_effect, n)) return WN_OOM;
    for (int64_t i = 0; i < p->order.count; i++) {
        const struct wn_node *v = p->order.nodes[i];
        if (v->effects_done || v->is_held || wn__node_is_leaf(v)) continue;
        for (const struct wn__forward_effect *e = v->effects; e != NULL; e = e->next)
            p->forward_effect[p->n_forward_effects++] = (struct wn__pending_effect){(int32_t)i, e};
    }
    return WN_OK;
}

/* Appends a cell that is not named yet. */
static void name_cell(struct wn_program *p, struct wn_cell *c, int64_t stamp)
{
    if (c == NULL || c->stamp == stamp) return;
    c->stamp = stamp;
    c->local = p->n_named;
    p->named[p->n_named++] = c;
}

/* Makes the order, root by root, with local numbers, and lists the cells that it reads under theirs. */
static int32_t walk_roots(struct wn_program *p)
{
    int64_t stamp = wn__node_stamp();
    const struct wn__retained *retained;
    int32_t by_root = is_backward(p->mode) && !p->joint, losses = p->n_roots - p->n_also;
    int32_t passes = by_root ? losses : 1, code = WN_OK;
    if (!WN_ARRAY(&p->pool, p->root_end, passes)) return WN_OOM;
    if (is_backward(p->mode)) p->order.from = p->root, p->order.n_from = losses;
    for (int32_t i = 0; i < passes && code == WN_OK; i++) {
        code = wn__topological_order(by_root ? &p->root[i] : p->root, by_root ? 1 : losses, stamp, &p->order);
        p->root_end[i] = (int32_t)p->order.count;
    }
    if (code == WN_OK && is_backward(p->mode) && passes == 1 && (p->n_also > 0 || wn__retained(&retained) > 0)) {
        code = wn__program_walk_also(p, stamp);
        p->root_end[0] = (int32_t)p->order.count;
    }
    if (code == WN_OK && p->clip != NULL) code = walk_clip(p, passes);
    for (int64_t i = 0; i < p->order.count; i++) wn__node_ref(p->order.nodes[i]);
    WN_TRY(code);
    WN_TRY(list_forward_effects(p));
    int64_t most = p->order.count + 3 * (int64_t)p->n_updates + p->n_roots + p->n_forward_effects;
    if (!WN_ARRAY(&p->pool, p->named, most)) return WN_OOM;
    for (int64_t i = 0; i < p->order.count; i++) {
        struct wn_node *n = p->order.nodes[i];
        n->local = (int32_t)i;
        if (n->op == WN_OP_CELL) name_cell(p, n->cell, stamp);
    }
    p->n_read = p->n_named;
    for (int32_t i = 0; i < p->n_updates * 3; i++) name_cell(p, p->update[i / 3].cell[i % 3], stamp);
    for (int32_t i = 0; i < p->n_roots; i++) name_cell(p, p->assigned[i], stamp);
    for (int32_t i = 0; i < p->n_forward_effects; i++) name_cell(p, p->forward_effect[i].what->cell, stamp);
    return WN_OK;
}

/* Numbers the sets of optimizers' numbers. A cell that a step does not read is not updated either, and how often it
 * was updated before must not change the program of the others. */
static void number_sets(struct wn_program *p)
{
    for (int32_t i = 0, k; i < p->n_updates; i++) {
        struct wn__program_update *u = &p->update[i];
        u->set = -1;
        if (p->mode == WN_RUN_STEP && u->cell[0]->local >= p->n_read) continue;
        for (k = 0; k < i && (p->update[k].set < 0 || p->update[k].hyper != u->hyper);) k++;
        u->set = k < i ? p->update[k].set : p->n_sets++;
    }
}

/* Returns the gradient of the order's cell i that this program assigns or adds to; NULL: there is none yet, or the
 * program leaves it alone, because a step uses its gradients up. */
static const struct wn_cell *kept_gradient(const struct wn_program *p, int32_t i)
{
    return p->mode == WN_RUN_STEP ? NULL : p->named[i]->grad;
}

/* Returns the slab in which all gradients of the order's cells have their places, in their order and filling it,
 * with none allocated: what the program that made it leaves once its gradients are cleared. NULL: there is no such
 * slab. has_any: some gradient has a place. */
static const struct wn__slab *cleared_slab(const struct wn_program *p, int32_t *has_any)
{
    const struct wn__slab *s = NULL;
    int64_t at = 0;
    *has_any = 0;
    for (int32_t i = 0; i < p->n_read; i++) {
        const struct wn_cell *g = kept_gradient(p, i);
        if (g == NULL || g->slab == NULL) continue;
        *has_any = 1;
        if (s == NULL) s = g->slab;
        if (g->slab != s || g->slab_offset != at) return NULL;
        at += wn__padded(wn__bytes(&g->type));
    }
    return s != NULL && s->allocated == 0 && at == s->bytes ? s : NULL;
}

/* Writes the state of each cell's gradient: 0 none, 1 a place in a slab, 2 a value to add to. */
static void key_gradients(struct wn_program *p, struct wn__bytes *b)
{
    int64_t stamp = wn__node_stamp();
    int32_t met = 0;
    for (int32_t i = 0; i < p->n_read; i++) {
        const struct wn_cell *g = kept_gradient(p, i);
        wn__bytes_int(b, p->named[i]->kind);
        if (g == NULL || g->slab == NULL) {
            wn__bytes_int(b, 0);
            continue;
        }
        if (g->slab->stamp != stamp) {
            g->slab->stamp = stamp;
            g->slab->local = met++;
        }
        wn__bytes_int(b, g->allocated ? 2 : 1);
        wn__bytes_int(b, g->slab->local);
        wn__bytes_int(b, g->slab_offset);
        wn__bytes_int(b, g->slab->bytes);
    }
}

/* Writes the end of a backward's key. A slab that this very program made is written like none, so that the plan of
 * the first step is the plan of every step. */
static void key_slabs(struct wn_program *p, struct wn__bytes *b)
{
    int64_t before = b->count;
    int32_t has_any;
    const struct wn__slab *s = cleared_slab(p, &has_any);
    for (int32_t i = 0; i < p->n_read; i++) {
        wn__bytes_int(b, p->named[i]->kind);
        wn__bytes_int(b, 0);
    }
    if (b->code != WN_OK) return;
    p->as_new = wn__bytes_hash(b->data + sizeof p->policy, b->count - (int64_t)sizeof p->policy);
    if (!has_any || (s != NULL && s->maker == p->as_new)) return;
    p->as_new = 0;
    b->count = before;
    key_gradients(p, b);
}

static int32_t write_key(struct wn_program *p)
{
    struct wn__bytes *b = &p->key;
    struct wn__regions regions = {0};
    const int64_t head[] = {p->n_also,    p->mode,        p->joint,  p->device,     p->n_roots,
                            p->n_updates, wn__rewrite_on, p->target, wn__costs_id()};
    WN_KEEP(b->code, wn__grow(&b->data, &b->capacity, 16 * (p->order.count + p->n_updates + 16),
                              1));                  /* bytes; most keys need no more */
    wn__bytes_put(b, &p->policy, sizeof p->policy); /* first, so that another policy can be put there */
    for (size_t i = 0; i < sizeof head / sizeof head[0]; i++) wn__bytes_int(b, head[i]);
    wn__target_encode(b, &wn__device(p->device)->target);
    wn__bytes_put(b, &p->scale, sizeof p->scale);
    for (int32_t i = 0; i < p->n_roots; i++) {
        wn__bytes_int(b, p->root[i]->local);
        if (p->assigned[i] != NULL) wn__bytes_int(b, p->assigned[i]->local);
    }
    for (int32_t i = 0; i < p->n_updates; i++) {
        const struct wn__program_update *u = &p->update[i];
        wn__bytes_int(b, u->op);
        /* The key says how updates share sets of numbers, and not the numbers. */
        wn__bytes_int(b, u->set + 1);
        for (int32_t k = 0; k < 3; k++) wn__bytes_int(b, u->cell[k] == NULL ? 0 : u->cell[k]->local + 1);
    }
    wn__bytes_int(b, p->order.count);
    for (int64_t i = 0; i < p->order.count; i++) wn__encode_node(b, p->order.nodes[i], &regions);
    wn__bytes_int(b, p->n_forward_effects);
    for (int32_t i = 0; i < p->n_forward_effects; i++) {
        const struct wn__pending_effect *e = &p->forward_effect[i];
        wn__bytes_int(b, e->node);
        wn__bytes_int(b, e->what->op);
        wn__bytes_int(b, e->what->cell->local);
        wn__bytes_attrs(b, &e->what->attrs);
    }
    if (is_backward(p->mode)) wn__tiles_encode(b, p->order.nodes, p->order.count);
    if (is_backward(p->mode)) key_slabs(p, b);
    wn__free(regions.seen);
    return b->code;
}

static int32_t program_prepare(struct wn_program *p, const struct wn__program_request *r)
{
    WN_TRY(take_roots(p, r));
    WN_TRY(take_updates(p, r));
    WN_TRY(take_clip(p, r->clip));
    WN_TRY(walk_roots(p));
    WN_TRY(find_device(p));
    number_sets(p);
    WN_TRY(write_key(p));
    p->ir = wn__cache_find(&p->key, &p->marks, &p->schedule);
    if (p->ir == NULL) p->ir = wn__sequence_ir(&p->key);
    if (p->ir == NULL) WN_TRY(wn__program_assemble(p));
    if (p->marks == NULL) p->marks = wn__marks_new(p->ir->n);
    if (p->marks == NULL) return WN_OOM;
    return wn__program_bind(p);
}

/* Drops the inputs of a root that depends on a changed state: from now on it can only raise an error, and what it
 * was made of need not live on with it. */
static void give_up_root(struct wn_program *p)
{
    struct wn_node *n = p->n_roots == 1 ? p->root[0] : NULL;
    if (n == NULL || n->is_held || n->n_in == 0) return;
    n->stale = 1;
    wn__node_drop_inputs(n);
}

int32_t wn__program_open(const struct wn__program_request *r, struct wn_program **out)
{
    struct wn_program *p = wn__alloc(sizeof *p);
    if (p == NULL) return WN_OOM;
    p->mode = r->mode;
    p->joint = r->joint;
    p->again = r->again;
    p->scale = r->scale;
    p->policy = r->policy;
    p->target = r->target;
    if (wn__machine(p->target) == NULL) {
        wn__program_free(p);
        return wn__fail(WN_VALUE, "run: there is no target %d", r->target);
    }
    int32_t code = program_prepare(p, r);
    if (code == WN_STALE && p->mode == WN_RUN_EVAL) give_up_root(p);
    if (code != WN_OK) {
        wn__program_free(p);
        return code;
    }
    *out = p;
    return WN_OK;
}

static void unref_nodes(struct wn_node **nodes, int64_t n)
{
    for (int64_t i = 0; nodes != NULL && i < n; i++) wn__node_unref(nodes[i]);
}

void wn__program_free(void *program)
{
    struct wn_program *p = program;
    unref_nodes(p->root, p->n_roots);
    unref_nodes(p->order.nodes, p->order.nodes != NULL && p->root_end != NULL ? p->order.count : 0);
    wn__node_unref(p->clip);
    for (int32_t i = 0; p->assigned != NULL && i < p->n_roots; i++) wn__cell_unref(p->assigned[i]);
    for (int32_t i = 0; i < p->n_updates * 3; i++) wn__cell_unref(p->update[i / 3].cell[i % 3]);
    for (int32_t i = 0; i < p->n_updates; i++)
        if (--p->update[i].hyper->refs == 0) wn__free(p->update[i].hyper);
    if (p->ir != NULL) {
        unref_nodes(p->bound, p->ir->n_bound);
        unref_nodes(p->scalar, p->ir->n_scalars);
        unref_nodes(p->result, p->ir->n_results);
    }
    for (int32_t i = 0; p->cell != NULL && i < p->ir->n_cells; i++) wn__cell_unref(p->cell[i]);
    for (int32_t i = 0; p->slab != NULL && i < p->ir->n_slabs; i++) wn__slab_unref(p->slab[i]);
    wn__frontier_unref(p->frontier);
    wn__recipe_release(&p->by_recipe);
    wn__schedule_unref(p->schedule);
    wn__marks_unref(p->marks);
    wn__ir_unref(p->ir);
    wn__free(p->key.data);
    wn__order_release(&p->order);
    wn__pool_release(&p->pool);
    wn__free(p);
}
