/* Opens a link, starts jobs on it and waits for them, and leaves it when the process exits: link.h.
 *
 * All of this is the thread of the script's: it puts jobs into the list of thread.h, and carries those that it waits
 * for while they are young; else it waits until the other thread has said how they ended. */
#include "link.h"
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "../base/alloc.h"
#include "../base/clock.h"
#include "../base/interrupt.h"
#include "mpi.h"
#include "thread.h"

#define LONGEST_MESSAGE ((int64_t)1 << 30)
#define INTERRUPT_SECONDS 5.0 /* that ^C leaves the others to come to the same call, before it breaks the link */

static struct wn__link_state *const here = &wn__link_state;
static int32_t is_unheard; /* a job was put, and the thread not told */

const struct wn__link *wn__link_get(void)
{
    return &here->is;
}

/* Returns the status of a broken link, with its words; the lock is held. */
static int32_t broken(void)
{
    return wn__fail(here->code, "%s", here->broken);
}

/* Waits for a change for at most `seconds`; the lock is held. */
static void wait_for_change(double seconds)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    int64_t ns = until.tv_nsec + (int64_t)(seconds * 1e9);
    until.tv_sec += ns / 1000000000;
    until.tv_nsec = ns % 1000000000;
    pthread_cond_timedwait(&here->changed, &here->lock, &until);
}

/* ---- opening and leaving ----------------------------------------------------------------------------------------- */

/* Leaves the job when the process exits: the others learn it at once, and MPI ends when all have left. What was printed
 * is written first: a broken job is ended by force. */
static void leave(void)
{
    if (here->process != (int32_t)getpid()) return;
    fflush(NULL);
    pthread_mutex_lock(&here->lock);
    int32_t is_open = here->phase == WN_LINK_OPEN;
    if (is_open) {
        if (here->broken[0] != 0) wn__link_say(WN_WORD_BROKEN, here->broken, -1);
        wn__link_say(WN_WORD_LEFT, here->said, here->is.rank == 0 ? -1 : 0);
        here->phase = WN_LINK_LEAVING;
        here->ending = wn__now();
        pthread_cond_broadcast(&here->changed);
    }
    pthread_mutex_unlock(&here->lock);
    if (is_open) pthread_join(here->thread, NULL);
}

/* Starts the thread. Signals of the process go to other threads, only those that it raises itself go to it. */
static int32_t start_thread(void)
{
    static const int own[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT};
    pthread_condattr_t clock;
    sigset_t blocked, before;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_mutex_init(&here->turn, NULL);
    pthread_mutex_init(&here->lock, NULL);
    pthread_cond_init(&here->changed, &clock);
    pthread_cond_init(&here->put, &clock);
    here->phase = WN_LINK_OPENING;
    here->process = (int32_t)getpid();
    sigfillset(&blocked);
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++) sigdelset(&blocked, own[i]);
    pthread_sigmask(SIG_SETMASK, &blocked, &before);
    int error = pthread_create(&here->thread, NULL, wn__link_serve, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error == 0) return WN_OK;
    here->phase = WN_LINK_CLOSED;
    return wn__fail(WN_OOM, "out of memory: no thread for messages among ranks: %s", strerror(error));
}

/* Waits until the thread has joined the job. */
static int32_t wait_for_all(double seconds)
{
    double until = wn__now() + seconds;
    pthread_mutex_lock(&here->lock);
    while (here->phase == WN_LINK_OPENING && here->broken[0] == 0 && !wn__interrupted && wn__now() < until)
        wait_for_change(0.1);
    int32_t is_open = here->phase == WN_LINK_OPEN;
    if (!is_open && wn__interrupted) wn__link_break_here(WN_INTERRUPT, "interrupted before all ranks had come");
    if (!is_open) wn__link_break_here(WN_IO, "not all ranks have come in time");
    int32_t code = is_open ? WN_OK : broken();
    pthread_mutex_unlock(&here->lock);
    return code;
}

