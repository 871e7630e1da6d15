/* Nodes: made, counted, freed. Freeing is a loop over a work list that is threaded through the dead nodes
 * themselves, so that a deep graph cannot overflow the stack and freeing cannot fail. Nodes of few inputs are kept
 * for the next ones. */
#include <string.h>
#include "../base/alloc.h"
#include "graph.h"

#define POOLED_INPUTS 4
static struct wn_node *spare[POOLED_INPUTS + 1]; /* freed nodes by number of inputs, threaded through forward_of */
static int64_t last_seq, last_stamp;

/* Prefetches the cache lines of a node that will be written soon: those of the spare list are not in the caches. */
static void node_prefetch(const struct wn_node *n)
{
    for (size_t at = 0; n != NULL && at < sizeof *n; at += 64) __builtin_prefetch((const char *)n + at, 1);
}

struct wn_node *wn__node_new(int32_t n_in)
{
    struct wn_node *n;
    int64_t size = (int64_t)sizeof *n + n_in * (int64_t)sizeof n->in[0];
    if (n_in <= POOLED_INPUTS && spare[n_in] != NULL) {
        if (wn__alloc_must_fail()) { /* a pooled node counts as an allocation, which any can be made to fail */
            wn__fail(WN_OOM, "out of host memory: a node was made to fail");
            return NULL;
        }
        n = spare[n_in];
        spare[n_in] = n->forward_of;
        node_prefetch(spare[n_in]);
        memset(n, 0, (size_t)size);
    } else {
        n = wn__alloc(size);
        if (n == NULL) return NULL;
    }
    n->refs = 1;
    n->n_in = n_in;
    n->seq = ++last_seq;
    return n;
}

struct wn_node *wn__leaf_new(int32_t op, const struct wn_type *type, int32_t device)
{
    struct wn_node *n = wn__node_new(0);
    if (n == NULL) return NULL;
    n->op = op;
    n->type = *type;
    n->device = device;
    return n;
}

int64_t wn__node_last(void)
{
    return last_seq;
}

/* Gives up the first n_in inputs of a node; those that nothing else counts join the list `dead`. */
static void node_dispose(struct wn_node *n, int32_t n_in, struct wn_node **dead)
{
    for (int32_t i = 0; i < n_in; i++) {
        struct wn_node *in = n->in[i];
        if (in->laid == n) in->laid = NULL;
        if (--in->refs > 0) continue;
        in->forward_of = *dead;
        *dead = in;
    }
}

/* Returns the number of inputs that a dead node has room for. n_in is 0 after inputs were dropped, so for CAT,
 * whose number of inputs varies, the least number counts. */
static int32_t node_capacity(const struct wn_node *n)
{
    return n->n_in > 0 ? n->n_in : wn__op_rows[n->op].least;
}

static void node_release(struct wn_node *n)
{
    int32_t capacity = node_capacity(n);
    if (n->retained_at > 0) wn__retained_remove(n);
    if (n->held != NULL) wn__buffer_unref(n->held);
    wn__hyper_unref(n->hyper);
    if (n->custom != NULL) wn__template_unref(n->custom);
    if (n->effects != NULL) wn__forward_effects_free(n->effects);
    if (n->past != NULL) wn__past_free(n->past);
    if (n->cell != NULL) {
        if (n->cell->reader == n) n->cell->reader = NULL;
        wn__cell_unref(n->cell);
    }
    if (capacity <= POOLED_INPUTS) {
        n->forward_of = spare[capacity];
        spare[capacity] = n;
    } else {
        wn__free(n);
    }
}

void wn__node_free(struct wn_node *n)
{
    struct wn_node *dead = n;
    n->forward_of = NULL;
    while (dead != NULL) {
        struct wn_node *d = dead;
        dead = d->forward_of;
        node_dispose(d, d->n_in, &dead);
        node_release(d);
    }
}

void wn__node_drop_inputs(struct wn_node *n)
{
    int32_t n_in = n->n_in;
    n->n_in = 0;
    n->depth = 0;
    n->needs_grad = 0;
    for (int32_t i = 0; i < n_in; i++) {
        if (n->in[i]->laid == n) n->in[i]->laid = NULL;
        wn__node_unref(n->in[i]);
    }
}

int64_t wn__node_stamp(void)
{
    return ++last_stamp;
}

int32_t wn__node_is_same(const struct wn_node *a, const struct wn_node *b)
{
    return a == b || (a->op == WN_OP_CELL && b->op == WN_OP_CELL && a->cell == b->cell && a->version == b->version);
}

int32_t wn__node_is_leaf(const struct wn_node *n)
{
    return (wn__op_flags(n->op) & WN_LEAF) != 0 || (n->is_held && n->n_in == 0);
}

void wn__node_numbers_put(const struct wn_node *n, void *bytes)
{
    int64_t size = wn__dtype_size(n->type.dtype);
    if (n->hyper == NULL) wn__number_put(n->type.dtype, n->number, bytes);
    for (int32_t i = 0; n->hyper != NULL && i < n->type.dim[0]; i++)
        wn__number_put(n->type.dtype, n->hyper->v[i], (char *)bytes + size * i);
}
