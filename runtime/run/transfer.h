/* Transfers of a run: values to the offload buffers and back.
 *
 * All buffers are acquired before the first kernel, so that a full disk is met while nothing has changed. Then each
 * transfer is started and waited for where the schedule says, and nowhere else. */
#ifndef WN_RUN_TRANSFER_H
#define WN_RUN_TRANSFER_H
#include "run.h"

struct wn__transfer {
    struct wn_program *p;
    struct wn_offload_buffer *offload_buffer[WN_PLACE_COUNT];
    int64_t started[WN_PLACE_COUNT][WN_WAY_COUNT]; /* transfers started, by place and direction */
    int64_t *number; /* (n_moves) the number of each transfer among those of its place and direction */
    uint8_t *lane;   /* (n_moves) place * 2 + direction of each transfer */
    double stall;    /* seconds spent waiting */
};

/* Acquires the offload buffers of a schedule. Warns once where one is slower than it should be. */
int32_t wn__transfer_take(struct wn__transfer *t, struct wn_program *p);
/* Starts the transfer of instruction n; near: the value's address in the device's memory. */
int32_t wn__transfer_start(struct wn__transfer *t, const struct wn__instr *n, char *near);
/* Waits until the transfer that instruction n names has ended. */
int32_t wn__transfer_wait(struct wn__transfer *t, const struct wn__instr *n);
/* Stops every transfer, whatever happened before, and adds their bytes and seconds to p->measured. */
void wn__transfer_stop(struct wn__transfer *t);
/* Gives back what wn__transfer_take acquired. */
void wn__transfer_release(struct wn__transfer *t);
#endif
