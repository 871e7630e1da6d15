/* Short rows of f32, many at once: for one row alone, joining its lanes takes as long as reading it (reduce.c). */
#ifndef WN_CPU_ROWS_H
#define WN_CPU_ROWS_H
#include <stdint.h>

#define WN_SHORT_SUM 512     /* a row of so many elements is as fast alone */
#define WN_SHORT_EXTREME 256 /* from so many elements on minmax.h uses 64 lanes, in another order */

/* Reductions of the rows of x: (rows, n), n > 0, to out: (rows): the sum times scale, with n < WN_SHORT_SUM; the
 * maximum and the minimum, with n < WN_SHORT_EXTREME. The bits are those of row_sums.inc and minmax.h. Each returns the
 * number of rows that it did, from the first on; the caller does the others: those that are left over, and all from the
 * first row with a NaN on. */
struct wn__rows_kernel {
    int64_t (*sum)(const float *x, int64_t rows, int64_t n, double scale, float *out);
    int64_t (*extreme)(int32_t is_max, const float *x, int64_t rows, int64_t n, float *out);
};
extern const struct wn__rows_kernel wn__rows_avx2, wn__rows_avx512;
#endif
