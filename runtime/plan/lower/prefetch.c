/* Moves get time to be hidden: what moves out is waited for later, what comes back is started earlier, both no further
 * than the clock asks for, and only as far as bytes alive stay under a cap. Lowering put each move in beside its wait;
 * a move that finds no room stays like that, so no plan gets slower.
 *
 * The cap: what is alive at most with every wait at once, plus recipe->ahead eighths of what all the offloading gives.
 * Bytes here are those of values and workspaces, without what in-place ops merge: an estimate that only chooses places.
 * What a schedule takes, and how long, the simulator says. */
#include <string.h>
#include "../recipe/action.h"
#include "../ir/costs.h"
#include "instruction.h"
#include "lower.h"

struct move {
    int32_t way, place;
    int64_t bytes;
    double takes, ends;
    int32_t start, wait; /* base items it stands before: start of what comes in, wait of what goes out; else its own */
    int32_t kept;        /* value in the depot */
    int32_t needs;       /* IN: the move that made it; else -1 */
};
struct slide {
    struct wn__lowering *l;
    struct move *move; /* (n_moves) */
    int32_t *in_order; /* (n_moves) moves in, by what waits for them */
    int32_t n_in, n;   /* n: base items, all but those that are moved about */
    int32_t *base;     /* (n_items) base items before this one */
    double *seconds;   /* (n) */
    double *clock;     /* (n + 1) when each starts */
    int64_t *live;     /* (n + 1) */
    int32_t *starts;   /* (n) move out that starts there, + 1 */
    int32_t *waits;    /* (n) move in that is waited for there, + 1 */
    int64_t cap;
};

static int32_t is_base(const struct slide *s, const struct wn__item *it)
{
    return it->what != WN_DO_FETCH && (it->what != WN_DO_WAIT || s->move[it->move].way == WN_WAY_IN);
}

static double item_seconds(const struct wn__lowering *l, const struct wn__item *it)
{
    if (it->what == WN_DO_RUN) return l->f->seconds[it->node];
    if (it->what != WN_DO_PACK && it->what != WN_DO_UNPACK) return 0;
    const struct wn__schedule s = {.value = l->value, .in = l->in};
    const struct wn__instr n = {.what = it->what, .node = it->node, .out = it->out, .in_at = it->in_at};
    struct wn__applied room;
    int32_t is_measured;
    return wn__desc_seconds(l->f, wn__instr_desc(l->f, &s, &n, &room), &is_measured);
}

/* Moves, and where they stand now. */
static void find_moves(struct slide *s)
{
    struct wn__lowering *l = s->l;
    for (int64_t i = 0; i < l->n_items; i++) {
        const struct wn__item *it = &l->item[i];
        if (it->what != WN_DO_OFFLOAD && it->what != WN_DO_FETCH) continue;
        struct move *m = &s->move[it->move];
        m->way = it->what == WN_DO_FETCH ? WN_WAY_IN : WN_WAY_OUT;
        m->kept = m->way == WN_WAY_IN ? l->in[it->in_at] : it->out;
        m->place = wn__action_place(l->value[m->kept].action);
        m->bytes = wn__value_bytes(l->f, &l->value[m->kept]);
        m->takes = wn__move_seconds(l->f, m->place, m->way, m->bytes);
        m->needs = -1;
        for (int32_t k = 0; m->way == WN_WAY_IN && k < l->n_moves; k++)
            if (s->move[k].bytes > 0 && s->move[k].way == WN_WAY_OUT && s->move[k].kept == m->kept) m->needs = k;
    }
    for (int64_t i = 0; i < l->n_items; i++) {
        const struct wn__item *it = &l->item[i];
        s->base[i] = s->n;
        if (it->what == WN_DO_OFFLOAD || it->what == WN_DO_FETCH) s->move[it->move].start = s->n;
        if (it->what == WN_DO_WAIT) s->move[it->move].wait = s->n;
        if (!is_base(s, it)) continue;
        if (it->what == WN_DO_OFFLOAD) s->starts[s->n] = it->move + 1;
        if (it->what == WN_DO_WAIT) {
            s->waits[s->n] = it->move + 1;
            s->in_order[s->n_in++] = it->move;
        }
        s->seconds[s->n++] = item_seconds(l, it);
    }
}

/* ---- bytes alive --------------------------------------------------------------------------------------------------- */

static void add(int64_t *change, int32_t from, int32_t to, int64_t bytes)
{
    if (to < from) return;
    change[from] += bytes;
    change[to + 1] -= bytes;
}

static int64_t sum_up(int64_t *v, int32_t n)
{
    int64_t most = 0;
    for (int32_t i = 0; i < n; i++) {
        if (i > 0) v[i] += v[i - 1];
        if (v[i] > most) most = v[i];
    }
    return most;
}

