/* What a node costs in seconds: measured where this machine has measured it, else a roofline of the target's numbers.
 * A table of measured seconds by what an application looks like (op, shapes, dtypes), and a few targets; both are
 * filled through the API, from files that Lua reads. Planning only looks: it never measures, never runs a kernel. */
#ifndef WN_PLAN_IR_COSTS_H
#define WN_PLAN_IR_COSTS_H
#include "ir.h"

/* Target 0 is this machine: measured seconds hold for it alone. */
int32_t wn__machine_put(const char *name, const struct wn_profile *p); /* its number, or -(status) */
const struct wn_profile *wn__machine(int32_t target);                  /* NULL: there is none */
const char *wn__machine_name(int32_t target);

int32_t wn__cost_put(const char *key, double seconds); /* replaces what was there */
void wn__costs_clear(void);
int64_t wn__costs_id(void); /* another number after each change: part of a plan's key */

/* "linear f32 32x10 <- f32 32x4, f32 10x4, f32 10": what decides a node's time. Text of its own until the next call. */
const char *wn__cost_key(const struct wn_desc *d);
/* The same of an application that reads a value which was computed again: such a value is still near. */
const char *wn__cost_key_again(const struct wn_desc *d);
/* Whose workspace rules hold for the IR. */
const struct wn__target *wn__workspace_target(const struct wn__ir *f);
/* Seconds of moving bytes to a place or back (kernel.h), with nothing else under way there. */
double wn__move_seconds(const struct wn__ir *f, int32_t place, int32_t way, int64_t bytes);
/* What a move takes from the kernels beside it, hidden or not: the memory they share. */
double wn__move_share(const struct wn__ir *f, int64_t bytes);
/* Seconds of one application on the IR's machine. */
double wn__desc_roofline(const struct wn__ir *f, const struct wn_desc *d); /* by the rates of its target alone */
double wn__desc_seconds(const struct wn__ir *f, const struct wn_desc *d, int32_t *is_measured);
/* Fills ir->seconds, ->seconds_again and ->is_measured. */
int32_t wn__ir_costs(struct wn__ir *f);
#endif
