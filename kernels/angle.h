/* The sine and the cosine, for kernels/scalar.h. f64 is libm's. f32 is computed in double, of correctly rounded
 * operations alone and without branches, so that every device has the same bits, for every x:
 *
 *     1. x = y 2^(26 a) with |y| < 2^50, and 2^(26 a) is replaced by its rest of 2 pi, which changes no sine;
 *     2. the nearest multiple n pi/2 is taken away, with pi/2 as a sum of two doubles: the error is at most 2^-53;
 *     3. two polynomials of the rest in [-pi/4, pi/4]; the low bits of n say which of them, and its sign. */
#ifndef WN_ANGLE_H
#define WN_ANGLE_H
#include <math.h>
#include <stdint.h>
#include <string.h>
#include "../runtime/base/number.h"

/* Returns what is left of x after n quarter turns, and n + 1.5 x 2^52 in *shifted: n is in its low bits. */
WN_FN double wn_angle_rest(double x, double *shifted)
{
    const double round = 6755399441055744.0, a = 1125899906842624.0, b = 7.555786372591432e22, c = 5.070602400912918e30;
    const double size = fabs(x); /* a, b and c are 2^50, 2^76 and 2^102 */
    double scale = size < a   ? 1.0
                   : size < b ? 1.4901161193847656e-08
                   : size < c ? 2.220446049250313e-16
                              : 3.308722450212111e-24;
    double turn = size < a ? 1.0 : size < b ? 2.707309840458799 : size < c ? 2.07777121530127 : 2.8836079914122852;
    double more = size < a   ? 0.0
                  : size < b ? -2.1511188946609392e-16
                  : size < c ? 5.5389626504895754e-17
                             : -1.4702220270910616e-16;
    double y = x * scale, whole = y * turn, low = fma(y, turn, -whole) + y * more;
    *shifted = fma(whole, 0.63661977236758138, round);
    double n = *shifted - round;
    return fma(-n, 6.123233995736766e-17, fma(-n, 1.5707963267948966, whole) + low);
}

/* Returns the sine of x + quarters pi/2. */
WN_FN float wn_sin_of(float x, uint64_t quarters)
{
    double shifted, r = wn_angle_rest((double)x, &shifted), z = r * r;
    uint64_t n;
    memcpy(&n, &shifted, sizeof n);
    n += quarters;
    double s = 2.7557319223985893e-06;
    s = fma(s, z, -1.9841269841269841e-04);
    s = fma(s, z, 8.3333333333333332e-03);
    s = fma(s, z, -1.6666666666666666e-01);
    s = fma(s * z, r, r);
    double c = -2.7557319223985888e-07;
    c = fma(c, z, 2.4801587301587302e-05);
    c = fma(c, z, -1.3888888888888889e-03);
    c = fma(c, z, 4.1666666666666664e-02);
    c = fma(c, z, -0.5);
    c = fma(c, z, 1.0);
    double y = n & 1 ? c : s;
    return (float)(n & 2 ? -y : y);
}

WN_FN float wn_sin_f32(float x)
{
    return wn_sin_of(x, 0);
}

WN_FN float wn_cos_f32(float x)
{
    return wn_sin_of(x, 1);
}

WN_FN double wn_sin_f64(double x)
{
    return sin(x);
}

WN_FN double wn_cos_f64(double x)
{
    return cos(x);
}
#endif
