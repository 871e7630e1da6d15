/* Gives transfers time to be hidden: waits for what goes out later, and starts what comes back earlier, both no
 * further than the clock asks for, and only while the bytes alive stay under a cap. offload.c and residency.c put each
 * transfer in beside its wait; one that finds no room stays like that, so no plan gets slower.
 *
 *   before   run, offload a, wait a, run, run, run, fetch a, wait a, run
 *   after    run, offload a, run, wait a, run, fetch a, run, wait a, run
 *
 * The cap, with the recipe's budget in eighths:
 *
 *   cap = peak with every wait at once + budget / 8 * (peak without any offloading - peak with every wait at once)
 *
 * Bytes here are those of values and workspaces, before in-place ops share allocations: an estimate that only chooses
 * places. What a schedule takes, and how long, the simulator says. Exchanges among ranks have their places already. */
#include "../../base/memory_order.h"
#include <string.h>
#include "../recipe/action.h"
#include "../ir/costs.h"
#include "schedule.h"
#include "lower.h"

/* A transfer, as it is at first and then as it is moved; an exchange has no bytes here. Items that never move are
 * fixed: all but fetches and the waits of offloads. Invariant: start <= wait, and a fetch starts no earlier than the
 * offload that it needs is waited for. */
struct transfer {
    int32_t way, place; /* WN_WAY_; enum wn_medium */
    int64_t bytes;
    double takes; /* seconds */
    double ends;  /* seconds: an offload ends; a fetch should start */
    /* Indices of fixed items. A fetch is put before `start`, the wait of an offload before `wait`; start of an
     * offload and wait of a fetch are fixed items themselves. */
    int32_t start, wait;
    int32_t kept;  /* the value that holds the kept form */
    int32_t needs; /* of a fetch: the offload that made the kept form; else -1 */
};
/* The fixed items. Invariant: clock[i + 1] >= clock[i] + seconds[i]. */
struct fixed_items {
    int32_t n;
    int32_t *before; /* (n_items of the list) how many fixed items precede each item */
    double *seconds; /* (n) */
    double *clock;   /* (n + 1) seconds at which each starts; of n, the end */
    int64_t *live;   /* (n + 1) bytes alive at each */
    int32_t *starts; /* (n) the offload that an item starts, + 1; 0: none */
    int32_t *waits;  /* (n) the fetch that an item waits for, + 1; 0: none */
};
struct prefetch {
    const struct wn__ir *ir;
    struct wn__list *l;
    struct wn__pool scratch;
    struct transfer *transfer; /* (n_moves of the list) */
    int32_t *fetch, n_fetches; /* (n_moves) fetches in the order of their waits */
    int32_t *pending;          /* (n_moves) offloads under way */
    struct fixed_items fixed;
    int64_t cap; /* bytes alive that transfers may make */
};

static int32_t is_fixed(const struct prefetch *x, const struct wn__item *it)
{
    const struct transfer *m = &x->transfer[it->move];
    return it->what != WN_DO_FETCH && (it->what != WN_DO_WAIT || m->way == WN_WAY_IN || m->bytes == 0);
}

/* Returns the seconds of a fixed item; 0 for one without a kernel. */
static double item_seconds(const struct prefetch *x, const struct wn__item *it)
{
    if (it->what == WN_DO_RUN) return x->ir->seconds[it->node];
    if (it->what != WN_DO_PACK && it->what != WN_DO_UNPACK) return 0;
    const struct wn__schedule s = {.value = x->l->value, .in = x->l->in};
    const struct wn__instr n = {.what = it->what, .node = it->node, .out = it->out, .in_at = it->in_at};
    struct wn__applied room;
    int32_t is_measured;
    return wn__desc_seconds(x->ir, wn__instr_desc(x->ir, &s, &n, &room), &is_measured);
}

