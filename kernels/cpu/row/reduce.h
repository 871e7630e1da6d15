/* Shared by reduce.c and extreme_grad.c, which go over the same reductions (kernels/reduction.h). */
#ifndef WN_CPU_REDUCE_H
#define WN_CPU_REDUCE_H
#include <stdint.h>
#include "../../reduction.h"
#include "../common/cpu.h"

/* Returns the index in x, the operand of an iterator, of element i. */
static inline int64_t wn__operand_at(const struct wn__broadcast *w, int64_t i)
{
    int64_t at = 0;
    if (w->ndim == 1) return i * w->step[0][0];
    for (int32_t k = w->ndim - 1; k >= 0; k--) {
        at += i % w->dim[k] * w->step[0][k];
        i /= w->dim[k];
    }
    return at;
}

wn_kernel_fn wn__cpu_extreme_grad_kernel(const struct wn_desc *d);
#endif
