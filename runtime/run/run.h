/* The executor: runs the schedule of a planned program as it is written, and decides nothing.
 *
 *   materialise.c   first values of states, before the run and taken back if it fails
 *   acquire.c       everything that a run takes before its first kernel
 *   run.c           the loop over instructions
 *   issue/          what starts instructions: kernels one by one, captured graphs, transfers, numbers
 *   meter.c         the executor's own account of live bytes
 *   watch/          what looks at the run where somebody asks for it: checks, the search for anomalies, the timing
 *   commit.c        the end: keeps what the run made, or rolls back what it changed */
#ifndef WN_RUN_RUN_H
#define WN_RUN_RUN_H
#include "issue/issue.h"

/* Computes data that are missing, and gives every cell that the run reads its first value. wn__run_end_first must
 * follow when the run is over. */
int32_t wn__run_materialise(struct wn__run *r);
/* The three ways in which first values end when the run is over. */
enum wn__first_end {
    WN_FIRST_ROLL_BACK,     /* cells are without a value, as before */
    WN_FIRST_COMMIT,        /* cells keep their values */
    WN_FIRST_COMMIT_WRITTEN /* cells keep their values, but for those that the run has left invalid */
};
/* Ends first values. how: enum wn__first_end. Does nothing when none are pending. */
void wn__run_end_first(struct wn__run *r, int32_t how);
/* Returns the bytes that cells and data without a value will take. */
int64_t wn__program_missing(const struct wn_program *p);
/* Returns how many values among the data that the program reads are missing. */
int32_t wn__program_missing_data(const struct wn_program *p);
/* Fills what the program of first values will take, by its plan. Runs nothing. */
int32_t wn__program_first(const struct wn_program *p, struct wn_first *out);

/* Takes every byte of a run: first values of states, results, offload buffers, the arena. wn__acquired_release must
 * follow, on failure too. result_kind: as of struct wn__run. WN_OOM: the limit or the memory is too small; WN_STALE: a
 * value or a state that the program reads is gone. */
int32_t wn__acquire(struct wn_program *p, const int32_t *result_kind, struct wn__run *r);
/* Gives back what was taken and not kept, and rolls back first values that were not committed. */
void wn__acquired_release(struct wn__run *r);

/* The meter counts the bytes alive: those that are there before the first instruction (start), and what an instruction
 * makes, moves or frees (count). At the end it fills p->run.measured and tells the ledger the peak (stop). */
int32_t wn__meter_start(struct wn__run *r);
void wn__meter_count(struct wn__run *r, const struct wn__instr *n);
void wn__meter_stop(struct wn__run *r);

/* Runs the schedule under its meter and its watches. A failure after the first effect rolls effects back. */
int32_t wn__execute(struct wn__run *r);
/* Keeps what a run made: results become values, cells get new versions, roots are spent. Cannot fail. */
void wn__commit(struct wn__run *r);
/* Rolls back effects after a failure with `code`. Gradients that were added to are dropped, so that the next backward
 * makes them anew; other cells are invalid until they are written. Cells that had their first value from this run begin
 * again, or keep it unwritten. */
void wn__effects_roll_back(struct wn__run *r, int32_t code);

/* Runs a planned program, once: a run point of the script. */
int32_t wn__program_run(struct wn_program *p);
#endif
