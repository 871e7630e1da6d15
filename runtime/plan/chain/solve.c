/* Solves chains by dynamic programming: makes from the numbers of the blocks, for every byte budget at once, the
 * schedule with the least time.
 *
 * A window is blocks s..t. T(s, t, p)(m) is the least time to run a window forward and backward with m bytes, while
 * x_{s-1} (not counted in m) and d_t are held. p says what is held of block t at the start: nothing (0), or the saved
 * set of an option, so that block t is pending: its backward waits only for its input. With gap = d_t [t < n] + saved
 * of p, which is live while the window runs forward, T is the minimum over three moves (solve_moves.c counts every
 * byte):
 *
 *   E  keep       Fe s q;                      T(s+1, t, p) with saved_q bytes less;      B s
 *   C  come back  F s .. F j-1, keep x_{j-1};  T(j, t, p) with the bytes of x_{j-1} less;  then T(s, j-1, 0) with m
 *   D  drop       F s .. F j-1, Fe j q, free x_{j-1};  T(j+1, t, p) with saved_q less;     then T(s, j, q)
 *
 * E and C give the optimal persistent schedules of rotor (Beaumont, Eyraud-Dubois, Herrmann, Joly, Shilova: "Optimal
 * checkpointing for heterogeneous chains", 2019, and "Efficient combination of rematerialization and offloading",
 * 2021), here with several options a block. Persistent schedules are not the best ones: the saved set of a block may be
 * worth keeping although its input is not, because the input is computed again anyway when the blocks left of it are.
 * Move D keeps the set and drops the input; it is new here, and costs one more variant of each window for each option
 * that may be pending. In a small chain all options of a block may be pending, and the schedules are the optimum of the
 * class. In larger chains the one of least bytes may be (ALL_PENDING); the edits of plans mend what that misses.
 *
 * rotor and its followers tabulate T on a grid of memory slots, with each size rounded up to whole slots. That loses
 * the exact budget and up to a percent of the time, and costs as much where T is constant. T is a step function of m
 * with few steps, so it is stored as the list of its corners (step_function.h): sums and lower envelopes are linear in
 * the corners, nothing is rounded, and the table of the whole chain is its frontier. A list of more corners than the
 * caller wants is thinned: the corners that gain least go. A time is never below what its schedule takes.
 *
 * Windows with the same string of kinds of blocks share one table. The least budget is the same recurrence in (max,
 * min) over single numbers, cubic in the blocks, and is found before any list is made.
 *
 * Only whole numbers are compared. Among equal times, fewer forward runs win, then fewer operations. */
#include "solve.h"
#include <string.h>
#include "../../base/interrupt.h"
#include "../../base/status.h"
#include "../../base/number.h"

/* A table with more corners than it may have is thinned: corners that gain less than base_time / FRACTION go, then
 * those that gain less than twice that, and so on. */
#define FRACTION 10000

/* All options may be pending if windows * blocks * (most options of a block)^2 is at most this.
 * Measured: with two options of each block, 32 of 400 random chains of 2 to 7 stages are above the optimum, by up to
 * 6.9 %; with all options, none is; it takes 26 ms in place of 7 (16 stages, 6 options). */
#define ALL_PENDING INT64_C(100000)

/* ---- the description ------------------------------------------------------------------------------------------ */

/* Adds x * times to *sum. Returns 0 if x, the product or the sum is negative or not below WN__CHAIN_EXACT. */
static int32_t add_to(int64_t *sum, int64_t x, int32_t times)
{
    if (x < 0 || x >= WN__CHAIN_EXACT) return 0;
    if (__builtin_mul_overflow(x, (int64_t)times, &x) || x >= WN__CHAIN_EXACT) return 0;
    *sum += x;
    return *sum < WN__CHAIN_EXACT;
}

/* Checks that no sum of bytes or times reaches WN__CHAIN_EXACT: no schedule holds more than everything at once, and
 * none runs a block more than 2 * n times. */
