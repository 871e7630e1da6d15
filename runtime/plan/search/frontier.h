/* The frontier of an IR: every plan worth having, fastest first, each needing fewer bytes than the one before it. */
#ifndef WN_PLAN_SEARCH_FRONTIER_H
#define WN_PLAN_SEARCH_FRONTIER_H
#include "planner.h"

struct wn__frontier_point {
    struct wn__recipe recipe;
    int64_t reserved, peak;
    int64_t bound; /* the least that any placing of it reserves */
    double seconds;
    int32_t recomputed, instructions;
    char name[32]; /* where it came from: "solved", "sqrt", "segments(4)"; "+" when edited since */
};
struct wn__frontier {
    int32_t refs;
    struct wn__frontier_point *point; /* (n) seconds up, reserved down, both strictly */
    int32_t n, tried;
    struct wn__recipe base, fine; /* arrays the points share */
};
/* Goes on making the list of an IR for about so many seconds, or finds one that is remembered by what it may depend on.
 * *out: counted; NULL while it is not whole yet, then ask again. The list never depends on how often it was asked for. */
int32_t wn__frontier_slice(struct wn__ir *f, double seconds, struct wn__frontier **out);
/* Proposals of the list under way that were judged, and about how many there will be. */
void wn__frontier_progress(int32_t *done, int32_t *expected);
void wn__frontier_unref(struct wn__frontier *fr);
void wn__frontier_forget(void);
/* The fastest that reserves at most `bytes`; -1: none does. */
int32_t wn__frontier_pick(const struct wn__frontier *fr, int64_t bytes);

/* ---- while one is built ------------------------------------------------------------------------------------- */
enum { WN__CHANCES = 12 };
struct wn__building {
    const struct wn__ir *f;
    struct wn__pool pool;
    struct wn__recipe base, fine; /* the blocks of both partitions (partition.c) */
    struct wn__frontier_point *point;
    int64_t n, capacity;
    uint64_t *met; /* (n_met) of recipes offered: none is judged twice */
    int64_t n_met, met_capacity;
    int32_t tried, placed;                         /* proposals judged, and those of them that were placed */
    struct wn__frontier_point chance[WN__CHANCES]; /* beaten where they were placed roughly, not with their bound */
    int32_t n_chances, is_placed;                  /* is_placed: the list is placed as it will be run, or being so */
};
/* Judges a recipe, and keeps it unless another beats it. Takes the recipe. A wn__recipe_sink. */
int32_t wn__frontier_offer(void *building, struct wn__recipe *r, const char *name);
/* Whether a recipe shares the arrays of one of the partitions, which live as long as the list. */
static inline int32_t wn__frontier_shares(const struct wn__building *b, const struct wn__recipe *r)
{
    return r->block_of == b->base.block_of || r->block_of == b->fine.block_of;
}
/* offload_candidates.c: plans with the actions that are allowed. */
int32_t wn__frontier_actions(struct wn__building *b);
/* forecast.c: bytes that edits of a flat recipe would reserve, roughly. */
struct wn__forecast {
    struct wn__pool pool;
    int64_t *live; /* (n) bytes while each instruction runs */
    int32_t n;
    int32_t *from, *to; /* (f->n) a value's bytes are there for the backward only, or would be, strictly between */
    int64_t peak, reserved;
    double seconds;
};
/* To be released on failure too. */
int32_t wn__forecast_make(const struct wn__ir *f, const struct wn__recipe *r, struct wn__forecast *out);
/* With so many bytes more (fewer: below 0) for values a and b where they wait; a == b: one value, bytes_b is 0. */
int64_t wn__forecast_reserved(const struct wn__forecast *c, int32_t a, int64_t bytes_a, int32_t b, int64_t bytes_b);
void wn__forecast_release(struct wn__forecast *c);
/* Seconds of the list's fastest plan within `reserved` bytes / seconds - 1; 1 and more below the list's least bytes. */
double wn__frontier_gain(const struct wn__building *b, int64_t reserved, double seconds);
/* subsets.c: every flat recipe of a graph with few residuals. */
int32_t wn__frontier_subsets(struct wn__building *b);
/* toggle.c: edits of flat recipes, a fixed number of them. */
int32_t wn__frontier_toggle(struct wn__building *b, const int64_t *ns);
/* search.c: about how many edits a graph of that size is worth */
int32_t wn__frontier_edits(const struct wn__ir *f);
/* search.c: edits of good recipes, a fixed number of them. */
int32_t wn__frontier_search(struct wn__building *b, const int64_t *ns);
#endif
