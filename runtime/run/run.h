/* What the rooms of running share. */
#ifndef WN_RUN_RUN_H
#define WN_RUN_RUN_H
#include "../program/program.h"

extern volatile int32_t wn__interrupted;
extern int32_t wn__trace_on, wn__sync_on, wn__timing_on;
void wn__warn(const char *format, ...) WN_PRINTF(1, 2); /* api/library.c: one pending line */
/* materialise.c: every cell the program reads gets its first value, to be settled when the run is over. GIVE_BACK: the
 * cells are as they were before; UNWRITTEN: those that are invalid by now are, the others keep it. missing: bytes that
 * will take. */
enum wn__settle { WN_SETTLE_GIVE_BACK, WN_SETTLE_KEEP, WN_SETTLE_UNWRITTEN };
int32_t wn__program_materialise(struct wn_program *p);
void wn__program_settle(struct wn_program *p, int32_t how);
int64_t wn__program_missing(const struct wn_program *p);
/* What materialise would take, from the plan of the beginnings; nothing runs. */
int32_t wn__program_first(const struct wn_program *p, struct wn_first *out);
/* run.c: executes the plan of a program as it is written. rerun: once more, with the numbers it drew. */
int32_t wn__program_run(struct wn_program *p, int32_t rerun);
/* measure.c: makes room for the trace and the seconds of a run, where they are asked for. */
int32_t wn__trace_room(struct wn_program *p);
#endif
