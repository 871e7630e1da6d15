/* The search: from an IR to the list of plans worth having, from the fastest to the smallest.
 *
 * Proposals, each a recipe:
 *   partition.c            cuts the forward into blocks, also where no single value crosses
 *   subgraph.c             cuts one block out as an IR of its own, so that the real lowering says what an option takes
 *   options.c              lists what a block may keep, and what each choice takes
 *   chain_recipe.c         turns the chain solver's schedule of blocks into a recipe
 *   portfolio.c            proposes what people write by hand, and the candidates that a script hands over
 *   evict.c                lets values go one by one over the whole graph
 *   flat.c                 makes recipes that run every block forward once, from the set of values that stay
 *   subsets.c              proposes every such set of a graph with few residuals
 *   toggle.c, forecast.c   edit such sets, and tell which edits are worth a try
 *   search.c               edits good recipes of any kind
 *   offload_candidates.c   adds the actions that a budget may choose
 * Judgement:
 *   frontier.c             compiles every proposal and keeps those that no other beats
 *
 * No file here calls a device or holds a value. Whatever a proposal promises, only what the simulator finds is kept. */
#ifndef WN_PLAN_SEARCH_PLANNER_H
#define WN_PLAN_SEARCH_PLANNER_H
#include "../chain/chain.h"
#include "../lower/schedule.h"

/* ---- partition.c ------------------------------------------------------------------------------------------- */
/* Fills block_of, first, limit, last and n_blocks of a recipe without steps. is_fine: cuts at every place that a single
 * value crosses; else at the IR's own blocks, and inside of those that are too large. */
int32_t wn__partition(const struct wn__ir *f, int32_t is_fine, struct wn__recipe *r);
/* Fills home, (f->n): the block that a node of any phase works for; -1: none, or one of another root. */
void wn__partition_home(const struct wn__ir *f, const struct wn__recipe *r, int32_t *home);

/* ---- subgraph.c ----------------------------------------------------------------------------------------------- */
struct wn__subgraph {
    struct wn__pool pool;
    struct wn__ir ir;
    struct wn__recipe recipe; /* of three blocks: the block, its forward readers, its backward */
    int32_t *own;             /* (ir.n) number in the whole IR; -1: a stand-in for nodes outside */
    int64_t *ns;              /* (ir.n) nanoseconds of a node; of a stand-in 0 */
    int64_t given;            /* bytes of gradients that come from later blocks */
    uint8_t *key;             /* (key_bytes) blocks with equal keys have equal options */
    int64_t key_bytes;
};
struct wn__subgraph_cost {
    int64_t forward_ns, backward_ns; /* the backward with what it computes again, and with updates */
    int64_t saved;                   /* bytes that stay from its forward to its backward, its outputs among them */
    int64_t forward_peak, backward_peak;
    int64_t born; /* bytes of gradients that its backward allocates and leaves */
    int32_t recomputed;
};
/* Cuts a block out. home: as wn__partition_home fills it; ns: (f->n). Release it on failure too. */
int32_t wn__subgraph_make(const struct wn__ir *f, const int32_t *home, int32_t block, const int64_t *ns,
                          struct wn__subgraph *out);
/* Fills what the block takes when it keeps n nodes of the subgraph, ascending, besides those that are always kept. */
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
/* Makes the recipe that keeps the values of a set. kept: (f->n) the action that a value stays with, 0: none, WN__GONE: it
 * does not stay. Shares base's arrays; nothing is to be released on failure. */
int32_t wn__flat_recipe(const struct wn__ir *f, const struct wn__recipe *base, const int8_t *kept,
                        struct wn__recipe *out);
/* Fills `kept` with what a recipe of any kind holds when its backward begins. */
void wn__flat_kept(const struct wn__ir *f, const struct wn__recipe *r, int8_t *kept);

/* portfolio.c: adds a proposal of a script, copied, to the IR. unit, decision: (f->n); parent: by unit; the last two may be
 * NULL. */
int32_t wn__candidate_put(struct wn__ir *f, const char *name, const int32_t *unit, const int32_t *parent,
                          const int32_t *decision);

/* ---- portfolio.c, evict.c, chain_recipe.c: recipes handed over one by one; taken even on failure ------------------------------- */
typedef int32_t (*wn__recipe_sink)(void *ctx, struct wn__recipe *r, const char *name);
/* Hand proposals to `put`. ns: (f->n) nanoseconds of a node. */
int32_t wn__portfolio(const struct wn__ir *f, const struct wn__recipe *base, const int64_t *ns, wn__recipe_sink put,
                      void *ctx);
int32_t wn__evict(const struct wn__ir *f, const struct wn__recipe *base, const int64_t *ns, wn__recipe_sink put,
                  void *ctx);
/* Solves the chain of each root's blocks, and hands up to `most` points of its frontier to `put`. The recipes share base's
 * arrays. */
int32_t wn__emit_chain(const struct wn__ir *f, const struct wn__recipe *base, const struct wn__classes *classes,
                       int32_t most, wn__recipe_sink put, void *ctx);

/* ---- frontier.c, search.c: frontier.h ------------------------------------------------------------------------ */
#endif
