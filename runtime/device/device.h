/* The contract of a device: a struct of facts and functions.
 *
 * Everything that touches a device's bytes goes through one, so nothing above reads a device address: only memory/
 * calls alloc and release, only run/ launches. A function returns WN_OK, or a status with its message set.
 *
 * A device does its work in the order in which it was asked for, and may do it after the call has returned: the host
 * waits in `sync`, and in `get`, which reads what all work before has made. A failure that the device finds later is
 * returned by the next call that waits. A device that is lost (`lost` is not NULL) refuses every call with the words of
 * `lost`, but for `release`, `graph_close` and `offload_buffer_close`.
 *
 * A slot that is marked optional may be NULL: the registry fills it with the default that its comment names before the
 * first call, so callers never ask. runtime/README.md says how to add a device. */
#ifndef WN_DEVICE_H
#define WN_DEVICE_H
#include <stdint.h>
#include "../../kernels/kernel.h"
#include "../base/message.h"

/* One move between a device's memory and an offload buffer. Both ends and the bytes are whole pages (WN_PAGE), but for
 * WN_MEDIUM_RANKS. */
struct wn_move {
    int32_t way;   /* WN_WAY_ */
    int64_t at;    /* offset in the offload buffer */
    void *address; /* in the device's memory */
    int64_t bytes;
    int32_t *ended; /* becomes 1 once a move out has ended, for a thread that looks; NULL: none does */
};

/* A medium outside of a device's memory, where values wait between forward and backward. A device may keep more beside
 * it. */
struct wn_offload_buffer {
    int32_t medium; /* WN_MEDIUM_ */
    int64_t bytes;
    int32_t most;              /* moves each way between two stops, at most */
    char *host;                /* where the host finds its bytes, of WN_MEDIUM_RANKS */
    double busy[WN_WAY_COUNT]; /* seconds of moving between the last two stops */
    double stall;              /* seconds for which the device waited for moves meanwhile; 0 where the host waits */
    char note[160];            /* why it is slower or larger than asked for, in words, or "" */
};

/* Says of a device what ranks compare before they exchange anything. */
struct wn_link_facts {
    char version[64]; /* "NCCL 2.21.5"; "": this process has none */
    char where[64];   /* tells this device from all others, of other machines too */
    char kind[320];   /* what bits may depend on: the device, its driver and libraries; "": there is none */
};                    /* WN_DIST_GPU bytes */

/* A job of ranks whose devices are joined. */
struct wn_link_job {
    char id[128]; /* that rank 0 made */
    int32_t rank, size;
    int32_t (*look)(double seconds); /* WN_OK while the others, who were waited for so long, are there */
    int32_t (*broke)(int32_t code);  /* tells the others the message that was just set; returns code */
};

/* The memory of a device, in bytes, as its driver counts. */
struct wn_room {
    int64_t total, free; /* that it has, and that nobody has taken, other processes included; 0: unknown */
    int64_t taken;       /* that this process has taken, in `segments` pieces; what was allocated is in them */
    int32_t segments;
};

struct wn_device {
    const char *name;                  /* what scripts call it: "cpu" */
    const struct wn__backend *backend; /* its kernels */
    struct wn__target target;          /* filled by the registry: of the backend */
    int32_t real;                      /* 0: shapes and bytes only, without memory behind addresses */
    uintptr_t bias;                    /* a bit in each address that hides the bytes from the host. A device that has
                                        * one is for specs, and not listed to users; 0: none */
    int32_t is_preferred;              /* 1: 'auto' takes it before the CPU */
    const char *absent;                /* the reason why it is not here, one line; NULL: it is here */
    const char *lost;                  /* the reason why nothing runs on it any more, one line; NULL: it is well */

    /* Looks for the device when the library starts: sets `absent`, or the slots and the facts above. Optional: it is
     * always here. */
    void (*open)(struct wn_device *d);
    /* Takes the device that the number-th process of a machine uses, one of those of this kind in turn, before anything
     * uses one. Optional: there is one. WN_UNSUPPORTED: it is of another kind than the first. */
    int32_t (*choose)(struct wn_device *d, int32_t number);

