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
/* Takes back the program that was added last to the sequence under way, if there is one: its run failed, so the next
 * one is in its place. */
void wn__sequence_take_back(void);
/* Begins the planned sequence under way once more, with the gradients that it leaves, where its step would be another
 * then: where it computes a gradient that it does not drop before its first program, and that exists now and did not
 * when it began, or the other way. States that had no value have none again. Returns 1 if it did. Cannot fail. */
int32_t wn__sequence_repeat(void);
/* Copies the states that a program is about to write, of a sequence that is undone later. All of them have a value. */
int32_t wn__sequence_save(const struct wn_program *p);
/* Puts back what the programs of a run sequence wrote, and drops the gradients that they made. */
int32_t wn__sequence_undo(struct wn__sequence *s);
/* Sets that a sequence is before its program `at`, from 0; -1: after all of them, as it is unless this is called. A
 * planned one that is under way, or is entered, leaves cells as that program is opened with them. Cannot fail. */
void wn__sequence_seek(struct wn__sequence *s, int32_t at);
/* Makes the sequence under way answer made, makes, exists and has_memory as if it were there, until it is left or
 * wn__sequence_seek is called. Changes no cell. */
void wn__sequence_look(int32_t at);
/* Returns the IR of a program of the planned sequence under way, counted, whose key is the same but for the policy;
 * NULL: there is none. */
const struct wn__ir *wn__sequence_ir(const struct wn__bytes *key);
/* Return the number of the program of the sequence under way, from 1, that gives a state its first value, or that makes
 * data which last; 0: none. */
int32_t wn__sequence_maker(const struct wn_cell *c);
int32_t wn__sequence_maker_of_data(const struct wn_node *n);
/* Return whether program `maker` of the planned sequence under way has run (made), whether it is yet to run (makes),
 * whether a gradient exists where the sequence under way is (exists), and whether a slab has memory there when the step
 * runs the first time (has_memory). */
int32_t wn__sequence_made(int32_t maker);
int32_t wn__sequence_makes(int32_t maker);
int32_t wn__sequence_exists(const struct wn_cell *g);
int32_t wn__sequence_has_memory(const struct wn__slab *s);

/* ---- parts.c --------------------------------------------------------------------------------------------------- */

/* Returns the bytes of a slab that a program counts as its own: all of it where the program allocates a gradient in
 * it, else the bytes of its gradients. */
int64_t wn__slab_share(const struct wn_program *p, const struct wn__slab *s);
/* Checks that n programs can be the parts of one step. WN_VALUE: several, and no sequence is under way; WN_UNSUPPORTED:
 * they are on two devices. */
int32_t wn__parts_check(struct wn_program *const *p, int32_t n);
/* Adds up the bytes that the programs of one step hold beside program i: states, inputs, results and gradients that the
 * others own. */
void wn__part(struct wn_program *const *p, int32_t n, int32_t i, struct wn_part *out);
/* Fills `same` and `held` of all parts, when all else is filled. */
void wn__parts_end(struct wn_program *const *p, int32_t n, struct wn_part *out /* (n) */);
#endif
