/* The thread of a link: carries messages, says and hears words, and sleeps between two looks: thread.h.
 *
 * A look begins the jobs that were put, tests those under way, takes the words that have come, and says a heartbeat
 * when a second has passed. Where the script has the turn the thread leaves all that to its next look. */
#include "thread.h"
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include "../base/clock.h"

#define BEAT_SECONDS 1.0
#define YOUNG_SECONDS 50e-6       /* of a job that whoever waits for it carries */
#define SHARED_SECONDS 1e-3       /* the same with more ranks than cores: others get the core between two looks */
#define BUSY_NANOSECONDS 20000    /* of sleep while messages are under way */
#define KERNEL_NANOSECONDS 50000  /* the same while the script goes on: each time one of its kernels stops for it */
#define IDLE_NANOSECONDS 10000000 /* while none are: a word may come */
#define SLICE_NANOSECONDS 100000  /* the least that Linux gives */
#define PRINT_MICROSECONDS 300000 /* for the launcher to take what ranks have printed, before it ends them */
#define GRACE_SECONDS 5.0         /* for others to leave a broken link, before the job is ended */
#define PATIENCE_SECONDS 30.0     /* at its end, until rank 0 says whom it waits for */

struct wn__link_state wn__link_state = {.is = {.size = 1, .per_node = 1}, .last = &wn__link_state.jobs};
static struct wn__link_state *const here = &wn__link_state;

/* ---- what both threads do ---------------------------------------------------------------------------------------- */

void wn__link_break_here(int32_t code, const char *text)
{
    if (here->broken[0] != 0) return;
    snprintf(here->broken, sizeof here->broken, "%s", text);
    here->code = code;
    here->ending = wn__now();
    pthread_cond_broadcast(&here->changed);
}

void wn__link_describe(int32_t rank, char *text, int64_t room)
{
    const struct wn__peer *p = rank < 0 ? NULL : &here->peers[rank];
    double silent = p == NULL || p->heard == 0 ? 0 : wn__now() - p->heard;
    int32_t is_heard_of = here->is.rank == 0 || rank == 0; /* heartbeats go between rank 0 and the others */
    if (p == NULL) snprintf(text, (size_t)room, "nobody");
    else if (rank == here->is.rank) snprintf(text, (size_t)room, "its own device");
    else if (!is_heard_of) snprintf(text, (size_t)room, "rank %d", rank);
    else if (p->heard == 0) snprintf(text, (size_t)room, "rank %d, which has said nothing yet", rank);
    else if (silent > WN_DEAF_SECONDS)
        snprintf(text, (size_t)room, "rank %d, which is silent for %.0f s; it was at %s (call %lld)", rank, silent,
                 p->said, (long long)p->calls);
    else snprintf(text, (size_t)room, "rank %d, which is at %s (call %lld)", rank, p->said, (long long)p->calls);
}

void wn__link_put(struct wn__job *job)
{
    job->next = NULL;
    job->is_listed = here->is_new = 1;
    *here->last = job;
    here->last = &job->next;
}

void wn__link_say(enum wn__word_kind kind, const char *said, int32_t to)
{
    for (int32_t r = 0; r < here->is.size; r++) {
        struct wn__job *job = &here->words[r * WN_WORD_COUNT + (int32_t)kind];
        if (r == here->is.rank || (to >= 0 && r != to) || job->is_listed) continue;
        *job = (struct wn__job){.channel = WN_CHANNEL_WORDS, .is_word = 1, .awaits = r, .is_ready = 1, .n = 1};
        job->pieces = &job->own;
        job->word = (struct wn__word){.kind = (int32_t)kind, .code = here->code, .calls = here->calls};
        snprintf(job->word.said, sizeof job->word.said, "%s", said);
        job->own = (struct wn__piece){.at = (char *)&job->word, .bytes = sizeof job->word, .peer = r};
        wn__link_put(job);
    }
    pthread_cond_signal(&here->put);
}

/* ---- calls of MPI: the lock is not held -------------------------------------------------------------------------- */

/* Breaks the link for a number of MPI that is none of success. */
static int32_t is_bad(int32_t number)
{
    char words[300], text[400];
    if (number == 0) return 0;
    here->door->text(number, words, sizeof words);
    snprintf(text, sizeof text, "MPI failed on rank %d: %s", here->is.rank, words);
    pthread_mutex_lock(&here->lock);
    here->is_dead = 1;
    wn__link_break_here(WN_IO, text);
    pthread_mutex_unlock(&here->lock);
    return 1;
}

