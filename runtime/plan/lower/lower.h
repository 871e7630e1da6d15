/* The passes of lowering, in the order in which wn__lower runs them. Each takes what it reads and returns what it
 * makes:
 *
 *   issue.c      recipe               -> list, departures, effects' inputs   the order in which nodes are issued
 *   offload.c    list, departures     -> list       packs and offloads kept values, where something brings them back
 *   exchange.c   list                 -> list       puts exchanges among ranks into one order, starts and waits apart
 *   effects.c    list, their inputs   -> list       puts each effect where everything that it reads is done
 *   prefetch.c   list                 -> list       moves starts and waits of transfers apart, so that kernels run then
 *   liveness.c   list                 -> schedule   finds lifetimes, outputs that take over an input's bytes, and frees
 *
 * A pass has scratch memory of its own; what one pass makes is all that the next one knows of it. */
#ifndef WN_PLAN_LOWER_H
#define WN_PLAN_LOWER_H
#include "schedule.h"

/* An instruction before allocations and frees are known. Its fields are those of struct wn__instr. */
struct wn__item {
    int32_t node, phase, block, step, out, in_at;
    int32_t what, n_in, move;
};

/* The list that the passes hand on: instructions in order, their inputs, and the values that they make.
 * Invariant: an input of an item is the value of a leaf, or an item before it makes it. Until offload.c has run, the
 * kept form that an item brings back may have no item that makes it. */
struct wn__list {
    struct wn__item *item; /* (n_items) in the order of issue */
    int64_t n_items, item_capacity;
    int32_t *in; /* (n_in) values: inputs of all items; those of an item are in[in_at .. in_at + n_in) */
    int64_t n_in, in_capacity;
    struct wn__value *value; /* (n_values) */
    int64_t n_values, value_capacity;
    int32_t n_moves; /* transfers that items start, numbered from 0 */
};
/* Appends an item with room for n_in inputs, which the caller writes at l->in + in_at. NULL: WN_OOM. */
struct wn__item *wn__list_item(struct wn__list *l, int32_t n_in);
/* Makes room for n_in inputs of an item that is not in the list yet and returns where they begin. -1: WN_OOM. */
int32_t wn__list_inputs(struct wn__list *l, int32_t n_in);
/* Adds a value of a node, or of what `action` makes of it (0: none), and returns its number. -1: WN_OOM. */
int32_t wn__list_value(struct wn__list *l, int32_t node, int32_t action);
/* Puts more[k], of n, right before item at[k]; n_items: at the end. Those before one item keep their order. WN_OOM. */
int32_t wn__list_insert(struct wn__list *l, int32_t n, const struct wn__item *more, const int32_t *at);

/* A value that is kept with an action, after its last forward reader.
 * Invariant: item `after` makes or reads `value`, and no item that issue.c appends behind it does. */
struct wn__departure {
    int64_t after;
    int32_t value, kept; /* the value, and its kept form */
    int32_t is_used;     /* 1: an item brings the kept form back; a departure that is not used gets no instruction */
};
struct wn__departures {
    struct wn__departure *departure; /* (n) in the order in which values leave */
    int64_t n, capacity;
};

/* The result of following a recipe. Invariant: effect_in[e] is where list.in holds the inputs of effect e, all of
 * them. */
struct wn__issued {
    struct wn__list list;
    struct wn__departures departures;
    int32_t *effect_in; /* (n_effects of the IR) */
};

/* Issues what the recipe asks for. What is there is freed on failure too (lower.c). */
int32_t wn__lower_issue(const struct wn__ir *ir, const struct wn__recipe *r, struct wn__issued *out);
/* Puts the instructions of all departures that are used into the list. block_of: (n of the IR) the recipe's. */
int32_t wn__lower_departures(const int32_t *block_of, const struct wn__departures *d, struct wn__list *l);
/* Turns an item that makes a value by an exchange, or its start, into the wait for it: from its input, or itself, to
 * what it makes. */
int32_t wn__list_wait(struct wn__list *l, struct wn__item *it);
/* Makes exchanges of the states that are gathered from ranks. budget: 0: one such value at a time is there. */
int32_t wn__lower_gathers(const struct wn__ir *ir, int32_t budget, struct wn__list *l);
/* Puts starts and waits of exchanges among ranks in their place. budget: eighths of the bytes of all exchanges; group:
 * bytes that start together. */
int32_t wn__lower_exchanges(const struct wn__ir *ir, int32_t budget, int64_t group, struct wn__list *l);
/* Puts every effect into the list, each as early as it may be. effect_in: as in struct wn__issued; group: bytes of
 * exchanges that start together. */
int32_t wn__lower_effects(const struct wn__ir *ir, const int32_t *effect_in, int64_t group, struct wn__list *l);
/* Moves starts and waits of transfers in the list. budget: eighths of the bytes that offloading saves. */
int32_t wn__lower_prefetch(const struct wn__ir *ir, int32_t budget, struct wn__list *l);
/* Makes the schedule of a finished list: lifetimes, in-place outputs and frees. n_blocks: the recipe's. */
int32_t wn__lower_finish(const struct wn__ir *ir, int32_t n_blocks, const struct wn__list *l,
                         struct wn__schedule **out);
#endif
