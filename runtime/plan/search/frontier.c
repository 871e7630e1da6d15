/* Builds the list of plans from the proposals of all moves, and keeps the frontiers of the last graphs.
 *
 * Each proposal is lowered, placed and simulated like any plan, and joins the list unless a plan there beats it. Plans
 * that it beats leave the list. A budget picks the fastest plan that fits, and the least budget is the last plan: so
 * more bytes never give a slower plan. */
#include "frontier.h"
#include <stdio.h>
#include <string.h>
#include "../../base/interrupt.h"
#include "../../graph/encode.h"
#include "../ir/cache.h"

#define PORTFOLIO 50 /* proposals of portfolio.c and evictions, about */
#define SOLVED 48    /* points of the chain solver's frontier that are proposed */
#define FINEST 256   /* most blocks of a fine partition that is solved */
#define FINE 4096    /* most blocks * classes of blocks of a fine partition that is solved */
#define NEAR 8       /* the other partition is solved too where the fine one has at least 1/NEAR blocks more */
#define HAND 15000   /* most nodes of a graph whose policies by hand are placed as a run places them */
#define LARGE 10000  /* nodes from which on building the list leaves 100 MiB of free memory, which is returned */
#define BUDGETS 50   /* a plan that is faster than the fastest gains as much as within 1/BUDGETS of the list's bytes */
#define STEEP 8      /* proposals in the last 1/STEEP of the list's bytes are placed with more effort */
#define SHORT 300    /* instructions below which a proposal is placed with more effort */

int64_t wn__left_out;

static int32_t is_proposed(enum wn__proposals what)
{
    return (wn__left_out & what) == 0;
}

/* ---- one proposal --------------------------------------------------------------------------------------------- */

/* Returns whether a reserves no more and takes no longer than b. Of equal plans, the one with fewer recomputed nodes
 * beats the other, then the one with fewer instructions, then a. */
static int32_t beats(const struct wn__frontier_point *a, const struct wn__frontier_point *b)
{
    if (a->shown.reserved > b->shown.reserved || a->shown.seconds > b->shown.seconds) return 0;
    if (a->shown.reserved < b->shown.reserved || a->shown.seconds < b->shown.seconds) return 1;
    if (a->shown.recomputed != b->shown.recomputed) return a->shown.recomputed < b->shown.recomputed;
    return a->shown.instructions <= b->shown.instructions;
}

static int32_t is_beaten(const struct wn__building *b, const struct wn__frontier_point *p)
{
    for (int64_t i = 0; i < b->n; i++)
        if (beats(&b->point[i], p)) return 1;
    return 0;
}

/* Returns the effort with which a proposal is placed before it joins the list: policies by hand as a run places them,
 * because a budget of the bytes of such a policy must not give a slower plan; the others with more effort near the
 * list's least bytes, where a few bytes decide which budgets can be kept at all.
 * Measured: half the time of placing all of them roughly (models of 500 to 1,000 nodes); over 51 budgets of 50 models
 * no least budget is higher, and plans are 0.02 % faster on average. */
static enum wn__place_effort effort_for(const struct wn__building *b, const struct wn__frontier_point *p)
{
    if (b->is_by_hand && b->ir->n <= HAND) return WN__PLACE_FULLY;
    if (b->n == 0 || p->shown.instructions < SHORT) return WN__PLACE_ROUGHLY;
    int64_t least = b->point[b->n - 1].shown.reserved, most = b->point[0].shown.reserved;
    return p->shown.reserved < least + (most - least) / STEEP ? WN__PLACE_ROUGHLY : WN__PLACE_HASTILY;
}

/* Fills the numbers of a point, and *beaten. The plan is simulated before it is placed, with the bound of the bytes it
 * can reserve: most proposals are beaten even then, and placing costs more than everything else together. */
static int32_t judge(struct wn__building *b, struct wn__frontier_point *p, int32_t *beaten)
{
    struct wn__schedule *s = NULL;
    int32_t code = WN_OK;
    WN_TRY(wn__compile(b->ir, &p->recipe, NULL, WN__PLACE_BOUND, &s));
    p->shown.reserved = s->summary.reserved;
    p->shown.peak = s->summary.peak;
    p->shown.seconds = s->summary.seconds;
    p->shown.forward_seconds = s->summary.forward_seconds;
    p->shown.recomputed = s->summary.recomputed;
    p->shown.instructions = s->n;
    *beaten = is_beaten(b, p);
    if (!*beaten) {
        code = wn__place(b->ir, s, effort_for(b, p));
        p->is_settled = s->is_settled;
        p->shown.reserved = wn__reserved(b->ir, s);
    }
    wn__schedule_unref(s);
    return code;
}

