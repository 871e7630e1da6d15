/* The frontier of an IR: the plans that no other plan beats in both bytes and seconds, the fastest first; and the list
 * of plans while it is being built, which the moves of the search offer recipes to.
 *
 *   seconds |                          o last: the least bytes
 *           |                 o
 *           |          o                        each point reserves fewer bytes and takes longer than the one before
 *           |  o first: the fastest
 *           +-- most bytes ------------ fewest bytes -->
 */
#ifndef WN_PLAN_SEARCH_FRONTIER_H
#define WN_PLAN_SEARCH_FRONTIER_H
#include "planner.h"

/* A plan on the frontier. Invariant: bound <= reserved. */
struct wn__frontier_point {
    struct wn__recipe recipe;
    int64_t reserved;     /* bytes of the arena, and of all that is reserved beside it */
    int64_t peak;         /* most bytes alive at once */
    int64_t bound;        /* bytes: no placing of the plan reserves fewer */
    double seconds;       /* of a run, as simulated */
    int32_t recomputed;   /* nodes that the backward computes again */
    int32_t instructions; /* of the schedule */
    int32_t is_by_hand;   /* 1: a policy that people write, not placed fully yet */
    char name[32]; /* what proposed it: "solved", "sqrt", "segments(4)"; with a "+" at the end if it was edited */
};
/* Invariant: from point to point, reserved falls strictly and seconds rise strictly. */
struct wn__frontier {
    int32_t refs;
    struct wn__frontier_point *point; /* (n) the fastest first */
    int32_t n, tried;                 /* points; proposals that were judged */
    struct wn__recipe base, fine;     /* the partitions, whose arrays the points' recipes share */
};
/* Proposals that can be left out, one bit each, so that spec/bench/ablation.lua shows what each of them earns. */
enum wn__proposals {
    WN__PROPOSE_CHAIN = 1,     /* the chain solver, over both partitions */
    WN__PROPOSE_FINE = 2,      /* the chain solver over the fine partition */
    WN__PROPOSE_BY_HAND = 4,   /* the portfolio, but for save_all and the script's own marks and proposals */
    WN__PROPOSE_SCRIPT = 8,    /* the proposals of the script, the late ones too */
    WN__PROPOSE_EVICT = 16,    /* eviction */
    WN__PROPOSE_SUBSETS = 32,  /* all sets of few residuals */
    WN__PROPOSE_TOGGLE = 64,   /* edits of sets */
    WN__PROPOSE_SEARCH = 128,  /* edits of recipes, and every plan packed */
    WN__PROPOSE_OFFLOAD = 256, /* parts of what a plan keeps, offloaded */
    WN__PROPOSE_WAITING = 512, /* beaten policies by hand, placed fully at the end */
};
extern int64_t wn__left_out; /* enum wn__proposals: those that are left out; frontiers that are kept do not notice */
/* Makes the frontier of an IR and marks, or finds it among those of the last ones. *out: the frontier, with one more
 * reference. look: as of wn_frontier, or NULL. WN_INTERRUPT: ^C came, or `look` asked to stop. */
int32_t wn__frontier_make(const struct wn__ir *ir, const struct wn__marks *marks, wn_look look,
                          struct wn__frontier **out);
/* Drops a reference, and frees the frontier with the last one. Does nothing for NULL. */
void wn__frontier_unref(struct wn__frontier *fr);

/* ---- the list while it is built ----------------------------------------------------------------------------- */
/* Invariant: no plan on the list beats another one, and the list is sorted by seconds. */
struct wn__building {
    const struct wn__ir *ir;
    const struct wn__marks *marks;
    wn_look look; /* of the caller, before each proposal; NULL: none */
    struct wn__pool pool;
    struct wn__recipe base, fine;     /* the blocks of both partitions (partition.c) */
    struct wn__frontier_point *point; /* (n) the list, the fastest first */
    int64_t n, capacity;
    uint64_t *met; /* (n_met) hashes of recipes that were offered, so that none is judged twice */
    int64_t n_met, met_capacity;
    int32_t tried, placed;              /* proposals judged; those of them that were placed */
    int32_t is_by_hand;                 /* 1: the proposals are policies by hand */
    struct wn__frontier_point *waiting; /* (n_waiting) beaten policies by hand, to be placed fully at the end */
    int64_t n_waiting, waiting_capacity;
};
/* Judges a recipe and puts it on the list unless another plan beats it. Owns the recipe, on failure too; a failure ends
 * the proposals. */