/* Fills the transfers: their bytes, seconds, and the offload that each fetch needs. */
static void find_transfers(struct prefetch *x)
{
    const struct wn__list *l = x->l;
    for (int64_t i = 0; i < l->n_items; i++) {
        const struct wn__item *it = &l->item[i];
        if (it->what != WN_DO_OFFLOAD && it->what != WN_DO_FETCH) continue;
        struct transfer *m = &x->transfer[it->move];
        m->way = it->what == WN_DO_FETCH ? WN_WAY_IN : WN_WAY_OUT;
        m->kept = m->way == WN_WAY_IN ? l->in[it->in_at] : it->out;
        m->place = wn__action_medium(l->value[m->kept].action);
        m->bytes = wn__value_bytes(x->ir, &l->value[m->kept]);
        m->takes = wn__move_seconds(x->ir, m->place, m->way, m->bytes);
        m->needs = -1;
        for (int32_t k = 0; m->way == WN_WAY_IN && k < l->n_moves; k++) {
            const struct transfer *out = &x->transfer[k];
            if (out->bytes > 0 && out->way == WN_WAY_OUT && out->kept == m->kept) m->needs = k;
        }
    }
}

/* Fills the fixed items, and where transfers start and are waited for before any is moved. */
static void find_fixed(struct prefetch *x)
{
    struct fixed_items *fixed = &x->fixed;
    for (int64_t i = 0; i < x->l->n_items; i++) {
        const struct wn__item *it = &x->l->item[i];
        fixed->before[i] = fixed->n;
        if (it->what == WN_DO_OFFLOAD || it->what == WN_DO_FETCH) x->transfer[it->move].start = fixed->n;
        if (it->what == WN_DO_WAIT) x->transfer[it->move].wait = fixed->n;
        if (!is_fixed(x, it)) continue;
        if (it->what == WN_DO_OFFLOAD) fixed->starts[fixed->n] = it->move + 1;
        if (it->what == WN_DO_WAIT && x->transfer[it->move].bytes > 0) {
            fixed->waits[fixed->n] = it->move + 1;
            x->fetch[x->n_fetches++] = it->move;
        }
        fixed->seconds[fixed->n++] = item_seconds(x, it);
    }
}

/* ---- bytes alive
 * --------------------------------------------------------------------------------------------------- */

/* Adds `bytes` to the items from .. to, where `change` holds differences between neighbours. */
static void add(int64_t *change, int32_t from, int32_t to, int64_t bytes)
{
    if (to < from) return;
    change[from] += bytes;
    change[to + 1] -= bytes;
}

/* Turns differences between neighbours into sums, and returns the largest. */
static int64_t sum_up(int64_t *v, int32_t n)
{
    int64_t most = 0;
    for (int32_t i = 0; i < n; i++) {
        if (i > 0) v[i] += v[i - 1];
        if (v[i] > most) most = v[i];
    }
    return most;
}

/* Returns whether a value takes bytes of the arena. */
static int32_t is_counted(const struct prefetch *x, int32_t value)
{
    const struct wn__value *v = &x->l->value[value];
    const struct wn__ir_node *p = &x->ir->node[v->node];
    return p->leaf == WN_LEAF_NONE && !p->bound && p->result < 0 && wn__action_medium(v->action) < 0;
}

/* Fills the fixed items from which (first) to which (last) each value lives, and adds workspaces to live. */
static void find_lives(struct prefetch *x, int32_t *first, int32_t *last)
{
    const struct wn__list *l = x->l;
    for (int64_t i = 0; i < l->n_items; i++) {
        const struct wn__item *it = &l->item[i];
        int32_t at = x->fixed.before[i] - !is_fixed(x, it);
        struct wn_desc d = wn__ir_desc_of(x->ir, &x->ir->node[it->node]);
        struct wn__memory_order room;
        if (it->what == WN_DO_RUN) {
            int64_t bytes = x->ir->target->workspace(x->ir->target, wn__in_memory_order(&d, &room));
            add(x->fixed.live, at, at, wn__padded(bytes));
        }
        if (it->out >= 0) first[it->out] = x->fixed.before[i];
        if (it->out >= 0 && at > last[it->out]) last[it->out] = at;
        int32_t stays = it->what == WN_DO_RUN && d.op == WN_OP_ASSIGN;
        for (int32_t k = 0; k < it->n_in; k++) {
            int32_t *to = &last[l->in[it->in_at + k]];
            if (stays || at > *to) *to = stays ? x->fixed.n - 1 : at;
        }
    }
}

