/* Values that are computed from attributes alone: no inputs, so no gradients.
 *
 *     full     y[k] = f[0]
 *     arange   y[k] = f[0] + k f[1]                          y: (n)
 *     eye      y[i, j] = i == j                              y: (rows, columns)
 *     uniform  y[k] uniform in [f[0], f[1])                  floats
 *     normal   y[k] normal of mean f[0], deviation f[1]      floats
 *     randint  y[k] uniform whole number in [f[0], f[1])     i32
 *
 * The shape of y is attrs.i[0 .. attrs.n), its dtype attrs.dtype, f is attrs.f. Element k of a random value is a
 * function of the seed, the counter of the node and k (base/random.h), so computing the node again draws the same
 * numbers. A rank makes a range of a whole value by itself: attrs.i[1] of one dim is the k of its first element. */
#include <math.h>
#include "helper.h"

/* FLOPs of an element: a quarter of a Philox block, and its transform. */
enum { NORMAL_FLOPS = 20, UNIFORM_FLOPS = 10 };

static int32_t shape_created(struct wn_desc *d)
{
    WN_TRY(wn__need_element(d, d->attrs.dtype));
    d->out.dtype = d->attrs.dtype;
    WN_TRY(wn__shape_from_attrs(d));
    int64_t first = wn__created_first(d);
    if (first != 0 && (d->op == WN_OP_ARANGE || first < 0 || first % WN_CREATED_STEP != 0))
        return wn__fail(WN_VALUE,
                        "%s: elements from %" PRId64 " of a whole given, expected 0, or a multiple of %d of a "
                        "full or random value",
                        wn__op_name(d->op), first, WN_CREATED_STEP);
    return wn__check_out(d);
}

static int32_t need_created_float(const struct wn_desc *d)
{
    if (wn__dtype_is_float(d->attrs.dtype)) return WN_OK;
    return wn__fail(WN_DTYPE, "%s: dtype %s given, expected f32, bf16 or f64; make it in f32 and convert it with :to",
                    wn__op_name(d->op), wn__dtype_name(d->attrs.dtype));
}

/* ---- full ------------------------------------------------------------------------------------------ */
static int32_t shape_full(struct wn_desc *d)
{
    double v = d->attrs.f[0];
    WN_TRY(shape_created(d));
    if (d->out.dtype == WN_I32 && !(v >= INT32_MIN && v <= INT32_MAX && v == floor(v)))
        return wn__fail(WN_VALUE, "full: %g is not an i32; use a whole number of 32 bits, or a float dtype", v);
    if (d->out.dtype == WN_U8 && !(v >= 0 && v <= UINT8_MAX && v == floor(v)))
        return wn__fail(WN_VALUE, "full: %g is not a u8; use a whole number from 0 to 255, or another dtype", v);
    return WN_OK;
}

const struct wn__rules wn__rules_full = {.shape = shape_full};

/* ---- arange ---------------------------------------------------------------------------------------- */
static int32_t shape_arange(struct wn_desc *d)
{
    WN_TRY(shape_created(d));
    if (d->out.ndim != 1)
        return wn__fail(WN_SHAPE, "arange: shape %s given, expected 1 dim; reshape the result",
                        wn__shape_text(&d->out));
    if (d->out.dtype == WN_U8)
        return wn__fail(WN_DTYPE, "arange: dtype u8 given, expected f32, f64 or i32; convert the result with :to");
    double first = d->attrs.f[0], step = d->attrs.f[1];
    if (!isfinite(first) || !isfinite(step))
        return wn__fail(WN_VALUE, "arange: start %g and step %g given, both must be finite", first, step);
    if (d->out.dtype == WN_I32 && d->out.dim[0] > 0) {
        double last = first + (double)(d->out.dim[0] - 1) * step;
        if (first != floor(first) || step != floor(step) || fabs(first) > INT32_MAX || fabs(last) > INT32_MAX)
            return wn__fail(WN_VALUE, "arange: from %g by %g to %g is not all i32; use a float dtype", first, step,
                            last);
    }
    return WN_OK;
}

const struct wn__rules wn__rules_arange = {shape_arange, NULL, .per_output = 1};

/* ---- eye ------------------------------------------------------------------------------------------- */
static int32_t shape_eye(struct wn_desc *d)
{
    WN_TRY(shape_created(d));
    if (d->out.ndim == 2) return WN_OK;
    return wn__fail(WN_SHAPE, "eye: shape %s given, expected 2 dims", wn__shape_text(&d->out));
}

const struct wn__rules wn__rules_eye = {.shape = shape_eye};

/* ---- uniform --------------------------------------------------------------------------------------- */
static int32_t shape_uniform(struct wn_desc *d)
{
    double low = d->attrs.f[0], high = d->attrs.f[1];
    WN_TRY(shape_created(d));
    WN_TRY(need_created_float(d));
    if (isfinite(low) && isfinite(high) && low <= high) return WN_OK;
    return wn__fail(WN_VALUE, "uniform: from %g to %g given, expected two finite numbers, the lower first", low, high);
}

const struct wn__rules wn__rules_uniform = {shape_uniform, NULL, .per_output = UNIFORM_FLOPS};

/* ---- normal ---------------------------------------------------------------------------------------- */
static int32_t shape_normal(struct wn_desc *d)
{
    double mean = d->attrs.f[0], std = d->attrs.f[1];
    WN_TRY(shape_created(d));
    WN_TRY(need_created_float(d));
    if (isfinite(mean) && isfinite(std) && std >= 0) return WN_OK;
    return wn__fail(WN_VALUE, "normal: mean %g and std %g given, expected finite numbers and std >= 0", mean, std);
}

const struct wn__rules wn__rules_normal = {shape_normal, NULL, .per_output = NORMAL_FLOPS};

/* ---- randint --------------------------------------------------------------------------------------- */
static int32_t shape_randint(struct wn_desc *d)
{
    double low = d->attrs.f[0], high = d->attrs.f[1];
    WN_TRY(shape_created(d));
    if (d->out.dtype != WN_I32)
        return wn__fail(WN_DTYPE, "randint: dtype %s given, expected i32; convert the result with :to",
                        wn__dtype_name(d->out.dtype));
    /* The span fits 32 bits, so one Philox word decides an element. */
    if (low == floor(low) && high == floor(high) && low < high && low >= INT32_MIN && high <= (double)INT32_MAX + 1 &&
        high - low <= UINT32_MAX)
        return WN_OK;
    return wn__fail(WN_VALUE, "randint: from %g to %g given, expected whole i32 numbers, low < high (exclusive)", low,
                    high);
}

const struct wn__rules wn__rules_randint = {shape_randint, NULL, .per_output = UNIFORM_FLOPS};
