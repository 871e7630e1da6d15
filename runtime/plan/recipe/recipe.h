/* The recipe: the one form of a decision. Policies compile to it, planners emit it, lowering reads only it.
 *
 *   F b        issue block b's forward as far as it is needed; keep only what later blocks read
 *   Fe b {Q}   the same, and keep Q
 *   Free b {Q} let go of everything of block b but Q
 *   B b        issue the backward of block b; a value let go is computed again right before its first reader
 *
 * Each step carries its keep set in full: after F, Fe and Free exactly these values of the block stay. A value kept with
 * an action (action.h) is in its kept form from its last forward reader on, until it is read again. */
#ifndef WN_PLAN_RECIPE_H
#define WN_PLAN_RECIPE_H
#include "../../wane.h"
#include "../ir/ir.h"

enum wn__recipe_kind { WN_RECIPE_F, WN_RECIPE_FE, WN_RECIPE_FREE, WN_RECIPE_B };

#define WN__PREFETCH 2 /* of recipes that nobody tuned: a quarter */

struct wn__recipe_step {
    int32_t kind, block, root;
    int32_t keep_at, n_keep; /* recipe->keep[keep_at ..): node numbers, ascending */
};

struct wn__recipe {
    struct wn__pool pool;
    struct wn__recipe_step *step;
    int32_t n, capacity;
    int32_t *keep;
    int32_t *action; /* (n_keep) beside keep; 0: it stays as it is. NULL: all do */
    int32_t n_keep, keep_capacity;
    int32_t prefetch;       /* moves may take that many eighths of what offloading gives, to be under way in time */
    int32_t *block_of;      /* (ir->n) of forward nodes, and of backward ones by what they serve; else -1 */
    int32_t *first, *limit; /* (n_blocks) the block's nodes: forward nodes of [first, limit) */
    int32_t n_blocks;
    int32_t *last; /* (ir->n) last forward reader of a value's bytes; itself when there is none */
};

/* What every step keeps: results, values there already, integers, and what a decision saves, with an action or without. */
static inline int32_t wn__recipe_always_keeps(const struct wn__ir *f, int32_t node)
{
    return f->node[node].result >= 0 || f->node[node].bound || (wn__ir_flags(f, node) & WN_INDEX) ||
           f->node[node].decision == WN_DECISION_SAVE || f->node[node].decision > WN_DECISION_RECOMPUTE;
}
/* Building one: room for `more` values of a keep set, the k-th of them kept with an action, then the step that has them. */
int32_t wn__recipe_room(struct wn__recipe *r, int32_t more);
static inline void wn__recipe_keep(struct wn__recipe *r, int32_t k, int32_t node, int32_t action)
{
    r->keep[r->n_keep + k] = node;
    r->action[r->n_keep + k] = action;
}
int32_t wn__recipe_put(struct wn__recipe *r, int32_t kind, int32_t block, int32_t root, int32_t n_keep);

/* Words (IR's), region marks and units -> a recipe. */
int32_t wn__recipe_compile(const struct wn__ir *f, struct wn__recipe *r);
void wn__recipe_release(struct wn__recipe *r);
/* Backward nodes belong to the block of the forward node they serve. */
void wn__recipe_serve(const struct wn__ir *f, struct wn__recipe *r);

/* obey.c: values whose decision is 'recompute' are let go before the backward, whoever proposed the recipe; to be released on
 * failure too. Its blocks stay, its steps and keep sets become new ones. */
int32_t wn__recipe_obey(const struct wn__ir *f, struct wn__recipe *r);

/* recipe/text.c: as lines, for people and for the key; into the pool given. */
int32_t wn__recipe_text(const struct wn__ir *f, const struct wn__recipe *r, struct wn__pool *pool, char **out);
/* From a script. WN_ILLEGAL names the step and the rule; to be released on failure too. */
int32_t wn__recipe_read(const struct wn__ir *f, const struct wn_recipe_given *g, struct wn__recipe *r);
#endif
