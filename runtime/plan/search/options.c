/* Finds the options of blocks: sets of values that a block may keep, each with what the block then costs.
 *
 * Blocks whose subgraphs are equal are one class, and are tried once. From the set of everything kept, the value that
 * frees most bytes for the least time is dropped, again and again (greedy descent). Every set that is tried on the way
 * is a candidate, also the steps that are not taken. Candidates that another one beats in time and in every number of
 * bytes are dropped, and the others thinned to MAX_OPTIONS. */
#include <string.h>
#include "../../base/number.h"
#include "planner.h"

/* Measured: 8 and 12 options gain less than 0.02 % on average over budgets, for 1.3 times the time (GPT-2 of 12 and 36
 * layers). */
#define MAX_OPTIONS 6    /* of a class */
#define MAX_QUADRATIC 20 /* values of a block up to which every step is tried: the tries grow quadratically */
#define MAX_TRIES 512
#define WORK 1000000 /* tries * nodes of the subgraph, of a block with more values */

/* The candidates of one class. */
struct list {
    struct wn__option *option; /* (n) */
    int64_t n, capacity;
    struct wn__pool *pool; /* that their arrays of nodes are in */
    int32_t code;          /* WN_OK, or the first failure */
};

/* Adds a copy of n kept nodes with their cost. */
static void put(struct list *l, const int32_t *keep, int32_t n, const struct wn__subgraph_cost *cost)
{
    int32_t *copy = NULL;
    WN_KEEP(l->code, wn__grow(&l->option, &l->capacity, l->n + 1, sizeof *l->option));
    WN_KEEP(l->code, WN_ARRAY(l->pool, copy, n) ? WN_OK : WN_OOM);
    if (l->code != WN_OK) return;
    if (n > 0) memcpy(copy, keep, (size_t)n * sizeof *copy);
    l->option[l->n++] = (struct wn__option){copy, n, *cost};
}

/* Lists the values that an option may keep or not: residuals of the block without a decision that no later block reads.
 * Returns how many. */
static int32_t find_candidates(const struct wn__subgraph *x, int32_t *out)
{
    int32_t n = 0;
    for (int32_t i = x->recipe.first[0]; i < x->recipe.limit[0]; i++) {
        const struct wn__ir_node *q = &x->ir.node[i];
        if (!q->is_residual || q->is_reissued || q->result >= 0 || x->marks.decision[i] != WN_DECISION_NONE) continue;
        if ((wn__ir_flags(&x->ir, i) & WN_INDEX) || x->recipe.last[i] >= x->recipe.limit[0]) continue;
        out[n++] = i;
    }
    return n;
}

static int64_t time_of(const struct wn__subgraph_cost *c)
{
    return c->forward_ns + c->backward_ns;
}

/* Returns how good it is to go from a to b: bytes freed a nanosecond. A byte of the backward's peak counts 1/100 of a
 * saved one. */
static double gain(const struct wn__subgraph_cost *a, const struct wn__subgraph_cost *b)
{
    double bytes = (double)(a->saved - b->saved) + 0.01 * (double)(a->backward_peak - b->backward_peak);
    double ns = (double)(time_of(b) - time_of(a));
    return ns <= 0 ? bytes * 1e9 : bytes / ns;
}

/* Fills `out` with the n kept nodes but for keep[k], and returns n - 1. `out` may be `keep`. */
static int32_t without(const int32_t *keep, int32_t n, int32_t k, int32_t *out)
{
    for (int32_t i = 0, m = 0; i < n; i++)
        if (i != k) out[m++] = keep[i];
    return n - 1;
}

/* A descent from the set of everything kept. */
struct descent {
    struct wn__subgraph *x;
    struct list *l;
    int32_t *keep, n;             /* (n) nodes that are kept still */
    double *worth;                /* (n) gain of dropping each of them alone */
    int32_t *scratch;             /* (n) */
    struct wn__subgraph_cost now; /* with `keep` */
};

/* Tries the first n nodes of `keep`, and lists them as a candidate with their cost, which it fills in. */
static void try_set(struct descent *d, const int32_t *keep, int32_t n, struct wn__subgraph_cost *cost)
{
    WN_KEEP(d->l->code, wn__subgraph_try(d->x, keep, n, cost));
    if (d->l->code == WN_OK) put(d->l, keep, n, cost);
}

