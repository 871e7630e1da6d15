/* Short rows of f32, many at once: for one row alone, joining its lanes takes as long as reading it (reduce.c). */
#ifndef WN_CPU_ROWS_AVX512_H
#define WN_CPU_ROWS_AVX512_H
#include <stdint.h>

#define WN_SHORT_SUM 512     /* a row of so many elements is as fast alone */
#define WN_SHORT_EXTREME 256 /* from so many elements on minmax.h uses 64 lanes, in another order */

/* Reduce rows of x: (rows, n) to out: (rows): the sum times scale, the maximum, the minimum. The bits are those of
 * WN_LANE_SUM and minmax.h. Each returns the number of rows that it did, from the first on; the caller does the others:
 * those that are left over, from the first row with a NaN on, and all where this processor lacks AVX-512. */
int64_t wn__rows_sum(const float *x, int64_t rows, int64_t n, double scale, float *out);
int64_t wn__rows_max(const float *x, int64_t rows, int64_t n, float *out);
int64_t wn__rows_min(const float *x, int64_t rows, int64_t n, float *out);
#endif