int32_t wn__link_open(const char *kind, int32_t rank, int32_t size, int32_t per_node, double timeout)
{
    if (here->phase != WN_LINK_CLOSED) return broken();
    here->door = wn__mpi_open(kind);
    if (here->door == NULL) return WN_IO;
    if (here->peers == NULL) here->peers = wn__alloc((int64_t)sizeof *here->peers * size);
    if (here->words == NULL) here->words = wn__alloc((int64_t)sizeof *here->words * size * WN_WORD_COUNT);
    if (here->peers == NULL || here->words == NULL) return WN_OOM;
    here->is = (struct wn__link){.rank = rank, .size = size, .per_node = per_node, .timeout = timeout};
    int32_t code = start_thread();
    if (code == WN_OK) code = wait_for_all(timeout);
    if (code != WN_OK) return code;
    here->is.library = here->door->library;
    here->is.is_open = 1;
    atexit(leave);
    return WN_OK;
}

int32_t wn__link_ghost(int32_t rank, int32_t size, int32_t per_node)
{
    if (here->phase != WN_LINK_CLOSED) return broken();
    here->is = (struct wn__link){.rank = rank, .size = size, .per_node = per_node, .is_open = 1, .is_ghost = 1};
    return WN_OK;
}

int32_t wn__link_alone(void)
{
    if (!here->is.is_ghost) return wn__fail(WN_VALUE, "dist: this process is no ghost");
    here->is = (struct wn__link){.size = 1, .per_node = 1};
    return WN_OK;
}

/* ---- jobs -------------------------------------------------------------------------------------------------------- */

static void job_free(struct wn__job *job)
{
    wn__free(job->pieces);
    wn__free(job);
}

static struct wn__job *job_new(int64_t n)
{
    struct wn__job *job = wn__alloc(sizeof *job);
    if (job != NULL) job->pieces = wn__alloc(n * (int64_t)sizeof *job->pieces);
    if (job == NULL || job->pieces != NULL) return job;
    wn__free(job);
    return NULL;
}

/* Cuts one way of a transfer into pieces. */
static void put_pieces(struct wn__job *job, int32_t peer, int32_t is_receive, char *at, int64_t bytes)
{
    for (int64_t done = 0; done < bytes; done += LONGEST_MESSAGE) {
        int64_t left = bytes - done;
        job->pieces[job->n++] = (struct wn__piece){.at = at + done,
                                                   .bytes = left < LONGEST_MESSAGE ? left : LONGEST_MESSAGE,
                                                   .peer = peer,
                                                   .is_receive = is_receive};
    }
}

/* Moves what a copy of this rank would have sent. */
static void move_as_ghost(const struct wn__message *t)
{
    int64_t bytes = t->in < t->out ? t->in : t->out;
    if (bytes > 0) memcpy(t->to, t->from, (size_t)bytes);
}

int32_t wn__link_start(int32_t channel, const struct wn__message *list, int32_t n, int32_t **ready,
                       struct wn__job **out)
{
    int64_t most = 0;
    for (int32_t i = 0; i < n; i++) most += 2 + list[i].out / LONGEST_MESSAGE + list[i].in / LONGEST_MESSAGE;
    struct wn__job *job = job_new(most);
    if (job == NULL) return WN_OOM;
    *out = job;
    job->channel = channel;
    job->is_ready = ready == NULL;
    if (ready != NULL) *ready = &job->is_ready;
    for (int32_t i = 0; i < n; i++) {
        const struct wn__message *t = &list[i];
        if (here->is.is_ghost) move_as_ghost(t);
        else {
            /* Sends come first: over TCP a receive that finds a message there answers it, and the other rank
             * would then send all of its own before it answers ours, one way after the other. */
            put_pieces(job, t->peer, 0, (char *)(uintptr_t)t->from, t->out);
            put_pieces(job, t->peer, 1, t->to, t->in);
        }
    }
    if (here->is.is_ghost) return WN_OK;
    job->awaits = job->n > 0 && job->is_ready ? job->pieces[0].peer : here->is.rank;
    pthread_mutex_lock(&here->lock);
    int32_t code = here->broken[0] != 0 ? broken() : WN_OK;
    if (code == WN_OK) wn__link_put(job);
    pthread_mutex_unlock(&here->lock);
    is_unheard = 1;
    if (code != WN_OK) job_free(job);
    return code;
}

