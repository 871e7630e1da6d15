/* What a block may keep. Blocks that are the same but for their place are one class and solved once. A class's options
 * are found by trying kept sets in its subgraph: from everything kept, the value that gives most bytes for the least
 * time is let go, again and again; whatever was tried on the way counts, also the single steps not taken.
 * Those that another beats in time and in every byte are dropped, the rest thinned to a few. */
#include <string.h>
#include "planner.h"

#define MANY 20 /* values from which only the first order of letting go is followed: the full search is quadratic */
#define MOST                                                                                                           \
    6 /* options of a class: 8 and 12 gained less than 0.02 % on average over budgets of GPT-2 12 and 36, for 1.3x the time */
#define TRIED 512
#define WORK 1000000 /* tries times nodes of an subgraph, where not every value is looked at */

struct list {
    struct wn__option *option;
    int64_t n, capacity;
    struct wn__pool *pool;
    int32_t code;
};

static void put(struct list *l, const int32_t *keep, int32_t n, const struct wn__subgraph_cost *cost)
{
    if (l->code == WN_OK) l->code = wn__grow(&l->option, &l->capacity, l->n + 1, sizeof *l->option);
    int32_t *copy = l->code == WN_OK ? wn__pool_get(l->pool, (n + 1) * (int64_t)sizeof *copy) : NULL;
    if (copy == NULL) {
        l->code = WN_OOM;
        return;
    }
    if (n > 0) memcpy(copy, keep, (size_t)n * sizeof *copy);
    l->option[l->n++] = (struct wn__option){copy, n, *cost};
}

/* Values a choice may be about: residuals that nothing decided yet. */
static int32_t find_candidates(const struct wn__subgraph *x, int32_t *out)
{
    int32_t n = 0;
    for (int32_t i = x->recipe.first[0]; i < x->recipe.limit[0]; i++) {
        const struct wn__ir_node *q = &x->ir.node[i];
        if (!q->is_residual || q->is_reissued || q->result >= 0 || q->decision != WN_DECISION_NONE) continue;
        if ((wn__ir_flags(&x->ir, i) & WN_INDEX) || x->recipe.last[i] >= x->recipe.limit[0]) continue;
        out[n++] = i;
    }
    return n;
}

static int64_t time_of(const struct wn__subgraph_cost *c)
{
    return c->forward_ns + c->backward_ns;
}

/* How good it is to go from a to b: bytes given back a nanosecond. */
static double gain(const struct wn__subgraph_cost *a, const struct wn__subgraph_cost *b)
{
    double bytes = (double)(a->saved - b->saved) + 0.01 * (double)(a->backward_peak - b->backward_peak);
    double ns = (double)(time_of(b) - time_of(a));
    return ns <= 0 ? bytes * 1e9 : bytes / ns;
}

static int32_t without(const int32_t *keep, int32_t n, int32_t k, int32_t *out)
{
    for (int32_t i = 0, m = 0; i < n; i++)
        if (i != k) out[m++] = keep[i];
    return n - 1;
}

/* The best single step from `keep`; -1 when nothing is left. Every step tried is put. */
static int32_t best_step(struct wn__subgraph *x, struct list *l, const int32_t *keep, int32_t n,
                         const struct wn__subgraph_cost *now, int32_t *scratch)
{
    int32_t best = -1;
    double most = 0;
    for (int32_t k = 0; k < n && l->code == WN_OK; k++) {
        struct wn__subgraph_cost cost;
        int32_t m = without(keep, n, k, scratch);
        l->code = wn__subgraph_try(x, scratch, m, &cost);
        if (l->code != WN_OK) return -1;
        put(l, scratch, m, &cost);
        double g = gain(now, &cost);
        if (best < 0 || g > most) {
            best = k;
            most = g;
        }
    }
    return best;
}

/* Few values: the best step from where one stands, each time. */
static void descend(struct wn__subgraph *x, struct list *l, int32_t *keep, int32_t n, int32_t *scratch)
{
    struct wn__subgraph_cost now;
    l->code = wn__subgraph_try(x, keep, n, &now);
    if (l->code == WN_OK) put(l, keep, n, &now);
    while (n > 0 && l->code == WN_OK) {
        int64_t at = l->n;
        int32_t k = best_step(x, l, keep, n, &now, scratch);
        if (k < 0) return;
        now = l->option[at + k].cost;
        n = without(keep, n, k, keep);
    }
}

