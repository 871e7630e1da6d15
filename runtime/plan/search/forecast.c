/* Lists the changes of a recipe (recipe/change.c), and estimates what each does to bytes and seconds without lowering
 * it. One schedule of the recipe gives the bytes alive at each instruction, and for each value the instructions between
 * which only the backward waits for it:
 *
 *   instructions   | forward .. from | .. wait .. | to .. backward |
 *   a kept value   `to` reads it; dropping, packing or offloading it frees bytes during the wait
 *   another one    `to` computes it again; keeping it takes bytes during the wait
 *
 * Regions run blocks again, so that a value may wait before each of these times. A backward step that follows a step of
 * another kind is a turn: `from` is the last instruction before it that makes or reads the value, `to` the first one
 * behind it.
 *
 * A forecast only orders edits: whatever is tried is judged like any other recipe. */
#include <string.h>
#include "../../base/number.h"
#include "../ir/costs.h"
#include "../recipe/action.h"
#include "frontier.h"

#define SPAN 64 /* instructions whose most bytes are known at once */

/* A forecast that is being made. */
struct listing {
    const struct wn__building *b;
    const struct wn__ir *ir;
    const struct wn__recipe *r;
    struct wn__forecast *out;
    struct wn__pool scratch;
    int32_t *touch;          /* instructions that make or read values, node by node */
    int32_t *touch_at;       /* (ir->n + 1) those of node v are touch[touch_at[v] .. touch_at[v + 1]) */
    int32_t *start;          /* (r->n + 1) the first instruction of each step or of those behind it */
    double *time;            /* (n + 1) seconds before each instruction */
    double moves;            /* seconds that the transfers of the schedule take, one after the other */
    int8_t *kept;            /* (ir->n) WN__GONE, or the action that the steps so far keep a value with */
    int32_t *ran;            /* (n_blocks) the step since the last turn that ran a block; -1 */
    int32_t turn;            /* the first instruction behind the turn whose edits are listed */
    int32_t *stack;          /* (ir->n) scratch */
    uint8_t *mark;           /* (ir->n) scratch, 0 between uses */
    int64_t room, idle_room; /* of out->edit; of out->idle */
};

/* ---- the schedule ------------------------------------------------------------------------------------------------ */

/* Counts the instructions that make or read each node's values, or notes them. */
static void note_touches(struct listing *l, const struct wn__schedule *s, int32_t is_counting)
{
    for (int32_t i = 0; i < s->n; i++) {
        const struct wn__instr *p = &s->instr[i];
        if (p->what == WN_DO_FREE || p->what == WN_DO_READ) continue;
        int32_t n_in = wn__instr_n_in(l->ir, p);
        for (int32_t k = -1; k < n_in; k++) {
            int32_t v = k < 0 ? p->node : s->value[s->in[p->in_at + k]].node;
            if (is_counting) l->touch_at[v + 1]++;
            else l->touch[l->touch_at[v]++] = i;
        }
    }
}

/* Fills touch and touch_at: counting sort. */
static int32_t find_touches(struct listing *l, const struct wn__schedule *s)
{
    int32_t n = l->ir->n;
    if (!WN_ARRAY(&l->scratch, l->touch_at, n + 1)) return WN_OOM;
    note_touches(l, s, 1);
    for (int32_t v = 0; v < n; v++) l->touch_at[v + 1] += l->touch_at[v];
    if (!WN_ARRAY(&l->scratch, l->touch, l->touch_at[n])) return WN_OOM;
    note_touches(l, s, 0);
    for (int32_t v = n; v > 0; v--) l->touch_at[v] = l->touch_at[v - 1];
    l->touch_at[0] = 0;
    return WN_OK;
}

/* Fills live, span, time, start and the numbers of the schedule. */
static int32_t read_schedule(struct listing *l, const struct wn__schedule *s)
{
    struct wn__forecast *f = l->out;
    int32_t step = 0;
    if (!WN_ARRAY(&f->pool, f->live, s->n) || !WN_ARRAY(&f->pool, f->span, s->n / SPAN + 1) ||
        !WN_ARRAY(&l->scratch, l->time, s->n + 1) || !WN_ARRAY(&l->scratch, l->start, l->r->n + 1))
        return WN_OOM;
    f->n = s->n;
    f->reserved = s->summary.reserved;
    f->seconds = s->summary.seconds;
    l->moves = s->summary.move_seconds;
    for (int32_t i = 0; i < s->n; i++) {
        f->live[i] = s->live[i] + s->instr[i].work_bytes;
        f->span[i / SPAN] = wn_max(f->span[i / SPAN], f->live[i]);
        f->peak = wn_max(f->peak, f->live[i]);
        l->time[i + 1] = l->time[i] + s->seconds[i];
        while (step <= s->instr[i].step) l->start[step++] = i;
    }
    while (step <= l->r->n) l->start[step++] = s->n;
    return find_touches(l, s);
}

