/* The executor's own account of live bytes. It adds the bytes of each output, by its type, when a node is issued and
 * subtracts them when it is freed, and reads no number that the simulator made: so the predicted and the measured
 * peak are found independently. */
#ifndef WN_RUN_MEASURE_H
#define WN_RUN_MEASURE_H
#include "../program/program.h"

struct wn__meter {
    int64_t kinds[WN_KIND_COUNT];               /* bytes alive, by kind */
    int64_t start[WN_KIND_COUNT];               /* the same before the first instruction */
    int64_t live;                               /* the sum of kinds */
    int64_t arena_top;                          /* the highest byte of the arena that was used */
    int64_t fixed;                              /* bytes of states, slabs, held values and results */
    int64_t offload_buffer_top[WN_PLACE_COUNT]; /* the highest byte of each offload buffer that was used */
    int64_t *allocation_bytes;                  /* (n_allocations) bytes that were counted for what each holds now */
    int32_t in_backward;
    struct wn_measured *out; /* the measurements of the program */
};
/* Counts the bytes that are alive before the first instruction. WN_OOM. */
int32_t wn__meter_start(struct wn__meter *m, struct wn_program *p);
/* Count what an instruction makes, moves or frees. */
void wn__meter_run(struct wn__meter *m, const struct wn_program *p, const struct wn__instr *n);
void wn__meter_move(struct wn__meter *m, const struct wn_program *p, const struct wn__instr *n);
void wn__meter_free(struct wn__meter *m, const struct wn_program *p, const struct wn__instr *n);
/* Fills reserved bytes, tells the ledger the program's peak, and releases the meter's memory. */
void wn__meter_stop(struct wn__meter *m, struct wn_program *p);

/* Makes ready to keep the seconds of instructions where wn__timing_on is set; else the other two do nothing. */
int32_t wn__timing_start(struct wn_program *p);
/* Marks the beginning (end: 0) or the end (1) of instruction i, by the device's clock. */
int32_t wn__timing_mark(const struct wn_program *p, int32_t i, int32_t end);
/* Ends what wn__timing_start has begun, when all work has ended. */
void wn__timing_stop(struct wn_program *p);
#endif
