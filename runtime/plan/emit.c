/* From the solver's block operations to recipes. Blocks of a root are a chain: a class's numbers go in, and each point
 * of the chain's frontier that is asked for comes back as a list of operations, which become recipe steps with their
 * keep sets in full. What an operation keeps: results and what a word saves, always; what blocks yet to be run read;
 * and after Fe the option's values. */
#include <stdio.h>
#include <string.h>
#include "action.h"
#include "planner.h"

struct emission {
    const struct wn__form *f;
    const struct wn__recipe *base;
    const struct wn__classes *classes;
    struct wn__recipe out;
    int32_t code;
};

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* ---- the chain ----------------------------------------------------------------------------------------------- */

static struct wn__chain_option option_of(const struct wn__class *c, const struct wn__excerpt_cost *cost)
{
    int64_t backward = larger(cost->backward_peak, cost->saved + c->excerpt.given + cost->born);
    return (struct wn__chain_option){.forward = cost->forward_ns,
                                     .backward = cost->backward_ns,
                                     .saved = cost->saved,
                                     .peak_forward = larger(cost->forward_peak, cost->saved),
                                     .peak_backward = backward - cost->born};
}

/* Blocks [lo, hi) as a chain; arrays from the pool. */
static int32_t make_chain(const struct wn__classes *k, int32_t lo, int32_t hi, struct wn__pool *pool,
                          struct wn__chain_blocks *out)
{
    int64_t options = 0;
    for (int32_t b = lo; b < hi; b++) options += k->class[k->of[b]].n_options;
    struct wn__chain_block *block = wn__pool_get(pool, (hi - lo) * (int64_t)sizeof *block);
    struct wn__chain_option *option = wn__pool_get(pool, (options + 1) * (int64_t)sizeof *option);
    if (block == NULL || option == NULL) return WN_OOM;
    *out = (struct wn__chain_blocks){.n = hi - lo, .block = block, .option = option};
    for (int32_t b = lo; b < hi; b++) {
        const struct wn__class *c = &k->class[k->of[b]];
        block[b - lo] = (struct wn__chain_block){.time = c->plain.forward_ns,
                                                 .peak = larger(c->plain.forward_peak, c->outputs),
                                                 .bytes = c->outputs,
                                                 .grad = c->excerpt.given,
                                                 .born = c->plain.born,
                                                 .first = out->n_options,
                                                 .n_options = c->n_options};
        for (int32_t q = 0; q < c->n_options; q++) option[out->n_options++] = option_of(c, &c->option[q].cost);
    }
    return WN_OK;
}

/* ---- operations to steps ---------------------------------------------------------------------------------------- */

/* One step of a block that keeps what is read at or after `beyond`, and the option's values (NULL: none). */
static void put_step(struct emission *e, int32_t kind, int32_t block, int32_t beyond, const struct wn__option *o)
{
    struct wn__recipe *r = &e->out;
    if (e->code == WN_OK) e->code = wn__recipe_room(r, r->limit[block] - r->first[block]);
    if (e->code != WN_OK) return;
    const int32_t *own = e->classes->own[block];
    int32_t n = 0, next = 0;
    for (int32_t i = r->first[block]; kind != WN_RECIPE_B && i < r->limit[block]; i++) {
        if (r->block_of[i] != block) continue;
        while (o != NULL && next < o->n_keep && own[o->keep[next]] < i) next++;
        int32_t chosen = o != NULL && next < o->n_keep && own[o->keep[next]] == i;
        int32_t needed = r->last[i] >= beyond && !e->f->node[i].is_reissued;
        if (chosen || needed || wn__recipe_always_keeps(e->f, i)) wn__recipe_keep(r, n++, i, wn__action_of(e->f, i));
    }
    e->code = wn__recipe_put(r, kind, block, e->f->node[r->first[block]].root, n);
}

static void put_op(struct emission *e, const struct wn_chain_op *op, int32_t lo, int32_t *front)
{
    int32_t b = lo + op->stage - 1;
    const struct wn__class *c = &e->classes->class[e->classes->of[b]];
    switch (op->what) {
    case WN_CHAIN_F:
        *front = b;
        put_step(e, WN_RECIPE_F, b, e->base->limit[b], NULL);
        break;
    case WN_CHAIN_FE:
        *front = b;
        put_step(e, WN_RECIPE_FE, b, e->base->limit[b], &c->option[op->option]);
        break;
    case WN_CHAIN_FREE: put_step(e, WN_RECIPE_FREE, b, e->base->limit[*front], NULL); break;
    case WN_CHAIN_SHRINK: put_step(e, WN_RECIPE_FREE, b, e->base->limit[b], NULL); break;
    default: put_step(e, WN_RECIPE_B, b, 0, NULL); break;
    }
}

