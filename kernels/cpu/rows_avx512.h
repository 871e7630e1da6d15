/* Short rows of f32, many at once: joining the lanes of one row by itself takes as long as reading it (reduce.c). */
#ifndef WN_CPU_ROWS_AVX512_H
#define WN_CPU_ROWS_AVX512_H
#include <stdint.h>

#define WN_SHORT_SUM 512     /* elements of a row from which one by itself is as fast */
#define WN_SHORT_EXTREME 256 /* from which minmax.h goes by more lanes, in another order */

/* Rows that follow each other in x (rows, n), each to out (rows): the sums times scale, or the greatest or least.
 * The bits are those of WN_LANE_SUM and minmax.h. They return how many rows they did, from the first: what is left,
 * rows with NaN in them, and all of them where this processor has no way, go the ordinary way. */
int64_t wn__rows_sum(const float *x, int64_t rows, int64_t n, double scale, float *out);
int64_t wn__rows_max(const float *x, int64_t rows, int64_t n, float *out);
int64_t wn__rows_min(const float *x, int64_t rows, int64_t n, float *out);
#endif
