/* Step functions of a memory budget: how fast something can be done with m bytes. The planner's one kind of table.
 *
 * A list of corners, bytes up and time strictly down: with m bytes the value is that of the last corner whose bytes
 * are at most m; below the first there is none. After the last corner stands one of WN__STEP_NEVER bytes, so that
 * walks need no end. `ties` ranks equal times: forward runs in the upper half, operations in the lower. */
#ifndef WN_PLAN_CHAIN_STEP_FUNCTION_H
#define WN_PLAN_CHAIN_STEP_FUNCTION_H
#include <stdint.h>

#define WN__STEP_NEVER (INT64_C(1) << 60)

struct wn__corner {
    int64_t bytes, time, ties;
};

struct wn__step_function {
    const struct wn__corner *at; /* (n + 1) */
    int32_t n;
};

/* The sum of up to two step functions, each moved up by some bytes, plus a constant; none below `least`. */
struct wn__step_sum {
    int64_t least, time, ties;
    const struct wn__step_function *a, *b; /* NULL: the function that is 0 everywhere */
    int64_t a_shift, b_shift;
};

/* The lower envelope of sums, and what is used while it is made; starts zeroed, may be made again. */
struct wn__envelope {
    struct wn__step_sum *sum; /* put in by wn__envelope_put */
    int64_t n_sums, sum_room;
    struct wn__corner *at; /* (n + 1) made by wn__envelope_make */
    int64_t n, room;
    struct wn__span *span;
    int64_t span_room;
};

/* The corner that holds at m bytes, or -1. */
int32_t wn__step_function_find(const struct wn__step_function *s, int64_t m);
/* The value of a sum at m bytes; 0 when it has none there. */
int32_t wn__step_sum_at(const struct wn__step_sum *sum, int64_t m, struct wn__corner *out);

int32_t wn__envelope_put(struct wn__envelope *e, const struct wn__step_sum *sum);
int32_t wn__envelope_make(struct wn__envelope *e);
/* Leaves out corners that gain no more than `tolerance` over the one kept before; the first and the last stay. */
void wn__envelope_thin(struct wn__envelope *e, int64_t tolerance);
void wn__envelope_release(struct wn__envelope *e);
#endif
