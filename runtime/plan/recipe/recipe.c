/* Compiles decisions and marks to a recipe.
 *
 * Outside every region a value is kept unless its decision is recompute. The forward closes a region: only values that
 * are read outside it stay, and those that a decision saves. The backward opens it: all its runs of blocks but the last
 * run again, with nested regions closed, and then each is taken backward in reverse.
 *
 *   blocks 1 to 3 in one region:   F 1, F 2, F 3, then the rest;  Fe 1, Fe 2 again;  B 3, B 2, B 1
 *   (the last run is never run for its own sake)
 *
 * One level of regions gives checkpointing, a tree of them recursive checkpointing. */
#include <string.h>
#include "action.h"
#include "nesting.h"
#include "recipe.h"

struct compiler {
    const struct wn__ir *ir;
    const struct wn__marks *marks;
    struct wn__recipe *r;
    int32_t *place; /* (ir->n) the place (nesting.h) of each forward node */
    int32_t *reach; /* (n_blocks) the last node that reads a value of the block */
    struct wn__nesting nesting;
    int32_t code;
};

/* ---- blocks: stretches of one place, and outside regions the IR's own cuts ------------------------------ */

void wn__recipe_serve(const struct wn__ir *ir, struct wn__recipe *r)
{
    for (int32_t i = 0; i < ir->n; i++) {
        int32_t of = ir->node[i].forward_of;
        if (ir->node[i].phase == WN_PHASE_BACKWARD)
            r->block_of[i] = of >= 0 && r->block_of[of] >= 0 ? r->block_of[of] : 0;
    }
}

/* Numbers the blocks: stretches of one place and root and, outside regions, of one block of the IR and the data beside
 * it. */
static int32_t number_blocks(struct compiler *c)
{
    const struct wn__ir *ir = c->ir;
    struct wn__recipe *r = c->r;
    int32_t before = -1, own = -1; /* the forward node before; the block of the IR that the stretch has */
    for (int32_t i = 0; i < ir->n; i++) {
        r->block_of[i] = -1;
        if (!wn__ir_is_forward(ir, i)) continue;
        int32_t edge = before < 0 || c->place[i] != c->place[before] || ir->node[i].root != ir->node[before].root ||
                       (c->place[i] == 0 && ir->node[i].block >= 0 && own >= 0 && ir->node[i].block != own);
        if (edge) r->first[r->n_blocks++] = i;
        own = ir->node[i].block >= 0 ? ir->node[i].block : edge ? -1 : own;
        r->block_of[i] = r->n_blocks - 1;
        r->limit[r->n_blocks - 1] = i + 1;
        before = i;
    }
    wn__recipe_serve(ir, r);
    return WN_OK;
}

/* ---- keep sets ----------------------------------------------------------------------------------------------- */

/* The values of its block that a step keeps, besides those that are always kept. A value inside a block that no
 * backward node reads is never kept: values dropped beside it would otherwise be recomputed from it, at the price of
 * its bytes. */
struct keep_rule {
    int32_t beyond;   /* keeps values that a forward node at or after this one reads */
    int32_t defaults; /* 1: keeps residuals and block edges too, if no decision drops them */
    int32_t
        home; /* limits `defaults` to values outside regions and those that a node at or after this one reads; 0: no limit */
};

static int32_t is_kept(const struct compiler *c, int32_t i, struct keep_rule rule)
{
    int32_t at_home = rule.home == 0 || c->place[i] == 0 || c->r->last[i] >= rule.home;
    if (c->ir->node[i].is_reissued) return wn__recipe_always_keeps(c->ir, c->marks, i);
    int32_t matters = c->ir->node[i].is_residual || c->r->last[i] >= c->r->limit[c->r->block_of[i]];
    int32_t by_default = rule.defaults && matters && c->marks->decision[i] != WN_DECISION_RECOMPUTE && at_home;
    return wn__recipe_always_keeps(c->ir, c->marks, i) || c->r->last[i] >= rule.beyond || by_default;
}

/* Writes a keep set behind the others and returns its size. n_dropped: how many values that F or Fe had kept it
 * drops. */
static int32_t keep_set(struct compiler *c, int32_t block, struct keep_rule rule, int32_t *n_dropped)
{
    struct wn__recipe *r = c->r;
    int32_t n = 0;
    *n_dropped = 0;
    for (int32_t i = r->first[block]; i < r->limit[block]; i++) {
        if (r->block_of[i] != block) continue;
        if (is_kept(c, i, rule)) wn__recipe_keep(r, n++, i, wn__action_of(c->ir, c->marks, i));
        else *n_dropped += r->last[i] >= r->limit[block] && !c->ir->node[i].is_reissued;
    }
    return n;
}

/* Returns a larger array of the pool with the old one's content; NULL: WN_OOM. */
static void *grow(struct wn__pool *pool, const void *old, int32_t n, int32_t *capacity, int32_t need, int64_t size)
{
    void *bigger = wn__pool_get(pool, (2 * (int64_t)need + 64) * size);
    if (bigger == NULL) return NULL;
    if (n > 0) memcpy(bigger, old, (size_t)(n * size));
    *capacity = 2 * need + 64;
    return bigger;
}

