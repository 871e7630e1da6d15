/* The team of threads: workers wait for parts of loops, briefly in a spin, then asleep in the kernel (futex).
 *
 * Each worker has a slot, a word on a cache line of its own:
 *
 *     IDLE --caller opens--> OPEN --worker or caller claims--> IDLE --worker has spun for long--> ASLEEP
 *                             ^------------------------- caller opens, and wakes the worker --------|
 *
 * Invariant: a slot is OPEN only while the loop of `team.part` runs, and whoever turns OPEN into IDLE runs that part,
 * once. So the caller returns when no slot is OPEN and `team.left`, the parts that workers have not finished, is 0. It
 * never waits for a worker that has not begun: it claims that part itself.
 *
 * OMP_WAIT_POLICY and GOMP_SPINCOUNT mean what they mean to libgomp. */
#include "team.h"
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Nanoseconds that a thread spins for before it sleeps: several times what it takes to wake one on an idle core.
 * Measured: steps of 2 to 7 ms, 50 us to 3 ms over no limit: 0.97-1.02x, asleep at once: 1.4-1.8x (2 cores, Zen 4). */
#define SPIN_NS 200000
#define LOOK 32 /* pauses between two looks at the clock */

enum { IDLE, OPEN, ASLEEP };
#define SLEEPS 0x80000000u /* bit of team.left: the caller sleeps until the parts are finished */

static struct {
    _Atomic int32_t is_taken; /* by a caller, who alone uses what follows */
    int32_t workers, most;    /* started; the most that can be */
    wn__team_part part;
    void *ctx;
    _Alignas(64) _Atomic uint32_t left; /* parts of workers that are not finished, and SLEEPS */
} team;
static struct {
    _Alignas(64) _Atomic uint32_t state;
} slots[WN_CPU_THREADS_MAX];
/* The patience of a thread that waits: it spins until so many pauses, or so many nanoseconds, have passed. */
static struct {
    int64_t pauses, ns;
} patience;
static _Thread_local int32_t inside;

int32_t wn__team_inside(void)
{
    return inside;
}

/* ---- waiting ------------------------------------------------------------------------------------- */

