/* Types, bytes and descriptions for kernels, of instructions and of the values that they make. */
#ifndef WN_PLAN_LOWER_INSTRUCTION_H
#define WN_PLAN_LOWER_INSTRUCTION_H
#include "../../base/memory_order.h"
#include "schedule.h"

/* Returns the bytes that a value takes of its space: whole pages of an offload buffer, else whole granules. */
int64_t wn__value_bytes(const struct wn__ir *ir, const struct wn__value *c);
/* Room for the description of an application that is not a node's own. */
struct wn__applied {
    struct wn_desc desc;
    struct wn_type in;
    struct wn__memory_order order;
};
/* Returns a description of what an instruction with a kernel applies. It points into `room`, which the caller keeps. */
const struct wn_desc *wn__instr_desc(const struct wn__ir *ir, const struct wn__schedule *s, const struct wn__instr *n,
                                     struct wn__applied *room);
/* Returns that description as the kernel gets it (base/memory_order.h). */
const struct wn_desc *wn__instr_kernel_desc(const struct wn__ir *ir, const struct wn__schedule *s,
                                            const struct wn__instr *n, struct wn__applied *room);
/* Returns the bytes that an instruction with a kernel makes, not rounded. */
int64_t wn__instr_bytes(const struct wn__ir *ir, const struct wn__schedule *s, const struct wn__instr *n);
#endif
