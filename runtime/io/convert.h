/* Elements as files hold them, made into elements of Wane's dtypes, one block after the other.
 *
 * A kind has the name it has in a safetensors file: "F16", "I64", "BOOL". Floats become floats, integers integers; an
 * integer that the dtype does not hold, and a finite number that would become infinite, is an error, never another
 * number. F16 and the 8-bit floats have no dtype here and become f32, which holds each of them. */
#ifndef WN_IO_CONVERT_H
#define WN_IO_CONVERT_H
#include <stdint.h>
#include "../base/type.h"

#define WN_CONVERT_MOST 4096 /* elements of a block */

struct wn__element {
    const char *name;
    int16_t bytes, dtype; /* dtype: what such elements become unless another float is asked for */
    int8_t is_float, is_signed;
    int8_t exponent, mantissa; /* bits of a float of 8 or 16 bits, else 0 */
};

const struct wn__element *wn__element_find(const char *name); /* NULL: there is no such kind */

/* Whether elements of the kind can be made into the dtype: 1 as they are, 2 with every value kept, 3 where each is
 * looked at; 0 not at all. */
int32_t wn__convert_way(const struct wn__element *from, int32_t dtype);

/* A conversion of elements. Invariant: wn__convert_way(from, dtype) is not 0. */
struct wn__conversion {
    const struct wn__element *from;
    int32_t dtype; /* what they become */
    int32_t swap;  /* 1: the bytes of an element are in the other order than this machine's */
};
/* Converts n elements, at most WN_CONVERT_MOST, from `in` to `out`; swapped bytes are put in order in place. Returns -1, or
 * the index of the first element that the dtype does not hold, and that element's number in *value. */
int64_t wn__convert(const struct wn__conversion *c, void *in, int64_t n, void *out, double *value);
#endif