static int64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static void pause_briefly(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Spins while *word is `value`; returns whether it changed. */
static int32_t spin(_Atomic uint32_t *word, uint32_t value)
{
    int64_t until = INT64_MAX;
    for (int64_t i = 0; i <= patience.pauses; i++) {
        if (atomic_load_explicit(word, memory_order_acquire) != value) return 1;
        pause_briefly();
        if (i % LOOK != 0 || patience.ns == INT64_MAX) continue;
        if (i == 0) until = now() + patience.ns;
        else if (now() > until) return 0;
    }
    return 0;
}

/* Sleeps while *word is `value`. */
static void sleep_on(_Atomic uint32_t *word, uint32_t value)
{
    while (atomic_load_explicit(word, memory_order_acquire) == value)
        syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void wake(_Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

/* Returns the number of pauses that a text says, with k, M, G or T for powers of 1000 behind it; -1 where it says
 * none. */
static int64_t pauses_of(const char *text)
{
    static const char units[] = "kmgt";
    char *end = NULL;
    int64_t n = text ? strtoll(text, &end, 10) : -1;
    if (end == text || n < 0) return -1;
    const char *unit = *end ? strchr(units, *end | 0x20) : NULL;
    if (unit == NULL) return *end ? -1 : n;
    for (const char *u = units; u <= unit; u++) n = n > INT64_MAX / 1000 ? INT64_MAX : n * 1000;
    return end[1] ? -1 : n;
}

/* Reads GOMP_SPINCOUNT, else OMP_WAIT_POLICY. */
static void read_patience(void)
{
    const char *count = getenv("GOMP_SPINCOUNT"), *policy = getenv("OMP_WAIT_POLICY");
    const int64_t pauses = pauses_of(count);
    patience.pauses = patience.ns = INT64_MAX;
    if (pauses >= 0) patience.pauses = pauses;
    else if (count && strncasecmp(count, "infinit", 7) == 0) return;
    else if (policy && strcasecmp(policy, "passive") == 0) patience.pauses = 0;
    else if (!policy || strcasecmp(policy, "active") != 0) patience.ns = SPIN_NS;
}

/* ---- workers ------------------------------------------------------------------------------------- */

/* Claims the part of a slot for the calling thread. */
static int32_t claim(int32_t thread)
{
    uint32_t open = OPEN;
    return atomic_compare_exchange_strong_explicit(&slots[thread].state, &open, IDLE, memory_order_acquire,
                                                   memory_order_relaxed);
}

/* Waits until the slot of a worker leaves IDLE. */
static void wait_for_part(int32_t thread)
{
    _Atomic uint32_t *state = &slots[thread].state;
    uint32_t idle = IDLE;
    if (spin(state, IDLE)) return;
    if (atomic_compare_exchange_strong(state, &idle, ASLEEP)) sleep_on(state, ASLEEP);
}

static void *work(void *number)
{
    int32_t thread = (int32_t)(intptr_t)number;
    inside = 1;
    for (;;) {
        wait_for_part(thread);
        if (!claim(thread)) continue;
        team.part(thread, team.ctx);
        if (atomic_fetch_sub_explicit(&team.left, 1, memory_order_release) == (SLEEPS | 1)) wake(&team.left);
    }
    return NULL;
}

/* Starts a worker; returns 0 if the system has no thread for it. Signals of the process go to other threads, only those
 * that an instruction of the worker raises go to it. */
static int32_t start(int32_t thread)
{
    static const int own[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT};
    sigset_t blocked, before;
    pthread_attr_t detached;
    pthread_t id;
    sigfillset(&blocked);
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++) sigdelset(&blocked, own[i]);
    if (pthread_attr_init(&detached) != 0) return 0;
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    pthread_sigmask(SIG_SETMASK, &blocked, &before);
    int code = pthread_create(&id, &detached, work, (void *)(intptr_t)thread);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&detached);
    return code == 0;
}

/* Makes the team of a child, which has the forking thread alone, one without workers. */
static void forget_workers(void)
{
    team.workers = 0;
    atomic_store(&team.is_taken, 0);
    for (int32_t t = 0; t < WN_CPU_THREADS_MAX; t++) atomic_store(&slots[t].state, IDLE);
}

/* Sees to `wanted` workers, where the system has threads for them. */
static void start_workers(int32_t wanted)
{
    if (team.most == 0) {
        team.most = pthread_atfork(NULL, NULL, forget_workers) == 0 ? WN_CPU_THREADS_MAX - 1 : -1;
        read_patience();
    }
    while (team.workers < wanted && team.workers < team.most)
        if (start(team.workers + 1)) team.workers++;
        else team.most = team.workers > 0 ? team.workers : -1;
}

/* ---- loops --------------------------------------------------------------------------------------- */

static void open_slots(int32_t parts)
{
    for (int32_t t = 1; t < parts; t++)
        if (atomic_exchange_explicit(&slots[t].state, OPEN, memory_order_release) == ASLEEP) wake(&slots[t].state);
}

/* Runs the parts that no worker has begun; returns how many. */
static uint32_t run_late(int32_t parts)
{
    uint32_t n = 0;
    for (int32_t t = 1; t < parts; t++) {
        if (!claim(t)) continue;
        team.part(t, team.ctx);
        n++;
    }
    return n;
}

/* Waits until workers have finished their parts; `own` of those that are counted were the caller's. */
static void join(uint32_t own)
{
    uint32_t left = atomic_fetch_sub_explicit(&team.left, own, memory_order_acquire) - own;
    while (left != 0 && spin(&team.left, left)) left = atomic_load_explicit(&team.left, memory_order_acquire);
    if (left == 0) return;
    left = atomic_fetch_or_explicit(&team.left, SLEEPS, memory_order_acquire) | SLEEPS;
    for (; left != SLEEPS; left = atomic_load_explicit(&team.left, memory_order_acquire)) sleep_on(&team.left, left);
}

void wn__team_run(int32_t parts, wn__team_part part, void *ctx)
{
    int32_t nobody = 0, was_inside = inside;
    if (parts <= 1 || inside || !atomic_compare_exchange_strong(&team.is_taken, &nobody, 1)) {
        for (int32_t t = 0; t < parts; t++) part(t, ctx);
        return;
    }
    start_workers(parts - 1);
    team.part = part;
    team.ctx = ctx;
    atomic_store_explicit(&team.left, (uint32_t)parts - 1, memory_order_relaxed);
    inside = 1;
    open_slots(parts);
    part(0, ctx);
    join(run_late(parts));
    inside = was_inside;
    atomic_store_explicit(&team.is_taken, 0, memory_order_release);
}
