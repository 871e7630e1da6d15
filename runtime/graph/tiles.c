/* Gradients of slices. A value that is read in slices (NARROW), as the steps of a sequence or the parts of a split are,
 * gets one gradient a slice. Each alone would be written among zeros, in the size of the value, and added to the rest:
 * n slices would move n times the bytes of the value. So the gradients of slices wait for the turn of the value, and
 * where the slices tile one dim of it, each element in one slice, their gradients are put side by side (CAT).
 *
 * Invariant: what is emitted depends on where slices begin only if slices that need a gradient leave no place of a dim
 * of their value out. There the key of a program holds where they begin (wn__tiles_encode); a window that moves has one
 * key. */
#include <stdlib.h>
#include "../base/alloc.h"
#include "emit.h"
#include "encode.h"

enum { MOST = 1000 }; /* inputs of one CAT */

/* ---- slices of a value ------------------------------------------------------------------------------- */

void wn__tiles_wait(struct wn_node *n)
{
    n->slice = n->in[0]->slice;
    n->in[0]->slice = n;
}

/* Takes the slices that wait for v into a new array, in the order in which they began to wait. */
static int32_t take_slices(struct wn_node *v, struct wn_node ***out, int64_t *count)
{
    *count = 0;
    for (const struct wn_node *n = v->slice; n != NULL; n = n->slice) ++*count;
    *out = wn__alloc(*count * (int64_t)sizeof **out);
    if (*out == NULL) return WN_OOM;
    int64_t at = *count;
    for (struct wn_node *n = v->slice; n != NULL; n = n->slice) (*out)[--at] = n;
    v->slice = NULL;
    return WN_OK;
}

static int64_t dim_of(const struct wn_node *slice)
{
    return slice->attrs.i[0];
}

static int64_t start_of(const struct wn_node *slice)
{
    return slice->attrs.i[WN_OFFSET_AT];
}

static int64_t end_of(const struct wn_node *slice)
{
    return start_of(slice) + slice->type.dim[dim_of(slice)];
}

static int by_place(const void *a, const void *b)
{
    const struct wn_node *s = *(struct wn_node *const *)a, *t = *(struct wn_node *const *)b;
    int64_t i = dim_of(s) != dim_of(t) ? dim_of(s) : start_of(s), j = dim_of(s) != dim_of(t) ? dim_of(t) : start_of(t);
    return (i > j) - (i < j);
}

/* Returns whether sorted slices leave no place of a dim of v out. */
static int32_t is_covered(const struct wn_node *v, struct wn_node *const *slice, int64_t count)
{
    int64_t end = 0;
    for (int64_t i = 0; i < count; i++) {
        if (i == 0 || dim_of(slice[i]) != dim_of(slice[i - 1])) end = 0;
        if (start_of(slice[i]) <= end && end_of(slice[i]) > end) end = end_of(slice[i]);
        if (end == v->type.dim[dim_of(slice[i])]) return 1;
    }
    return 0;
}

/* Returns whether sorted slices tile a dim of v, all of them plain. */
static int32_t is_tiled(const struct wn_node *v, struct wn_node *const *slice, int64_t count)
{
    int64_t end = 0;
    if (v->type.layout != WN_PLAIN) return 0;
    for (int64_t i = 0; i < count; i++) {
        if (dim_of(slice[i]) != dim_of(slice[0]) || slice[i]->grad->type.layout != WN_PLAIN) return 0;
        if (start_of(slice[i]) != end) return 0;
        end = end_of(slice[i]);
    }
    return end == v->type.dim[dim_of(slice[0])];
}

/* ---- the key ----------------------------------------------------------------------------------------- */

static int32_t is_slice(const struct wn_node *n)
{
    return n->op == WN_OP_NARROW && n->needs_grad && n->n_in == 1;
}

/* Writes where the slices that wait for v begin, if they leave nothing of it out. */
static int32_t encode_slices(struct wn__bytes *b, struct wn_node *v)
{
    struct wn_node **slice;
    int64_t count;
    WN_TRY(take_slices(v, &slice, &count));
    qsort(slice, (size_t)count, sizeof *slice, by_place);
    for (int64_t i = 0, all = is_covered(v, slice, count) ? count : 0; i < all; i++) {
        wn__bytes_int(b, slice[i]->local);
        wn__bytes_int(b, start_of(slice[i]));
    }
    wn__free(slice);
    return WN_OK;
}

void wn__tiles_encode(struct wn__bytes *b, struct wn_node *const *order, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        order[i]->slice = NULL;
        if (is_slice(order[i])) order[i]->in[0]->slice = NULL;
    }
    for (int64_t i = count - 1; i >= 0 && b->code == WN_OK; i--) {
        if (order[i]->slice != NULL) WN_KEEP(b->code, encode_slices(b, order[i]));
        if (is_slice(order[i])) wn__tiles_wait(order[i]);
    }
    wn__bytes_int(b, count);
}

/* ---- a pass ------------------------------------------------------------------------------------------ */

/* Emits values side by side along a dim, in several steps where they are many. part: (count), overwritten. */
static struct wn_node *side_by_side(struct wn__emitter *e, struct wn_node **part, int64_t count, int64_t dim)
{
    struct wn_attrs along = {.n = 1, .i = {dim}};
    while (count > 1) {
        int64_t n = 0;
        for (int64_t i = 0; i < count; i += MOST) {
            int64_t length = count - i < MOST ? count - i : MOST;
            part[n++] = length == 1 ? part[i] : wn__emit(&e->base, WN_OP_CAT, (int32_t)length, part + i, &along);
        }
        count = n;
    }
    return part[0];
}

int32_t wn__tiles_join(struct wn__emitter *e, struct wn_node *v,
                       int32_t (*rule)(struct wn__emitter *, struct wn_node *))
{
    struct wn_node **slice;
    int64_t count;
    WN_TRY(take_slices(v, &slice, &count));
    struct wn_node **arrived = wn__alloc(count * (int64_t)sizeof *arrived);
    int32_t code = arrived == NULL ? WN_OOM : WN_OK;
    for (int64_t i = 0; i < count && code == WN_OK; i++) arrived[i] = slice[i];
    qsort(slice, (size_t)count, sizeof *slice, by_place);
    if (code == WN_OK && is_tiled(v, slice, count)) {
        int64_t dim = dim_of(slice[0]);
        for (int64_t i = 0; i < count; i++) arrived[i] = slice[i]->grad;
        e->forward = v;
        wn__emit_gradient(e, v, side_by_side(e, arrived, count, dim));
        code = e->code;
    } else {
        for (int64_t i = 0; i < count && code == WN_OK; i++) {
            e->forward = arrived[i];
            code = rule(e, arrived[i]);
        }
    }
    wn__free(slice);
    wn__free(arrived);
    return code;
}
