/* Remembers what a value was made of when it drops its inputs. A result that needs no gradient drops them, so that a
 * loop that evaluates its state holds one state; a gradient that is asked for later must not be silently less for it.
 * So the value keeps its parts by number, the newest ones each and all older ones as one. */
#include <stdlib.h>
#include "../base/alloc.h"
#include "graph.h"

enum { MOST = 64 }; /* parts that a value remembers each */

/* A value: its place in record order; of a CELL the number of its cell, below 0, and the version that it reads. */
struct part {
    int64_t who, version;
};

struct wn__past {
    int64_t before; /* any value with a smaller `who` may be a part, too; INT64_MIN: none */
    int64_t count;
    struct part part[]; /* (count) newest first */
};

static const struct wn__past anything = {.before = INT64_MAX};

static struct part part_of(const struct wn_node *v)
{
    if (v->op == WN_OP_CELL) return (struct part){-v->cell->serial, v->version};
    return (struct part){v->seq, 0};
}

static int newest_first(const void *a, const void *b)
{
    const struct part *x = a, *y = b;
    return (x->who < y->who) - (x->who > y->who);
}

/* The parts that are being collected. */
struct collection {
    struct wn__order reached; /* nodes met; none counted */
    struct part *part;
    int64_t count, capacity, before, stamp;
};

static int32_t take(struct collection *c, const struct part *part, int64_t n)
{
    WN_TRY(wn__grow(&c->part, &c->capacity, c->count + n, sizeof *part));
    for (int64_t i = 0; i < n; i++) c->part[c->count++] = part[i];
    return WN_OK;
}

static int32_t reach(struct collection *c, struct wn_node *v)
{
    if (v->stamp == c->stamp || v->op == WN_OP_CONST || !wn__dtype_is_float(v->type.dtype)) return WN_OK;
    v->stamp = c->stamp;
    WN_TRY(wn__order_push(&c->reached, v));
    struct part own = part_of(v);
    WN_TRY(take(c, &own, 1));
    if (v->past == NULL) return WN_OK;
    if (v->past->before > c->before) c->before = v->past->before;
    return take(c, v->past->part, v->past->count);
}

static int32_t collect(struct collection *c, const struct wn_node *n)
{
    for (int32_t k = 0; k < n->n_in; k++) WN_TRY(reach(c, n->in[k]));
    for (int64_t at = 0; at < c->reached.count; at++) {
        const struct wn_node *v = c->reached.nodes[at];
        for (int32_t k = 0; k < v->n_in && !v->is_cut; k++) WN_TRY(reach(c, v->in[k]));
    }
    return WN_OK;
}

/* Returns what was collected as a past; that of anything when memory is short. */
static const struct wn__past *settle(struct collection *c)
{
    qsort(c->part, (size_t)c->count, sizeof *c->part, newest_first);
    if (c->count > MOST) {
        int64_t last = c->part[MOST - 1].who;
        if (last > c->before) c->before = last;
        c->count = MOST;
    }
    struct wn__past *past = wn__alloc((int64_t)sizeof *past + c->count * (int64_t)sizeof past->part[0]);
    if (past == NULL) return &anything;
    past->before = c->before;
    past->count = c->count;
    for (int64_t i = 0; i < c->count; i++) past->part[i] = c->part[i];
    return past;
}

void wn__past_note(struct wn_node *n)
{
    struct collection c = {.before = INT64_MIN, .stamp = wn__node_stamp()};
    if (n->is_cut || n->n_in == 0 || !wn__dtype_is_float(n->type.dtype)) return;
    int32_t code = collect(&c, n);
    if (code != WN_OK || c.count > 0) n->past = code == WN_OK ? settle(&c) : &anything;
    wn__order_release(&c.reached);
    wn__free(c.part);
}

int32_t wn__past_has(const struct wn_node *n, const struct wn_node *v)
{
    struct part part = part_of(v);
    if (n->past == NULL) return 0;
    for (int64_t i = 0; i < n->past->count; i++)
        if (n->past->part[i].who == part.who && n->past->part[i].version == part.version) return 1;
    return part.who < n->past->before && part.who < n->seq;
}

void wn__past_free(const struct wn__past *past)
{
    if (past != &anything) wn__free((void *)past);
}
