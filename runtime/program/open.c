/* Opens a program: takes the request, orders the graph that it reaches, writes the key, looks the plan up. On a hit
 * nothing is differentiated; on a miss the program stays open to a policy's decisions.
 *
 * The key of a request is of another kind than the keys that the table of fields gives (plan/ir/ir.def): it is written
 * of the recorded graph at every step, before there is an IR, and finds the IR itself. So what decides which IR is made
 * belongs to it, names, scopes and the places of gradients too. The two share the writes of graph/encode.h and the
 * fields of a target. */
#include <string.h>
#include "../base/alloc.h"
#include "../plan/ir/costs.h"
#include "program.h"
#include "sequence.h"

/* Returns the gradient of the order's cell i that this program assigns or adds to; NULL: there is none yet, or the
 * program leaves it alone, because a step uses its gradients up. */
static const struct wn_cell *kept_gradient(const struct wn_program *p, int32_t i)
{
    return p->request.mode == WN_RUN_STEP ? NULL : p->bindings.named[i]->grad;
}

/* Returns the slab in which all gradients of the order's cells have their places, in their order and filling it,
 * with none allocated: what the program that made it leaves once its gradients are cleared. NULL: there is no such
 * slab. has_any: some gradient has a place. */
static const struct wn__slab *cleared_slab(const struct wn_program *p, int32_t *has_any)
{
    const struct wn__slab *s = NULL;
    int64_t at = 0;
    *has_any = 0;
    for (int32_t i = 0; i < p->bindings.n_read; i++) {
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
    for (int32_t i = 0; i < p->bindings.n_read; i++) {
        const struct wn_cell *g = kept_gradient(p, i);
        wn__bytes_int(b, p->bindings.named[i]->kind);
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
    for (int32_t i = 0; i < p->bindings.n_read; i++) {
        wn__bytes_int(b, p->bindings.named[i]->kind);
        wn__bytes_int(b, 0);
    }
    if (b->code != WN_OK) return;
    p->plan.as_new = wn__bytes_hash(b->data + sizeof p->request.policy, b->count - (int64_t)sizeof p->request.policy);
    if (!has_any || (s != NULL && s->maker == p->plan.as_new)) return;
    p->plan.as_new = 0;
    b->count = before;
    key_gradients(p, b);
}

static void key_updates(const struct wn__request *r, struct wn__bytes *b)
{
    for (int32_t i = 0; i < r->n_updates; i++) {
        const struct wn__update *u = &r->update[i];
        wn__bytes_int(b, u->op);
        /* The key says how updates share sets of numbers, and not the numbers. */
        wn__bytes_int(b, u->set + 1);
        for (int32_t k = 0; k < 3; k++) wn__bytes_int(b, u->cell[k] == NULL ? 0 : u->cell[k]->local + 1);
    }
}

static void key_forward_effects(const struct wn__bindings *bound, struct wn__bytes *b)
{
    wn__bytes_int(b, bound->n_forward_effects);
    for (int32_t i = 0; i < bound->n_forward_effects; i++) {
        const struct wn__pending_effect *e = &bound->forward_effect[i];
        wn__bytes_int(b, e->node);
        wn__bytes_int(b, e->what->op);
        wn__bytes_int(b, e->what->cell->local);
        wn__bytes_attrs(b, &e->what->attrs);
    }
}

static int32_t write_key(struct wn_program *p)
{
    const struct wn__request *r = &p->request;
    const struct wn__order *order = &p->bindings.order;
    struct wn__bytes *b = &p->plan.key;
    struct wn__regions regions = {0};
    const int64_t head[] = {r->n_also,    r->mode,        r->joint,    r->device, r->n_roots,
                            r->n_updates, wn__rewrite_on, wn__rows_on, r->target, wn__costs_id()};
    /* bytes; most keys need no more */
    WN_KEEP(b->code, wn__grow(&b->data, &b->capacity, 16 * (order->count + r->n_updates + 16), 1));
    wn__bytes_put(b, &r->policy, sizeof r->policy); /* first, so that another policy can be put there */
    for (size_t i = 0; i < sizeof head / sizeof head[0]; i++) wn__bytes_int(b, head[i]);
    wn__bytes_put(b, &r->ranks, sizeof r->ranks);
    for (int32_t i = 0; r->ranks.size > 1 && i < p->bindings.n_named; i++) {
        const struct wn_cell *c = p->bindings.named[i];
        wn__bytes_int(b, c->is_sliced ? c->cut_start : -1);
        wn__bytes_int(b, c->is_sharded);
        if (c->is_sliced) wn__bytes_type(b, &c->whole); /* a range does not tell of what it is one */
    }
    wn__target_encode(b, &wn__device(r->device)->target);
    wn__bytes_put(b, &r->scale, sizeof r->scale);
    for (int32_t i = 0; i < r->n_roots; i++) {
        wn__bytes_int(b, r->root[i]->local);
        if (r->assigned[i] != NULL) wn__bytes_int(b, r->assigned[i]->local);
    }
    key_updates(r, b);
    wn__bytes_int(b, order->count);
    for (int64_t i = 0; i < order->count; i++) wn__encode_node(b, order->nodes[i], &regions);
    key_forward_effects(&p->bindings, b);
    if (wn__is_backward(r)) wn__tiles_encode(b, order->nodes, order->count);
    if (wn__is_backward(r)) key_slabs(p, b);
    wn__free(regions.seen);
    return b->code;
}

static int32_t prepare(struct wn_program *p)
{
    struct wn__plan *plan = &p->plan;
    WN_TRY(wn__request_take(p));
    WN_TRY(write_key(p));
    wn__plan_find(plan);
    if (plan->ir == NULL) plan->ir = wn__sequence_ir(&plan->key);
    if (plan->ir == NULL) WN_TRY(wn__program_assemble(p));
    if (plan->marks == NULL) plan->marks = wn__marks_new(plan->ir->n);
    return plan->marks == NULL ? WN_OOM : wn__program_bind(p);
}

/* Drops the inputs of a root that depends on a changed state: from now on it can only raise an error, and what it
 * was made of need not live on with it. */
static void give_up_root(const struct wn__request *r)
{
    struct wn_node *n = r->n_roots == 1 ? r->root[0] : NULL;
    if (n == NULL || n->is_held || n->n_in == 0) return;
    n->stale = 1;
    wn__node_drop_inputs(n);
}

int32_t wn__program_open(struct wn_program *p)
{
    int32_t code = prepare(p);
    if (code == WN_STALE && p->request.mode == WN_RUN_EVAL) give_up_root(&p->request);
    return code;
}
