/* Evaluates step functions and makes the lower envelope of many sums of them: see step_function.h.
 *
 * Invariant: the bytes of an envelope's corners strictly ascend and their times strictly descend; of corners that are
 * equal in both, the one with the fewest ties is there. The envelope does not depend on the order in which sums were
 * put.
 *
 * Merging dozens of sums one by one would visit every corner of each, although few are on the envelope. So the range of
 * budgets is halved until few corners are left in it (divide and conquer). At every halving, a sum is left out of a
 * half if its time at the end of the half, its least there, is not below the envelope at the start of the half:
 *
 *   time |  s1 ---+                         |   The envelope is at s2 where this half starts. The least time of s1 in
 *        |        +----------------  s1 end |   the half, at its end, is above that: s1 is left out of the half.
 *        |  s2 -----------------------      |
 *        +-----------[   half   )---> bytes |
 *
 * Measured: leaving out while halving, against copying first: 0.80 -> 0.75 s (52 unequal stages, 6 options), 16 % less
 * (GPT-2 774M). */
#include "step_function.h"
#include <string.h>
#include "../../base/alloc.h"
#include "../../base/status.h"
#include "../../base/number.h"

static const struct wn__corner zero_corners[] = {{-WN__STEP_NEVER, 0, 0}, {WN__STEP_NEVER, 0, 0}};
static const struct wn__step_function zero = {zero_corners, 1};

/* Returns s, or the function that is 0 everywhere for NULL. */
static const struct wn__step_function *or_zero(const struct wn__step_function *s)
{
    return s == NULL ? &zero : s;
}

/* Returns the last of corners at .. last with at most m bytes; `at` if none has. Binary search mispredicts every other
 * branch and linear search one in all, so the last 32 corners are searched linearly.
 * Measured: 1.0 -> 0.85, 0.70, 0.66 s with the last 8, 16, 32 searched linearly (52 unequal stages, 6 options);
 * conditional moves gain nothing. */
static const struct wn__corner *last_within(const struct wn__corner *at, const struct wn__corner *last, int64_t m)
{
    while (last - at > 32) {
        const struct wn__corner *middle = last - (last - at) / 2;
        if (middle->bytes <= m) at = middle;
        else last = middle - 1;
    }
    while (at < last && at[1].bytes <= m) at++;
    return at;
}

int32_t wn__step_function_find(const struct wn__step_function *s, int64_t m)
{
    if (s->n == 0 || s->at[0].bytes > m) return -1;
    return (int32_t)(last_within(s->at, s->at + s->n - 1, m) - s->at);
}

/* Returns the value at m bytes of the sum s, whose functions have corners a and b there. */
static struct wn__corner value_of(const struct wn__step_sum *s, const struct wn__corner *a, const struct wn__corner *b,
                                  int64_t m)
{
    return (struct wn__corner){m, a->time + b->time + s->time, a->ties + b->ties + s->ties};
}

int32_t wn__step_sum_at(const struct wn__step_sum *sum, int64_t m, struct wn__corner *out)
{
    const struct wn__step_function *a = or_zero(sum->a), *b = or_zero(sum->b);
    int32_t i = wn__step_function_find(a, m - sum->a_shift), k = wn__step_function_find(b, m - sum->b_shift);
    if (m < sum->least || i < 0 || k < 0) return 0;
    *out = value_of(sum, a->at + i, b->at + k, m);
    return 1;
}

/* ---- envelopes -------------------------------------------------------------------------------------------------- */

/* A sum inside a range of budgets. Invariant: a <= a_end and b <= b_end, in the corners of the sum's functions. */
struct wn__span {
    const struct wn__step_sum *sum;
    const struct wn__corner *a, *a_end; /* of the sum's a: the corner that holds at the start of the range, or at
                                           `start`; the last corner inside the range */
    const struct wn__corner *b, *b_end; /* the same of the sum's b */
    int64_t start;                      /* bytes from which on the sum has a value */
    int64_t end_time;                   /* its time at the end of the range, the least in the range */
};

enum { SHORT = 64 }; /* up to so many corners are sorted and not halved. Measured: 16 and 32 are no faster */

/* Returns the least time of the envelope so far. */
static int64_t last_time(const struct wn__envelope *e)
{
    return e->n > 0 ? e->at[e->n - 1].time : INT64_MAX;
}

static int32_t is_before(const struct wn__corner *x, const struct wn__corner *y)
{
    if (x->bytes != y->bytes) return x->bytes < y->bytes;
    return x->time < y->time || (x->time == y->time && x->ties < y->ties);
}

