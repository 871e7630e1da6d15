/* Row blocks: how the CPU computes a bf16 op whose f32 loop needs whole rows.
 *
 * Such an op is computed on f32 copies. Where its rows are independent of each other, one row block is copied and
 * computed at a time; where its columns are, one block of columns, which is called a row block too. The workspace rule
 * (workspace.c) and the kernel (common/bf16.c) call the same functions, so they cut alike. For softmax of
 * x: (B, T, C) along C:
 *
 *     rows = B T      x as (rows, C)                 f32 copy in the workspace
 *                     +------------------+
 *                     | row block 0      | at_once rows  ->  (at_once, C)
 *                     +------------------+
 *                     | row block 1      | at_once rows  ->  the same bytes again
 *                     +------------------+
 *                     | ...              |
 */
#ifndef WN_CPU_ROW_BLOCK_H
#define WN_CPU_ROW_BLOCK_H
#include "../../../runtime/base/opcode.h"

struct wn__row_block {
    int32_t columns; /* 1: row blocks are of columns, the last dim; 0: of rows, the first `lead` dims together */
    int32_t lead;    /* number of leading dims whose product is `rows`, in the result and in every input not shared */
    int32_t dim;     /* 1: attrs.i[0] names the dim that the op runs along, which is dim `lead` */
    uint32_t shared; /* bit i is set: every row block reads the whole of input i */
    int64_t rows;    /* number of rows (columns) in all; 1 where the op has no row blocks */
    int64_t at_once; /* number of rows (columns) of a row block; the last row block may have fewer */
};
/* Returns the row blocks of an application; lead = columns = 0 where the op has none. */
struct wn__row_block wn__row_block_of(const struct wn_desc *d);

/* Returns whether the op has no row blocks and is computed whole. */
static inline int32_t wn__row_block_is_whole(const struct wn__row_block *s)
{
    return s->lead == 0 && !s->columns;
}

/* Returns whether every row block reads the whole of an input. */
static inline int32_t wn__row_block_is_shared(const struct wn__row_block *s, int32_t input)
{
    return s->shared >> input & 1;
}

/* Returns the type of an operand t within a row block of `rows` rows (columns): the leading dims become one dim of
 * length rows. A shared operand keeps its type. */
struct wn_type wn__row_block_type(const struct wn__row_block *s, const struct wn_type *t, int64_t rows, int32_t shared);
/* Returns the padded bytes of the f32 copy of an operand t for a row block of at_once rows (columns); 0 where t is not
 * bf16. The workspace holds the copies of the inputs in their order, then that of the result. */
int64_t wn__row_block_copy_bytes(const struct wn__row_block *s, const struct wn_type *t, int32_t shared);
#endif
