/* The API of ranks: checks arguments and hands them to the room of the link, which joins the job that a launcher
 * started, and carries calls that all ranks make. */
#include <string.h>
#include "../link/control.h"
#include "../link/mpi.h"
#include "../run/issue/issue.h"
#include "api.h"

#define MOST_RANKS 65536

const char *wn_mpi(void)
{
    return wn__mpi_kinds();
}

int32_t wn_dist_get(struct wn_dist *out)
{
    const struct wn__link *l = wn__link_get();
    WN_TRY(wn__need(out, "dist"));
    *out = (struct wn_dist){.rank = l->rank,
                            .size = l->size,
                            .per_node = l->per_node,
                            .is_open = l->is_open,
                            .is_ghost = l->is_ghost,
                            .calls = wn__control_calls(),
                            .library = l->library,
                            .gpu_link = wn__own_link_text()};
    return WN_OK;
}

static int32_t check_ranks(int32_t rank, int32_t size)
{
    if (wn__link_get()->is_open) return wn__fail(WN_VALUE, "dist: this process has joined a job already");
    if (size >= 1 && size <= MOST_RANKS && rank >= 0 && rank < size) return WN_OK;
    return wn__fail(WN_VALUE, "dist: rank %d of %d given; ranks go from 0 to their number less 1, at most %d", rank,
                    size, MOST_RANKS);
}

/* Checks that so many ranks on each machine make up all of them. */
static int32_t check_machines(int32_t per_node, int32_t size)
{
    if (per_node >= 1 && per_node <= size && size % per_node == 0) return WN_OK;
    return wn__fail(WN_VALUE, "dist: %d ranks on each machine given, expected a divisor of %d, the number of ranks",
                    per_node, size);
}

int32_t wn_dist_start(const char *kind, int32_t rank, int32_t size, int32_t per_node, double timeout)
{
    WN_TRY(wn__enter());
    WN_TRY(wn__need(kind, "dist: a kind of MPI"));
    WN_TRY(check_ranks(rank, size));
    if (per_node != 0) WN_TRY(check_machines(per_node, size));
    if (!(timeout > 0 && timeout < 1e9))
        return wn__fail(WN_VALUE, "dist: a timeout of %g s given; it is above 0", timeout);
    WN_TRY(wn__link_open(kind, rank, size, per_node, timeout));
    for (int32_t id = 0; id < wn__device_count(); id++) {
        struct wn_device *d = wn__device(id);
        if (d->absent == NULL) WN_TRY(d->choose(d, wn__link_get()->number));
    }
    return WN_OK;
}

int32_t wn_dist_gpu(void *facts)
{
    WN_TRY(wn__enter());
    WN_TRY(wn__need(facts, "dist: room for what is said of a GPU"));
    return wn__own_link_say(facts);
}

int32_t wn_dist_gpus(const void *all, int64_t bytes)
{
    WN_TRY(wn__enter());
    WN_TRY(wn__need(all, "dist: what is said of GPUs"));
    if (!wn__link_get()->is_open || bytes != wn__link_get()->size * (int64_t)sizeof(struct wn_link_facts))
        return wn__fail(WN_VALUE, "dist: %lld bytes about GPUs given, expected those of all ranks", (long long)bytes);
    return wn__own_link_choose(all);
}

int32_t wn_dist_ghost(int32_t rank, int32_t size, int32_t per_node)
{
    WN_TRY(wn__enter());
    WN_TRY(check_ranks(rank, size));
    WN_TRY(check_machines(per_node, size));
    return wn__link_ghost(rank, size, per_node);
}

int32_t wn_dist_alone(void)
{
    WN_TRY(wn__enter());
    return wn__link_alone();
}

int32_t wn_dist_shard(int32_t cell, int32_t how)
{
    struct wn_cell *c = wn__get_cell(cell);
    WN_TRY(wn__enter());
    if (c == NULL) return WN_VALUE;
    if (how < WN_DIST_WHOLE || how > WN_DIST_TRIED)
        return wn__fail(WN_VALUE, "dist: %d given, expected one of WN_DIST_WHOLE to WN_DIST_TRIED", how);
    if (how == WN_DIST_WHOLE) return wn__cell_unshard(c);
    if (!c->is_sliced) return wn__fail(WN_VALUE, "dist: a parameter is sharded once its states are in ranges");
    return wn__cell_shard(c, how == WN_DIST_TRIED);
}

