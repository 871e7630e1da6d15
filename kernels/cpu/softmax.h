/* What the softmax family shares with the loss that is fused with it (crossentropy.c). */
#ifndef WN_CPU_SOFTMAX_H
#define WN_CPU_SOFTMAX_H
#include <stdint.h>
#include "cpu.h"

/* Of a row (n): log softmax(x)_i = (x_i - best) - log_sum. */
void wn__cpu_row_stats_f32(const float *x, int64_t n, float *best, float *log_sum);
void wn__cpu_row_stats_f64(const double *x, int64_t n, double *best, double *log_sum);

/* How many labels count; WN_VALUE when one is neither a class nor the ignored number. */
int32_t wn__cpu_count_labels(const char *op, const int32_t *label, int64_t n, int64_t classes, int64_t ignored,
                             int64_t *count);
#endif
