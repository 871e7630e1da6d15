/* The loops of optimizer steps, for the kernel that makes a gradient and uses it at once (product_update.c). */
#ifndef WN_CPU_UPDATE_H
#define WN_CPU_UPDATE_H
#include <stdint.h>
#include "cpu.h"

/* What a loop over [begin, end) needs. */
struct wn__update_numbers {
    const void *value; /* the gradient, or what is assigned */
    void *const *cell;
    double hyper[8];
    int64_t size;           /* bytes an element */
    wn__parallel_body loop; /* bf16: of f32 */
    int32_t n_cells;        /* that the op writes */
};
wn__parallel_body wn__cpu_update_loop(int32_t op, int32_t dtype); /* NULL: no loop for it */
/* The block of numbers an optimizer's effect reads, of that type, into u. */
void wn__cpu_update_numbers(const struct wn_type *type, const void *hyper, struct wn__update_numbers *u);
#endif
