/* A program: what one run point executes, from the request until its run is over.
 *
 *   open.c       resolves the request, orders the recorded graph, writes the key, looks the plan up
 *   also.c       finds what it computes beside its losses
 *   assemble.c   differentiates and builds the IR, where the cache has none
 *   bind.c       binds this recording's values, cells and numbers to the slots of the IR
 *   plan.c       makes or finds the schedule
 *   sequence.c   notes what the run points of one step leave for each other, planned or run
 *   parts.c      adds up what they hold beside each other */
#ifndef WN_PROGRAM_H
#define WN_PROGRAM_H
#include "../graph/encode.h"
#include "../plan/search/frontier.h"
#include "../plan/lower/schedule.h"
#include "../wane_inspect.h"

/* The random numbers of a node: those that Philox makes of a seed from a counter on. */
struct wn__numbers {
    uint64_t seed, counter;
};

/* An effect of a forward value (graph/forward_effect.c) that no program has carried out yet. */
struct wn__pending_effect {
    int32_t node; /* the value's number in the order */
    const struct wn__forward_effect *what;
};

/* One update of a step: a wn_update whose handles are resolved. */
struct wn__program_update {
    int32_t op;
    int32_t set;             /* number among the distinct hypers of a program; -1: the step does not read the cell */
    struct wn_cell *cell[3]; /* the parameter, then the states of the optimizer; NULL: none */
    struct wn__hyper *hyper;
};

struct wn_program {
    struct wn__pool pool; /* holds the arrays of the request and of the bindings, the trace and the seconds */
    /* ---- the request. Invariant: each node, cell and hyper is counted, and nothing changes once the program is open,
     * but for the policy until it is planned, and the roots, which a commit lets go. */
    int32_t target; /* number of the target that it is planned for; 0: this machine, and only then it can run */
    int32_t mode;   /* enum of wane.h: run, backward, step or assign */
    int32_t device;
    int32_t joint;           /* 1: all roots are differentiated together; 0: one after the other */
    int32_t again;           /* 1: the backward may be asked for once more, so nothing is spent */
    double scale;            /* d(root)/d(root), the number that the backward begins with */
    int64_t policy;          /* number of the policy, part of the key */
    struct wn_node **root;   /* (n_roots) in the order of the request; counted */
    int32_t n_roots, n_also; /* roots; of these, at the end, those beside the losses, which nothing differentiates */
    struct wn__program_update *update; /* (n_updates) counted */
    int32_t n_updates, n_sets;         /* n_sets: distinct hypers of the updates */
    struct wn_node *clip;              /* limit of the gradients' norm, a number that is bound at run; NULL: none */
    struct wn_cell **assigned;         /* of an assignment: (n_roots) the cells that get the values; counted */
    struct wn__pending_effect *forward_effect; /* (n_forward_effects) of its forward values, which it carries out */
    int32_t n_forward_effects;
    /* ---- the bindings. Invariant: bound, scalar, result, cell, random and offset have this recording's values in the
     * order in which the IR numbers its slots; nodes and cells are counted. */
    struct wn__order order; /* the nodes that the roots reach, counted until the run is committed */
    int32_t *root_end;      /* (passes) nodes in the order after each root */
    struct wn_cell **named; /* (n_named) cells that the order reads, n_read, then those that others name */
    int32_t n_read, n_named;
    struct wn_node **bound, **scalar, **result; /* (ir->n_bound), (ir->n_scalars), (ir->n_results) */
    struct wn_cell **cell;                      /* (ir->n_cells) the named ones, then gradients */
    struct wn__slab **slab;                     /* (ir->n_slabs) NULL until it runs; counted */
    struct wn__numbers *random;                 /* (ir->n_random) */
    int64_t *offset;                            /* (ir->n_offsets) elements along the dim that an op names */
    int32_t *line;                              /* (ir->n) lines of this recording; NULL: those of the IR */
    /* ---- the plan. Invariant: ir and marks are there once the program is open, and only read once there is a
     * schedule, for the cache may have them too; each is counted. */
    struct wn__bytes key;
    uint64_t as_new; /* hash of the key, where no gradient has a place yet; else 0 */
    const struct wn__ir *ir;
    struct wn__marks *marks;
    struct wn__schedule *schedule; /* NULL until planned */
    struct wn__frontier *frontier; /* NULL until asked for */
    int32_t put_plan;              /* 1: this program put its plan into the cache */
    int32_t chosen;                /* point of the frontier to plan by, from 1; 0: by the policy's words and marks */
    struct wn__recipe by_recipe;   /* recipe to plan by instead; without arrays: none */
    /* ---- the state of the run. Invariant: a run that failed leaves `ran` 0, no fresh cells and no taken results. */
    int32_t ran;
    /* (n_results) takes the results' buffers, and their nodes stay without a value; NULL: the nodes get them. */
    struct wn__buffer **taken_results;
    int32_t *taken_kind;    /* (n_results) beside taken_results: the kind of the cell that will have each buffer */
    struct wn_cell **fresh; /* (n_fresh) cells that got storage in the run under way; not counted */
    int32_t n_fresh;
    struct wn_measured measured;
    int32_t *trace; /* (n_trace) the instructions that the last run executed, while the trace is on */
    int64_t n_trace;
    double *step_seconds; /* (n of the schedule) seconds of each instruction in the last run, while timing is on */
};