/* Returns the most of `live` in [from, to); 0 of none. */
static int64_t most_live(const struct wn__forecast *f, int32_t from, int32_t to)
{
    int64_t most = 0;
    while (from < to) {
        int32_t is_whole = from % SPAN == 0 && from + SPAN <= to;
        most = wn_max(most, is_whole ? f->span[from / SPAN] : f->live[from]);
        from += is_whole ? SPAN : 1;
    }
    return most;
}

/* Inserts an instruction into sorted ones, as the start of a stretch. */
static void put_cut(int32_t *cut, int32_t *n, int32_t at)
{
    int32_t i = (*n)++;
    for (; i > 0 && cut[i - 1] > at; i--) cut[i] = cut[i - 1];
    cut[i] = at;
}

int64_t wn__forecast_reserved(const struct wn__forecast *f, const struct wn__edit *const *edit, int32_t n)
{
    int32_t cut[2 * WN__EDITS_MOST * WN__WAITS_MOST + 2], n_cuts = 0, n_waits = 0;
    const struct wn__wait *wait[WN__EDITS_MOST * WN__WAITS_MOST];
    int64_t peak = 0;
    put_cut(cut, &n_cuts, 0);
    put_cut(cut, &n_cuts, f->n);
    for (int32_t k = 0; k < n; k++)
        for (int32_t i = 0; i < edit[k]->n_waits; i++) {
            wait[n_waits++] = &edit[k]->wait[i];
            put_cut(cut, &n_cuts, edit[k]->wait[i].from + 1);
            put_cut(cut, &n_cuts, edit[k]->wait[i].to);
        }
    for (int32_t i = 0; i + 1 < n_cuts; i++) {
        int64_t live = most_live(f, cut[i], cut[i + 1]);
        for (int32_t k = 0; k < n_waits; k++)
            if (cut[i] > wait[k]->from && cut[i] < wait[k]->to) live += wait[k]->bytes;
        if (cut[i] < cut[i + 1]) peak = wn_max(peak, live);
    }
    return f->reserved + peak - f->peak;
}

/* ---- seconds --------------------------------------------------------------------------------------------------- */

/* Returns the first of the touches of v that is behind the turn; touch_at[v + 1]: there is none (binary search). */
static int32_t touch_behind(const struct listing *l, int32_t v)
{
    int32_t lo = l->touch_at[v], hi = l->touch_at[v + 1];
    while (lo < hi) {
        int32_t middle = (lo + hi) / 2;
        if (l->touch[middle] < l->turn) lo = middle + 1;
        else hi = middle;
    }
    return lo;
}

/* Adds bytes between two instructions to an edit, unless it has too many stretches already. */
static void put_wait(struct wn__edit *e, int32_t from, int32_t to, int64_t bytes)
{
    if (to - from > 1 && bytes != 0 && e->n_waits < WN__WAITS_MOST)
        e->wait[e->n_waits++] = (struct wn__wait){from, to, bytes};
}

/* Notes what v costs beside itself where instruction `to` computes it again although it is kept now: seconds, and bytes
 * of what it is computed from, which is computed again for it, or earlier than without it, or stays longer. */
static void note_gone(struct listing *l, int32_t v, int32_t to, struct wn__edit *out)
{
    const struct wn__ir *ir = l->ir;
    int64_t most = 0;
    int32_t n = 0;
    l->stack[n++] = v;
    l->mark[v] = 1;
    out->seconds = ir->seconds[v];
    for (int32_t at = 0; at < n; at++) {
        int32_t by = l->stack[at];
        for (int32_t k = 0; k < ir->node[by].n_in; k++) {
            int32_t u = wn__ir_storage(ir, wn__ir_in(ir, by, k));
            if (l->mark[u] || !wn__ir_is_forward(ir, u) || ir->node[u].bound) continue;
            int32_t first = touch_behind(l, u), end = l->touch_at[u + 1];
            if (l->kept[u] != WN__GONE || (first < end && l->touch[first] < to)) {
                put_wait(out, end > l->touch_at[u] ? l->touch[end - 1] : to, to, ir->node[u].bytes);
                continue;
            }
            if (first < end) {
                put_wait(out, to - 1, l->touch[first], ir->node[u].bytes);
            } else {
                out->seconds += ir->seconds[u];
                most = wn_max(most, ir->node[u].bytes);
            }
            l->mark[u] = 1;
            l->stack[n++] = u;
        }
    }
    put_wait(out, to - 1, to + 1, most);
    for (int32_t at = 0; at < n; at++) l->mark[l->stack[at]] = 0;
}

