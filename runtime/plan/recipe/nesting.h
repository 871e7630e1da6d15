/* The tree of regions and units. A place is a number: 0 is outside every region, 1 to n_regions are the IR's regions,
 * and the units of a policy follow them. A place's parent has a smaller number than the place. */
#ifndef WN_PLAN_RECIPE_NESTING_H
#define WN_PLAN_RECIPE_NESTING_H
#include "../ir/ir.h"

/* Arrays of one number a place. The parent, depth and jump of place 0 are 0. */
struct wn__nesting {
    int32_t *parent;
    int32_t *depth;
    int32_t *jump;  /* an ancestor further up */
    int32_t *rank;  /* position in a preorder of the tree */
    int32_t *limit; /* places of ranks from rank[p] up to this are inside of p, itself among them */
};
/* Makes the tree of an IR's places up to `last` in `pool`. */
int32_t wn__nesting_make(const struct wn__ir *f, int32_t last, struct wn__pool *pool, struct wn__nesting *out);
/* Returns the child of `region` that `place` is inside of, which may be `place`; 0 when `place` is `region`. Requires that
 * `region` holds `place`. Takes steps in proportion to the logarithm of the depth. */
int32_t wn__nesting_child(const struct wn__nesting *t, int32_t region, int32_t place);
/* Whether `place` is `region` or inside of it. Takes one step. */
static inline int32_t wn__nesting_holds(const struct wn__nesting *t, int32_t region, int32_t place)
{
    return t->rank[place] >= t->rank[region] && t->rank[place] < t->limit[region];
}
#endif