/* A set of kept values, and what the subgraph costs with it. */
struct kept_set {
    const int32_t *keep; /* (n) nodes */
    int32_t n;
    struct wn__subgraph_cost cost;
};

/* Fills worth: (all->n) how much letting go of each value gains: by one try of each, or as bytes / nanoseconds where
 * there are more than `most` values. scratch: (all->n). */
static void find_worth(struct wn__subgraph *x, struct list *l, const struct kept_set *all, int64_t most, double *worth,
                       int32_t *scratch)
{
    for (int32_t k = 0; k < all->n && l->code == WN_OK; k++) {
        struct wn__subgraph_cost cost;
        int32_t v = all->keep[k];
        worth[k] = (double)x->ir.node[v].bytes / ((double)x->ns[v] + 1);
        if (all->n > most) continue;
        l->code = wn__subgraph_try(x, scratch, without(all->keep, all->n, k, scratch), &cost);
        worth[k] = gain(&all->cost, &cost);
    }
}

/* Many values: the worth of each, then all are let go in that order. Both take at most WORK / nodes tries each. */
static void descend_in_order(struct wn__subgraph *x, struct list *l, int32_t *keep, int32_t n, int32_t *scratch)
{
    double *worth = wn__pool_get(l->pool, (n + 1) * (int64_t)sizeof *worth);
    struct kept_set all = {.keep = keep, .n = n};
    struct wn__subgraph_cost cost;
    if (worth == NULL) l->code = WN_OOM;
    if (l->code == WN_OK) l->code = wn__subgraph_try(x, keep, n, &all.cost);
    if (l->code == WN_OK) put(l, keep, n, &all.cost);
    int64_t most = WORK / x->ir.n + 1;
    if (l->code == WN_OK) find_worth(x, l, &all, most, worth, scratch);
    if (most > TRIED) most = TRIED;
    int32_t step = (int32_t)((all.n + most - 1) / most);
    for (int32_t done = 0; n > 0 && l->code == WN_OK; done++) {
        int32_t best = 0;
        for (int32_t k = 1; k < n; k++)
            if (worth[k] > worth[best]) best = k;
        for (int32_t k = best; k + 1 < n; k++) worth[k] = worth[k + 1];
        n = without(keep, n, best, keep);
        if (done % step != 0 && n > 0) continue;
        l->code = wn__subgraph_try(x, keep, n, &cost);
        if (l->code == WN_OK) put(l, keep, n, &cost);
    }
}

/* ---- choosing among what was tried ---------------------------------------------------------------------------- */

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

static int32_t is_extreme(const struct list *l, int64_t k)
{
    int32_t time = 1, peak = 1;
    for (int64_t i = 0; i < l->n; i++) {
        time &= time_of(&l->option[k].cost) <= time_of(&l->option[i].cost);
        peak &= l->option[k].cost.backward_peak <= l->option[i].cost.backward_peak;
    }
    return k == 0 || k == l->n - 1 || time || peak;
}

