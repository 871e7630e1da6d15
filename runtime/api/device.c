/* The API of devices: their names, the ledgers of their memory, and the speed of moves. Ids are those of
 * runtime/device/device.def on every machine; a device that is not here says why. */
#include <string.h>
#include "../device/cuda.h"
#include "../run/issue/issue.h"
#include "api.h"

int32_t wn_device_count(void)
{
    return wn__device_listed();
}

const char *wn_device_name(int32_t device)
{
    return wn__device(device) == NULL ? NULL : wn__device(device)->name;
}

const char *wn_device_absent(int32_t device)
{
    return wn__device(device) == NULL ? "there is no such device" : wn__device(device)->absent;
}

int32_t wn_device_auto(void)
{
    return wn__device_auto();
}

const char *wn_cuda(void)
{
    return wn__cuda_text();
}

const char *wn_kind_name(int32_t kind)
{
    static const char *const names[] = {"parameter", "gradient",   "optimizer", "buffer", "input",
                                        "result",    "activation", "workspace", "host"};
    return kind >= 0 && kind < WN_KIND_COUNT ? names[kind] : NULL;
}

int32_t wn_memory_get(int32_t device, struct wn_memory *out)
{
    WN_TRY(wn__check_device(device, "device"));
    WN_TRY(wn__need(out, "memory"));
    wn__handle_drain();
    struct wn_room room;
    wn__device(device)->room(wn__device(device), &room);
    *out = *wn__ledger(device);
    out->host = wn__alloc_host_bytes();
    out->total = room.total;
    out->free = room.free;
    out->taken = room.taken;
    out->segments = room.segments;
    return WN_OK;
}

double wn_memory_held(void)
{
    if (wn__thread_check() != WN_OK) return 0;
    wn__handle_drain();
    return (double)wn__ledger_held();
}

int32_t wn_memory_limit(int32_t device, int32_t is_disk, int64_t bytes)
{
    WN_TRY(wn__check_device(device, "device"));
    if (bytes < 0)
        return wn__fail(WN_VALUE, "memory limit: %lld bytes given; it takes 0 (none) or more", (long long)bytes);
    *(is_disk ? &wn__ledger(device)->disk_limit : &wn__ledger(device)->limit) = bytes;
    return WN_OK;
}

int32_t wn_memory_reset_peak(int32_t device)
{
    WN_TRY(wn__check_device(device, "device"));
    wn__handle_drain();
    struct wn_memory *l = wn__ledger(device);
    l->peak = l->live;
    l->peak_reserved = l->reserved;
    memcpy(l->peak_kinds, l->kinds, sizeof l->peak_kinds);
    return WN_OK;
}

int32_t wn_memory_trim(int32_t device)
{
    WN_TRY(wn__check_device(device, "device"));
    wn__handle_drain();
    wn__slab_trim(device, NULL, 0);
    for (int32_t medium = 0; medium < WN_MEDIUM_COUNT; medium++) wn__offload_buffer_trim(device, medium);
    WN_TRY(wn__arena_resize(device, 0, 0));
    wn__captured_trim(device);
    wn__device(device)->trim(wn__device(device));
    return WN_OK;
}

int32_t wn_probe(int32_t device, int32_t medium, int64_t bytes, double *out, double *in)
{
    double seconds[WN_WAY_COUNT] = {0};
    WN_TRY(wn__check_device(device, "device"));
    WN_TRY(wn__need(out, "probe"));
    WN_TRY(wn__need(in, "probe"));
    if (medium < 0 || medium >= WN_MEDIUM_COUNT || bytes < (1 << 20))
        return wn__fail(WN_VALUE, "probe: medium 0 or 1 and at least 1 MiB, got %d and %lld", medium, (long long)bytes);
    WN_TRY(wn__offload_buffer_probe(device, medium, bytes, seconds));
    *out = seconds[WN_WAY_OUT];
    *in = seconds[WN_WAY_IN];
    return WN_OK;
}

/* Returns the GPU whose products or convolutions of f32 a library computes by tf32 if it may; NULL: there is none. */
static struct wn_device *find_tf32(void)
{
    const int32_t either = (1 + WN_LIBRARY_CONV) << WN_F32;
    for (int32_t i = 0; i < wn__device_count(); i++) {
        struct wn_device *d = wn__device(i);
        if (d->absent == NULL && d->target.arch >= 80 && (d->target.library & either) != 0) return d;
    }
    return NULL;
}

int32_t wn_tf32(int32_t on)
{
    WN_TRY_ID(wn__enter());
    struct wn_device *d = find_tf32();
    int32_t before = d != NULL && (d->target.library & WN_LIBRARY_TF32) != 0;
    if (on < 0 || (d == NULL && !on)) return before;
    if (d == NULL)
        return -wn__fail(WN_UNSUPPORTED, "tf32: it needs a GPU of sm_80 or later and cuBLASLt or cuDNN; found: %s",
                         wn_cuda());
    d->target.library = (d->target.library & ~WN_LIBRARY_TF32) | (on ? WN_LIBRARY_TF32 : 0);
    return before;
}