/* Fills live, with every transfer waited for at once, and the cap. */
static int32_t find_bytes(struct prefetch *x, int32_t budget)
{
    const struct wn__list *l = x->l;
    int32_t *first, *last;
    int64_t *kept, *live = x->fixed.live;
    if (!WN_ARRAY(&x->scratch, first, l->n_values) || !WN_ARRAY(&x->scratch, last, l->n_values) ||
        !WN_ARRAY(&x->scratch, kept, x->fixed.n + 1))
        return WN_OOM;
    find_lives(x, first, last);
    for (int32_t v = 0; v < l->n_values; v++)
        if (is_counted(x, v)) add(live, first[v], last[v], wn__value_bytes(x->ir, &l->value[v]));
    int64_t at_once = sum_up(live, x->fixed.n);
    for (int32_t i = 0; i < x->fixed.n; i++) kept[i] = live[i] - (i > 0 ? live[i - 1] : 0);
    for (int32_t k = 0; k < l->n_moves; k++) {
        const struct transfer *m = &x->transfer[k];
        if (m->way == WN_WAY_IN && m->needs >= 0) add(kept, x->transfer[m->needs].start + 1, m->wait - 1, m->bytes);
    }
    int64_t without = sum_up(kept, x->fixed.n);
    x->cap = at_once + (without > at_once ? (without - at_once) / 8 * budget : 0);
    return WN_OK;
}

/* ---- moving
 * --------------------------------------------------------------------------------------------------------- */

/* Waits before fixed item j, which starts at second t, for every pending offload that has ended, whose bytes the cap
 * needs, or that is to come back there (wanted). Returns the second at which j can start. */
static double wait_for(struct prefetch *x, int32_t *n_pending, int32_t j, double t, int64_t *extra)
{
    int32_t wanted = x->fixed.waits[j] > 0 ? x->transfer[x->fixed.waits[j] - 1].needs : -1, left = 0;
    for (int32_t i = 0; i < *n_pending; i++) {
        struct transfer *m = &x->transfer[x->pending[i]];
        int32_t must = x->pending[i] == wanted || x->fixed.live[j] + *extra > x->cap;
        if (!must && m->ends > t) {
            x->pending[left++] = x->pending[i];
            continue;
        }
        if (m->ends > t) t = m->ends;
        m->wait = j;
        *extra -= m->bytes;
    }
    *n_pending = left;
    return t;
}

/* Waits for each offload as late as the clock, the cap and its fetch allow, and fills the clock. */
static void delay_waits(struct prefetch *x)
{
    struct fixed_items *fixed = &x->fixed;
    double t = 0, lane[WN_MEDIUM_COUNT] = {0};
    int64_t extra = 0; /* bytes of offloads under way */
    int32_t n = 0;
    for (int32_t j = 0; j < fixed->n; j++) {
        t = wait_for(x, &n, j, t, &extra);
        fixed->live[j] += extra;
        fixed->clock[j] = t;
        t += fixed->seconds[j];
        if (fixed->starts[j] == 0) continue;
        struct transfer *m = &x->transfer[fixed->starts[j] - 1];
        m->ends = (t > lane[m->place] ? t : lane[m->place]) + m->takes;
        lane[m->place] = m->ends;
        extra += m->bytes;
        x->pending[n++] = fixed->starts[j] - 1;
    }
    fixed->clock[fixed->n] = t;
    for (int32_t i = 0; i < n; i++) x->transfer[x->pending[i]].wait = fixed->n;
}

/* Returns the last fixed item of [lo, hi] that starts at or before second t; lo when there is none. */
static int32_t item_at(const struct fixed_items *fixed, double t, int32_t lo, int32_t hi)
{
    while (lo < hi) {
        int32_t middle = hi - (hi - lo) / 2;
        if (fixed->clock[middle] <= t) lo = middle;
        else hi = middle - 1;
    }
    return lo;
}

