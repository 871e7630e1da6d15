/* Declares what loss.c takes of softmax.c. */
#ifndef WN_CPU_SOFTMAX_H
#define WN_CPU_SOFTMAX_H
#include <stdint.h>
#include "../common/cpu.h"

/* Write the statistics of a row x: (n), with log softmax(x)_i = (x_i - best) - log_sum. */
void wn__cpu_row_stats_f32(const float *x, int64_t n, float *best, float *log_sum);
void wn__cpu_row_stats_f64(const double *x, int64_t n, double *best, double *log_sum);
void wn__cpu_row_stats_bf16(const uint16_t *x, int64_t n, float *best, float *log_sum);
#endif
