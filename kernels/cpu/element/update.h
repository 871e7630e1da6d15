/* The loops of updates, for update.c and for gemm/product_update.c, which uses a gradient as soon as it is computed. */
#ifndef WN_CPU_UPDATE_H
#define WN_CPU_UPDATE_H
#include <stdint.h>
#include "../common/cpu.h"

/* The arguments of a loop over elements [begin, end) of the cells. */
struct wn__update_numbers {
    const void *value;      /* the gradient, or the value assigned */
    void *const *cell;      /* (n_cells) the cells that the op writes */
    double hyper[8];        /* the numbers of the optimizer: runtime/ops/update.c */
    int64_t size;           /* bytes of an element */
    wn__parallel_body loop; /* bf16: the f32 loop */
    int32_t n_cells;
};
wn__parallel_body wn__cpu_update_loop(int32_t op, int32_t dtype); /* NULL: the op has no loop for this dtype */
/* Reads the numbers of an optimizer, of the given type, into u->hyper. */
void wn__cpu_update_numbers(const struct wn_type *type, const void *hyper, struct wn__update_numbers *u);
#endif
