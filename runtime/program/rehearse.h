/* Rehearsals: show each run point of a function what it would find after those before it, though nothing runs.
 *
 * A step may be several run points: zero_grad, backward, update. Each later one is another program when the ones before
 * it have run: gradients exist by then, and states have values. A rehearsal notes these changes in the cells without
 * moving a byte, and takes them back when it is left; entering it again brings them back. Ledger, slabs' memory and
 * versions are never touched.
 * Invariant: at most one rehearsal is under way; a cell's `rehearsed` is above 0 only while one is. */
#ifndef WN_PROGRAM_REHEARSE_H
#define WN_PROGRAM_REHEARSE_H
#include "program.h"

struct wn__rehearsal;

struct wn__rehearsal *wn__rehearsal_new(void); /* NULL: WN_OOM */
void wn__rehearsal_free(void *rehearsal);
/* Leaves the one under way and enters `r` (NULL: none). Cannot fail. Returns the one that was under way. */
struct wn__rehearsal *wn__rehearsal_enter(struct wn__rehearsal *r);
struct wn__rehearsal *wn__rehearsal_now(void);

/* Notes that a cell's gradient is dropped. Requires a rehearsal under way, as all functions below do. */
int32_t wn__rehearse_drop(struct wn_cell *c);
/* Notes what a run of `p` leaves: gradients that exist, states that have a value. Fails with WN_UNSUPPORTED when p
 * reads a result that an earlier program of the rehearsal computes, for then its real run reads a held value. */
int32_t wn__rehearse_run(struct wn_program *p);
/* Returns whether the rehearsal under way has given a state its first value. */
int32_t wn__rehearsed_value(const struct wn_cell *c);

/* Returns the bytes of a slab that a program counts as its own: all of it where the program allocates a gradient in
 * it, else the bytes of its gradients. */
int64_t wn__slab_share(const struct wn_program *p, const struct wn__slab *s);
/* Adds up the bytes that the programs of one step hold beside each of them: states, inputs, results and gradients
 * that the others own. Uses the history of the rehearsal under way, if there is one; without one `live` leaves out
 * gradients. */
int32_t wn__beside(struct wn_program *const *p, int32_t n, struct wn_beside *out /* (n) */);
#endif
