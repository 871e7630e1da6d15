/* Every elementwise formula and its derivative, once, for every device. A fused kernel, a kernel of one op, the CPU and
 * CUDA all compile this text, so they agree on what a value is.
 *
 * f32 functions are polynomials without branches: they vectorise, and give the same bits in every lane, tail and
 * instruction set, a few ulp from the true value. f64 functions are libm's: the reference. Build with -ffp-contract=off
 * (nvcc: -fmad=false): an fma is used where it is written, nowhere else. This file must never contain a reduction, a
 * loop over memory or an intrinsic of a device. */
#ifndef WN_SCALAR_H
#define WN_SCALAR_H
#include <math.h>
#include <stdint.h>
#include <string.h>
#include "../runtime/base/number.h"
#include "angle.h"

/* ---- f32 bits and powers of two ------------------------------------------------------------------ */

WN_FN float wn_from_bits(int32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

WN_FN int32_t wn_to_bits(float x)
{
    int32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* Convert bf16, the upper half of an f32. wn_to_bf16 rounds to nearest, ties to even; a NaN stays a NaN. */
WN_FN float wn_from_bf16(uint16_t half)
{
    return wn_from_bits((int32_t)((uint32_t)half << 16));
}

WN_FN uint16_t wn_to_bf16(float x)
{
    uint32_t bits = (uint32_t)wn_to_bits(x);
    uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16, quiet = (bits >> 16) | 0x40u;
    return (uint16_t)(x != x ? quiet : rounded);
}

/* Returns the scale of a group in int8: an element is a whole number of [-127, 127] times the scale, and unpacks within
 * half a scale of its value. top: the largest magnitude of the group. A group below 2^-119 becomes zeros, so that a
 * scale has all its bits. A group with an infinity or a NaN has the scale NaN, and unpacks to NaN: nothing that went
 * wrong is hidden. */
WN_FN float wn_int8_scale(float top)
{
    const float least = 1.504632769e-36f; /* 2^-119 */
    if (top < least) return 0.0f;
    return top <= 3.402823466e38f ? top / 127.0f : NAN;
}

/* Returns x / scale rounded to nearest, ties to even, which is in the low bits of a sum. inverse: 1 / scale. */
WN_FN int8_t wn_int8_code(float x, float inverse)
{
    const float round = 12582912.0f;
    return (int8_t)(wn_to_bits(x * inverse + round) - wn_to_bits(round));
}

/* Returns 2^e for -126 <= e <= 127; any other e gives some float, never undefined behaviour. */
WN_FN float wn_power_of_two(int32_t e)
{
    return wn_from_bits((int32_t)((uint32_t)(e + 127) << 23));
}

/* ---- exp and log, f32 ---------------------------------------------------------------------------- */

/* Returns e^r - 1, and n + 1.5 x 2^23 in *shifted, for e^x = 2^n e^r with |r| <= ln2 / 2. Adding and subtracting
 * 1.5 x 2^23 rounds to the nearest integer and leaves it in the low bits. */
WN_FN float wn_expm1_parts_f32(float x, float *shifted)
{
    const float round = 12582912.0f;
    *shifted = fmaf(x, 1.44269504f, round);
    float n = *shifted - round;
    float r = fmaf(n, -0.693145752f, x); /* upper part of ln2, of few bits */
    r = fmaf(n, -1.42860677e-6f, r);     /* lower part of ln2 */
    float p = 1.395171847e-3f;
    p = fmaf(p, r, 8.369598292e-3f);
    p = fmaf(p, r, 4.166618727e-2f);
    p = fmaf(p, r, 1.666651289e-1f);
    p = fmaf(p, r, 5.000000101e-1f);
    return fmaf(p * r, r, r);
}

/* Returns e^r, and what wn_expm1_parts_f32 does in *shifted. */
WN_FN float wn_exp_parts_f32(float x, float *shifted)
{
    return wn_expm1_parts_f32(x, shifted) + 1.0f;
}

/* Returns e^x for -104 <= x <= 89 or NaN; e^x is 0 below and infinite above. 2^n is applied in two halves, so that
 * results below 2^-126 are right. */
WN_FN float wn_exp_within_f32(float x)
{
    float shifted, p = wn_exp_parts_f32(x, &shifted);
    int32_t e = wn_to_bits(shifted) - wn_to_bits(12582912.0f);
    int32_t half = e >> 1;
    return p * wn_power_of_two(half) * wn_power_of_two(e - half);
}

WN_FN float wn_exp_f32(float x)
{
    float clipped = x < -104.0f ? -104.0f : x;
    float p = wn_exp_within_f32(clipped > 89.0f ? 89.0f : clipped);
    return x != x ? x : p;
}

/* Returns wn_exp_f32(x), to the bit, for x <= 0 or NaN, with fewer operations: of an element less the maximum of its
 * row. 2^n is applied as 2^(n + 64) and 2^-64, of which the first product is exact. */
WN_FN float wn_exp_below_f32(float x)
{
    float shifted, p = wn_exp_parts_f32(-104.0f > x ? -104.0f : x, &shifted);
    uint32_t e = (uint32_t)wn_to_bits(shifted) - (uint32_t)wn_to_bits(12582912.0f);
    return p * wn_from_bits((int32_t)((e + (127 + 64)) << 23)) * 5.421010862e-20f; /* 2^-64 */
}

/* The coefficients of P in 2^r - 1 = r P(r), 0 <= r <= 1, so that 2^0 = 1; the error is at most 1.5e-7.
 * wn_exp2_below_f32 returns 2^x = 2^n 2^r with n = floor(x), for x <= 0 or NaN: a score less the maximum, times log2 e.
 * It is 0 for x <= -150. */
#define WN_EXP2_1 6.931513118e-1f
#define WN_EXP2_2 2.401644501e-1f
#define WN_EXP2_3 5.579991315e-2f
#define WN_EXP2_4 9.017030285e-3f
#define WN_EXP2_5 1.867130082e-3f
WN_FN float wn_exp2_below_f32(float x)
{
    const float round = 12582912.0f; /* 1.5 x 2^23: an integer added to it is in its low bits */
    x = -150.0f > x ? -150.0f : x;
    float n = floorf(x), r = x - n;
    float p = fmaf(WN_EXP2_5, r, WN_EXP2_4);
    p = fmaf(p, r, WN_EXP2_3);
    p = fmaf(p, r, WN_EXP2_2);
    p = fmaf(p, r, WN_EXP2_1);
    p = fmaf(p, r, 1.0f);
    int32_t e = wn_to_bits(n + round) - wn_to_bits(round);
    int32_t half = e >> 1;
    return p * wn_power_of_two(half) * wn_power_of_two(e - half);
}

/* Returns log x = e ln2 + log(1 + f), with 1 + f in [sqrt(1/2), sqrt(2)). */
WN_FN float wn_log_f32(float x)
{
    int32_t tiny = x < 1.17549435e-38f;
    float scaled = tiny ? x * 8388608.0f : x;
    int32_t bits = (int32_t)((uint32_t)wn_to_bits(scaled) - 0x3f3504f3u); /* sqrt(1/2) */
    float e = (float)((bits >> 23) - (tiny ? 23 : 0));
    float f = wn_from_bits((bits & 0x007fffff) + 0x3f3504f3) - 1.0f;
    float p = 6.915098841e-2f;
    p = fmaf(p, f, -1.178967163e-1f);
    p = fmaf(p, f, 1.187302521e-1f);
    p = fmaf(p, f, -1.238437498e-1f);
    p = fmaf(p, f, 1.421865481e-1f);
    p = fmaf(p, f, -1.666924917e-1f);
    p = fmaf(p, f, 2.000222673e-1f);
    p = fmaf(p, f, -2.499998663e-1f);
    p = fmaf(p, f, 3.333331044e-1f);
    float f2 = f * f;
    float low = fmaf(e, 1.42860677e-6f, fmaf(p * f, f2, -0.5f * f2));
    float y = fmaf(e, 0.693145752f, low + f);
    y = x == 0.0f ? -INFINITY : y;
    y = x < 0.0f ? NAN : y;
    return x == INFINITY || x != x ? x : y;
}

/* Returns e^x - 1 = 2 (2^(n - 1) (e^r - 1) + 2^(n - 1) - 1/2), which cancels nothing near 0. It is -1 below -30. */
WN_FN float wn_expm1_f32(float x)
{
    float clipped = x < -30.0f ? -30.0f : x, shifted;
    float q = wn_expm1_parts_f32(clipped > 89.0f ? 89.0f : clipped, &shifted);
    float half = wn_power_of_two(wn_to_bits(shifted) - wn_to_bits(12582912.0f) - 1);
    float y = fmaf(half, q, half - 0.5f) * 2.0f;
    return x != x ? x : y;
}

/* Returns log(1 + x): the logarithm of the rounded sum, and what rounding lost of it. Below 2^-25 it is x. */
WN_FN float wn_log1p_f32(float x)
{
    float sum = 1.0f + x, one = sum - x, lost = (x - (sum - one)) + (1.0f - one);
    float y = wn_log_f32(sum), small = fabsf(x) < 2.98e-8f ? x : y + lost / sum;
    return sum > 0.0f && sum <= 3.402823466e38f ? small : y;
}

WN_FN double wn_expm1_f64(double x)
{
    return expm1(x);
}

WN_FN double wn_log1p_f64(double x)
{
    return log1p(x);
}

WN_FN double wn_exp_f64(double x)
{
    return exp(x);
}

WN_FN double wn_exp_below_f64(double x)
{
    return exp(x);
}

WN_FN double wn_log_f64(double x)
{
    return log(x);
}

WN_FN float wn_tanh_f32(float x)
{
    float a = fabsf(x), s = x * x;
    float p = -5.528633021e-3f;
    p = fmaf(p, s, 2.048331543e-2f);
    p = fmaf(p, s, -5.369296780e-2f);
    p = fmaf(p, s, 1.333089976e-1f);
    p = fmaf(p, s, -3.333326288e-1f);
    float near_zero = fmaf(x * s, p, x);
    float far = copysignf(1.0f - 2.0f / (wn_exp_f32(a + a) + 1.0f), x);
    return a < 0.65f ? near_zero : (x != x ? x : far);
}

WN_FN double wn_tanh_f64(double x)
{
    return tanh(x);
}

/* The normal distribution. Its density is exp(-x^2/2) / sqrt(2 pi); its lower tail at -|x| is exp(-x^2/2) s P(s) with
 * s = 1 / (1 + |x|/4), to a relative error of 1e-8, since nothing cancels. */
WN_FN float wn_normal_bell_f32(float x)
{
    float square = x * x;
    float lost = fmaf(x, x, -square);
    float e = wn_exp_f32(-0.5f * square);
    e = fmaf(e, -0.5f * lost, e);
    return square > 3e38f ? 0.0f : e;
}

WN_FN float wn_normal_cdf_f32(float x, float bell)
{
    float s = 1.0f / fmaf(0.25f, fabsf(x), 1.0f);
    float p = 1.689239845e-2f;
    p = fmaf(p, s, -6.453713021e-2f);
    p = fmaf(p, s, 5.587938366e-2f);
    p = fmaf(p, s, 2.261102300e-2f);
    p = fmaf(p, s, 1.773461091e-2f);
    p = fmaf(p, s, 8.385128298e-2f);
    p = fmaf(p, s, 7.301278537e-2f);
    p = fmaf(p, s, 9.528786278e-2f);
    p = fmaf(p, s, 9.952145779e-2f);
    p = fmaf(p, s, 9.974632959e-2f);
    float tail = bell * (p * s);
    return x > 0.0f ? 1.0f - tail : tail;
}

WN_FN double wn_normal_bell_f64(double x)
{
    return exp(-0.5 * x * x);
}

WN_FN double wn_normal_cdf_f64(double x, double bell)
{
    (void)bell;
    return 0.5 * erfc(-x * 0.70710678118654752440);
}

/* ---- formulas for both floats -------------------------------------------------------------------- */
/* Defines the formulas of a dtype. S: suffix, T: type, F: suffix of libm's functions. Every formula passes NaN on. */
#define WN_SCALAR_ARITHMETIC(S, T, F)                                                                                  \
    WN_FN T wn_add_##S(T a, T b) { return a + b; }                                                                     \
    WN_FN T wn_sub_##S(T a, T b) { return a - b; }                                                                     \
    WN_FN T wn_mul_##S(T a, T b) { return a * b; }                                                                     \
    WN_FN T wn_div_##S(T a, T b) { return a / b; }                                                                     \
    WN_FN T wn_pow_##S(T a, T b) { return b == (T)2 ? a * a : pow##F(a, b); }                                          \
    WN_FN T wn_maximum_##S(T a, T b) { return a > b || a != a ? a : b; }                                               \
    WN_FN T wn_minimum_##S(T a, T b) { return a < b || a != a ? a : b; }                                               \
    WN_FN T wn_floor_##S(T x) { return floor##F(x); }                                                                  \
    WN_FN T wn_round_##S(T x) { return rint##F(x); }                                                                   \
    WN_FN T wn_sign_##S(T x) { return (T)((x > (T)0) - (x < (T)0)); }                                                  \
    WN_FN T wn_neg_##S(T x) { return -x; }                                                                             \
    WN_FN T wn_abs_##S(T x) { return fabs##F(x); }                                                                     \
    WN_FN T wn_sqrt_##S(T x) { return sqrt##F(x); }                                                                    \
    WN_FN T wn_rsqrt_##S(T x) { return (T)1 / sqrt##F(x); }

/* Softplus is max(x, 0) + log(1 + e^-|x|), of which nothing overflows. */
#define WN_SCALAR_ACTIVATIONS(S, T)                                                                                    \
    WN_FN T wn_relu_##S(T x) { return x <= (T)0 ? (T)0 : x; }                                                          \
    WN_FN T wn_sigmoid_##S(T x) { return (T)1 / ((T)1 + wn_exp_##S(-x)); }                                             \
    WN_FN T wn_silu_##S(T x) { return x / ((T)1 + wn_exp_##S(-x)); }                                                   \
    WN_FN T wn_gelu_##S(T x) { return x * wn_normal_cdf_##S(x, wn_normal_bell_##S(x)); }                               \
    WN_FN T wn_softplus_##S(T x)                                                                                       \
    {                                                                                                                  \
        T e = wn_exp_##S(x > (T)0 ? -x : x);                                                                           \
        return (x > (T)0 ? x : (T)0) + wn_log1p_##S(e);                                                                \
    }                                                                                                                  \
    WN_FN T wn_clamp_##S(T x, T low, T high) { return x < low ? low : (x > high ? high : x); }

/* At 0 and at NaN the slope of abs is 0. Relu passes dy but where y is 0 or less, so at NaN too. Clamp passes it inside
 * its bounds; an infinite bound bounds nothing. */
#define WN_SCALAR_SLOPES(S, T)                                                                                         \
    WN_FN T wn_abs_grad_##S(T dy, T x) { return x > (T)0 ? dy : (x < (T)0 ? -dy : dy * (T)0); }                        \
    WN_FN T wn_relu_grad_##S(T dy, T y) { return y <= (T)0 ? (T)0 : dy; }                                              \
    WN_FN T wn_tanh_grad_##S(T dy, T y) { return dy * ((T)1 - y * y); }                                                \
    WN_FN T wn_sigmoid_grad_##S(T dy, T y) { return dy * (y * ((T)1 - y)); }                                           \
    WN_FN T wn_sqrt_grad_##S(T dy, T y) { return dy / (y + y); }                                                       \
    WN_FN T wn_clamp_grad_##S(T dy, T x, T low, T high)                                                                \
    {                                                                                                                  \
        int32_t above = low == -(T)INFINITY ? x >= low : x > low;                                                      \
        int32_t below = high == (T)INFINITY ? x <= high : x < high;                                                    \
        return above && below ? dy : (T)0;                                                                             \
    }

#define WN_SCALAR_CURVED_SLOPES(S, T)                                                                                  \
    WN_FN T wn_gelu_grad_##S(T dy, T x)                                                                                \
    {                                                                                                                  \
        T bell = wn_normal_bell_##S(x);                                                                                \
        return dy * (wn_normal_cdf_##S(x, bell) + x * bell * (T)0.39894228040143267794);                               \
    }                                                                                                                  \
    WN_FN T wn_silu_grad_##S(T dy, T x)                                                                                \
    {                                                                                                                  \
        T s = wn_sigmoid_##S(x);                                                                                       \
        return dy * (s * ((T)1 + x * ((T)1 - s)));                                                                     \
    }

/* The formulas of rows, given their sums, and the scale of dropout. */
#define WN_SCALAR_ROWS(S, T, F)                                                                                        \
    WN_FN T wn_softmax_grad_##S(T dy, T y, T dot) { return y * (dy - dot); }                                           \
    WN_FN T wn_log_softmax_grad_##S(T dy, T y, T sum) { return dy - wn_exp_##S(y) * sum; }                             \
    WN_FN T wn_layernorm_##S(T x, T mean, T rstd, T w, T b) { return fma##F((x - mean) * rstd, w, b); }                \
    WN_FN T wn_layernorm_dx_##S(T weighed, T x, T mean, T rstd, T c1, T c2) /* weighed: dy w */                        \
    {                                                                                                                  \
        return rstd * (weighed - c1 - (x - mean) * rstd * c2);                                                         \
    }                                                                                                                  \
    WN_FN T wn_dropout_scale_##S(double p) { return (T)1 / ((T)1 - (T)p); }

#define WN_SCALAR_FLOAT(S, T, F)                                                                                       \
    WN_SCALAR_ARITHMETIC(S, T, F)                                                                                      \
    WN_SCALAR_ACTIVATIONS(S, T)                                                                                        \
    WN_SCALAR_SLOPES(S, T)                                                                                             \
    WN_SCALAR_CURVED_SLOPES(S, T)                                                                                      \
    WN_SCALAR_ROWS(S, T, F)

WN_SCALAR_FLOAT(f32, float, f)
WN_SCALAR_FLOAT(f64, double, )

/* ---- integers: wrap, never undefined --------------------------------------------------------------- */

#define WN_SCALAR_INT(S, T)                                                                                            \
    WN_FN T wn_add_##S(T a, T b) { return (T)((uint32_t)a + (uint32_t)b); }                                            \
    WN_FN T wn_sub_##S(T a, T b) { return (T)((uint32_t)a - (uint32_t)b); }                                            \
    WN_FN T wn_mul_##S(T a, T b) { return (T)((uint32_t)a * (uint32_t)b); }                                            \
    WN_FN T wn_maximum_##S(T a, T b) { return a > b ? a : b; }                                                         \
    WN_FN T wn_minimum_##S(T a, T b) { return a < b ? a : b; }                                                         \
    WN_FN T wn_neg_##S(T x) { return (T)(0u - (uint32_t)x); }

WN_SCALAR_INT(i32, int32_t)
WN_SCALAR_INT(u8, uint8_t)

WN_FN int32_t wn_sign_i32(int32_t x)
{
    return (x > 0) - (x < 0);
}

WN_FN int32_t wn_abs_i32(int32_t x)
{
    return x < 0 ? wn_neg_i32(x) : x;
}

/* Convert a float to an integer: toward zero, the nearest end of the range where it is outside, 0 for NaN. */
WN_FN int32_t wn_to_i32(double x)
{
    if (!(x > -2147483648.0)) return x == x ? -2147483647 - 1 : 0;
    return x >= 2147483647.0 ? 2147483647 : (int32_t)x;
}

WN_FN uint8_t wn_to_u8(double x)
{
    if (!(x > 0.0)) return 0;
    return x >= 255.0 ? 255 : (uint8_t)x;
}

/* ---- random ---------------------------------------------------------------------------------------- */

/* Returns the threshold of dropout: an element is kept where its word is less; 2^32 keeps all. */
WN_FN uint64_t wn_dropout_threshold(double p)
{
    return (uint64_t)((1.0 - p) * 4294967296.0);
}

/* Convert a double to its bits and back. */
WN_FN uint64_t wn_to_bits_f64(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

WN_FN double wn_from_bits_f64(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Returns n - less for n < 2^52: in the low bits of 2^52, n makes 2^52 + n. Unlike a conversion it is two operations of
 * 64-bit lanes, in every instruction set. */
WN_FN double wn_double_of(uint64_t n, double less)
{
    return wn_from_bits_f64(n | 0x4330000000000000u) - (4503599627370496.0 + less);
}

/* Returns log x for a normal x > 0, of correctly rounded operations alone, so that every device has the same bits.
 * x = 2^e (1 + f) with 1 + f in [sqrt(1/2), sqrt(2)), and log(1 + f) = 2 atanh(s), s = f / (2 + f). The relative error
 * is at most 3e-16. */
WN_FN double wn_log_portable_f64(double x)
{
    uint64_t bits = wn_to_bits_f64(x), above = bits - 0x3fe6a09e00000000u; /* the upper half of sqrt(1/2) */
    double e = wn_double_of((above + 0x3ff0000000000000u) >> 52, 1023.0);
    double m = wn_from_bits_f64(bits - (above & 0xfff0000000000000u));
    double f = m - 1.0, s = f / (2.0 + f), z = s * s;
    double p = 0.14616585424888623;
    p = fma(p, z, 0.15331710618210773);
    p = fma(p, z, 0.18182889455674947);
    p = fma(p, z, 0.22222211130259878);
    p = fma(p, z, 0.2857142862600327);
    p = fma(p, z, 0.39999999999899444);
    p = fma(p, z, 0.666666666666667);
    return fma(e, 0.6931471805599453, fma(s * z, p, s + s));
}

/* Writes the cosine and the sine of 2 pi turn / 2^32 to z, of correctly rounded operations alone. The angle is reduced
 * exactly, to t in [-1/8, 1/8) turns from the nearest quarter. The error is at most 3e-16. */
WN_FN void wn_cos_sin_of_turn(uint32_t turn, double z[2])
{
    const uint64_t eighth = 0x20000000u, quarter = 0x40000000u, sign = 0x8000000000000000u;
    uint64_t v = turn + eighth; /* bits 30 and 31 count the quarter, those below are t plus an eighth */
    double t = wn_double_of(v & (quarter - 1), 536870912.0) * (1.0 / 4294967296.0), t2 = t * t;
    double s = 3.78643334956545;
    s = fma(s, t2, -15.094054182079999);
    s = fma(s, t2, 42.05868918088512);
    s = fma(s, t2, -76.70585973562093);
    s = fma(s, t2, 81.6052492760517);
    s = fma(s, t2, -41.341702240399755);
    s = t * fma(s, t2, 6.283185307179586);
    double c = -1.6990343940660637;
    c = fma(c, t2, 7.903206911569678);
    c = fma(c, t2, -26.426253275854723);
    c = fma(c, t2, 60.24464135270201);
    c = fma(c, t2, -85.4568172066438);
    c = fma(c, t2, 64.93939402266824);
    c = fma(c, t2, -19.739208802178716);
    c = fma(c, t2, 1.0);
    double x = v & quarter ? s : c, y = v & quarter ? c : s;
    z[0] = wn_from_bits_f64(wn_to_bits_f64(x) ^ ((v + quarter) << 32 & sign)); /* -x in quarters 1 and 2 */
    z[1] = wn_from_bits_f64(wn_to_bits_f64(y) ^ (v << 32 & sign));             /* -y in quarters 2 and 3 */
}

/* Writes two normal numbers, made of two words (Box and Muller, 1958), to z; u1 is in (0, 1]. */
WN_FN void wn_box_muller(uint32_t w0, uint32_t w1, double z[2])
{
    double radius = sqrt(-2.0 * wn_log_portable_f64(wn_double_of(w0, -1.0) * (1.0 / 4294967296.0)));
    wn_cos_sin_of_turn(w1, z);
    z[0] *= radius;
    z[1] *= radius;
}

/* Return the next running mean and variance, computed in double (runtime/ops/update.c). share: n / (n - 1). */
WN_FN double wn_running_mean(double cell, double mean, double momentum)
{
    return (1 - momentum) * cell + momentum * mean;
}
WN_FN double wn_running_var(double cell, double rstd, double momentum, double eps, double share)
{
    double variance = 1 / (rstd * rstd) - eps;
    return (1 - momentum) * cell + momentum * share * (variance > 0 ? variance : 0);
}
#endif
