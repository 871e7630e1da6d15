/* Step functions: the least time of something as a function of a budget of m bytes, stored as the list of corners where
 * the time falls. The chain solver's tables are such lists.
 *
 *   time |        (no value below the first corner)
 *        |   o-----------+
 *        |               o-------+
 *        |                       o---------------          o: a corner (bytes, time)
 *        +---|-----------|-------|----------------> m
 */
#ifndef WN_PLAN_CHAIN_STEP_FUNCTION_H
#define WN_PLAN_CHAIN_STEP_FUNCTION_H
#include <stdint.h>

#define WN__STEP_NEVER (INT64_C(1) << 60) /* bytes above every budget */

/* From `bytes` on, up to the next corner, the function has this value. */
struct wn__corner {
    int64_t bytes, time;
    int64_t ties; /* forward runs * 2^32 + operations of the schedule: ranks equal times, fewer first */
};

/* Invariant: bytes strictly ascend and times strictly descend; at[n].bytes is WN__STEP_NEVER, so that loops over
 * corners need no end. */
struct wn__step_function {
    const struct wn__corner *at; /* (n + 1) */
    int32_t n;                   /* corners; 0: no value anywhere */
};

/* The step function of m: a(m - a_shift) + b(m - b_shift) + time, without a value below `least` bytes. */
struct wn__step_sum {
    int64_t least, time, ties;
    const struct wn__step_function *a, *b; /* NULL: the function that is 0 everywhere */
    int64_t a_shift, b_shift;              /* bytes */
};

/* The lower envelope of sums: the least time of any of them at each m. A zeroed struct is empty; it may be made again,
 * which uses its memory again. */
struct wn__envelope {
    struct wn__step_sum *sum; /* (n_sums) put since the last wn__envelope_make */
    int64_t n_sums, sum_room;
    struct wn__corner *at; /* (n + 1) the envelope, as the corners of a step function */
    int64_t n, room;
    struct wn__span *span; /* (span_room) scratch of wn__envelope_make */
    int64_t span_room;
};

/* Returns the index of the corner that holds at m bytes; -1: the function has no value there. */
int32_t wn__step_function_find(const struct wn__step_function *s, int64_t m);
/* Fills the value of a sum at m bytes. Returns 0 if it has none there. */
int32_t wn__step_sum_at(const struct wn__step_sum *sum, int64_t m, struct wn__corner *out);

/* Adds a sum to those of the next wn__envelope_make. WN_OOM. */
int32_t wn__envelope_put(struct wn__envelope *e, const struct wn__step_sum *sum);
/* Makes the envelope of the sums that were put, and forgets the sums. WN_OOM. */
int32_t wn__envelope_make(struct wn__envelope *e);
/* Drops each corner whose time is at most `tolerance` below that of the last corner kept before it. The first and the
 * last corner stay. */
void wn__envelope_thin(struct wn__envelope *e, int64_t tolerance);
/* Frees the envelope's memory, and leaves it empty. */
void wn__envelope_release(struct wn__envelope *e);
#endif
