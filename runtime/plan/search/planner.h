/* The search: makes from an IR its frontier, the list of plans that no other plan beats in bytes and seconds.
 *
 *   IR --> moves that read the graph ----+
 *                                        v
 *          moves that edit the list -> recipes -> frontier.c: compile, keep unless beaten -> list -> place -> frontier
 *               ^                                                                             |
 *               +-----------------------------------------------------------------------------+
 *
 * Moves that read the graph, and what they need:
 *   partition.c            cuts the forward into blocks, also where no single value crosses
 *   subgraph.c             cuts one block out as an IR of its own, so that the real lowering says what an option costs
 *   options.c              lists the sets of values that a block may keep, with the cost of each
 *   chain_recipe.c         turns the chain solver's schedule of the blocks into a recipe
 *   portfolio.c            proposes what people write by hand, and the proposals of a script
 * The move that edits the list:
 *   edit.c                 changes how plans keep their values: by evictions, by actions, and by search
 *   forecast.c             lists the changes of a plan, and estimates what they do before they are compiled
 * Judgement:
 *   frontier.c             compiles every proposal, and keeps those that no other plan beats
 *
 * No file of this room calls a device or holds a value. Whatever a proposal promises, only what the simulator finds
 * counts. */
#ifndef WN_PLAN_SEARCH_PLANNER_H
#define WN_PLAN_SEARCH_PLANNER_H
#include "../chain/chain.h"
#include "../lower/schedule.h"

/* ---- partition.c ------------------------------------------------------------------------------------------- */
/* Fills block_of, first, limit, last and n_blocks of a recipe without steps. is_fine: cuts at every place that a single
 * value crosses; else at the edges of the IR's blocks, and inside those that are too large. WN_OOM; release r then
 * too. */
int32_t wn__partition(const struct wn__ir *ir, const struct wn__marks *marks, int32_t is_fine, struct wn__recipe *r);
/* Fills home, (ir->n): the block whose forward or backward a node belongs to, for effects too; -1: none, or a block of
 * another root. */
void wn__partition_home(const struct wn__ir *ir, const struct wn__recipe *r, int32_t *home);

/* ---- subgraph.c ----------------------------------------------------------------------------------------------- */
/* One block as an IR of its own, drawn in subgraph.c. Invariant: ir is only lowered, never run or measured. */
struct wn__subgraph {
    struct wn__pool pool;
    struct wn__ir ir;
    struct wn__marks marks;   /* the decisions of its nodes, and no regions */
    struct wn__recipe recipe; /* of two blocks: the block itself, and the sink of what later blocks read of it */
    int32_t *own;             /* (ir.n) the node's number in the whole IR; -1: a stand-in for nodes outside the block */
    int64_t *ns;              /* (ir.n) nanoseconds of a node; 0 of a stand-in */
    int64_t incoming;         /* bytes of gradients that come from later blocks */
    uint8_t *key;             /* (key_bytes) blocks with equal keys have equal options */
    int64_t key_bytes;
};
/* The cost of a block with one set of kept values. */
struct wn__subgraph_cost {
    int64_t forward_ns, backward_ns; /* nanoseconds; the backward's with recomputed nodes and updates */
    int64_t saved;                   /* bytes that are held from its forward to its backward, its outputs included */
    int64_t forward_peak, backward_peak; /* bytes that the block itself has live at most */
    int64_t allocated;                   /* bytes of gradients that its backward allocates and leaves */
    int32_t recomputed;                  /* nodes that its backward computes again */
};
/* Cuts a block out. home: as wn__partition_home fills it; ns: (ir->n) nanoseconds of a node. WN_OOM; release it then
 * too. */
int32_t wn__subgraph_make(const struct wn__ir *ir, const struct wn__marks *marks, const int32_t *home, int32_t block,
                          const int64_t *ns, struct wn__subgraph *out);
/* Fills what the block costs if it keeps n nodes of the subgraph, ascending, and those that are always kept. */
int32_t wn__subgraph_try(struct wn__subgraph *x, const int32_t *keep, int32_t n, struct wn__subgraph_cost *out);
/* Frees what the subgraph holds. */
void wn__subgraph_release(struct wn__subgraph *x);

/* ---- options.c ----------------------------------------------------------------------------------------------- */
/* A set of values that a block may keep, and what it costs with it. */
struct wn__option {
    int32_t *keep, n_keep; /* (n_keep) nodes of the subgraph, ascending */
    struct wn__subgraph_cost cost;
};
/* Blocks whose subgraphs have equal keys: they share their options. */
struct wn__class {
    const uint8_t *key; /* (key_bytes) of the subgraph, which is released once its options are known */
    int64_t key_bytes;
    struct wn__option *option; /* (n_options) none beats another in nanoseconds and every number of bytes */
    int32_t n_options;
    struct wn__subgraph_cost plain; /* of keeping only the outputs */
    int64_t outputs;                /* bytes that later blocks read */
    int64_t incoming;               /* bytes of gradients that come from later blocks */
};
struct wn__classes {
    struct wn__pool pool;
    struct wn__class *class; /* (n) */
    int32_t n;
    int32_t *of;   /* (n_blocks) the class of each block */
    int32_t **own; /* (n_blocks) for each block: its node in the whole IR, by node of the class's subgraph */
};
/* Finds the classes of a partition's blocks and their options. ns: (ir->n) nanoseconds of a node. Release it on failure
 * too. */
int32_t wn__classes_make(const struct wn__ir *ir, const struct wn__marks *marks, const struct wn__recipe *r,
                         const int64_t *ns, struct wn__classes *out);
/* Frees what the classes hold. */
void wn__classes_release(struct wn__classes *c);

#endif
