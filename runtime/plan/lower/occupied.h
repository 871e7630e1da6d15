/* Holds the bytes of one address space that are taken, each stretch over a span of instructions, and finds the
 * lowest address at which another stretch fits. */
#ifndef WN_PLAN_LOWER_OCCUPIED_H
#define WN_PLAN_LOWER_OCCUPIED_H
#include "../../base/alloc.h"

struct wn__stretch {
    int64_t at, end;
    int32_t first, last; /* the instructions that it is taken from and to, both included */
};
struct wn__stretches { /* Stretches by address. */
    struct wn__stretch *item;
    int64_t room;
    int32_t n;
};
struct wn__occupied {
    struct wn__span_of_time *span; /* (n_spans) spans of time, of `width` instructions each */
    int32_t n_spans, width;
};

/* Makes an empty account of `instructions` and about `most` stretches. WN_OOM. Release it on failure too. */
int32_t wn__occupied_make(struct wn__occupied *o, int64_t most, int32_t instructions);
void wn__occupied_release(struct wn__occupied *o);
void wn__occupied_clear(struct wn__occupied *o);
/* Takes the bytes of a stretch. WN_OOM. */
int32_t wn__occupied_add(struct wn__occupied *o, const struct wn__stretch *s);
/* Starts a search upwards for a place for bytes that live from instruction `first` to `last`. */
void wn__occupied_start(struct wn__occupied *o, int32_t first, int32_t last);
/* Returns `at` when nothing is in the way of [at, end) during first..last, else a higher address below which the
 * bytes cannot begin. Calls after one start must not lower `at`. */
int64_t wn__occupied_above(struct wn__occupied *o, int64_t at, int64_t end, int32_t first, int32_t last);
#endif
