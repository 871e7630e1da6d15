/* The tree of regions and units: finds an ancestor of any depth in O(log depth) steps, and says in one step what is
 * inside of what. Each place knows its parent and one ancestor further up, its jump. The lengths of jumps follow the
 * digits of a skew binary number (Myers: "Applicative random-access stacks", 1983): the jump of a child spans both
 * jumps above it where these are equally long, and one level where they are not. */
#include "nesting.h"

static int32_t parent_in(const struct wn__ir *ir, const struct wn__marks *marks, int32_t place)
{
    int32_t unit = place - ir->n_regions;
    if (unit <= 0) return ir->region_parent[place - 1];
    int32_t parent = unit <= ir->n ? marks->unit_parent[unit - 1] : 0;
    return parent > 0 ? ir->n_regions + parent : 0;
}

static void put_place(struct wn__nesting *t, int32_t place, int32_t parent)
{
    int32_t jump = t->jump[parent], next = t->jump[jump];
    int32_t is_equal = t->depth[parent] - t->depth[jump] == t->depth[jump] - t->depth[next];
    t->parent[place] = parent;
    t->depth[place] = t->depth[parent] + 1;
    t->jump[place] = is_equal ? next : parent;
}

/* Numbers the places in preorder, children in the order of their numbers. next: (last + 1) scratch, the rank of a
 * place's next child. */
static void put_ranks(struct wn__nesting *t, int32_t last, int32_t *next)
{
    for (int32_t place = 0; place <= last; place++) t->limit[place] = 1;
    for (int32_t place = last; place > 0; place--) t->limit[t->parent[place]] += t->limit[place];
    next[0] = 1;
    for (int32_t place = 1; place <= last; place++) {
        int32_t *of_parent = &next[t->parent[place]];
        t->rank[place] = *of_parent;
        *of_parent += t->limit[place];
        t->limit[place] += t->rank[place];
        next[place] = t->rank[place] + 1;
    }
}

int32_t wn__nesting_make(const struct wn__ir *ir, const struct wn__marks *marks, int32_t last, struct wn__pool *pool,
                         struct wn__nesting *out)
{
    int32_t *next;
    if (!WN_ARRAY(pool, out->parent, last) || !WN_ARRAY(pool, out->depth, last) || !WN_ARRAY(pool, out->jump, last) ||
        !WN_ARRAY(pool, out->rank, last) || !WN_ARRAY(pool, out->limit, last) || !WN_ARRAY(pool, next, last))
        return WN_OOM;
    for (int32_t place = 1; place <= last; place++) put_place(out, place, parent_in(ir, marks, place));
    put_ranks(out, last, next);
    return WN_OK;
}

int32_t wn__nesting_child(const struct wn__nesting *t, int32_t region, int32_t place)
{
    int32_t depth = t->depth[region] + 1;
    if (place == region) return 0;
    while (t->depth[place] > depth) place = t->depth[t->jump[place]] >= depth ? t->jump[place] : t->parent[place];
    return place;
}
