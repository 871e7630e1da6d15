/* The contract of a device: a struct of functions. Everything that touches a device's bytes goes through
 * one, so nothing above may read a device address. Only memory/ calls alloc and release; only run/ launches.
 * A call returns WN_OK or a status with its message set. */
#ifndef WN_DEVICE_H
#define WN_DEVICE_H
#include <stdint.h>
#include "../../kernels/kernel.h"
#include "../ops/op.h"
#include "host_offload.h"

/* Whether oneDNN may compute products: where it should win, never, wherever it can. */
enum wn__onednn { WN_ONEDNN_AUTO, WN_ONEDNN_OFF, WN_ONEDNN_ON };

struct wn_device {
    const char *name;
    struct wn__target target;                                         /* what workspace rules are asked for */
    int32_t weight_layout;                                            /* of nn.Linear's weights (base/layout.h) */
    int32_t threads;                                                  /* part of a plan's key: sums may depend on it */
    const char *kernels;                                              /* which ones this processor gets, in words */
    int32_t real;                                                     /* 0: shapes and bytes only (meta) */
    int32_t hidden;                                                   /* not listed to users: for specs */
    int32_t (*alloc)(struct wn_device *d, int64_t bytes, void **out); /* 256-byte aligned, not cleared */
    void (*release)(struct wn_device *d, void *p, int64_t bytes);
    int32_t (*put)(struct wn_device *d, void *to, const void *host, int64_t bytes);
    int32_t (*get)(struct wn_device *d, void *host, const void *from, int64_t bytes);
    int32_t (*fill)(struct wn_device *d, void *to, int32_t byte, int64_t bytes);
    /* Picks the kernel when a plan is loaded; NULL with WN_UNSUPPORTED set when the device has none. */
    wn_kernel_fn (*kernel)(struct wn_device *d, const struct wn_desc *desc);
    /* Makes ready what a library computes, when a plan is loaded. bytes: the node's workspace by the rule; becomes
     * what is taken, at most that. *out: NULL when the kernel computes by itself. */
    int32_t (*prepare)(struct wn_device *d, const struct wn_desc *desc, int64_t *bytes, struct wn_made **out);
    int32_t (*launch)(struct wn_device *d, wn_kernel_fn fn, const struct wn_desc *desc, const struct wn_buffers *b);
    int32_t (*sync)(struct wn_device *d);
    /* Offload buffers (host_offload.h). open: takes everything at once, or nothing. start: returns at once; what was
     * computed before it is what moves out. wait: until the number-th move of that way since the last stop (from 0)
     * has ended. stop: what has not begun is given up, the rest has ended on return. */
    int32_t (*offload_buffer_open)(struct wn_device *d, int32_t place, int64_t bytes, int32_t most,
                                   struct wn_offload_buffer **out);
    void (*offload_buffer_close)(struct wn_device *d, struct wn_offload_buffer *buffer);
    int32_t (*offload_buffer_start)(struct wn_device *d, struct wn_offload_buffer *buffer, const struct wn_move *m);
    int32_t (*offload_buffer_wait)(struct wn_device *d, struct wn_offload_buffer *buffer, int32_t way, int64_t number);
    void (*offload_buffer_stop)(struct wn_device *d, struct wn_offload_buffer *buffer);
};

/* Makes the registry; idempotent. onednn: enum wn__onednn. */
int32_t wn__device_start(int32_t onednn);
int32_t wn__device_count(void); /* hidden ones too, after the listed ones */
struct wn_device *wn__device(int32_t id);
int32_t wn__device_listed(void);

/* What the registry is made of. */
extern struct wn_device wn__device_cpu, wn__device_meta, wn__device_mirror;
void wn__cpu_start(int32_t onednn);
const char *wn__cpu_onednn(void);   /* what of oneDNN is here and what it computes, one line */
int32_t wn__cpu_onednn_ready(void); /* how many products it has ready */
#endif
