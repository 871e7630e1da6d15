/* Element types, shapes, and the two together: a `wn_type` says what a value is without its bytes.
 * Sizes are checked: a type that exists has a byte count that fits int64_t with room for rounding. */
#ifndef WN_BASE_TYPE_H
#define WN_BASE_TYPE_H
#include <stdint.h>

#define WN_MAX_DIMS 8
#define WN_GRANULE 256 /* every buffer starts on and is rounded up to this many bytes */
#define WN_PAGE 4096   /* what is moved out of a device's memory and back starts on and takes whole pages */

enum wn_dtype { WN_F32, WN_F64, WN_I32, WN_U8, WN_I8, WN_BF16, WN_F16, WN_DTYPE_COUNT };

struct wn_type {
    int32_t dtype;
    int16_t ndim, layout; /* layout: layout.h */
    int64_t dim[WN_MAX_DIMS];
};

/* Structural attributes of an op application; part of a plan's key. What i and f mean: op.def. */
struct wn_attrs {
    int32_t n;             /* how many of i are used */
    int16_t dtype, layout; /* creation and cast; else 0 */
    int64_t i[WN_MAX_DIMS];
    double f[2];
};

/* One application of an op: what rules and kernels are told about it. No bytes, no graph. */
struct wn_desc {
    int32_t op;
    int32_t n_in;
    struct wn_type out;
    const struct wn_type *in; /* (n_in) */
    struct wn_attrs attrs;
};

int64_t wn__dtype_size(int32_t dtype); /* bytes of one element */
const char *wn__dtype_name(int32_t dtype);
int32_t wn__dtype_is_float(int32_t dtype);

static inline int64_t wn__numel(const struct wn_type *t)
{
    int64_t n = 1;
    for (int32_t k = 0; k < t->ndim; k++) n *= t->dim[k];
    return n;
}
static inline int64_t wn__bytes(const struct wn_type *t) /* not rounded */
{
    return wn__numel(t) * wn__dtype_size(t->dtype);
}
static inline int64_t wn__padded(int64_t bytes) /* up to WN_GRANULE; 0 stays 0 */
{
    return (bytes + WN_GRANULE - 1) / WN_GRANULE * WN_GRANULE;
}
static inline int64_t wn__paged(int64_t bytes) /* up to WN_PAGE */
{
    return (bytes + WN_PAGE - 1) / WN_PAGE * WN_PAGE;
}
int32_t wn__type_equal(const struct wn_type *a, const struct wn_type *b);
int32_t wn__shape_equal(const struct wn_type *a, const struct wn_type *b);

/* WN_VALUE when a dim is negative or the byte count would not fit. `what` opens the message. */
int32_t wn__type_check(const struct wn_type *t, const char *what);

/* One number in and out of an element of that dtype; f16 is no number of the host yet. */
void wn__number_put(int32_t dtype, double value, void *element);
double wn__number_get(int32_t dtype, const void *element);

/* "(32, 1024) f32" into one of a few rotating buffers, for messages. */
const char *wn__type_text(const struct wn_type *t);
const char *wn__shape_text(const struct wn_type *t);

/* WN_VALUE on overflow; operands are not negative. */
int32_t wn__mul(int64_t a, int64_t b, int64_t *out);
int32_t wn__add(int64_t a, int64_t b, int64_t *out);
#endif
