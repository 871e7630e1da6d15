/* The threads of the CPU device: parallel loops, tasks, and their number. */
#ifndef WN_CPU_PARALLEL_H
#define WN_CPU_PARALLEL_H
#include <stdatomic.h>
#include <stdint.h>
#include "team.h"

/* A loop over [begin, end) that one thread runs. */
typedef void (*wn__parallel_body)(int64_t begin, int64_t end, void *ctx);
/* Divides [0, n) into disjoint intervals, at most one a thread and none shorter than about `grain` (times
 * wn__tuning.thread_grain / WN_THREAD_GRAIN), and calls body with each. It runs in the caller alone where n is small,
 * where there is one thread, and inside another wn__parallel_for. */
void wn__parallel_for(int64_t n, int64_t grain, wn__parallel_body body, void *ctx);

/* Tasks that take long. Each thread owns an interval of tasks, whose data its caches hold from the op before; a thread
 * that is done with its own claims tasks of others. Without this all would wait for a core that another process keeps
 * busy. */
struct wn__tasks {
    int64_t n, grain, threads; /* tasks; tasks claimed at once; owners */
    struct {
        _Alignas(64) _Atomic int64_t next; /* the next task to claim; each owner has a cache line of its own */
        int64_t end;
    } of[WN_CPU_THREADS_MAX];
};
/* Divides n tasks among as many threads as they are worth. */
void wn__tasks_share(struct wn__tasks *t, int64_t n, int64_t grain);
/* Claims tasks [*begin, *end) for a thread; returns 0 where none are left. */
int32_t wn__tasks_take(struct wn__tasks *t, int64_t thread, int64_t *begin, int64_t *end);
/* Calls body for all tasks of [0, n), `grain` at a time. */
void wn__parallel_tasks(int64_t n, int64_t grain, wn__parallel_body body, void *ctx);

/* Returns the number of threads that kernels use. The default is WANE_THREADS, else the cores that affinity and the
 * quota of the control group allow. */
int32_t wn_cpu_threads(void);
/* Sets the number of threads, clipped to [1, WN_CPU_THREADS_MAX]; 0 sets the default. */
void wn_cpu_set_threads(int32_t n);
#endif