/* Notes the same where v is gone and computed again at `to`: what is computed again for it alone, and what is computed
 * earlier than it would be without it. */
static void note_again(struct listing *l, int32_t v, int32_t to, struct wn__edit *out)
{
    const struct wn__ir *ir = l->ir;
    int32_t n = 0;
    l->stack[n++] = v;
    l->mark[v] = 1; /* 1: for v alone; 2: earlier than without v */
    out->seconds = ir->seconds[v];
    for (int32_t at = 0; at < n; at++) {
        int32_t by = l->stack[at], made = at == 0 ? to : l->touch[touch_behind(l, by)];
        for (int32_t k = 0; k < ir->node[by].n_in; k++) {
            int32_t u = wn__ir_storage(ir, wn__ir_in(ir, by, k));
            int32_t first = touch_behind(l, u), touches = l->touch_at[u + 1] - first;
            if (l->mark[u] || !wn__ir_is_forward(ir, u) || ir->node[u].bound || l->kept[u] != WN__GONE) continue;
            if (touches < 2 || l->touch[first + 1] != made) continue;
            l->mark[u] = touches == 2 ? l->mark[by] : 2;
            if (l->mark[u] == 1) out->seconds += ir->seconds[u];
            if (touches > 2) put_wait(out, made, l->touch[first + 2], ir->node[u].bytes);
            l->stack[n++] = u;
        }
    }
    for (int32_t at = 0; at < n; at++) l->mark[l->stack[at]] = 0;
}

/* Returns the seconds of keeping v with an action while it waits in the instructions from .. to. A transfer is hidden
 * by the kernels that run meanwhile, as far as other transfers leave them. */
static double action_seconds(const struct listing *l, int32_t v, int32_t action, int32_t from, int32_t to)
{
    const struct wn__ir *ir = l->ir;
    int32_t place = wn__action_medium(action), is_measured;
    if (place < 0) {
        struct wn_desc pack, unpack;
        struct wn_type packed;
        wn__action_pack(ir, v, action, &pack);
        wn__action_unpack(ir, v, action, &packed, &unpack);
        return wn__desc_seconds(ir, &pack, &is_measured) + wn__desc_seconds(ir, &unpack, &is_measured);
    }
    int64_t bytes = ir->node[v].bytes;
    double moves = wn__move_seconds(ir, place, WN_WAY_OUT, bytes) + wn__move_seconds(ir, place, WN_WAY_IN, bytes);
    double apart = l->time[to] - l->time[from + 1], left = l->out->seconds - l->moves;
    double stall = moves - (apart < left ? apart : left);
    return 2 * wn__move_share(ir, bytes) + (stall > 0 ? stall : 0);
}

/* ---- edits ------------------------------------------------------------------------------------------------------- */

/* Returns the bytes that a value takes while it waits. */
static int64_t kept_bytes(const struct wn__ir *ir, int32_t v, int32_t as)
{
    return as == WN__GONE ? 0 : as == 0 ? ir->node[v].bytes : wn__action_bytes(ir, v, as);
}

/* Returns the seconds that a value costs while it waits, kept as it says. */
static double seconds_of(const struct listing *l, int32_t v, int32_t as, int32_t from, int32_t to,
                         const struct wn__edit *gone)
{
    return as == WN__GONE ? gone->seconds : as == 0 ? 0 : action_seconds(l, v, as, from, to);
}

