/* Conversions between bf16 and f32 in bulk, and the kernel of bf16 ops whose f32 loops need whole rows: softmax and its
 * kin, layer norm, the gradients of lookups.
 *
 *     workspace: | f32 copy of input 0 | input 1 | ... | result | workspace of the f32 kernel |
 *
 * Inputs are copied to f32, the f32 kernel runs, the result is rounded once. Where rows are independent of each other,
 * this is done for one row block at a time (row_block.h), so that copies may be smaller than the values. All inputs
 * of a row block are read before its result is written, so an op may run in place. */
#include "bf16.h"
#include <stddef.h>
#include "../../scalar.h"
#include "cpu.h"
#include "../backend/row_block.h"

#define MOST_INPUTS 8 /* of an op that runs on copies; layer norm has 5 */

void wn__widen(float *restrict to, const uint16_t *restrict from, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) to[i] = wn_from_bf16(from[i]);
}

void wn__round(uint16_t *restrict to, const float *restrict from, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) to[i] = wn_to_bf16(from[i]);
}

/* One conversion: from to wide, or wide to `to`. */
struct conversion {
    float *wide;
    uint16_t *to;
    const uint16_t *from;
    int64_t width, step; /* of a block of columns: columns, and elements from row to row */
};

static void widen_part(int64_t begin, int64_t end, void *ctx)
{
    const struct conversion *c = ctx;
    wn__widen(c->wide + begin, c->from + begin, end - begin);
}

/* Converts rows [begin, end) of a block of columns. */
static void widen_columns(int64_t begin, int64_t end, void *ctx)
{
    const struct conversion *c = ctx;
    for (int64_t r = begin; r < end; r++) wn__widen(c->wide + r * c->width, c->from + r * c->step, c->width);
}

static void round_part(int64_t begin, int64_t end, void *ctx)
{
    const struct conversion *c = ctx;
    wn__round(c->to + begin, c->wide + begin, end - begin);
}

/* Returns the description of a row block of `rows` rows, with f32 in place of bf16; writes the types of its inputs to
 * `in`. */
static struct wn_desc in_f32(const struct wn_desc *d, const struct wn__row_block *s, int64_t rows, struct wn_type *in)
{
    struct wn_desc wide = *d;
    wide.in = in;
    wide.out = wn__row_block_type(s, &d->out, rows, 0);
    if (wide.out.dtype == WN_BF16) wide.out.dtype = WN_F32;
    for (int32_t i = 0; i < d->n_in; i++) {
        in[i] = wn__row_block_type(s, &d->in[i], rows, wn__row_block_is_shared(s, i));
        if (in[i].dtype == WN_BF16) in[i].dtype = WN_F32;
    }
    if (s->dim && s->lead > 0) wide.attrs.i[0] = 1;
    return wide;
}

/* Returns where row (column) `row` begins in an input or the result, whose row blocks have the type `part`. */
static void *rows_at(const struct wn__row_block *s, const void *whole, const struct wn_type *part, int32_t dtype,
                     int64_t row)
{
    if (wn__row_block_is_whole(s)) return (void *)whole;
    int64_t each = s->columns ? 1 : part->dim[0] > 0 ? wn__numel(part) / part->dim[0] : 0;
    return (char *)whole + row * each * wn__dtype_size(dtype);
}

/* Converts the rows (columns) of one input in a row block, which begin at `from`. */
static void widen_input(const struct wn__row_block *s, const struct wn_type *whole, const struct wn_type *part,
                        const void *from, float *wide)
{
    struct conversion c = {.wide = wide, .from = from};
    int64_t n = wn__numel(part);
    if (s->columns && n < wn__numel(whole)) { /* a block of columns; other operands are contiguous */
        c.width = part->dim[part->ndim - 1];
        c.step = whole->dim[whole->ndim - 1];
        wn__parallel_for(n / c.width, WN_CPU_GRAIN / c.width + 1, widen_columns, &c);
    } else wn__parallel_for(n, WN_CPU_GRAIN, widen_part, &c);
}

static int32_t run_row_block(const struct wn_desc *d, const struct wn_buffers *b, const struct wn__row_block *s,
                             int64_t row, int64_t rows)
{
    struct wn_type in[MOST_INPUTS];
    const void *at[MOST_INPUTS];
    struct wn_desc wide = in_f32(d, s, rows, in);
    struct wn_buffers copies = *b;
    char *next = b->workspace;
    copies.in = at;
    for (int32_t i = 0; i < d->n_in; i++) {
        at[i] = wn__row_block_is_shared(s, i) ? b->in[i] : rows_at(s, b->in[i], &in[i], d->in[i].dtype, row);
        if (d->in[i].dtype != WN_BF16) continue;
        if (row == 0 || !wn__row_block_is_shared(s, i)) widen_input(s, &d->in[i], &in[i], at[i], (float *)next);
        at[i] = next;
        next += wn__row_block_copy_bytes(s, &d->in[i], wn__row_block_is_shared(s, i));
    }
    copies.out = rows_at(s, b->out, &wide.out, d->out.dtype, row);
    struct conversion c = {.wide = (float *)next, .to = copies.out};
    if (d->out.dtype == WN_BF16) {
        copies.out = next;
        next += wn__row_block_copy_bytes(s, &d->out, 0);
    }
    copies.workspace = next; /* of the f32 kernel */
    WN_TRY(wn_cpu_kernel(&wide)(&wide, &copies, NULL));
    if (d->out.dtype == WN_BF16) wn__parallel_for(wn__numel(&wide.out), WN_CPU_GRAIN, round_part, &c);
    return WN_OK;
}

static int32_t by_copies(const struct wn_desc *d, const struct wn_buffers *b, WN_NO_STREAM)
{
    const struct wn__row_block s = wn__row_block_of(d);
    for (int64_t row = 0; row < s.rows; row += s.at_once)
        WN_TRY(run_row_block(d, b, &s, row, s.rows - row < s.at_once ? s.rows - row : s.at_once));
    return WN_OK;
}

wn_kernel_fn wn__cpu_copies_kernel(const struct wn_desc *d)
{
    int32_t n_half = d->out.dtype == WN_BF16;
    for (int32_t i = 0; i < d->n_in; i++) n_half += d->in[i].dtype == WN_BF16;
    if (n_half == 0 || d->n_in > MOST_INPUTS) return NULL;
    struct wn_type in[MOST_INPUTS];
    struct wn__row_block s = wn__row_block_of(d);
    struct wn_desc wide = in_f32(d, &s, s.at_once, in);
    return wn_cpu_kernel(&wide) ? by_copies : NULL;
}
