/* The checked run (wn_debug "check"): an account of addresses that believes nobody. The arena, with a guard
 * above it, is filled with a canary; before each instruction everything the program owns is copied aside, and
 * after it any byte that changed outside the instruction's own output, cells and workspace is an error that
 * names the instruction. Slow, meant for specs.
 *
 * The replay check (wn_debug "replay"): what is computed again must be what it was, bit for bit. It hashes the values
 * of nodes that are issued more than once and compares, so it can be on in any run; it touches no byte of the program. */
#ifndef WN_RUN_CHECK_H
#define WN_RUN_CHECK_H
#include "run.h"

struct wn__check_span {
    char *start; /* device address */
    int64_t bytes;
    uint8_t *before, *now; /* host copies */
};
struct wn__check {
    int32_t on, poison, n;
    struct wn_program *p;
    char *arena;
    struct wn__buffer **result;
    struct wn__check_span *span; /* arena with its guard, slabs, results, cells */
    int32_t replay, met;         /* values computed again so far */
    uint64_t *first;             /* (ir->n) hash of a node's first value */
    uint8_t *issued, *room;      /* (ir->n); bytes of the largest value compared */
    uint8_t *inexact;            /* (schedule->n_values) made of what a lossy action gave back: not compared */
};

extern int32_t wn__check_on, wn__poison_on, wn__replay_on;
extern int32_t wn__replay_fault; /* flip a bit of the nth value computed again; 0: none */
int64_t wn__check_guard(void);   /* bytes kept above the arena */
int32_t wn__check_start(struct wn__check *c, struct wn_program *p, char *arena, struct wn__buffer **result);
int32_t wn__check_before(struct wn__check *c);
int32_t wn__check_after(struct wn__check *c, const struct wn__instr *n);
int32_t wn__replay_start(struct wn__check *c);
int32_t wn__replay_after(struct wn__check *c, const struct wn__instr *n);
int32_t wn__check_free(struct wn__check *c, char *start, int64_t bytes); /* poisons, when that is on */
int64_t wn__check_stop(struct wn__check *c); /* highest arena byte touched + 1; 0 when off */
#endif
