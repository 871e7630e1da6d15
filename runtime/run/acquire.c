/* Takes everything that a run needs before its first kernel, so that no run fails for memory half way. Each thing
 * that is taken has a rung in wn__acquire that gives it back. */
#include "acquire.h"
#include "../base/alloc.h"
#include "capture.h"
#include "check.h"
#include "run.h"

/* Returns base + offset. NULL stays NULL: no bytes, or those of the meta device. */
static char *at(void *base, int64_t offset)
{
    return base == NULL ? NULL : (char *)base + offset;
}

char *wn__allocation_address(const struct wn__bases *b, const struct wn__allocation *t)
{
    switch (t->space) {
    case WN_SPACE_SLAB: return at(b->p->slab[t->slot]->data, t->offset);
    case WN_SPACE_CELL: return wn__cell_data(b->p->cell[t->slot]);
    case WN_SPACE_BOUND: return b->p->bound[t->slot]->held->data;
    case WN_SPACE_RESULT: return b->result[t->slot]->data;
    default: return at(b->arena, t->offset);
    }
}

char *wn__value_address(const struct wn__bases *b, int32_t value)
{
    const struct wn__value *v = &b->p->schedule->value[value];
    return at(wn__allocation_address(b, &b->p->schedule->allocation[v->allocation]), v->at);
}

/* Returns the bytes that this run adds to what is reserved, beside the arena. */
static int64_t missing_bytes(const struct wn_program *p)
{
    const struct wn__ir *ir = p->ir;
    int64_t bytes = wn__program_missing(p);
    for (int32_t r = 0; r < ir->n_results; r++)
        if (p->schedule->result_allocation[r] >= 0)
            bytes += p->schedule->allocation[p->schedule->result_allocation[r]].bytes;
    for (int32_t k = 0; k < ir->n_slabs; k++)
        if (p->slab[k]->data == NULL) bytes += p->slab[k]->bytes;
    return bytes;
}

/* Returns the bytes by which the offload buffer in host memory grows, where that is the device's own memory. Like
 * the arena, the buffer stays between runs. */
static int64_t offload_buffer_growth(const struct wn_program *p)
{
    int64_t need = p->schedule->offload_buffer[WN_PLACE_HOST] - wn__offload_buffer_bytes(p->device, WN_PLACE_HOST);
    return wn__offload_buffer_is_own(p->device) && need > 0 ? need : 0;
}

/* Refuses with WN_OOM a run that would pass the limit. Idle memory is given back first. */
static int32_t check_limit(struct wn_program *p)
{
    struct wn__ledger *l = wn__ledger(p->device);
    int64_t arena = wn__arena(p->device)->bytes, need = missing_bytes(p) + offload_buffer_growth(p),
            height = p->schedule->arena;
    int64_t after = l->reserved - arena + (arena > height ? arena : height) + need;
    if (l->limit == 0 || after <= l->limit) return WN_OK;
    wn__slab_trim(p->device, p->slab, p->ir->n_slabs);
    WN_TRY(wn__arena_shrink(p->device, height));
    if (wn__offload_buffer_bytes(p->device, WN_PLACE_HOST) > p->schedule->offload_buffer[WN_PLACE_HOST])
        wn__offload_buffer_trim(p->device, WN_PLACE_HOST);
    need = missing_bytes(p) + offload_buffer_growth(p);
    after = l->reserved - wn__arena(p->device)->bytes + height + need;
    if (after <= l->limit) return WN_OK;
    wn__fail(WN_OOM,
             "out of memory: this program needs %lld bytes reserved on %s (%lld of its own, %lld held beside it), "
             "the limit is %lld; raise wane.memory.limit, free values, or recompute more",
             (long long)after, wn__device(p->device)->name, (long long)p->schedule->summary.reserved,
             (long long)(after - p->schedule->summary.reserved), (long long)l->limit);
    return wn__oom(p->device, p->schedule->summary.reserved, after);
}

/* Returns whether a cell is assigned to and not read: writing such a cell makes it valid again. */
static int32_t is_only_written(const struct wn_program *p, int32_t cell)
{
    return p->mode == WN_RUN_ASSIGN && cell >= p->n_read;
}

/* Refuses with WN_STALE what the program can no longer read. */
static int32_t check_readable(const struct wn_program *p)
{
    for (int32_t i = 0; i < p->ir->n_bound; i++)
        if (p->bound[i] != NULL && p->bound[i]->held == NULL) return wn__node_lost(p->bound[i], NULL);
    for (int32_t i = 0; i < p->ir->n_cells; i++)
        if (p->cell[i]->invalid && !is_only_written(p, i))
            return wn__fail(WN_STALE, "run: %s was left half updated by a failed run; load it again",
                            p->cell[i]->name ? p->cell[i]->name : "a state");
    return WN_OK;
}

