/* Checks element types and shapes, and makes their sizes and texts.
 *
 * Invariant: once wn__type_check has passed, wn__numel and wn__bytes do not overflow, and neither does rounding the
 * bytes up to a granule. The check bounds the product of the dims that are not 0, so that a stride computed from an
 * empty shape does not overflow either. The texts of messages rotate through TEXTS buffers of the thread: a text is
 * valid until TEXTS more have been made. No function of this file allocates. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "../../kernels/scalar.h"
#include "status.h"
#include "type.h"

enum { TEXTS = 8, TEXT_BYTES = 224 };

const struct wn__dtype wn__dtypes[] = {
    [WN_F32] = {"f32", 4, 1}, [WN_F64] = {"f64", 8, 1},   [WN_I32] = {"i32", 4, 0}, [WN_U8] = {"u8", 1, 0},
    [WN_I8] = {"i8", 1, 0},   [WN_BF16] = {"bf16", 2, 1}, [WN_F16] = {"f16", 2, 1},
};
_Static_assert(sizeof wn__dtypes / sizeof wn__dtypes[0] == WN_DTYPE_COUNT, "one row a dtype");

const char *wn__dtype_name(int32_t dtype)
{
    return wn__dtype_is(dtype) ? wn__dtypes[dtype].name : "unknown";
}

int32_t wn__shape_equal(const struct wn_type *a, const struct wn_type *b)
{
    if (a->ndim != b->ndim) return 0;
    for (int32_t k = 0; k < a->ndim; k++)
        if (a->dim[k] != b->dim[k]) return 0;
    return 1;
}

int32_t wn__type_equal(const struct wn_type *a, const struct wn_type *b)
{
    return a->layout == b->layout && wn__type_agrees(a, b);
}

int32_t wn__type_agrees(const struct wn_type *a, const struct wn_type *b)
{
    return a->dtype == b->dtype && wn__shape_equal(a, b);
}

int32_t wn__layout_fits(int32_t layout, const struct wn_type *t)
{
    switch (layout) {
    case WN_PLAIN: return 1;
    case WN_PANEL48: return t->ndim == 2 && t->dim[0] % WN_PANEL_UNIT == 0;
    case WN_CONV48: return t->ndim == 4 && t->dim[0] % WN_PANEL_UNIT == 0;
    case WN_NHWC: return t->ndim == 4;
    default: return 0;
    }
}

int32_t wn__mul(int64_t a, int64_t b, int64_t *out)
{
    if (a != 0 && b > INT64_MAX / a)
        return wn__fail(WN_VALUE, "size: %" PRId64 " x %" PRId64 " does not fit 64 bits", a, b);
    *out = a * b;
    return WN_OK;
}

int32_t wn__add(int64_t a, int64_t b, int64_t *out)
{
    if (b > INT64_MAX - a) return wn__fail(WN_VALUE, "size: %" PRId64 " + %" PRId64 " does not fit 64 bits", a, b);
    *out = a + b;
    return WN_OK;
}

int32_t wn__type_check(const struct wn_type *t, const char *what)
{
    if (!wn__dtype_is(t->dtype)) return wn__fail(WN_DTYPE, "%s: element type %d is unknown", what, (int)t->dtype);
    if (t->ndim < 0 || t->ndim > WN_MAX_DIMS)
        return wn__fail(WN_VALUE, "%s: %d dims given, a value has 0 to %d; merge some with reshape", what, (int)t->ndim,
                        WN_MAX_DIMS);
    int64_t size = wn__dtype_size(t->dtype);
    for (int32_t k = 0; k < t->ndim; k++) {
        int64_t d = t->dim[k];
        if (d < 0)
            return wn__fail(WN_VALUE, "%s: dim %d of %s is %" PRId64 ", it must be 0 or more", what, (int)k + 1,
                            wn__shape_text(t), d);
        if (d > 0 && wn__mul(size, d, &size) != WN_OK)
            return wn__fail(WN_VALUE, "%s: the bytes of %s do not fit 64 bits; use smaller dims", what,
                            wn__type_text(t));
    }
    if (size > INT64_MAX - WN_GRANULE)
        return wn__fail(WN_VALUE, "%s: the bytes of %s do not fit 64 bits; use smaller dims", what, wn__type_text(t));
    if (t->layout < 0 || t->layout >= WN_LAYOUT_COUNT)
        return wn__fail(WN_VALUE, "%s: layout %d is unknown", what, (int)t->layout);
    if (wn__layout_fits(t->layout, t)) return WN_OK;
    if (t->layout == WN_NHWC)
        return wn__fail(WN_VALUE, "%s: %s cannot have its channels last; that is for images of 4 dims", what,
                        wn__shape_text(t));
    return wn__fail(WN_VALUE, "%s: %s cannot lie in panels; that is for %s with a multiple of %d %s", what,
                    wn__shape_text(t), t->layout == WN_CONV48 ? "weights of convolutions" : "matrices", WN_PANEL_UNIT,
                    t->layout == WN_CONV48 ? "outputs" : "rows");
}

static char *next_text(void)
{
    static _Thread_local char texts[TEXTS][TEXT_BYTES];
    static _Thread_local unsigned n_made;
    return texts[n_made++ % TEXTS];
}

/* A text has 2 parentheses, WN_MAX_DIMS numbers of at most 20 digits with ", ", and at most 24 bytes of dtype and
 * layout. */
