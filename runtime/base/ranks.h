/* Says which elements of a value a rank owns. A value is cut between stripes, so that every rank's part of a small one
 * is whole; stripes are dealt on from where the value before ended, so that many small ones are dealt evenly.
 *
 *   value 0, 5 stripes   | part 0 | part 0 | part 1 | part 1 | part 2 |    of 3 parts, start = 0; the next one's is 2
 *   value 1, 1 stripe    | part 2 |                                        start = 2; the next one's is 0
 *
 * A team is the ranks of one machine, L of them, of K machines. Rank k L + l owns part l K + k: the parts of the ranks
 * with one number l in their teams are consecutive, so that a team cuts a value into L such shares, and each share is
 * cut on among the teams. Where one of K and L is 1, rank r owns part r.
 *
 *   2 teams of 2    | part 0: rank 0 | part 1: rank 2 | part 2: rank 1 | part 3: rank 3 |
 *                   |    share of l = 0               |    share of l = 1               | */
#ifndef WN_BASE_RANKS_H
#define WN_BASE_RANKS_H
#include <stdint.h>

#define WN_STRIPE 4096 /* elements */
/* Tells two ranks on one machine from two on different ones. */
enum { WN_LEVEL_INSIDE, WN_LEVEL_OUTSIDE, WN_LEVEL_COUNT };
/* Says who takes part in an exchange: all ranks, those of a team, or those with one number in their teams. */
enum wn_group { WN_GROUP_ALL, WN_GROUP_TEAM, WN_GROUP_ACROSS };

/* A cut of a value, `elements` in the order of memory, into one part a rank. */
struct wn__cut {
    int64_t elements;
    int32_t ranks, start; /* how many; the part that gets the first stripe that is left over */
    int32_t team;         /* so many consecutive ranks are a team, a divisor of `ranks` */
};
/* Consecutive elements. */
struct wn__range {
    int64_t first, count;
};

static inline int32_t wn__cut_equal(const struct wn__cut *a, const struct wn__cut *b)
{
    return a->elements == b->elements && a->ranks == b->ranks && a->start == b->start && a->team == b->team;
}
static inline int64_t wn__stripes(const struct wn__cut *c)
{
    return (c->elements + WN_STRIPE - 1) / WN_STRIPE;
}
/* Returns the start of the value behind this one. */
static inline int32_t wn__cut_next(const struct wn__cut *c)
{
    return (int32_t)((c->start + wn__stripes(c)) % c->ranks);
}
/* Returns the first element of a part; of one past the last part, the number of elements. A part has as many stripes as
 * each other, or one more. */
static inline int64_t wn__part_first(const struct wn__cut *c, int32_t part)
{
    int64_t stripes = wn__stripes(c), each = stripes / c->ranks, over = stripes % c->ranks;
    /* parts start, start + 1, ..., modulo their number, have one more; `more` of them are below this one */
    int64_t end = c->start + over, wrapped = end > c->ranks ? end - c->ranks : 0;
    int64_t more = (part < wrapped ? part : wrapped) + (part > c->start ? (part < end ? part : end) - c->start : 0);
    int64_t first = (each * part + more) * WN_STRIPE;
    return first < c->elements ? first : c->elements;
}
/* Returns the part that a rank owns. */
static inline int32_t wn__part_of(const struct wn__cut *c, int32_t rank)
{
    return rank % c->team * (c->ranks / c->team) + rank / c->team;
}
/* Returns the rank that owns a part. */
static inline int32_t wn__part_owner(const struct wn__cut *c, int32_t part)
{
    int32_t teams = c->ranks / c->team;
    return part % teams * c->team + part / teams;
}
/* Returns what a rank has of a value: its part, or the share of the ranks with its number. */
static inline struct wn__range wn__range_of(const struct wn__cut *c, int32_t rank, int32_t is_share)
{
    int32_t part = wn__part_of(c, rank), teams = c->ranks / c->team, first = is_share ? part / teams * teams : part;
    int64_t from = wn__part_first(c, first);
    return (struct wn__range){from, wn__part_first(c, first + (is_share ? teams : 1)) - from};
}
#endif
