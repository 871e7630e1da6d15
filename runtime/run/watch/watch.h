/* Watches: what looks at a run while it goes on. A run in production has none: each is switched on.
 *
 *   trace      timing.c    notes which instructions are executed
 *   anomaly    anomaly.c   the search for values that are not finite
 *   replay     check.c     a value that is computed again must have the bits that it had
 *   poison     check.c     freed bytes become NaNs
 *   check      check.c     the run that believes nobody: finds writes outside of what an instruction may write
 *   sync       timing.c    waits after every kernel, so that an error is at its own instruction
 *   timing     timing.c    seconds of instructions
 *
 * The list is an onion: watches are called before an instruction, and at a FREE, in this order, behind it and at the
 * end in the reverse, so that the last one is nearest to the instruction. */
#ifndef WN_RUN_WATCH_WATCH_H
#define WN_RUN_WATCH_WATCH_H
#include "../issue/issue.h"

/* The moments at which a watch looks: before an instruction starts, after it was started, and in the place of both at a
 * FREE. */
enum wn__moment { WN_MOMENT_BEFORE, WN_MOMENT_AFTER, WN_MOMENT_FREED, WN_MOMENT_COUNT };

/* A watch. Each function may be NULL; own: what `start` made of the run. */
struct wn__watch {
    const int32_t *is_on; /* the switch */
    int32_t is_apart;     /* 1: it looks at instructions one by one, so no graph may start several */
    /* Sets *own, of r->pool, where the run is to be watched. `stop` follows wherever *own is set. */
    int32_t (*start)(struct wn__run *r, void **own);
    int32_t (*at[WN_MOMENT_COUNT])(struct wn__run *r, void *own, const struct wn__instr *n);
    /* Ends the watch when all work has ended. */
    void (*stop)(struct wn__run *r, void *own);
};
extern const struct wn__watch wn__watch_trace, wn__watch_anomaly, wn__watch_replay, wn__watch_poison, wn__watch_check,
    wn__watch_sync, wn__watch_timing;

/* The watches of one run, none at first. */
struct wn__watches {
    struct {
        const struct wn__watch *is;
        void *own;
    } watch[7];
    int32_t n, is_apart; /* is_apart: some watch is */
};
/* Start the watches that are on, call each of them at an instruction, and end them. Whatever start returns, stop must
 * follow. */
int32_t wn__watches_start(struct wn__watches *w, struct wn__run *r);
int32_t wn__watches_call(struct wn__watches *w, struct wn__run *r, const struct wn__instr *n, int32_t moment);
void wn__watches_stop(struct wn__watches *w, struct wn__run *r);

/* The switches, by what they switch on. */
extern int32_t wn__trace_on, wn__replay_on, wn__poison_on, wn__check_on, wn__sync_on, wn__timing_on;
extern int32_t wn__anomaly_on;   /* enum wn__anomaly_mode */
extern int32_t wn__replay_fault; /* flips a bit of the nth value that is computed again; 0: of none */
enum wn__anomaly_mode { WN_ANOMALY_OFF, WN_ANOMALY_ANY, WN_ANOMALY_NAN };
extern struct wn_anomaly wn__anomaly_found; /* the last anomaly that was found */

/* Returns the bytes kept free above the arena; 0 when the checked run is off. */
int64_t wn__check_guard(void);
#endif