int32_t wn__recipe_make(const struct wn__ir *ir, int32_t most, struct wn__recipe *r)
{
    *r = (struct wn__recipe){.prefetch = WN__PREFETCH, .group = WN__GROUP};
    int32_t is_there = WN_ARRAY(&r->pool, r->block_of, ir->n) && WN_ARRAY(&r->pool, r->last, ir->n) &&
                       WN_ARRAY(&r->pool, r->first, most) && WN_ARRAY(&r->pool, r->limit, most);
    return is_there ? WN_OK : WN_OOM;
}

void wn__recipe_begin(const struct wn__recipe *r, struct wn__recipe *out)
{
    *out = *r;
    out->pool = (struct wn__pool){0};
    out->step = NULL;
    out->keep = out->action = NULL;
    out->n = out->capacity = out->n_keep = out->keep_capacity = 0;
}

int32_t wn__recipe_room(struct wn__recipe *r, int32_t more)
{
    if (r->n_keep + more <= r->keep_capacity) return WN_OK;
    int32_t *keep = grow(&r->pool, r->keep, r->n_keep, &r->keep_capacity, r->n_keep + more, sizeof *keep);
    int32_t *action = grow(&r->pool, r->action, r->n_keep, &r->keep_capacity, r->n_keep + more, sizeof *action);
    if (keep == NULL || action == NULL) {
        r->keep_capacity = 0;
        return WN_OOM;
    }
    r->keep = keep;
    r->action = action;
    return WN_OK;
}

int32_t wn__recipe_put(struct wn__recipe *r, int32_t kind, int32_t block, int32_t root, int32_t n_keep)
{
    if (r->n == r->capacity) {
        struct wn__recipe_step *bigger = grow(&r->pool, r->step, r->n, &r->capacity, r->n + 1, sizeof *bigger);
        if (bigger == NULL) return WN_OOM;
        r->step = bigger;
    }
    r->step[r->n++] =
        (struct wn__recipe_step){.kind = kind, .block = block, .root = root, .keep_at = r->n_keep, .n_keep = n_keep};
    r->n_keep += n_keep;
    return WN_OK;
}

static void put_step(struct compiler *c, int32_t kind, int32_t block, int32_t root, int32_t n_keep)
{
    WN_KEEP(c->code, wn__recipe_put(c->r, kind, block, root, n_keep));
}

/* Adds an F, Fe or Free of a block. A Free that frees nothing is left out. */
static void put_keep(struct compiler *c, int32_t kind, int32_t block, struct keep_rule rule)
{
    int32_t dropped;
    WN_KEEP(c->code, wn__recipe_room(c->r, c->r->limit[block] - c->r->first[block]));
    if (c->code != WN_OK) return;
    int32_t n = keep_set(c, block, rule, &dropped);
    if (kind != WN_STEP_FREE || dropped > 0) put_step(c, kind, block, c->ir->node[c->r->first[block]].root, n);
}

/* Add the forward of a block: put_f lets go of its interior, put_fe keeps it. */
static void put_f(struct compiler *c, int32_t block)
{
    put_keep(c, WN_STEP_F, block, (struct keep_rule){.beyond = c->r->limit[block]});
}

static void put_fe(struct compiler *c, int32_t block)
{
    put_keep(c, WN_STEP_FE, block, (struct keep_rule){.beyond = c->r->limit[block], .defaults = 1});
}

/* ---- from the tree of regions to steps -------------------------------------------------------------------------- */

/* Returns the end of the run of blocks that starts at lo: those that are in the same child of `region`. Requires
 * that blocks [lo, hi) are in or under `region`. */
static int32_t run_end(const struct compiler *c, int32_t region, int32_t lo, int32_t hi)
{
    int32_t child = wn__nesting_child(&c->nesting, region, c->place[c->r->first[lo]]);
    if (child == 0) return lo + 1;
    int32_t at = lo + 1;
    while (at < hi && wn__nesting_holds(&c->nesting, child, c->place[c->r->first[at]])) at++;
    return at;
}

/* Frees what blocks [lo, hi) of one run gave to others before `end`. Values that they gave to each other are gone
 * already. */
static void free_run(struct compiler *c, int32_t lo, int32_t hi, int32_t end)
{
    for (int32_t at = lo; at < hi; at++)
        if (c->reach[at] >= c->r->limit[hi - 1]) put_keep(c, WN_STEP_FREE, at, (struct keep_rule){.beyond = end});
}

/* Runs blocks [lo, hi) of a region forward, closed: what only they read of each other is freed. */
static void closed(struct compiler *c, int32_t region, int32_t lo, int32_t hi)
{
    for (int32_t at = lo, next; at < hi; at = next) {
        int32_t child = wn__nesting_child(&c->nesting, region, c->place[c->r->first[at]]);
        next = run_end(c, region, at, hi);
        if (child == 0) put_f(c, at);
        else closed(c, child, at, next);
    }
    if (hi - lo == 1) return;
    for (int32_t at = lo, next; at < hi; at = next) {
        next = run_end(c, region, at, hi);
        free_run(c, at, next, c->r->limit[hi - 1]);
    }
}

