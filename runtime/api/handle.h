/* Handles: the numbers by which a script holds things, and the one thread that may use them. Only the API knows
 * handles; the rooms below take pointers. */
#ifndef WN_API_HANDLE_H
#define WN_API_HANDLE_H
#include "../graph/graph.h"

/* The kinds of handles, by what they are of. */
enum wn__handle_kind {
    WN_HANDLE_FREE, /* nothing: it was released, or never made */
    WN_HANDLE_VALUE,
    WN_HANDLE_CELL,
    WN_HANDLE_HYPER,
    WN_HANDLE_PROGRAM,
    WN_HANDLE_FILE,
    WN_HANDLE_LOCK,
    WN_HANDLE_SEQUENCE
};

/* Makes the calling thread the one that may use the library. */
void wn__thread_own(void);
/* Fails with WN_VALUE in any other thread. */
int32_t wn__thread_check(void);

/* Makes a handle of `what`, whose reference it takes over, or gives up on failure. Returns its id, or -(status): -code
 * where code is not WN_OK, and then `what` may be NULL. */
int32_t wn__handle_of(int32_t code, int32_t kind, void *what);
/* Returns what a handle of this kind is of; NULL, with a message, when it is of another kind or of nothing. */
void *wn__handle_get(int32_t id, int32_t kind);
/* Returns the kind of a handle; WN_HANDLE_FREE in any other thread. */
int32_t wn__handle_kind(int32_t id);
/* Puts a handle into the queue of those to release; it is invalid at once. Cannot fail. */
void wn__handle_release(int32_t id);
/* Releases what is in the queue. */
void wn__handle_drain(void);
/* Fills *out with the value of a handle, or the value that reads its cell. Counted. */
int32_t wn__handle_value(int32_t id, struct wn_node **out);
#endif