static int32_t check_numbers(const struct wn__chain_blocks *c)
{
    int64_t bytes = 0, time = 0;
    int32_t ok = add_to(&bytes, c->outside, 1);
    for (int32_t i = 0; i < c->n && ok; i++) {
        const struct wn__chain_block *b = &c->block[i];
        ok = add_to(&time, b->time, 2 * c->n) && add_to(&bytes, b->peak, 1) && add_to(&bytes, b->bytes, 1) &&
             add_to(&bytes, b->grad, 1) && add_to(&bytes, b->allocated, 1);
        int64_t most_bytes = 0, most_time = 0;
        for (int32_t q = b->first; q < b->first + b->n_options && ok; q++) {
            const struct wn__block_option *o = &c->option[q];
            int64_t held = 0, ran = 0;
            ok = add_to(&held, o->saved, 1) && add_to(&held, o->peak_forward, 1) &&
                 add_to(&held, o->peak_backward, 1) && add_to(&ran, o->forward, 2 * c->n) &&
                 add_to(&ran, o->backward, 1);
            most_bytes = wn_max(most_bytes, held);
            most_time = wn_max(most_time, ran);
        }
        ok = ok && add_to(&bytes, most_bytes, 1) && add_to(&time, most_time, 1);
        if (!ok)
            return wn__fail(WN_VALUE,
                            "chain: the bytes or times up to stage %d add up to 2^53 or more (a time counts twice for "
                            "each stage); use coarser units",
                            i + 1);
    }
    if (ok) return WN_OK;
    return wn__fail(WN_VALUE, "chain: %lld bytes live all the time; expected 0 to 2^53", (long long)c->outside);
}

/* Takes over the numbers of the chain, and makes room for what is found about them. */
static int32_t take_description(struct wn__chain_solution *s, const struct wn__chain_blocks *c)
{
    if (!WN_ARRAY(&s->pool, s->kind, c->n) || !WN_ARRAY(&s->pool, s->pending, c->n * WN__SOLVE_PENDING) ||
        !WN_ARRAY(&s->pool, s->time_before, c->n) || !WN_ARRAY(&s->pool, s->allocated_before, c->n) ||
        !WN_ARRAY(&s->pool, s->window_of, c->n * (int64_t)c->n))
        return WN_OOM;
    s->chain = *c;
    for (int32_t i = 0; i < c->n; i++) {
        s->time_before[i + 1] = s->time_before[i] + c->block[i].time;
        s->allocated_before[i + 1] = s->allocated_before[i] + c->block[i].allocated;
    }
    return WN_OK;
}

/* ---- windows --------------------------------------------------------------------------------------------------- */

static int32_t is_same_block(const struct wn__chain_blocks *c, int32_t i, int32_t k)
{
    const struct wn__chain_block *x = &c->block[i], *y = &c->block[k];
    if (x->time != y->time || x->peak != y->peak || x->bytes != y->bytes || x->grad != y->grad ||
        x->allocated != y->allocated || x->n_options != y->n_options)
        return 0;
    size_t bytes = (size_t)x->n_options * sizeof *c->option;
    return memcmp(&c->option[x->first], &c->option[y->first], bytes) == 0;
}

/* Returns the option of least bytes of block i, of several the fastest. */
static int32_t smallest_option(const struct wn__chain_solution *s, int32_t i)
{
    const struct wn__chain_block *b = &s->chain.block[i];
    const struct wn__block_option *o = &s->chain.option[b->first];
    int32_t least = 0;
    for (int32_t q = 1; q < b->n_options; q++) {
        int64_t time = o[q].forward + o[q].backward, than = o[least].forward + o[least].backward;
        if (o[q].saved < o[least].saved || (o[q].saved == o[least].saved && time < than)) least = q;
    }
    return least;
}

