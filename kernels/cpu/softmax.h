/* Shared by softmax.c, nll.c and crossentropy.c, which computes both in one pass. */
#ifndef WN_CPU_SOFTMAX_H
#define WN_CPU_SOFTMAX_H
#include <stdint.h>
#include "cpu.h"

/* Write the statistics of a row x: (n), with log softmax(x)_i = (x_i - best) - log_sum. */
void wn__cpu_row_stats_f32(const float *x, int64_t n, float *best, float *log_sum);
void wn__cpu_row_stats_f64(const double *x, int64_t n, double *best, double *log_sum);

wn_kernel_fn wn__cpu_nll_kernel(const struct wn_desc *d); /* NLL, NLL_GRAD (nll.c) */

/* One NLL, CROSS_ENTROPY or gradient of them (runtime/ops/softmax.c). */
struct wn__loss {
    const int32_t *label; /* (n) */
    const void *weight;   /* (classes), of the dtype of the loss; NULL: 1 each */
    int64_t n, classes, ignored;
    double hit, each; /* factors of the log-probability of the label, and of that of each class */
    double divisor;   /* of the sum over all rows; 1: it is not divided */
    int32_t dtype, is_per_row;
};
/* Writes what an application asks for to *out; WN_VALUE where a label is neither a class nor ignored. */
int32_t wn__cpu_loss_open(const struct wn_desc *d, const struct wn_buffers *b, struct wn__loss *out);
/* Returns the gradient of the sum of row r: -dy / divisor. */
double wn__cpu_loss_share(const struct wn__loss *k, const void *dy, int64_t r);
/* Returns -(sum of term) / divisor, NaN where both are 0. term: (n), 0 where a label is ignored. */
double wn__cpu_loss(const double *term, int64_t n, double divisor);

/* Returns the weight of a class. */
static inline double wn__class_weight(const struct wn__loss *k, int64_t c)
{
    if (k->weight == NULL) return 1;
    return k->dtype == WN_F64 ? ((const double *)k->weight)[c] : (double)((const float *)k->weight)[c];
}
#endif