/* Sorted by bytes: the one whose going costs the least area of the staircase of time over bytes goes. */
static void thin(struct list *l)
{
    sort_by_saved(l);
    while (l->n > MOST) {
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

static int64_t output_bytes(const struct wn__subgraph *x)
{
    int64_t bytes = 0;
    for (int32_t i = x->recipe.first[0]; i < x->recipe.limit[0]; i++)
        if (x->recipe.last[i] >= x->recipe.limit[0] && !wn__ir_is_alias(&x->ir, i) && !x->ir.node[i].is_reissued)
            bytes += x->ir.node[i].bytes;
    return bytes;
}

/* Copies what was chosen into the classes' pool; the tries stay in their own. */
static int32_t keep_options(struct wn__class *c, const struct list *l, struct wn__pool *pool)
{
    c->option = wn__pool_get(pool, (l->n + 1) * (int64_t)sizeof *c->option);
    if (c->option == NULL) return WN_OOM;
    for (int64_t k = 0; k < l->n; k++) {
        struct wn__option o = l->option[k];
        int32_t *keep = wn__pool_get(pool, (o.n_keep + 1) * (int64_t)sizeof *keep);
        if (keep == NULL) return WN_OOM;
        if (o.n_keep > 0) memcpy(keep, o.keep, (size_t)o.n_keep * sizeof *keep);
        o.keep = keep;
        c->option[c->n_options++] = o;
    }
    return WN_OK;
}

static void find_options(struct wn__subgraph *x, struct list *l)
{
    int64_t size = (x->ir.n + 1) * (int64_t)sizeof(int32_t);
    int32_t *keep = wn__pool_get(l->pool, size), *scratch = wn__pool_get(l->pool, size);
    if (keep == NULL || scratch == NULL) {
        l->code = WN_OOM;
        return;
    }
    int32_t n = find_candidates(x, keep);
    if (n > MANY) descend_in_order(x, l, keep, n, scratch);
    else descend(x, l, keep, n, scratch);
    if (l->code != WN_OK) return;
    drop_beaten(l);
    thin(l);
}

/* Fills a class from the subgraph of the first of its blocks. */
static int32_t fill_class(struct wn__class *c, struct wn__subgraph *x, struct wn__pool *pool)
{
    struct wn__pool tries = {0};
    struct list l = {.pool = &tries, .code = WN_OK};
    uint8_t *key = wn__pool_get(pool, x->key_bytes + 1);
    if (key == NULL) return WN_OOM;
    memcpy(key, x->key, (size_t)x->key_bytes);
    *c = (struct wn__class){.key = key, .key_bytes = x->key_bytes, .given = x->given, .outputs = output_bytes(x)};
    find_options(x, &l);
    if (l.code == WN_OK) l.code = keep_options(c, &l, pool);
    if (l.code == WN_OK) l.code = wn__subgraph_try(x, NULL, 0, &c->plain);
    wn__free(l.option);
    wn__pool_release(&tries);
    return l.code;
}

static int32_t find_class(const struct wn__classes *c, const struct wn__subgraph *x)
{
    for (int32_t k = 0; k < c->n; k++)
        if (c->class[k].key_bytes == x->key_bytes && memcmp(c->class[k].key, x->key, (size_t)x->key_bytes) == 0)
            return k;
    return -1;
}

static int32_t add_block(struct wn__classes *c, int32_t block, struct wn__subgraph *x)
{
    int64_t size = (x->ir.n + 1) * (int64_t)sizeof(int32_t);
    c->own[block] = wn__pool_get(&c->pool, size);
    if (c->own[block] == NULL) return WN_OOM;
    memcpy(c->own[block], x->own, (size_t)x->ir.n * sizeof(int32_t));
    c->of[block] = find_class(c, x);
    if (c->of[block] >= 0) return WN_OK;
    c->of[block] = c->n++;
    return fill_class(&c->class[c->of[block]], x, &c -> pool);
}

int32_t wn__classes_make(const struct wn__ir *f, const struct wn__recipe *r, const int64_t *ns, struct wn__classes *out)
{
    memset(out, 0, sizeof *out);
    out->class = wn__pool_get(&out->pool, (r->n_blocks + 1) * (int64_t)sizeof *out->class);
    out->of = wn__pool_get(&out->pool, (r->n_blocks + 1) * (int64_t)sizeof *out->of);
    out->own = wn__pool_get(&out->pool, (r->n_blocks + 1) * (int64_t)sizeof *out->own);
    int32_t *home = wn__pool_get(&out->pool, (f->n + 1) * (int64_t)sizeof *home);
    if (!out->class || !out->of || !out->own || !home) return WN_OOM;
    wn__partition_home(f, r, home);
    for (int32_t b = 0; b < r->n_blocks; b++) {
        struct wn__subgraph x;
        int32_t code = wn__subgraph_make(f, home, b, ns, &x);
        if (code == WN_OK) code = add_block(out, b, &x);
        wn__subgraph_release(&x);
        WN_TRY(code);
    }
    return WN_OK;
}

void wn__classes_release(struct wn__classes *c)
{
    struct wn__pool pool = c->pool;
    wn__pool_release(&pool);
    memset(c, 0, sizeof *c);
}
