/* Converts elements of files as convert.h says. Each block goes through doubles or 64-bit integers, which hold
 * every value of every kind, so that there is one loop for each kind and one for each dtype, not one for each pair. */
#include "convert.h"
#include <math.h>
#include <string.h>

/* Rows {name, bytes, dtype, is_float, is_signed, exponent, mantissa}. */
static const struct wn__element elements[] = {
    {"F32", 4, WN_F32, 1, 1, 0, 0},  {"F64", 8, WN_F64, 1, 1, 0, 0},     {"BF16", 2, WN_BF16, 1, 1, 8, 7},
    {"F16", 2, WN_F32, 1, 1, 5, 10}, {"F8_E5M2", 1, WN_F32, 1, 1, 5, 2}, {"F8_E4M3", 1, WN_F32, 1, 1, 4, 3},
    {"I64", 8, WN_I32, 0, 1, 0, 0},  {"I32", 4, WN_I32, 0, 1, 0, 0},     {"I16", 2, WN_I32, 0, 1, 0, 0},
    {"I8", 1, WN_I32, 0, 1, 0, 0},   {"U64", 8, WN_I32, 0, 0, 0, 0},     {"U32", 4, WN_I32, 0, 0, 0, 0},
    {"U16", 2, WN_I32, 0, 0, 0, 0},  {"U8", 1, WN_U8, 0, 0, 0, 0},       {"BOOL", 1, WN_U8, 0, 0, 0, 0},
};

const struct wn__element *wn__element_find(const char *name)
{
    for (size_t i = 0; i < sizeof elements / sizeof elements[0]; i++)
        if (strcmp(elements[i].name, name) == 0) return &elements[i];
    return NULL;
}

int32_t wn__convert_way(const struct wn__element *from, int32_t dtype)
{
    if (from->is_float != wn__dtype_is_float(dtype) || dtype == WN_F16) return WN_CONVERT_NOT;
    int64_t bytes = wn__dtype_size(dtype);
    int32_t has_sign = dtype != WN_U8;
    if (from->dtype == dtype && from->bytes == bytes && from->is_signed == has_sign) return WN_CONVERT_COPIED;
    int32_t is_exact = from->bytes < bytes;
    if (from->is_float) is_exact = is_exact && (from->bytes < 4 || dtype == WN_F64) && dtype != WN_BF16;
    return is_exact ? WN_CONVERT_EXACT : WN_CONVERT_CHECKED;
}

/* A format of small floats: a sign bit, then exponent, then mantissa bits. */
struct small {
    int32_t exponent, mantissa; /* bits */
    double unit[256];           /* unit[e]: the worth of the last bit of the mantissa at exponent e */
};

static struct small small_of(const struct wn__element *from)
{
    struct small s = {.exponent = from->exponent, .mantissa = from->mantissa};
    int32_t bias = (1 << (s.exponent - 1)) - 1;
    for (int32_t e = 0; e < 1 << s.exponent; e++) s.unit[e] = ldexp(1, (e == 0 ? 1 : e) - bias - s.mantissa);
    return s;
}

/* Returns the value of a small float. With 4 bits of exponent (E4M3) there are no infinities and one NaN of each
 * sign. */
static double small_float(uint32_t bits, const struct small *s)
{
    int32_t all = (1 << s->exponent) - 1, one = 1 << s->mantissa;
    int32_t e = (int32_t)(bits >> s->mantissa) & all, m = (int32_t)bits & (one - 1);
    double sign = bits >> (s->exponent + s->mantissa) & 1 ? -1.0 : 1.0;
    if (e == all && s->exponent == 4 && m == one - 1) return NAN;
    if (e == all && s->exponent != 4) return m != 0 ? NAN : sign * INFINITY;
    return sign * (e == 0 ? m : m + one) * s->unit[e];
}

/* Reverses the bytes of each of n elements. */
static void reverse_bytes(unsigned char *bytes, int64_t n, int32_t size)
{
    for (int64_t at = 0; at < n * size; at += size)
        for (int32_t i = 0; i < size / 2; i++) {
            unsigned char t = bytes[at + i];
            bytes[at + i] = bytes[at + size - 1 - i];
            bytes[at + size - 1 - i] = t;
        }
}

