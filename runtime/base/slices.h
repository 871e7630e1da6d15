/* Slices: long work that its caller resumes for some seconds at a time, until it is done (a coroutine). The work runs
 * on a thread of its own, but never while its caller runs: one of the two always waits for the other. So the work needs
 * no lock, and its outcome does not depend on how long its slices are. */
#ifndef WN_BASE_SLICES_H
#define WN_BASE_SLICES_H
#include <stdint.h>

struct wn__slices; /* one piece of work and its thread */

/* Starts a thread that calls work(ctx) once, in the slices that wn__slices_go grants. NULL: no thread or no memory is
 * available; the caller may call work(ctx) itself. */
struct wn__slices *wn__slices_make(int32_t (*work)(void *ctx), void *ctx);
/* Resumes the work for about `seconds`. Returns 1 when the work is over, with *code what it returned and its message
 * set, else 0 with *code = WN_OK. */
int32_t wn__slices_go(struct wn__slices *s, double seconds, int32_t *code);
/* Makes the work fail at its next pause, waits until it has returned, and frees the slices. Does nothing for NULL. */
void wn__slices_stop(struct wn__slices *s);

/* Lets the caller of wn__slices_go continue if the slice is over; work calls it wherever it may be interrupted. Returns
 * WN_INTERRUPT if the work is to give up, else WN_OK. Returns WN_OK at once on a thread that runs no slices. */
int32_t wn__pause(void);
#endif
