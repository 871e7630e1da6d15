/* Fused forms, found in the graph before anything is decided about it: see rewrite.c. */
#ifndef WN_PLAN_IR_REWRITE_H
#define WN_PLAN_IR_REWRITE_H
#include <stdint.h>

struct wn__ir;
/* Rewrites an IR whose nodes are all there, before its blocks are found. ir->recorded is what was recorded. */
int32_t wn__ir_rewrite(struct wn__ir *f);
/* What a node computes, in the words of what was recorded: "linear+relu". */
const char *wn__ir_op_text(const struct wn__ir *f, int32_t node);
extern int32_t wn__rewrite_on; /* specs compare with 0: every node by itself. Part of a plan's key */
#endif
