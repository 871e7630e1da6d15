/* The broadcast iterator: a list of dims with a step for each dense operand, by which kernels of every device go over
 * operands together under broadcasting. Merging makes the innermost row as long as it can be: equal shapes become one
 * row, and a scalar operand a row of step 0. */
#ifndef WN_BROADCAST_H
#define WN_BROADCAST_H
#include "../runtime/base/desc.h"

enum { WN_BROADCAST_MAX = 4 }; /* operands */

/* Goes over the elements of a result in row-major order, with the position of each operand. */
struct wn__broadcast {
    int32_t n_operands;
    int32_t ndim;                                /* at least 1; the last dim is the row */
    int64_t dim[WN_MAX_DIMS];                    /* (ndim) */
    int64_t step[WN_BROADCAST_MAX][WN_MAX_DIMS]; /* (n_operands, ndim), in elements; 0 along a dim that is broadcast */
    int64_t numel;                               /* of the result */
};

/* Merges the dims of an iterator whose dim and step are given, and counts its elements. */
static inline void wn__broadcast_merge(struct wn__broadcast *w)
{
    int32_t n = 0;
    w->numel = 1;
    for (int32_t i = 0; i < w->ndim; i++) w->numel *= w->dim[i];
    for (int32_t i = 0; i < w->ndim; i++) {
        if (w->dim[i] == 1) continue;
        int32_t joins = n > 0;
        for (int32_t k = 0; k < w->n_operands && joins; k++) joins = w->step[k][n - 1] == w->step[k][i] * w->dim[i];
        if (joins) n--;
        w->dim[n] = joins ? w->dim[n] * w->dim[i] : w->dim[i];
        for (int32_t k = 0; k < w->n_operands; k++) w->step[k][n] = w->step[k][i];
        n++;
    }
    if (n == 0) {
        w->dim[0] = 1;
        for (int32_t k = 0; k < w->n_operands; k++) w->step[k][0] = 1;
        n = 1;
    }
    w->ndim = n;
}

/* Makes an iterator over n dense operands with the given shapes, aligned at the last dim. Requires n <=
 * WN_BROADCAST_MAX. */
static inline void wn__broadcast_make(struct wn__broadcast *w, const struct wn_type *out, int32_t n,
                                      const struct wn_type *const *in)
{
    w->n_operands = n;
    w->ndim = out->ndim;
    for (int32_t i = 0; i < out->ndim; i++) w->dim[i] = out->dim[i];
    for (int32_t k = 0; k < n; k++) {
        int64_t step = 1;
        for (int32_t i = out->ndim - 1; i >= 0; i--) {
            int32_t j = i - (out->ndim - in[k]->ndim);
            int64_t dim = j >= 0 ? in[k]->dim[j] : 1;
            w->step[k][i] = dim == 1 ? 0 : step;
            step *= dim;
        }
    }
    wn__broadcast_merge(w);
}

/* Returns the step of an operand along a row: 1, or 0 where it is broadcast; another number in copies and
 * reductions. */
static inline int64_t wn__broadcast_inner(const struct wn__broadcast *w, int32_t operand)
{
    return w->step[operand][w->ndim - 1];
}

/* The shape of a value seen from one dim: (outer, n, inner). */
struct wn__axis {
    int64_t outer, n, inner;
};

/* Returns the shape of t seen from `dim`. */
static inline struct wn__axis wn__axis_of(const struct wn_type *t, int64_t dim)
{
    struct wn__axis a = {1, 1, 1};
    for (int32_t i = 0; i < t->ndim; i++) {
        if (i < dim) a.outer *= t->dim[i];
        else if (i == dim) a.n = t->dim[i];
        else a.inner *= t->dim[i];
    }
    return a;
}
#endif
