/* The checked run (wn_debug "check"): finds writes outside of what an instruction may write, and trusts no plan. The
 * arena, with a guard above it, is filled with a canary. Before each instruction everything that the program owns is
 * copied aside; a byte that has changed after it, outside the instruction's own output, cells and workspace, is an
 * error that names the instruction. It is slow, and meant for specs.
 *
 * The replay check (wn_debug "replay"): a value that is computed again must have the bits that it had. It hashes the
 * values of nodes that are issued more than once and compares, so it can be on in any run. It changes no byte of the
 * program. */
#ifndef WN_RUN_CHECK_H
#define WN_RUN_CHECK_H
#include "run.h"

struct wn__check_span {
    char *start; /* address on the device */
    int64_t bytes;
    uint8_t *before, *now; /* (bytes) copies on the host: before the instruction, and now */
};
struct wn__check {
    int32_t on, poison, n;
    struct wn_program *p;
    char *arena;
    struct wn__buffer **result;
    struct wn__check_span *span; /* (n) the arena with its guard, slabs, results, cells */
    int32_t replay, met;         /* 1: the replay check is on; values computed again so far */
    uint64_t *first;             /* (ir->n) hash of each node's first value */
    uint8_t *issued, *room;      /* (ir->n) 1: the node has run; room for the largest value that is compared */
    uint8_t *inexact; /* (n_values of the schedule) 1: made of what a lossy action gave back, so not compared */
};

extern int32_t wn__check_on, wn__poison_on, wn__replay_on;
extern int32_t wn__replay_fault; /* flips a bit of the nth value that is computed again; 0: of none */
/* Returns the bytes kept free above the arena; 0 when the checked run is off. */
int64_t wn__check_guard(void);
/* Starts both checks of a run, where they are on. result: (n_results). WN_OOM. wn__check_stop must follow. */
int32_t wn__check_start(struct wn__check *c, struct wn_program *p, char *arena, struct wn__buffer **result);
/* Copies aside what the program owns, before an instruction. */
int32_t wn__check_before(struct wn__check *c);
/* Compares with the copies after instruction n. WN_ILLEGAL: it wrote outside what it may write. */
int32_t wn__check_after(struct wn__check *c, const struct wn__instr *n);
/* Starts the replay check, where it is on; wn__check_start calls it. */
int32_t wn__replay_start(struct wn__check *c);
/* Hashes the value that instruction n made, and compares it with the node's first value. */
int32_t wn__replay_after(struct wn__check *c, const struct wn__instr *n);
/* Fills freed bytes with poison, where that is on. */
int32_t wn__check_free(struct wn__check *c, char *start, int64_t bytes);
/* Ends both checks and returns the highest byte of the arena that was touched, + 1; 0 when the checked run is off. */
int64_t wn__check_stop(struct wn__check *c);
#endif
