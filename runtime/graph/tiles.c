/* Gradients of slices. A value that is read in slices (NARROW), as the steps of a sequence or the parts of a split are,
 * gets one gradient a slice. Each alone would be written among zeros, in the size of the value, and added to the rest:
 * n slices would move n times the bytes of the value. So the gradients of slices wait for the turn of the value, and
 * where the slices tile one dim of it, each element in one slice, their gradients are put side by side (CAT).
 *
 * Invariant: what is emitted depends on where slices begin only if slices that need a gradient have as many elements as
 * their value, or more. There the key of a program holds where they begin (wn__tiles_encode). */
#include <stdlib.h>
#include "../base/alloc.h"
#include "emit.h"
#include "encode.h"

enum { MOST = 1000 }; /* inputs of one CAT */

/* ---- the key ----------------------------------------------------------------------------------------- */

static int32_t is_slice(const struct wn_node *n)
{
    return n->op == WN_OP_NARROW && n->needs_grad && n->n_in == 1;
}

void wn__tiles_encode(struct wn__bytes *b, struct wn_node *const *order, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        if (is_slice(order[i])) order[i]->in[0]->wanted = 0;
    for (int64_t i = 0; i < count; i++)
        if (is_slice(order[i])) order[i]->in[0]->wanted += wn__numel(&order[i]->type);
    for (int64_t i = 0; i < count; i++)
        if (is_slice(order[i]) && order[i]->in[0]->wanted >= wn__numel(&order[i]->in[0]->type)) {
            wn__bytes_int(b, i);
            wn__bytes_int(b, order[i]->attrs.i[WN_OFFSET_AT]);
        }
    wn__bytes_int(b, count);
}

/* ---- a pass ------------------------------------------------------------------------------------------ */

void wn__tiles_wait(struct wn_node *n)
{
    n->slice = n->in[0]->slice;
    n->in[0]->slice = n;
}

static int by_start(const void *a, const void *b)
{
    int64_t i = (*(struct wn_node *const *)a)->attrs.i[WN_OFFSET_AT];
    int64_t j = (*(struct wn_node *const *)b)->attrs.i[WN_OFFSET_AT];
    return (i > j) - (i < j);
}

/* Sorts slices of v by their start. Returns whether they tile a dim of it, all of them plain. */
static int32_t is_tiled(const struct wn_node *v, struct wn_node **slice, int64_t count)
{
    int64_t dim = slice[0]->attrs.i[0], end = 0;
    if (v->type.layout != WN_PLAIN) return 0;
    for (int64_t i = 0; i < count; i++)
        if (slice[i]->attrs.i[0] != dim || slice[i]->grad->type.layout != WN_PLAIN) return 0;
    qsort(slice, (size_t)count, sizeof *slice, by_start);
    for (int64_t i = 0; i < count; i++) {
        if (slice[i]->attrs.i[WN_OFFSET_AT] != end) return 0;
        end += slice[i]->type.dim[dim];
    }
    return end == v->type.dim[dim];
}

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

/* Takes the slices that wait for v into a new array, the last recorded first: the order of the pass. */
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

int32_t wn__tiles_join(struct wn__emitter *e, struct wn_node *v,
                       int32_t (*rule)(struct wn__emitter *, struct wn_node *))
{
    struct wn_node **slice;
    int64_t count;
    WN_TRY(take_slices(v, &slice, &count));
    struct wn_node **arrived = wn__alloc(count * (int64_t)sizeof *arrived);
    int32_t code = arrived == NULL ? WN_OOM : WN_OK;
    for (int64_t i = 0; i < count && code == WN_OK; i++) arrived[i] = slice[i];
    if (code == WN_OK && is_tiled(v, slice, count)) {
        int64_t dim = slice[0]->attrs.i[0];
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
