/* Holds the offload buffers between runs, one for each device and medium, and keeps their accounts in the ledger: see
 * ledger.h. A run gets everything it needs before it starts: the bytes, on disk too, and the queues of moves. */
#include "../base/alloc.h"
#include "ledger.h"

#define MAX_DEVICES 8
static struct wn_offload_buffer *held[MAX_DEVICES][WN_MEDIUM_COUNT]; /* NULL: none is open */

int64_t wn__offload_buffer_bytes(int32_t device, int32_t medium)
{
    return held[device][medium] == NULL ? 0 : held[device][medium]->bytes;
}

/* Returns the number of the ledger that counts the bytes of a medium. */
static int64_t *account(int32_t device, int32_t medium)
{
    struct wn_memory *l = wn__ledger(device);
    return medium == WN_MEDIUM_DISK ? &l->disk : wn__device(device)->target.is_unified_memory ? &l->reserved : &l->away;
}

void wn__offload_buffer_trim(int32_t device, int32_t medium)
{
    struct wn_offload_buffer *offload_buffer = held[device][medium];
    if (offload_buffer == NULL) return;
    *account(device, medium) -= offload_buffer->bytes;
    held[device][medium] = NULL;
    wn__device(device)->offload_buffer_close(wn__device(device), offload_buffer);
}

/* Returns WN_OOM if a buffer of `bytes` passes the limit of disk, or that of the device whose own memory it is. */
static int32_t check_limit(int32_t device, int32_t medium, int64_t bytes)
{
    const struct wn_memory *l = wn__ledger(device);
    if (medium == WN_MEDIUM_DISK && l->disk_limit > 0 && bytes > l->disk_limit) {
        wn__fail(WN_OOM,
                 "out of disk: this program offloads %lld bytes to disk, the limit is %lld; raise "
                 "wane.memory.limit_disk or offload less",
                 (long long)bytes, (long long)l->disk_limit);
        return wn__oom(device, bytes, bytes);
    }
    if (medium != WN_MEDIUM_HOST || !wn__device(device)->target.is_unified_memory || l->limit == 0 ||
        l->reserved + bytes <= l->limit)
        return WN_OK;
    wn__fail(WN_OOM,
             "out of memory: %lld bytes of host memory for offloading would pass the limit of %lld (%lld are "
             "reserved)",
             (long long)bytes, (long long)l->limit, (long long)l->reserved);
    return wn__oom(device, bytes, l->reserved + bytes);
}

int32_t wn__offload_buffer_fit(int32_t device, int32_t medium, int64_t bytes, int32_t most,
                               struct wn_offload_buffer **out)
{
    struct wn_memory *l = wn__ledger(device);
    struct wn_device *d = wn__device(device);
    *out = held[device][medium];
    if (medium == WN_MEDIUM_DISK) WN_TRY(check_limit(device, medium, bytes));
    if (bytes == 0) *out = NULL;
    if (bytes == 0 || (*out != NULL && (*out)->bytes >= bytes && (*out)->most >= most)) return WN_OK;
    wn__offload_buffer_trim(device, medium);
    *out = NULL;
    if (medium == WN_MEDIUM_HOST) WN_TRY(check_limit(device, medium, bytes));
    if (wn__alloc_must_fail()) {
        wn__fail(WN_OOM, "out of memory: an offload buffer of %lld bytes for %s (made to fail)", (long long)bytes,
                 d->name);
        return wn__oom(device, bytes, l->reserved + bytes);
    }
    WN_TRY(d->offload_buffer_open(d, medium, bytes, most, &held[device][medium]));
    *account(device, medium) += bytes;
    if (l->reserved > l->peak_reserved) l->peak_reserved = l->reserved;
    *out = held[device][medium];
    return WN_OK;
}

#define PROBE_MOVES 16 /* pieces that wn__offload_buffer_probe moves each way */

/* Moves everything out and in, twice, and leaves the seconds of the second round. The first round writes space that was
 * never written, which costs the file system more; a training loop pays that in its first step alone. */
static int32_t probe_ways(struct wn_device *d, struct wn_offload_buffer *offload_buffer, char *buffer, int64_t bytes,
                          double *seconds)
{
    for (int32_t round = 0; round < 2; round++)
        for (int32_t way = 0; way < WN_WAY_COUNT; way++) {
            for (int32_t k = 0; k < PROBE_MOVES; k++) {
                int64_t at = bytes / PROBE_MOVES * k;
                const struct wn_move m = {.way = way, .at = at, .address = buffer + at, .bytes = bytes / PROBE_MOVES};
                WN_TRY(d->offload_buffer_start(d, offload_buffer, &m));
            }
            WN_TRY(d->offload_buffer_wait(d, offload_buffer, way, PROBE_MOVES - 1));
            d->offload_buffer_stop(d, offload_buffer);
            seconds[way] = offload_buffer->busy[way];
        }
    return WN_OK;
}

int32_t wn__offload_buffer_probe(int32_t device, int32_t medium, int64_t bytes, double *seconds)
{
    struct wn_device *d = wn__device(device);
    struct wn_offload_buffer *offload_buffer;
    void *buffer;
    bytes = bytes / (PROBE_MOVES * WN_PAGE) * (PROBE_MOVES * WN_PAGE);
    WN_TRY(wn__device_take(device, bytes, &buffer));
    int32_t code = d->fill(d, buffer, 1, bytes);
    if (code == WN_OK) code = wn__offload_buffer_fit(device, medium, bytes, PROBE_MOVES, &offload_buffer);
    if (code == WN_OK) {
        code = probe_ways(d, offload_buffer, buffer, bytes, seconds);
        d->offload_buffer_stop(d, offload_buffer);
        wn__offload_buffer_trim(device, medium);
    }
    wn__device_give(device, buffer, bytes);
    return code;
}
