/* Edits plans of the list. An edit is a change of a recipe (recipe/change.c): from a step on a value is kept as it is,
 * with an action, or not at all. The list gives the plans, forecast.c the edits of each with what they promise:
 *
 *   evictions   of the fastest plan: its values are let go of one by one
 *   actions     of every plan: all that it keeps gets one action, or parts of it do; so do all states that it gathers
 *               from ranks, which it keeps then instead of gathering them again
 *   ahead       of every plan: exchanges among ranks are waited for at once, or at the end
 *   search      of the most promising plan: one edit, or several at once, the most promising ones first
 *
 * What an edit promises is the mean over budgets by which the list would get faster (wn__frontier_gain). Edited plans
 * join the list like any other, and are edited in turn. The plan of least bytes is edited like the others: so plans get
 * below those of the chain solver and of policies by hand, above all for graphs without cuts. The number of edits
 * follows from the size of the graph and from what they give, never from a time: the same graph always gives the same
 * list. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../recipe/action.h"
#include "frontier.h"

#define WORK 300000   /* edits that the search tries * nodes */
#define MAX_EDITS 300 /* of a graph */
#define SMALL 40000   /* edits * nodes of a graph that gets more */
#define LAST 4        /* 1/LAST of them are of the plan of least bytes alone, in the end */
#define PATIENCE 128  /* edits in a row that the list takes none of, after which there are no more */
#define VISIT 4       /* edits of a plan that are tried before another plan may be more promising */
#define PAIRED 16     /* the most promising edits of each kind that are tried in pairs */
#define EVICTIONS 16  /* plans on the way from everything kept to everything evicted */
#define BASES 8       /* plans of the list whose values are offloaded */
#define OFFLOADED 8   /* parts of the bytes of each that are */

/* Edits that are tried together. */
struct trial {
    const struct wn__edit *edit[WN__EDITS_MOST]; /* (n) */
    int32_t n;
    int64_t reserved; /* forecast */
    double seconds;   /* forecast */
    double gain;      /* of the forecast when it was last looked at: it only falls as plans join the list */
};
/* A plan that is being edited, and the search under way. */
struct editing {
    struct wn__building *b;
    char name[32];                /* of the plans that the edits propose */
    struct wn__recipe from;       /* the recipe */
    struct wn__forecast at;       /* of `from` */
    const struct wn__edit **free; /* (n_free) edits that free bytes, the most bytes for their seconds first */
    const struct wn__edit **take; /* (n_take) edits that take bytes, the most seconds for their bytes first */
    int32_t n_free, n_take;
    struct trial *trial; /* (n) of `from` */
    int64_t n, room;
    int32_t stop; /* b->tried at which the search ends */
};

/* ---- a plan and its edits ---------------------------------------------------------------------------------------- */

/* Returns how promising an edit is among those that free bytes, or those that take bytes. */
static double worth_of(const struct wn__edit *e)
{
    double ns = 1e9 * e->seconds, bytes = (double)e->wait[0].bytes;
    return bytes < 0 ? -bytes / ((ns > 0 ? ns : 0) + 1) : -ns / (bytes + 1);
}

static int compare_worth(const void *x, const void *y)
{
    const struct wn__edit *a = *(struct wn__edit *const *)x, *b = *(struct wn__edit *const *)y;
    double p = worth_of(a), q = worth_of(b);
    return p != q ? (p > q ? -1 : 1) : (a > b) - (a < b);
}

/* Splits the edits of `from` into those that free bytes and those that take bytes, each sorted by worth. */
static int32_t sort_edits(struct editing *e)
{
    struct wn__forecast *f = &e->at;
    if (!WN_ARRAY(&f->pool, e->free, f->n_edits) || !WN_ARRAY(&f->pool, e->take, f->n_edits)) return WN_OOM;
    e->n_free = e->n_take = 0;
    for (int64_t k = 0; k < f->n_edits; k++) {
        if (f->edit[k].wait[0].bytes < 0) e->free[e->n_free++] = &f->edit[k];
        else e->take[e->n_take++] = &f->edit[k];
    }
    qsort(e->free, (size_t)e->n_free, sizeof(struct wn__edit *), compare_worth);
    qsort(e->take, (size_t)e->n_take, sizeof(struct wn__edit *), compare_worth);
    return WN_OK;
}

/* Copies point k of the list to `from`, as the list changes while its edits are offered, and lists its edits. Its own
 * bytes stand in the forecast, with what placing it adds to the bound. */
