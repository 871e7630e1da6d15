/* Offload buffers: places outside a device's memory where values wait between forward and backward. A device brings
 * its own functions (device.h); those here are for devices whose memory the host can address, and serve the CPU.
 *
 * An offload buffer is opened whole - all its bytes, and a queue for as many moves each way as a run may start - and
 * each way has a thread of its own, so starting a move neither waits nor allocates. Moves of one way end in the
 * order they were started; every move starts on and takes whole pages (WN_PAGE), on both sides. Only the thread that
 * opened an offload buffer calls these. */
#ifndef WN_DEVICE_HOST_OFFLOAD_H
#define WN_DEVICE_HOST_OFFLOAD_H
#include "../../kernels/kernel.h"

struct wn_move {
    int32_t way;
    int64_t at; /* in the offload buffer */
    void *address;
    int64_t bytes;
};

struct wn_offload_buffer {
    int32_t place;
    int64_t bytes;
    int32_t most;                /* moves each way between two stops */
    double busy[WN_WAY_COUNT];   /* seconds of moving since the last stop; read when stopped */
    int64_t moved[WN_WAY_COUNT]; /* bytes, likewise */
    char note[160];              /* why it is not what it should be (no O_DIRECT), or "" */
};

struct wn_device;
int32_t wn__host_offload_open(struct wn_device *d, int32_t place, int64_t bytes, int32_t most,
                              struct wn_offload_buffer **out);
void wn__host_offload_close(struct wn_device *d, struct wn_offload_buffer *buffer);
int32_t wn__host_offload_start(struct wn_device *d, struct wn_offload_buffer *buffer, const struct wn_move *m);
int32_t wn__host_offload_wait(struct wn_device *d, struct wn_offload_buffer *buffer, int32_t way, int64_t number);
void wn__host_offload_stop(struct wn_device *d, struct wn_offload_buffer *buffer);

/* The folder of files; "" until it is set. At most 511 letters. */
int32_t wn__host_offload_folder(const char *path);
/* Specs: the nth move of a way from now fails (0: none does), opening fails, each move takes so much longer. */
extern int32_t wn__host_offload_fault[WN_WAY_COUNT], wn__host_offload_full, wn__host_offload_delay_us;
#endif
