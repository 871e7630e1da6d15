/* Makes recipes from the chain solver's schedules. The blocks of a root are a chain, described by the costs of their
 * classes (options.c). Each point of the chains' common frontier that is chosen is a list of operations for each root;
 * they become the steps of one recipe:
 *
 *   operation    step    keeps
 *   F i          F       what later blocks read
 *   Fe i q       Fe      what later blocks read, and the values of option q
 *   B i          B       -
 *   Free i       Free    what blocks read that the forward has not reached yet
 *   Shrink i     Free    what later blocks read
 *
 * Every step keeps results and what a decision saves. Roots run one after the other, so each has all bytes of the
 * budget. */
#include <stdlib.h>
#include "../recipe/action.h"
#include "frontier.h"
#include "../../base/number.h"

/* Most corners of a table of the solver.
 * Measured: 4,096 and two pending options -> 128 and one: 0.90 -> 0.15 s (the 83 blocks of GPT-2 774M), 0.83 -> 0.17 s
 * (the 74 of LLaMA 7B); edited plans of 13 models are 0.005 % slower on average over 50 budgets, at most 0.6 %. */
#define CORNERS 128

/* Recipes being made, one after the other. */
struct emission {
    struct wn__building *b;
    const struct wn__ir *ir;
    const struct wn__recipe *base; /* the blocks */
    const struct wn__classes *classes;
    struct wn__recipe out; /* the recipe of the current point */
    int32_t code;          /* WN_OK, or the first failure */
};

/* ---- the chain ----------------------------------------------------------------------------------------------- */

/* Returns the cost of keeping a set as an option of the chain. The chain counts the bytes that the backward allocates
 * and leaves as a number of the block, so the option's peak excludes them. */
static struct wn__block_option option_of(const struct wn__class *c, const struct wn__subgraph_cost *cost)
{
    int64_t backward = wn_max(cost->backward_peak, cost->saved + c->incoming + cost->allocated);
    return (struct wn__block_option){.forward = cost->forward_ns,
                                     .backward = cost->backward_ns,
                                     .saved = cost->saved,
                                     .peak_forward = wn_max(cost->forward_peak, cost->saved),
                                     .peak_backward = backward - cost->allocated};
}

/* Makes the chain of blocks [lo, hi), with its arrays in the pool. */
static int32_t make_chain(const struct wn__classes *k, int32_t lo, int32_t hi, struct wn__pool *pool,
                          struct wn__chain_blocks *out)
{
    int64_t options = 0;
    for (int32_t b = lo; b < hi; b++) options += k->class[k->of[b]].n_options;
    struct wn__chain_block *block;
    struct wn__block_option *option;
    if (!WN_ARRAY(pool, block, hi - lo) || !WN_ARRAY(pool, option, options)) return WN_OOM;
    *out = (struct wn__chain_blocks){.n = hi - lo, .block = block, .option = option, .longest = CORNERS};
    for (int32_t b = lo; b < hi; b++) {
        const struct wn__class *c = &k->class[k->of[b]];
        block[b - lo] = (struct wn__chain_block){.time = c->plain.forward_ns,
                                                 .peak = wn_max(c->plain.forward_peak, c->outputs),
                                                 .bytes = c->outputs,
                                                 .grad = b + 1 < hi ? c->incoming : 0,
                                                 .allocated = c->plain.allocated,
                                                 .first = out->n_options,
                                                 .n_options = c->n_options};
        for (int32_t q = 0; q < c->n_options; q++) option[out->n_options++] = option_of(c, &c->option[q].cost);
    }
    return WN_OK;
}

/* ---- operations to steps ---------------------------------------------------------------------------------------- */

/* Puts a step of a block that keeps what forward nodes from `beyond` on read, and the values of option o (NULL:
 * none). */
static void put_step(struct emission *e, int32_t kind, int32_t block, int32_t beyond, const struct wn__option *o)
{
    struct wn__recipe *r = &e->out;
    WN_KEEP(e->code, wn__recipe_room(r, r->limit[block] - r->first[block]));
    if (e->code != WN_OK) return;
    const int32_t *own = e->classes->own[block];
    int32_t n = 0, next = 0;
    for (int32_t i = r->first[block]; kind != WN_STEP_B && i < r->limit[block]; i++) {
        if (r->block_of[i] != block) continue;
        while (o != NULL && next < o->n_keep && own[o->keep[next]] < i) next++;
        int32_t chosen = o != NULL && next < o->n_keep && own[o->keep[next]] == i;
        int32_t needed = r->last[i] >= beyond && !e->ir->node[i].is_reissued;
        if (chosen || needed || wn__recipe_always_keeps(e->ir, e->b->marks, i))
            wn__recipe_keep(r, n++, i, wn__action_of(e->ir, e->b->marks, i));
    }
    WN_KEEP(e->code, wn__recipe_put(r, kind, block, e->ir->node[r->first[block]].root, n));
}

