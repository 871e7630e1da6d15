/* The meter, the executor's own account of live bytes. It adds the bytes of each output, by its type, when a node is
 * issued and subtracts them when it is freed. It must never look at what the simulator predicted (schedule->summary,
 * schedule->live), or the predicted and the measured peak would no longer be found independently. */
#include <string.h>
#include "run.h"

struct wn__meter {
    int64_t kinds[WN_KIND_COUNT];                /* bytes alive, by kind */
    int64_t start[WN_KIND_COUNT];                /* the same before the first instruction */
    int64_t live;                                /* the sum of kinds */
    int64_t arena_top;                           /* the highest byte of the arena that was used */
    int64_t fixed;                               /* bytes of states, slabs, held values and results */
    int64_t offload_buffer_top[WN_MEDIUM_COUNT]; /* the highest byte of each offload buffer that was used */
    int32_t in_backward;
    struct wn_measured *out;    /* the measurements of the program */
    int64_t allocation_bytes[]; /* (n_allocations) bytes that were counted for what each holds now */
};

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

/* Reads the bytes alive before the first instruction off the cells and values themselves. */
int32_t wn__meter_start(struct wn__run *r)
{
    const struct wn__ir *ir = r->ir;
    const struct wn__bindings *b = &r->p->bindings;
    const struct wn__schedule *s = r->schedule;
    struct wn__meter *m = r->meter =
        wn__pool_get(&r->pool, (int64_t)sizeof *m + s->n_allocations * (int64_t)sizeof m->allocation_bytes[0]);
    if (m == NULL) return WN_OOM;
    m->out = &r->p->run.measured;
    for (int32_t i = 0; i < ir->n_cells; i++) {
        const struct wn_cell *c = b->cell[i];
        if (c->kind == WN_KIND_GRADIENT && !c->allocated) continue;
        move(m, c->kind, wn__padded(wn__bytes(&c->type)));
        int32_t in_slab = 0; /* 1: its slab's bytes are added whole below */
        for (int32_t k = 0; k < ir->n_slabs; k++) in_slab |= c->slab != NULL && c->slab == b->slab[k];
        m->fixed += in_slab ? 0 : wn__padded(wn__bytes(&c->type));
    }
    for (int32_t i = 0; i < ir->n_bound; i++) {
        if (b->bound[i] == NULL) continue;
        move(m, WN_KIND_INPUT, b->bound[i]->held->bytes);
        m->fixed += b->bound[i]->held->bytes;
    }
    for (int32_t i = 0; i < ir->n_slabs; i++) m->fixed += b->slab[i]->bytes;
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

/* Counts a transfer, whose bytes are there from its start on: those of the fetched value, or those of the offloaded
 * one in its buffer, which are the device's only if its memory is the host's. */
static void count_move(struct wn__meter *m, const struct wn__run *r, const struct wn__instr *n)
{
    int64_t bytes = wn__bytes(&r->ir->node[n->node].type);
    int32_t allocation = r->schedule->value[n->out].allocation;
    const struct wn__allocation *t = &r->schedule->allocation[allocation];
    if (n->what == WN_DO_FETCH) {
        arrive(m, r->schedule, allocation, wn__padded(bytes));
    } else {
        int32_t place = t->space == WN_SPACE_DISK ? WN_MEDIUM_DISK : WN_MEDIUM_HOST;
        bytes = wn__paged(bytes);
        if (t->offset + bytes > m->offload_buffer_top[place]) m->offload_buffer_top[place] = t->offset + bytes;
        if (place == WN_MEDIUM_HOST && r->device->target.is_unified_memory) {
            m->allocation_bytes[allocation] = bytes;
            move(m, WN_KIND_HOST, bytes);
        }
    }
    note(m);
}

static void count_run(struct wn__meter *m, const struct wn__run *r, const struct wn__instr *n)
{
    const struct wn__schedule *s = r->schedule;
    int64_t bytes = wn__padded(wn__instr_bytes(r->ir, s, n));
    move(m, WN_KIND_WORKSPACE, n->work_bytes);
    if (n->work_bytes > 0 && n->work_slab < 0 && n->work_offset + n->work_bytes > m->arena_top)
        m->arena_top = n->work_offset + n->work_bytes;
    if (n->out >= 0) arrive(m, s, s->value[n->out].allocation, bytes);
    for (int32_t k = 0; k < 3; k++) {
        if (n->cell[k] < 0) continue;
        const struct wn_cell *c = r->p->bindings.cell[r->ir->node[n->node].cell[k]];
        arrive(m, s, n->cell[k], wn__padded(wn__bytes(&c->type)));
    }
    note(m);
    move(m, WN_KIND_WORKSPACE, -n->work_bytes);
}

void wn__meter_count(struct wn__run *r, const struct wn__instr *n)
{
    struct wn__meter *m = r->meter;
    if (n->what == WN_DO_WAIT || n->what == WN_DO_READ) return;
    if (n->phase != WN_PHASE_FORWARD && !m->in_backward) {
        m->in_backward = 1;
        m->out->at[1] = m->live;
    }
    if (n->what == WN_DO_FREE) {
        move(m, r->schedule->allocation[n->out].kind, -m->allocation_bytes[n->out]);
        m->allocation_bytes[n->out] = 0;
    } else if (wn__instr_way(n) < 0) {
        count_run(m, r, n);
    } else {
        count_move(m, r, n);
    }
}

void wn__meter_stop(struct wn__run *r)
{
    struct wn__meter *m = r->meter;
    const struct wn__schedule *s = r->schedule;
    const struct wn_memory *l = wn__ledger(r->ir->device);
    int64_t kinds[WN_KIND_COUNT], all = 0;
    if (m == NULL) return;
    if (!m->in_backward) m->out->at[1] = m->live;
    if (s->scalars >= 0) move(m, WN_KIND_WORKSPACE, -s->allocation[s->scalars].bytes);
    m->out->at[4] = m->live;
    m->out->host = m->offload_buffer_top[WN_MEDIUM_HOST] + r->exchange.staged_top;
    m->out->disk = m->offload_buffer_top[WN_MEDIUM_DISK];
    m->out->reserved = m->fixed + m->arena_top + (r->device->target.is_unified_memory ? m->out->host : 0);
    /* The device's peak is the program's, with everything else that is alive beside it. */
    for (int32_t k = 0; k < WN_KIND_COUNT; k++) kinds[k] = l->kinds[k] + m->out->peak_kinds[k] - m->start[k];
    for (int32_t i = 0; i < r->ir->n_results; i++) { /* the ledger has counted results since they were taken */
        int32_t t = s->result_allocation[i];
        if (t >= 0) kinds[WN_KIND_RESULT] -= s->allocation[t].bytes;
    }
    wn__ledger_peak(r->ir->device, kinds);
    for (int32_t k = 0; k < WN_KIND_COUNT; k++) all += kinds[k];
    m->out->beside = all - m->out->peak;
}