/* Takes the words that have come. */
static void hear(void)
{
    struct wn__word word;
    int32_t peer;
    int64_t bytes;
    for (;;) {
        if (is_bad(here->door->take(WN_CHANNEL_WORDS, &word, sizeof word, &peer, &bytes)) || bytes < 0) return;
        pthread_mutex_lock(&here->lock);
        struct wn__peer *p = &here->peers[peer];
        p->has_left |= word.kind == WN_WORD_LEFT;
        p->heard = p->has_left && peer != 0 ? HUGE_VAL : wn__now();
        p->calls = word.calls;
        here->is_over |= word.kind == WN_WORD_OVER;
        if (word.kind == WN_WORD_BROKEN) wn__link_break_here(word.code, word.said);
        else snprintf(p->said, sizeof p->said, "%.*s", (int)sizeof p->said - 1, word.said);
        pthread_cond_broadcast(&here->changed);
        pthread_mutex_unlock(&here->lock);
    }
}

static int32_t begin(struct wn__job *job)
{
    for (int64_t i = 0; i < job->n; i++) {
        struct wn__piece *m = &job->pieces[i];
        int32_t number = m->is_receive ? here->door->receive(job->channel, m->peer, m->at, m->bytes, &m->request)
                                       : here->door->send(job->channel, m->peer, m->at, m->bytes, &m->request);
        if (is_bad(number)) return 0;
    }
    job->has_begun = 1;
    return 1;
}

/* Tests the pieces of a job. Returns the rank of the first that has not ended; -1: all have. */
static int32_t test(struct wn__job *job)
{
    int32_t awaits = -1;
    for (int64_t i = 0; i < job->n; i++) {
        struct wn__piece *m = &job->pieces[i];
        int32_t is_broken = !m->has_ended && is_bad(here->door->test(&m->request, &m->has_ended));
        if (awaits < 0 && (is_broken || !m->has_ended)) awaits = m->peer;
        if (is_broken) break;
    }
    return awaits;
}

/* Tells whether a job may begin; one that is not ready keeps back those that follow it on its channel. */
static int32_t may_begin(const struct wn__job *job, uint32_t *kept_back)
{
    if (!__atomic_load_n(&job->is_ready, __ATOMIC_ACQUIRE)) *kept_back |= 1U << job->channel;
    return (*kept_back >> job->channel & 1) == 0;
}

void wn__link_carry(void)
{
    int32_t busy = 0;
    uint32_t kept_back = 0;
    pthread_mutex_lock(&here->lock);
    struct wn__job **at = &here->jobs;
    here->is_new = 0;
    while (*at != NULL && !here->is_dead) {
        struct wn__job *job = *at;
        int32_t is_due = job->is_word || here->broken[0] == 0, awaits = job->awaits;
        pthread_mutex_unlock(&here->lock);
        if (is_due && (job->has_begun || (may_begin(job, &kept_back) && begin(job)))) awaits = test(job);
        pthread_mutex_lock(&here->lock);
        job->awaits = awaits;
        busy |= is_due && awaits >= 0;
        if (awaits >= 0) {
            at = &job->next;
            continue;
        }
        *at = job->next;
        if (here->last == &job->next) here->last = at;
        job->is_listed = 0;
        __atomic_store_n(&job->has_ended, 1, __ATOMIC_RELEASE); /* the last touch: the script may free it now */
        pthread_cond_broadcast(&here->changed);
    }
    here->is_busy = busy;
    pthread_mutex_unlock(&here->lock);
}

/* ---- the life of the thread -------------------------------------------------------------------------------------- */

/* Returns the first rank that this one waits for at its end; -1: nobody. Others than rank 0 wait for its word. The lock
 * is held. */
static int32_t still_here(void)
{
    if (here->is.rank != 0) return here->is_over ? -1 : 0;
    for (int32_t r = 1; r < here->is.size; r++)
        if (!here->peers[r].has_left) return r;
    return -1;
}

/* Says once, where this rank has ended long before another, whom rank 0 waits for; a rank that is silent for as long as
 * the timeout breaks the link. Nobody reads warnings of the library at the end of a process: this is printed. The lock
 * is held. */
static void look_at_end(int32_t r)
{
    double heard = here->peers[r].heard > here->ending ? here->peers[r].heard : here->ending;
    double patience = here->is.timeout + WN_DEAF_SECONDS * (here->is.rank == 0 ? 1 : 2); /* rank 0 knows more */
    int32_t is_silent = wn__now() > heard + patience, is_first = here->is.rank == 0;
    if (!is_silent && (!is_first || here->is_told || wn__now() < here->ending + PATIENCE_SECONDS)) return;
    char late[300], text[400];
    wn__link_describe(r, late, sizeof late);
    snprintf(text, sizeof text, "rank %d has ended, and waits for %s", here->is.rank, late);
    fprintf(stderr, "wane: %s\n", text);
    here->is_told = 1;
    if (!is_silent) return;
    wn__link_break_here(WN_IO, text);
    wn__link_say(WN_WORD_BROKEN, text, -1);
}

/* Tells whether the thread is to end: this rank leaves, its words are said, and all others leave too. A broken link is
 * not waited for longer than the grace, nor one on which nothing can be said. */