/* Fills *known with whether the same recipe was offered before, and notes the recipe. It has up to a megabyte, so its
 * hash of 64 bits is noted; two recipes with equal hashes would lose one proposal of hundreds. */
static int32_t meet(struct wn__building *b, const struct wn__recipe *r, int32_t *known)
{
    struct wn__bytes all = {0};
    wn__bytes_int(&all, r->prefetch);
    wn__bytes_int(&all, r->group);
    wn__bytes_put(&all, r->limit, r->n_blocks * (int64_t)sizeof *r->limit);
    wn__bytes_put(&all, r->step, r->n * (int64_t)sizeof *r->step);
    wn__bytes_put(&all, r->keep, r->n_keep * (int64_t)sizeof *r->keep);
    wn__bytes_put(&all, r->action, r->n_keep * (int64_t)sizeof *r->action);
    uint64_t mark = all.code == WN_OK ? wn__bytes_hash(all.data, all.count) : 0;
    int32_t code = all.code;
    wn__free(all.data);
    *known = 0;
    for (int64_t i = 0; i < b->n_met; i++) *known |= b->met[i] == mark;
    if (code != WN_OK || *known) return code;
    WN_TRY(wn__grow(&b->met, &b->met_capacity, b->n_met + 1, sizeof *b->met));
    b->met[b->n_met++] = mark;
    return WN_OK;
}

/* Puts a point on the list unless it is beaten, and takes those that it beats from the list. Owns the point. */
static int32_t insert(struct wn__building *b, struct wn__frontier_point *p)
{
    int64_t n = 0;
    int32_t is_kept = !is_beaten(b, p), code = WN_OK;
    for (int64_t i = 0; i < b->n && is_kept; i++) {
        if (beats(p, &b->point[i])) wn__recipe_release(&b->point[i].recipe);
        else b->point[n++] = b->point[i];
    }
    if (is_kept) b->n = n;
    if (is_kept) code = wn__grow(&b->point, &b->capacity, b->n + 1, sizeof *b->point);
    if (!is_kept || code != WN_OK) {
        wn__recipe_release(&p->recipe);
        return code;
    }
    int64_t k = b->n++;
    for (; k > 0 && b->point[k - 1].shown.seconds > p->shown.seconds; k--) b->point[k] = b->point[k - 1];
    b->point[k] = *p;
    b->newest = p->id;
    return WN_OK;
}

/* Places a point as a run places it, and puts it on the list unless it is beaten. Owns the point. */
static int32_t insert_placed(struct wn__building *b, struct wn__frontier_point *p)
{
    struct wn__schedule *s = NULL;
    int32_t code = wn__heed_interrupt();
    if (p->is_settled && code == WN_OK) return insert(b, p);
    if (code == WN_OK) code = wn__compile(b->ir, &p->recipe, NULL, WN__PLACE_FULLY, &s);
    if (code == WN_OK) p->shown.reserved = s->summary.reserved;
    wn__schedule_unref(s);
    if (code == WN_OK) return insert(b, p);
    wn__recipe_release(&p->recipe);
    return code;
}

/* Places every plan of the list as a run places it. Some then reserve fewer bytes and beat others. */
static int32_t place_fully(struct wn__building *b)
{
    struct wn__frontier_point *rough = b->point;
    int64_t n = b->n;
    int32_t code = WN_OK;
    b->point = NULL;
    b->n = b->capacity = 0;
    for (int64_t i = 0; i < n; i++) {
        if (code == WN_OK) code = insert_placed(b, &rough[i]);
        else wn__recipe_release(&rough[i].recipe);
    }
    wn__free(rough);
    return code;
}

/* Tells the caller how far the list is. Returns WN_INTERRUPT if ^C came, or the caller asks to stop. */
static int32_t look_up(const struct wn__building *b)
{
    WN_TRY(wn__heed_interrupt());
    int32_t expected = PORTFOLIO + 2 * SOLVED + wn__frontier_edits(b->ir);
    if (b->look == NULL || !b->look(b->tried, wn_max(expected, b->tried + 1))) return WN_OK;
    return wn__fail(WN_INTERRUPT, "planning was told to stop; nothing ran");
}