/* Sets wide[i] to an expression of x, the i-th element of the type. */
#define EACH(type, expression)                                                                                         \
    for (int64_t i = 0; i < n; i++) {                                                                                  \
        type x;                                                                                                        \
        memcpy(&x, in + i * (int64_t)sizeof x, sizeof x);                                                              \
        wide[i] = (expression);                                                                                        \
    }

static void widen_floats(const struct wn__element *from, const char *in, int64_t n, double *wide)
{
    struct small s = {0};
    if (from->exponent != 0) s = small_of(from);
    if (from->exponent != 0 && from->bytes == 2) EACH(uint16_t, small_float(x, &s))
    else if (from->exponent != 0) EACH(uint8_t, small_float(x, &s))
    else if (from->dtype == WN_F32) EACH(float, (double)x)
    else EACH(double, x)
}

/* Widens integers. One above INT64_MAX becomes INT64_MAX, which every dtype refuses as well. */
static void widen_integers(const struct wn__element *from, const char *in, int64_t n, int64_t *wide)
{
    switch (from->bytes) {
    case 8:
        if (from->is_signed) EACH(int64_t, x)
        else EACH(uint64_t, x > INT64_MAX ? INT64_MAX : (int64_t)x)
        break;
    case 4:
        if (from->is_signed) EACH(int32_t, x)
        else EACH(uint32_t, x)
        break;
    case 2:
        if (from->is_signed) EACH(int16_t, x)
        else EACH(uint16_t, x)
        break;
    default:
        if (from->is_signed) EACH(int8_t, x)
        else EACH(uint8_t, x)
    }
}

/* The functions narrow_* write n elements of a dtype and return -1, or the index of the first that the dtype does
 * not hold, which is in *value then. */
static int64_t narrow_to_f32(const double *wide, int64_t n, char *out, double *value)
{
    for (int64_t i = 0; i < n; i++) {
        float x = (float)wide[i];
        memcpy(out + i * (int64_t)sizeof x, &x, sizeof x);
        if (!isinf(x) || isinf(wide[i])) continue;
        *value = wide[i];
        return i;
    }
    return -1;
}

static int64_t narrow_floats(const double *wide, int64_t n, int32_t dtype, char *out, double *value)
{
    int64_t size = wn__dtype_size(dtype);
    if (dtype == WN_F32) return narrow_to_f32(wide, n, out, value);
    for (int64_t i = 0; i < n; i++) {
        wn__number_put(dtype, wide[i], out + i * size);
        if (dtype == WN_F64 || !isfinite(wide[i]) || isfinite(wn__number_get(dtype, out + i * size))) continue;
        *value = wide[i];
        return i;
    }
    return -1;
}

static int64_t narrow_integers(const int64_t *wide, int64_t n, int32_t dtype, char *out, double *value)
{
    int64_t size = wn__dtype_size(dtype);
    int64_t low = dtype == WN_I32 ? INT32_MIN : dtype == WN_I8 ? INT8_MIN : 0;
    int64_t high = dtype == WN_I32 ? INT32_MAX : dtype == WN_I8 ? INT8_MAX : UINT8_MAX;
    for (int64_t i = 0; i < n; i++) {
        if (wide[i] < low || wide[i] > high) {
            *value = (double)wide[i];
            return i;
        }
        wn__number_put(dtype, (double)wide[i], out + i * size);
    }
    return -1;
}

int64_t wn__convert(const struct wn__conversion *c, void *in, int64_t n, void *out, double *value)
{
    const struct wn__element *from = c->from;
    union {
        double floats[WN_CONVERT_MOST];
        int64_t integers[WN_CONVERT_MOST];
    } wide;
    if (c->swap && from->bytes > 1) reverse_bytes(in, n, from->bytes);
    if (wn__convert_way(from, c->dtype) == WN_CONVERT_COPIED) {
        memcpy(out, in, (size_t)(n * from->bytes));
        return -1;
    }
    if (from->is_float) {
        widen_floats(from, in, n, wide.floats);
        return narrow_floats(wide.floats, n, c->dtype, out, value);
    }
    widen_integers(from, in, n, wide.integers);
    return narrow_integers(wide.integers, n, c->dtype, out, value);
}
