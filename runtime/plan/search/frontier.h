/* The frontier of an IR: every plan worth having, the fastest first. Each one after it reserves fewer bytes and takes longer
 * than the one before. */
#ifndef WN_PLAN_SEARCH_FRONTIER_H
#define WN_PLAN_SEARCH_FRONTIER_H
#include "planner.h"

struct wn__frontier_point {
    struct wn__recipe recipe;
    int64_t reserved, peak; /* bytes: of the arena and all it stands beside; alive at once */
    int64_t bound;          /* bytes: no placing of the plan reserves fewer */
    double seconds;
    int32_t recomputed, instructions;
    char name[32]; /* what proposed it: "solved", "sqrt", "segments(4)"; with a "+" when it was edited since */
};
struct wn__frontier {
    int32_t refs;
    struct wn__frontier_point *point; /* (n) by seconds; reserved falls strictly */
    int32_t n, tried;                 /* tried: proposals that were judged */
    struct wn__recipe base, fine;     /* the partitions, whose arrays the points' recipes share */
};
/* Goes on making the frontier of an IR for about so many seconds, or finds it among those of the last IRs. *out: with a
 * reference more; NULL while it is not whole yet: call again. The frontier does not depend on how the work was cut. */
int32_t wn__frontier_slice(struct wn__ir *f, double seconds, struct wn__frontier **out);
/* Fills how many proposals of the frontier under way were judged, and about how many there will be. */
void wn__frontier_progress(int32_t *done, int32_t *expected);
void wn__frontier_unref(struct wn__frontier *fr);
void wn__frontier_forget(void);
/* Returns the index of the fastest plan that reserves at most `bytes`; -1: none does. */
int32_t wn__frontier_pick(const struct wn__frontier *fr, int64_t bytes);

/* ---- while one is built ------------------------------------------------------------------------------------- */
enum { WN__CHANCES = 12 };
struct wn__building {
    const struct wn__ir *f;
    struct wn__pool pool;
    struct wn__recipe base, fine; /* the blocks of both partitions (partition.c) */
    struct wn__frontier_point *point;
    int64_t n, capacity;
    uint64_t *met; /* (n_met) hashes of recipes that were offered: none is judged twice */
    int64_t n_met, met_capacity;
    int32_t tried, placed;                         /* proposals judged, and those of them that were placed */
    struct wn__frontier_point chance[WN__CHANCES]; /* plans that others beat only because they were placed roughly */
    int32_t n_chances, is_placed;                  /* is_placed: plans are being placed as they will be run */
};
/* Judges a recipe and keeps it unless another plan beats it. Takes the recipe over, on failure too. A wn__recipe_sink. */
int32_t wn__frontier_offer(void *building, struct wn__recipe *r, const char *name);
/* Whether a recipe shares the arrays of one of the partitions, which live as long as the list. */
static inline int32_t wn__frontier_shares(const struct wn__building *b, const struct wn__recipe *r)
{
    return r->block_of == b->base.block_of || r->block_of == b->fine.block_of;
}
/* offload_candidates.c: offers plans of the list with actions that a budget may choose. */
int32_t wn__frontier_actions(struct wn__building *b);
/* forecast.c: estimates the bytes that edits of a flat recipe reserve, without compiling them. */
struct wn__forecast {
    struct wn__pool pool;
    int64_t *live; /* (n) bytes while each instruction runs */
    int32_t n;
    int32_t *from, *to; /* (f->n) instructions that a value waits between for the backward, both excluded */
    int64_t peak, reserved;
    double seconds;
};
/* Compiles a recipe and notes what forecasts of its edits need. Release it on failure too. */
int32_t wn__forecast_make(const struct wn__ir *f, const struct wn__recipe *r, struct wn__forecast *out);
/* Returns the bytes reserved when values a and b take so many bytes more while they wait (fewer: below 0). a == b: one
 * value is edited, and bytes_b is 0. */
int64_t wn__forecast_reserved(const struct wn__forecast *c, int32_t a, int64_t bytes_a, int32_t b, int64_t bytes_b);
void wn__forecast_release(struct wn__forecast *c);
/* Returns seconds of the list's fastest plan within `reserved` bytes / seconds - 1; 1 or more where the list has no plan
 * within them. */
double wn__frontier_gain(const struct wn__building *b, int64_t reserved, double seconds);
/* subsets.c: offers every flat recipe of a graph with few residuals. */
int32_t wn__frontier_subsets(struct wn__building *b);
/* toggle.c: offers edits of flat recipes, as many as the size of the graph allows. */
int32_t wn__frontier_toggle(struct wn__building *b, const int64_t *ns);
/* search.c: returns how many edits of recipes a graph of that size is worth. */
int32_t wn__frontier_edits(const struct wn__ir *f);
/* search.c: offers edits of good recipes, that many. */
int32_t wn__frontier_search(struct wn__building *b, const int64_t *ns);
#endif
