/* The plan cache: the 64 plans that were used last.
 *
 * A plan is found by two keys, compared as bytes. The first is of the request: graph, tags, policy, budget; it finds IR
 * and schedule at once. The second is of the IR without tags, and the recipe: it finds the schedule of another request
 * that decides the same. */
#ifndef WN_PROGRAM_CACHE_H
#define WN_PROGRAM_CACHE_H
#include "../graph/encode.h"
#include "../plan/lower/schedule.h"

/* Returns the IR of a request's key and fills its schedule, both with a reference more; NULL: there is none. */
struct wn__ir *wn__cache_find(const struct wn__bytes *key, struct wn__schedule **schedule);
/* Returns the schedule of an equal IR and recipe, with a reference more; NULL: there is none. */
struct wn__schedule *wn__cache_find_schedule(const struct wn__ir *ir, const char *recipe);
/* Adds a plan under a key, in place of the one that was used least recently when the cache is full. */
int32_t wn__cache_put(const struct wn__bytes *key, struct wn__ir *ir, struct wn__schedule *s);
/* Drops the plan of a key, if there is one. */
void wn__cache_forget(const struct wn__bytes *key);
void wn__cache_clear(void);
int64_t wn__cache_bytes(void); /* returns the bytes that keys, IRs and schedules take */
int64_t wn__cache_count(void); /* returns the number of plans */
int64_t wn__cache_made(void);  /* returns the number of plans ever put in; a request that leaves it found its plan */
#endif