/* Gives states their first values. The limit is checked again, because computing them may have left a larger arena. */
static int32_t take_states(struct wn_program *p)
{
    WN_TRY(wn__program_materialise(p));
    WN_TRY(check_limit(p));
    for (int32_t k = 0; k < p->ir->n_slabs; k++) WN_TRY(wn__slab_fill(p->slab[k]));
    return WN_OK;
}

static void release_results(struct wn__bases *b)
{
    for (int32_t r = 0; b->result != NULL && r < b->p->ir->n_results; r++) wn__buffer_unref(b->result[r]);
    wn__free(b->result);
}

/* Returns the bytes of a result whose cell-to-be is of a kind; -1: it is another kind's, or takes no bytes. */
static int64_t result_bytes(const struct wn_program *p, int32_t result, int32_t kind)
{
    int32_t t = p->schedule->result_allocation[result];
    return t < 0 || (p->taken_kind != NULL && p->taken_kind[result] != kind) ? -1 : p->schedule->allocation[t].bytes;
}

/* Takes the results of a kind. First values of states come together: their device may put them together. */
static int32_t take_results_of(struct wn__bases *b, int32_t kind)
{
    struct wn_program *p = b->p;
    int64_t bytes = 0, count = 0;
    int32_t code = WN_OK;
    for (int32_t r = 0; p->taken_kind != NULL && r < p->ir->n_results; r++) {
        int64_t own = result_bytes(p, r, kind);
        bytes += own > 0 ? wn__padded(own) : 0;
        count += own > 0;
    }
    wn__device_hint(p->device, bytes, count);
    for (int32_t r = 0; r < p->ir->n_results && code == WN_OK; r++) {
        int64_t own = result_bytes(p, r, kind);
        if (own >= 0) code = wn__buffer_new(p->device, WN_KIND_RESULT, own, &b->result[r]);
    }
    wn__device_hint(p->device, 0, 0);
    return code;
}

static int32_t take_results(struct wn__bases *b)
{
    int32_t kinds = b->p->taken_kind == NULL ? 1 : WN_KIND_COUNT;
    b->result = wn__alloc((b->p->ir->n_results + 1) * (int64_t)sizeof *b->result);
    if (b->result == NULL) return WN_OOM;
    for (int32_t kind = 0; kind < kinds; kind++) WN_TRY(take_results_of(b, kind));
    return WN_OK;
}

/* Takes the host's room for numbers, reports and addresses, and what graphs need beside the schedule. */
static int32_t take_room(struct wn__bases *b)
{
    const struct wn__ir *ir = b->p->ir;
    b->number = wn__alloc((ir->n_results + 1) * (int64_t)sizeof *b->number);
    b->report = wn__alloc((b->p->schedule->n_reports + 1) * (int64_t)sizeof *b->report);
    b->in = wn__alloc((ir->most_in + 1) * (int64_t)sizeof *b->in);
    return b->number == NULL || b->report == NULL || b->in == NULL ? WN_OOM : wn__captured_take(b->p);
}

static void release_room(struct wn__bases *b)
{
    wn__free(b->number);
    wn__free(b->report);
    wn__free(b->in);
}

int32_t wn__acquire(struct wn_program *p, struct wn__bases *out)
{
    int32_t code;
    *out = (struct wn__bases){.p = p};
    WN_TRY(wn__program_bind_slabs(p));
    WN_TRY(check_readable(p));
    WN_TRY(check_limit(p));
    if ((code = take_states(p)) != WN_OK) goto fail_states;
    if ((code = take_results(out)) != WN_OK) goto fail_results;
    if ((code = take_room(out)) != WN_OK) goto fail_room;
    if ((code = wn__transfer_take(&out->transfer, p)) != WN_OK) goto fail_transfer;
    if ((code = wn__arena_fit(p->device, p->schedule->arena + wn__check_guard())) != WN_OK) goto fail_arena;
    out->arena = wn__arena(p->device)->data;
    return WN_OK;

fail_arena:
fail_transfer: /* some of the offload buffers may be taken */
    wn__transfer_release(&out->transfer);
fail_room: /* some of the room may be taken */
    release_room(out);
fail_results: /* some of the results may be taken */
    release_results(out);
fail_states: /* some of the states may have a value */
    wn__program_end_first(p, WN_FIRST_ROLL_BACK);
    return code;
}

void wn__acquired_release(struct wn__bases *b)
{
    wn__transfer_release(&b->transfer);
    release_room(b);
    release_results(b);
    wn__program_end_first(b->p, WN_FIRST_ROLL_BACK);
}
