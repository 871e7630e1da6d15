/* Elementwise ops of one input, their derivatives (dy and one residual of the same shape), and CAST. The formulas are
 * those of kernels/scalar.h. Each loop reads an element before it writes it, so an op may run in place. */
#include <stddef.h>
#include "../../scalar.h"
#include "elementwise.h"

/* Defines the loop of an op for f32 and f64, and for i32 where SIGNED. */
#define LOOP(S, T, formula, arguments)                                                                                 \
    static void formula##_##S(const struct wn__elementwise *e, const struct wn__operands *o, int64_t n,                \
                              __attribute__((unused)) int64_t at)                                                      \
    {                                                                                                                  \
        const T *a = o->in[0], *b = o->in[1], low = (T)e->f[0], high = (T)e->f[1];                                     \
        T *out = o->out;                                                                                               \
        (void)b, (void)low, (void)high;                                                                                \
        _Pragma("omp simd") for (int64_t i = 0; i < n; i++) out[i] = wn_##formula##_##S arguments;                     \
    }
#define UNARY(OP, formula, arguments, is_math)                                                                         \
    LOOP(f32, float, formula, arguments) LOOP(f64, double, formula, arguments)
#define SIGNED(OP, formula, arguments, is_math) UNARY(OP, formula, arguments, ) LOOP(i32, int32_t, formula, arguments)
#include "unary.def"
#undef UNARY
#undef SIGNED

static const wn__row_loop loops[WN_OP_COUNT][WN_DTYPE_COUNT] = {
#define UNARY(OP, formula, arguments, is_math) [WN_OP_##OP] = {WN_F32_F64(formula)},
#define SIGNED(OP, formula, arguments, is_math) [WN_OP_##OP] = {WN_F32_F64(formula), [WN_I32] = formula##_i32},
#include "unary.def"
#undef UNARY
#undef SIGNED
};

static const uint8_t math[WN_OP_COUNT] = {
#define UNARY(OP, formula, arguments, is_math) [WN_OP_##OP] = is_math,
#define SIGNED UNARY
#include "unary.def"
#undef UNARY
#undef SIGNED
};

wn__row_loop wn__cpu_unary_loop(int32_t op, int32_t dtype)
{
    return loops[op][dtype];
}

int32_t wn__cpu_unary_is_math(int32_t op)
{
    return math[op];
}

static int32_t unary(const struct wn_desc *d, const struct wn_buffers *b, WN_NO_STREAM)
{
    struct wn__elementwise e;
    wn__elementwise_of(d->op, d->out.dtype, d->attrs.f, NULL, &e);
    wn__elementwise_whole(d, b, &e, WN_CPU_GRAIN_MATH);
    return WN_OK;
}

/* ---- cast ---------------------------------------------------------------------------------------- */
/* A cast to integers rounds toward zero; floats out of range become the nearest integer of the dtype, integers wrap. A
 * cast to bf16 rounds the f32 value. */

/* Convert without branches, so that loops vectorise, with the results of scalar.h. */
INLINE int32_t f32_to_i32(float x)
{
    float above = x >= -2147483648.0f ? x : -2147483648.0f, inside = above <= 2147483520.0f ? above : 2147483520.0f;
    int32_t whole = x >= 2147483648.0f ? 2147483647 : (int32_t)inside;
    return x == x ? whole : 0;
}

INLINE uint8_t f32_to_u8(float x)
{
    float above = x > 0.0f ? x : 0.0f;
    return (uint8_t)(int32_t)(above < 255.0f ? above : 255.0f);
}

/* Defines the loop of a cast. TAKE converts an element to a number. */
#define CAST(NAME, FROM, TO, TAKE, EXPR)                                                                               \
    static void NAME(__attribute__((unused)) const struct wn__elementwise *e, const struct wn__operands *o, int64_t n, \
                     __attribute__((unused)) int64_t at)                                                               \
    {                                                                                                                  \
        const FROM *a = o->in[0];                                                                                      \
        TO *out = o->out;                                                                                              \
        _Pragma("omp simd") for (int64_t i = 0; i < n; i++)                                                            \
        {                                                                                                              \
            __typeof__(TAKE(a[i])) x = TAKE(a[i]);                                                                     \
            out[i] = (EXPR);                                                                                           \
        }                                                                                                              \
    }

#define CASTS_FROM(S, T, TAKE, TO_I32, TO_U8)                                                                          \
    CAST(cast_##S##_f32, T, float, TAKE, (float)x)                                                                     \
    CAST(cast_##S##_f64, T, double, TAKE, (double)x)                                                                   \
    CAST(cast_##S##_bf16, T, uint16_t, TAKE, wn_to_bf16((float)x))                                                     \
    CAST(cast_##S##_i32, T, int32_t, TAKE, TO_I32(x))                                                                  \
    CAST(cast_##S##_u8, T, uint8_t, TAKE, TO_U8(x))

CASTS_FROM(f32, float, WN_SAME, f32_to_i32, f32_to_u8)
CASTS_FROM(f64, double, WN_SAME, wn_to_i32, wn_to_u8)
CASTS_FROM(bf16, uint16_t, wn_from_bf16, wn_to_i32, wn_to_u8)
CASTS_FROM(i32, int32_t, WN_SAME, (int32_t), (uint8_t))
CASTS_FROM(u8, uint8_t, WN_SAME, (int32_t), (uint8_t))

static const wn__row_loop casts[WN_DTYPE_COUNT][WN_DTYPE_COUNT] = {[WN_F32] = {WN_TYPES(cast_f32)},
                                                                   [WN_F64] = {WN_TYPES(cast_f64)},
                                                                   [WN_BF16] = {WN_TYPES(cast_bf16)},
                                                                   [WN_I32] = {WN_TYPES(cast_i32)},
                                                                   [WN_U8] = {WN_TYPES(cast_u8)}};

static int32_t cast(const struct wn_desc *d, const struct wn_buffers *b, WN_NO_STREAM)
{
    const struct wn__elementwise e = {.loop = casts[d->in[0].dtype][d->out.dtype],
                                      .size = wn__dtype_size(d->out.dtype)};
    wn__elementwise_whole(d, b, &e, WN_CPU_GRAIN);
    return WN_OK;
}

wn_kernel_fn wn__cpu_unary_kernel(const struct wn_desc *d)
{
    if (d->op == WN_OP_CAST) return casts[d->in[0].dtype][d->out.dtype] ? cast : NULL;
    for (int32_t i = 0; i < d->n_in; i++)
        if (d->in[i].dtype != d->out.dtype) return NULL;
    return loops[d->op][d->out.dtype == WN_BF16 ? WN_F32 : d->out.dtype] ? unary : NULL;
}
