/* Indices outside their table, and whole numbers that 32 bits do not hold: ops with the flags CHECKED and WHOLE refuse
 * them, in one text for every device, under the name that scripts have for the op. */
#ifndef WN_BASE_OUTSIDE_H
#define WN_BASE_OUTSIDE_H
#include "desc.h"

/* Returns the name that scripts have for what records an op: "randn" for NORMAL. */
const char *wn__op_said(int32_t op);

/* Returns the size of the table that the indices of an application are into: rows of the embedding, elements of the dim
 * that is gathered along, classes. 0 for an op without the flag CHECKED. */
int64_t wn__table_size(const struct wn_desc *d);

/* Sets the message of an index outside its table, of a result that i32 does not hold, or of an element of WITHIN, and
 * returns WN_VALUE. element: its number in row-major order, from 0; value: the index, or what the element would be. */
int32_t wn__fail_outside(const struct wn_desc *d, int64_t element, double value);
/* Sets the message of a report, `element << 32 | bits`, and returns WN_VALUE. The bits are those of an index, or those
 * of the f32 nearest to a result that i32 does not hold, or to an element of WITHIN. */
int32_t wn__fail_report(const struct wn_desc *d, uint64_t report);
#endif
