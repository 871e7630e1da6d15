/* Loops over the threads of the CPU device (team.c), and the number of threads. Loops never nest, and are divided by
 * that number alone; no kernel may let a result depend on the division.
 *
 * The default number is read once: WANE_THREADS where it makes sense (runtime/api/library.c says when it does not),
 * else OMP_NUM_THREADS, else the least of the affinity mask and of the CPU quota of every control group above this
 * process (v2: cpu.max; v1: cpu.cfs_quota_us). */
#include "parallel.h"
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "team.h"
#include "tuning.h"

static _Atomic int32_t thread_count;

static int32_t clip(int64_t n)
{
    return n < 1 ? 1 : n > WN_CPU_THREADS_MAX ? WN_CPU_THREADS_MAX : (int32_t)n;
}

/* Reads up to two numbers of a file of a control group; returns how many there are: of "max 100000" none. */
static int32_t numbers_of(const char *root, const char *group, const char *name, double *first, double *second)
{
    char path[768];
    snprintf(path, sizeof path, "%s%s/%s", root, group, name);
    FILE *f = fopen(path, "r");
    int32_t n = f ? fscanf(f, "%lf %lf", first, second) : 0;
    if (f) fclose(f);
    return n;
}

/* Returns the cores that the quota of a control group pays for, rounded up; 0 where its files set no limit. */
static int32_t quota_at(const char *root, const char *group, int32_t v2)
{
    double quota = 0, period = 0, none;
    if (v2 && numbers_of(root, group, "cpu.max", &quota, &period) != 2) return 0;
    if (!v2 && numbers_of(root, group, "cpu.cfs_quota_us", &quota, &none) != 1) return 0;
    if (!v2 && numbers_of(root, group, "cpu.cfs_period_us", &period, &none) != 1) return 0;
    if (quota <= 0 || period <= 0) return 0;
    int64_t cores = (int64_t)(quota / period);
    return clip((double)cores * period < quota ? cores + 1 : cores);
}

/* Returns the least quota from a group up to the root, 0: none; overwrites `group`. */
static int32_t quota_above(const char *root, char *group, int32_t v2)
{
    int32_t least = 0;
    for (;;) {
        int32_t q = quota_at(root, group, v2);
        if (q && (!least || q < least)) least = q;
        char *slash = strrchr(group, '/');
        if (!slash) return least;
        *slash = 0;
    }
}

static int32_t quota_threads(void)
{
    FILE *f = fopen("/proc/self/cgroup", "r");
    if (!f) return 0;
    char line[512];
    int32_t least = 0;
    while (fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = 0;
        char *names = strchr(line, ':');
        char *group = names ? strchr(names + 1, ':') : NULL;
        if (!group) continue;
        *names++ = 0;
        *group++ = 0;
        int32_t v2 = *names == 0;
        if (!v2 && !strstr(names, "cpu")) continue;
        int32_t q = quota_above(v2 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/cpu", group, v2);
        if (q && (!least || q < least)) least = q;
    }
    fclose(f);
    return least;
}

/* Returns the threads that a variable of the environment names, 0 where it names no number of them; the first of a list
 * is the number for a loop that is in no other. */
static int32_t threads_named(const char *variable)
{
    const char *text = getenv(variable);
    char *end = NULL;
    long n = text ? strtol(text, &end, 10) : 0;
    return text && (*end == 0 || *end == ',') && n >= 1 && n <= WN_CPU_THREADS_MAX ? (int32_t)n : 0;
}

static int32_t default_threads(void)
{
    int32_t named = threads_named("WANE_THREADS");
    if (named == 0) named = threads_named("OMP_NUM_THREADS");
    if (named != 0) return named;
    cpu_set_t mask;
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    int32_t n = sched_getaffinity(0, sizeof mask, &mask) == 0 ? CPU_COUNT(&mask) : (int32_t)online;
    int32_t quota = quota_threads();
    return clip(quota && quota < n ? quota : n);
}

int32_t wn_cpu_threads(void)
{
    int32_t n = atomic_load(&thread_count);
    if (n == 0) {
        n = default_threads();
        atomic_store(&thread_count, n);
    }
    return n;
}

void wn_cpu_set_threads(int32_t n)
{
    atomic_store(&thread_count, n == 0 ? 0 : clip(n));
}

/* Returns the number of threads that n elements are worth, with about `grain` or more each where thread_grain has its
 * preset. */
static int32_t team_for(int64_t n, int64_t grain)
{
    int64_t most = grain > 1 ? n * WN_THREAD_GRAIN / grain / wn__tuning.thread_grain : n;
    int32_t want = wn_cpu_threads();
    return wn__team_inside() || most <= 1 ? 1 : most < want ? (int32_t)most : want;
}

struct loop {
    int64_t n, parts;
    wn__parallel_body body;
    void *ctx;
};

static void run_interval(int32_t thread, void *ctx)
{
    const struct loop *l = ctx;
    int64_t each = l->n / l->parts, rest = l->n % l->parts;
    int64_t begin = each * thread + rest * thread / l->parts;
    int64_t end = each * (thread + 1) + rest * (thread + 1) / l->parts;
    if (begin < end) l->body(begin, end, l->ctx);
}

void wn__parallel_for(int64_t n, int64_t grain, wn__parallel_body body, void *ctx)
{
    if (n <= 0) return;
    struct loop l = {n, team_for(n, grain), body, ctx};
    if (l.parts == 1) body(0, n, ctx);
    else wn__team_run((int32_t)l.parts, run_interval, &l);
}

/* ---- tasks --------------------------------------------------------------------------------------- */

void wn__tasks_share(struct wn__tasks *t, int64_t n, int64_t grain)
{
    t->n = n;
    t->grain = grain > 1 ? grain : 1;
    t->threads = team_for(n, grain);
    for (int64_t i = 0; i < t->threads; i++) {
        atomic_init(&t->of[i].next, n * i / t->threads);
        t->of[i].end = n * (i + 1) / t->threads;
    }
}

int32_t wn__tasks_take(struct wn__tasks *t, int64_t thread, int64_t *begin, int64_t *end)
{
    for (int64_t i = 0; i < t->threads; i++) {
        int64_t of = (thread + i) % t->threads, stop = t->of[of].end;
        if (atomic_load_explicit(&t->of[of].next, memory_order_relaxed) >= stop) continue;
        *begin = atomic_fetch_add_explicit(&t->of[of].next, t->grain, memory_order_relaxed);
        *end = stop - *begin < t->grain ? stop : *begin + t->grain;
        if (*begin < stop) return 1;
    }
    return 0;
}

struct task_loop {
    struct wn__tasks tasks;
    wn__parallel_body body;
    void *ctx;
};

static void run_claimed(int32_t thread, void *ctx)
{
    struct task_loop *l = ctx;
    for (int64_t begin, end; wn__tasks_take(&l->tasks, thread, &begin, &end);) l->body(begin, end, l->ctx);
}

void wn__parallel_tasks(int64_t n, int64_t grain, wn__parallel_body body, void *ctx)
{
    if (n <= 0) return;
    struct task_loop l = {.body = body, .ctx = ctx};
    wn__tasks_share(&l.tasks, n, grain);
    if (l.tasks.threads == 1) body(0, n, ctx);
    else wn__team_run((int32_t)l.tasks.threads, run_claimed, &l);
}