/* Puts the step of an operation. lo: the root's first block; *front: the block that its forward has reached. */
static void put_op(struct emission *e, const struct wn__chain_op *op, int32_t lo, int32_t *front)
{
    int32_t b = lo + op->stage - 1;
    const struct wn__class *c = &e->classes->class[e->classes->of[b]];
    switch (op->what) {
    case WN_STEP_F:
        *front = b;
        put_step(e, WN_STEP_F, b, e->base->limit[b], NULL);
        break;
    case WN_STEP_FE:
        *front = b;
        put_step(e, WN_STEP_FE, b, e->base->limit[b], &c->option[op->option]);
        break;
    case WN_STEP_FREE: put_step(e, WN_STEP_FREE, b, e->base->limit[*front], NULL); break;
    case WN_STEP_SHRINK: put_step(e, WN_STEP_FREE, b, e->base->limit[b], NULL); break;
    default: put_step(e, WN_STEP_B, b, 0, NULL); break;
    }
}

/* ---- the chains of the roots ----------------------------------------------------------------------------------- */

/* Roots, and one chain for all roots whose blocks are of the same classes. */
struct roots {
    int32_t n, n_chains;
    int32_t *lo;                       /* (n + 1) the first block of each root; lo[n]: the number of blocks */
    int32_t *of;                       /* (n) the chain of each root */
    struct wn__chain_solution **chain; /* (n_chains) closed once the operations are known, as their tables are large */
    struct wn__chain_op **op;          /* (points, n_chains) the operations of each chain at each chosen point */
    int32_t *n_ops;                    /* (points, n_chains) */
};

/* Returns whether the blocks of roots a and b are of the same classes, one by one. */
static int32_t is_same(const struct emission *e, const struct roots *t, int32_t a, int32_t b)
{
    int32_t n = t->lo[a + 1] - t->lo[a];
    if (t->lo[b + 1] - t->lo[b] != n) return 0;
    for (int32_t i = 0; i < n; i++)
        if (e->classes->of[t->lo[a] + i] != e->classes->of[t->lo[b] + i]) return 0;
    return 1;
}

/* Finds the roots and opens their chains. */
static int32_t solve_roots(const struct emission *e, struct roots *t, struct wn__pool *pool)
{
    const struct wn__recipe *r = e->base;
    int64_t most = r->n_blocks + 1;
    if (!WN_ARRAY(pool, t->lo, most) || !WN_ARRAY(pool, t->of, most) || !WN_ARRAY(pool, t->chain, most)) return WN_OOM;
    for (int32_t b = 0; b < r->n_blocks; b++) {
        if (b == 0 || e->ir->node[r->first[b]].root != e->ir->node[r->first[b - 1]].root) t->lo[t->n++] = b;
        t->lo[t->n] = b + 1;
    }
    for (int32_t i = 0; i < t->n; i++) {
        struct wn__chain_blocks chain;
        t->of[i] = -1;
        for (int32_t k = 0; k < i && t->of[i] < 0; k++)
            if (is_same(e, t, i, k)) t->of[i] = t->of[k];
        if (t->of[i] >= 0) continue;
        WN_TRY(make_chain(e->classes, t->lo[i], t->lo[i + 1], pool, &chain));
        WN_TRY(wn__chain_open(&chain, &t->chain[t->n_chains]));
        t->of[i] = t->n_chains++;
    }
    return WN_OK;
}