/* Fills `pending`: all options in a small chain, else one of each block. */
static void choose_pending(struct wn__chain_solution *s)
{
    int32_t n = s->chain.n, most = 0;
    for (int32_t i = 0; i < n; i++)
        if (s->chain.block[i].n_options > most) most = s->chain.block[i].n_options;
    int32_t all = most <= WN__SOLVE_PENDING && s->n_windows * n * most * most <= ALL_PENDING;
    for (int32_t i = 0; i < n; i++) {
        for (int32_t k = 0; k < WN__SOLVE_PENDING; k++)
            s->pending[i * WN__SOLVE_PENDING + k] = all && k < s->chain.block[i].n_options ? k : -1;
        if (!all) s->pending[i * WN__SOLVE_PENDING] = smallest_option(s, i);
    }
}

/* Fills `kind`: the first block that has the same numbers. */
static void find_kinds(struct wn__chain_solution *s)
{
    for (int32_t i = 0; i < s->chain.n; i++) {
        s->kind[i] = i;
        for (int32_t k = 0; k < i && s->kind[i] == i; k++)
            if (s->kind[k] == k && is_same_block(&s->chain, i, k)) s->kind[i] = k;
    }
}

/* Returns the window with the string of kinds of blocks first .. last, a new one if there is none. head: the first of
 * the windows that extend the string of first .. last - 1 by one block. */
static int32_t intern(struct wn__chain_solution *s, int32_t head, int32_t first, int32_t last)
{
    for (int32_t w = head; w >= 0; w = s->window[w].sibling)
        if (s->window[w].kind == s->kind[last]) return w;
    struct wn__window *w = &s->window[s->n_windows];
    *w = (struct wn__window){.first = first, .last = last, .kind = s->kind[last], .child = -1, .sibling = head};
    return (int32_t)s->n_windows++;
}

/* Lists the windows by ascending last block, and for each last block by descending first block. So a window is behind
 * all windows that its moves lead to; and the windows with the same last block, which it reads most, were listed just
 * before it, so that their tables are still in the caches. */
static int32_t find_windows(struct wn__chain_solution *s)
{
    int32_t n = s->chain.n, roots = -1;
    for (int32_t last = 0; last < n; last++) {
        WN_TRY(wn__grow(&s->window, &s->window_room, s->n_windows + n, sizeof *s->window));
        for (int32_t first = last; first >= 0; first--) {
            int32_t prefix = first < last ? s->window_of[(int64_t)first * n + last - 1] : -1;
            int32_t *head = prefix < 0 ? &roots : &s->window[prefix].child;
            int64_t before = s->n_windows;
            int32_t w = intern(s, *head, first, last);
            if (s->n_windows > before) *head = w;
            s->window_of[(int64_t)first * n + last] = w;
        }
    }
    return WN_OK;
}

/* ---- the least budget -------------------------------------------------------------------------------------------- */

static int64_t least_of(const struct wn__chain_solution *s, const struct wn__part *p)
{
    return p->first < 0 ? 0 : wn__solve_window(s, p->first, p->last)->least[p->variant] + p->shift;
}

/* Fills `least` of all windows in their order, variant 0 of a window last, because its moves D lead to the other
 * variants of the same window. */
static void find_least(struct wn__chain_solution *s)
{
    for (int64_t i = 0; i < s->n_windows; i++) {
        struct wn__window *w = &s->window[i];
        for (int32_t variant = WN__SOLVE_VARIANTS - 1; variant >= 0; variant--) {
            struct wn__chain_moves moves;
            struct wn__chain_move m;
            w->least[variant] = WN__STEP_NEVER;
            if (!wn__solve_has(s, w->last, variant)) continue;
            wn__chain_moves_start(&moves, s, w->first, w->last, variant);
            while (wn__chain_moves_next(&moves, &m)) {
                int64_t least = wn_max(m.least, wn_max(least_of(s, &m.then), least_of(s, &m.last)));
                if (least < w->least[variant]) w->least[variant] = least;
            }
        }
    }
}

/* ---- the tables -------------------------------------------------------------------------------------------------- */

