/* The formulas of kernels/scalar.h under one name for all types, so that a kernel template over dtypes can call them:
 * wn_exp(x) is wn_exp_f32(x) of a float and wn_exp_f64(x) of a double. wn__cast<T>(x) rounds a number to an element of
 * any dtype. The bits are those of scalar.h. */
#ifndef WN_CUDA_SCALAR_CUH
#define WN_CUDA_SCALAR_CUH
#include "element.cuh"

#define WN_DEVICE_FN static __device__ __forceinline__

/* Unroll the loop behind it, so that an array that it indexes stays in registers, or keep the compiler from that, so
 * that a long body is there once. */
#if defined(WN_SIMULATED)
#define WN_UNROLL _Pragma("GCC unroll 8")
#define WN_ROLLED
#else
#define WN_UNROLL _Pragma("unroll")
#define WN_ROLLED _Pragma("unroll 1")
#endif

/* Define the overloads of a formula: for the type T, by the function of suffix S. */
#define WN_OVERLOAD1(NAME, S, T)                                                                                       \
    WN_DEVICE_FN T NAME(T a)                                                                                           \
    {                                                                                                                  \
        return NAME##_##S(a);                                                                                          \
    }
#define WN_OVERLOAD2(NAME, S, T)                                                                                       \
    WN_DEVICE_FN T NAME(T a, T b)                                                                                      \
    {                                                                                                                  \
        return NAME##_##S(a, b);                                                                                       \
    }
#define WN_OVERLOAD3(NAME, S, T)                                                                                       \
    WN_DEVICE_FN T NAME(T a, T b, T c)                                                                                 \
    {                                                                                                                  \
        return NAME##_##S(a, b, c);                                                                                    \
    }
#define WN_FLOATS(OVERLOAD, NAME) OVERLOAD(NAME, f32, float) OVERLOAD(NAME, f64, double)
#define WN_NUMBERS(OVERLOAD, NAME) WN_FLOATS(OVERLOAD, NAME) OVERLOAD(NAME, i32, int32_t) OVERLOAD(NAME, u8, uint8_t)

WN_NUMBERS(WN_OVERLOAD2, wn_add)
WN_NUMBERS(WN_OVERLOAD2, wn_sub)
WN_NUMBERS(WN_OVERLOAD2, wn_mul)
WN_NUMBERS(WN_OVERLOAD2, wn_maximum)
WN_NUMBERS(WN_OVERLOAD2, wn_minimum)
WN_NUMBERS(WN_OVERLOAD1, wn_neg)
WN_FLOATS(WN_OVERLOAD2, wn_div)
WN_FLOATS(WN_OVERLOAD1, wn_abs)
WN_OVERLOAD1(wn_abs, i32, int32_t)
WN_FLOATS(WN_OVERLOAD1, wn_exp)
WN_FLOATS(WN_OVERLOAD1, wn_exp_below)
WN_FLOATS(WN_OVERLOAD1, wn_log)
WN_FLOATS(WN_OVERLOAD1, wn_tanh)
WN_FLOATS(WN_OVERLOAD1, wn_sqrt)
WN_FLOATS(WN_OVERLOAD1, wn_rsqrt)
WN_FLOATS(WN_OVERLOAD1, wn_relu)
WN_FLOATS(WN_OVERLOAD1, wn_sigmoid)
WN_FLOATS(WN_OVERLOAD1, wn_silu)
WN_FLOATS(WN_OVERLOAD1, wn_gelu)
WN_FLOATS(WN_OVERLOAD1, wn_softplus)
WN_FLOATS(WN_OVERLOAD1, wn_sin)
WN_FLOATS(WN_OVERLOAD1, wn_cos)
WN_FLOATS(WN_OVERLOAD1, wn_log1p)
WN_FLOATS(WN_OVERLOAD1, wn_expm1)
WN_FLOATS(WN_OVERLOAD1, wn_floor)
WN_FLOATS(WN_OVERLOAD1, wn_round)
WN_FLOATS(WN_OVERLOAD1, wn_sign)
WN_OVERLOAD1(wn_sign, i32, int32_t)
WN_FLOATS(WN_OVERLOAD3, wn_clamp)
WN_FLOATS(WN_OVERLOAD2, wn_abs_grad)
WN_FLOATS(WN_OVERLOAD2, wn_relu_grad)
WN_FLOATS(WN_OVERLOAD2, wn_tanh_grad)
WN_FLOATS(WN_OVERLOAD2, wn_sigmoid_grad)
WN_FLOATS(WN_OVERLOAD2, wn_sqrt_grad)
WN_FLOATS(WN_OVERLOAD2, wn_gelu_grad)
WN_FLOATS(WN_OVERLOAD2, wn_silu_grad)
WN_FLOATS(WN_OVERLOAD3, wn_softmax_grad)
WN_FLOATS(WN_OVERLOAD3, wn_log_softmax_grad)

