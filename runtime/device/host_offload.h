/* Offload buffers of the host: the default of a device whose memory the host addresses (device.h).
 *
 * Each way (out, in) has a thread of its own that takes moves from a queue, so starting a move neither waits nor takes
 * memory:
 *
 *     started   |  m0 | m1 | m2 | m3 | m4 |         queue of one way, as long as the run has moves
 *                  ^ended   ^begun       ^started   the thread moves m1 here; m2 to m4 wait
 *
 * Moves of one way end in the order in which they were started. One thread opens an offload buffer, and only that
 * thread calls the other functions with it. */
#ifndef WN_DEVICE_HOST_OFFLOAD_H
#define WN_DEVICE_HOST_OFFLOAD_H
#include "device.h"

/* The six functions of struct wn_device. Open: WN_OOM for memory or threads, WN_IO for files. Start: WN_INTERNAL for a
 * move outside of the buffer, or beyond `most`. Wait: WN_IO where the move, or one before it, failed. */
int32_t wn__host_offload_open(struct wn_device *d, int32_t place, int64_t bytes, int32_t most,
                              struct wn_offload_buffer **out);
void wn__host_offload_close(struct wn_device *d, struct wn_offload_buffer *buffer);
int32_t wn__host_offload_start(struct wn_device *d, struct wn_offload_buffer *buffer, const struct wn_move *m);
int32_t wn__host_offload_wait(struct wn_device *d, struct wn_offload_buffer *buffer, int32_t way, int64_t number);
int32_t wn__host_offload_left(struct wn_device *d, struct wn_offload_buffer *buffer, int64_t number);
void wn__host_offload_stop(struct wn_device *d, struct wn_offload_buffer *buffer);

/* Sets the folder of the files, "" until then. WN_VALUE for more than 511 letters. */
int32_t wn__host_offload_folder(const char *path);

/* Faults for specs. */
extern int32_t wn__host_offload_fault[WN_WAY_COUNT]; /* 1: the next move of the way fails; n: the nth; 0: none does */
extern int32_t wn__host_offload_full;                /* 1: a file finds no space */
extern int32_t wn__host_offload_delay_us;            /* microseconds that every move takes longer */
#endif