int32_t wn__frontier_offer(struct wn__building *b, struct wn__recipe *r, const char *name)
{
    struct wn__frontier_point p = {.recipe = *r, .id = b->tried};
    int32_t known = 0, beaten = 0;
    snprintf(p.name, sizeof p.name, "%s", name);
    int32_t code = look_up(b);
    if (code == WN_OK) code = wn__recipe_obey(b->ir, b->marks, &p.recipe);
    if (code == WN_OK) code = meet(b, &p.recipe, &known);
    if (code == WN_OK && !known) code = judge(b, &p, &beaten);
    if (code != WN_OK || known) {
        wn__recipe_release(&p.recipe);
        return code;
    }
    b->tried++;
    if (!beaten) return insert(b, &p);
    wn__recipe_release(&p.recipe);
    return WN_OK;
}

int32_t wn__frontier_begin(const struct wn__building *b, const struct wn__recipe *r, struct wn__recipe *out)
{
    const struct {
        int32_t *from, **to, n;
    } array[] = {{r->block_of, &out->block_of, b->ir->n},
                 {r->last, &out->last, b->ir->n},
                 {r->first, &out->first, r->n_blocks},
                 {r->limit, &out->limit, r->n_blocks}};
    wn__recipe_begin(r, out);
    if (r->block_of == b->base.block_of || r->block_of == b->fine.block_of) return WN_OK;
    for (size_t i = 0; i < sizeof array / sizeof array[0]; i++) {
        if (!WN_ARRAY(&out->pool, *array[i].to, array[i].n)) {
            wn__recipe_release(out);
            return WN_OOM;
        }
        memcpy(*array[i].to, array[i].from, (size_t)array[i].n * sizeof **array[i].to);
    }
    return WN_OK;
}

double wn__frontier_gain(const struct wn__building *b, int64_t reserved, double seconds)
{
    double span = (double)(b->point[0].shown.reserved - b->point[b->n - 1].shown.reserved) + 1, sum = 0;
    int64_t from = wn_max(reserved, b->point[b->n - 1].shown.reserved), k = b->n - 1;
    while (k > 0 && b->point[k - 1].shown.reserved <= from) k--;
    double slower = b->point[k].shown.seconds / seconds - 1; /* of the list's fastest plan within `reserved` */
    if (reserved == from && slower <= 0) return slower;
    for (; k >= 0 && b->point[k].shown.seconds > seconds; k--) {
        double to = k > 0 ? (double)b->point[k - 1].shown.reserved : (double)from + span / BUDGETS;
        sum += (to - (double)from) * (b->point[k].shown.seconds / seconds - 1);
        if (k > 0) from = b->point[k - 1].shown.reserved;
    }
    if (reserved < b->point[b->n - 1].shown.reserved) sum += (double)(b->point[b->n - 1].shown.reserved - reserved);
    return sum / span;
}

/* ---- the list ---------------------------------------------------------------------------------------------------- */

/* Returns the nanoseconds of every node, (ir->n), 0 of leaves. NULL: the message of WN_OOM is set. */
static int64_t *node_ns(struct wn__building *b)
{
    int64_t *ns = wn__pool_get(&b->pool, (b->ir->n + 1) * (int64_t)sizeof *ns);
    for (int32_t i = 0; ns != NULL && i < b->ir->n; i++)
        if (b->ir->node[i].leaf == WN_LEAF_NONE) ns[i] = (int64_t)(b->ir->seconds[i] * 1e9 + 0.5);
    return ns;
}

/* Solves the chain of a partition's blocks, unless blocks * classes of blocks are more than `most`. */
static int32_t solve(struct wn__building *b, const struct wn__recipe *base, const int64_t *ns, int64_t most,
                     int32_t *is_solved)
{
    struct wn__classes classes = {0};
    int32_t code = wn__classes_make(b->ir, b->marks, base, ns, &classes);
    *is_solved = code == WN_OK && (int64_t)classes.n * base->n_blocks <= most;
    if (*is_solved) code = wn__frontier_chain(b, base, &classes, SOLVED);
    wn__classes_release(&classes);
    return code;
}

/* Solves the chains of both partitions, or of the fine one alone if it has hardly more blocks than the other. */
static int32_t solve_both(struct wn__building *b, const int64_t *ns)
{
    WN_TRY(wn__partition(b->ir, b->marks, 1, &b->fine));
    int32_t base = b->base.n_blocks, fine = b->fine.n_blocks, is_solved = 0;
    if (fine > base && fine <= FINEST && is_proposed(WN__PROPOSE_FINE))
        WN_TRY(solve(b, &b->fine, ns, FINE, &is_solved));
    if (is_solved && fine < base + base / NEAR) return WN_OK;
    return solve(b, &b->base, ns, INT64_MAX, &is_solved);
}

