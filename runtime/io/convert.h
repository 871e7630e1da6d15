/* Converts elements as files hold them into elements of Wane's dtypes, one block after the other.
 *
 * A kind has the name that it has in a safetensors file: "F16", "I64", "BOOL". Floats become floats and integers become
 * integers. An integer that the dtype does not hold, and a finite number that would become infinite, is an error, never
 * another number. F16 and the 8-bit floats have no dtype here and become f32, which holds each of them. */
#ifndef WN_IO_CONVERT_H
#define WN_IO_CONVERT_H
#include <stdint.h>
#include "../base/type.h"

#define WN_CONVERT_MOST 4096 /* elements of a block */

/* A kind of elements. */
struct wn__element {
    const char *name;
    int16_t bytes; /* of one element */
    int16_t dtype; /* that such elements become unless another is asked for */
    int8_t is_float, is_signed;
    int8_t exponent, mantissa; /* bits of a float of 8 or 16 bits; else 0 */
};

/* Returns the kind of this name; NULL: there is none. */
const struct wn__element *wn__element_find(const char *name);

/* How elements of a kind become elements of a dtype. */
enum wn__convert_way {
    WN_CONVERT_NOT,    /* they do not */
    WN_CONVERT_COPIED, /* their bytes are the same */
    WN_CONVERT_EXACT,  /* the dtype holds every value */
    WN_CONVERT_CHECKED /* the dtype may not hold a value, so each is checked */
};
/* Returns an enum wn__convert_way. */
int32_t wn__convert_way(const struct wn__element *from, int32_t dtype);

/* A conversion of elements. Invariant: wn__convert_way(from, dtype) is not 0. */
struct wn__conversion {
    const struct wn__element *from;
    int32_t dtype; /* what they become */
    int32_t swap;  /* 1: the bytes of an element are in the other order than this machine's */
};
/* Converts n elements, at most WN_CONVERT_MOST, from `in` to `out`; swapped bytes are reversed in place.
 * Returns -1, or the index of the first element that the dtype does not hold, and that element's number in *value. */
int64_t wn__convert(const struct wn__conversion *c, void *in, int64_t n, void *out, double *value);
#endif
