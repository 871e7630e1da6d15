/* The checked run (wn_debug "check"): an account of addresses that believes nobody. The arena, with a guard
 * above it, is filled with a canary; before each instruction everything the program owns is copied aside, and
 * after it any byte that changed outside the instruction's own output, cells and workspace is an error that
 * names the instruction. Slow, meant for specs. */
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
};

extern int32_t wn__check_on, wn__poison_on;
int64_t wn__check_guard(void); /* bytes kept above the arena */
int32_t wn__check_start(struct wn__check *c, struct wn_program *p, char *arena, struct wn__buffer **result);
int32_t wn__check_before(struct wn__check *c);
int32_t wn__check_after(struct wn__check *c, const struct wn__instr *n);
int32_t wn__check_free(struct wn__check *c, char *start, int64_t bytes); /* poisons, when that is on */
int64_t wn__check_stop(struct wn__check *c); /* highest arena byte touched + 1; 0 when off */
#endif
