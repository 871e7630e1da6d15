/* The cache of everything that planning makes and a later request may use again: counted things under keys of bytes.
 * All together take at most wn__cache_most bytes: what was used least recently is dropped, but never the newest thing.
 * Keys are compared as bytes, and those of different kinds never meet. */
#ifndef WN_PLAN_CACHE_H
#define WN_PLAN_CACHE_H
#include <stdint.h>

enum wn__cache_kind {
    WN_CACHED_PLAN,     /* by a request: graph, tags, policy, budget */
    WN_CACHED_SCHEDULE, /* by the IR without tags, and a recipe */
    WN_CACHED_FRONTIER, /* by the IR without tags, marks and proposals */
    WN_CACHED_KINDS
};

/* A key in two parts, which need not lie one behind the other. */
struct wn__cache_key {
    enum wn__cache_kind kind;
    const void *part[2]; /* (bytes[0]), (bytes[1]) */
    int64_t bytes[2];
};

extern int64_t wn__cache_most;
/* Returns the thing of a key, whose references stay as they are; NULL: there is none. */
void *wn__cached(const struct wn__cache_key *key);
/* Keeps a thing of so many bytes under a key that has none. Takes over one reference, which `drop` gives up, at once if
 * it fails. WN_OOM. */
int32_t wn__cache_keep(const struct wn__cache_key *key, void *thing, int64_t bytes, void (*drop)(void *thing));
/* Drops the thing of a key, if there is one. */
void wn__cache_drop(const struct wn__cache_key *key);
void wn__cache_drop_all(void);
/* Returns the number of things of a kind, and fills the bytes that all things and keys take. */
int64_t wn__cache_holds(enum wn__cache_kind kind, int64_t *bytes);
/* Returns the number of things of a kind that were ever kept; a request that leaves it found its thing. */
int64_t wn__cache_made(enum wn__cache_kind kind);
#endif
