/* The executor's account: see measure.h. It must never look at what the simulator predicted (schedule->summary,
 * schedule->live), or the two numbers would no longer be independent. */
#include "measure.h"
#include <string.h>
#include "../base/alloc.h"
#include "../plan/lower/instruction.h"
#include "../plan/recipe/action.h"

static void move(struct wn__meter *m, int32_t kind, int64_t bytes)
{
    m->kinds[kind] += bytes;
    m->live += bytes;
}

static void note(struct wn__meter *m)
{
    int32_t stage = m->in_backward ? 3 : 2;
    if (m->live > m->out->at[stage]) m->out->at[stage] = m->live;
    if (m->live <= m->out->peak) return;
    m->out->peak = m->live;
    memcpy(m->out->peak_kinds, m->kinds, sizeof m->kinds);
}

/* Counts the bytes alive before the first instruction, read off the cells and values themselves. */
int32_t wn__meter_start(struct wn__meter *m, struct wn_program *p)
{
    const struct wn__ir *ir = p->ir;
    const struct wn__schedule *s = p->schedule;
    m->out = &p->measured;
    memset(m->out, 0, sizeof *m->out);
    m->allocation_bytes = wn__alloc((s->n_allocations + 1) * (int64_t)sizeof *m->allocation_bytes);
    if (m->allocation_bytes == NULL) return WN_OOM;
    for (int32_t i = 0; i < ir->n_cells; i++) {
        const struct wn_cell *c = p->cell[i];
        if (c->kind == WN_KIND_GRADIENT && !c->allocated) continue;
        move(m, c->kind, wn__padded(wn__bytes(&c->type)));
        int32_t in_slab = 0; /* 1: its slab's bytes are added whole below */
        for (int32_t k = 0; k < ir->n_slabs; k++) in_slab |= c->slab != NULL && c->slab == p->slab[k];
        m->fixed += in_slab ? 0 : wn__padded(wn__bytes(&c->type));
    }
    for (int32_t i = 0; i < ir->n_bound; i++) {
        if (p->bound[i] == NULL) continue;
        move(m, WN_KIND_INPUT, p->bound[i]->held->bytes);
        m->fixed += p->bound[i]->held->bytes;
    }
    for (int32_t i = 0; i < ir->n_slabs; i++) m->fixed += p->slab[i]->bytes;
    memcpy(m->start, m->kinds, sizeof m->start); /* the device's ledger has counted these already */
    if (s->scalars >= 0) {
        move(m, WN_KIND_WORKSPACE, s->allocation[s->scalars].bytes);
        if (s->allocation[s->scalars].space == WN_SPACE_ARENA)
            m->arena_top = s->allocation[s->scalars].offset + s->allocation[s->scalars].bytes;
    }
    m->out->at[0] = m->live;
    note(m);
    return WN_OK;
}

static void arrive(struct wn__meter *m, const struct wn__schedule *s, int32_t allocation, int64_t bytes)
{
    const struct wn__allocation *t = &s->allocation[allocation];
    int32_t kind = t->space == WN_SPACE_RESULT ? WN_KIND_RESULT : t->pinned ? WN_KIND_GRADIENT : WN_KIND_ACTIVATION;
    int64_t top = t->offset + (t->is_paged ? wn__paged(bytes) : bytes);
    if (t->space == WN_SPACE_ARENA && top > m->arena_top) m->arena_top = top;
    if (t->space == WN_SPACE_CELL || m->allocation_bytes[allocation] != 0) return;
    m->allocation_bytes[allocation] = bytes;
    if (t->space == WN_SPACE_RESULT) m->fixed += bytes;
    move(m, kind, bytes);
}

static void enter_backward(struct wn__meter *m, const struct wn__instr *n)
{
    if (n->phase == WN_PHASE_FORWARD || m->in_backward) return;
    m->in_backward = 1;
    m->out->at[1] = m->live;
}

/* Counts a transfer, whose bytes are there from its start on: those of the fetched value, or those of the offloaded
 * one in its buffer, which are the device's only if its memory is the host's. */
void wn__meter_move(struct wn__meter *m, const struct wn_program *p, const struct wn__instr *n)
{
    int64_t bytes = wn__bytes(&p->ir->node[n->node].type);
    int32_t allocation = p->schedule->value[n->out].allocation;
    const struct wn__allocation *t = &p->schedule->allocation[allocation];
    enter_backward(m, n);
    if (n->what == WN_DO_FETCH) {
        arrive(m, p->schedule, allocation, wn__padded(bytes));
    } else {
        int32_t place = t->space == WN_SPACE_DISK ? WN_PLACE_DISK : WN_PLACE_HOST;
        bytes = wn__paged(bytes);
        if (t->offset + bytes > m->offload_buffer_top[place]) m->offload_buffer_top[place] = t->offset + bytes;
        if (place == WN_PLACE_HOST && wn__offload_buffer_is_own(p->device)) {
            m->allocation_bytes[allocation] = bytes;
            move(m, WN_KIND_HOST, bytes);
        }
    }
    note(m);
}