static int32_t begin_point(struct editing *e, int64_t k)
{
    const struct wn__frontier_point *p = &e->b->point[k];
    int64_t reserved = p->shown.reserved;
    snprintf(e->name, sizeof e->name, "%.30s%s", p->name, strchr(p->name, '+') == NULL ? "+" : "");
    WN_TRY(wn__frontier_begin(e->b, &p->recipe, &e->from));
    WN_TRY(wn__recipe_change(e->b->ir, &p->recipe, NULL, 0, &e->from));
    WN_TRY(wn__forecast_make(e->b, &e->from, &e->at));
    e->at.reserved = reserved;
    return sort_edits(e);
}

/* Releases what begin_point made, on failure too. */
static void end_point(struct editing *e)
{
    wn__forecast_release(&e->at);
    wn__recipe_release(&e->from);
}

/* Offers the recipe with n edits. What is kept and not read again is let go of, as it may be read by what the edits
 * make the backward compute again. */
static int32_t offer_edited(struct editing *e, const struct wn__edit *const *edit, int32_t n)
{
    const struct wn__forecast *f = &e->at;
    struct wn__change *change;
    struct wn__recipe to;
    WN_TRY(wn__frontier_begin(e->b, &e->from, &to));
    int32_t idle = f->n_idle, code = WN_ARRAY(&to.pool, change, n + idle) ? WN_OK : WN_OOM;
    if (code == WN_OK && idle > 0) memcpy(change, f->idle, (size_t)idle * sizeof *change);
    for (int32_t k = 0; k < n && code == WN_OK; k++) change[idle + k] = edit[k]->change;
    if (code == WN_OK) code = wn__recipe_change(e->b->ir, &e->from, change, n + idle, &to);
    if (code == WN_OK) return wn__frontier_offer(e->b, &to, e->name);
    wn__recipe_release(&to);
    return code;
}

/* ---- many edits, one after the other ----------------------------------------------------------------------------- */

/* Offers the recipe with the first of n edits, at each of `parts` equal parts of the bytes that they free or take. */
static int32_t offer_series(struct editing *e, const struct wn__edit *const *edit, int32_t n, int64_t parts)
{
    int64_t all = 0, bytes = 0, part = 1;
    for (int32_t i = 0; i < n; i++) all += llabs(edit[i]->wait[0].bytes);
    for (int32_t i = 0; i < n; i++) {
        bytes += llabs(edit[i]->wait[0].bytes);
        if (i + 1 < n && bytes < all / parts * part) continue;
        while (bytes >= all / parts * part && part < parts) part++;
        WN_TRY(offer_edited(e, edit, i + 1));
    }
    return WN_OK;
}

/* The order in which DTR evicts values while a program runs (Kirisame et al.: "Dynamic tensor rematerialization", ICLR
 * 2021), found in advance. The chain solver keeps what crosses a cut; eviction sees the whole graph and no cuts.
 * Measured: faster by, on average over 50 budgets from the least to all bytes: 8.5 % (U-shaped MLP of 12 levels; 15 %
 * at most), 6.5 % (of 6 levels), 1.9 % (skips over 3 and 9 layers), 1 % (two towers that read each other), 0.7 % (every
 * layer reads all before it), 0.2 % (a small GPT-2). */
struct eviction {
    const struct wn__ir *ir;
    const struct wn__edit **edit; /* (n) that let go of a value, those of evicted ones first, in their order */
    int32_t n, evicted;
    double *score;  /* (n) of an edit when it was last computed: a lower bound, as costs only rise */
    uint8_t *gone;  /* (ir->n) 1: a forward value that is not kept */
    int32_t *stack; /* (ir->n) scratch */
};

/* Returns (cost + 1) / (bytes * (wait + 1)), in nanoseconds: the value with the least is evicted next. cost: of
 * computing it again, with every ancestor that is gone. */
static double score_of(struct eviction *x, const struct wn__edit *edit)
{
    int32_t n = 0;
    double cost = 0;
    x->stack[n++] = edit->change.node;
    for (int32_t at = 0; at < n; at++) {
        int32_t i = x->stack[at];
        cost += 1e9 * x->ir->seconds[i];
        for (int32_t k = 0; k < x->ir->node[i].n_in; k++) {
            int32_t v = wn__ir_storage(x->ir, wn__ir_in(x->ir, i, k));
            if (x->gone[v] != 1) continue;
            x->gone[v] = 2; /* on the stack */
            x->stack[n++] = v;
        }
    }
    for (int32_t at = 1; at < n; at++) x->gone[x->stack[at]] = 1;
    return (cost + 1) / ((double)-edit->wait[0].bytes * (1e9 * edit->apart + 1));
}

