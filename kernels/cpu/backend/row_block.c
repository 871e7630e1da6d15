/* Says which bf16 ops are computed by row blocks, and how many rows or columns a row block has (row_block.h). */
#include "row_block.h"

/* Bytes that the f32 copies of a row block take together: few enough to stay in the second-level caches of a few cores,
 * enough work to start threads for. */
#define COPIES ((int64_t)2 << 20)
#define LEAST_ROWS 16    /* a row block of long rows exceeds COPIES rather than leave a thread without a row */
#define LEAST_COLUMNS 64 /* four cache lines of f32 */

static void set_lead(const struct wn_desc *d, struct wn__row_block *s)
{
    switch (d->op) {
    case WN_OP_SOFTMAX:
    case WN_OP_SOFTMAX_GRAD:
    case WN_OP_LOG_SOFTMAX:
    case WN_OP_LOG_SOFTMAX_GRAD:
    case WN_OP_GATHER_GRAD:
        s->dim = 1;
        s->lead = (int32_t)d->attrs.i[0];
        return;
    case WN_OP_LAYERNORM:
        s->shared = 1u << 3 | 1u << 4;
        s->lead = d->in[0].ndim - 1;
        return;
    case WN_OP_ROW_MEAN:
    case WN_OP_ROW_RSTD: s->lead = d->in[0].ndim - 1; return;
    case WN_OP_LAYERNORM_DX:
        s->shared = 1u << 4;
        s->lead = d->in[1].ndim - 1;
        return;
    case WN_OP_LAYERNORM_DW:
        s->shared = 1u << 2 | 1u << 3;
        s->columns = 1;
        return;
    default: return;
    }
}

struct wn_type wn__row_block_type(const struct wn__row_block *s, const struct wn_type *t, int64_t rows, int32_t shared)
{
    if (wn__row_block_is_whole(s) || shared) return *t;
    if (s->columns) {
        struct wn_type part = *t;
        part.dim[t->ndim - 1] = rows;
        return part;
    }
    struct wn_type out = {.dtype = t->dtype, .ndim = t->ndim - s->lead + 1, .dim = {rows}};
    for (int32_t k = s->lead; k < t->ndim; k++) out.dim[k - s->lead + 1] = t->dim[k];
    return out;
}

int64_t wn__row_block_copy_bytes(const struct wn__row_block *s, const struct wn_type *t, int32_t shared)
{
    struct wn_type part = wn__row_block_type(s, t, s->at_once, shared);
    return t->dtype == WN_BF16 ? wn__padded(wn__numel(&part) * (int64_t)sizeof(float)) : 0;
}

/* Returns the f32 bytes that one row (column) of an operand adds to the copies of a row block. */
static int64_t row_bytes(const struct wn__row_block *s, const struct wn_type *t, int32_t shared)
{
    struct wn_type row = wn__row_block_type(s, t, 1, shared);
    return t->dtype == WN_BF16 && !shared ? wn__numel(&row) * (int64_t)sizeof(float) : 0;
}

struct wn__row_block wn__row_block_of(const struct wn_desc *d)
{
    struct wn__row_block s = {.rows = 1, .at_once = 1};
    set_lead(d, &s);
    if (wn__row_block_is_whole(&s)) return s;
    int64_t bytes = row_bytes(&s, &d->out, 0);
    for (int32_t i = 0; i < d->n_in; i++) bytes += row_bytes(&s, &d->in[i], wn__row_block_is_shared(&s, i));
    for (int32_t k = 0; k < s.lead; k++) s.rows *= d->out.dim[k];
    if (s.columns) s.rows = d->out.dim[0];
    int64_t least = s.columns ? LEAST_COLUMNS : LEAST_ROWS;
    s.at_once = bytes > 0 && COPIES / bytes > least ? COPIES / bytes / 16 * 16 : least;
    if (s.at_once > s.rows) s.at_once = s.rows;
    return s;
}
