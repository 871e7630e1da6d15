/* Takes everything that a run needs before its first kernel, so that no run fails for memory half way. What was not
 * taken is zero, so wn__acquired_release gives back any part of it. */
#include "run.h"
#include "watch/watch.h"

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

/* Returns the bytes of a result whose cell-to-be is of a kind; -1: it is another kind's, or takes no bytes. */
static int64_t result_bytes(const struct wn_program *p, int32_t result, int32_t kind)
{
    int32_t t = p->schedule->result_allocation[result];
    return t < 0 || (p->taken_kind != NULL && p->taken_kind[result] != kind) ? -1 : p->schedule->allocation[t].bytes;
}

/* Takes the results of a kind. First values of states come together: their device may put them together. */
static int32_t take_results_of(struct wn__run *r, int32_t kind)
{
    const struct wn_program *p = r->p;
    int64_t bytes = 0, count = 0;
    int32_t code = WN_OK;
    for (int32_t i = 0; p->taken_kind != NULL && i < p->ir->n_results; i++) {
        int64_t own = result_bytes(p, i, kind);
        bytes += own > 0 ? wn__padded(own) : 0;
        count += own > 0;
    }
    wn__device_hint(p->device, bytes, count);
    for (int32_t i = 0; i < p->ir->n_results && code == WN_OK; i++) {
        int64_t own = result_bytes(p, i, kind);
        if (own >= 0) code = wn__buffer_new(p->device, WN_KIND_RESULT, own, &r->result[i]);
    }
    wn__device_hint(p->device, 0, 0);
    return code;
}

static int32_t take_results(struct wn__run *r)
{
    int32_t kinds = r->p->taken_kind == NULL ? 1 : WN_KIND_COUNT;
    if (!WN_ARRAY(&r->pool, r->result, r->p->ir->n_results)) return WN_OOM;
    for (int32_t kind = 0; kind < kinds; kind++) WN_TRY(take_results_of(r, kind));
    return WN_OK;
}

/* Takes the host's room for numbers, reports and addresses, and what graphs need beside the schedule. */
static int32_t take_room(struct wn__run *r)
{
    const struct wn__ir *ir = r->p->ir;
    if (!WN_ARRAY(&r->pool, r->number, ir->n_results) || !WN_ARRAY(&r->pool, r->in, ir->most_in) ||
        !WN_ARRAY(&r->pool, r->report, r->p->schedule->n_reports))
        return WN_OOM;
    return wn__captured_take(r->p);
}

int32_t wn__acquire(struct wn_program *p, struct wn__run *out)
{
    *out = (struct wn__run){.p = p, .device = wn__device(p->device), .issue = wn__issue};
    WN_TRY(wn__program_bind_slabs(p));
    WN_TRY(check_readable(p));
    WN_TRY(check_limit(p));
    int32_t code = take_states(p);
    if (code == WN_OK) code = take_results(out);
    if (code == WN_OK) code = take_room(out);
    if (code == WN_OK) code = wn__transfer_take(out);
    if (code == WN_OK) code = wn__arena_fit(p->device, p->schedule->arena + wn__check_guard());
    if (code == WN_OK) out->arena = wn__arena(p->device)->data;
    return code;
}

void wn__acquired_release(struct wn__run *r)
{
    for (int32_t i = 0; r->result != NULL && i < r->p->ir->n_results; i++) wn__buffer_unref(r->result[i]);
    wn__pool_release(&r->pool);
    wn__program_end_first(r->p, WN_FIRST_ROLL_BACK);
}