/* Breaks the link where rank r, -1: nobody, left before it came to this call. The lock is held. */
static void look_for_gone(int32_t r)
{
    char text[400];
    if (r < 0 || !here->peers[r].has_left || here->peers[r].calls >= here->calls) return;
    snprintf(text, sizeof text, "rank %d has left after %lld calls, the last of them %s; rank %d is at %s", r,
             (long long)here->peers[r].calls, here->peers[r].said, here->is.rank, here->said);
    wn__link_break_here(WN_IO, text);
    wn__link_say(WN_WORD_BROKEN, text, -1);
}

/* Breaks the link for ^C, some seconds after it. The lock is held. */
static void look_for_interrupt(double *since)
{
    char text[300];
    if (!wn__interrupted) return;
    if (*since == 0) *since = wn__now();
    if (wn__now() < *since + INTERRUPT_SECONDS) return;
    snprintf(text, sizeof text, "rank %d was interrupted at %s", here->is.rank, here->said);
    wn__link_break_here(WN_INTERRUPT, text);
    wn__link_say(WN_WORD_BROKEN, text, -1);
}

/* Wakes the thread where it sleeps until a job is put, and one is there. It takes the lock as it wakes, which is free
 * by then. Returns how it slept. */
static enum wn__sleep wake(void)
{
    pthread_mutex_lock(&here->lock);
    enum wn__sleep sleep = here->sleep;
    int32_t is_needed = sleep == WN_SLEEP_IDLE && here->jobs != NULL;
    here->is_new |= is_needed;
    pthread_mutex_unlock(&here->lock);
    if (is_needed) pthread_cond_signal(&here->put);
    is_unheard = 0;
    return sleep;
}

void wn__link_urge(void)
{
    if (is_unheard && wake() == WN_SLEEP_NONE) sched_yield();
}

static int32_t has_ended_by_now(const struct wn__job *job)
{
    return __atomic_load_n(&job->has_ended, __ATOMIC_ACQUIRE);
}

/* Carries messages for as long as a job is young, between looks of the thread; others that want the core get it.
 * Returns whether the job has ended. */
static int32_t carry(const struct wn__job *job)
{
    double young = wn__now() + here->young;
    while (!has_ended_by_now(job) && wn__now() < young) {
        int32_t has_turn = pthread_mutex_trylock(&here->turn) == 0;
        if (has_turn) wn__link_carry();
        if (has_turn) pthread_mutex_unlock(&here->turn);
        if (!has_ended_by_now(job)) sched_yield();
    }
    return has_ended_by_now(job);
}

int32_t wn__link_wait(struct wn__job *job, double seconds, int32_t *has_ended)
{
    static double interrupted;
    double until = wn__now() + seconds;
    int32_t code = WN_OK;
    *has_ended = here->is.is_ghost || carry(job);
    if (!here->is.is_ghost) wake(); /* for this job, or for others that were begun with it */
    if (!*has_ended) {
        pthread_mutex_lock(&here->lock);
        here->is_awaited = 1;
        for (;;) {
            *has_ended = job->has_ended;
            if (*has_ended || here->broken[0] != 0 || wn__now() >= until) break;
            look_for_gone(job->awaits);
            look_for_interrupt(&interrupted);
            wait_for_change(0.05);
        }
        if (!*has_ended && here->broken[0] != 0) code = broken();
        here->is_awaited = 0;
        pthread_mutex_unlock(&here->lock);
    }
    if (*has_ended) job_free(job);
    if (*has_ended || !wn__interrupted) interrupted = 0;
    return code;
}

