/* The greatest or least of a contiguous row, for the kernels that look for it (reduce.c, argmax.c). */
#ifndef WN_CPU_EXTREME_H
#define WN_CPU_EXTREME_H
#include <stdint.h>
#include "cpu.h"

/* 64 lanes, joined in order, NaN looked for beside them: `a > b ? a : b` is one instruction, so nothing branches. The
 * first NaN is the result. Which of 0 and -0 it is depends on n and the data only. */
#define LANE_EXTREME(NAME, T, OVER)                                                                                    \
    static inline __attribute__((always_inline)) T NAME##_lanes(const T *x, int64_t n)                                 \
    {                                                                                                                  \
        T lane[64];                                                                                                    \
        int32_t odd[64] = {0};                                                                                         \
        int64_t i = 0;                                                                                                 \
        for (int j = 0; j < 64; j++) lane[j] = x[0];                                                                   \
        for (; i + 64 <= n; i += 64) {                                                                                 \
            wn__stream_ahead(x + i, 64 * (int64_t)sizeof(T));                                                          \
            _Pragma("omp simd") for (int j = 0; j < 64; j++)                                                           \
            {                                                                                                          \
                T v = x[i + j];                                                                                        \
                lane[j] = v OVER lane[j] ? v : lane[j];                                                                \
                odd[j] |= v != v;                                                                                      \
            }                                                                                                          \
        }                                                                                                              \
        int32_t any = 0;                                                                                               \
        for (int j = 0; j < 64; j++) any |= odd[j];                                                                    \
        T best[4] = {lane[0], lane[1], lane[2], lane[3]};                                                              \
        for (int j = 4; j < 64; j += 4)                                                                                \
            for (int k = 0; k < 4; k++) best[k] = lane[j + k] OVER best[k] ? lane[j + k] : best[k];                    \
        for (int k = 1; k < 4; k++) best[0] = best[k] OVER best[0] ? best[k] : best[0];                                \
        for (; i < n; i++) {                                                                                           \
            best[0] = x[i] OVER best[0] ? x[i] : best[0];                                                              \
            any |= x[i] != x[i];                                                                                       \
        }                                                                                                              \
        if (any)                                                                                                       \
            for (i = 0; i < n; i++)                                                                                    \
                if (x[i] != x[i]) return x[i];                                                                         \
        return best[0];                                                                                                \
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