/* Lists the changes of a value from the step on that ran its block, if anything makes or reads it behind the turn. */
static int32_t list_value(struct listing *l, int32_t v, int32_t step)
{
    const struct wn__ir *ir = l->ir;
    int32_t now = l->kept[v], behind = touch_behind(l, v);
    if (behind == l->touch_at[v + 1] && now != WN__GONE) {
        WN_TRY(wn__grow(&l->out->idle, &l->idle_room, l->out->n_idle + 1, sizeof *l->out->idle));
        l->out->idle[l->out->n_idle++] = (struct wn__change){step, v, WN__GONE};
        l->kept[v] = WN__GONE;
    }
    if (behind == l->touch_at[v + 1]) return WN_OK;
    int32_t from = behind > l->touch_at[v] ? l->touch[behind - 1] : l->turn - 1, to = l->touch[behind];
    struct wn__edit gone = {.n_waits = 0};
    if (now == WN__GONE) note_again(l, v, to, &gone);
    else note_gone(l, v, to, &gone);
    double before = seconds_of(l, v, now, from, to, &gone);
    for (int32_t a = WN__GONE; a < WN_DECISION_COUNT; a++) {
        if (a == now || (a > 0 && !wn__action_may_choose(ir, l->b->marks, v, a))) continue;
        struct wn__edit e = {.change = {step, v, a}, .apart = l->time[to] - l->time[from + 1]};
        e.seconds = seconds_of(l, v, a, from, to, &gone) - before;
        e.wait[e.n_waits++] = (struct wn__wait){from, to, kept_bytes(ir, v, a) - kept_bytes(ir, v, now)};
        for (int32_t k = 0; k < gone.n_waits && (a == WN__GONE || now == WN__GONE); k++)
            put_wait(&e, gone.wait[k].from, gone.wait[k].to, a == WN__GONE ? gone.wait[k].bytes : -gone.wait[k].bytes);
        WN_TRY(wn__grow(&l->out->edit, &l->room, l->out->n_edits + 1, sizeof e));
        l->out->edit[l->out->n_edits++] = e;
    }
    return WN_OK;
}

/* Returns whether a value may be kept or not: it has bytes of its own, no decision, and no rule keeps it. A state in
 * another layout is never kept, but for one that is gathered from ranks and read by the backward. */
static int32_t may_change(const struct listing *l, int32_t v)
{
    const struct wn__ir_node *p = &l->ir->node[v];
    if (p->is_reissued && !p->is_residual) return 0;
    return wn__ir_node_is_forward(p) && !wn__ir_is_alias(l->ir, v) && p->bytes > 0 &&
           l->b->marks->decision[v] == WN_DECISION_NONE && !wn__recipe_always_keeps(l->ir, l->b->marks, v);
}

/* Lists the edits of the values of a block that ran since the turn before. */
static int32_t list_block(struct listing *l, int32_t b)
{
    for (int32_t v = l->r->first[b]; v < l->r->limit[b]; v++)
        if (l->r->block_of[v] == b && may_change(l, v)) WN_TRY(list_value(l, v, l->ran[b]));
    l->ran[b] = -1;
    return WN_OK;
}

/* Follows the recipe, and lists the edits at every turn. */
static int32_t list_edits(struct listing *l)
{
    const struct wn__recipe *r = l->r;
    int32_t n = l->ir->n;
    if (!WN_ARRAY(&l->scratch, l->kept, n) || !WN_ARRAY(&l->scratch, l->ran, r->n_blocks) ||
        !WN_ARRAY(&l->scratch, l->stack, n) || !WN_ARRAY(&l->scratch, l->mark, n))
        return WN_OOM;
    memset(l->kept, WN__GONE, (size_t)n);
    for (int32_t b = 0; b < r->n_blocks; b++) l->ran[b] = -1;
    for (int32_t i = 0; i < r->n; i++) {
        const struct wn__recipe_step *s = &r->step[i];
        if (s->kind == WN_STEP_B) {
            l->turn = l->start[i];
            for (int32_t b = 0; b < r->n_blocks && i > 0 && s[-1].kind != WN_STEP_B; b++)
                if (l->ran[b] >= 0) WN_TRY(list_block(l, b));
            continue;
        }
        for (int32_t v = r->first[s->block]; v < r->limit[s->block]; v++)
            if (r->block_of[v] == s->block) l->kept[v] = WN__GONE;
        for (int32_t k = s->keep_at; k < s->keep_at + s->n_keep; k++) l->kept[r->keep[k]] = (int8_t)r->action[k];
        if (s->kind != WN_STEP_FREE) l->ran[s->block] = i;
    }
    return WN_OK;
}

int32_t wn__forecast_make(const struct wn__building *b, const struct wn__recipe *r, struct wn__forecast *out)
{
    struct listing l = {.b = b, .ir = b->ir, .r = r, .out = out};
    struct wn__schedule *s = NULL;
    memset(out, 0, sizeof *out);
    WN_TRY(wn__compile(b->ir, r, NULL, WN__PLACE_BOUND, &s));
    int32_t code = read_schedule(&l, s);
    if (code == WN_OK) code = list_edits(&l);
    wn__schedule_unref(s);
    wn__pool_release(&l.scratch);
    return code;
}

void wn__forecast_release(struct wn__forecast *f)
{
    wn__free(f->edit);
    wn__free(f->idle);
    wn__pool_release(&f->pool);
    memset(f, 0, sizeof *f);
}
