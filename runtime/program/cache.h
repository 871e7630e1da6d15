/* The plans in the cache (plan/ir/cache.h).
 *
 * A plan is found by two keys. The first is of the request: graph, tags, policy, budget; it finds IR and schedule at
 * once. The second is of the IR without tags, and the recipe: it finds the schedule of another request that decides the
 * same. */
#ifndef WN_PROGRAM_CACHE_H
#define WN_PROGRAM_CACHE_H
#include "../graph/encode.h"
#include "../plan/lower/schedule.h"

/* Returns the IR of a request's key and fills its schedule, both with a reference more; NULL: there is none. */
const struct wn__ir *wn__cache_find(const struct wn__bytes *key, struct wn__marks **marks,
                                    struct wn__schedule **schedule);
/* Returns the schedule of an equal IR and recipe, with a reference more; NULL: there is none. */
struct wn__schedule *wn__cache_find_schedule(const struct wn__ir *ir, const char *recipe);
/* Adds a plan under a key, unless the key has one. WN_OOM. */
int32_t wn__cache_put(const struct wn__bytes *key, const struct wn__ir *ir, struct wn__marks *marks,
                      struct wn__schedule *s);
/* Drops the plan of a key, if there is one. */
void wn__cache_forget(const struct wn__bytes *key);
#endif