/* Returns the rank that is silent for longest, where one is; else the first of those that have come least far. The lock
 * is held. */
static int32_t last_of_all(void)
{
    const struct wn__peer *p = here->peers;
    int32_t r = here->is.rank == 0, first = r;
    for (int32_t k = first; k < here->is.size && here->is.rank == 0; k++)
        if (p[k].heard < p[r].heard) r = k;
    if (here->is.rank != 0 || p[r].heard + WN_DEAF_SECONDS < wn__now()) return here->is.rank == 0 ? r : 0;
    for (int32_t k = r = first; k < here->is.size; k++)
        if (p[k].calls < p[r].calls) r = k;
    return r;
}

/* Breaks the link where others were waited for longer than the timeout: rank 0, which is heard by all, knows best. The
 * lock is held. */
static void look_for_late(double seconds)
{
    char late[256], text[400];
    if (seconds < here->is.timeout + (here->is.rank == 0 ? 0 : WN_DEAF_SECONDS)) return;
    wn__link_describe(last_of_all(), late, sizeof late);
    snprintf(text, sizeof text, "rank %d waited %.0f s for %s", here->is.rank, seconds, late);
    wn__link_break_here(WN_IO, text);
    wn__link_say(WN_WORD_BROKEN, text, -1);
}

int32_t wn__link_look(double seconds)
{
    static double interrupted;
    int32_t code = WN_OK;
    if (here->is.is_ghost || !here->is.is_open) return WN_OK;
    pthread_mutex_lock(&here->lock);
    for (int32_t r = 0; r < here->is.size && here->broken[0] == 0; r++)
        if (r != here->is.rank) look_for_gone(r);
    if (here->broken[0] == 0) look_for_interrupt(&interrupted);
    if (here->broken[0] == 0) look_for_late(seconds);
    if (here->broken[0] != 0) code = broken();
    pthread_mutex_unlock(&here->lock);
    if (!wn__interrupted) interrupted = 0;
    return code;
}

int32_t wn__link_late(const struct wn__job *job, char *text, int64_t room)
{
    text[0] = 0;
    if (here->is.is_ghost) return -1;
    pthread_mutex_lock(&here->lock);
    int32_t r = job->awaits;
    wn__link_describe(r, text, room);
    pthread_mutex_unlock(&here->lock);
    return r;
}

int32_t wn__link_first_watches(void)
{
    if (here->is.is_ghost || here->is.rank == 0) return 0;
    pthread_mutex_lock(&here->lock);
    const struct wn__peer *first = &here->peers[0];
    int32_t watches = !first->has_left && first->calls == here->calls && wn__now() < first->heard + WN_DEAF_SECONDS;
    pthread_mutex_unlock(&here->lock);
    return watches;
}

int32_t wn__link_break(int32_t code)
{
    if (here->is.is_ghost) return code;
    pthread_mutex_lock(&here->lock);
    if (here->broken[0] == 0) {
        char theirs[sizeof here->broken];
        wn__link_break_here(code, wn__message());
        snprintf(theirs, sizeof theirs, "rank %d: %.480s", here->is.rank, here->broken);
        wn__link_say(WN_WORD_BROKEN, strncmp(here->broken, "rank ", 5) == 0 ? here->broken : theirs, -1);
    }
    pthread_mutex_unlock(&here->lock);
    return code;
}

void wn__link_tell(int64_t calls, const char *said)
{
    if (here->is.is_ghost || !here->is.is_open) return;
    pthread_mutex_lock(&here->lock);
    here->calls = calls;
    snprintf(here->said, sizeof here->said, "%.*s", (int)sizeof here->said - 1, said);
    pthread_mutex_unlock(&here->lock);
}