/* Fills `worth`: of sets that are tried, or estimated as bytes / (nanoseconds + 1). */
static void find_worth(struct descent *d, int32_t is_tried)
{
    for (int32_t k = 0; k < d->n && d->l->code == WN_OK; k++) {
        struct wn__subgraph_cost cost;
        int32_t v = d->keep[k];
        d->worth[k] = (double)d->x->ir.node[v].bytes / ((double)d->x->ns[v] + 1);
        if (!is_tried) continue;
        try_set(d, d->scratch, without(d->keep, d->n, k, d->scratch), &cost);
        d->worth[k] = gain(&d->now, &cost);
    }
}

/* Drops the value of most worth until none is kept. Worths are found anew at each step where all that takes few tries,
 * else once. The steps alone are at most MAX_TRIES and WORK / nodes + 1 tries. */
static void descend(struct descent *d)
{
    int32_t is_short = d->n <= MAX_QUADRATIC;
    int64_t most = WORK / d->x->ir.n + 1, tries = wn_min(most, MAX_TRIES), step = (d->n + tries - 1) / tries;
    try_set(d, d->keep, d->n, &d->now);
    for (int32_t done = 0; d->n > 0 && d->l->code == WN_OK; done++) {
        if (done == 0 || is_short) find_worth(d, is_short || d->n <= most);
        int32_t best = 0;
        for (int32_t k = 1; k < d->n; k++)
            if (d->worth[k] > d->worth[best]) best = k;
        for (int32_t k = best; k + 1 < d->n; k++) d->worth[k] = d->worth[k + 1];
        d->n = without(d->keep, d->n, best, d->keep);
        if (done % step == 0 || d->n == 0) try_set(d, d->keep, d->n, &d->now);
    }
}

/* ---- choosing among the candidates ----------------------------------------------------------------------------- */

/* Returns whether a is at most as slow as b, and needs at most as many bytes of every kind. */
static int32_t beats(const struct wn__option *a, const struct wn__option *b)
{
    return time_of(&a->cost) <= time_of(&b->cost) && a->cost.saved <= b->cost.saved &&
           a->cost.forward_peak <= b->cost.forward_peak && a->cost.backward_peak <= b->cost.backward_peak;
}

static void drop(struct list *l, int64_t k)
{
    memmove(&l->option[k], &l->option[k + 1], (size_t)(l->n - 1 - k) * sizeof *l->option);
    l->n--;
}

static void drop_beaten(struct list *l)
{
    for (int64_t b = l->n - 1; b >= 0; b--)
        for (int64_t a = 0; a < l->n; a++) {
            if (a == b || !beats(&l->option[a], &l->option[b])) continue;
            drop(l, b);
            break;
        }
}

static void sort_by_saved(struct list *l)
{
    for (int64_t i = 1; i < l->n; i++) {
        struct wn__option x = l->option[i];
        int64_t k = i;
        for (; k > 0 && l->option[k - 1].cost.saved > x.cost.saved; k--) l->option[k] = l->option[k - 1];
        l->option[k] = x;
    }
}

/* Returns whether option k has the fewest or most saved bytes, the least time or the least peak of the backward. */
static int32_t is_extreme(const struct list *l, int64_t k)
{
    int32_t time = 1, peak = 1;
    for (int64_t i = 0; i < l->n; i++) {
        time &= time_of(&l->option[k].cost) <= time_of(&l->option[i].cost);
        peak &= l->option[k].cost.backward_peak <= l->option[i].cost.backward_peak;
    }
    return k == 0 || k == l->n - 1 || time || peak;
}

/* Thins to MAX_OPTIONS options: repeatedly drops the one that adds least area under the curve of time over saved bytes.
 * Keeps the extreme ones. */
static void thin(struct list *l)
{
    sort_by_saved(l);
    while (l->n > MAX_OPTIONS) {
        int64_t least = -1;
        double area = 0;
        for (int64_t k = 1; k + 1 < l->n; k++) {
            if (is_extreme(l, k)) continue;
            double a = (double)(l->option[k + 1].cost.saved - l->option[k].cost.saved) *
                       (double)(time_of(&l->option[k - 1].cost) - time_of(&l->option[k].cost));
            if (a < 0) a = 0;
            if (least < 0 || a < area) {
                least = k;
                area = a;
            }
        }
        if (least < 0) return;
        drop(l, least);
    }
}

/* ---- classes ------------------------------------------------------------------------------------------------ */

/* Returns the bytes of the block's values that later blocks read. */
static int64_t output_bytes(const struct wn__subgraph *x)
{
    int64_t bytes = 0;
    for (int32_t i = x->recipe.first[0]; i < x->recipe.limit[0]; i++)
        if (x->recipe.last[i] >= x->recipe.limit[0] && !wn__ir_is_alias(&x->ir, i) && !x->ir.node[i].is_reissued)
            bytes += x->ir.node[i].bytes;
    return bytes;
}

