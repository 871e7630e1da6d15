/* Finds free bytes among stretches of an address space (occupied.h). Time is cut into about sqrt(stretches / 2) spans
 * of equal width. Each span has three lists by address:
 *
 *   all      bytes taken at any time in the span, neighbours merged   for what lives through the whole span
 *   through  bytes taken during all of the span, neighbours merged    for what begins or ends in it,
 *   partly   stretches that begin or end in it, one by one              with the time of these compared
 *
 *   time ->      | span 0      | span 1      | span 2      |
 *   a stretch        [=======================]               partly in 0 and 2 (or through, where it fills one),
 *                                                            through 1, and in `all` of the three
 *
 * So a search steps over a pile of stretches at once, where one list of all stretches would be walked one by one.
 * Searching and taking cost about sqrt(stretches) instead of their number. */
#include "occupied.h"
#include <string.h>
#include "../../base/status.h"

enum { ALL, THROUGH, PARTLY, LISTS };

struct wn__span_of_time {
    struct wn__stretches list[LISTS];
    int32_t cursor[LISTS]; /* of a search: every item before it is below the address searched from */
};

int32_t wn__occupied_make(struct wn__occupied *o, int64_t most, int32_t instructions)
{
    int32_t spans = 4;
    while (2 * (int64_t)spans * spans < most) spans++;
    o->width = instructions / spans + 1;
    o->n_spans = instructions / o->width + 1;
    o->span = wn__alloc(o->n_spans * (int64_t)sizeof *o->span);
    return o->span == NULL ? WN_OOM : WN_OK;
}

void wn__occupied_release(struct wn__occupied *o)
{
    for (int32_t k = 0; o->span != NULL && k < o->n_spans; k++)
        for (int32_t l = 0; l < LISTS; l++) wn__free(o->span[k].list[l].item);
    wn__free(o->span);
    o->span = NULL;
}

void wn__occupied_clear(struct wn__occupied *o)
{
    for (int32_t k = 0; k < o->n_spans; k++)
        for (int32_t l = 0; l < LISTS; l++) o->span[k].list[l].n = 0;
}

/* Returns the index of the first stretch of an ordered list that begins above `at`. */
static int32_t first_above(const struct wn__stretches *l, int64_t at)
{
    int32_t lo = 0, hi = l->n;
    while (lo < hi) {
        int32_t middle = (lo + hi) / 2;
        if (l->item[middle].at > at) hi = middle;
        else lo = middle + 1;
    }
    return lo;
}

static int32_t put(struct wn__stretches *l, int32_t k, const struct wn__stretch *s)
{
    WN_TRY(wn__grow(&l->item, &l->room, l->n + 1, sizeof *l->item));
    memmove(&l->item[k + 1], &l->item[k], (size_t)(l->n - k) * sizeof *l->item);
    l->item[k] = *s;
    l->n++;
    return WN_OK;
}

/* Adds the bytes of a stretch to a list of merged ones. */
static int32_t merge(struct wn__stretches *l, const struct wn__stretch *s)
{
    int32_t k = first_above(l, s->at), end = k;
    int32_t joins = k > 0 && l->item[k - 1].end >= s->at;
    if (!joins && (k == l->n || l->item[k].at > s->end)) return put(l, k, s);
    if (joins) k--;
    struct wn__stretch *to = &l->item[k];
    if (s->at < to->at) to->at = s->at;
    if (s->end > to->end) to->end = s->end;
    if (end == k) end++;
    for (; end < l->n && l->item[end].at <= to->end; end++)
        if (l->item[end].end > to->end) to->end = l->item[end].end;
    memmove(to + 1, &l->item[end], (size_t)(l->n - end) * sizeof *to);
    l->n -= end - k - 1;
    return WN_OK;
}

int32_t wn__occupied_add(struct wn__occupied *o, const struct wn__stretch *s)
{
    int32_t from = s->first / o->width, to = s->last / o->width;
    for (int32_t k = from; k <= to; k++) {
        struct wn__stretches *list = o->span[k].list;
        int32_t begins = k == from && s->first > k * o->width, ends = k == to && s->last < (k + 1) * o->width - 1;
        WN_TRY(merge(&list[ALL], s));
        if (begins || ends) WN_TRY(put(&list[PARTLY], first_above(&list[PARTLY], s->at), s));
        else WN_TRY(merge(&list[THROUGH], s));
    }
    return WN_OK;
}

void wn__occupied_start(struct wn__occupied *o, int32_t first, int32_t last)
{
    for (int32_t k = first / o->width; k <= last / o->width; k++)
        memset(o->span[k].cursor, 0, sizeof o->span[k].cursor);
}

/* Returns the end of the bytes of a merged list that are in the way of [at, end), whatever their time; `at`: none
 * are. */
static int64_t above_merged(const struct wn__stretches *l, int32_t *cursor, int64_t at, int64_t end)
{
    int32_t k = *cursor;
    while (k < l->n && l->item[k].end <= at) k++;
    *cursor = k;
    return k < l->n && l->item[k].at < end ? l->item[k].end : at;
}

static int64_t above_partly(const struct wn__stretches *l, int32_t *cursor, int64_t at, int64_t end, int32_t first,
                            int32_t last)
{
    for (; *cursor < l->n && l->item[*cursor].at < end; ++*cursor) {
        const struct wn__stretch *s = &l->item[*cursor];
        if (s->end > at && s->first <= last && s->last >= first) return s->end;
    }
    return at;
}

int64_t wn__occupied_above(struct wn__occupied *o, int64_t at, int64_t end, int32_t first, int32_t last)
{
    int32_t from = first / o->width, to = last / o->width;
    for (int32_t k = from; k <= to; k++) {
        struct wn__span_of_time *t = &o->span[k];
        int64_t above;
        if (k > from && k < to) {
            above = above_merged(&t->list[ALL], &t->cursor[ALL], at, end);
        } else {
            above = above_merged(&t->list[THROUGH], &t->cursor[THROUGH], at, end);
            if (above == at) above = above_partly(&t->list[PARTLY], &t->cursor[PARTLY], at, end, first, last);
        }
        if (above > at) return above;
    }
    return at;
}
