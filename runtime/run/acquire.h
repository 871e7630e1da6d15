/* Acquires everything that a run takes before its first kernel, and says where each space of the schedule begins in
 * memory this time.
 *
 *   arena            slab k             cell k               bound value k        result k
 *   | value | work   | gradient |       | parameter |        | input |            | loss |
 *   bases->arena     p->slab[k]->data   p->cell[k]'s data    p->bound[k]->held    bases->result[k] */
#ifndef WN_RUN_ACQUIRE_H
#define WN_RUN_ACQUIRE_H
#include "../program/program.h"
#include "transfer.h"

/* Invariant: between wn__acquire and wn__acquired_release, every allocation of the schedule has its bytes. */
struct wn__bases {
    struct wn_program *p;
    char *arena;
    struct wn__buffer **result; /* (n_results of the IR) NULL where a result is a number, or was kept */
    double *number;   /* (n_results of the IR) the elements of results that are numbers, as the device has them */
    uint64_t *report; /* (n_reports of the schedule) room for the reports of wrong data */
    const void **in;  /* (most_in of the IR) room for the addresses of an instruction's inputs */
    struct wn__transfer transfer;
};

/* Takes every byte of a run: first values of states, results, offload buffers, the arena. On failure
 * everything is given back and states are as they were. WN_OOM: the limit or the memory is too small; WN_STALE:
 * a value or a state that the program reads is gone. */
int32_t wn__acquire(struct wn_program *p, struct wn__bases *out);
/* Gives back what was taken and not kept, and rolls back first values that were not committed. */
void wn__acquired_release(struct wn__bases *b);
/* Returns the address of an allocation of the schedule; NULL on a device without bytes. */
char *wn__allocation_address(const struct wn__bases *b, const struct wn__allocation *t);
/* Returns the address of value number `value` of the schedule. */
char *wn__value_address(const struct wn__bases *b, int32_t value);
#endif
