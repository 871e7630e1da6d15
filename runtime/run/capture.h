/* Captured graphs: stretches of a schedule whose kernels the device has captured once and starts as one.
 *
 *   instructions   K K K K K | READ | K K K K K K | OFFLOAD | K K K K | first effect: wait | K K K K K K K
 *   segments       [   0    ]        [    1     ]           [   2   ]                      [     3      ]
 *
 * A segment ends where the host looks or the device does more than kernels: at a READ, at a transfer and the wait for
 * it, and before the first change of a state, where the run waits for reports of wrong data. Transfers are therefore
 * never inside a graph.
 *
 * A graph has the addresses and the arguments of its capture. What a run can bind anew is kept out of them: numbers,
 * seeds and counters lie in device memory (wn__scalars_put); addresses are the key of a graph; an offset that was seen
 * to change cuts its instruction out of the segments. A segment is captured when its addresses are met the second
 * time, and MOST_KEYS sets of addresses are kept with the schedule, so that buffers that take turns have a graph each.
 *
 * A capture or a launch that fails leaves the schedule without graphs, with a warning: its kernels are launched one by
 * one then, with the same numbers. */
#ifndef WN_RUN_CAPTURE_H
#define WN_RUN_CAPTURE_H
#include "acquire.h"

extern int32_t wn__captures_on; /* 0: no graphs; 1, the default: where the device has them */

/* Launches the kernel of an instruction; run.c's. */
typedef int32_t (*wn__issue_fn)(struct wn_program *p, const struct wn__bases *b, const struct wn__instr *n);

/* The graphs of one run. Invariant: kernels of instructions before `started` that are in a segment have started. */
struct wn__captured {
    struct wn_program *p; /* NULL: this run has no graphs */
    const struct wn__bases *b;
    wn__issue_fn issue;
    int32_t key;     /* number of the set of addresses that this run has */
    int32_t segment; /* the first segment that was not met */
    int32_t started; /* a graph has started the kernels of the instructions before this one */
};

/* Makes what is kept with the schedule of p, where its device has graphs. WN_OOM. */
int32_t wn__captured_take(struct wn_program *p);
/* Gives back all graphs of a device, whose memory is the driver's; later runs capture them anew. Requires that no run
 * is under way. */
void wn__captured_trim(int32_t device);
/* Finds the graphs of a run's addresses. */
void wn__captured_start(struct wn__captured *g, struct wn_program *p, const struct wn__bases *b, wn__issue_fn issue);
/* Starts, where a segment begins at instruction i, all of its kernels, and sets g->started; captures them first where
 * it is time. WN_DEVICE: the device is lost. */
int32_t wn__captured_reach(struct wn__captured *g, int32_t i);
#endif
