/* Rewrites: replaces patterns of nodes by ops that one kernel computes (rewrite.c). */
#ifndef WN_PLAN_IR_REWRITE_H
#define WN_PLAN_IR_REWRITE_H
#include <stdint.h>

struct wn__ir;
/* Rewrites an IR that has all its nodes and no blocks yet, and sets ir->recorded. WN_OOM. */
int32_t wn__ir_rewrite(struct wn__ir *ir);
/* Returns the names of the recorded ops that a node computes: "linear+relu". The text lives as long as the library. */
const char *wn__ir_op_text(const struct wn__ir *ir, int32_t node);
/* 1: wn__ir_rewrite rewrites; 0: it leaves every node as recorded, for specs that compare. Part of a plan's key. */
extern int32_t wn__rewrite_on;
#endif