static int32_t is_counted(const struct wn__lowering *l, int32_t value)
{
    const struct wn__ir_node *p = &l->f->node[l->value[value].node];
    return p->leaf == WN_LEAF_NONE && !p->bound && p->result < 0 && wn__action_place(l->value[value].action) < 0;
}

/* live: with every move waited for at once. cap from it, and from what would be alive if nothing moved. */
static int32_t find_bytes(struct slide *s)
{
    struct wn__lowering *l = s->l;
    int32_t *first = wn__pool_get(&l->scratch, (l->n_values + 1) * (int64_t)sizeof *first);
    int32_t *last = wn__pool_get(&l->scratch, (l->n_values + 1) * (int64_t)sizeof *last);
    int64_t *kept = wn__pool_get(&l->scratch, (s->n + 2) * (int64_t)sizeof *kept);
    if (first == NULL || last == NULL || kept == NULL) return WN_OOM;
    for (int64_t i = 0; i < l->n_items; i++) {
        const struct wn__item *it = &l->item[i];
        int32_t at = s->base[i] - !is_base(s, it);
        const struct wn__rules *rules = wn__op_rules(l->f->node[it->node].op);
        struct wn_desc d = wn__ir_desc(l->f, it->node);
        if (it->what == WN_DO_RUN && rules->workspace != NULL)
            add(s->live, at, at, wn__padded(rules->workspace(&d, wn__workspace_target(l->f))));
        if (it->out >= 0) first[it->out] = s->base[i];
        if (it->out >= 0 && at > last[it->out]) last[it->out] = at;
        int32_t stays = it->what == WN_DO_RUN && d.op == WN_OP_ASSIGN;
        for (int32_t k = 0; k < it->n_in; k++) {
            int32_t *to = &last[l->in[it->in_at + k]];
            if (stays || at > *to) *to = stays ? s->n - 1 : at;
        }
    }
    for (int32_t c = 0; c < l->n_values; c++)
        if (is_counted(l, c)) add(s->live, first[c], last[c], wn__value_bytes(l->f, &l->value[c]));
    int64_t plain = sum_up(s->live, s->n), all;
    for (int32_t i = 0; i < s->n; i++) kept[i] = s->live[i] - (i > 0 ? s->live[i - 1] : 0);
    for (int32_t k = 0; k < l->n_moves; k++) {
        const struct move *m = &s->move[k];
        if (m->way == WN_WAY_IN && m->needs >= 0) add(kept, s->move[m->needs].start + 1, m->wait - 1, m->bytes);
    }
    all = sum_up(kept, s->n);
    s->cap = plain + (all > plain ? (all - plain) / 8 * l->r->ahead : 0);
    return WN_OK;
}

/* ---- sliding --------------------------------------------------------------------------------------------------------- */

/* What goes out is waited for when it has ended, or its bytes are needed, or it is to come back. pending: (n_moves). */
static void slide_out(struct slide *s, int32_t *pending)
{
    double t = 0, lane[WN_PLACE_COUNT] = {0};
    int64_t extra = 0;
    int32_t n = 0;
    for (int32_t j = 0; j < s->n; j++) {
        int32_t wanted = s->waits[j] > 0 ? s->move[s->waits[j] - 1].needs : -1, left = 0;
        for (int32_t i = 0; i < n; i++) {
            struct move *m = &s->move[pending[i]];
            int32_t must = pending[i] == wanted || s->live[j] + extra > s->cap;
            if (!must && m->ends > t) {
                pending[left++] = pending[i];
                continue;
            }
            if (m->ends > t) t = m->ends;
            m->wait = j;
            extra -= m->bytes;
        }
        n = left;
        s->live[j] += extra;
        s->clock[j] = t;
        t += s->seconds[j];
        if (s->starts[j] == 0) continue;
        struct move *m = &s->move[s->starts[j] - 1];
        m->ends = (t > lane[m->place] ? t : lane[m->place]) + m->takes;
        lane[m->place] = m->ends;
        extra += m->bytes;
        pending[n++] = s->starts[j] - 1;
    }
    s->clock[s->n] = t;
    for (int32_t i = 0; i < n; i++) s->move[pending[i]].wait = s->n;
}

/* The last base item that starts at or before t, of [lo, hi]. */
static int32_t item_at(const struct slide *s, double t, int32_t lo, int32_t hi)
{
    while (lo < hi) {
        int32_t middle = hi - (hi - lo) / 2;
        if (s->clock[middle] <= t) lo = middle;
        else hi = middle - 1;
    }
    return lo;
}