/* Copies the list into the classes' pool, so that the pool of the candidates can be released. */
static int32_t keep_options(struct wn__class *c, const struct list *l, struct wn__pool *pool)
{
    if (!WN_ARRAY(pool, c->option, l->n)) return WN_OOM;
    for (int64_t k = 0; k < l->n; k++) {
        struct wn__option o = l->option[k];
        int32_t *keep;
        if (!WN_ARRAY(pool, keep, o.n_keep)) return WN_OOM;
        if (o.n_keep > 0) memcpy(keep, o.keep, (size_t)o.n_keep * sizeof *keep);
        o.keep = keep;
        c->option[c->n_options++] = o;
    }
    return WN_OK;
}

/* Fills the list with the options of a block. */
static void find_options(struct wn__subgraph *x, struct list *l)
{
    struct descent d = {.x = x, .l = l};
    int32_t is_there = WN_ARRAY(l->pool, d.keep, x->ir.n) && WN_ARRAY(l->pool, d.scratch, x->ir.n) &&
                       WN_ARRAY(l->pool, d.worth, x->ir.n);
    WN_KEEP(l->code, is_there ? WN_OK : WN_OOM);
    if (l->code != WN_OK) return;
    d.n = find_candidates(x, d.keep);
    descend(&d);
    if (l->code != WN_OK) return;
    drop_beaten(l);
    thin(l);
}

/* Fills a class from the subgraph of the first of its blocks. */
static int32_t fill_class(struct wn__class *c, struct wn__subgraph *x, struct wn__pool *pool)
{
    struct wn__pool tries = {0};
    struct list l = {.pool = &tries, .code = WN_OK};
    uint8_t *key;
    if (!WN_ARRAY(pool, key, x->key_bytes)) return WN_OOM;
    memcpy(key, x->key, (size_t)x->key_bytes);
    *c = (struct wn__class){.key = key, .key_bytes = x->key_bytes, .incoming = x->incoming, .outputs = output_bytes(x)};
    find_options(x, &l);
    WN_KEEP(l.code, keep_options(c, &l, pool));
    WN_KEEP(l.code, wn__subgraph_try(x, NULL, 0, &c->plain));
    wn__free(l.option);
    wn__pool_release(&tries);
    return l.code;
}

/* Returns the class of the subgraph's key; -1: it is a new one. */
static int32_t find_class(const struct wn__classes *c, const struct wn__subgraph *x)
{
    for (int32_t k = 0; k < c->n; k++)
        if (c->class[k].key_bytes == x->key_bytes && memcmp(c->class[k].key, x->key, (size_t)x->key_bytes) == 0)
            return k;
    return -1;
}

/* Finds or makes the class of a block. */
static int32_t add_block(struct wn__classes *c, int32_t block, struct wn__subgraph *x)
{
    if (!WN_ARRAY(&c->pool, c->own[block], x->ir.n)) return WN_OOM;
    memcpy(c->own[block], x->own, (size_t)x->ir.n * sizeof(int32_t));
    c->of[block] = find_class(c, x);
    if (c->of[block] >= 0) return WN_OK;
    c->of[block] = c->n++;
    return fill_class(&c->class[c->of[block]], x, &c -> pool);
}

int32_t wn__classes_make(const struct wn__ir *ir, const struct wn__marks *marks, const struct wn__recipe *r,
                         const int64_t *ns, struct wn__classes *out)
{
    memset(out, 0, sizeof *out);
    int32_t *home;
    if (!WN_ARRAY(&out->pool, out->class, r->n_blocks) || !WN_ARRAY(&out->pool, out->of, r->n_blocks) ||
        !WN_ARRAY(&out->pool, out->own, r->n_blocks) || !WN_ARRAY(&out->pool, home, ir->n))
        return WN_OOM;
    wn__partition_home(ir, r, home);
    for (int32_t b = 0; b < r->n_blocks; b++) {
        struct wn__subgraph x;
        int32_t code = wn__subgraph_make(ir, marks, home, b, ns, &x);
        if (code == WN_OK) code = add_block(out, b, &x);
        wn__subgraph_release(&x);
        WN_TRY(code);
    }
    return WN_OK;
}

void wn__classes_release(struct wn__classes *c)
{
    wn__pool_release(&c->pool);
    memset(c, 0, sizeof *c);
}
