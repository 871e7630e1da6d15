/* Marks: what a policy says of the nodes of an IR, beside it. A program has one set, which a policy writes before a
 * plan is made (wn_decide, wn_mark, wn_mark_parent, wn_allow); the proposals of its script for a budget are sets too
 * (wn_candidate). Afterwards they are only read, and a plan that is kept for later requests keeps them. */
#ifndef WN_PLAN_MARKS_H
#define WN_PLAN_MARKS_H
#include "../../graph/encode.h"
#include "ir.h"

typedef char wn__marks_name[32];

/* The fields: ir.def. A residual takes the decision of a proposal only where the program itself has none. */
struct wn__marks {
#define MARKS(class, write, type, name) type name;
#include "ir.def"
};

/* Returns marks of an IR of n nodes that say nothing, with one reference. NULL: the message of WN_OOM is set. */
struct wn__marks *wn__marks_new(int32_t n);
/* Drops a reference, and frees the marks with the last one. Does nothing for NULL. */
void wn__marks_unref(struct wn__marks *m);
/* Makes decisions, units and allowed actions those of `from`, of an IR of n nodes too. Proposals stay. */
void wn__marks_set(struct wn__marks *to, const struct wn__marks *from, int32_t n);
/* Adds a copy of a proposal. unit: (n) of the nodes, or NULL: none, and the proposal is late; parent: (n) by unit, or
 * NULL; decision: (n), or NULL. WN_OOM forgets every proposal, as plans may not depend on which one failed. */
int32_t wn__marks_propose(struct wn__marks *m, const char *name, int32_t n, const int32_t *unit, const int32_t *parent,
                          const int32_t *decision);

/* ---- keys.c: bytes by which plans are found ------------------------------------------------------------------ */

enum { WN_FIELD_RUN, WN_FIELD_PLAN, WN_FIELD_TAG, WN_FIELD_ALL }; /* sets of classes of ir.def */
/* Writes the fields of an IR, and of the marks beside it, that are of one of the classes. marks: NULL: none. */
void wn__ir_encode(struct wn__bytes *b, const struct wn__ir *ir, const struct wn__marks *marks, int32_t classes);
/* Writes the fields of a target that plans depend on. */
void wn__target_encode(struct wn__bytes *b, const struct wn__target *t);
/* Copies what was written into `pool`, and frees it, on failure too. WN_OOM, or the failure of a write. */
int32_t wn__bytes_keep(struct wn__bytes *b, struct wn__pool *pool, uint8_t **out, int64_t *n);
#endif
