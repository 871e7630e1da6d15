/* What the files of softmax and of losses share: softmax.c, nll.c, and crossentropy.c, which does both in one pass. */
#ifndef WN_CPU_SOFTMAX_H
#define WN_CPU_SOFTMAX_H
#include <stdint.h>
#include "cpu.h"

/* Of a row (n): log softmax(x)_i = (x_i - best) - log_sum. */
void wn__cpu_row_stats_f32(const float *x, int64_t n, float *best, float *log_sum);
void wn__cpu_row_stats_f64(const double *x, int64_t n, double *best, double *log_sum);

wn_kernel_fn wn__cpu_nll_kernel(const struct wn_desc *d); /* NLL and its gradient: nll.c */

/* How many labels count; WN_VALUE when one is neither a class nor the ignored number. */
int32_t wn__cpu_count_labels(const char *op, const int32_t *label, int64_t n, int64_t classes, int64_t ignored,
                             int64_t *count);
/* The loss of which these are the labels' numbers, 0 where one is ignored: -sum / count, NaN when none counts. */
double wn__cpu_loss(const double *term, int64_t n, int64_t count);
#endif