/* Inserts the corners of one sum on [from, to) that are below the envelope's last time into the sorted corners
 * e->at[e->n .. sorted). Returns the end of the sorted corners. */
static int64_t put_corners(struct wn__envelope *e, const struct wn__span *p, int64_t from, int64_t to, int64_t sorted)
{
    const struct wn__step_sum *s = p->sum;
    const struct wn__corner *a = p->a, *b = p->b;
    int64_t n = sorted, limit = last_time(e), m = p->start > from ? p->start : from;
    while (m < to) {
        struct wn__corner value = value_of(s, a, b, m);
        if (value.time < limit) {
            int64_t k = n++;
            for (; k > e->n && is_before(&value, &e->at[k - 1]); k--) e->at[k] = e->at[k - 1];
            e->at[k] = value;
        }
        int64_t a_next = a[1].bytes + s->a_shift, b_next = b[1].bytes + s->b_shift;
        m = a_next < b_next ? a_next : b_next;
        a += a_next == m;
        b += b_next == m;
    }
    return n;
}

/* Puts the envelope of n spans on [from, to): sorts their corners, and keeps those whose time is below all before. */
static void put_sorted(struct wn__envelope *e, const struct wn__span *span, int64_t n, int64_t from, int64_t to)
{
    int64_t sorted = e->n;
    for (int64_t i = 0; i < n; i++) sorted = put_corners(e, &span[i], from, to, sorted);
    for (int64_t i = e->n; i < sorted; i++)
        if (e->at[i].time < last_time(e)) e->at[e->n++] = e->at[i];
}

/* Returns the bytes at which the spans are cut: those of the middle corner of the longest list. */
static int64_t middle_of(const struct wn__span *span, int64_t n)
{
    int64_t longest = 0, m = 0;
    for (const struct wn__span *p = span; p < span + n; p++) {
        int64_t a = p->a_end - p->a, b = p->b_end - p->b;
        if (a > longest) {
            longest = a;
            m = p->a[(a + 1) / 2].bytes + p->sum->a_shift;
        }
        if (b > longest) {
            longest = b;
            m = p->b[(b + 1) / 2].bytes + p->sum->b_shift;
        }
    }
    return m;
}

/* Cuts corners first .. *below at m bytes: *from is the corner that holds at m, *below the one that holds just under
 * m. */
static void cut_corners(const struct wn__corner *first, int64_t m, const struct wn__corner **below,
                        const struct wn__corner **from)
{
    *from = last_within(first, *below, m);
    *below = *from > first && (*from)->bytes == m ? *from - 1 : *from;
}

/* Makes *best the value of span p at `from` bytes if p has one there and it is better. */
static void keep_best(const struct wn__span *p, int64_t from, struct wn__corner *best)
{
    if (p->start > from) return;
    struct wn__corner value = value_of(p->sum, p->a, p->b, from);
    if (is_before(&value, best)) *best = value;
}

static void put_best(struct wn__envelope *e, const struct wn__corner *best)
{
    if (best->time < last_time(e)) e->at[e->n++] = *best;
}

/* Drops the spans that start at `to` bytes or later, or have no time below `limit`. Returns how many stay. */
static int64_t leave_out(struct wn__span *span, int64_t n, int64_t to, int64_t limit)
{
    int64_t kept = 0;
    for (int64_t i = 0; i < n; i++)
        if (span[i].start < to && span[i].end_time < limit) span[kept++] = span[i];
    return kept;
}

/* Spans cut at one number of bytes. Invariant: every span of `left` begins below the cut. */
struct cut_spans {
    struct wn__span *left, *right; /* (n_left) parts below the cut; (n) parts from the cut on, one for each span */
    int64_t n_left;
    struct wn__corner best; /* the least time of any sum at the cut */
};

/* Cuts n spans at m bytes. Parts below m that stay at or above `limit` are left out. Requires room for n spans each in
 * out->left and out->right, and a best value to start from in out->best. */
static void split(const struct wn__span *span, int64_t n, int64_t m, int64_t limit, struct cut_spans *out)
{
    out->n_left = 0;
    for (int64_t i = 0; i < n; i++) {
        struct wn__span *r = &out->right[i];
        *r = span[i];
        if (r->start < m) {
            const struct wn__corner *a_below = r->a_end, *b_below = r->b_end;
            cut_corners(span[i].a, m - r->sum->a_shift, &a_below, &r->a);
            cut_corners(span[i].b, m - r->sum->b_shift, &b_below, &r->b);
            int64_t end_time = a_below->time + b_below->time + r->sum->time;
            if (end_time < limit)
                out->left[out->n_left++] = (struct wn__span){.sum = r->sum,
                                                             .a = span[i].a,
                                                             .a_end = a_below,
                                                             .b = span[i].b,
                                                             .b_end = b_below,
                                                             .start = r->start,
                                                             .end_time = end_time};
        }
        keep_best(r, m, &out->best);
    }
}

