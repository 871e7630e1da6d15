/* Control: the calls that all ranks make together, and how they agree about them.
 *
 * Before a call moves anything each rank sends rank 0 what it is about to do, and gets the verdict. Where one of them
 * is about to do something else, or has failed before, all of them fail with the same words, nothing has moved, and
 * the next call works. A rank that runs out of memory between two messages breaks the link: nobody knows then what
 * the others wait for. */
#ifndef WN_LINK_CONTROL_H
#define WN_LINK_CONTROL_H
#include "link.h"

/* Says what a rank is about to do. */
struct wn__call {
    const char *said;   /* "gather (3, 4) f32 at train.lua:31" */
    const char *needed; /* what must be equal: "gather (3, 4) f32" */
    int32_t code;       /* WN_OK, or the failure that the rank brings along, with its words */
    const char *words;
    int32_t is_step; /* a program, which can tell how it differs from another */
    int64_t most; /* 0: every rank gives as many bytes, and gets those of all; else rank 0 alone gets them, at most so
                        many, and each rank gives as many as it has */
};

/* Begins to agree about a call, and in the same call to gather `bytes` bytes of each rank, which are copied. One call
 * is under way at a time. */
int32_t wn__control_begin(const struct wn__call *call, const void *mine, int64_t bytes);
/* Goes on with the call for at most `seconds`. Status: of the rank that failed; WN_VALUE where ranks differ; that of a
 * broken link. */
int32_t wn__control_go(double seconds, int32_t *has_ended);
/* Makes a whole call, as the two functions above. */
int32_t wn__control_call(const struct wn__call *call, const void *mine, int64_t bytes);
/* Returns the first rank whose program is another one than rank 0's, where the last call failed for that; else -1. */
int32_t wn__control_differs(void);
/* Waits for a job that all ranks have agreed about, and frees it. A failure breaks the link. */
int32_t wn__control_finish(struct wn__job *job);
/* Returns what the last call gathered, in the order of ranks, until the next one begins; NULL: it failed, or gathered
 * nothing. */
const void *wn__control_result(void);
/* Returns how many calls this rank has begun. */
int64_t wn__control_calls(void);
/* Returns how many bytes that are. */
int64_t wn__control_bytes(void);
/* Writes who is waited for into text: (room) bytes; "" where no call is under way. */
void wn__control_late(char *text, int64_t room);
#endif
