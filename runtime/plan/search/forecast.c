/* Estimates what an edit of a flat recipe would reserve, without lowering it. One schedule of the unedited recipe gives
 * the bytes alive at each instruction, and for each value the instructions between which only the backward waits for
 * it:
 *
 *   instructions   | forward .. from | .. wait .. | to .. backward |
 *   a kept value   `to` reads it; dropping it frees its bytes during the wait
 *   another one    `to` computes it again; keeping it takes its bytes during the wait
 *
 * What other values an edit makes the backward recompute is not looked at. A forecast only orders edits: whatever is
 * tried is judged like any other recipe. */
#include <string.h>
#include "frontier.h"

/* Gets memory for the arrays of a forecast. */
static int32_t make_room(const struct wn__ir *ir, const struct wn__schedule *s, struct wn__forecast *out)
{
    struct wn__pool *p = &out->pool;
    out->n = s->n;
    return WN_ARRAY(p, out->live, s->n) && WN_ARRAY(p, out->from, ir->n) && WN_ARRAY(p, out->to, ir->n) ? WN_OK
                                                                                                        : WN_OOM;
}

/* Fills `from` and `to` of each value. */
static void find_gaps(const struct wn__ir *ir, const struct wn__schedule *s, struct wn__forecast *out)
{
    for (int32_t v = 0; v < ir->n; v++) out->from[v] = out->to[v] = -1;
    for (int32_t i = 0; i < s->n; i++) {
        const struct wn__instr *p = &s->instr[i];
        if (p->what != WN_DO_RUN) continue;
        int32_t in_forward = p->phase == WN_PHASE_FORWARD;
        struct wn_desc d = wn__ir_desc_of(ir, &ir->node[p->node]);
        for (int32_t k = 0; k < d.n_in; k++) {
            int32_t v = s->value[s->in[p->in_at + k]].node;
            if (in_forward) out->from[v] = i;
            else if (out->to[v] < 0) out->to[v] = i;
        }
        if (in_forward) out->from[p->node] = i;
        else if (out->to[p->node] < 0) out->to[p->node] = i;
    }
}

int32_t wn__forecast_make(const struct wn__ir *ir, const struct wn__recipe *r, struct wn__forecast *out)
{
    struct wn__schedule *s = NULL;
    memset(out, 0, sizeof *out);
    WN_TRY(wn__compile(ir, r, NULL, WN__PLACE_BOUND, &s));
    int32_t code = make_room(ir, s, out);
    if (code == WN_OK) {
        for (int32_t i = 0; i < s->n; i++) {
            out->live[i] = s->live[i] + s->instr[i].work_bytes;
            if (out->live[i] > out->peak) out->peak = out->live[i];
        }
        out->reserved = s->summary.reserved;
        out->seconds = s->summary.seconds;
        find_gaps(ir, s, out);
    }
    wn__schedule_unref(s);
    return code;
}

int64_t wn__forecast_reserved(const struct wn__forecast *c, int32_t a, int64_t bytes_a, int32_t b, int64_t bytes_b)
{
    int64_t peak = 0;
    for (int32_t i = 0; i < c->n; i++) {
        int64_t live = c->live[i];
        if (i > c->from[a] && i < c->to[a]) live += bytes_a;
        if (i > c->from[b] && i < c->to[b]) live += bytes_b;
        if (live > peak) peak = live;
    }
    return c->reserved + peak - c->peak;
}

double wn__frontier_gain(const struct wn__building *b, int64_t reserved, double seconds)
{
    const struct wn__frontier_point *last = &b->point[b->n - 1];
    if (reserved < last->reserved) return 1 + (double)(last->reserved - reserved) / (double)last->reserved;
    int64_t lo = 0, hi = b->n - 1; /* binary search of the fastest point that reserves at most `reserved` */
    while (lo < hi) {
        int64_t middle = (lo + hi) / 2;
        if (b->point[middle].reserved <= reserved) hi = middle;
        else lo = middle + 1;
    }
    return b->point[lo].seconds / seconds - 1;
}

void wn__forecast_release(struct wn__forecast *c)
{
    wn__pool_release(&c->pool);
    memset(c, 0, sizeof *c);
}
