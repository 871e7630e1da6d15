/* Sequences: the run points of one step of a script, in order, and what each leaves for those after it.
 *
 * A step may be several run points: zero_grad, backward, update. Each is a program, and holds bytes beside the others:
 * gradients, states, inputs, results. A sequence notes when each begins and ends to exist, in one of two ways:
 *   planned  nothing runs. The cells are changed as the programs would change them, so that each program is opened as
 *            it would be, and changed back when the sequence is left; entering it again brings the changes back.
 *            Ledger, slabs' memory and versions are never touched.
 *   run      the programs run, and the sequence notes what they do. wn__sequence_undo puts back what they wrote.
 * Invariant: at most one sequence is under way; a cell's `noted` is above 0 only while one is. */
#ifndef WN_PROGRAM_SEQUENCE_H
#define WN_PROGRAM_SEQUENCE_H
#include "program.h"

struct wn__sequence;

struct wn__sequence *wn__sequence_new(int32_t mode /* WN_SEQUENCE_ */); /* NULL: WN_OOM */
void wn__sequence_free(void *sequence);
/* Leaves the one under way and enters `s` (NULL: none). Cannot fail. */
void wn__sequence_enter(struct wn__sequence *s);
struct wn__sequence *wn__sequence_now(void);
/* Returns whether a planned sequence is under way: nothing runs then. */
int32_t wn__sequence_is_planned(void);

/* Drops a cell's gradient, for real unless the sequence is planned. Requires a sequence under way. */
int32_t wn__sequence_drop(struct wn_cell *c);
/* Notes what a run of `p` leaves: gradients that exist, states that have a value. Does nothing without a sequence under
 * way. Fails with WN_UNSUPPORTED when the sequence is planned and p reads a result that an earlier program of it
 * computes, for then its real run reads a held value. */
int32_t wn__sequence_add(struct wn_program *p);
/* Copies the states that a program is about to write, of a sequence that is undone later. All of them have a value. */
int32_t wn__sequence_save(const struct wn_program *p);
/* Puts back what the programs of a run sequence wrote, and drops the gradients that they made. */
int32_t wn__sequence_undo(struct wn__sequence *s);
/* Returns whether the planned sequence under way has given a state its first value. */
int32_t wn__sequence_made(const struct wn_cell *c);

/* Returns the bytes of a slab that a program counts as its own: all of it where the program allocates a gradient in
 * it, else the bytes of its gradients. */
int64_t wn__slab_share(const struct wn_program *p, const struct wn__slab *s);
/* Adds up the bytes that the programs of one step hold beside each of them: states, inputs, results and gradients
 * that the others own, by the history of the sequence under way. WN_VALUE: none is. */
int32_t wn__beside(struct wn_program *const *p, int32_t n, struct wn_beside *out /* (n) */);
/* Adds up the bytes that the programs' states, gradients, inputs and results take now, each counted once. */
int32_t wn__held_now(struct wn_program *const *p, int32_t n, int64_t *kinds /* (WN_KIND_COUNT) */);
#endif
