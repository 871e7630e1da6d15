/* Indices outside their table: what the ops with the flag CHECKED refuse, in one text for every device. */
#ifndef WN_BASE_OUTSIDE_H
#define WN_BASE_OUTSIDE_H
#include "type.h"

/* Returns the size of the table that the indices of an application are into: rows of the embedding, elements of the dim
 * that is gathered along, classes. 0 for an op without the flag CHECKED. */
int64_t wn__table_size(const struct wn_desc *d);

/* Sets the message of an index outside its table and returns WN_VALUE.
 * element: number of the index in row-major order, from 0; value: the index. */
int32_t wn__fail_outside(const struct wn_desc *d, int64_t element, int32_t value);
#endif
