/* Lists the moves of a window: the recurrence of solve.c, with the bytes and the time of each move and the parts that
 * it leaves. Least budgets, tables and schedules are all made by iterating over these moves, so they cannot disagree.
 *
 * The bytes of a window are counted without the `allocated` bytes of blocks behind it, so that windows of equal blocks
 * are equal wherever they are in the chain. Inside a window, the bytes allocated by blocks behind a part are in the
 * part's shift.
 *
 *   Move C at j with m bytes, in the order of time:
 *     F first .. F j-1         needs gap + reach
 *     T(j, last)               has m - bytes of x_{j-1}
 *     T(first, j-1)            has m - allocated bytes of j .. last
 */
#include "solve.h"
#include "../../base/number.h"

#define TIES(runs, operations) (((int64_t)(runs) << 32) + (operations)) /* as in struct wn__corner */

static const struct wn__block_option *option_of(const struct wn__chain_solution *s, int32_t block, int32_t option)
{
    return &s->chain.option[s->chain.block[block].first + option];
}

/* Returns the time of F first .. F end - 1. */
static int64_t time_of(const struct wn__chain_solution *s, int32_t first, int32_t end)
{
    return s->time_before[end] - s->time_before[first];
}

/* Returns the bytes that B first .. B end - 1 leave. */
static int64_t allocated_in(const struct wn__chain_solution *s, int32_t first, int32_t end)
{
    return s->allocated_before[end] - s->allocated_before[first];
}

int32_t wn__solve_has(const struct wn__chain_solution *s, int32_t last, int32_t variant)
{
    return variant == 0 || s->pending[last * WN__SOLVE_PENDING + variant - 1] >= 0;
}

struct wn__window *wn__solve_window(const struct wn__chain_solution *s, int32_t first, int32_t last)
{
    return &s->window[s->window_of[(int64_t)first * s->chain.n + last]];
}

void wn__chain_moves_start(struct wn__chain_moves *w, const struct wn__chain_solution *s, int32_t first, int32_t last,
                           int32_t variant)
{
    *w = (struct wn__chain_moves){.s = s, .first = first, .last = last, .variant = variant, .at = first + 1};
    if (last + 1 < s->chain.n) w->gap = s->chain.block[last].grad;
    if (variant > 0) w->gap += option_of(s, last, s->pending[last * WN__SOLVE_PENDING + variant - 1])->saved;
    w->reach = s->chain.block[first].peak;
}

static const struct wn__part no_part = {-1, -1, 0, 0};

/* Returns move B: the backward of the only block, and the gradients that it allocates. */
static struct wn__chain_move move_b(const struct wn__chain_moves *w)
{
    int32_t option = w->s->pending[w->last * WN__SOLVE_PENDING + w->variant - 1];
    const struct wn__block_option *o = option_of(w->s, w->last, option);
    int64_t allocated = allocated_in(w->s, w->last, w->last + 1);
    return (struct wn__chain_move){.kind = WN__MOVE_B,
                                   .at = w->last,
                                   .option = option,
                                   .least = o->peak_backward + allocated,
                                   .time = o->backward,
                                   .ties = TIES(0, 1),
                                   .then = no_part,
                                   .last = no_part};
}

/* Returns move E with the iterator's option. Fe runs while `gap` bytes are live, B when the window has allocated all
 * its gradients. */
static struct wn__chain_move move_e(const struct wn__chain_moves *w)
{
    const struct wn__block_option *o = option_of(w->s, w->first, w->option);
    int64_t allocated = allocated_in(w->s, w->first, w->last + 1);
    struct wn__chain_move m = {
        .kind = WN__MOVE_E, .at = w->first, .option = w->option, .then = no_part, .last = no_part};
    m.least = wn_max(w->gap + o->peak_forward, o->peak_backward + allocated);
    m.time = o->forward + o->backward;
    m.ties = TIES(1, 2);
    if (w->first < w->last) m.then = (struct wn__part){w->first + 1, w->last, w->variant, o->saved};
    return m;
}

/* Returns move C at the iterator's block. The part before `at` runs when the blocks from `at` on have allocated their
 * gradients. */
static struct wn__chain_move move_c(const struct wn__chain_moves *w)
{
    int32_t j = w->at, runs = j - w->first;
    struct wn__chain_move m = {.kind = WN__MOVE_C, .at = j, .option = -1};
    m.least = w->gap + w->reach;
    m.time = time_of(w->s, w->first, j);
    m.ties = TIES(runs, 2 * runs - 1);
    m.then = (struct wn__part){j, w->last, w->variant, w->s->chain.block[j - 1].bytes};
    m.last = (struct wn__part){w->first, j - 1, 0, allocated_in(w->s, j, w->last + 1)};
    return m;
}

/* Returns move D at the iterator's block, which is pending in the part that ends with it, by the iterator's option. */
static struct wn__chain_move move_d(const struct wn__chain_moves *w)
{
    int32_t j = w->at, runs = j - w->first + 1, option = w->s->pending[j * WN__SOLVE_PENDING + w->pending - 1];
    const struct wn__block_option *o = option_of(w->s, j, option);
    struct wn__chain_move m = {.kind = WN__MOVE_D, .at = j, .option = option, .then = no_part};
    m.least = w->gap + wn_max(w->reach, w->s->chain.block[j - 1].bytes + o->peak_forward);
    m.time = time_of(w->s, w->first, j) + o->forward;
    m.ties = TIES(runs, 2 * runs - 1);
    if (j < w->last) m.then = (struct wn__part){j + 1, w->last, w->variant, o->saved};
    m.last = (struct wn__part){w->first, j, w->pending, allocated_in(w->s, j + 1, w->last + 1)};
    return m;
}

/* Goes from move C at block `at` to its moves D, one for each pending option, and then to move C at the next block. */
static void step_on(struct wn__chain_moves *w)
{
    const struct wn__chain_block *block = w->s->chain.block;
    do {
        w->pending++;
    } while (w->pending < WN__SOLVE_VARIANTS && !wn__solve_has(w->s, w->at, w->pending));
    int32_t is_over = w->at == w->last && w->variant > 0;
    if (w->pending < WN__SOLVE_VARIANTS && !is_over)
        return; /* over: the last block is saved already, so D is no move */
    w->pending = 0;
    w->reach = wn_max(w->reach, block[w->at - 1].bytes + block[w->at].peak);
    w->at++;
}

int32_t wn__chain_moves_next(struct wn__chain_moves *w, struct wn__chain_move *out)
{
    if (w->first == w->last && w->variant > 0) {
        if (w->option++ > 0) return 0;
        *out = move_b(w);
        return 1;
    }
    if (w->option < w->s->chain.block[w->first].n_options) {
        *out = move_e(w);
        w->option++;
        return 1;
    }
    if (w->at > w->last) return 0;
    *out = w->pending == 0 ? move_c(w) : move_d(w);
    step_on(w);
    return 1;
}

static const struct wn__step_function *table_of(const struct wn__chain_solution *s, const struct wn__part *p)
{
    return p->first < 0 ? NULL : &wn__solve_window(s, p->first, p->last)->table[p->variant];
}

struct wn__step_sum wn__solve_sum(const struct wn__chain_solution *s, const struct wn__chain_move *m)
{
    return (struct wn__step_sum){.least = m->least,
                                 .time = m->time,
                                 .ties = m->ties,
                                 .a = table_of(s, &m->then),
                                 .b = table_of(s, &m->last),
                                 .a_shift = m->then.shift,
                                 .b_shift = m->last.shift};
}