    /* ---- memory: required, but for those that say so ---- */
    /* Takes bytes > 0 of the device, aligned to 256 bytes and not cleared. WN_OOM. */
    int32_t (*alloc)(struct wn_device *d, int64_t bytes, void **out);
    /* Gives back what alloc took; bytes: as given to alloc. */
    void (*release)(struct wn_device *d, void *p, int64_t bytes);
    /* Tells that `count` allocations of `bytes` together come next, which live and die together, so that the device may
     * take one piece of memory for them. 0, 0: they have come, or will not. Optional: nothing. */
    void (*hint)(struct wn_device *d, int64_t bytes, int64_t count);
    /* Gives memory back that the device holds and no allocation is in. Optional: it holds none. */
    void (*trim)(struct wn_device *d);
    /* Fills *out. Optional: nothing is known. */
    void (*room)(struct wn_device *d, struct wn_room *out);
    /* Copy bytes >= 0 from the host, to the host, and within the device; fill sets each of them to `byte`. On return
     * from put the bytes of the host may change, on return from get they are there. from and to do not overlap. */
    int32_t (*put)(struct wn_device *d, void *to, const void *host, int64_t bytes);
    int32_t (*get)(struct wn_device *d, void *host, const void *from, int64_t bytes);
    int32_t (*copy)(struct wn_device *d, void *to, const void *from, int64_t bytes);
    int32_t (*fill)(struct wn_device *d, void *to, int32_t byte, int64_t bytes);
    /* Starts a copy of at most 64 bytes to the host, which are there after the next sync. Default: get. */
    int32_t (*read)(struct wn_device *d, void *host, const void *from, int64_t bytes);

    /* ---- kernels: optional ---- */
    /* Returns the kernel of an application when a plan is loaded, or NULL where the device has none. Default: `find` of
     * the backend. */
    wn_kernel_fn (*kernel)(struct wn_device *d, const struct wn_desc *desc);
    /* Makes an application ready when a plan is loaded. bytes: its workspace by the rule; becomes what is taken, at
     * most that. *out: what a library made of it, which lives as long as the process, or NULL. Default: NULL, and the
     * bytes stay as they are. */
    int32_t (*prepare)(struct wn_device *d, const struct wn_desc *desc, int64_t *bytes, const void **out);
    /* Starts a kernel; the device runs kernels in the order in which they were started. Default: calls the kernel with
     * the stream NULL. */
    int32_t (*launch)(struct wn_device *d, wn_kernel_fn fn, const struct wn_desc *desc, const struct wn_buffers *b);
    /* Waits until all work that was started has ended. WN_DEVICE: some of it failed. Default: returns WN_OK, for a
     * launch that ends with the kernel. */
    int32_t (*sync)(struct wn_device *d);

    /* ---- seconds of instructions: optional, all three or none. Default: the host's clock, after `sync` ---- */
    /* Makes ready to time n instructions of a run; seconds: (n) filled by timer_close, or earlier. A failure leaves
     * nothing to close. */
    int32_t (*timer_open)(struct wn_device *d, int32_t n, double *seconds);
    /* Marks the beginning of instruction i (end: 0) or its end (1) among the work that the device was asked for. */
    int32_t (*timer_mark)(struct wn_device *d, int32_t i, int32_t end);
    /* Ends the timing, after a `sync`: instructions with both marks have their seconds, those of others are left. */
    void (*timer_close)(struct wn_device *d);

    /* ---- graphs: optional, all four or none; NULL stays NULL, and every kernel is launched by itself ---- */
    /* Lets launches be recorded and not run, from here on until capture_end. Nothing but `launch` may be called
     * meanwhile. */
    int32_t (*capture_begin)(struct wn_device *d);
    /* Ends a capture and makes a graph of what was launched since. out NULL: a launch failed, what was captured is
     * dropped. On failure *out is NULL, and launches run again. */
    int32_t (*capture_end)(struct wn_device *d, void **out);
    /* Starts all kernels of a graph in their order, with the arguments and addresses of the capture. WN_DEVICE without
     * `lost`: none of them was started. */
    int32_t (*graph_launch)(struct wn_device *d, void *graph);
    /* Gives a graph back that no launch is under way of. */
    void (*graph_close)(struct wn_device *d, void *graph);

    /* ---- offload buffers: optional, all six or none ---- */
    /* Default: those of host_offload.h where target.is_unified_memory is set, else open refuses with WN_UNSUPPORTED.
     * Exchanges among ranks of a device without unified memory, and without a link of its own, go through a buffer of
     * WN_MEDIUM_RANKS. */

