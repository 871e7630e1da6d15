/* The ledger: the account of every byte of every device, by kind; and what holds device memory between runs: buffers,
 * arenas, slabs and offload buffers. The files of runtime/memory/ are the only callers of a device's alloc and release,
 * so no byte of a device is taken without being counted here.
 *
 *   |<------------------------------ reserved: taken from the device -------------------------------->|
 *   | buffers: parameters, states,   | slabs: gradients that exist,     | arena: idle    | offload    |
 *   | inputs, results                | and the bytes of those that do   | between runs   | buffer, if |
 *   |                                | not exist                        |                | in its own |
 *   |<--------- live ----------------------------------->|                               | memory     |
 *
 * live: bytes that hold a value now; while a run lasts, the values of the run are counted on top (wn__ledger_peak).
 * Disk, and host memory that is not the device's own, have accounts of their own. */
#ifndef WN_MEMORY_LEDGER_H
#define WN_MEMORY_LEDGER_H
#include <stdint.h>
#include "../device/device.h"

/* Returns the account of a device of the registry, without what wn_memory_get asks of others when it is called.
 * Invariant: live is the sum of kinds; peak is the sum of peak_kinds; live <= peak and reserved <= peak_reserved since
 * the peaks were last reset. */
struct wn_memory *wn__ledger(int32_t device);
/* Adds bytes that hold a value from now on, or subtracts (bytes < 0) those that no longer do. Raises the peak. */
void wn__ledger_move(int32_t device, int32_t kind, int64_t bytes);
/* Raises the peak to `kinds` (WN_KIND_COUNT), the live bytes that a run reached, held values among them. */
void wn__ledger_peak(int32_t device, const int64_t *kinds);

/* Returns the bytes that all devices hold between runs, but for gradients, which come and go with those of parameters.
 */
int64_t wn__ledger_held(void);

/* Takes bytes of a device and counts them as reserved. WN_OOM: the limit forbids it, the device has none, or the
 * failure switch of alloc.h asks for a failure; *out is NULL then. */
int32_t wn__device_take(int32_t device, int64_t bytes, void **out);
/* Gives back what wn__device_take took, as many bytes as it took. Does nothing for NULL. */
void wn__device_give(int32_t device, void *p, int64_t bytes);

/* Notes the numbers of a failure in wn__oom_last and returns WN_OOM. bytes: that were asked for; least_limit: the least
 * limit, in bytes, under which the request would pass; 0: unknown. */
int32_t wn__oom(int32_t device, int64_t bytes, int64_t least_limit);
extern struct wn_oom wn__oom_last; /* the numbers of the last failure for want of memory */

/* A held allocation, shared by reference count and counted as live under its kind. Invariant: refs >= 1. */
struct wn__buffer {
    int32_t refs, device, kind; /* kind: WN_KIND_ */
    int64_t bytes;              /* a multiple of WN_GRANULE; 0: data is NULL */
    int64_t stamp;              /* of the last walk that met it */
    void *data;                 /* device address */
};
/* Makes a buffer of `bytes`, rounded up to WN_GRANULE, with one reference. WN_OOM as for wn__device_take. */
int32_t wn__buffer_new(int32_t device, int32_t kind, int64_t bytes, struct wn__buffer **out);
/* Drops a reference and frees the buffer with the last one. Does nothing for NULL. */
void wn__buffer_unref(struct wn__buffer *b);

/* The arena of a device: the bytes in which the values of a run live. It is empty between runs, and keeps its bytes for
 * the next one. */
struct wn__arena {
    void *data;    /* device address; NULL where bytes is 0 */
    int64_t bytes; /* taken */
};
struct wn__arena *wn__arena(int32_t device);
/* Makes the arena have at least `least` and at most `most` bytes. WN_OOM leaves an arena without bytes. */
int32_t wn__arena_resize(int32_t device, int64_t least, int64_t most);

/* Makes the offload buffer of a medium (WN_MEDIUM_) have at least `bytes`, and queues for `most` moves each way. The
 * buffer is empty between runs, so a larger one is opened after the old one is closed. bytes = 0: *out is NULL. One in
 * host memory that is the device's own (is_unified_memory) counts as reserved. WN_OOM: the limit of the device or of
 * disk forbids it, or the medium has no room. */
int32_t wn__offload_buffer_fit(int32_t device, int32_t medium, int64_t bytes, int32_t most,
                               struct wn_offload_buffer **out);
/* Returns the bytes of the offload buffer of a medium, 0 if there is none. */
int64_t wn__offload_buffer_bytes(int32_t device, int32_t medium);
/* Closes the offload buffer of a medium, if there is one. */
void wn__offload_buffer_trim(int32_t device, int32_t medium);
/* Measures the seconds of moving `bytes` out to a medium and back in, in pieces, after they were written there once.
 * seconds: (WN_WAY_COUNT). */
int32_t wn__offload_buffer_probe(int32_t device, int32_t medium, int64_t bytes, double *seconds);

/* A slab: the bytes of all gradients of one set of parameters, each at a fixed offset. It keeps its bytes when its
 * gradients are cleared, until it is trimmed. Invariant: no trim empties a slab while allocated > 0 or hidden > 0. */
struct wn__slab {
    int32_t refs, device;
    int32_t allocated; /* gradients that exist now */
    int32_t hidden;    /* gradients that exist although the planned step under way counts them as cleared */
    int64_t bytes;
    void *data;            /* device address; NULL until the first run that needs it, and after a trim */
    int64_t stamp;         /* of the last key, or walk, that met this slab */
    int32_t local;         /* the slab's number in the key of that stamp */
    uint64_t maker;        /* hash of the key of the program that laid the slab out; 0: programs do not recognise it */
    struct wn__slab *next; /* in the list of all slabs */
};
/* Makes a slab, with one reference, or takes the spare one where it has as many bytes. */
int32_t wn__slab_get(int32_t device, int64_t bytes, struct wn__slab **out);
/* Gives up a reference and keeps the slab at hand for the next program that makes one, so that measuring in a loop does
 * not fault pages anew. */
void wn__slab_spare(struct wn__slab *s);
/* Takes the slab's bytes unless it has them. WN_OOM as for wn__device_take. */
int32_t wn__slab_fill(struct wn__slab *s);
/* Drops a reference and frees the slab with the last one. Does nothing for NULL. */
void wn__slab_unref(struct wn__slab *s);
/* Gives back the bytes of the device's slabs in which no gradient exists, but for the n slabs of `keep`. */
void wn__slab_trim(int32_t device, struct wn__slab *const *keep, int32_t n);
#endif