/* A request for a program: a wn_request whose handles are resolved. It counts nothing. */
struct wn__program_request {
    int32_t mode; /* WN_RUN_ of wane.h */
    int32_t joint, again, target;
    double scale;                            /* d(root)/d(root) */
    double clip;                             /* the most that the joint 2-norm of all gradients may be; 0: any */
    int64_t policy;                          /* number of the policy, part of the key */
    int32_t n_roots, n_also, n_updates;      /* n_also: of n_roots, at the end, those beside the losses */
    struct wn_node *const *root;             /* (n_roots) */
    struct wn_cell *const *cell;             /* (n_roots) of an assignment; else not read */
    const struct wn__program_update *update; /* (n_updates) */
};

/* Opens a program for a request, and counts what it keeps of it. WN_VALUE, WN_STALE, WN_SPENT, WN_OOM; on failure
 * nothing is left. */
int32_t wn__program_open(const struct wn__program_request *r, struct wn_program **out);
void wn__program_free(void *program);
/* Refuses root i of a request, a value beside the losses, that cannot be one. WN_VALUE, WN_DEVICE. */
int32_t wn__program_check_also(const struct wn__program_request *r, int32_t i);
/* Adds what is computed beside the losses to the order of the losses, which carries the stamp. WN_VALUE: a value is
 * made of nothing that the program computes. */
int32_t wn__program_walk_also(struct wn_program *p, int64_t stamp);
/* Emits the backward of every root, and the nodes that limit the norm of the gradients; `grads` holds what they make.
 * Does nothing for a mode without a backward. WN_VALUE: no state that needs a gradient is reached. */
int32_t wn__program_differentiate(struct wn_program *p, struct wn__grads *grads);
/* Differentiates the ordered graph and builds its IR. */
int32_t wn__program_assemble(struct wn_program *p);
/* Fill the bindings from the order (bind), and find or make the slabs right before a run (bind_slabs). */
int32_t wn__program_bind(struct wn_program *p);
int32_t wn__program_bind_slabs(struct wn_program *p);
/* Return the source line of a node in this recording (line), and fill its attributes with this run's offset (attrs). */
int32_t wn__program_line(const struct wn_program *p, int32_t node);
void wn__program_attrs(const struct wn_program *p, int32_t node, struct wn_attrs *attrs);
/* Makes the schedule, or finds it in the cache. Does nothing when there is one. */
int32_t wn__program_plan(struct wn_program *p);
/* Drops the plan and opens the program to another policy, whose number is part of its key. Marks stay, proposals for a
 * budget go where a kept plan has them. WN_VALUE once it ran. */
int32_t wn__program_decide_by(struct wn_program *p, int64_t policy);
/* Takes the plan out of the cache, if this program put it there. */
void wn__program_plan_forget(struct wn_program *p);
/* Makes p->frontier. look: as of wn_frontier. */
int32_t wn__program_frontier(struct wn_program *p, wn_look look);
/* Reads a recipe from a script into p->by_recipe. WN_ILLEGAL names step and rule. */
int32_t wn__program_by_recipe(struct wn_program *p, const struct wn_recipe_given *g);

/* ---- cache.c: plans in the cache (plan/ir/cache.h) ----
 * A plan is found by two keys. The first is of the request: graph, tags, policy, budget; it finds IR and schedule at
 * once. The second is of the IR without tags, and the recipe: it finds the schedule of another request that decides the
 * same. */
/* Returns the IR of a request's key and fills its schedule, both with a reference more; NULL: there is none. */
const struct wn__ir *wn__cache_find(const struct wn__bytes *key, struct wn__marks **marks,
                                    struct wn__schedule **schedule);
/* Returns the schedule of an equal IR and recipe, with a reference more; NULL: there is none. */
struct wn__schedule *wn__cache_find_schedule(const struct wn__ir *ir, const char *recipe);
/* Adds a plan under a key, unless the key has one. WN_OOM. */
int32_t wn__cache_put(const struct wn__bytes *key, const struct wn__ir *ir, struct wn__marks *marks,
                      struct wn__schedule *s);
/* Drops the plan of a key, if there is one. */
void wn__cache_forget(const struct wn__bytes *key);
#endif
