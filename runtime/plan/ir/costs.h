/* Costs: seconds of a node on the target that a program is planned for.
 *
 * On this machine the seconds of an application that was measured are taken from a table, by op, shapes, dtypes and
 * attributes. Others have the rate of their class, where the target has one (rates.h). What is left follows the
 * roofline model (Williams, Waterman, Patterson, CACM 2009) from the rates of the target's profile:
 *
 *   seconds = launch + max(FLOP / rate of the dtype, bytes / rate of memory)
 *
 * The API fills the table and the targets from files that Lua reads. Planning only reads them: it measures nothing and
 * runs no kernel. */
#ifndef WN_PLAN_IR_COSTS_H
#define WN_PLAN_IR_COSTS_H
#include "../../wane_inspect.h"
#include "ir.h"

/* Sets what is known of this machine, which is machine 0, until its profile is put, and lets later plans have other
 * keys. Measured seconds hold for it alone. */
void wn__machine_here(const struct wn__target *t);
/* Adds a machine, or replaces the one of that name; t is copied, unless the name is this machine's and t is another
 * kind of target. Returns its number, or -(status): WN_VALUE for rates that are not above 0, for too many machines. */
int32_t wn__machine_put(const char *name, const struct wn__target *t);
/* Returns the target of a machine: its kind's functions and flags, and its own rates; NULL: there is no such
 * machine. */
const struct wn__target *wn__machine(int32_t machine);
/* Returns the name of a machine; NULL: there is no such machine. */
const char *wn__machine_name(int32_t machine);

/* Puts the rate of a class on devices of a machine whose target is named `kind` (rates.h), in place of an earlier one.
 * WN_VALUE, WN_OOM. */
int32_t wn__class_put(int32_t machine, const char *kind, const char *class, const struct wn_rate *rate);
/* Puts the measured seconds of one application under its key, in place of earlier ones. WN_VALUE, WN_OOM. */
int32_t wn__cost_put(const char *key, double seconds);
/* Forgets all measured seconds. */
void wn__costs_clear(void);
/* Returns a number that is another one after each change of targets or seconds. It is part of a plan's key. */
int64_t wn__costs_id(void);

/* Returns the text of everything that decides the time of an application on the target of the IR, such as
 * "linear f32 32x10 <- f32 32x4, f32 10x4, f32 10" on a CPU and "cuda: linear ..." on a GPU. The text is valid until
  * the next call. */
const char *wn__cost_key(const struct wn__ir *ir, const struct wn_desc *d);
/* Returns the key of an application that reads a recomputed value, which is still in a cache: the one of wn__cost_key,
 * followed by " again". The text is valid until the next call. */
const char *wn__cost_key_again(const struct wn__ir *ir, const struct wn_desc *d);
/* Returns the seconds of moving `bytes` out to a place or in (WN_WAY_), while nothing else moves there. */
double wn__move_seconds(const struct wn__ir *ir, int32_t place, int32_t way, int64_t bytes);
/* Returns the seconds that a move adds to the kernels that run beside it, as both use the same memory. */
double wn__move_share(const struct wn__ir *ir, int64_t bytes);
/* The bytes of an exchange that this rank sends and gets, by level: on its machine, and to and from others. */
struct wn__wire {
    int64_t out[WN_LEVEL_COUNT], in[WN_LEVEL_COUNT]; /* bytes */
    int32_t peers;
};
/* Fills *out for a node of a LINK op. */
void wn__exchange_wire(const struct wn__ir *ir, int32_t node, struct wn__wire *out);
/* Returns the seconds of an exchange, while nothing else is exchanged. Those of a device apart go to the host and come
 * back from it. */
double wn__exchange_seconds(const struct wn__ir *ir, const struct wn__wire *w);
/* Returns the bytes of a node of a LINK op among all ranks: those of the value or state. */
int64_t wn__exchange_bytes(const struct wn__ir *ir, int32_t node);
/* Returns the seconds that an exchange takes less where it starts with another one. */
double wn__exchange_start_seconds(void);
/* Returns the bytes of exchanges that start together where a recipe says none (recipe.h). */
int64_t wn__exchange_group(const struct wn__ir *ir);
/* Sets the seconds of links among ranks. WN_VALUE for numbers that are none. */
int32_t wn__link_rates(const struct wn_link_rates *r);
const struct wn_link_rates *wn__link_rates_now(void);
/* Returns the seconds of one application by the roofline of the IR's target alone. */
double wn__desc_roofline(const struct wn__ir *ir, const struct wn_desc *d);
/* Returns the seconds of one application: measured ones, else by the rate of its class, else by the roofline;
 * *is_measured says whether they were measured. */
double wn__desc_seconds(const struct wn__ir *ir, const struct wn_desc *d, int32_t *is_measured);
/* Fills seconds, seconds_again and is_measured of the IR; of an exchange among ranks, its seconds on the link.
 * WN_OOM. */
int32_t wn__ir_costs(struct wn__ir *ir);
#endif
