/* The plan cache: two keys. The first - graph, request, tags, policy - finds IR and schedule at once; the
 * second - IR without tags, and recipe - lets a fresh policy that decides the same share the schedule.
 * Keys are compared as bytes. The least recently used of 64 goes. */
#ifndef WN_PROGRAM_CACHE_H
#define WN_PROGRAM_CACHE_H
#include "../graph/encode.h"
#include "../plan/lower/schedule.h"

/* Counted IR and schedule, or NULL. */
struct wn__ir *wn__cache_find(const struct wn__bytes *key, struct wn__schedule **schedule);
struct wn__schedule *wn__cache_find_schedule(const struct wn__ir *f, const char *recipe);
int32_t wn__cache_put(const struct wn__bytes *key, struct wn__ir *f, struct wn__schedule *s);
void wn__cache_forget(const struct wn__bytes *key); /* does nothing when there is none */
void wn__cache_clear(void);
int64_t wn__cache_bytes(void);
int64_t wn__cache_count(void); /* plans in it */
int64_t wn__cache_made(void);  /* plans ever put in: what did not grow was a hit */
#endif
