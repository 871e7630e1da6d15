/* Actions: the forms that a kept value may have between its last forward reader and its first backward one. A policy
 * decides for an action (wane.h, WN_DECISION_), the recipe carries it beside the value, lowering writes it out:
 *
 *   packed      an op of the table makes a smaller form, another op makes the value of it again (compress)
 *   offloaded   its bytes are moved to an offload buffer and back
 *
 * The kept form is a value of its own, with its own bytes: `action` of struct wn__value. To add a way of packing, add
 * its ops (runtime/op.def), a decision, and a row in action.c. */
#ifndef WN_PLAN_RECIPE_ACTION_H
#define WN_PLAN_RECIPE_ACTION_H
#include "../ir/marks.h"

/* Returns the action that a residual is kept with, 'offload' being that of its device. 0: it stays as it is, because
 * no decision says otherwise, or because the action cannot be applied (wn__action_refusal). */
int32_t wn__action_of(const struct wn__ir *ir, const struct wn__marks *marks, int32_t node);
/* Returns the action of a decision: that of the device for 'offload', else the decision itself. */
int32_t wn__action_resolved(const struct wn__ir *ir, int32_t decision);
/* Returns why an action cannot be applied to a node's value, in words that follow "it"; NULL: it can. */
const char *wn__action_refusal(const struct wn__ir *ir, int32_t node, int32_t decision);
/* Returns the name of an action, such as "compress:bf16"; NULL: there is no such action. */
const char *wn__action_name(int32_t action);
/* Returns whether some bits do not come back. */
int32_t wn__action_is_lossy(int32_t action);
/* Returns the enum wn_medium that an action moves bytes to; -1: it moves none. */
int32_t wn__action_medium(int32_t action);
/* Returns whether a budget may choose the action for a value that has no decision: the action keeps every bit, or
 * was allowed. */
int32_t wn__action_may_choose(const struct wn__ir *ir, const struct wn__marks *marks, int32_t node, int32_t action);
/* Returns the bytes that the kept form of a node's value takes of the device's memory. */
int64_t wn__action_bytes(const struct wn__ir *ir, int32_t node, int32_t action);
/* Returns whether an action gives back a part of the value alone: enough for readers that ask for signs
 * (wn__ir_reads_sign). For others the value is computed again. */
int32_t wn__action_is_partial(int32_t action);

/* Fills the type that a value has while it is kept with an action: its own, or that of its packed form. */
void wn__action_type(const struct wn__ir *ir, int32_t node, int32_t action, struct wn_type *out);
/* Fill *d with the op that packs a value, and with the op that makes the value again of `packed`, whose type is
 * filled too. Require an action that packs. */
void wn__action_pack(const struct wn__ir *ir, int32_t node, int32_t action, struct wn_desc *d);
void wn__action_unpack(const struct wn__ir *ir, int32_t node, int32_t action, struct wn_type *packed,
                       struct wn_desc *d);
#endif
