/* State of following a recipe: issue.c follows it, residency.c keeps account of where values are. */
#ifndef WN_PLAN_LOWER_ISSUE_H
#define WN_PLAN_LOWER_ISSUE_H
#include "lower.h"

/* Where the value of each node is: numbers of values, (n of the IR) each; -1: none.
 * Invariant: part[i] >= 0 only where kept[i] >= 0. */
struct wn__residency {
    int32_t *now;  /* the value that readers take */
    int32_t *kept; /* the kept form that an action made of it */
    int32_t *part; /* the value that a partial action gave back of it (action.h) */
};
/* Nodes that are kept with an action and that forward readers still need.
 * Invariant: action[i] != 0 exactly where i is one of node[0 .. n). */
struct wn__leaving {
    int32_t *node, n; /* (n of the IR) of them n are in use */
    int32_t *action;  /* (n of the IR) the action that a node is kept with; 0: none */
};
/* Invariant: every value of the list that an item makes or reads has the number of the last such item. */
struct wn__last_uses {
    int64_t *item; /* (n_values of the list) -1: none */
    int64_t capacity;
};
/* Nodes that must be issued for the demand of one. Invariant: between two demands, no byte of is_needed is set. */
struct wn__needs {
    int32_t *node;      /* (n of the IR) */
    uint8_t *is_needed; /* (n of the IR) 1: it is one of `node` */
};
/* Goals of the graph, whatever the recipe is: (n of the IR) each. Invariant: is_reached[i] only where is_useful[i]. */
struct wn__goals {
    uint8_t *is_useful;  /* 1: an effect or a result depends on the node */
    uint8_t *is_reached; /* 1: one depends on it through forward values only; nothing below a bound input counts */
};
/* The backward nodes of each block in the order in which gradients were recorded, as threaded lists; -1 ends one. */
struct wn__backward_lists {
    int32_t *first; /* (n_blocks + 1) */
    int32_t *next;  /* (n of the IR) */
};

struct wn__issuing {
    const struct wn__ir *ir;
    const struct wn__recipe *r;
    struct wn__issued *out;
    struct wn__residency at;
    struct wn__leaving leaving;
    struct wn__last_uses last;
    struct wn__needs needs;
    struct wn__goals goals;
    struct wn__backward_lists backward;
    uint8_t *is_issued;            /* (n of the IR) 1: an item runs the node */
    uint8_t *is_held;              /* (n of the IR) 1: a reissued node that the last step of its block keeps */
    int32_t *reissued, n_reissued; /* (n of the IR) states in another layout that this step of the recipe issued */
    int32_t step;                  /* the step of the recipe that is followed */
    int32_t in_backward;           /* 1: a B of the root that is followed has begun */
    int32_t code;                  /* the first failure; after it nothing is added */
};

/* Adds a value to the list and to the last uses. -1 once something failed. */
int32_t wn__issue_value(struct wn__issuing *x, int32_t node, int32_t action);
/* Appends an item that makes value `out` (-1: none), with room for n_in inputs. NULL once something failed. */
struct wn__item *wn__issue_item(struct wn__issuing *x, int32_t what, int32_t node, int32_t out, int32_t n_in);

/* ---- residency.c */
/* Notes that a step of the recipe keeps a node's value with an action. */
void wn__residency_keep(struct wn__issuing *x, int32_t node, int32_t action);
/* Notes that a step lets go of a node's value, in every form. */
void wn__residency_forget(struct wn__issuing *x, int32_t node);
/* Lets every kept value leave that no forward node from `limit` on reads. */
void wn__residency_leave(struct wn__issuing *x, int32_t limit);
/* Returns whether a node's value can be brought back whole from its kept form. */
int32_t wn__residency_comes_back(const struct wn__issuing *x, int32_t node);
/* Returns whether what a partial action gives back of input k of a node is all that the node reads of it. */
int32_t wn__residency_has_part(const struct wn__issuing *x, int32_t node, int32_t k);
/* Appends the items that bring a node's value back. Requires that it has a kept form. */
void wn__residency_return(struct wn__issuing *x, int32_t node);
#endif