void wn__meter_run(struct wn__meter *m, const struct wn_program *p, const struct wn__instr *n)
{
    int64_t bytes = wn__padded(wn__instr_bytes(p->ir, p->schedule, n));
    enter_backward(m, n);
    move(m, WN_KIND_WORKSPACE, n->work_bytes);
    if (n->work_bytes > 0 && n->work_slab < 0 && n->work_offset + n->work_bytes > m->arena_top)
        m->arena_top = n->work_offset + n->work_bytes;
    if (n->out >= 0) arrive(m, p->schedule, p->schedule->value[n->out].allocation, bytes);
    for (int32_t k = 0; k < 3; k++)
        if (n->cell[k] >= 0) arrive(m, p->schedule, n->cell[k], bytes);
    note(m);
    move(m, WN_KIND_WORKSPACE, -n->work_bytes);
}

void wn__meter_free(struct wn__meter *m, const struct wn_program *p, const struct wn__instr *n)
{
    enter_backward(m, n);
    move(m, p->schedule->allocation[n->out].kind, -m->allocation_bytes[n->out]);
    m->allocation_bytes[n->out] = 0;
}

void wn__meter_stop(struct wn__meter *m, struct wn_program *p)
{
    const struct wn__ledger *l = wn__ledger(p->device);
    int64_t kinds[WN_KIND_COUNT], all = 0;
    if (!m->in_backward) m->out->at[1] = m->live;
    if (p->schedule->scalars >= 0) move(m, WN_KIND_WORKSPACE, -p->schedule->allocation[p->schedule->scalars].bytes);
    m->out->at[4] = m->live;
    m->out->reserved =
        m->fixed + m->arena_top + (wn__offload_buffer_is_own(p->device) ? m->offload_buffer_top[WN_PLACE_HOST] : 0);
    m->out->host = m->offload_buffer_top[WN_PLACE_HOST];
    m->out->disk = m->offload_buffer_top[WN_PLACE_DISK];
    /* The device's peak is the program's, with everything else that is alive beside it. */
    for (int32_t k = 0; k < WN_KIND_COUNT; k++) kinds[k] = l->kinds[k] + m->out->peak_kinds[k] - m->start[k];
    for (int32_t r = 0; r < p->ir->n_results; r++) { /* the ledger has counted results since they were taken */
        int32_t t = p->schedule->result_allocation[r];
        if (t >= 0) kinds[WN_KIND_RESULT] -= p->schedule->allocation[t].bytes;
    }
    wn__ledger_peak(p->device, kinds);
    for (int32_t k = 0; k < WN_KIND_COUNT; k++) all += kinds[k];
    m->out->beside = all - m->out->peak;
    wn__free(m->allocation_bytes);
}

/* ---- traces and seconds, where they are asked for ------------------------------------------------------------- */

int32_t wn__trace_on, wn__timing_on;

int32_t wn__trace_room(struct wn_program *p)
{
    p->n_trace = 0;
    if (wn__timing_on && p->step_seconds == NULL) {
        p->step_seconds = wn__alloc((p->schedule->n + 1) * (int64_t)sizeof *p->step_seconds);
        if (p->step_seconds == NULL) return WN_OOM;
    }
    if (!wn__trace_on || p->trace != NULL) return WN_OK;
    p->trace = wn__alloc((p->schedule->n + 1) * (int64_t)sizeof *p->trace);
    return p->trace == NULL ? WN_OOM : WN_OK;
}

int32_t wn__timing_start(struct wn_program *p)
{
    struct wn_device *d = wn__device(p->device);
    if (!wn__timing_on || p->step_seconds == NULL) return WN_OK;
    memset(p->step_seconds, 0, (size_t)p->schedule->n * sizeof *p->step_seconds);
    WN_TRY(d->timer_open(d, p->schedule->n, p->step_seconds));
    p->is_timed = 1;
    return WN_OK;
}

int32_t wn__timing_mark(const struct wn_program *p, int32_t i, int32_t end)
{
    return p->is_timed ? wn__device(p->device)->timer_mark(wn__device(p->device), i, end) : WN_OK;
}

void wn__timing_stop(struct wn_program *p)
{
    struct wn_device *d = wn__device(p->device);
    if (p->is_timed) d->timer_close(d);
    p->is_timed = 0;
}
