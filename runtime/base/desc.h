/* Describes one application of an op: dtype, shape and layout of each value, and the attributes of the op, without a
 * byte of any value. This is what kernels see of types; type.h checks types and gives them texts. */
#ifndef WN_BASE_DESC_H
#define WN_BASE_DESC_H
#include <stdint.h>
#include "layout.h"
#include "number.h"
#include "shared.h"

#define WN_GRANULE 256 /* bytes: the address and the size of every buffer are multiples of it */
#define WN_PAGE 4096   /* bytes: address and size of what is offloaded are multiples of it */

enum wn_dtype { WN_F32, WN_F64, WN_I32, WN_U8, WN_I8, WN_BF16, WN_F16, WN_DTYPE_COUNT };

/* One application of an op, as rules and kernels see it: no bytes, no graph. */
struct wn_desc {
    int32_t op; /* enum of op.def */
    int32_t n_in;
    struct wn_type out;
    const struct wn_type *in; /* (n_in) */
    struct wn_attrs attrs;
};

struct wn__dtype {
    const char *name;
    int64_t size; /* bytes of one element */
    int32_t is_float;
};
extern const struct wn__dtype wn__dtypes[]; /* (WN_DTYPE_COUNT) */
static inline int32_t wn__dtype_is(int32_t dtype)
{
    return dtype >= 0 && dtype < WN_DTYPE_COUNT;
}
/* Returns the bytes of one element; 0 for a dtype that does not exist. */
static inline int64_t wn__dtype_size(int32_t dtype)
{
    return wn__dtype_is(dtype) ? wn__dtypes[dtype].size : 0;
}
static inline int32_t wn__dtype_is_float(int32_t dtype)
{
    return wn__dtype_is(dtype) && wn__dtypes[dtype].is_float;
}
/* Returns the number of elements: the product of the dims, 1 for a scalar. */
static inline int64_t wn__numel(const struct wn_type *t)
{
    int64_t n = 1;
    for (int32_t k = 0; k < t->ndim; k++) n *= t->dim[k];
    return n;
}
/* Returns the elements from one row of the last dim to the next, of a value with 1 dim or more. */
static inline int64_t wn__row_pitch(const struct wn_type *t)
{
    const int64_t columns = t->dim[t->ndim - 1];
    return t->layout == WN_ROWS ? wn_round_up(columns, WN_ROW_UNIT) : columns;
}
/* Returns the bytes of the elements, not rounded, and of what WN_ROWS has between them. */
static inline int64_t wn__bytes(const struct wn_type *t)
{
    int64_t n = wn__numel(t);
    if (t->layout == WN_ROWS && n > 0) n = n / t->dim[t->ndim - 1] * wn__row_pitch(t);
    return n * wn__dtype_size(t->dtype);
}
/* Returns `bytes` rounded up to WN_GRANULE; 0 stays 0. */
static inline int64_t wn__padded(int64_t bytes)
{
    return wn_round_up(bytes, WN_GRANULE);
}
/* Returns `bytes` rounded up to WN_PAGE; 0 stays 0. */
static inline int64_t wn__paged(int64_t bytes)
{
    return wn_round_up(bytes, WN_PAGE);
}
#endif
