/* Describes applications over images in the order of memory: see memory_order.h.
 *
 * Every 4-d type becomes (N, H, W, C), and an operand of fewer dims that is broadcast is first filled up with dims of 1
 * in front, as broadcasting does. Dims in attributes move along. An image that is plain because it is order-free is as
 * well described either way, so it moves too. */
#include "memory_order.h"
#include <string.h>
#include "opcode.h"

/* Place in (N, H, W, C) of each dim of (N, C, H, W), and the inverse. */
static const int32_t place[4] = {0, 3, 1, 2}, dim_at[4] = {0, 2, 3, 1};

int32_t wn__is_order_free(const struct wn_type *t)
{
    int64_t pixels = 1, channels = t->ndim >= 3 ? t->dim[t->ndim - 3] : 1;
    if (t->ndim > 4) return 0;
    for (int32_t k = wn_max(t->ndim - 2, 0); k < t->ndim; k++) pixels *= t->dim[k];
    return channels == 1 || pixels == 1 || wn__numel(t) == 0;
}

int32_t wn__layout_normal(int32_t layout, const struct wn_type *t)
{
    return layout == WN_NHWC && wn__is_order_free(t) ? WN_PLAIN : layout;
}

static int32_t has_images(const struct wn_desc *d)
{
    if (d->out.layout == WN_NHWC) return 1;
    for (int32_t i = 0; i < d->n_in; i++)
        if (d->in[i].layout == WN_NHWC) return 1;
    return 0;
}

static struct wn_type moved(const struct wn_type *t)
{
    struct wn_type full = *t, out;
    int32_t missing = 4 - t->ndim;
    if (missing < 0) return *t;
    for (int32_t k = 0; k < 4; k++) full.dim[k] = k < missing ? 1 : t->dim[k - missing];
    out = full;
    out.ndim = 4;
    out.layout = WN_PLAIN;
    for (int32_t k = 0; k < 4; k++) out.dim[place[k]] = full.dim[k];
    return out;
}

/* Moves the dims that a reduction of `in` names, in ascending order, and writes the type that it leaves. The last
 * attribute says whether reduced dims stay. */
static void move_reduction(struct wn_desc *d)
{
    int32_t n = d->attrs.n, gone[4] = {0};
    int64_t keep = d->attrs.i[WN_MAX_DIMS - 1];
    for (int32_t k = 0; k < n; k++) gone[place[d->attrs.i[k]]] = 1;
    d->out.ndim = 0;
    for (int32_t k = 0, at = 0; k < 4; k++) {
        if (gone[k]) d->attrs.i[at++] = k;
        if (n > 0 && !gone[k]) d->out.dim[d->out.ndim++] = d->in[0].dim[k];
        else if (keep) d->out.dim[d->out.ndim++] = 1;
    }
}

const struct wn_desc *wn__in_memory_order(const struct wn_desc *d, struct wn__memory_order *room)
{
    if (!has_images(d) || d->n_in > WN_MEMORY_ORDER_IN) return d;
    if (d->op == WN_OP_RELAYOUT || wn__op_images(d->op) > 0) return d; /* its kernels know the layout themselves */
    struct wn_desc *to = &room->desc;
    *to = *d;
    to->in = room->in;
    for (int32_t i = 0; i < d->n_in; i++) room->in[i] = moved(&d->in[i]);
    to->attrs.layout = WN_PLAIN;
    switch (d->op) {
    case WN_OP_SUM:
    case WN_OP_MEAN:
        to->out.layout = WN_PLAIN;
        move_reduction(to);
        return to;
    case WN_OP_EXPAND:
        for (int32_t k = 0; k < 4; k++) to->attrs.i[k] = d->attrs.i[dim_at[k]];
        break;
    case WN_OP_CAT:
    case WN_OP_NARROW:
    case WN_OP_NARROW_GRAD: to->attrs.i[0] = place[d->attrs.i[0]]; break;
    default: break;
    }
    to->out = moved(&d->out);
    return to;
}

void wn__rows_clear(const struct wn_type *t, void *copy, int64_t at, int64_t n)
{
    if (t->layout != WN_ROWS || n == 0) return;
    const int64_t size = wn__dtype_size(t->dtype), pitch = wn__row_pitch(t) * size, row = t->dim[t->ndim - 1] * size;
    for (int64_t end = at / pitch * pitch + row; end < at + n; end += pitch) {
        int64_t from = end > at ? end : at, to = end - row + pitch < at + n ? end - row + pitch : at + n;
        if (from < to) memset((char *)copy + (from - at), 0, (size_t)(to - from));
    }
}
