/* Actions: what a kept value may be between its last forward reader and its first backward one. A decision of a policy
 * (wane.h, WN_DECISION_) says it, the recipe carries it beside the value, lowering writes it out:
 *
 *   packed      an op of the table makes a smaller form, another op makes the value of it again (compress)
 *   offloaded   its bytes are moved to an offload buffer and back
 *
 * What a value has become is a copy of its own, with its own bytes: `action` of wn__value. To add a way of packing: its
 * ops (runtime/op.def), a decision, and a row in action.c. */
#ifndef WN_PLAN_RECIPE_ACTION_H
#define WN_PLAN_RECIPE_ACTION_H
#include "../ir/ir.h"

/* What is done with a residual: its decision, 'offload' being that of its device; 0: it stays as it is, because no
 * decision says otherwise, or because it cannot be done (wn__action_refusal). */
int32_t wn__action_of(const struct wn__ir *f, int32_t node);
int32_t wn__action_resolved(const struct wn__ir *f, int32_t decision);
/* Why a value cannot be treated so, in words that follow "it"; NULL: it can. */
const char *wn__action_refusal(const struct wn__ir *f, int32_t node, int32_t decision);
const char *wn__action_name(int32_t action); /* "compress:bf16"; NULL: there is none */
int32_t wn__action_is_lossy(int32_t action);
int32_t wn__action_place(int32_t action); /* enum wn_place it moves to; -1: it moves nowhere */
/* Whether a budget may choose the action for a value that has no decision: it keeps every bit, or was allowed. */
int32_t wn__action_may_choose(const struct wn__ir *f, int32_t node, int32_t action);
int64_t wn__action_bytes(const struct wn__ir *f, int32_t node, int32_t action); /* of the packed form, in memory */
/* What comes back is not the value, but says enough for some of its readers (wn__ir_reads_sign). Others compute the
 * value again. */
int32_t wn__action_is_partial(int32_t action);

/* Fills the type that a value has while it is kept with an action: its own, or that of its packed form. */
void wn__action_type(const struct wn__ir *f, int32_t node, int32_t action, struct wn_type *out);
/* Describes the op that packs a value, and the op that makes the value again from `packed`, whose type is filled.
 * Requires an action that packs. */
void wn__action_pack(const struct wn__ir *f, int32_t node, int32_t action, struct wn_desc *d);
void wn__action_unpack(const struct wn__ir *f, int32_t node, int32_t action, struct wn_type *packed, struct wn_desc *d);
#endif
