/* The executor's own account. It knows nothing of the simulator: it adds each output's bytes from the node's
 * type when the node is issued, and subtracts them at the free. */
#ifndef WN_RUN_MEASURE_H
#define WN_RUN_MEASURE_H
#include "../program/program.h"

struct wn__meter {
    int64_t kinds[WN_KIND_COUNT], start[WN_KIND_COUNT], live, arena_top, fixed, depot_top[WN_PLACE_COUNT];
    int64_t *allocation_bytes; /* (n_allocations) what was added for what lives there now */
    int32_t in_backward;
    struct wn_measured *out;
};
int32_t wn__meter_start(struct wn__meter *m, struct wn_program *p);
void wn__meter_run(struct wn__meter *m, const struct wn_program *p, const struct wn__instr *n);
void wn__meter_move(struct wn__meter *m, const struct wn_program *p, const struct wn__instr *n);
void wn__meter_free(struct wn__meter *m, const struct wn_program *p, const struct wn__instr *n);
void wn__meter_stop(struct wn__meter *m, struct wn_program *p);
#endif