int32_t wn__frontier_offer(struct wn__building *b, struct wn__recipe *r, const char *name);
/* Copies a recipe of the list, as the list changes while its edits are offered, with room for one more kept value in
 * each step. The arrays of blocks are shared if they are a partition's, which live as long as the list. WN_OOM. */
int32_t wn__frontier_copy(const struct wn__building *b, const struct wn__recipe *r, struct wn__recipe *out);
/* Offers what people write by hand, and the proposals of the script (portfolio.c). ns: (ir->n) nanoseconds of a node.
 */
int32_t wn__frontier_portfolio(struct wn__building *b, const int64_t *ns);
/* Offers the proposals of the script that are late: no move edits them (portfolio.c). */
int32_t wn__frontier_late(struct wn__building *b);
/* Evicts values one by one over the whole graph, and offers some of the sets that remain (evict.c). ns as above. */
int32_t wn__frontier_evict(struct wn__building *b, const int64_t *ns);
/* Solves the chain of each root's blocks, of one of the partitions, and offers up to about `most` points of the
 * frontier (chain_recipe.c). */
int32_t wn__frontier_chain(struct wn__building *b, const struct wn__recipe *base, const struct wn__classes *classes,
                           int32_t most);
/* Offers plans of the list with actions that a budget may choose by itself (offload_candidates.c). */
int32_t wn__frontier_actions(struct wn__building *b);

/* One schedule, as forecasts of edits of its recipe need it (forecast.c). */
struct wn__forecast {
    struct wn__pool pool;
    int64_t *live; /* (n) bytes alive while each instruction runs, its workspace included */
    int32_t n;     /* instructions */
    int32_t *from; /* (ir->n) the last instruction of the forward that makes or reads a value; -1: none */
    int32_t *to;   /* (ir->n) the first instruction after the forward that makes or reads it; -1: none */
    int64_t peak;  /* the most of `live` */
    int64_t reserved;
    double seconds;
};
/* Compiles a recipe and fills what forecasts of its edits need. Release it on failure too. */
int32_t wn__forecast_make(const struct wn__ir *ir, const struct wn__recipe *r, struct wn__forecast *out);
/* Estimates the bytes reserved if value a takes bytes_a more, and value b bytes_b more (negative: fewer), between their
 * `from` and `to`. a == b with bytes_b = 0: one value is edited. */
int64_t wn__forecast_reserved(const struct wn__forecast *c, int32_t a, int64_t bytes_a, int32_t b, int64_t bytes_b);
/* Frees what the forecast holds. */
void wn__forecast_release(struct wn__forecast *c);
/* Returns (seconds of the list's fastest plan within `reserved` bytes) / seconds - 1: above 0 if the list is slower.
 * Returns 1 or more if the list has no plan within those bytes. */
double wn__frontier_gain(const struct wn__building *b, int64_t reserved, double seconds);
/* Offers the flat recipes of a graph with few residuals, all whose bounds beat the list (subsets.c). */
int32_t wn__frontier_subsets(struct wn__building *b);
/* Returns whether a value may be kept or not: it has bytes of its own, no decision, and no rule keeps it (toggle.c). */
int32_t wn__frontier_may_change(const struct wn__building *b, int32_t v);
/* Offers edits of flat recipes, as many as the size of the graph allows (toggle.c). ns: (ir->n) nanoseconds of a
 * node. */
int32_t wn__frontier_toggle(struct wn__building *b, const int64_t *ns);
/* Returns how many edits of recipes a graph of that size is worth (search.c). */
int32_t wn__frontier_edits(const struct wn__ir *ir);
/* Offers wn__frontier_edits edits of the list's recipes (search.c). ns: (ir->n) nanoseconds of a node. */
int32_t wn__frontier_search(struct wn__building *b, const int64_t *ns);
#endif
