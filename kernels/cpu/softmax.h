/* Shared by softmax.c, nll.c and crossentropy.c, which computes both in one pass. */
#ifndef WN_CPU_SOFTMAX_H
#define WN_CPU_SOFTMAX_H
#include <stdint.h>
#include "cpu.h"

/* Write the statistics of a row x: (n), with log softmax(x)_i = (x_i - best) - log_sum. */
void wn__cpu_row_stats_f32(const float *x, int64_t n, float *best, float *log_sum);
void wn__cpu_row_stats_f64(const double *x, int64_t n, double *best, double *log_sum);

wn_kernel_fn wn__cpu_nll_kernel(const struct wn_desc *d); /* NLL, NLL_GRAD (nll.c) */

/* Writes the number of labels, the second input of an application, that are not ignored to *count; WN_VALUE where one
 * is neither a class nor ignored. */
int32_t wn__cpu_count_labels(const struct wn_desc *d, const struct wn_buffers *b, int64_t *count);
/* Returns -(sum of term) / count, NaN where count is 0. term: (n), the log-probability of each label, 0 where it is
 * ignored. */
double wn__cpu_loss(const double *term, int64_t n, int64_t count);
#endif