/* Lets every move make its proposals, in a fixed order: those that edit the list come after those that fill it. */
static int32_t propose(struct wn__building *b)
{
    const int64_t *ns = node_ns(b);
    if (ns == NULL) return WN_OOM;
    WN_TRY(wn__partition(b->ir, b->marks, 0, &b->base));
    b->is_by_hand = 1;
    WN_TRY(wn__frontier_portfolio(b));
    b->is_by_hand = 0;
    if (!b->ir->has_backward) return WN_OK;
    int32_t code = is_proposed(WN__PROPOSE_CHAIN) ? solve_both(b, ns) : WN_OK;
    if (code == WN_OK && is_proposed(WN__PROPOSE_EVICT)) code = wn__frontier_evict(b);
    if (code == WN_OK && is_proposed(WN__PROPOSE_ACTION)) code = wn__frontier_act(b);
    if (code == WN_OK && is_proposed(WN__PROPOSE_AHEAD)) code = wn__frontier_ahead(b);
    if (code == WN_OK && is_proposed(WN__PROPOSE_EDIT)) code = wn__frontier_edit(b);
    if (code == WN_OK && is_proposed(WN__PROPOSE_SCRIPT)) code = wn__frontier_late(b);
    return code;
}

/* Makes the frontier of the list, which gives up its points and partitions. */
static int32_t finish(struct wn__building *b, struct wn__frontier **out)
{
    struct wn__frontier *fr = wn__alloc(sizeof *fr);
    if (fr == NULL) return WN_OOM;
    *fr = (struct wn__frontier){
        .refs = 1, .point = b->point, .n = (int32_t)b->n, .tried = b->tried, .base = b->base, .fine = b->fine};
    b->point = NULL;
    b->n = 0;
    memset(&b->base, 0, sizeof b->base);
    memset(&b->fine, 0, sizeof b->fine);
    *out = fr;
    return WN_OK;
}

static int32_t build(struct wn__building *b, struct wn__frontier **out)
{
    int32_t code = propose(b);
    if (code == WN_OK) code = place_fully(b);
    if (code == WN_OK) code = finish(b, out);
    for (int64_t i = 0; i < b->n; i++) wn__recipe_release(&b->point[i].recipe);
    wn__free(b->point);
    wn__free(b->met);
    wn__recipe_release(&b->base);
    wn__recipe_release(&b->fine);
    wn__pool_release(&b->pool);
    return code;
}

void wn__frontier_unref(struct wn__frontier *fr)
{
    if (fr == NULL || --fr->refs > 0) return;
    for (int32_t i = 0; i < fr->n; i++) wn__recipe_release(&fr->point[i].recipe);
    wn__free(fr->point);
    wn__recipe_release(&fr->base);
    wn__recipe_release(&fr->fine);
    wn__free(fr);
}

/* ---- remembered -------------------------------------------------------------------------------------------------- */

static void drop_frontier(void *thing)
{
    wn__frontier_unref(thing);
}

/* Makes the frontier, and puts it into the cache under a key. */
static int32_t make(struct wn__building *b, const struct wn__cache_key *key, struct wn__frontier **out)
{
    WN_TRY(build(b, out));
    struct wn__frontier *fr = *out;
    int64_t bytes = fr->base.pool.bytes + fr->fine.pool.bytes;
    for (int32_t i = 0; i < fr->n; i++) bytes += fr->point[i].recipe.pool.bytes;
    fr->refs++;
    int32_t code = wn__cache_keep(key, fr, bytes, drop_frontier);
    if (b->ir->n >= LARGE) wn__alloc_trim();
    return code;
}

int32_t wn__frontier_make(const struct wn__ir *ir, const struct wn__marks *marks, wn_look look,
                          struct wn__frontier **out)
{
    struct wn__building building = {.ir = ir, .marks = marks, .look = look};
    struct wn__bytes b = {0};
    wn__ir_encode(&b, ir, marks, WN_FIELD_TAG);
    const struct wn__cache_key key = {WN_CACHED_FRONTIER, {ir->key, b.data}, {ir->key_bytes, b.count}};
    int32_t code = b.code;
    *out = code == WN_OK ? wn__cached(&key) : NULL;
    if (*out != NULL) (*out)->refs++;
    else if (code == WN_OK) code = make(&building, &key, out);
    if (code != WN_OK) {
        wn__frontier_unref(*out);
        *out = NULL;
    }
    wn__free(b.data);
    return code;
}
