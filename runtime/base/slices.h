/* Long work in slices: it goes on for a while, then its caller has its turn, until it is done. The work runs on a thread of
 * its own, but never beside its caller: one of the two always waits for the other. So nothing in it needs a lock, and
 * what comes of it does not depend on where it is cut. */
#ifndef WN_BASE_SLICES_H
#define WN_BASE_SLICES_H
#include <stdint.h>

struct wn__slices;

/* Makes work that will call `work` once, from the first slice on. NULL: no thread or memory is to be had; call it plainly. */
struct wn__slices *wn__slices_make(int32_t (*work)(void *ctx), void *ctx);
/* Goes on for about so many seconds. Returns 1 when the work is over, with *code what it returned, else 0. */
int32_t wn__slices_go(struct wn__slices *s, double seconds, int32_t *code);
/* Makes the work give up at its next pause, waits for it, and frees what stands behind it. NULL is fine. */
void wn__slices_stop(struct wn__slices *s);

/* Called by work at places where it may be cut: gives its caller a turn when the slice is over. WN_INTERRUPT when it is to
 * give up, WN_OK else, and always where no slices are cut. */
int32_t wn__pause(void);
#endif
