/* Threads of the CPU device: one way in. */
#ifndef WN_CPU_PARALLEL_H
#define WN_CPU_PARALLEL_H
#include <stdatomic.h>
#include <stdint.h>

#define WN_CPU_THREADS_MAX 64

/* body gets disjoint stretches that cover [0, n), at most one a thread, none shorter than about `grain`. It
 * runs in the caller alone when n is small, when there is one thread, and inside another parallel_for. */
typedef void (*wn__parallel_body)(int64_t begin, int64_t end, void *ctx);
void wn__parallel_for(int64_t n, int64_t grain, wn__parallel_body body, void *ctx);

/* Tasks of work that takes long: each thread has a stretch of them, whose data its caches know from the op before, and
 * when that is done helps with those of others. A core that somebody else keeps busy too is slower, and all would wait
 * for it. */
struct wn__tasks {
    int64_t n, grain, threads;
    struct {
        _Alignas(64) _Atomic int64_t next; /* each in its own cache line */
        int64_t end;
    } of[WN_CPU_THREADS_MAX];
};
/* n tasks, to be taken `grain` at a time; threads: as many as they are worth. */
void wn__tasks_share(struct wn__tasks *t, int64_t n, int64_t grain);
/* The next tasks [*begin, *end) of this thread; 0 when there are no more. */
int32_t wn__tasks_take(struct wn__tasks *t, int64_t thread, int64_t *begin, int64_t *end);
/* All of them, as wn__parallel_for does its own. */
void wn__parallel_tasks(int64_t n, int64_t grain, wn__parallel_body body, void *ctx);

/* How many threads kernels use. At first: WANE_THREADS, else as many cores as affinity and the control
 * group's quota allow. */
int32_t wn_cpu_threads(void);
void wn_cpu_set_threads(int32_t n); /* clipped to 1..WN_CPU_THREADS_MAX; 0: back to the default */
#endif