/* Evicts one value more. A score is computed anew only when it is the least one (lazy evaluation), which is enough
 * because scores only rise. */
static void evict_next(struct eviction *x)
{
    int32_t best = -1;
    for (double now = 1; best < 0 || now > x->score[best];) {
        if (best >= 0) x->score[best] = now;
        best = x->evicted;
        for (int32_t k = best + 1; k < x->n; k++)
            if (x->score[k] < x->score[best]) best = k;
        now = score_of(x, x->edit[best]);
    }
    const struct wn__edit *edit = x->edit[best];
    x->edit[best] = x->edit[x->evicted];
    x->score[best] = x->score[x->evicted];
    x->edit[x->evicted++] = edit;
    x->gone[edit->change.node] = 1;
}

int32_t wn__frontier_evict(struct wn__building *b)
{
    struct editing e = {.b = b};
    struct eviction x = {.ir = b->ir};
    int32_t code = begin_point(&e, 0), n = b->ir->n;
    struct wn__pool *p = &e.at.pool;
    if (code == WN_OK && !(WN_ARRAY(p, x.score, e.n_free) && WN_ARRAY(p, x.gone, n) && WN_ARRAY(p, x.stack, n)))
        code = WN_OOM;
    x.edit = e.free;
    for (int32_t k = 0; k < e.n_free && code == WN_OK; k++)
        if (e.free[k]->change.to == WN__GONE) x.edit[x.n++] = e.free[k];
    for (int32_t v = 0; v < n && code == WN_OK; v++)
        x.gone[v] = wn__ir_is_forward(b->ir, v) && !b->ir->node[v].bound &&
                    (!b->ir->node[v].is_residual || b->ir->node[v].is_reissued) &&
                    !wn__recipe_always_keeps(b->ir, b->marks, v);
    while (code == WN_OK && x.evicted < x.n) evict_next(&x);
    snprintf(e.name, sizeof e.name, "evicted");
    if (code == WN_OK) code = offer_series(&e, x.edit, x.n, EVICTIONS);
    end_point(&e);
    return code;
}

/* Returns whether a budget may choose an action for a value that is kept; 0: whether it may keep the value, which is
 * gathered from ranks and which no decision is about. */
static int32_t may_take(const struct wn__building *b, int32_t v, int32_t action)
{
    const struct wn__ir_node *p = &b->ir->node[v];
    if (action > 0) return wn__action_may_choose(b->ir, b->marks, v, action);
    return p->is_reissued && p->is_residual && b->marks->decision[v] == WN_DECISION_NONE;
}

/* Offers point k with an action for what it keeps and may be kept so: for all, or, where the action moves bytes, for
 * parts of it, with each of two prefetch budgets. Action 0: what it gathers from ranks is kept. */
static int32_t act_on(struct editing *e, int64_t k, int32_t action, int64_t parts)
{
    char name[32];
    int32_t n = 0, moves = wn__action_medium(action) >= 0;
    const char *what = action > 0 ? wn__action_name(action) : "gathers";
    snprintf(name, sizeof name, "%.16s, %.13s", e->b->point[k].name, what);
    int32_t code = begin_point(e, k);
    memcpy(e->name, name, sizeof name);
    const struct wn__edit **list = action > 0 ? e->free : e->take;
    for (int32_t i = 0; i < (action > 0 ? e->n_free : e->n_take) && code == WN_OK; i++)
        if (list[i]->change.to == action && may_take(e->b, list[i]->change.node, action)) list[n++] = list[i];
    for (int32_t prefetch = 1; prefetch <= 4 && code == WN_OK; prefetch += moves ? 3 : 4) {
        if (moves) e->from.prefetch = prefetch;
        code = offer_series(e, list, n, parts);
    }
    end_point(e);
    return code;
}

/* Offers every plan of the list with an action, if any value may be kept so. */
static int32_t act(struct wn__building *b, int32_t action)
{
    struct editing e = {.b = b};
    int32_t may_act = 0, code = WN_OK;
    for (int32_t k = 0; k < b->ir->n_residuals; k++) may_act |= may_take(b, b->ir->residual[k], action);
    int64_t stride = (b->n + BASES - 1) / BASES;
    for (int64_t k = b->n - 1; k >= 0 && code == WN_OK && may_act; k--)
        if (k < b->n) code = act_on(&e, k, action, k % stride == 0 ? OFFLOADED : 1);
    return code;
}