int32_t wn_dist_slice(int32_t cell, int32_t start, int32_t *next)
{
    const struct wn__link *l = wn__link_get();
    struct wn_cell *c = wn__get_cell(cell);
    WN_TRY(wn__enter());
    WN_TRY(wn__need(next, "dist"));
    if (c == NULL) return WN_VALUE;
    if (start < -1 || start >= l->size)
        return wn__fail(WN_VALUE, "dist: a cut that starts at part %d given, of %d", start, l->size);
    struct wn__cut cut = {
        .elements = wn__numel(&c->whole), .ranks = start < 0 ? 0 : l->size, .start = start, .team = l->per_node};
    *next = start < 0 ? start : wn__cut_next(&cut);
    return wn__cell_slice(c, cut, l->rank);
}

int32_t wn_dist_range(int32_t cell, int32_t rank, int64_t *first, int64_t *count, int32_t *start, int32_t *is_sharded)
{
    const struct wn__link *l = wn__link_get();
    const struct wn_cell *c = wn__get_cell(cell);
    WN_TRY(wn__enter());
    WN_TRY(wn__need(first, "dist"));
    WN_TRY(wn__need(count, "dist"));
    WN_TRY(wn__need(start, "dist"));
    WN_TRY(wn__need(is_sharded, "dist"));
    if (c == NULL) return WN_VALUE;
    if (rank < -1 || rank >= l->size) return wn__fail(WN_VALUE, "dist: there is no rank %d of %d", rank, l->size);
    const struct wn__cut cut = {
        .elements = wn__numel(&c->whole), .ranks = l->size, .start = c->cut_start, .team = l->per_node};
    const struct wn__range whole = {0, cut.elements},
                           range = c->is_sliced ? wn__range_of(&cut, rank < 0 ? l->rank : rank, 0) : whole;
    *first = range.first;
    *count = range.count;
    *start = c->is_sliced ? c->cut_start : -1;
    *is_sharded = c->is_sharded;
    return WN_OK;
}

int32_t wn_dist_begin(const struct wn_dist_call *call)
{
    WN_TRY(wn__enter());
    WN_TRY(wn__need(call, "dist: a call"));
    WN_TRY(wn__need(call->said, "dist: what a call says"));
    WN_TRY(wn__need(call->needed, "dist: what a call needs"));
    WN_TRY(wn__check_bytes(call->mine, 0, call->bytes, "dist: the bytes of a call"));
    if (call->most < 0 || (call->most > 0 && call->bytes > call->most))
        return wn__fail(WN_VALUE, "dist: %lld bytes for rank 0 given, at most %lld", (long long)call->bytes,
                        (long long)call->most);
    if (call->code < 0 || call->code >= WN_STATUS_COUNT)
        return wn__fail(WN_VALUE, "dist: a call brings status %d, which is none", call->code);
    if (call->code != WN_OK) WN_TRY(wn__need(call->words, "dist: the words of a failure"));
    if (!wn__link_get()->is_open) return wn__fail(WN_VALUE, "dist: this process has joined no job");
    struct wn__call c = {
        .said = call->said, .needed = call->needed, .code = call->code, .words = call->words, .most = call->most};
    return wn__control_begin(&c, call->mine, call->bytes);
}

int32_t wn_dist_go(double seconds, int32_t *has_ended)
{
    WN_TRY(wn__enter());
    WN_TRY(wn__need(has_ended, "dist"));
    if (!(seconds >= 0 && seconds < 1e9)) return wn__fail(WN_VALUE, "dist: %g seconds to wait given", seconds);
    return wn__control_go(seconds, has_ended);
}

int32_t wn_dist_result(void *to, int64_t n)
{
    const void *all = wn__control_result();
    WN_TRY(wn__enter());
    WN_TRY(wn__check_bytes(to, 0, n, "dist: the bytes of all ranks"));
    if (all == NULL || n != wn__control_bytes())
        return wn__fail(WN_VALUE, "dist: %lld bytes asked for, the last call gathered %lld", (long long)n,
                        all == NULL ? 0 : (long long)wn__control_bytes());
    memcpy(to, all, (size_t)n);
    return WN_OK;
}

const char *wn_dist_late(void)
{
    static char text[256];
    wn__control_late(text, sizeof text);
    return text;
}
