/* The plan of a SUM, MEAN, MAX, MIN or EXTREME_GRAD: which elements of x one output is made of, and in which order, on
 * every device. The workspace rules of GPUs and the kernels call it alike.
 *
 * Dims are merged into runs of kept and of reduced dims. Then either the last run is reduced (rows: contiguous runs of
 * x give one output) or it is kept (columns: rows are added side by side). The reduced elements of an output are cut
 * into pieces, whose results are joined in order: chunks of a long reduction to few outputs, or parts of the rows
 * (row_parts.h). */
#ifndef WN_REDUCTION_H
#define WN_REDUCTION_H
#include <string.h>
#include "broadcast.h"
#include "row_parts.h"

enum { WN_CHUNKS = 64, WN_CHUNK_LEAST = 16384 }; /* most chunks; least elements of one, over all outputs */

struct wn__reduction {
    struct wn__broadcast kept, reduced; /* the kept and the reduced dims of x, its one operand */
    int64_t outputs, length;            /* number of outputs, and of reduced elements of each */
    int32_t is_columns;
    int64_t chunks; /* of a long reduction to few outputs, else 1 */
    int64_t parts;  /* of the rows, where the last run is kept; not read where there are chunks */
};

static inline int32_t wn__is_reduced(const struct wn_desc *d, int32_t dim)
{
    if (d->attrs.n == 0) return 1;
    for (int32_t i = 0; i < d->attrs.n; i++)
        if (d->attrs.i[i] == dim) return 1;
    return 0;
}

/* Returns the chunks of a reduction whose other fields are filled. */
static inline int64_t wn__reduction_chunks(const struct wn__reduction *p)
{
    int64_t most = WN_CHUNKS, chunks = p->length * p->outputs / WN_CHUNK_LEAST;
    chunks = chunks > most ? most : chunks < 1 ? 1 : chunks;
    if (chunks > p->length) chunks = p->length;
    return p->outputs <= WN_FEW_OUTPUTS && chunks > 1 && (!p->is_columns || p->kept.ndim == 1) ? chunks : 1;
}

/* Returns the plan of a reduction of x: input 0 of SUM .. MIN, input 1 of EXTREME_GRAD. */
static inline struct wn__reduction wn__reduction_of(const struct wn_desc *d, const struct wn_type *x)
{
    struct wn__reduction p;
    int64_t step[WN_MAX_DIMS + 1];
    memset(&p, 0, sizeof p);
    p.kept.n_operands = p.reduced.n_operands = 1;
    step[x->ndim] = 1;
    for (int32_t i = x->ndim - 1; i >= 0; i--) step[i] = step[i + 1] * x->dim[i];
    for (int32_t i = 0; i < x->ndim; i++) {
        struct wn__broadcast *w = wn__is_reduced(d, i) ? &p.reduced : &p.kept;
        w->dim[w->ndim] = x->dim[i];
        w->step[0][w->ndim++] = step[i + 1];
    }
    wn__broadcast_merge(&p.kept);
    wn__broadcast_merge(&p.reduced);
    p.outputs = p.kept.numel;
    p.length = p.reduced.numel;
    p.is_columns = p.length == 1 || wn__broadcast_inner(&p.reduced, 0) != 1;
    p.chunks = wn__reduction_chunks(&p);
    p.parts = wn__reduce_parts(d);
    return p;
}

/* Returns the pieces of each output. */
static inline int64_t wn__reduction_pieces(const struct wn__reduction *p)
{
    return p->chunks > 1 ? p->chunks : p->parts;
}
#endif
