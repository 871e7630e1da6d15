/* Says which elements of a value a rank owns. A value is cut between stripes, so that every rank's part of a small one
 * is whole; stripes are dealt on from where the value before ended, so that many small ones are dealt evenly.
 *
 *   value 0, 5 stripes   | rank 0 | rank 0 | rank 1 | rank 1 | rank 2 |    of 3 ranks, start = 0; the next one's is 2
 *   value 1, 1 stripe    | rank 2 |                                        start = 2; the next one's is 0 */
#ifndef WN_BASE_RANKS_H
#define WN_BASE_RANKS_H
#include <stdint.h>

#define WN_STRIPE 4096 /* elements */
/* Tells two ranks on one machine from two on different ones. */
enum { WN_LEVEL_INSIDE, WN_LEVEL_OUTSIDE, WN_LEVEL_COUNT };

/* A cut of a value, `elements` in the order of memory, among ranks. */
struct wn__cut {
    int64_t elements;
    int32_t ranks, start; /* how many; the one that gets the first stripe that is left over */
};
/* Consecutive elements. */
struct wn__range {
    int64_t first, count;
};

static inline int64_t wn__stripes(const struct wn__cut *c)
{
    return (c->elements + WN_STRIPE - 1) / WN_STRIPE;
}
/* Returns the start of the value behind this one. */
static inline int32_t wn__cut_next(const struct wn__cut *c)
{
    return (int32_t)((c->start + wn__stripes(c)) % c->ranks);
}
/* Returns what a rank owns: as many stripes as each other rank, or one more. */
static inline struct wn__range wn__range_of(const struct wn__cut *c, int32_t rank)
{
    int64_t stripes = wn__stripes(c), each = stripes / c->ranks, over = stripes % c->ranks, before = each * rank;
    /* ranks start, start + 1, ..., modulo their number, have one more; `more` of them are below this one */
    int64_t end = c->start + over, wrapped = end > c->ranks ? end - c->ranks : 0;
    int64_t more = (rank < wrapped ? rank : wrapped) + (rank > c->start ? (rank < end ? rank : end) - c->start : 0);
    int32_t has_more = rank < wrapped || (rank >= c->start && rank < end);
    int64_t first = (before + more) * WN_STRIPE, after = first + (each + has_more) * WN_STRIPE;
    if (first > c->elements) first = c->elements;
    if (after > c->elements) after = c->elements;
    return (struct wn__range){first, after - first};
}
#endif
