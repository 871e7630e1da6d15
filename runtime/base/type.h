/* Checks types (desc.h) and gives them texts; sums and products of sizes that are checked too. wn__type_check guards
 * every type that a script makes, so the byte count of a type fits int64_t, rounded up too. */
#ifndef WN_BASE_TYPE_H
#define WN_BASE_TYPE_H
#include "desc.h"

/* Returns "f32" and the like; "unknown" for a dtype that does not exist. */
const char *wn__dtype_name(int32_t dtype);

/* Returns whether dtype, shape and layout are equal. */
int32_t wn__type_equal(const struct wn_type *a, const struct wn_type *b);
/* Returns whether dtype and shape are equal, whatever the layouts. */
int32_t wn__type_agrees(const struct wn_type *a, const struct wn_type *b);
int32_t wn__shape_equal(const struct wn_type *a, const struct wn_type *b);

/* Returns whether a value of t's shape can have `layout`. */
int32_t wn__layout_fits(int32_t layout, const struct wn_type *t);

/* Checks the invariant of struct wn_type. Returns WN_DTYPE for an unknown dtype, WN_VALUE for a dim, a byte count or a
 * layout that breaks it. The message begins with `what`. */
int32_t wn__type_check(const struct wn_type *t, const char *what);

/* Writes a number as one element of that dtype; integers saturate, and NaN becomes 0 there. f16 is no number of the
 * host yet. */
void wn__number_put(int32_t dtype, double value, void *element);
/* Returns one element of that dtype as a number. */
double wn__number_get(int32_t dtype, const void *element);

/* Returns "(32, 1024) f32", for a message. The text is in one of a few buffers that rotate. */
const char *wn__type_text(const struct wn_type *t);
/* Returns "(32, 1024)", for a message. The text is in one of a few buffers that rotate. */
const char *wn__shape_text(const struct wn_type *t);

/* Puts a * b into *out, or returns WN_VALUE if that does not fit. Requires a >= 0 and b >= 0. */
int32_t wn__mul(int64_t a, int64_t b, int64_t *out);
/* Puts a + b into *out, or returns WN_VALUE if that does not fit. Requires a >= 0 and b >= 0. */
int32_t wn__add(int64_t a, int64_t b, int64_t *out);
#endif
