/* The tree of regions and units. A place is a number: 0 is outside every region, 1 to n_regions are the IR's regions,
 * and the units of a policy follow them. A place's parent has a smaller number than the place. */
#ifndef WN_PLAN_RECIPE_NESTING_H
#define WN_PLAN_RECIPE_NESTING_H
#include "../ir/marks.h"

/* The tree, as arrays of one number a place. Invariant: parent[p] < p for every place but 0; parent, depth and jump
 * of place 0 are 0. */
struct wn__nesting {
    int32_t *parent;
    int32_t *depth;
    int32_t *jump;  /* an ancestor, at least as far up as the parent */
    int32_t *rank;  /* position in a preorder of the tree */
    int32_t *limit; /* the places of ranks rank[p] .. limit[p] - 1 are p and those inside of it */
};
/* Makes the tree of the places 0 .. last of an IR and its marks in `pool`. WN_OOM. */
int32_t wn__nesting_make(const struct wn__ir *ir, const struct wn__marks *marks, int32_t last, struct wn__pool *pool,
                         struct wn__nesting *out);
/* Returns the child of `region` that `place` is inside of, which may be `place`; 0 when `place` is `region`.
 * Requires that `region` holds `place`. Takes O(log depth) steps. */
int32_t wn__nesting_child(const struct wn__nesting *t, int32_t region, int32_t place);
/* Returns whether `place` is `region` or inside of it, in one step. */
static inline int32_t wn__nesting_holds(const struct wn__nesting *t, int32_t region, int32_t place)
{
    return t->rank[place] >= t->rank[region] && t->rank[place] < t->limit[region];
}
#endif