int32_t wn__frontier_act(struct wn__building *b)
{
    int32_t code = act(b, 0);
    for (int32_t a = WN_DECISION_RECOMPUTE + 1; a < WN_DECISION_COUNT && code == WN_OK; a++) code = act(b, a);
    return code;
}

/* Offers point k with a prefetch budget of `ahead` eighths. */
static int32_t go_ahead(struct wn__building *b, int64_t k, int32_t ahead)
{
    char name[32];
    struct wn__recipe from;
    snprintf(name, sizeof name, "%.21s, ahead %d", b->point[k].name, ahead);
    WN_TRY(wn__frontier_begin(b, &b->point[k].recipe, &from));
    int32_t code = wn__recipe_change(b->ir, &b->point[k].recipe, NULL, 0, &from);
    from.prefetch = ahead;
    if (ahead == 0) from.group = 0; /* the fewest bytes */
    if (code == WN_OK) return wn__frontier_offer(b, &from, name);
    wn__recipe_release(&from);
    return code;
}

int32_t wn__frontier_ahead(struct wn__building *b)
{
    int32_t exchanges = 0, code = WN_OK;
    for (int32_t i = 0; i < b->ir->n; i++) exchanges += (wn__ir_flags(b->ir, i) & WN_LINK) != 0;
    for (int32_t ahead = 0; ahead <= 8 && exchanges > 0; ahead += 8)
        for (int64_t k = b->n - 1; k >= 0 && code == WN_OK; k--)
            if (k < b->n) code = go_ahead(b, k, ahead);
    return code;
}

/* ---- the search: what is tried of a plan ------------------------------------------------------------------------- */

/* Lists a trial of n edits with its gain, unless two are of one value. */
static int32_t put_trial(struct editing *e, const struct wn__edit *const *edit, int32_t n)
{
    struct trial t = {.n = n, .seconds = e->at.seconds};
    for (int32_t k = 0; k < n; k++) {
        t.edit[k] = edit[k];
        t.seconds += edit[k]->seconds;
        for (int32_t i = 0; i < k; i++)
            if (edit[i]->change.node == edit[k]->change.node) return WN_OK;
    }
    t.reserved = wn__forecast_reserved(&e->at, t.edit, n);
    t.gain = wn__frontier_gain(e->b, t.reserved, t.seconds);
    WN_TRY(wn__grow(&e->trial, &e->room, e->n + 1, sizeof *e->trial));
    e->trial[e->n++] = t;
    return WN_OK;
}

/* Lists every set of few edits. */
static int32_t put_all(struct editing *e)
{
    const struct wn__edit *some[WN__EDITS_MOST];
    int32_t all = (int32_t)e->at.n_edits;
    for (int32_t bits = 1; bits < 1 << all; bits++) {
        int32_t n = 0;
        for (int32_t k = 0; k < all; k++)
            if (bits >> k & 1) some[n++] = &e->at.edit[k];
        WN_TRY(put_trial(e, some, n));
    }
    return WN_OK;
}

/* Lists every single edit, and the pairs of the PAIRED first ones that free bytes, with each other and with those that
 * take bytes. */
static int32_t put_trials(struct editing *e)
{
    int32_t frees = wn_min(e->n_free, PAIRED), takes = wn_min(e->n_take, PAIRED);
    e->n = 0;
    if (e->at.n_edits <= WN__EDITS_MOST) return put_all(e);
    for (int32_t i = 0; i < e->n_free; i++) WN_TRY(put_trial(e, &e->free[i], 1));
    for (int32_t i = 0; i < e->n_take; i++) WN_TRY(put_trial(e, &e->take[i], 1));
    for (int32_t i = 0; i < frees; i++)
        for (int32_t k = 0; k < i + takes; k++) {
            const struct wn__edit *const pair[] = {e->free[i], k < i ? e->free[k] : e->take[k - i]};
            WN_TRY(put_trial(e, pair, 2));
        }
    return WN_OK;
}

static int compare_gain(const void *x, const void *y)
{
    const struct trial *a = x, *b = y;
    if (a->gain != b->gain) return a->gain > b->gain ? -1 : 1;
    if (a->n != b->n) return a->n - b->n;
    for (int32_t k = 0; k < a->n; k++)
        if (a->edit[k] != b->edit[k]) return (a->edit[k] > b->edit[k]) - (a->edit[k] < b->edit[k]);
    return 0;
}

