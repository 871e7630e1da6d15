/* The planner of chains: for every byte budget at once, the schedule with the least time.
 *
 * T(s, t, p)(m) is the least time to take blocks s..t forward and backward with m bytes, x_{s-1} and the gradient
 * d_t being there (x_{s-1} not counted in m); p says whether block t is already saved, by which option, and waits
 * ("pending") only for its input. With gap = d_t [t < n] + saved of p, all of it live while the forward runs, it is
 * the least of three moves (solve_moves.c has them with every byte):
 *
 *   E  keep       Fe s q; T(s+1, t, p) with saved_q less; B s
 *   C  come back  F s .. F j-1, only x_{j-1} kept; T(j, t, p) with x_{j-1} less; then T(s, j-1) with all of m
 *   D  drop       F s .. F j-1, Fe j q, x_{j-1} let go; T(j+1, t, p) with saved_q less; then T(s, j, q)
 *
 * E and C are the optimal persistent schedules of rotor (Beaumont, Eyraud-Dubois, Herrmann, Joly, Shilova: "Optimal
 * checkpointing for heterogeneous chains", 2019, and "Efficient combination of rematerialization and offloading",
 * 2021), here with several ways of saving a block. Persistent schedules are not the best there are: what a block
 * saved may be worth keeping while the block's input is not, since the input is made again anyway when the blocks to
 * its left are. D is that move. It is ours; it costs one more variant of each window for an option that may be
 * pending. Where the chain is small all of a block's options may be pending, and the plans are the optimum of the class;
 * else two of each block: the one of least bytes and the one of least time (FEW).
 *
 * rotor and its followers tabulate T on a grid of memory slots, each size rounded up to whole slots: that loses the
 * exact budget, up to a percent of the time, and costs the same where nothing happens. T is a step function of m
 * with few steps, so it is kept as the list of its corners (step_function.h): sums and lower envelopes are linear in them,
 * nothing is rounded, and the table of the whole chain is the frontier of all budgets. Where a list grows beyond
 * its share of corners (CORNERS below), those that gain least are left out, and how much that can cost in all is added
 * up and reported as slack; a time is never less than what its schedule takes.
 *
 * Windows with the same string of kinds of blocks share one table. The least budget is the same recurrence in
 * (max, min) over single numbers, cubic in the blocks, and is there before any list is.
 *
 * Only whole numbers are compared. Among equal times the fewer forward runs win, then the fewer operations. */
#include "solve.h"
#include <string.h>
#include "../../base/slices.h"
#include "../../base/status.h"
#include "../../base/number.h"

/* A table has at most CORNERS / blocks / (tables of windows of its length) corners, yet SHORTEST to LONGEST of them. One with
 * more is thinned: corners that gain less than a FRACTION-th of the chain's own time go, then those that gain less than
 * twice that, and so on.
 * Measured: 52 stages of 6 options, none equal: 8,332 corners became 2,597, and no budget's plan got slower by more than
 * 0.02 % of the chain's time; the slack, which adds up the worst of every window, says 0.31 %.
 * Measured: the slack of that chain is 0.43 % with 8 million corners, 0.48 with 7, 0.51 with 6, 1.30 with 4. With 3 instead
 * of 8 the list of 90 unlike residual blocks takes 1.57 s instead of 1.79, and that of 51,969 nodes 24 MiB less.
 * Measured: 125 unlike residual blocks, 8 million corners instead of 21: 522 -> 176 MiB and 2.7 -> 2.0 s in all; over 400
 * budgets the plan is slower by 0.012 % on average, by 0.10 % at most, and faster by up to 0.07 %. */
#define LONGEST 4096
#define SHORTEST 256
#define FRACTION 10000
#define CORNERS INT64_C(7000000)

/* All options may be pending up to this many windows x blocks x options of a block squared.
 * Measured: with two of each block 32 of 400 random chains of 2 to 7 stages were above the optimum, by up to 6.9 %; with
 * all of them none. 16 stages of 6 options take 26 ms instead of 7; GPT-2 774M, above FEW, would take 0.28 s, not 0.07. */
