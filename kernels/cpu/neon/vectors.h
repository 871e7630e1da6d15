/* The vectors of NEON for the kernels of gemm/microkernel.h: 4 lanes, 32 registers. A register tile of 8 x 12 takes 24
 * for sums, 3 for b and 2 for the elements of a. A multiply-add takes one of its factors from a lane, so a whole vector
 * of a is loaded where rows of a are packed, and a scalar elsewhere; nothing is broadcast. */
#ifndef WN_CPU_NEON_VECTORS_H
#define WN_CPU_NEON_VECTORS_H
#include <arm_neon.h>
#include <stdint.h>
#include "../common/types.h"

#define LANES 4
#define MR 8
#define UNROLL 4

typedef float32x4_t vec;
typedef int64_t vec_mask; /* the number of lanes, 0 to 4: NEON has no masked loads and stores */

INLINE vec_mask vec_first(int64_t n)
{
    return n > LANES ? LANES : n < 0 ? 0 : n;
}

INLINE vec vec_load_masked(const float *from, vec_mask n)
{
    vec v = vdupq_n_f32(0);
    if (n == LANES) return vld1q_f32(from);
    if (n > 0) v = vld1q_lane_f32(from, v, 0);
    if (n > 1) v = vld1q_lane_f32(from + 1, v, 1);
    if (n > 2) v = vld1q_lane_f32(from + 2, v, 2);
    return v;
}

INLINE void vec_store_masked(float *to, vec_mask n, vec v)
{
    if (n == LANES) vst1q_f32(to, v);
    else {
        if (n > 0) vst1q_lane_f32(to, v, 0);
        if (n > 1) vst1q_lane_f32(to + 1, v, 1);
        if (n > 2) vst1q_lane_f32(to + 2, v, 2);
    }
}

#define vec_zero() vdupq_n_f32(0)
#define vec_set1(x) vdupq_n_f32(x)
#define vec_add(a, b) vaddq_f32(a, b)
#define vec_load(from) vld1q_f32(from)
#define vec_store(to, v) vst1q_f32(to, v)
#define vec_stream(to, v) vst1q_f32(to, v)
#define vec_keep(y) __asm__("" : "+w"(y))
#define vec_multiply_add(a, b, c) vfmaq_f32(c, a, b)

/* Adds *a x[v] to the sums of a row. */
#define OWN_ROW
INLINE void multiply_row(const int32_t vectors, const float *a, const vec *x, vec *acc)
{
    float y = *a;
    vec_keep(y);
#pragma GCC unroll 3
    for (int32_t v = 0; v < vectors; v++) acc[v] = vfmaq_n_f32(acc[v], x[v], y);
}

/* Adds a(i) x[v] to the sums of all rows, a: (MR). */
#define OWN_PACKED
INLINE void multiply_packed(const int32_t vectors, const float *a, const vec *x, vec (*acc)[3])
{
#pragma GCC unroll 2
    for (int32_t i = 0; i < MR; i += LANES) {
        vec y = vld1q_f32(a + i);
        vec_keep(y);
#pragma GCC unroll 3
        for (int32_t v = 0; v < vectors; v++) {
            acc[i][v] = vfmaq_laneq_f32(acc[i][v], x[v], y, 0);
            acc[i + 1][v] = vfmaq_laneq_f32(acc[i + 1][v], x[v], y, 1);
            acc[i + 2][v] = vfmaq_laneq_f32(acc[i + 2][v], x[v], y, 2);
            acc[i + 3][v] = vfmaq_laneq_f32(acc[i + 3][v], x[v], y, 3);
        }
    }
}
#endif