static int compare_bytes(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

/* Makes the common frontier: at each number of bytes where a chain gets faster, from the least that all chains fit, the
 * sum of the chains' times. Roots run one after the other, so each may use all the bytes. */
static int32_t join_frontiers(const struct roots *t, struct wn__pool *pool, struct wn__chain_cost **out, int32_t *n_out)
{
    const struct wn__chain_cost *p;
    int64_t from = 0, room = 0, n = 0;
    int32_t n_p, n_points = 0;
    for (int32_t k = 0; k < t->n_chains; k++) {
        WN_TRY(wn__chain_frontier(t->chain[k], &p, &n_p));
        from = wn_max(from, p[0].bytes);
        room += n_p;
    }
    int64_t *bytes;
    if (!WN_ARRAY(pool, bytes, room) || !WN_ARRAY(pool, *out, room)) return WN_OOM;
    for (int32_t k = 0; k < t->n_chains; k++) {
        WN_TRY(wn__chain_frontier(t->chain[k], &p, &n_p));
        for (int32_t i = 0; i < n_p; i++)
            if (p[i].bytes >= from) bytes[n++] = p[i].bytes;
    }
    qsort(bytes, (size_t)n, sizeof *bytes, compare_bytes);
    for (int64_t i = 0; i < n; i++)
        if (i == 0 || bytes[i] != bytes[i - 1]) (*out)[n_points++] = (struct wn__chain_cost){.bytes = bytes[i]};
    for (int32_t k = 0; k < t->n_chains; k++) {
        WN_TRY(wn__chain_frontier(t->chain[k], &p, &n_p));
        for (int32_t i = 0, at = 0; i < n_points; i++) {
            while (at + 1 < n_p && p[at + 1].bytes <= (*out)[i].bytes) at++;
            (*out)[i].time += p[at].time;
        }
    }
    *n_out = n_points;
    return WN_OK;
}

/* Puts the steps of all roots at a chosen point. After the operations of a root, the backward of the blocks of earlier
 * roots follows, as a trunk that roots share belongs to the first of them. */
static void put_roots(struct emission *e, const struct roots *t, int32_t point)
{
    for (int32_t r = 0; r < t->n; r++) {
        int32_t lo = t->lo[r], front = lo, root = e->ir->node[e->base->first[lo]].root;
        int32_t k = point * t->n_chains + t->of[r];
        const struct wn__chain_op *op = t->op[k];
        for (int32_t i = 0; i < t->n_ops[k]; i++) put_op(e, &op[i], lo, &front);
        for (int32_t b = lo - 1; b >= 0; b--) {
            put_step(e, WN_STEP_B, b, 0, NULL);
            if (e->code == WN_OK) e->out.step[e->out.n - 1].root = root;
        }
    }
}

/* Makes the recipe of a chosen point and proposes it. */
static int32_t emit_point(struct emission *e, const struct roots *t, int32_t point)
{
    wn__recipe_begin(e->base, &e->out);
    put_roots(e, t, point);
    if (e->code == WN_OK) return wn__frontier_offer(e->b, &e->out, "solved");
    wn__recipe_release(&e->out);
    return e->code;
}

/* Chooses points of the frontier: about `each` spread evenly over the bytes and as many over the time, so that neither
 * the steep end nor the flat one is missed. Fills `chosen`, (2 * each), with their indices, ascending; returns how
 * many. */
static int32_t spread(const struct wn__chain_cost *p, int32_t n, int32_t each, int32_t *chosen)
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

/* Fills op and n_ops for the n chosen points. */
static int32_t schedule_points(struct roots *t, const struct wn__chain_cost *point, const int32_t *chosen, int32_t n,
                               struct wn__pool *pool)
{
    int64_t most = (int64_t)n * t->n_chains;
    if (!WN_ARRAY(pool, t->op, most) || !WN_ARRAY(pool, t->n_ops, most)) return WN_OOM;
    for (int32_t i = 0; i < n; i++)
        for (int32_t k = 0; k < t->n_chains; k++) {
            int32_t at = i * t->n_chains + k;
            WN_TRY(wn__chain_schedule(t->chain[k], point[chosen[i]].bytes, &t->op[at], &t->n_ops[at]));
        }
    return WN_OK;
}

int32_t wn__frontier_chain(struct wn__building *b, const struct wn__recipe *base, const struct wn__classes *classes,
                           int32_t most)
{
    struct emission e = {.b = b, .ir = b->ir, .base = base, .classes = classes, .code = WN_OK};
    struct wn__pool scratch = {0};
    struct roots t = {0};
    struct wn__chain_cost *point = NULL;
    int32_t n_points = 0, n_chosen = 0, *chosen;
    if (base->n_blocks == 0) return WN_OK;
    if (!WN_ARRAY(&scratch, chosen, most + 1)) return WN_OOM;
    int32_t code = solve_roots(&e, &t, &scratch);
    if (code == WN_OK) code = join_frontiers(&t, &scratch, &point, &n_points);
    if (code == WN_OK) n_chosen = spread(point, n_points, most / 2, chosen);
    if (code == WN_OK) code = schedule_points(&t, point, chosen, n_chosen, &scratch);
    for (int32_t k = 0; k < t.n_chains; k++) wn__chain_close(t.chain[k]);
    for (int32_t i = 0; i < n_chosen && code == WN_OK; i++) code = emit_point(&e, &t, i);
    for (int32_t i = 0; t.op != NULL && i < n_chosen * t.n_chains; i++) wn__free(t.op[i]);
    wn__pool_release(&scratch);
    return code;
}