static int32_t is_over(void)
{
    pthread_mutex_lock(&here->lock);
    int32_t is_leaving = here->phase == WN_LINK_LEAVING, over = is_leaving, r = still_here();
    if (is_leaving && r < 0 && !here->is_over) {
        here->is_over = 1;
        wn__link_say(WN_WORD_OVER, here->said, -1);
    }
    if (is_leaving && r >= 0 && here->broken[0] == 0) look_at_end(r);
    /* Exchanges of an update may be under way to the end: all ranks have started them. */
    for (const struct wn__job *job = here->jobs; job != NULL; job = job->next)
        over &= !job->is_word && (job->channel != WN_CHANNEL_REFRESH || here->broken[0] != 0);
    over &= r < 0;
    if (is_leaving && here->broken[0] != 0) over |= here->is_dead || wn__now() > here->ending + GRACE_SECONDS;
    pthread_mutex_unlock(&here->lock);
    return over;
}

/* Carries messages and hears words, unless the script does so. */
static void look(void)
{
    if (pthread_mutex_trylock(&here->turn) != 0) return;
    wn__link_carry();
    if (!here->is_dead) hear();
    pthread_mutex_unlock(&here->turn);
}

/* Sleeps until a job is put: briefly while messages are under way, else until a word may have come. */
static void rest(void)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    pthread_mutex_lock(&here->lock);
    int32_t busy = here->is_busy;
    until.tv_nsec += !busy ? IDLE_NANOSECONDS : here->is_awaited ? BUSY_NANOSECONDS : KERNEL_NANOSECONDS;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    int error = 0;
    here->sleep = busy ? WN_SLEEP_BUSY : WN_SLEEP_IDLE;
    while (!here->is_new && error == 0) error = pthread_cond_timedwait(&here->put, &here->lock, &until);
    here->sleep = WN_SLEEP_NONE;
    pthread_mutex_unlock(&here->lock);
}

/* Joins the job. Returns whether MPI sees the one that the launcher told of. */
static int32_t join(void)
{
    int32_t rank = 0, size = 0;
    struct wn_mpi_machine machine = {1, 0, 1};
    char text[400];
    if (is_bad(here->door->start(&rank, &size, &machine))) return 0;
    snprintf(text, sizeof text, "%s says it is %d of %d: it is an MPI of another kind than the launcher",
             here->door->library, rank, size);
    pthread_mutex_lock(&here->lock);
    int32_t is_the_same = rank == here->is.rank && size == here->is.size;
    if (here->is.per_node == 0) here->is.per_node = machine.per_node;
    here->is.number = machine.number;
    here->young = machine.ranks > sysconf(_SC_NPROCESSORS_ONLN) ? SHARED_SECONDS : YOUNG_SECONDS;
    if (is_the_same) here->phase = WN_LINK_OPEN;
    else wn__link_break_here(WN_IO, text);
    pthread_cond_broadcast(&here->changed);
    pthread_mutex_unlock(&here->lock);
    if (!is_the_same) here->door->stop();
    return is_the_same;
}

/* Says a heartbeat: each rank to rank 0 until it leaves, and rank 0 to all until all have left. Nobody would take one
 * that came later. */
static void beat(void)
{
    pthread_mutex_lock(&here->lock);
    if (here->is.rank == 0 ? !here->is_over : here->phase == WN_LINK_OPEN)
        wn__link_say(WN_WORD_BEAT, here->said, here->is.rank == 0 ? -1 : 0);
    pthread_mutex_unlock(&here->lock);
}

/* Asks for slices of SLICE_NANOSECONDS, which Linux 6.12 and later give to a thread of any user. A thread with slices
 * as long as those of kernels on all cores waits, when it wakes, until one of them has ended. Nothing else is changed,
 * such as how nice the process is. */
static void ask_for_short_slices(void)
{
    struct {
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime, deadline, period;
    } own = {0};
    if (syscall(SYS_sched_getattr, 0, &own, sizeof own, 0U) != 0 || own.policy != 0) return; /* of the usual policy */
    own.runtime = SLICE_NANOSECONDS;
    (void)syscall(SYS_sched_setattr, 0, &own, 0U);
}

void *wn__link_serve(void *unused)
{
    double next = wn__now() + BEAT_SECONDS;
    (void)unused;
    prctl(PR_SET_TIMERSLACK, 1000UL);
    if (!join()) return NULL;
    ask_for_short_slices(); /* behind join, whose threads would have them too */
    while (!is_over()) {
        look();
        if (wn__now() >= next) {
            next = wn__now() + BEAT_SECONDS;
            beat();
        }
        rest();
    }
    pthread_mutex_lock(&here->lock);
    int32_t is_broken = here->broken[0] != 0;
    pthread_mutex_unlock(&here->lock);
    if (!is_broken) {
        here->door->stop();
        return NULL;
    }
    usleep(PRINT_MICROSECONDS);
    here->door->end_job(1); /* messages are left over that nobody takes, so MPI cannot end in peace */
    return NULL;
}
