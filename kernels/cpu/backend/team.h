/* The team of threads of the CPU device: one caller and workers that wait for it. */
#ifndef WN_CPU_TEAM_H
#define WN_CPU_TEAM_H
#include <stdint.h>

#define WN_CPU_THREADS_MAX 64

/* One part of a loop: that of thread number `thread`, whichever thread runs it. */
typedef void (*wn__team_part)(int32_t thread, void *ctx);
/* Calls part(0, ctx) to part(parts - 1, ctx), each once, and returns after the last; parts <= WN_CPU_THREADS_MAX.
 * Part 0 runs in the caller, part t in worker t, or in the caller if it is done before worker t has begun. So a worker
 * that has no core delays nothing. While another caller has the team, the caller runs all parts alone. */
void wn__team_run(int32_t parts, wn__team_part part, void *ctx);
/* Returns whether this thread runs a part. */
int32_t wn__team_inside(void);
#endif
