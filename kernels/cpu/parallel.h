/* Threads of the CPU device: one way in. */
#ifndef WN_CPU_PARALLEL_H
#define WN_CPU_PARALLEL_H
#include <stdint.h>

#define WN_CPU_THREADS_MAX 64

/* body gets disjoint stretches that cover [0, n), at most one a thread, none shorter than about `grain`. It
 * runs in the caller alone when n is small, when there is one thread, and inside another parallel_for. */
typedef void (*wn__parallel_body)(int64_t begin, int64_t end, void *ctx);
void wn__parallel_for(int64_t n, int64_t grain, wn__parallel_body body, void *ctx);

/* The same of tasks, `grain` at a time: each thread has a stretch of them, whose data its caches know from the op before,
 * and when that is done helps with those of others. For work that takes long: a core that somebody else keeps busy too
 * is slower, and all would wait for it. */
void wn__parallel_tasks(int64_t n, int64_t grain, wn__parallel_body body, void *ctx);

/* How many threads kernels use. At first: WANE_THREADS, else as many cores as affinity and the control
 * group's quota allow. */
int32_t wn_cpu_threads(void);
void wn_cpu_set_threads(int32_t n); /* clipped to 1..WN_CPU_THREADS_MAX; 0: back to the default */
#endif
