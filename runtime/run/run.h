/* What the rooms of running share. */
#ifndef WN_RUN_RUN_H
#define WN_RUN_RUN_H
#include "program.h"

extern volatile int32_t wn__interrupted;
extern int32_t wn__trace_on, wn__sync_on, wn__timing_on;
void wn__warn(const char *format, ...) WN_PRINTF(1, 2); /* api.c: one pending line */
/* materialise.c: every cell the program reads gets its first value, to be settled when the run is over: kept, or
 * given back. missing: bytes that will take. */
int32_t wn__program_materialise(struct wn_program *p);
void wn__program_settle(struct wn_program *p, int32_t keep);
int64_t wn__program_missing(const struct wn_program *p);
int32_t wn__trace_room(struct wn_program *p);
/* plan.c: recipe, lowering, placement, verifier, simulator, cache. */
int32_t wn__program_plan(struct wn_program *p);
int32_t wn__program_frontier(struct wn_program *p);                                   /* into p->frontier */
int32_t wn__program_by_recipe(struct wn_program *p, const struct wn_recipe_given *g); /* into p->by_recipe */
#endif
