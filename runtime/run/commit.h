/* The end of a run: what it made is kept, or what it changed is taken back. */
#ifndef WN_RUN_COMMIT_H
#define WN_RUN_COMMIT_H
#include "acquire.h"

/* Keeps what a run made: results become values, cells get new versions, roots are spent. Cannot fail. */
void wn__commit(struct wn_program *p, struct wn__bases *b);
/* Rolls back effects after a failure with `code`. Gradients that were added to are dropped, so that the next backward
 * makes them anew; other cells are invalid until they are written. Cells that had their first value from this run begin
 * again, or keep it unwritten. */
void wn__effects_roll_back(struct wn_program *p, int32_t code);
#endif
