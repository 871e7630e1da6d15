/* The account of every byte of every device, by kind. Together with arena.c the only caller of a device's
 * alloc and release, so nothing can be alive without standing here.
 *   live      what holds a value now (state, gradients born, held values); runs add their own on top
 *   reserved  what was taken from the device: live + idle arena + slabs, and a depot in host memory where that is the
 *             device's own; disk is an account of its own */
#ifndef WN_MEMORY_LEDGER_H
#define WN_MEMORY_LEDGER_H
#include <stdint.h>
#include "../device/device.h"
#include "../wane.h"

struct wn__ledger {
    int64_t kinds[WN_KIND_COUNT], live, reserved;
    int64_t peak, peak_reserved, peak_kinds[WN_KIND_COUNT];
    int64_t limit; /* of reserved; 0: none */
    int64_t disk, disk_limit;
    int64_t away; /* host memory beside the device's own */
};
struct wn__ledger *wn__ledger(int32_t device);
void wn__ledger_move(int32_t device, int32_t kind, int64_t bytes); /* + born, - gone */
void wn__ledger_peak(int32_t device, const int64_t *kinds);        /* what a run reached, with what is alive */

/* Takes and gives back device bytes; reserved follows. Fails under a limit, by the device, or by injection. */
int32_t wn__device_take(int32_t device, int64_t bytes, void **out);
void wn__device_give(int32_t device, void *p, int64_t bytes);

/* The numbers behind the last WN_OOM. */
int32_t wn__oom(int32_t device, int64_t bytes, int64_t least);
void wn__oom_get(struct wn_oom *out);

/* A held allocation: counted under its kind while it lives; shared by reference count. */
struct wn__buffer {
    int32_t refs, device, kind;
    int64_t bytes; /* padded */
    void *data;
};
int32_t wn__buffer_new(int32_t device, int32_t kind, int64_t bytes, struct wn__buffer **out);
void wn__buffer_unref(struct wn__buffer *b);

/* One arena a device: empty between runs, so growing frees first; never shrinks within a loop that fits. */
struct wn__arena {
    void *data;
    int64_t bytes;
};
struct wn__arena *wn__arena(int32_t device);
int32_t wn__arena_fit(int32_t device, int64_t bytes);
int32_t wn__arena_shrink(int32_t device, int64_t bytes); /* to exactly this much, if it is larger */

/* What values wait in outside the device's memory: one depot a place, like the arena empty between runs, so growing
 * closes first. bytes = 0: none is needed, *out is NULL. */
int32_t wn__depot_fit(int32_t device, int32_t place, int64_t bytes, int32_t most, struct wn_depot **out);
int64_t wn__depot_bytes(int32_t device, int32_t place);
void wn__depot_trim(int32_t device, int32_t place);
/* Seconds to move `bytes` out to a depot of that place and back, in pieces, once it has been written before. */
int32_t wn__depot_probe(int32_t device, int32_t place, int64_t bytes, double *seconds /* (WN_WAY_COUNT) */);
/* Whether host memory taken for this device counts as the device's. */
int32_t wn__depot_is_own(int32_t device);

/* Gradients of a parameter set share one slab. It outlives zero_grad as an idle reserve, until trimmed. */
struct wn__slab {
    int32_t refs, device;
    int32_t born;   /* cells whose gradient exists now */
    int32_t hidden; /* gradients that exist, whatever a rehearsal under way says: their memory stays */
    int64_t bytes;
    void *data;     /* NULL until first needed, and after a trim */
    int64_t stamp;  /* keys: met in this one, */
    int32_t local;  /* as this number */
    uint64_t maker; /* hash of the key of the program that laid it out; 0: not to be recognised */
    struct wn__slab *next;
};
int32_t wn__slab_new(int32_t device, int64_t bytes, struct wn__slab **out);
int32_t wn__slab_fill(struct wn__slab *s); /* takes its bytes, if it has none */
void wn__slab_unref(struct wn__slab *s);
void wn__slab_trim(int32_t device, struct wn__slab *const *keep, int32_t n); /* gives back idle ones but these */
#endif
