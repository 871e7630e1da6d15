/* Moves of a run: values out to depots and back. Everything is taken before the first kernel - the depots, and numbers
 * of moves - so that a full disk is met when nothing has changed; then each move is started and waited for where the
 * schedule says, and nowhere else. */
#ifndef WN_RUN_TRANSFER_H
#define WN_RUN_TRANSFER_H
#include "run.h"

struct wn__transfer {
    struct wn_program *p;
    struct wn_depot *depot[WN_PLACE_COUNT];
    int64_t started[WN_PLACE_COUNT][WN_WAY_COUNT];
    int64_t *number; /* (n_moves) of its place and way */
    uint8_t *lane;   /* (n_moves) place * 2 + way */
    double stall;
};

/* Takes what the schedule needs; says once when a depot is not what it should be. */
int32_t wn__transfer_take(struct wn__transfer *t, struct wn_program *p);
/* near: address in the device's memory. at: in the depot. */
int32_t wn__transfer_start(struct wn__transfer *t, const struct wn__instr *n, char *near);
int32_t wn__transfer_wait(struct wn__transfer *t, const struct wn__instr *n);
/* Nothing is under way afterwards, whatever happened; what was moved and how long it took goes to p->measured. */
void wn__transfer_stop(struct wn__transfer *t);
void wn__transfer_release(struct wn__transfer *t);
#endif