/* Define the overloads with more operands, and those that differ: the power 1 gives its base, as the CPU's libm does,
 * so that the gradient of a square has the CPU's bits. */
#define WN_OVERLOAD_OTHERS(S, T)                                                                                       \
    WN_DEVICE_FN T wn_pow(T a, T b)                                                                                    \
    {                                                                                                                  \
        return b == (T)1 ? a : wn_pow_##S(a, b);                                                                       \
    }                                                                                                                  \
    WN_DEVICE_FN T wn_clamp_grad(T dy, T x, T low, T high)                                                             \
    {                                                                                                                  \
        return wn_clamp_grad_##S(dy, x, low, high);                                                                    \
    }                                                                                                                  \
    WN_DEVICE_FN T wn_layernorm(T x, T mean, T rstd, T w, T b)                                                         \
    {                                                                                                                  \
        return wn_layernorm_##S(x, mean, rstd, w, b);                                                                  \
    }

WN_OVERLOAD_OTHERS(f32, float)
WN_OVERLOAD_OTHERS(f64, double)

/* ---- conversions --------------------------------------------------------------------------------- */

/* Convert a number to an integer: floats toward zero, the nearest end of the range where they are outside, 0 for NaN;
 * integers wrap. f32 needs no double: the largest f32 below 2^31 is 2147483520. */
WN_DEVICE_FN int32_t wn_to_i32(float x)
{
    float above = x >= -2147483648.0f ? x : -2147483648.0f;
    int32_t whole = x >= 2147483648.0f ? 2147483647 : (int32_t)(above <= 2147483520.0f ? above : 2147483520.0f);
    return x == x ? whole : 0;
}
WN_DEVICE_FN int32_t wn_to_i32(int32_t x)
{
    return x;
}
WN_DEVICE_FN int32_t wn_to_i32(uint8_t x)
{
    return x;
}
WN_DEVICE_FN uint8_t wn_to_u8(float x)
{
    float above = x > 0.0f ? x : 0.0f;
    return (uint8_t)(int32_t)(above < 255.0f ? above : 255.0f);
}
WN_DEVICE_FN uint8_t wn_to_u8(int32_t x)
{
    return (uint8_t)x;
}
WN_DEVICE_FN uint8_t wn_to_u8(uint8_t x)
{
    return x;
}

/* wn__caster<T>::of(x) is what wn__cast<T>(x) returns. */
template <class T> struct wn__caster {
    template <class N> static __device__ __forceinline__ T of(N x)
    {
        return (T)x;
    }
};
template <> struct wn__caster<wn_bf16> {
    template <class N> static __device__ __forceinline__ wn_bf16 of(N x)
    {
        return wn__store<wn_bf16>((float)x);
    }
};
template <> struct wn__caster<int32_t> {
    template <class N> static __device__ __forceinline__ int32_t of(N x)
    {
        return wn_to_i32(x);
    }
};
template <> struct wn__caster<uint8_t> {
    template <class N> static __device__ __forceinline__ uint8_t of(N x)
    {
        return wn_to_u8(x);
    }
};
/* Returns the element of T that CAST makes of a number; bf16 is the f32 value, rounded. */
template <class T, class N> WN_DEVICE_FN T wn__cast(N x)
{
    return wn__caster<T>::of(x);
}
#endif