/* The same operations for each root's blocks; a shared trunk's blocks are taken backward for later roots too. */
static void put_roots(struct emission *e, const struct wn_chain_op *op, int32_t n_ops, int32_t n)
{
    for (int32_t lo = 0; lo < e->base->n_blocks; lo += n) {
        int32_t front = lo, root = e->f->node[e->base->first[lo]].root;
        for (int32_t i = 0; i < n_ops; i++) put_op(e, &op[i], lo, &front);
        for (int32_t b = lo - 1; b >= 0; b--) {
            put_step(e, WN_RECIPE_B, b, 0, NULL);
            if (e->code == WN_OK) e->out.step[e->out.n - 1].root = root;
        }
    }
}

/* Blocks of the first root, if all roots' blocks are of the same classes; else 0. */
static int32_t blocks_a_root(const struct emission *e)
{
    const struct wn__recipe *r = e->base;
    int32_t n = 0, root = r->n_blocks > 0 ? e->f->node[r->first[0]].root : 0;
    while (n < r->n_blocks && e->f->node[r->first[n]].root == root) n++;
    if (n == 0 || r->n_blocks % n != 0) return 0;
    for (int32_t b = n; b < r->n_blocks; b++)
        if (e->classes->of[b] != e->classes->of[b % n]) return 0;
    return n;
}

static int32_t emit_point(struct emission *e, struct wn__chain_solution *s, int64_t bytes, int32_t n,
                          wn__recipe_sink put, void *ctx)
{
    struct wn_chain_op *op = NULL;
    int32_t n_ops = 0;
    WN_TRY(wn__chain_schedule(s, bytes, &op, &n_ops));
    e->out = *e->base;
    e->out.pool = (struct wn__pool){0};
    e->out.step = NULL;
    e->out.keep = e->out.action = NULL;
    e->out.n = e->out.capacity = e->out.n_keep = e->out.keep_capacity = 0;
    put_roots(e, op, n_ops, n);
    wn__free(op);
    if (e->code != WN_OK) {
        wn__recipe_release(&e->out);
        return e->code;
    }
    return put(ctx, &e->out, "solved");
}

/* Which of the frontier's points are lowered: as many spread evenly over the bytes as over the time, so that
 * neither the steep end nor the flat one is missed. -> how many, ascending, into `chosen` (2 * each). */
static int32_t spread(const struct wn_chain_cost *p, int32_t n, int32_t each, int32_t *chosen)
{
    int64_t bytes = p[n - 1].bytes - p[0].bytes, time = p[0].time - p[n - 1].time;
    int64_t at_bytes = 0, at_time = 0;
    int32_t count = 0;
    for (int32_t i = 0; i < n; i++) {
        int32_t wanted = i == n - 1;
        if ((p[i].bytes - p[0].bytes) >= bytes / (each - 1) * at_bytes) {
            wanted = 1;
            at_bytes = bytes > each ? (p[i].bytes - p[0].bytes) / (bytes / (each - 1)) + 1 : each;
        }
        if ((p[0].time - p[i].time) >= time / (each - 1) * at_time) {
            wanted = 1;
            at_time = time > each ? (p[0].time - p[i].time) / (time / (each - 1)) + 1 : each;
        }
        if (wanted && count < 2 * each) chosen[count++] = i;
    }
    if (n > 0) chosen[count - 1] = n - 1;
    return count;
}

int32_t wn__emit_chain(const struct wn__form *f, const struct wn__recipe *base, const struct wn__classes *classes,
                       int32_t most, wn__recipe_sink put, void *ctx)
{
    struct emission e = {.f = f, .base = base, .classes = classes, .code = WN_OK};
    struct wn__pool scratch = {0};
    struct wn__chain_blocks chain;
    struct wn__chain_solution *s = NULL;
    const struct wn_chain_cost *point = NULL;
    int64_t slack;
    int32_t n = blocks_a_root(&e), n_points = 0, n_chosen = 0, code = WN_OK;
    if (n == 0) return WN_OK;
    int32_t *chosen = wn__pool_get(&scratch, (most + 2) * (int64_t)sizeof *chosen);
    if (chosen == NULL) return WN_OOM;
    code = make_chain(classes, 0, n, &scratch, &chain);
    if (code == WN_OK) code = wn__chain_open(&chain, &s);
    if (code == WN_OK) code = wn__chain_frontier(s, &point, &n_points, &slack);
    if (code == WN_OK) n_chosen = spread(point, n_points, most / 2, chosen);
    for (int32_t i = 0; i < n_chosen && code == WN_OK; i++)
        code = emit_point(&e, s, point[chosen[i]].bytes, n, put, ctx);
    wn__chain_close(s);
    wn__pool_release(&scratch);
    return code;
}