static void backward(struct compiler *c, int32_t region, int32_t lo, int32_t hi, int32_t root);

/* Opens a region: runs all its runs but the last again, then takes it backward. */
static void opened(struct compiler *c, int32_t region, int32_t lo, int32_t hi, int32_t root)
{
    for (int32_t at = lo, next; at < hi; at = next) {
        next = run_end(c, region, at, hi);
        if (next == hi) break;
        int32_t child = wn__nesting_child(&c->nesting, region, c->place[c->r->first[at]]);
        if (child == 0) put_fe(c, at);
        else closed(c, child, at, next);
    }
    backward(c, region, lo, hi, root);
}

/* Takes blocks [lo, hi) of a region backward, run by run from the last. */
static void backward(struct compiler *c, int32_t region, int32_t lo, int32_t hi, int32_t root)
{
    if (lo >= hi) return;
    /* Takes the last run first, which is found from its end. Measured: walking all runs up to it took time in the
     * square of their number. */
    int32_t start = hi - 1, child = wn__nesting_child(&c->nesting, region, c->place[c->r->first[start]]);
    while (child != 0 && start > lo && wn__nesting_holds(&c->nesting, child, c->place[c->r->first[start - 1]])) start--;
    if (child == 0) put_step(c, WN_STEP_B, start, root, 0);
    else opened(c, child, start, hi, root);
    backward(c, region, lo, start, root);
}

/* Adds the steps of one root: the forward of its blocks [lo, hi), the frees that decisions ask for at its end, then
 * the backward, also through blocks of earlier roots, which a shared trunk reaches. */
static void compile_root(struct compiler *c, int32_t root, int32_t lo, int32_t hi)
{
    for (int32_t at = lo; at < hi; at = run_end(c, 0, at, hi)) {
        int32_t child = wn__nesting_child(&c->nesting, 0, c->place[c->r->first[at]]);
        if (child == 0) put_fe(c, at);
        else closed(c, child, at, run_end(c, 0, at, hi));
    }
    if (!c->ir->has_backward) return;
    for (int32_t at = lo; at < hi; at = run_end(c, 0, at, hi))
        for (int32_t b = at, end = run_end(c, 0, at, hi); b < end; b++)
            put_keep(c, WN_STEP_FREE, b,
                     (struct keep_rule){.beyond = c->ir->n, .defaults = 1, .home = c->r->limit[end - 1]});
    backward(c, 0, lo, hi, root);
    for (int32_t b = lo - 1; b >= 0; b--) put_step(c, WN_STEP_B, b, root, 0);
}

/* Adds the steps of all roots. */
static void compile_roots(struct compiler *c)
{
    const struct wn__ir *ir = c->ir;
    for (int32_t lo = 0, hi; lo < c->r->n_blocks; lo = hi) {
        hi = wn__recipe_root_end(ir, c->r, lo);
        compile_root(c, ir->node[c->r->first[lo]].root, lo, hi);
    }
}

static void find_reach(struct compiler *c)
{
    for (int32_t i = 0; i < c->ir->n; i++) {
        int32_t block = wn__ir_is_forward(c->ir, i) ? c->r->block_of[i] : -1;
        if (block >= 0 && c->r->last[i] > c->reach[block]) c->reach[block] = c->r->last[i];
    }
}

/* Finds places, blocks and readers, then adds the steps. */
static int32_t compile(struct compiler *c, struct wn__pool *scratch)
{
    const struct wn__ir *ir = c->ir;
    int32_t last = 0;
    if (!WN_ARRAY(scratch, c->place, ir->n)) return WN_OOM;
    for (int32_t i = 0; i < ir->n; i++) {
        int32_t unit = c->marks->unit[i];
        c->place[i] = unit > 0 ? ir->n_regions + unit : unit < 0 ? 0 : ir->node[i].region;
        if (c->place[i] > last) last = c->place[i];
    }
    WN_TRY(wn__nesting_make(ir, c->marks, last, scratch, &c->nesting));
    WN_TRY(number_blocks(c));
    wn__ir_last_readers(ir, c->r->last);
    if (!WN_ARRAY(scratch, c->reach, c->r->n_blocks)) return WN_OOM;
    find_reach(c);
    compile_roots(c);
    return c->code;
}

int32_t wn__recipe_compile(const struct wn__ir *ir, const struct wn__marks *marks, struct wn__recipe *r)
{
    struct compiler c = {.ir = ir, .marks = marks, .r = r, .code = WN_OK};
    struct wn__pool scratch = {0};
    WN_TRY(wn__recipe_make(ir, ir->n, r));
    int32_t code = compile(&c, &scratch);
    wn__pool_release(&scratch);
    return code;
}

void wn__recipe_release(struct wn__recipe *r)
{
    wn__pool_release(&r->pool);
    memset(r, 0, sizeof *r);
}