/* Puts the envelope of spans first .. first + n - 1 on [from, to). Requires that its value at `from` is put already,
 * and that every span has a time below that. Overwrites the spans. */
static int32_t put_envelope(struct wn__envelope *e, int64_t first, int64_t n, int64_t from, int64_t to)
{
    int64_t corners = n;
    for (const struct wn__span *p = e->span + first; p < e->span + first + n; p++)
        corners += p->a_end - p->a + p->b_end - p->b;
    if (n == 0) return WN_OK;
    if (n == 1 || corners <= SHORT + n) {
        put_sorted(e, e->span + first, n, from, to);
        return WN_OK;
    }
    int64_t m = middle_of(e->span + first, n), right = first + n, left = right + n;
    WN_TRY(wn__grow(&e->span, &e->span_room, left + n, sizeof *e->span));
    struct cut_spans cut = {.left = e->span + left, .right = e->span + right, .best = {m, INT64_MAX, 0}};
    split(e->span + first, n, m, last_time(e), &cut);
    WN_TRY(put_envelope(e, left, cut.n_left, from, m));
    put_best(e, &cut.best);
    n = leave_out(e->span + right, n, to, last_time(e));
    return put_envelope(e, right, n, m, to);
}

int32_t wn__envelope_put(struct wn__envelope *e, const struct wn__step_sum *sum)
{
    const struct wn__step_function *a = or_zero(sum->a), *b = or_zero(sum->b);
    if (a->n == 0 || b->n == 0) return WN_OK;
    WN_TRY(wn__grow(&e->sum, &e->sum_room, e->n_sums + 1, sizeof *e->sum));
    e->sum[e->n_sums++] = *sum;
    return WN_OK;
}

int32_t wn__envelope_make(struct wn__envelope *e)
{
    int64_t most = 1, from = WN__STEP_NEVER;
    for (int64_t i = 0; i < e->n_sums; i++) most += or_zero(e->sum[i].a)->n + or_zero(e->sum[i].b)->n + 1;
    e->n = 0;
    WN_TRY(wn__grow(&e->at, &e->room, most, sizeof *e->at));
    WN_TRY(wn__grow(&e->span, &e->span_room, e->n_sums, sizeof *e->span));
    for (int64_t i = 0; i < e->n_sums; i++) {
        const struct wn__step_sum *s = &e->sum[i];
        const struct wn__step_function *a = or_zero(s->a), *b = or_zero(s->b);
        int64_t m = wn_max(s->least, wn_max(a->at[0].bytes + s->a_shift, b->at[0].bytes + s->b_shift));
        const struct wn__corner *a_end = a->at + a->n - 1, *b_end = b->at + b->n - 1;
        e->span[i] = (struct wn__span){.sum = s,
                                       .a = last_within(a->at, a_end, m - s->a_shift),
                                       .a_end = a_end,
                                       .b = last_within(b->at, b_end, m - s->b_shift),
                                       .b_end = b_end,
                                       .start = m,
                                       .end_time = a_end->time + b_end->time + s->time};
        if (m < from) from = m;
    }
    struct wn__corner best = {from, INT64_MAX, 0};
    for (int64_t i = 0; i < e->n_sums; i++) keep_best(&e->span[i], from, &best);
    put_best(e, &best);
    WN_TRY(put_envelope(e, 0, leave_out(e->span, e->n_sums, WN__STEP_NEVER, last_time(e)), from, WN__STEP_NEVER));
    e->n_sums = 0;
    e->at[e->n] = (struct wn__corner){WN__STEP_NEVER, 0, 0};
    return WN_OK;
}

void wn__envelope_thin(struct wn__envelope *e, int64_t tolerance)
{
    int64_t kept = e->n > 0;
    for (int64_t i = 1; i < e->n; i++)
        if (i == e->n - 1 || e->at[kept - 1].time - e->at[i].time > tolerance) e->at[kept++] = e->at[i];
    e->n = kept;
    e->at[kept] = (struct wn__corner){WN__STEP_NEVER, 0, 0};
}

void wn__envelope_release(struct wn__envelope *e)
{
    wn__free(e->sum);
    wn__free(e->at);
    wn__free(e->span);
    *e = (struct wn__envelope){0};
}
