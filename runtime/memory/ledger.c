/* Keeps the account of each device, the held buffers and the arenas: see ledger.h. The account changes at the moment
 * when bytes are taken or given back, and is never reconstructed. A failure leaves it as it was. */
#include "ledger.h"
#include <string.h>
#include "../base/alloc.h"

#define MAX_DEVICES 8
static struct wn_memory ledgers[MAX_DEVICES];
static struct wn__arena arenas[MAX_DEVICES];
struct wn_oom wn__oom_last;

struct wn_memory *wn__ledger(int32_t device)
{
    return &ledgers[device];
}

void wn__ledger_move(int32_t device, int32_t kind, int64_t bytes)
{
    struct wn_memory *l = &ledgers[device];
    l->kinds[kind] += bytes;
    l->live += bytes;
    wn__ledger_peak(device, l->kinds);
}

void wn__ledger_peak(int32_t device, const int64_t *kinds)
{
    struct wn_memory *l = &ledgers[device];
    int64_t live = 0;
    for (int32_t k = 0; k < WN_KIND_COUNT; k++) live += kinds[k];
    if (live <= l->peak) return;
    l->peak = live;
    memcpy(l->peak_kinds, kinds, sizeof l->peak_kinds);
}

int64_t wn__ledger_held(void)
{
    int64_t bytes = 0;
    for (int32_t d = 0; d < MAX_DEVICES; d++) bytes += ledgers[d].live - ledgers[d].kinds[WN_KIND_GRADIENT];
    return bytes;
}

int32_t wn__oom(int32_t device, int64_t bytes, int64_t least_limit)
{
    const struct wn_memory *l = &ledgers[device];
    wn__oom_last = (struct wn_oom){.bytes = bytes,
                                   .live = l->live,
                                   .peak = l->peak,
                                   .reserved = l->reserved,
                                   .limit = l->limit,
                                   .least = least_limit};
    return WN_OOM;
}

int32_t wn__device_take(int32_t device, int64_t bytes, void **out)
{
    struct wn_memory *l = &ledgers[device];
    struct wn_device *d = wn__device(device);
    *out = NULL;
    if (bytes == 0) return WN_OK;
    if (l->limit > 0 && l->reserved + bytes > l->limit) {
        wn__fail(WN_OOM,
                 "out of memory: %lld bytes on %s would pass the limit of %lld (%lld are reserved); "
                 "free values, raise wane.memory.limit or recompute more",
                 (long long)bytes, d->name, (long long)l->limit, (long long)l->reserved);
        return wn__oom(device, bytes, l->reserved + bytes);
    }
    if (wn__alloc_must_fail()) {
        wn__fail(WN_OOM, "out of memory: %lld bytes on %s (made to fail)", (long long)bytes, d->name);
        return wn__oom(device, bytes, l->reserved + bytes);
    }
    int32_t code = d->alloc(d, bytes, out);
    if (code == WN_OOM) wn__oom(device, bytes, l->reserved + bytes);
    if (code != WN_OK) return code;
    l->reserved += bytes;
    if (l->reserved > l->peak_reserved) l->peak_reserved = l->reserved;
    return WN_OK;
}

void wn__device_give(int32_t device, void *p, int64_t bytes)
{
    if (p == NULL) return;
    ledgers[device].reserved -= bytes;
    wn__device(device)->release(wn__device(device), p, bytes);
}

int32_t wn__buffer_new(int32_t device, int32_t kind, int64_t bytes, struct wn__buffer **out)
{
    struct wn__buffer *b = wn__alloc(sizeof *b);
    if (b == NULL) return wn__oom(device, bytes, 0);
    b->refs = 1;
    b->device = device;
    b->kind = kind;
    b->bytes = wn__padded(bytes);
    int32_t code = wn__device_take(device, b->bytes, &b->data);
    if (code != WN_OK) {
        wn__free(b);
        return code;
    }
    wn__ledger_move(device, kind, b->bytes);
    *out = b;
    return WN_OK;
}

void wn__buffer_unref(struct wn__buffer *b)
{
    if (b == NULL || --b->refs > 0) return;
    wn__ledger_move(b->device, b->kind, -b->bytes);
    wn__device_give(b->device, b->data, b->bytes);
    wn__free(b);
}

struct wn__arena *wn__arena(int32_t device)
{
    return &arenas[device];
}

/* Frees the arena before it takes the new one, as the arena is empty between runs: at no time both are taken. After a
 * failure the arena has no bytes. */
int32_t wn__arena_resize(int32_t device, int64_t least, int64_t most)
{
    struct wn__arena *a = &arenas[device];
    int64_t bytes = wn_min(wn_max(a->bytes, least), most);
    if (bytes == a->bytes) return WN_OK;
    wn__device_give(device, a->data, a->bytes);
    a->data = NULL;
    a->bytes = 0;
    WN_TRY(wn__device_take(device, bytes, &a->data));
    a->bytes = bytes;
    return WN_OK;
}
