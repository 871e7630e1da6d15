/* What the rooms of running share. */
#ifndef WN_RUN_RUN_H
#define WN_RUN_RUN_H
#include "program.h"

extern volatile int32_t wn__interrupted;
extern int32_t wn__trace_on, wn__sync_on, wn__timing_on;
void wn__warn(const char *format, ...) WN_PRINTF(1, 2); /* api.c: one pending line */
/* materialise.c: every cell the program reads gets its first value, to be settled when the run is over. GIVE_BACK: the
 * cells are as they were before; UNWRITTEN: those that are invalid by now are, the others keep it. missing: bytes that
 * will take. */
enum wn__settle { WN_SETTLE_GIVE_BACK, WN_SETTLE_KEEP, WN_SETTLE_UNWRITTEN };
int32_t wn__program_materialise(struct wn_program *p);
void wn__program_settle(struct wn_program *p, int32_t how);
int64_t wn__program_missing(const struct wn_program *p);
/* What materialise would take, from the plan of the beginnings; nothing runs. */
int32_t wn__program_first(const struct wn_program *p, struct wn_first *out);
int32_t wn__trace_room(struct wn_program *p);
/* plan.c: recipe, lowering, placement, verifier, simulator, cache. */
int32_t wn__program_plan(struct wn_program *p);
/* Takes back a plan; the next one is not found by this program's key, for it depends on more than the program. */
int32_t wn__program_keep_apart(struct wn_program *p);
void wn__program_plan_forget(struct wn_program *p); /* takes it out of the cache again when this program put it there */
int32_t wn__program_frontier(struct wn_program *p, double seconds); /* into p->frontier; NULL there: not whole yet */
int32_t wn__program_by_recipe(struct wn_program *p, const struct wn_recipe_given *g); /* into p->by_recipe */
#endif
