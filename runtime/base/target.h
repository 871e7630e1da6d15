/* Declares what a plan depends on of the machine that it is made for: numbers, and functions of an application's
 * description. They are pure and touch no device, so that a plan for a machine can be made on another one.
 *
 * A device carries its own target (runtime/device/device.h). The registry has the targets of machines that are not
 * here; a profile gives their rates. */
#ifndef WN_BASE_TARGET_H
#define WN_BASE_TARGET_H
#include <stdint.h>
#include "desc.h"

/* Places where values wait outside a device's memory, and the two ways between. RANKS is host memory too, in which
 * exchanges among ranks leave and arrive. */
enum wn_medium { WN_MEDIUM_HOST, WN_MEDIUM_DISK, WN_MEDIUM_RANKS, WN_MEDIUM_COUNT };
enum wn_way { WN_WAY_OUT, WN_WAY_IN, WN_WAY_COUNT };

/* Bits of `library` below. 1 << dtype: a library computes large products of the dtype; WN_LIBRARY_CONV << dtype: it
 * computes convolutions; WN_LIBRARY_TF32: what a library computes in f32 is rounded to tf32 (wane.tf32). */
enum { WN_LIBRARY_CONV = 1 << 8, WN_LIBRARY_TF32 = 1 << 16 };

struct wn__target {
    const char *name;          /* of the kind of machine: "cpu" */
    int32_t is_unified_memory; /* the host addresses the device's memory, and both share its bytes */
    int32_t has_link;        /* devices exchange among ranks without the host: part of a plan's key, as such an exchange
                                * needs no bytes of the host */
    int32_t is_asynchronous; /* launches return before their work has ended, so kernels take numbers from memory and
                                * report wrong data there (struct wn_buffers) */
    int32_t has_mixed_types; /* kernels of f32 read and write bf16 where plan/ir/casts.c says, so that casts are taken
                                * in */
    int32_t threads;         /* part of a plan's key: the bits of sums may depend on it */
    int32_t arch;            /* generation of the device, as 90 of sm_90, part of a plan's key; 0: it has none */
    int32_t weight_layout;   /* of nn.Linear's weights (layout.h) */
    int32_t library;         /* bits: what a library computes; part of a plan's key */
    struct wn_profile rates;
    /* Returns the bytes of scratch that the kernel of an application needs, 0 for none. A library may need less once
     * the plan is loaded: the device's function `prepare` then says how much. */
    int64_t (*workspace)(const struct wn__target *t, const struct wn_desc *d);
};

/* Returns whether what devices exchange among ranks goes through memory of the host. */
static inline int32_t wn__target_stages(const struct wn__target *t)
{
    return !t->is_unified_memory && !t->has_link;
}
#endif
