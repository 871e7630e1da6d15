/* The maximum or minimum of a contiguous row, for reduce.c and argmax.c. */
#ifndef WN_CPU_MINMAX_H
#define WN_CPU_MINMAX_H
#include <stdint.h>
#include "cpu.h"

/* Defines NAME_by_LANES(x, n): lane j keeps the extreme of elements j, j + LANES and so on; lanes are then joined by
 * halves. NaN is looked for beside the lanes, since `a > b ? a : b` is one instruction without a branch; the first NaN
 * is the result. Whether it is 0 or -0 depends on n and the data alone. Joining 64 lanes takes as long as a row of 64
 * elements, so short rows use 16 lanes. */
#define LANE_EXTREME_BY(LANES, NAME, T, OVER)                                                                          \
    static inline __attribute__((always_inline)) T NAME##_by_##LANES(const T *x, int64_t n)                            \
    {                                                                                                                  \
        T lane[LANES];                                                                                                 \
        int32_t odd[LANES] = {0}, any = 0;                                                                             \
        int64_t i = 0;                                                                                                 \
        for (int j = 0; j < LANES; j++) lane[j] = x[0];                                                                \
        for (; i + LANES <= n; i += LANES) {                                                                           \
            wn__prefetch_stream(x + i, LANES * (int64_t)sizeof(T));                                                    \
            _Pragma("omp simd") for (int j = 0; j < LANES; j++)                                                        \
            {                                                                                                          \
                T v = x[i + j];                                                                                        \
                lane[j] = v OVER lane[j] ? v : lane[j];                                                                \
                odd[j] |= v != v;                                                                                      \
            }                                                                                                          \
        }                                                                                                              \
        _Pragma("omp simd reduction(| : any)") for (int j = 0; j < LANES; j++) any |= odd[j];                          \
        for (int w = LANES / 2; w > 0; w /= 2)                                                                         \
            for (int j = 0; j < w; j++) lane[j] = lane[j + w] OVER lane[j] ? lane[j + w] : lane[j];                    \
        for (; i < n; i++) {                                                                                           \
            lane[0] = x[i] OVER lane[0] ? x[i] : lane[0];                                                              \
            any |= x[i] != x[i];                                                                                       \
        }                                                                                                              \
        if (any)                                                                                                       \
            for (i = 0; i < n; i++)                                                                                    \
                if (x[i] != x[i]) return x[i];                                                                         \
        return lane[0];                                                                                                \
    }

#define LANE_EXTREME(NAME, T, OVER)                                                                                    \
    LANE_EXTREME_BY(16, NAME, T, OVER)                                                                                 \
    LANE_EXTREME_BY(64, NAME, T, OVER)                                                                                 \
    static inline __attribute__((always_inline)) T NAME##_lanes(const T *x, int64_t n)                                 \
    {                                                                                                                  \
        return n < 256 ? NAME##_by_16(x, n) : NAME##_by_64(x, n);                                                      \
    }

LANE_EXTREME(row_max_f32, float, >)
LANE_EXTREME(row_max_f64, double, >)
LANE_EXTREME(row_max_i32, int32_t, >)
LANE_EXTREME(row_max_u8, uint8_t, >)
LANE_EXTREME(row_min_f32, float, <)
LANE_EXTREME(row_min_f64, double, <)
LANE_EXTREME(row_min_i32, int32_t, <)
LANE_EXTREME(row_min_u8, uint8_t, <)
#endif
