/* Takes everything that a run needs before its first kernel, so that no run fails for memory half way. What was not
 * taken is zero, so wn__acquired_release gives back any part of it. */
#include "run.h"
#include "watch/watch.h"

/* Returns the bytes that this run adds to what is reserved, beside the arena. The offload buffer in host memory counts
 * where that is the device's own memory; like the arena, it stays between runs. */
static int64_t missing_bytes(const struct wn__run *r)
{
    const struct wn__schedule *s = r->schedule;
    int32_t device = r->ir->device;
    int64_t bytes = wn__program_missing(r->p);
    int64_t buffer = s->offload_buffer[WN_MEDIUM_HOST] - wn__offload_buffer_bytes(device, WN_MEDIUM_HOST);
    for (int32_t i = 0; i < r->ir->n_results; i++)
        if (s->result_allocation[i] >= 0) bytes += s->allocation[s->result_allocation[i]].bytes;
    for (int32_t k = 0; k < r->ir->n_slabs; k++)
        if (r->p->bindings.slab[k]->data == NULL) bytes += r->p->bindings.slab[k]->bytes;
    return r->device->target.is_unified_memory && buffer > 0 ? bytes + buffer : bytes;
}

/* Refuses with WN_OOM a run that would pass the limit. Idle memory is given back first. */
static int32_t check_limit(const struct wn__run *r)
{
    const struct wn__schedule *s = r->schedule;
    int32_t device = r->ir->device;
    struct wn_memory *l = wn__ledger(device);
    int64_t arena = wn__arena(device)->bytes, own = s->summary.reserved;
    int64_t after = l->reserved - arena + (arena > s->arena ? arena : s->arena) + missing_bytes(r);
    if (l->limit == 0 || after <= l->limit) return WN_OK;
    wn__slab_trim(device, r->p->bindings.slab, r->ir->n_slabs);
    WN_TRY(wn__arena_resize(device, 0, s->arena));
    if (wn__offload_buffer_bytes(device, WN_MEDIUM_HOST) > s->offload_buffer[WN_MEDIUM_HOST])
        wn__offload_buffer_trim(device, WN_MEDIUM_HOST);
    after = l->reserved - wn__arena(device)->bytes + s->arena + missing_bytes(r);
    if (after <= l->limit) return WN_OK;
    wn__fail(WN_OOM,
             "out of memory: this program needs %lld bytes reserved on %s (%lld of its own, %lld held beside it), "
             "the limit is %lld; raise wane.memory.limit, free values, or recompute more",
             (long long)after, r->device->name, (long long)own, (long long)(after - own), (long long)l->limit);
    return wn__oom(device, own, after);
}

/* Returns whether a cell is assigned to and not read: writing such a cell makes it valid again. */
static int32_t is_only_written(const struct wn_program *p, int32_t cell)
{
    return p->request.mode == WN_RUN_ASSIGN && cell >= p->bindings.n_read;
}

/* Refuses with WN_STALE what the program can no longer read. */
static int32_t check_readable(const struct wn__run *r)
{
    const struct wn__bindings *b = &r->p->bindings;
    for (int32_t i = 0; i < r->ir->n_bound; i++)
        if (b->bound[i] != NULL && b->bound[i]->held == NULL && !wn__node_is_missing(b->bound[i]))
            return wn__node_lost(b->bound[i], NULL);
    for (int32_t i = 0; i < r->ir->n_cells; i++)
        if (b->cell[i]->invalid && !is_only_written(r->p, i))
            return wn__fail(WN_STALE, "run: %s was left half updated by a failed run; load it again",
                            b->cell[i]->name ? b->cell[i]->name : "a state");
    return WN_OK;
}

/* Returns the bytes of a result whose cell-to-be is of a kind; -1: it is another kind's, or takes no bytes. */
static int64_t result_bytes(const struct wn__run *r, int32_t result, int32_t kind)
{
    int32_t t = r->schedule->result_allocation[result];
    return t < 0 || (r->result_kind != NULL && r->result_kind[result] != kind) ? -1 : r->schedule->allocation[t].bytes;
}

/* Takes the results of a kind. First values of states come together: their device may put them together. */
static int32_t take_results_of(struct wn__run *r, int32_t kind)
{
    int64_t bytes = 0, count = 0;
    int32_t code = WN_OK;
    for (int32_t i = 0; r->result_kind != NULL && i < r->ir->n_results; i++) {
        int64_t own = result_bytes(r, i, kind);
        bytes += own > 0 ? wn__padded(own) : 0;
        count += own > 0;
    }
    r->device->hint(r->device, bytes, count);
    for (int32_t i = 0; i < r->ir->n_results && code == WN_OK; i++) {
        int64_t own = result_bytes(r, i, kind);
        if (own >= 0) code = wn__buffer_new(r->ir->device, WN_KIND_RESULT, own, &r->result[i]);
    }
    r->device->hint(r->device, 0, 0);
    return code;
}

/* Takes the host's room for results, numbers, reports and addresses. */
static int32_t take_room(struct wn__run *r)
{
    return WN_ARRAY(&r->pool, r->result, r->ir->n_results) && WN_ARRAY(&r->pool, r->number, r->ir->n_results) &&
                   WN_ARRAY(&r->pool, r->in, r->ir->most_in) && WN_ARRAY(&r->pool, r->report, r->schedule->n_reports)
               ? WN_OK
               : WN_OOM;
}

int32_t wn__acquire(struct wn_program *p, const int32_t *result_kind, struct wn__run *r)
{
    int32_t kinds = result_kind == NULL ? 1 : WN_KIND_COUNT, device = p->request.device;
    *r = (struct wn__run){.p = p, .ir = p->plan.ir, .schedule = p->plan.schedule, .result_kind = result_kind};
    r->device = wn__device(device);
    r->issue = wn__issue;
    WN_TRY(wn__program_bind_slabs(p));
    WN_TRY(check_readable(r));
    /* The limit is checked again after first values, which may have left a larger arena, and only then where data is
     * among them: what it was made of is let go. */
    if (wn__program_missing_data(p) == 0) WN_TRY(check_limit(r));
    WN_TRY(wn__run_materialise(r));
    WN_TRY(check_limit(r));
    for (int32_t k = 0; k < r->ir->n_slabs; k++) WN_TRY(wn__slab_fill(p->bindings.slab[k]));
    WN_TRY(take_room(r));
    for (int32_t kind = 0; kind < kinds; kind++) WN_TRY(take_results_of(r, kind));
    WN_TRY(wn__captured_take(r));
    WN_TRY(wn__transfer_take(r));
    WN_TRY(wn__exchange_take(r));
    WN_TRY(wn__arena_resize(device, r->schedule->arena + wn__check_guard(), INT64_MAX));
    r->arena = wn__arena(device)->data;
    return WN_OK;
}

void wn__acquired_release(struct wn__run *r)
{
    for (int32_t i = 0; r->result != NULL && i < r->ir->n_results; i++) wn__buffer_unref(r->result[i]);
    wn__run_end_first(r, WN_FIRST_ROLL_BACK);
    wn__pool_release(&r->pool);
}