#define FEW INT64_C(100000)

/* ---- the description ------------------------------------------------------------------------------------------ */

/* Adds to a sum that must stay below WN__CHAIN_EXACT; every term is checked. */
static int32_t add_to(int64_t *sum, int64_t x, int32_t times)
{
    if (x < 0 || x >= WN__CHAIN_EXACT) return 0;
    if (__builtin_mul_overflow(x, (int64_t)times, &x) || x >= WN__CHAIN_EXACT) return 0;
    *sum += x;
    return *sum < WN__CHAIN_EXACT;
}

/* No plan holds more than everything at once, and none runs a block more than twice for each block behind it. */
static int32_t check_numbers(const struct wn__chain_blocks *c)
{
    int64_t bytes = 0, time = 0;
    int32_t ok = add_to(&bytes, c->outside, 1);
    for (int32_t i = 0; i < c->n && ok; i++) {
        const struct wn__chain_block *b = &c->block[i];
        ok = add_to(&time, b->time, 2 * c->n) && add_to(&bytes, b->peak, 1) && add_to(&bytes, b->bytes, 1) &&
             add_to(&bytes, b->grad, 1) && add_to(&bytes, b->born, 1);
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

static int32_t check(const struct wn__chain_blocks *c)
{
    if (c->n < 1 || c->n > WN__CHAIN_LONGEST)
        return wn__fail(WN_VALUE, "chain: %d stages given; expected 1 to %d", c->n, WN__CHAIN_LONGEST);
    for (int32_t i = 0; i < c->n; i++) {
        const struct wn__chain_block *b = &c->block[i];
        if (b->n_options < 1 || b->n_options > WN__CHAIN_MOST_OPTIONS || b->first < 0 ||
            b->first > c->n_options - b->n_options)
            return wn__fail(WN_VALUE, "chain: stage %d has %d options; expected 1 to %d", i + 1, b->n_options,
                            WN__CHAIN_MOST_OPTIONS);
    }
    return check_numbers(c);
}

static int32_t copy_description(struct wn__chain_solution *s, const struct wn__chain_blocks *c)
{
    size_t blocks = (size_t)c->n * sizeof *c->block, options = (size_t)c->n_options * sizeof *c->option;
    struct wn__chain_block *block = wn__pool_get(&s->pool, (int64_t)blocks);
    struct wn__block_option *option = wn__pool_get(&s->pool, (int64_t)options);
    s->kind = wn__pool_get(&s->pool, c->n * (int64_t)sizeof *s->kind);
    s->pending = wn__pool_get(&s->pool, c->n * (int64_t)sizeof *s->pending * WN__SOLVE_PENDING);
    s->time_before = wn__pool_get(&s->pool, (c->n + 1) * (int64_t)sizeof *s->time_before);
    s->born_before = wn__pool_get(&s->pool, (c->n + 1) * (int64_t)sizeof *s->born_before);
    s->window_of = wn__pool_get(&s->pool, c->n * (int64_t)c->n * (int64_t)sizeof *s->window_of);
    if (!block || !option || !s->kind || !s->pending || !s->time_before || !s->born_before || !s->window_of)
        return WN_OOM;
    memcpy(block, c->block, blocks);
    memcpy(option, c->option, options);
    s->chain = *c;
    s->chain.block = block;
    s->chain.option = option;
    block[c->n - 1].grad = 0; /* is part of peak_backward there, and lives at no other time */
    for (int32_t i = 0; i < c->n; i++) {
        s->time_before[i + 1] = s->time_before[i] + block[i].time;
        s->born_before[i + 1] = s->born_before[i] + block[i].born;
    }
    return WN_OK;
}

/* ---- what is equal --------------------------------------------------------------------------------------------- */

static int32_t is_same_block(const struct wn__chain_blocks *c, int32_t i, int32_t k)
{
    const struct wn__chain_block *x = &c->block[i], *y = &c->block[k];
    if (x->time != y->time || x->peak != y->peak || x->bytes != y->bytes || x->grad != y->grad || x->born != y->born ||
        x->n_options != y->n_options)
        return 0;
    size_t bytes = (size_t)x->n_options * sizeof *c->option;
    return memcmp(&c->option[x->first], &c->option[y->first], bytes) == 0;
}

/* Of many options two may wait without their input: the one of fewest bytes and the one of least time. */
static void choose_two(struct wn__chain_solution *s, int32_t i)
{
    const struct wn__chain_block *b = &s->chain.block[i];
    const struct wn__block_option *o = &s->chain.option[b->first];
    int32_t small = 0, fast = 0, *pending = &s->pending[i * WN__SOLVE_PENDING];
    for (int32_t q = 1; q < b->n_options; q++) {
        int64_t time = o[q].forward + o[q].backward, saved = o[q].saved;
        int64_t small_time = o[small].forward + o[small].backward, fast_time = o[fast].forward + o[fast].backward;
        if (saved < o[small].saved || (saved == o[small].saved && time < small_time)) small = q;
        if (time < fast_time || (time == fast_time && saved < o[fast].saved)) fast = q;
    }
    pending[0] = small;
    if (fast != small) pending[1] = fast;
}

static void choose_pending(struct wn__chain_solution *s)
{
    int32_t n = s->chain.n, most = 0;
    for (int32_t i = 0; i < n; i++)
        if (s->chain.block[i].n_options > most) most = s->chain.block[i].n_options;
    int32_t all = most <= WN__SOLVE_PENDING && s->n_windows * n * most * most <= FEW;
    for (int32_t i = 0; i < n; i++) {
        for (int32_t k = 0; k < WN__SOLVE_PENDING; k++)
            s->pending[i * WN__SOLVE_PENDING + k] = all && k < s->chain.block[i].n_options ? k : -1;
        if (!all) choose_two(s, i);
    }
}

static void find_kinds(struct wn__chain_solution *s)
{
    for (int32_t i = 0; i < s->chain.n; i++) {
        s->kind[i] = i;
        for (int32_t k = 0; k < i && s->kind[i] == i; k++)
            if (s->kind[k] == k && is_same_block(&s->chain, i, k)) s->kind[i] = k;
    }
}

/* The window of this string of kinds, made when it is new: *head is the list of all that continue one prefix. */
static int32_t intern(struct wn__chain_solution *s, int32_t head, int32_t first, int32_t last)
{
    for (int32_t w = head; w >= 0; w = s->window[w].sibling)
        if (s->window[w].kind == s->kind[last]) return w;
    struct wn__window *w = &s->window[s->n_windows];
    *w = (struct wn__window){.first = first, .last = last, .kind = s->kind[last], .child = -1, .sibling = head};
    return (int32_t)s->n_windows++;
}

/* By their ends, each from the right: a window stands behind all it is made of, and those that end where it ends,
 * which it reads most, are the last that were made and still in the caches. */
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

/* A window's parts stand before it. (One whose last block is pending is part of the same without: the variants from
 * the last.) */
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

static int64_t slack_of(const struct wn__chain_solution *s, const struct wn__part *p)
{
    return p->first < 0 ? 0 : wn__solve_window(s, p->first, p->last)->slack[p->variant];
}

/* Leaves at most `longest` corners: those that gain little first, then those that gain twice as little, and so on. */
static void thin(struct wn__envelope *e, int64_t longest, int64_t tolerance, int64_t *slack)
{
    for (; e->n > longest; tolerance *= 2) {
        wn__envelope_thin(e, tolerance);
        *slack += tolerance;
    }
}

static int32_t fill_table(struct wn__chain_solution *s, struct wn__window *w, int32_t variant, int64_t longest,
                          int64_t tolerance, struct wn__envelope *e)
{
    struct wn__chain_moves moves;
    struct wn__chain_move m;
    e->n_sums = 0;
    wn__chain_moves_start(&moves, s, w->first, w->last, variant);
    while (wn__chain_moves_next(&moves, &m)) {
        struct wn__step_sum sum = wn__solve_sum(s, &m);
        WN_TRY(wn__envelope_put(e, &sum));
        w->slack[variant] = wn_max(w->slack[variant], slack_of(s, &m.then) + slack_of(s, &m.last));
    }
    WN_TRY(wn__envelope_make(e));
    thin(e, longest, tolerance, &w->slack[variant]);
    size_t bytes = (size_t)(e->n + 1) * sizeof *e->at;
    struct wn__corner *at = wn__pool_get(&s->pool, (int64_t)bytes);
    if (at == NULL) return WN_OOM;
    memcpy(at, e->at, bytes);
    w->table[variant] = (struct wn__step_function){at, (int32_t)e->n};
    return WN_OK;
}

/* Time when nothing is run twice. */
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

/* longest: (n + 1) corners that a table of a window of so many blocks may have. Each length has the same share of CORNERS,
 * so the longest windows, of which there are few, keep most. */
static int32_t find_longest(struct wn__chain_solution *s, int64_t **out)
{
    int32_t n = s->chain.n;
    int64_t *longest = wn__pool_get(&s->pool, (n + 1) * (int64_t)sizeof *longest);
    if (longest == NULL) return WN_OOM;
    for (int64_t i = 0; i < s->n_windows; i++) {
        const struct wn__window *w = &s->window[i];
        for (int32_t variant = 0; variant < WN__SOLVE_VARIANTS; variant++)
            longest[w->last - w->first + 1] += wn__solve_has(s, w->last, variant);
    }
    for (int32_t length = 1; length <= n; length++) {
        int64_t share = CORNERS / n / wn_max(longest[length], 1);
        longest[length] = share > LONGEST ? LONGEST : wn_max(share, SHORTEST);
    }
    *out = longest;
    return WN_OK;
}

static int32_t fill_tables(struct wn__chain_solution *s)
{
    int64_t tolerance = base_time(&s->chain) / FRACTION + 1, *longest;
    struct wn__envelope e = {0};
    int32_t code = find_longest(s, &longest);
    for (int64_t i = 0; i < s->n_windows && code == WN_OK; i++) {
        struct wn__window *w = &s->window[i];
        int64_t most = longest[w->last - w->first + 1];
        for (int32_t variant = WN__SOLVE_VARIANTS - 1; variant >= 0 && code == WN_OK; variant--) {
            w->slack[variant] = 0;
            if (wn__solve_has(s, w->last, variant)) code = fill_table(s, w, variant, most, tolerance, &e);
        }
        if (code == WN_OK) code = wn__pause();
    }
    wn__envelope_release(&e);
    return code;
}

/* ---- what is asked for ------------------------------------------------------------------------------------------- */

int32_t wn__chain_open(const struct wn__chain_blocks *c, struct wn__chain_solution **out)
{
    int32_t code;
    WN_TRY(check(c));
    struct wn__chain_solution *s = wn__alloc(sizeof *s);
    if (s == NULL) return WN_OOM;
    WN_TRY_GOTO(copy_description(s, c));
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

int32_t wn__chain_frontier(struct wn__chain_solution *s, const struct wn_chain_cost **points, int32_t *n,
                           int64_t *slack)
{
    const struct wn__window *whole = wn__solve_window(s, 0, s->chain.n - 1);
    if (s->points == NULL) {
        WN_TRY(fill_tables(s));
        const struct wn__step_function *table = &whole->table[0];
        struct wn_chain_cost *p = wn__pool_get(&s->pool, (table->n + 1) * (int64_t)sizeof *p);
        if (p == NULL) return WN_OOM;
        for (int32_t i = 0; i < table->n; i++)
            p[i] = (struct wn_chain_cost){table->at[i].bytes + s->chain.outside, table->at[i].time};
        s->points = p;
    }
    *points = s->points;
    *n = whole->table[0].n;
    *slack = whole->slack[0];
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
