/* Instructions and the values they make: types, bytes and descriptions for kernels. */
#ifndef WN_PLAN_LOWER_INSTRUCTION_H
#define WN_PLAN_LOWER_INSTRUCTION_H
#include "schedule.h"

/* Returns the bytes that a copy takes of its space: whole pages of a depot, else whole granules. */
int64_t wn__copy_bytes(const struct wn__ir *f, const struct wn__copy *c);
/* Fills the type of a copy: the value's, or that of the form it was packed to. */
void wn__copy_type(const struct wn__ir *f, const struct wn__copy *c, struct wn_type *out);
/* Room for the description of an application that is no node's own. */
struct wn__applied {
    struct wn_desc desc;
    struct wn_type in;
};
/* Describes what an instruction with a kernel applies. Points into `room`, which the caller keeps. */
const struct wn_desc *wn__instr_desc(const struct wn__ir *f, const struct wn__schedule *s, const struct wn__instr *n,
                                     struct wn__applied *room);
/* Returns the bytes of what an instruction with a kernel makes, not rounded. */
int64_t wn__instr_bytes(const struct wn__ir *f, const struct wn__schedule *s, const struct wn__instr *n);
#endif