_Static_assert(TEXT_BYTES >= 2 + WN_MAX_DIMS * 22 + 24, "a shape's text fits");

/* Writes "(32, 1024)" and returns the address of its final 0. */
static char *put_shape(char *text, const struct wn_type *t)
{
    char *p = text;
    *p++ = '(';
    for (int32_t k = 0; k < t->ndim && k < WN_MAX_DIMS; k++) p += sprintf(p, "%s%" PRId64, k ? ", " : "", t->dim[k]);
    *p++ = ')';
    *p = '\0';
    return p;
}

const char *wn__shape_text(const struct wn_type *t)
{
    char *text = next_text();
    put_shape(text, t);
    return text;
}

const char *wn__type_text(const struct wn_type *t)
{
    char *text = next_text(), *p = put_shape(text, t);
    *p++ = ' ';
    strcpy(p, wn__dtype_name(t->dtype));
    if (t->layout != WN_PLAIN)
        strcat(p, t->layout == WN_NHWC ? " channels last" : t->layout == WN_ROWS ? " in padded rows" : " in panels");
    return text;
}

/* The bytes of one element; which member is valid follows from its dtype. */
union number {
    float f32;
    double f64;
    int32_t i32;
    uint8_t u8;
    int8_t i8;
    uint16_t bf16;
};

/* Returns the number of [low, high] that is nearest to v, or 0 if v is NaN. A cast to an integer then is defined. */
static double clamp(double v, double low, double high)
{
    return v != v ? 0 : v < low ? low : v > high ? high : v;
}

void wn__number_put(int32_t dtype, double value, void *element)
{
    union number n = {.f64 = value};
    switch (dtype) {
    case WN_F32: n.f32 = (float)value; break;
    case WN_I32: n.i32 = (int32_t)clamp(value, INT32_MIN, INT32_MAX); break;
    case WN_U8: n.u8 = (uint8_t)clamp(value, 0, UINT8_MAX); break;
    case WN_I8: n.i8 = (int8_t)clamp(value, INT8_MIN, INT8_MAX); break;
    case WN_BF16: n.bf16 = wn_to_bf16((float)value); break;
    default: break;
    }
    memcpy(element, &n, (size_t)wn__dtype_size(dtype));
}

double wn__number_get(int32_t dtype, const void *element)
{
    union number n = {.f64 = 0};
    memcpy(&n, element, (size_t)wn__dtype_size(dtype));
    switch (dtype) {
    case WN_F32: return (double)n.f32;
    case WN_I32: return (double)n.i32;
    case WN_U8: return (double)n.u8;
    case WN_I8: return (double)n.i8;
    case WN_BF16: return (double)wn_from_bf16(n.bf16);
    default: return n.f64;
    }
}
