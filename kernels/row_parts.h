/* Parts of the rows: how a reduction down columns, x: (rows, outputs) -> (outputs), is divided among threads.
 *
 * One thread reduces one part, row by row in the order of memory; the results of the parts are added in the order of
 * the parts. The number of parts follows from `rows` alone, so the bits depend neither on the number of threads nor on
 * the device. The results of the parts wait in the workspace (workspace.c) as (parts, outputs), WN_PART_BYTES each:
 *
 *     | part 0: output 0, 1, 2, ... | part 1: output 0, 1, 2, ... | ... |
 *
 * There are at most WN_PARTS parts of at least WN_PART_ROWS rows each. Reductions to at most WN_FEW_OUTPUTS outputs
 * take no workspace. */
#ifndef WN_ROW_PARTS_H
#define WN_ROW_PARTS_H
#include <stdint.h>
#include "../runtime/base/opcode.h"

enum { WN_PART_ROWS = 1024, WN_PARTS = 64, WN_PART_BYTES = 8, WN_FEW_OUTPUTS = 32 };

/* Returns the largest power of two that is at most WN_PARTS and leaves every part WN_PART_ROWS rows; 1 where none
 * does. */
static inline int64_t wn__parts_of(int64_t rows)
{
    int64_t parts = 1;
    while (parts < WN_PARTS && parts * 2 * WN_PART_ROWS <= rows) parts *= 2;
    return parts;
}

/* Returns the number of parts of a SUM, MEAN, MAX, MIN or ARGMAX: 1 where it reduces along rows, and where it takes no
 * workspace. */
static inline int64_t wn__reduce_parts(const struct wn_desc *d)
{
    const struct wn_type *x = &d->in[0];
    int64_t outputs = wn__numel(&d->out), all = d->op == WN_OP_ARGMAX ? 1 : d->attrs.n;
    int32_t last = x->ndim - 1;
    while (last >= 0 && x->dim[last] == 1) last--;
    if (last < 0 || outputs <= WN_FEW_OUTPUTS || (d->op == WN_OP_ARGMAX && x->dtype == WN_BF16)) return 1;
    for (int64_t k = 0; k < all; k++)
        if (d->attrs.i[k] == last) return 1;
    return wn__parts_of(wn__numel(x) / outputs);
}
#endif
