/* The planner's rooms: from an IR to the list of plans worth having, fastest to smallest.
 *
 *   partition.c   blocks to plan by, wherever the graph has no single-valued cuts too
 *   subgraph.c     one block cut out as an IR of its own, so that an option is lowered by the real lowering
 *   options.c     what a block may keep, and what each choice costs
 *   emit.c        the chain solver's block operations as a recipe
 *   obey.c        what a word 'recompute' asks of a recipe, whoever proposed it
 *   portfolio.c   what people write by hand, so that a budget is never worse
 *   evict.c       value by value over the whole graph, for graphs without cuts
 *   flat.c        recipes that run every block forward once, as the set of values that stay
 *   subsets.c     every one of those sets, of a graph with few residuals
 *   toggle.c      edits of those sets
 *   forecast.c    which of these edits are worth a try
 *   search.c      small edits of good recipes
 *   frontier.c    all of them lowered, placed and simulated; those that nothing beats, in order
 *
 * Pure: no device, no tensor. Whatever is proposed, only the simulator's numbers are kept (planner.md). */
#ifndef WN_PLAN_SEARCH_PLANNER_H
#define WN_PLAN_SEARCH_PLANNER_H
#include "../chain/chain.h"
#include "../lower/schedule.h"

/* ---- partition.c ------------------------------------------------------------------------------------------- */
/* Blocks of all roots into a recipe without steps: block_of, first, limit, last, n_blocks. */
int32_t wn__partition(const struct wn__ir *f, int32_t is_fine, struct wn__recipe *r);
/* home: (f->n) the block each forward node, backward node and effect works for; -1: none, or another root's. */
void wn__partition_home(const struct wn__ir *f, const struct wn__recipe *r, int32_t *home);

/* ---- subgraph.c ----------------------------------------------------------------------------------------------- */
struct wn__subgraph {
    struct wn__pool pool;
    struct wn__ir ir;
    struct wn__recipe recipe; /* of three blocks: the block, then what reads it forward, then backward */
    int32_t *own;             /* (ir.n) node of the whole graph, or -1: a stand-in */
    int64_t *ns;              /* (ir.n) nanoseconds; stand-ins take none */
    int64_t given;            /* bytes of gradients that come from later blocks */
    uint8_t *key;             /* equal keys: equal options */
    int64_t key_bytes;
};
struct wn__subgraph_cost {
    int64_t forward_ns, backward_ns; /* backward with what is computed again, and updates */
    int64_t saved;                   /* bytes the block adds between its forward and its backward, its outputs too */
    int64_t forward_peak, backward_peak;
    int64_t born; /* gradients' bytes that stay */
    int32_t recomputed;
};
/* home: (f->n) the block each forward node, backward node and effect works for, or -1. */
int32_t wn__subgraph_make(const struct wn__ir *f, const int32_t *home, int32_t block, const int64_t *ns,
                          struct wn__subgraph *out);
/* keep: (n) nodes of the subgraph, ascending, kept besides what always is. */
int32_t wn__subgraph_try(struct wn__subgraph *x, const int32_t *keep, int32_t n, struct wn__subgraph_cost *out);
void wn__subgraph_release(struct wn__subgraph *x);

/* ---- options.c ----------------------------------------------------------------------------------------------- */
struct wn__option {
    int32_t *keep, n_keep; /* nodes of the subgraph */
    struct wn__subgraph_cost cost;
};
struct
    wn__class { /* blocks that are the same but for their place; their subgraph is released once its options are known */
    const uint8_t *key; /* of the subgraph */
    int64_t key_bytes;
    struct wn__option *option;
    int32_t n_options;
    struct wn__subgraph_cost plain; /* forward alone, only the outputs kept */
    int64_t outputs;                /* bytes read by later blocks */
    int64_t given;                  /* bytes of gradients that come from later blocks */
};
struct wn__classes {
    struct wn__pool pool;
    struct wn__class *class;
    int32_t n;
    int32_t *of;   /* (n_blocks) */
    int32_t **own; /* (n_blocks) the block's own node for each node of its class's subgraph */
};
int32_t wn__classes_make(const struct wn__ir *f, const struct wn__recipe *r, const int64_t *ns,
                         struct wn__classes *out);
void wn__classes_release(struct wn__classes *c);

/* ---- flat.c: recipes that run every block forward once ----------------------------------------------------------- */
enum { WN__GONE = -1 };
/* kept: (f->n) the action a value stays with, 0 for none, WN__GONE when it does not stay. Shares base's arrays; nothing
 * is to be released on failure. */
int32_t wn__flat_recipe(const struct wn__ir *f, const struct wn__recipe *base, const int8_t *kept,
                        struct wn__recipe *out);
/* Fills `kept` with what any recipe holds when its backward begins, whatever it runs again after that. */
void wn__flat_kept(const struct wn__ir *f, const struct wn__recipe *r, int8_t *kept);

/* portfolio.c: a proposal given with the IR, as copies; parent, word: NULL for none. */
int32_t wn__candidate_put(struct wn__ir *f, const char *name, const int32_t *unit, const int32_t *parent,
                          const int32_t *word);

/* ---- portfolio.c, evict.c, emit.c: recipes handed over one by one; taken even on failure ------------------------------- */
typedef int32_t (*wn__recipe_sink)(void *ctx, struct wn__recipe *r, const char *name);
/* ns: (f->n) nanoseconds of a node. */
int32_t wn__portfolio(const struct wn__ir *f, const struct wn__recipe *base, const int64_t *ns, wn__recipe_sink put,
                      void *ctx);
int32_t wn__evict(const struct wn__ir *f, const struct wn__recipe *base, const int64_t *ns, wn__recipe_sink put,
                  void *ctx);
/* The chain of each root's blocks solved, and up to `most` points of its frontier as recipes that share base's arrays. */
int32_t wn__emit_chain(const struct wn__ir *f, const struct wn__recipe *base, const struct wn__classes *classes,
                       int32_t most, wn__recipe_sink put, void *ctx);

/* ---- frontier.c, search.c: frontier.h ------------------------------------------------------------------------ */
#endif
