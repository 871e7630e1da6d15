/* How the CPU computes a bf16 op whose f32 loop wants whole rows: on f32 copies, a stretch of rows at a time where rows
 * do not need each other, or of columns where those do not. The rule for the workspace and the kernel cut alike because
 * both ask here. */
#ifndef WN_OPS_STRETCH_H
#define WN_OPS_STRETCH_H
#include "op.h"

struct wn__stretch {
    int32_t columns; /* the last dim counts what is cut; else the leading ones do */
    int32_t lead;    /* how many leading dims count rows, of the result and of every input that is not shared */
    int32_t dim;     /* whether attrs.i[0] names a dim, which is then the first after those */
    uint32_t shared; /* bit i: all rows (columns) read the whole of input i */
    int64_t rows;    /* or columns, in all; 1 where they cannot be told apart */
    int64_t at_once;
};
struct wn__stretch wn__stretch_of(const struct wn_desc *d);

static inline int32_t wn__stretch_is_whole(const struct wn__stretch *s)
{
    return s->lead == 0 && !s->columns;
}

static inline int32_t wn__stretch_is_shared(const struct wn__stretch *s, int32_t input)
{
    return s->shared >> input & 1;
}

/* An input's or the result's type in a stretch of so many rows (columns); shared ones stay whole. */
struct wn_type wn__stretch_type(const struct wn__stretch *s, const struct wn_type *t, int64_t rows, int32_t shared);
/* Bytes of its f32 copy there, padded; 0 where it is not bf16. Copies lie in this order: inputs, result. */
int64_t wn__stretch_copy_bytes(const struct wn__stretch *s, const struct wn_type *t, int32_t shared);
#endif