/* Starts each fetch as late as the clock allows; those that are needed first take room first. */
static void advance_starts(struct prefetch *x)
{
    struct fixed_items *fixed = &x->fixed;
    double next[WN_MEDIUM_COUNT];
    int32_t before[WN_MEDIUM_COUNT] = {0};
    for (int32_t p = 0; p < WN_MEDIUM_COUNT; p++) next[p] = fixed->clock[fixed->n];
    for (int32_t i = x->n_fetches - 1; i >= 0; i--) {
        struct transfer *m = &x->transfer[x->fetch[i]];
        double by = fixed->clock[m->wait] < next[m->place] ? fixed->clock[m->wait] : next[m->place];
        m->ends = next[m->place] = by - m->takes;
    }
    for (int32_t i = 0; i < x->n_fetches; i++) {
        struct transfer *m = &x->transfer[x->fetch[i]];
        int32_t least = m->needs >= 0 ? x->transfer[m->needs].wait : m->wait;
        if (before[m->place] > least) least = before[m->place];
        if (least > m->wait) least = m->wait;
        int32_t wanted = item_at(fixed, m->ends, least, m->wait);
        m->start = m->wait;
        while (m->start > wanted && fixed->live[m->start - 1] + m->bytes <= x->cap) fixed->live[--m->start] += m->bytes;
        before[m->place] = m->start;
    }
}

/* ---- the list again
 * --------------------------------------------------------------------------------------------------- */

/* Takes the movable items out of the list, and puts them back before the fixed items that they belong before: waits of
 * offloads, then starts of fetches. */
static int32_t rebuild(struct prefetch *x)
{
    struct wn__list *l = x->l;
    struct wn__item *more;
    int32_t *at, n = 0, fixed = 0;
    if (!WN_ARRAY(&x->scratch, more, l->n_items) || !WN_ARRAY(&x->scratch, at, l->n_items)) return WN_OOM;
    for (int32_t is_fetch = 0; is_fetch < 2; is_fetch++)
        for (int64_t i = 0; i < l->n_items; i++) {
            const struct wn__item *it = &l->item[i];
            if (is_fixed(x, it) || (it->what == WN_DO_FETCH) != is_fetch) continue;
            at[n] = is_fetch ? x->transfer[it->move].start : x->transfer[it->move].wait;
            more[n++] = *it;
        }
    for (int64_t i = 0; i < l->n_items; i++)
        if (is_fixed(x, &l->item[i])) l->item[fixed++] = l->item[i];
    l->n_items = fixed;
    for (int32_t k = 0; k < n; k++) /* at its new place the backward may not have begun */
        if (at[k] < fixed && l->item[at[k]].phase == WN_PHASE_FORWARD) more[k].phase = WN_PHASE_FORWARD;
    return wn__list_insert(l, n, more, at);
}

static int32_t take_arrays(struct prefetch *x)
{
    int64_t moves = x->l->n_moves, items = x->l->n_items + 1;
    struct fixed_items *fixed = &x->fixed;
    struct wn__pool *p = &x->scratch;
    int32_t is_there =
        WN_ARRAY(p, x->transfer, moves) && WN_ARRAY(p, x->fetch, moves) && WN_ARRAY(p, x->pending, moves) &&
        WN_ARRAY(p, fixed->before, items) && WN_ARRAY(p, fixed->starts, items) && WN_ARRAY(p, fixed->waits, items) &&
        WN_ARRAY(p, fixed->seconds, items) && WN_ARRAY(p, fixed->clock, items) && WN_ARRAY(p, fixed->live, items);
    return is_there ? WN_OK : WN_OOM;
}

int32_t wn__lower_prefetch(const struct wn__ir *ir, int32_t budget, struct wn__list *l)
{
    struct prefetch x = {.ir = ir, .l = l};
    if (l->n_moves == 0 || ir->seconds == NULL) return WN_OK;
    int32_t code = take_arrays(&x);
    if (code == WN_OK) {
        find_transfers(&x);
        find_fixed(&x);
        code = find_bytes(&x, budget);
    }
    if (code == WN_OK) {
        delay_waits(&x);
        advance_starts(&x);
        code = rebuild(&x);
    }
    wn__pool_release(&x.scratch);
    return code;
}
