/* The executor: runs the schedule of a planned program as it is written, and decides nothing.
 *
 *   materialise.c   first values of states, before the run and taken back if it fails
 *   acquire.c       everything that a run takes before its first kernel
 *   run.c           the loop over instructions
 *   capture.c       stretches of instructions that the device captures and starts as one
 *   scalars.c       numbers that the host hands to kernels and takes from them
 *   commit.c        the end: keeps what the run made, or rolls back what it changed
 *   transfer.c      offloads and fetches
 *   measure.c       the executor's own account of bytes and seconds
 *   check.c         the run that believes nobody, for specs
 *   anomaly.c       the search for values that are not finite */
#ifndef WN_RUN_RUN_H
#define WN_RUN_RUN_H
#include "../program/program.h"

extern int32_t wn__trace_on, wn__sync_on, wn__timing_on; /* keep the trace; wait after every kernel; keep seconds */
/* Gives every cell that the program reads its first value. wn__program_end_first must follow when the run is over. */
int32_t wn__program_materialise(struct wn_program *p);
/* The three ways in which first values end when the run is over. */
enum wn__first_end {
    WN_FIRST_ROLL_BACK,     /* cells are without a value, as before */
    WN_FIRST_COMMIT,        /* cells keep their values */
    WN_FIRST_COMMIT_WRITTEN /* cells keep their values, but for those that the run has left invalid */
};
/* Ends first values. how: enum wn__first_end. Does nothing when none are pending. */
void wn__program_end_first(struct wn_program *p, int32_t how);
/* Returns the bytes that cells without a value will take. */
int64_t wn__program_missing(const struct wn_program *p);
/* Fills what the program of first values will take, by its plan. Runs nothing. */
int32_t wn__program_first(const struct wn_program *p, struct wn_first *out);
/* Runs a planned program, once. */
int32_t wn__program_run(struct wn_program *p);
/* Returns whether an instruction with a kernel changes what a later program can read. An effect on a gradient that this
 * program allocates does not. */
int32_t wn__changes_state(const struct wn__ir *ir, const struct wn__instr *n);
/* Makes room for the trace and for seconds of instructions, where a caller has asked for them. */
int32_t wn__trace_room(struct wn_program *p);
#endif