    /* Takes everything at once, or nothing: bytes at a medium (WN_MEDIUM_), and queues of `most` moves each way. */
    int32_t (*offload_buffer_open)(struct wn_device *d, int32_t medium, int64_t bytes, int32_t most,
                                   struct wn_offload_buffer **out);
    void (*offload_buffer_close)(struct wn_device *d, struct wn_offload_buffer *buffer);
    /* Starts a move and returns at once. A move out begins after the kernels that were started before it. */
    int32_t (*offload_buffer_start)(struct wn_device *d, struct wn_offload_buffer *buffer, const struct wn_move *m);
    /* Lets nothing that is launched later begin before the number-th move of that way since the last stop, counted from
     * 0, has ended: the device waits, or the host does. */
    int32_t (*offload_buffer_wait)(struct wn_device *d, struct wn_offload_buffer *buffer, int32_t way, int64_t number);
    /* Waits on the host until the number-th move out since the last stop has ended. The stall of the next wait for a
     * move in begins here. */
    int32_t (*offload_buffer_left)(struct wn_device *d, struct wn_offload_buffer *buffer, int64_t number);
    /* Gives up the moves that have not begun, and waits for the others. */
    void (*offload_buffer_stop)(struct wn_device *d, struct wn_offload_buffer *buffer);

    /* ---- a link of its own among ranks: optional, all seven or none; NULL stays NULL ---- */
    /* Used once `target.has_link` is set: exchanges among ranks go from device to device then. Every rank starts them
     * in one order. A failure is told to the others (wn_link_job), and every wait for the device ends with it. */

    /* Fills *out. */
    int32_t (*link_say)(struct wn_device *d, struct wn_link_facts *out);
    /* Makes the id of a job. */
    int32_t (*link_id)(struct wn_device *d, char *id);
    /* Joins a job, once in a process, and returns when all have. */
    int32_t (*link_open)(struct wn_device *d, const struct wn_link_job *job);
    /* Takes what at most `most` exchanges between two stops need. */
    int32_t (*link_take)(struct wn_device *d, int32_t most);
    /* Starts an exchange, n > 0 messages at addresses of the device, behind what was started before it. */
    int32_t (*link_start)(struct wn_device *d, const struct wn__message *list, int32_t n);
    /* Lets nothing that is launched later begin before the number-th exchange since the last stop has ended. */
    int32_t (*link_wait)(struct wn_device *d, int64_t number);
    /* Waits for all exchanges; returns the seconds for which the device waited for them since the last stop. */
    double (*link_stop)(struct wn_device *d);
};

/* Returns where the host finds the bytes behind an address of a device whose memory is the host's. */
static inline void *wn__device_bytes(const struct wn_device *d, const void *address)
{
    return (void *)((uintptr_t)address & ~d->bias);
}

/* ---- the registry (registry.c): the rows of device.def ---- */

/* Completes every device: its target, and the defaults of its slots. Returns NULL, or which choice a device cannot
 * follow, in one line. Where nobody called it, wn__device does, without a library. */
const char *wn__device_start(const struct wn__kernel_choice *choice);
/* Returns the number of devices. */
int32_t wn__device_count(void);
/* Returns the number of devices that users see; the others stand last. */
int32_t wn__device_listed(void);
/* Returns the device of an id, counted from 0; NULL: there is none. It may be absent. */
struct wn_device *wn__device(int32_t id);
/* Returns the id of the device that 'auto' means: the first that is preferred and here, else the CPU's, 0. */
int32_t wn__device_auto(void);
/* Returns WN_OK for a device that is here and well; else WN_DEVICE, with its words behind `what`. */
int32_t wn__device_usable(int32_t id, const char *what);
/* Sets the rates of the devices whose target has this name. */
void wn__device_rates(const char *target, const struct wn_profile *rates);
/* Returns the target of a kind of machine (TARGET in device.def), without a library; NULL: there is none. */
const struct wn__target *wn__device_target(int32_t kind);
/* Return what a device's backend says of itself. */
const char *wn__device_kernels(const struct wn_device *d);
const char *wn__device_processor(const struct wn_device *d);
/* Fills *out with tunable number i of a device's backend, from 0 on; returns 0 where there is none. */
int32_t wn__device_tunable(const struct wn_device *d, int32_t i, struct wn_tunable *out);
/* Sets it. WN_VALUE for a value outside its limits, and for a tunable that is none. */
int32_t wn__device_tune(const struct wn_device *d, int32_t i, int64_t value);
#endif