/* What comes in starts as late as the clock allows, those needed first taking room first. */
static void slide_in(struct slide *s)
{
    double next[WN_PLACE_COUNT];
    int32_t before[WN_PLACE_COUNT] = {0};
    for (int32_t p = 0; p < WN_PLACE_COUNT; p++) next[p] = s->clock[s->n];
    for (int32_t i = s->n_in - 1; i >= 0; i--) {
        struct move *m = &s->move[s->in_order[i]];
        double by = s->clock[m->wait] < next[m->place] ? s->clock[m->wait] : next[m->place];
        m->ends = next[m->place] = by - m->takes; /* when it should start */
    }
    for (int32_t i = 0; i < s->n_in; i++) {
        struct move *m = &s->move[s->in_order[i]];
        int32_t least = m->needs >= 0 ? s->move[m->needs].wait : m->wait;
        if (before[m->place] > least) least = before[m->place];
        if (least > m->wait) least = m->wait;
        int32_t wanted = item_at(s, m->ends, least, m->wait);
        m->start = m->wait;
        while (m->start > wanted && s->live[m->start - 1] + m->bytes <= s->cap) s->live[--m->start] += m->bytes;
        before[m->place] = m->start;
    }
}

/* ---- the list again --------------------------------------------------------------------------------------------------- */

/* Items that stand before a base item, threaded: waits of what goes out, then starts of what comes in. */
static int32_t rebuild(struct slide *s)
{
    struct wn__lowering *l = s->l;
    struct wn__item *list = wn__alloc((l->n_items + 1) * (int64_t)sizeof *list);
    int64_t *head = wn__pool_get(&l->scratch, (s->n + 1) * (int64_t)sizeof *head);
    int64_t *next = wn__pool_get(&l->scratch, (l->n_items + 1) * (int64_t)sizeof *next), n = 0;
    if (list == NULL || head == NULL || next == NULL) {
        wn__free(list);
        return WN_OOM;
    }
    for (int32_t j = 0; j <= s->n; j++) head[j] = -1;
    for (int32_t pass = 0; pass < 2; pass++) /* threaded backwards, so the starts go in first */
        for (int64_t i = l->n_items - 1; i >= 0; i--) {
            const struct wn__item *it = &l->item[i];
            if (is_base(s, it) || (it->what == WN_DO_FETCH) != (pass == 0)) continue;
            int32_t at = it->what == WN_DO_FETCH ? s->move[it->move].start : s->move[it->move].wait;
            next[i] = head[at];
            head[at] = i;
        }
    for (int64_t i = 0; i <= l->n_items; i++) {
        int32_t is_end = i == l->n_items;
        if (!is_end && !is_base(s, &l->item[i])) continue;
        int32_t phase = is_end ? WN_PHASE_RECOMPUTE : l->item[i].phase;
        for (int64_t k = head[is_end ? s->n : s->base[i]]; k >= 0; k = next[k]) {
            list[n] = l->item[k];
            if (phase == WN_PHASE_FORWARD) list[n].phase = phase; /* the backward has not begun where it stands now */
            n++;
        }
        if (!is_end) list[n++] = l->item[i];
    }
    memcpy(l->item, list, (size_t)l->n_items * sizeof *list);
    wn__free(list);
    return WN_OK;
}

int32_t wn__lower_prefetch(struct wn__lowering *l)
{
    struct slide s = {.l = l};
    if (l->n_moves == 0 || l->f->seconds == NULL) return WN_OK;
    int64_t items = l->n_items + 2;
    s.move = wn__pool_get(&l->scratch, l->n_moves * (int64_t)sizeof *s.move);
    s.in_order = wn__pool_get(&l->scratch, l->n_moves * (int64_t)sizeof *s.in_order);
    int32_t *pending = wn__pool_get(&l->scratch, l->n_moves * (int64_t)sizeof *pending);
    s.base = wn__pool_get(&l->scratch, items * (int64_t)sizeof *s.base);
    s.starts = wn__pool_get(&l->scratch, items * (int64_t)sizeof *s.starts);
    s.waits = wn__pool_get(&l->scratch, items * (int64_t)sizeof *s.waits);
    s.seconds = wn__pool_get(&l->scratch, items * (int64_t)sizeof *s.seconds);
    s.clock = wn__pool_get(&l->scratch, items * (int64_t)sizeof *s.clock);
    s.live = wn__pool_get(&l->scratch, items * (int64_t)sizeof *s.live);
    if (!s.move || !s.in_order || !pending || !s.base || !s.starts || !s.waits || !s.seconds || !s.clock || !s.live)
        return WN_OOM;
    find_moves(&s);
    WN_TRY(find_bytes(&s));
    slide_out(&s, pending);
    slide_in(&s);
    return rebuild(&s);
}