/* Makes the table of one variant of a window: the lower envelope of its moves. */
static int32_t fill_table(struct wn__chain_solution *s, struct wn__window *w, int32_t variant, int64_t tolerance,
                          struct wn__envelope *e)
{
    struct wn__chain_moves moves;
    struct wn__chain_move m;
    e->n_sums = 0;
    wn__chain_moves_start(&moves, s, w->first, w->last, variant);
    while (wn__chain_moves_next(&moves, &m)) {
        struct wn__step_sum sum = wn__solve_sum(s, &m);
        WN_TRY(wn__envelope_put(e, &sum));
    }
    WN_TRY(wn__envelope_make(e));
    for (; e->n > s->chain.longest; tolerance *= 2) wn__envelope_thin(e, tolerance);
    size_t bytes = (size_t)(e->n + 1) * sizeof *e->at;
    struct wn__corner *at = wn__pool_get(&s->pool, (int64_t)bytes);
    if (at == NULL) return WN_OOM;
    memcpy(at, e->at, bytes);
    w->table[variant] = (struct wn__step_function){at, (int32_t)e->n};
    return WN_OK;
}

/* Returns the time of the chain when every block runs once, with its fastest option. */
static int64_t base_time(const struct wn__chain_blocks *c)
{
    int64_t sum = 0;
    for (int32_t i = 0; i < c->n; i++) {
        int64_t least = INT64_MAX;
        for (int32_t q = c->block[i].first; q < c->block[i].first + c->block[i].n_options; q++) {
            int64_t time = c->option[q].forward + c->option[q].backward;
            if (time < least) least = time;
        }
        sum += least;
    }
    return sum;
}

/* Makes the tables of all windows in their order. WN_OOM; WN_INTERRUPT where it is heard. */
static int32_t fill_tables(struct wn__chain_solution *s)
{
    int64_t tolerance = base_time(&s->chain) / FRACTION + 1;
    struct wn__envelope e = {0};
    int32_t code = WN_OK;
    for (int64_t i = 0; i < s->n_windows && code == WN_OK; i++) {
        struct wn__window *w = &s->window[i];
        for (int32_t variant = WN__SOLVE_VARIANTS - 1; variant >= 0 && code == WN_OK; variant--)
            if (wn__solve_has(s, w->last, variant)) code = fill_table(s, w, variant, tolerance, &e);
        if (code == WN_OK) code = wn__heed_interrupt();
    }
    wn__envelope_release(&e);
    return code;
}

/* ---- the interface --------------------------------------------------------------------------------------------- */

int32_t wn__chain_open(const struct wn__chain_blocks *c, struct wn__chain_solution **out)
{
    int32_t code;
    WN_TRY(check_numbers(c));
    struct wn__chain_solution *s = wn__alloc(sizeof *s);
    if (s == NULL) return WN_OOM;
    WN_TRY_GOTO(take_description(s, c));
    find_kinds(s);
    WN_TRY_GOTO(find_windows(s));
    choose_pending(s);
    find_least(s);
    *out = s;
    return WN_OK;

fail:
    wn__chain_close(s);
    return code;
}

int64_t wn__chain_least(const struct wn__chain_solution *s)
{
    return wn__solve_window(s, 0, s->chain.n - 1)->least[0] + s->chain.outside;
}

int32_t wn__chain_frontier(struct wn__chain_solution *s, const struct wn__chain_cost **points, int32_t *n)
{
    const struct wn__window *whole = wn__solve_window(s, 0, s->chain.n - 1);
    if (s->points == NULL) {
        WN_TRY(fill_tables(s));
        const struct wn__step_function *table = &whole->table[0];
        struct wn__chain_cost *p;
        if (!WN_ARRAY(&s->pool, p, table->n)) return WN_OOM;
        for (int32_t i = 0; i < table->n; i++)
            p[i] = (struct wn__chain_cost){table->at[i].bytes + s->chain.outside, table->at[i].time};
        s->points = p;
    }
    *points = s->points;
    *n = whole->table[0].n;
    return WN_OK;
}

void wn__chain_close(void *solution)
{
    struct wn__chain_solution *s = solution;
    if (s == NULL) return;
    wn__free(s->window);
    wn__pool_release(&s->pool);
    wn__free(s);
}
