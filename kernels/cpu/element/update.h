/* The loops of updates, for update.c and for gemm/product_update.c, which uses a gradient as soon as it is computed. */
#ifndef WN_CPU_UPDATE_H
#define WN_CPU_UPDATE_H
#include <stdint.h>
#include "../../updates.h"
#include "../common/cpu.h"

/* The arguments of a loop over elements [begin, end) of the cells. */
struct wn__update_numbers {
    const void *value;      /* the gradient, or the value assigned */
    void *const *cell;      /* (n_cells) the cells that the op writes */
    int64_t size;           /* bytes of an element */
    wn__parallel_body loop; /* bf16: the f32 loop */
    int32_t n_cells;
    /* Of an optimizer, for numbers of each type; of running statistics momentum, eps, n / (n - 1). */
    union {
        struct wn_constants_f32 f32;
        struct wn_constants_f64 f64;
        double running[3];
    } constants;
};
/* Returns the loop of an op for a dtype; NULL: there is none. */
wn__parallel_body wn__cpu_update_loop(int32_t op, int32_t dtype);
/* Fills u->constants for the loop of an optimizer for a dtype. hyper: (8) its numbers. */
void wn__cpu_update_constants(struct wn__update_numbers *u, int32_t op, int32_t dtype, const double *hyper);
#endif
