/* The maximum or minimum of a contiguous row, for reduce.c and argmax.c. */
#ifndef WN_CPU_MINMAX_H
#define WN_CPU_MINMAX_H
#include <stdint.h>
#include "../common/cpu.h"

/* Defines NAME_over_LANES(x, n, lane): lane j becomes the extreme of the elements j, j + LANES and so on of the whole
 * groups of LANES elements. Returns whether one of these is NaN, which is looked for beside the lanes, since
 * `a > b ? a : b` is one instruction without a branch. */
#define LANES_OVER(LANES, NAME, T, OVER)                                                                               \
    static inline __attribute__((always_inline)) int32_t NAME##_over_##LANES(const T *x, int64_t n, T *lane)           \
    {                                                                                                                  \
        int32_t odd[LANES] = {0}, any = 0;                                                                             \
        for (int j = 0; j < LANES; j++) lane[j] = x[0];                                                                \
        for (int64_t i = 0; i + LANES <= n; i += LANES) {                                                              \
            wn__fetch_behind(x + i, wn__tuning.stream_ahead, LANES * (int64_t)sizeof(T));                              \
            _Pragma("omp simd") for (int j = 0; j < LANES; j++)                                                        \
            {                                                                                                          \
                lane[j] = x[i + j] OVER lane[j] ? x[i + j] : lane[j];                                                  \
                odd[j] |= x[i + j] != x[i + j];                                                                        \
            }                                                                                                          \
        }                                                                                                              \
        _Pragma("omp simd reduction(| : any)") for (int j = 0; j < LANES; j++) any |= odd[j];                          \
        return any;                                                                                                    \
    }

/* Defines NAME_by_LANES(x, n): lanes are joined by halves, then the elements behind the whole groups to the first; the
 * first NaN is the result. Whether it is 0 or -0 depends on n and the data alone. */
#define EXTREME_BY(LANES, NAME, T, OVER)                                                                               \
    static inline __attribute__((always_inline)) T NAME##_by_##LANES(const T *x, int64_t n)                            \
    {                                                                                                                  \
        T lane[LANES];                                                                                                 \
        int32_t any = NAME##_over_##LANES(x, n, lane);                                                                 \
        for (int w = LANES / 2; w > 0; w /= 2)                                                                         \
            for (int j = 0; j < w; j++) lane[j] = lane[j + w] OVER lane[j] ? lane[j + w] : lane[j];                    \
        for (int64_t i = n / LANES * LANES; i < n; i++) {                                                              \
            lane[0] = x[i] OVER lane[0] ? x[i] : lane[0];                                                              \
            any |= x[i] != x[i];                                                                                       \
        }                                                                                                              \
        for (int64_t i = 0; any && i < n; i++)                                                                         \
            if (x[i] != x[i]) return x[i];                                                                             \
        return lane[0];                                                                                                \
    }

/* Joining 64 lanes takes as long as a row of 64 elements, so short rows use 16 lanes. */
#define EXTREME(NAME, T, OVER)                                                                                         \
    LANES_OVER(16, NAME, T, OVER)                                                                                      \
    LANES_OVER(64, NAME, T, OVER)                                                                                      \
    EXTREME_BY(16, NAME, T, OVER)                                                                                      \
    EXTREME_BY(64, NAME, T, OVER)                                                                                      \
    static inline __attribute__((always_inline)) T NAME##_lanes(const T *x, int64_t n)                                 \
    {                                                                                                                  \
        return n < 256 ? NAME##_by_16(x, n) : NAME##_by_64(x, n);                                                      \
    }

EXTREME(row_max_f32, float, >)
EXTREME(row_max_f64, double, >)
EXTREME(row_max_i32, int32_t, >)
EXTREME(row_max_u8, uint8_t, >)
EXTREME(row_min_f32, float, <)
EXTREME(row_min_f64, double, <)
EXTREME(row_min_i32, int32_t, <)
EXTREME(row_min_u8, uint8_t, <)
#endif
