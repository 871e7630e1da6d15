/* ISNAN, ISFINITE: one byte, 0 or 1, for each float. They look at bits, so that no option of a compiler can change the
 * answer: an exponent of all ones is an infinity or, with a fraction, a NaN. WITHIN: the floats as they are, where all
 * are between two numbers. */
#include <string.h>
#include "../../../runtime/base/outside.h"
#include "../../../runtime/base/type.h"
#include "elementwise.h"

/* Defines the loop over floats as numbers without sign T; f[0]: 1: ISNAN, 0: ISFINITE. */
#define FINITE(NAME, T, EXPONENT, SIGN)                                                                                \
    static void NAME(const struct wn__elementwise *e, const struct wn__operands *o, int64_t n,                         \
                     __attribute__((unused)) int64_t at)                                                               \
    {                                                                                                                  \
        const T *x = o->in[0];                                                                                         \
        uint8_t *out = o->out;                                                                                         \
        const int32_t wants_nan = e->f[0] != 0;                                                                        \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            T rest = x[i] & (T) ~(SIGN);                                                                               \
            out[i] = wants_nan ? rest > (EXPONENT) : rest < (EXPONENT);                                                \
        }                                                                                                              \
    }

FINITE(finite_f32, uint32_t, UINT32_C(0x7f800000), UINT32_C(0x80000000))
FINITE(finite_f64, uint64_t, UINT64_C(0x7ff0000000000000), UINT64_C(0x8000000000000000))
FINITE(finite_bf16, uint16_t, UINT16_C(0x7f80), UINT16_C(0x8000))

static int32_t classify(const struct wn_desc *d, const struct wn_buffers *b, WN_NO_STREAM)
{
    static const wn__row_loop loops[WN_DTYPE_COUNT] = {WN_FLOATS(finite)};
    const struct wn__elementwise e = {.loop = loops[d->in[0].dtype], .size = 1, .f = {d->op == WN_OP_ISNAN}};
    wn__elementwise_whole(d, b, &e, WN_CPU_GRAIN);
    return WN_OK;
}

static int32_t within(const struct wn_desc *d, const struct wn_buffers *b, WN_NO_STREAM)
{
    int64_t n = wn__numel(&d->in[0]), size = wn__dtype_size(d->out.dtype);
    for (int64_t i = 0; i < n; i++) {
        double v = wn__number_get(d->out.dtype, (const char *)b->in[0] + i * size);
        if (!(v >= d->attrs.f[0] && v <= d->attrs.f[1])) return wn__fail_outside(d, i, v);
    }
    memmove(b->out, b->in[0], (size_t)(n * size));
    return WN_OK;
}

wn_kernel_fn wn__cpu_finite_kernel(const struct wn_desc *d)
{
    return d->op == WN_OP_WITHIN ? within : classify;
}
