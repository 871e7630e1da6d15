/* What the passes of lowering share, in the order in which they run:
 *
 *   lower.c      follows the recipe: the order in which nodes are issued, and issued again
 *   offload.c    puts in what leaves after its last forward reader, and what brings it back
 *   prefetch.c   moves the starts and waits of transfers apart, so that kernels run meanwhile
 *   effects.c    puts updates and assignments where everything they read is done
 *   liveness.c   finds lifetimes, outputs that take over an input's bytes, and frees, and writes the schedule */
#ifndef WN_PLAN_LOWER_H
#define WN_PLAN_LOWER_H
#include "schedule.h"

/* An instruction before allocations and frees are known. Its fields are those of struct wn__instr. */
struct wn__item {
    int32_t node, phase, block, out, in_at;
    int32_t what, n_in, move;
};

/* A value that is kept with an action: it leaves after its last forward reader. It gets an instruction only if something
 * brings it back. */
struct wn__departure {
    int64_t after;          /* item that it leaves after */
    int32_t value, kept;    /* the value that leaves, and the value that it becomes */
    int32_t phase, is_used; /* is_used: something brings it back */
};

struct wn__lowering {
    const struct wn__ir *f;
    const struct wn__recipe *r;
    struct wn__pool scratch;
    int32_t code, in_backward;
    struct wn__item *item;
    int64_t n_items, item_capacity;
    int32_t *in; /* (n_in) values: inputs of all items, one after the other */
    int64_t n_in, in_capacity;
    struct wn__value *value;
    int64_t n_values, value_capacity;
    int32_t *cur;                /* (f->n) the node's value that readers take now; -1: none */
    int32_t *kept;               /* (f->n) the value that its value became by an action; -1: none */
    int32_t *part;               /* (f->n) the value that a partial action gave back of it (action.h); -1: none */
    int32_t *leaving, n_leaving; /* (f->n) nodes kept with an action that forward readers still need */
    int32_t *action;             /* (f->n) the action that a node is kept with; 0: none */
    int64_t *used;               /* (values) the last item that makes or reads a value */
    int64_t used_capacity;
    struct wn__departure *departure;
    int64_t n_departures, departure_capacity;
    int32_t n_moves;
    int32_t *needed;               /* (f->n) scratch of the search for what a node needs */
    int32_t *reissued, n_reissued; /* (f->n) states in another layout, issued in this step of the recipe for it alone */
    uint8_t *mark, *useful, *reached, *issued_once;
    int32_t *backward_first, *backward_next;
    int32_t *effect_in; /* (n_effects) index in `in` of the inputs of an effect that computes its gradient; -1: none */
};

/* Adds a value of a node, or of what `action` makes of it, and returns its number. */
int32_t wn__lower_value(struct wn__lowering *l, int32_t node, int32_t action);
/* Appends an item with room for n_in inputs, which the caller writes at l->in + in_at. NULL once something failed. */
struct wn__item *wn__lower_item(struct wn__lowering *l, int32_t what, int32_t node, int32_t out, int32_t n_in);
/* Sorts n numbers. */
void wn__sort_ascending(int32_t *v, int32_t n);
/* offload.c */
/* Notes that a step of the recipe keeps a node's value with an action. */
void wn__lower_kept(struct wn__lowering *l, int32_t node, int32_t action);
/* Notes that a step lets a value go, wherever it is. */
void wn__lower_forgotten(struct wn__lowering *l, int32_t node);
/* Lets every kept value leave that no forward node from `limit` on reads. */
void wn__lower_leave(struct wn__lowering *l, int32_t limit);
/* Whether a value can be brought back whole from where an action took it. */
int32_t wn__lower_comes_back(const struct wn__lowering *l, int32_t node);
/* Whether a part of input k of a node, which a partial action gave back, is all that the node reads of it. */
int32_t wn__lower_has_part(const struct wn__lowering *l, int32_t node, int32_t k);
/* Brings a value back. */
void wn__lower_return(struct wn__lowering *l, int32_t node);
/* Puts the instructions of all departures that are used into the list. */
int32_t wn__lower_departures(struct wn__lowering *l);
/* effects.c, prefetch.c, liveness.c: the passes named above. */
int32_t wn__lower_effects(struct wn__lowering *l);
int32_t wn__lower_prefetch(struct wn__lowering *l);
int32_t wn__lower_finish(struct wn__lowering *l, struct wn__schedule **out);
#endif
