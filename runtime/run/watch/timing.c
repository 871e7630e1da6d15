/* Watches of the order and the seconds of instructions: the trace, the wait after every kernel, and the timing. */
#include <string.h>
#include "watch.h"

int32_t wn__trace_on, wn__sync_on, wn__timing_on;

/* Makes room for the program's trace, which outlives the run, and empties it. */
static int32_t start_trace(struct wn__run *r, void **own)
{
    struct wn_program *p = r->p;
    p->run.n_trace = 0;
    if (p->run.trace == NULL && !WN_ARRAY(&p->pool, p->run.trace, p->plan.schedule->n)) return WN_OOM;
    *own = p->run.trace;
    return WN_OK;
}

static int32_t note_instr(struct wn__run *r, void *trace, const struct wn__instr *n)
{
    (void)n;
    ((int32_t *)trace)[r->p->run.n_trace++] = r->at;
    return WN_OK;
}

const struct wn__watch wn__watch_trace = {.is_on = &wn__trace_on,
                                          .start = start_trace,
                                          .at[WN_MOMENT_BEFORE] = note_instr,
                                          .at[WN_MOMENT_FREED] = note_instr};

static int32_t wait_for_kernel(struct wn__run *r, void *own, const struct wn__instr *n)
{
    (void)own;
    if (!wn__instr_has_kernel(n)) return WN_OK;
    WN_TRY(r->device->sync(r->device));
    r->ended = r->at + 1;
    return WN_OK;
}

const struct wn__watch wn__watch_sync = {.is_on = &wn__sync_on, .is_apart = 1, .at[WN_MOMENT_AFTER] = wait_for_kernel};

/* Makes room for the program's seconds, which outlive the run, and has the device fill them. */
static int32_t start_timing(struct wn__run *r, void **own)
{
    struct wn_program *p = r->p;
    int32_t n = p->plan.schedule->n;
    if (p->run.step_seconds == NULL && !WN_ARRAY(&p->pool, p->run.step_seconds, n)) return WN_OOM;
    memset(p->run.step_seconds, 0, (size_t)n * sizeof *p->run.step_seconds);
    WN_TRY(r->device->timer_open(r->device, n, p->run.step_seconds));
    *own = p->run.step_seconds;
    return WN_OK;
}

/* Marks the beginning (end: 0) or the end (1) of the instruction, by the device's clock. */
static int32_t mark(struct wn__run *r, const struct wn__instr *n, int32_t end)
{
    if (n->what == WN_DO_READ) return WN_OK;
    return r->device->timer_mark(r->device, r->at, end);
}

static int32_t mark_begin(struct wn__run *r, void *own, const struct wn__instr *n)
{
    (void)own;
    return mark(r, n, 0);
}

static int32_t mark_end(struct wn__run *r, void *own, const struct wn__instr *n)
{
    (void)own;
    return mark(r, n, 1);
}

static void stop_timing(struct wn__run *r, void *own)
{
    (void)own;
    r->device->timer_close(r->device);
}

const struct wn__watch wn__watch_timing = {.is_on = &wn__timing_on,
                                           .is_apart = 1,
                                           .start = start_timing,
                                           .at[WN_MOMENT_BEFORE] = mark_begin,
                                           .at[WN_MOMENT_AFTER] = mark_end,
                                           .stop = stop_timing};