/* Moves the first trial down to its place in the heap, whose first one has the most gain. */
static void sift_down(struct editing *e)
{
    struct trial t = e->trial[0];
    int64_t at = 0;
    for (int64_t k; (k = 2 * at + 1) < e->n; at = k) {
        if (k + 1 < e->n && compare_gain(&e->trial[k + 1], &e->trial[k]) < 0) k++;
        if (compare_gain(&t, &e->trial[k]) < 0) break;
        e->trial[at] = e->trial[k];
    }
    e->trial[at] = t;
}

/* Takes the trial with the most gain from the heap. Returns 0 if it is empty. Gains are computed anew for the first
 * one alone (lazy evaluation), which is enough because they only fall. */
static int32_t next_trial(struct editing *e, struct trial *out)
{
    while (e->n > 0) {
        struct trial *t = &e->trial[0];
        double now = wn__frontier_gain(e->b, t->reserved, t->seconds);
        if (now >= t->gain) {
            *out = *t;
            e->trial[0] = e->trial[--e->n];
            if (e->n > 0) sift_down(e);
            return 1;
        }
        t->gain = now;
        if (e->n > 0) sift_down(e);
    }
    return 0;
}

/* Tries up to VISIT edits of point k that were not tried before; of one with few edits, all sets that promise a
 * gain. */
static int32_t visit(struct editing *e, int64_t k)
{
    struct wn__building *b = e->b;
    struct trial t = {.n = 0};
    int32_t id = b->point[k].id, first = b->tried, stop = (int32_t)wn_min(e->stop, first + VISIT);
    int32_t code = begin_point(e, k);
    if (code == WN_OK) code = put_trials(e);
    if (code == WN_OK && e->n > 0) qsort(e->trial, (size_t)e->n, sizeof *e->trial, compare_gain);
    int32_t is_left = code == WN_OK && next_trial(e, &t);
    int32_t is_few = e->at.n_edits <= WN__EDITS_MOST;
    while (code == WN_OK && is_left && b->tried < (is_few && t.gain > 0 ? e->stop : stop)) {
        code = offer_edited(e, t.edit, t.n);
        is_left = next_trial(e, &t);
    }
    for (int64_t i = 0; i < b->n; i++) {
        if (b->point[i].id != id && b->point[i].id < first) continue;
        b->point[i].visits += b->point[i].id == id;
        b->point[i].is_done = b->point[i].id == id && !is_left;
        b->point[i].promise = is_left ? t.gain : 0;
    }
    end_point(e);
    return code;
}

/* ---- the search: which plans are edited -------------------------------------------------------------------------- */

int32_t wn__frontier_edits(const struct wn__ir *ir)
{
    return (int32_t)wn_min(WORK / (ir->n + 1), wn_max(MAX_EDITS, SMALL / (ir->n + 1)));
}

/* Returns how promising the edits of point k are: the gain of the next one over the visits so far; before the first
 * visit the gain if the plan took no more bytes than the next one of the list does, 1 for the last one. */
static double promise_of(const struct wn__building *b, int64_t k)
{
    const struct wn__frontier_point *p = &b->point[k];
    double span = (double)(b->point[0].shown.reserved - b->point[b->n - 1].shown.reserved) + 1;
    if (p->visits > 0) return p->promise > 0 ? p->promise / p->visits : p->promise;
    if (k == b->n - 1) return p->promise;
    return (double)(p->shown.reserved - p[1].shown.reserved) / span * (p[1].shown.seconds / p->shown.seconds - 1);
}

/* Edits the most promising plans, or the plan of least bytes alone, until so many proposals were judged, or the list
 * has taken none of PATIENCE edits in a row. */
static int32_t edit_until(struct editing *e, int32_t stop, int32_t is_least)
{
    struct wn__building *b = e->b;
    int32_t from = b->tried;
    while (b->tried < stop && b->tried - wn_max(b->newest, from) < PATIENCE) {
        int64_t best = -1, first = is_least ? b->n - 1 : 0;
        for (int64_t k = b->n - 1; k >= first; k--)
            if (!b->point[k].is_done && (best < 0 || promise_of(b, k) > promise_of(b, best))) best = k;
        if (best < 0) break;
        WN_TRY(visit(e, best));
    }
    return WN_OK;
}

int32_t wn__frontier_edit(struct wn__building *b)
{
    int32_t edits = wn__frontier_edits(b->ir);
    struct editing e = {.b = b, .stop = b->tried + edits};
    b->point[b->n - 1].promise = 1;
    int32_t code = edit_until(&e, e.stop - edits / LAST, 0);
    if (code == WN_OK) code = edit_until(&e, e.stop, 1);
    wn__free(e.trial);
    return code;
}
