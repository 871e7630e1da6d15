/* Checks the team of threads (kernels/cpu/backend/team.c) in a process of its own; threads_spec builds it, also under
 * the thread sanitizer. usage: team CHECK. Prints what is wrong, and then fails; alarm ends a check that hangs. */
#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "../../kernels/cpu/backend/parallel.h"
#include "../../kernels/cpu/backend/tuning.h"

struct wn__tuning wn__tuning = {.thread_grain = WN_THREAD_GRAIN};

#define N 1000

static void fail_if(int32_t is_wrong, const char *what)
{
    if (!is_wrong) return;
    printf("%s\n", what);
    exit(1);
}

static double seconds_of(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Adds 1 to each number of the interval. */
static void count(int64_t begin, int64_t end, void *ctx)
{
    for (int64_t i = begin; i < end; i++) ((int32_t *)ctx)[i]++;
}

/* Runs loops and tasks of every length up to N; every index must be met once each time. */
static void count_all(int32_t rounds)
{
    int32_t met[N] = {0};
    for (int32_t r = 0; r < rounds; r++) {
        for (int64_t n = 1; n <= N; n += 37) {
            memset(met, 0, sizeof met);
            wn__parallel_for(n, 1, count, met);
            wn__parallel_tasks(n, 7, count, met);
            for (int64_t i = 0; i < N; i++) fail_if(met[i] != (i < n ? 2 : 0), "an index was not met once");
        }
    }
}

static void check_counts(void)
{
    for (int32_t threads = 1; threads <= 9; threads++) {
        wn_cpu_set_threads(threads);
        count_all(20);
    }
}

/* ---- many callers, and a number of threads that changes meanwhile -------------------------------- */

static _Atomic int32_t callers_left;

static void *call(void *unused)
{
    count_all(100);
    atomic_fetch_sub(&callers_left, 1);
    return unused;
}

static void check_callers(void)
{
    pthread_t caller[4];
    callers_left = 4;
    for (int32_t i = 0; i < 4; i++) pthread_create(&caller[i], NULL, call, NULL);
    for (int32_t i = 0; atomic_load(&callers_left) > 0; i++) {
        wn_cpu_set_threads(1 + i % 6);
        usleep(500);
    }
    for (int32_t i = 0; i < 4; i++) pthread_join(caller[i], NULL);
}

/* ---- workers that must come: part 0 waits for all others to begin -------------------------------- */

static _Atomic int64_t begun;

/* A part that ends when `ctx` parts have begun; the last one ends long after the caller's. */
static void meet(int64_t begin, int64_t end, void *ctx)
{
    (void)end;
    atomic_fetch_add(&begun, 1);
    while (atomic_load(&begun) < *(int64_t *)ctx) sched_yield();
    if (begin > 0) usleep(2000);
}

static void meet_all(int64_t parts)
{
    wn_cpu_set_threads((int32_t)parts);
    begun = 0;
    wn__parallel_for(parts, 1, meet, &parts);
    fail_if(begun != parts, "a part did not run");
}

/* Workers begin while the caller computes, when they are new, when they spin, and when they have slept. */
static void check_meeting(void)
{
    for (int32_t i = 0; i < 20; i++) {
        meet_all(2 + i % 4);
        if (i % 2) usleep(5000);
    }
}

/* ---- fork ---------------------------------------------------------------------------------------- */

static void check_fork(void)
{
    meet_all(3);
    pid_t child = fork();
    if (child == 0) {
        alarm(20);
        meet_all(3);
        count_all(5);
        exit(0);
    }
    int status = 1;
    meet_all(4);
    fail_if(waitpid(child, &status, 0) != child || status != 0, "the child did not run its loops");
}

/* ---- signals ------------------------------------------------------------------------------------- */

static _Atomic int32_t signals, elsewhere;

static void on_signal(int number)
{
    (void)number;
    atomic_fetch_add(&signals, 1);
    if (syscall(SYS_gettid) != getpid()) atomic_fetch_add(&elsewhere, 1);
}

static void check_signals(void)
{
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, SIGUSR1);
    signal(SIGUSR1, on_signal);
    meet_all(4);
    for (int32_t i = 0; i < 200; i++) { /* while this thread blocks it, a thread that does not would take it */
        pthread_sigmask(SIG_BLOCK, &one, NULL);
        kill(getpid(), SIGUSR1);
        count_all(1);
        pthread_sigmask(SIG_UNBLOCK, &one, NULL);
    }
    fail_if(signals != 200, "a signal was lost");
    fail_if(elsewhere != 0, "a worker took a signal");
}

/* ---- a worker without a core --------------------------------------------------------------------- */

/* The caller and its worker have one core, so whatever the caller waited for would take a time slice of the kernel. */
static void check_one_core(void)
{
    cpu_set_t one;
    int32_t met[N] = {0};
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    fail_if(sched_setaffinity(0, sizeof one, &one) != 0, "no core of its own");
    meet_all(2);
    double began = seconds_of(CLOCK_MONOTONIC);
    for (int32_t i = 0; i < 5000; i++) wn__parallel_for(N, 1, count, met);
    double took = seconds_of(CLOCK_MONOTONIC) - began;
    if (took > 2) printf("5000 loops took %.1f s\n", took);
    fail_if(took > 2, "the caller waited for a worker that had no core");
}

/* ---- how long workers spin ----------------------------------------------------------------------- */

/* Returns the state of the one worker as the kernel has it: 'S' asleep, 'R' running or kept from its core. */
static char state_of_worker(void)
{
    char path[64], text[256] = "";
    DIR *tasks = opendir("/proc/self/task");
    for (struct dirent *task; (task = readdir(tasks)) != NULL;) {
        if (task->d_name[0] == '.' || atoi(task->d_name) == getpid()) continue;
        snprintf(path, sizeof path, "/proc/self/task/%.20s/stat", task->d_name);
        FILE *f = fopen(path, "r");
        fail_if(f == NULL || fgets(text, sizeof text, f) == NULL, "no state of the worker");
        fclose(f);
    }
    closedir(tasks);
    const char *end = strrchr(text, ')');
    return end == NULL ? '?' : end[2];
}

/* Prints whether the worker falls asleep in the seconds after a loop. */
static void check_idle(void)
{
    meet_all(2);
    for (int32_t i = 0; i < 200; i++) {
        usleep(10000);
        if (state_of_worker() != 'S') continue;
        printf("asleep\n");
        return;
    }
    printf("awake\n");
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } checks[] = {{"counts", check_counts}, {"callers", check_callers}, {"meeting", check_meeting},
                  {"fork", check_fork},     {"signals", check_signals}, {"one core", check_one_core},
                  {"idle", check_idle}};
    alarm(60);
    for (size_t i = 0; i < sizeof checks / sizeof checks[0]; i++) {
        if (argc < 2 || strcmp(argv[1], checks[i].name) != 0) continue;
        checks[i].run();
        return 0;
    }
    printf("no such check\n");
    return 2;
}
