/* Images whose channels are last in memory (WN_NHWC), for whoever must know where an element is. Kernels of elementwise
 * ops, sums over dims, CAT and NARROW need not: they get a description in the order of memory, in which an image
 * (N, C, H, W) is a plain (N, H, W, C). */
#ifndef WN_BASE_MEMORY_ORDER_H
#define WN_BASE_MEMORY_ORDER_H
#include "desc.h"

enum { WN_MEMORY_ORDER_IN = 8 }; /* the most inputs of an application of which one is in WN_NHWC */

/* Returns whether t, aligned at the last dim with images, has its elements in the same order plain and with channels
 * last: it has at most 4 dims, and one channel or one pixel. */
int32_t wn__is_order_free(const struct wn_type *t);

/* Sets what lies between padded rows (WN_ROWS) to 0 in a copy of the bytes [at, at + n) of a value of type t, since it
 * is no number of the value. at, n: multiples of the bytes of an element. */
void wn__rows_clear(const struct wn_type *t, void *copy, int64_t at, int64_t n);

/* Returns the layout that a value of type t gets where `layout` is asked for: WN_PLAIN where WN_NHWC is the same. */
int32_t wn__layout_normal(int32_t layout, const struct wn_type *t);

/* Returns the column of a panel (layout.h) in which column `at` of row-major rows is. t: a weight in WN_PANEL48 or
 * WN_CONV48, whose rows are its outputs. */
static inline int64_t wn__panel_column(const struct wn_type *t, int64_t at)
{
    if (t->ndim != 4) return at;
    int64_t places = t->dim[2] * t->dim[3];
    return at % places * t->dim[1] + at / places;
}

/* Returns the columns of a weight's rows: the elements of one output. */
static inline int64_t wn__panel_columns(const struct wn_type *t)
{
    return t->ndim == 4 ? t->dim[1] * t->dim[2] * t->dim[3] : t->dim[1];
}

/* Room for a description and its types. */
struct wn__memory_order {
    struct wn_desc desc;
    struct wn_type in[WN_MEMORY_ORDER_IN];
};
/* Returns the description by which a kernel computes d: d itself, or, where d has images with channels last and its op
 * is one that need not know, d in the order of memory, in *room. */
const struct wn_desc *wn__in_memory_order(const struct wn_desc *d, struct wn__memory_order *room);
#endif
