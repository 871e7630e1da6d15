/* ISNAN, ISFINITE: one byte, 0 or 1, for each float. They look at bits, so that no option of a compiler can change the
 * answer: an exponent of all ones is an infinity or, with a fraction, a NaN. WITHIN: the floats as they are, where all
 * are between two numbers. */
#include <string.h>
#include "../../../runtime/base/outside.h"
#include "../../../runtime/base/type.h"
#include "../common/cpu.h"

/* One ISNAN or ISFINITE. */
struct finite {
    const void *x;
    uint8_t *out;
    int32_t wants_nan; /* 1: ISNAN, 0: ISFINITE */
};

#define FINITE(NAME, T, EXPONENT, SIGN)                                                                                \
    static void NAME(int64_t begin, int64_t end, void *ctx)                                                            \
    {                                                                                                                  \
        const struct finite *k = ctx;                                                                                  \
        const T *x = k->x;                                                                                             \
        for (int64_t i = begin; i < end; i++) {                                                                        \
            T rest = x[i] & (T) ~(SIGN);                                                                               \
            k->out[i] = k->wants_nan ? rest > (EXPONENT) : rest < (EXPONENT);                                          \
        }                                                                                                              \
    }

FINITE(finite_32, uint32_t, UINT32_C(0x7f800000), UINT32_C(0x80000000))
FINITE(finite_64, uint64_t, UINT64_C(0x7ff0000000000000), UINT64_C(0x8000000000000000))
FINITE(finite_16, uint16_t, UINT16_C(0x7f80), UINT16_C(0x8000)) /* bf16 */

static int32_t look(const struct wn_desc *d, const struct wn_buffers *b, WN_NO_STREAM)
{
    struct finite k = {.x = b->in[0], .out = b->out, .wants_nan = d->op == WN_OP_ISNAN};
    int32_t dtype = d->in[0].dtype;
    wn__parallel_for(wn__numel(&d->in[0]), WN_CPU_GRAIN,
                     dtype == WN_F64    ? finite_64
                     : dtype == WN_BF16 ? finite_16
                                        : finite_32,
                     &k);
    return WN_OK;
}

static int32_t within(const struct wn_desc *d, const struct wn_buffers *b, WN_NO_STREAM)
{
    int64_t n = wn__numel(&d->in[0]), size = wn__dtype_size(d->out.dtype);
    for (int64_t i = 0; i < n; i++) {
        double v = wn__number_get(d->out.dtype, (const char *)b->in[0] + i * size);
        if (!(v >= d->attrs.f[0] && v <= d->attrs.f[1])) return wn__fail_within(d, i, v);
    }
    memmove(b->out, b->in[0], (size_t)(n * size));
    return WN_OK;
}

wn_kernel_fn wn__cpu_finite_kernel(const struct wn_desc *d)
{
    return d->op == WN_OP_WITHIN ? within : look;
}
