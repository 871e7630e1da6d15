/* What the rooms of lowering share: lower.c (order of issue), offload.c (what leaves and comes back), effects.c (where
 * effects stand), liveness.c (lifetimes, in-place, frees, the finished list). */
#ifndef WN_PLAN_LOWER_H
#define WN_PLAN_LOWER_H
#include "schedule.h"

struct wn__item { /* an issue, before allocations and frees are known */
    int32_t node, phase, block, out, in_at;
    int32_t what, n_in, move;
};

/* A kept value that leaves after its last forward reader; put in when it is brought back, else never. */
struct wn__departure {
    int64_t after; /* item */
    int32_t copy, away, phase, is_used;
};

struct wn__lowering {
    const struct wn__ir *f;
    const struct wn__recipe *r;
    struct wn__pool scratch;
    int32_t code, in_backward;
    struct wn__item *item;
    int64_t n_items, item_capacity;
    int32_t *in; /* copies */
    int64_t n_in, in_capacity;
    struct wn__copy *copy;
    int64_t n_copies, copy_capacity;
    int32_t *cur;                /* (f->n) the copy a value is to be had from now, or -1 */
    int32_t *away;               /* (f->n) the copy it has become, or -1 */
    int32_t *part;               /* (f->n) what a partial action gave back of it (action.h), or -1 */
    int32_t *leaving, n_leaving; /* (f->n) kept with an action, and still there for forward readers */
    int32_t *action;             /* (f->n) that action, or 0 */
    int64_t *used;               /* (copies) last item that makes or reads it */
    int64_t used_capacity;
    struct wn__departure *departure;
    int64_t n_departures, departure_capacity;
    int32_t n_moves;
    int32_t *needed;               /* (f->n) scratch of demand */
    int32_t *reissued, n_reissued; /* (f->n) those issued in this step: forgotten at its end */
    uint8_t *mark, *useful, *reached, *issued_once;
    int32_t *backward_first, *backward_next;
    int32_t *effect_in; /* (n_effects) where its inputs' copies were noted when its gradient's turn came, or -1 */
};

int32_t wn__lower_copy(struct wn__lowering *l, int32_t node, int32_t away);
/* An item with room for n_in inputs, to be written at l->in + in_at; NULL once something failed. */
struct wn__item *wn__lower_item(struct wn__lowering *l, int32_t what, int32_t node, int32_t out, int32_t n_in);
void wn__sort_ascending(int32_t *v, int32_t n);
/* offload.c */
void wn__lower_kept(struct wn__lowering *l, int32_t node, int32_t action); /* from a step's keep set */
void wn__lower_forgotten(struct wn__lowering *l, int32_t node);
void wn__lower_leave(struct wn__lowering *l, int32_t limit); /* what no forward node from `limit` on reads leaves */
int32_t wn__lower_comes_back(const struct wn__lowering *l, int32_t node); /* whole, from where it is */
/* Whether input k of a node, whose value is not there, is served by the part of it that comes back. */
int32_t wn__lower_has_part(const struct wn__lowering *l, int32_t node, int32_t k);
void wn__lower_return(struct wn__lowering *l, int32_t node);
int32_t wn__lower_departures(struct wn__lowering *l); /* into the list */
int32_t wn__lower_effects(struct wn__lowering *l);
int32_t wn__lower_prefetch(struct wn__lowering *l); /* prefetch.c: moves get time to be hidden */
int32_t wn__lower_finish(struct wn__lowering *l, struct wn__schedule **out);
#endif
