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

/* A plan on the frontier. */
struct wn__frontier_point {
    struct wn_point shown; /* its numbers; `tried` and `name` are filled where a script asks for them */
    struct wn__recipe recipe;
    int32_t is_settled; /* 1: it is placed as a run places it */
    int32_t id;         /* its number among the proposals */
    int32_t visits;     /* how often edits of it were tried (edit.c) */
    int32_t is_done;    /* 1: all were */
    double promise;     /* the gain of the edit that is tried next */
    char name[32];      /* what proposed it: "solved", "sqrt", "segments(4)"; with a "+" at the end if it was edited */
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
    WN__PROPOSE_CHAIN = 1,   /* the chain solver, over both partitions */
    WN__PROPOSE_FINE = 2,    /* the chain solver over the fine partition */
    WN__PROPOSE_BY_HAND = 4, /* the portfolio, but for save_all and the script's own marks and proposals */
    WN__PROPOSE_SCRIPT = 8,  /* the proposals of the script, the late ones too */
    WN__PROPOSE_EVICT = 16,  /* evictions */
    WN__PROPOSE_EDIT = 32,   /* the search for edits */
    WN__PROPOSE_ACTION = 64, /* plans of the list with one action for many values */
    WN__PROPOSE_AHEAD = 128, /* plans of the list with more or fewer exchanges among ranks under way */
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
    int32_t tried;      /* proposals judged */
    int32_t newest;     /* number of the last one that joined the list */
    int32_t is_by_hand; /* 1: the proposals are policies by hand, and are placed as a run places them */
};
/* Judges a recipe and puts it on the list unless another plan beats it. Owns the recipe, on failure too; a failure ends
 * the proposals. */
int32_t wn__frontier_offer(struct wn__building *b, struct wn__recipe *r, const char *name);
/* Makes `out` a recipe with the blocks of a recipe of the list, and without steps. The arrays of blocks are shared if
 * they are a partition's, which live as long as the list. WN_OOM leaves nothing to release. */
int32_t wn__frontier_begin(const struct wn__building *b, const struct wn__recipe *r, struct wn__recipe *out);
/* Offers what people write by hand, and the proposals of the script (portfolio.c). */
int32_t wn__frontier_portfolio(struct wn__building *b);
/* Offers the proposals of the script that are late: no move edits them (portfolio.c). */
int32_t wn__frontier_late(struct wn__building *b);
/* Solves the chain of each root's blocks, of one of the partitions, and offers up to about `most` points of the
 * frontier (chain_recipe.c). */
int32_t wn__frontier_chain(struct wn__building *b, const struct wn__recipe *base, const struct wn__classes *classes,
                           int32_t most);
/* Returns by how much the list is slower than a plan, as a mean over budgets: the integral of (seconds of the list's
 * fastest plan / seconds - 1) over the budgets where the plan is faster, divided by the list's range of bytes; budgets
 * below the list's least bytes count 1. A plan that is slower everywhere gets that quotient, below 0, at `reserved`. */
double wn__frontier_gain(const struct wn__building *b, int64_t reserved, double seconds);
/* Returns how many edits of recipes a graph of that size is worth (edit.c). */
int32_t wn__frontier_edits(const struct wn__ir *ir);
/* Offers the fastest plan without the values that are evicted first (edit.c). */
int32_t wn__frontier_evict(struct wn__building *b);
/* Offers plans of the list with one action for many values, where a budget may choose that (edit.c). */
int32_t wn__frontier_act(struct wn__building *b);
/* Offers plans of the list with other prefetch budgets, where they exchange values among ranks (edit.c). */
int32_t wn__frontier_ahead(struct wn__building *b);
/* Offers wn__frontier_edits edits of the list's recipes (edit.c). */
int32_t wn__frontier_edit(struct wn__building *b);

/* ---- forecasts of edits (forecast.c) ---------------------------------------------------------------------------- */
enum { WN__EDITS_MOST = 12, WN__WAITS_MOST = 6 }; /* changes that are tried at once; stretches that one changes */
/* Bytes that are alive at the instructions between two. */
struct wn__wait {
    int32_t from, to; /* neither included */
    int64_t bytes;    /* negative: fewer are alive */
};
/* A change of a recipe, and what it is expected to do. */
struct wn__edit {
    struct wn__change change;
    int32_t n_waits;
    struct wn__wait wait[WN__WAITS_MOST]; /* (n_waits) of the value itself first, then of what it is computed from */
    double seconds;                       /* more seconds of the plan */
    double apart;                         /* seconds between the uses of the value */
};
/* The edits of one recipe, and one schedule of it, as forecasts of its edits need it. */
struct wn__forecast {
    struct wn__pool pool;
    struct wn__edit *edit;      /* (n_edits) */
    struct wn__change *idle;    /* (n_idle) that let go of values that are kept and not read again */
    int64_t *live;              /* (n) bytes alive while each instruction runs, its workspace included */
    int64_t *span;              /* the most of each part of `live` */
    int32_t n_edits, n_idle, n; /* n: instructions */
    int64_t peak;               /* the most of `live` */
    int64_t reserved;
    double seconds;
};
/* Compiles a recipe and lists its edits. Release it on failure too. */
int32_t wn__forecast_make(const struct wn__building *b, const struct wn__recipe *r, struct wn__forecast *out);
/* Estimates the bytes reserved with n edits, at most WN__EDITS_MOST. */
int64_t wn__forecast_reserved(const struct wn__forecast *f, const struct wn__edit *const *edit, int32_t n);
/* Frees what the forecast holds. */
void wn__forecast_release(struct wn__forecast *f);
#endif
