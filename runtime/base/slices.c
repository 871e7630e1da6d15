/* Runs work in slices on a thread of its own: see slices.h. Whichever side runs holds the mutex; `turn` says which side
 * that is, and the other side waits for the condition `changed`.
 *
 *   caller   wn__slices_go |          waits           | continues | wn__slices_go |    waits    | continues
 *   work     waits         | work() calls wn__pause() | waits                     | returns     |
 *   turn     CALLER        | WORK                     | CALLER                    | WORK        | OVER
 *
 * All signals are blocked on the work's thread, so the caller's thread receives them. A failure's message is kept by
 * thread (status.c), so the work copies its message into the struct for the caller. */
#include "slices.h"
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include "alloc.h"
#include "clock.h"
#include "status.h"

enum turn { CALLER, WORK, OVER }; /* OVER: the work has returned, or gave up */

/* Invariant: at any time at most one of the two threads runs between two calls of this file, the one that `turn` names;
 * only that one reads or writes the struct. */
struct wn__slices {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed; /* `turn` has another value */
    enum turn turn;
    int32_t (*work)(void *ctx);
    void *ctx;           /* the argument of `work` */
    double until;        /* seconds of wn__now at which the slice ends */
    int32_t is_given_up; /* 1: wn__slices_stop was called, so the next pause fails */
    int32_t code;        /* what `work` returned, once `turn` is OVER */
    char why[1024];      /* the message of `code` */
};

static _Thread_local struct wn__slices
    *current; /* the slices whose work this thread runs; NULL on every other thread */

static void wait_while(struct wn__slices *s, enum turn turn)
{
    while (s->turn == turn) pthread_cond_wait(&s->changed, &s->lock);
}

static void hand_over(struct wn__slices *s, enum turn turn)
{
    s->turn = turn;
    pthread_cond_signal(&s->changed);
}

/* Runs the work; the main function of the work's thread. */
static void *run(void *slices)
{
    struct wn__slices *s = slices;
    pthread_mutex_lock(&s->lock);
    wait_while(s, CALLER);
    current = s;
    s->code = s->is_given_up ? WN_INTERRUPT : s->work(s->ctx);
    snprintf(s->why, sizeof s->why, "%s", wn__message());
    hand_over(s, OVER);
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

struct wn__slices *wn__slices_make(int32_t (*work)(void *ctx), void *ctx)
{
    sigset_t all, before;
    struct wn__slices *s = wn__alloc(sizeof *s);
    if (s == NULL) return NULL;
    *s = (struct wn__slices){.work = work, .ctx = ctx};
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(&s->thread, NULL, run, s);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!failed) return s;
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    wn__free(s);
    return NULL;
}

int32_t wn__slices_go(struct wn__slices *s, double seconds, int32_t *code)
{
    pthread_mutex_lock(&s->lock);
    s->until = wn__now() + seconds;
    if (s->turn == CALLER) hand_over(s, WORK);
    wait_while(s, WORK);
    int32_t is_over = s->turn == OVER;
    pthread_mutex_unlock(&s->lock);
    *code = is_over ? s->code : WN_OK;
    if (*code != WN_OK) wn__fail(*code, "%s", s->why);
    return is_over;
}

void wn__slices_stop(struct wn__slices *s)
{
    int32_t code;
    if (s == NULL) return;
    s->is_given_up = 1;
    while (!wn__slices_go(s, 0, &code)) {}
    pthread_join(s->thread, NULL);
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    wn__free(s);
}

int32_t wn__pause(void)
{
    struct wn__slices *s = current;
    if (s == NULL) return WN_OK;
    if (!s->is_given_up && wn__now() >= s->until) {
        hand_over(s, CALLER);
        wait_while(s, CALLER);
    }
    return s->is_given_up ? wn__fail(WN_INTERRUPT, "the work was given up") : WN_OK;
}
