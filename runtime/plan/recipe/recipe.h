/* The recipe: the one form of a decision. Policies compile to it, planners emit it, lowering reads only it.
 *
 *   F b        issue block b's forward as far as it is needed; keep only what later blocks read
 *   Fe b {Q}   the same, and keep Q
 *   Free b {Q} let go of everything of block b but Q
 *   B b        issue the backward of block b; a value let go is computed again right before its first reader
 *
 * Each step carries its keep set in full: after F, Fe and Free exactly these values of the block stay. A value that is
 * kept with an action (action.h) is in its kept form from its last forward reader on, until it is read again. */
#ifndef WN_PLAN_RECIPE_H
#define WN_PLAN_RECIPE_H
#include "../../wane.h"
#include "../ir/marks.h"

#define WN__PREFETCH 2 /* eighths: the prefetch budget of a recipe that says none */
#define WN__GROUP (-1) /* the group of one that says none: wn__exchange_group chooses */

/* Invariant: no node is twice in a keep set, and every one is a forward node of the block. */
struct wn__recipe_step {
    int32_t kind, block,
        root;                /* WN_STEP_, but for SHRINK; its block; the root whose forward or backward it is part of */
    int32_t keep_at, n_keep; /* the keep set: recipe->keep[keep_at .. keep_at + n_keep), nodes in ascending order */
};

struct wn__recipe {
    struct wn__pool pool;
    struct wn__recipe_step *step;
    int32_t n, capacity;
    int32_t *keep;
    int32_t *action; /* (n_keep) the action that each of `keep` is kept with; 0: none */
    int32_t n_keep, keep_capacity;
    int32_t
        prefetch;  /* prefetch budget: transfers may hold prefetch / 8 of the bytes that offloading saves, and exchanges
                         among ranks under way prefetch / 8 of the bytes of all of them */
    int64_t group; /* consecutive exchanges among ranks start together until these are so many bytes; or WN__GROUP */
    int32_t
        *block_of; /* (ir->n) the block of a forward node, and of a backward node by the one that it serves; else -1 */
    int32_t *first, *limit; /* (n_blocks) a block's nodes are the forward nodes of [first, limit) with its number */
    int32_t n_blocks;
    int32_t *last; /* (ir->n) the last forward reader of a value's bytes; the node itself when there is none */
};

/* Returns whether every step keeps a node's value: a result, a bound input, an integer, or a value that a decision
 * saves, with an action or without. */
static inline int32_t wn__recipe_always_keeps(const struct wn__ir *ir, const struct wn__marks *marks, int32_t node)
{
    return ir->node[node].result >= 0 || ir->node[node].bound || (wn__ir_flags(ir, node) & WN_INDEX) ||
           marks->decision[node] == WN_DECISION_SAVE || marks->decision[node] > WN_DECISION_RECOMPUTE;
}
/* Returns whether no step may keep a node's value once the backward has begun, because a decision says so. */
static inline int32_t wn__recipe_must_go(const struct wn__ir *ir, const struct wn__marks *marks, int32_t node)
{
    return marks->decision[node] == WN_DECISION_RECOMPUTE && !wn__recipe_always_keeps(ir, marks, node);
}
/* Returns the end of the blocks of the root that starts with block lo. */
static inline int32_t wn__recipe_root_end(const struct wn__ir *ir, const struct wn__recipe *r, int32_t lo)
{
    int32_t hi = lo;
    while (hi < r->n_blocks && ir->node[r->first[hi]].root == ir->node[r->first[lo]].root) hi++;
    return hi;
}
/* Makes r an empty recipe with room for `most` blocks. WN_OOM. Release it on failure too. */
int32_t wn__recipe_make(const struct wn__ir *ir, int32_t most, struct wn__recipe *r);
/* Makes `out` a recipe with the blocks of r, whose arrays it shares, and without steps. */
void wn__recipe_begin(const struct wn__recipe *r, struct wn__recipe *out);
/* Makes room for `more` values behind the keep sets there are. WN_OOM. wn__recipe_keep then writes the k-th of them,
 * with its action, and wn__recipe_put adds the step that has the first n_keep of them. */
int32_t wn__recipe_room(struct wn__recipe *r, int32_t more);
static inline void wn__recipe_keep(struct wn__recipe *r, int32_t k, int32_t node, int32_t action)
{
    r->keep[r->n_keep + k] = node;
    r->action[r->n_keep + k] = action;
}
int32_t wn__recipe_put(struct wn__recipe *r, int32_t kind, int32_t block, int32_t root, int32_t n_keep);

/* Makes the recipe of the IR's regions and of marks. WN_OOM. Release it on failure too. */
int32_t wn__recipe_compile(const struct wn__ir *ir, const struct wn__marks *marks, struct wn__recipe *r);
void wn__recipe_release(struct wn__recipe *r);
/* Gives every backward node the block of the forward node that it serves. */
void wn__recipe_serve(const struct wn__ir *ir, struct wn__recipe *r);

enum { WN__GONE = -1 }; /* in place of an action: the value is not kept */
/* A change of a recipe: how one value is kept from one step on until its block runs again. */
struct wn__change {
    int32_t step, node; /* an F or Fe step; a node of its block */
    int32_t to;         /* WN__GONE, or the action that the value is kept with, 0: as it is */
};
/* Adds to `out` the steps of r with n changes, no two of one step and node (change.c). Requires that `out` has the
 * blocks of r and no steps. WN_OOM. */
int32_t wn__recipe_change(const struct wn__ir *ir, const struct wn__recipe *r, const struct wn__change *change,
                          int32_t n, struct wn__recipe *out);
/* Lets values whose decision is 'recompute' go before the backward, whoever proposed the recipe (change.c). Its blocks
 * stay, its steps and keep sets become new ones. WN_OOM. Release it on failure too. */
int32_t wn__recipe_obey(const struct wn__ir *ir, const struct wn__marks *marks, struct wn__recipe *r);

/* Writes a recipe as lines of text, for people and for the key, into `pool` (text.c). WN_OOM. */
int32_t wn__recipe_text(const struct wn__ir *ir, const struct wn__recipe *r, struct wn__pool *pool, char **out);
/* Makes a recipe of what a script gave (text.c). WN_ILLEGAL names the step and the rule. Release it on failure too. */
int32_t wn__recipe_read(const struct wn__ir *ir, const struct wn_recipe_given *g, struct wn__recipe *r);
#endif
