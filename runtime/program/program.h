/* A program: what one run point executes, from the request until its run is over.
 *
 *   request.c    takes what is asked for, and orders the recorded graph
 *   open.c       writes the key, and looks the plan up
 *   assemble.c   differentiates and builds the IR, where the cache has none
 *   bindings.c   binds this recording's values, cells and numbers to the slots of the IR
 *   plan.c       makes or finds the schedule, which the cache keeps
 *   sequence.c   notes what the run points of one step leave for each other, planned or run
 *   parts.c      adds up what they hold beside each other */
#ifndef WN_PROGRAM_H
#define WN_PROGRAM_H
#include "../graph/encode.h"
#include "../plan/search/frontier.h"
#include "../plan/lower/schedule.h"
#include "../wane_inspect.h"

/* The random numbers of a node: those that Philox makes of a seed from a counter on. Kernels of an asynchronous device
 * read the two words as they lie here. */
struct wn__numbers {
    uint64_t seed, counter;
};

/* An effect of a forward value (graph/forward_effect.c) that no program has carried out yet. */
struct wn__pending_effect {
    int32_t node; /* the value's number in the order */
    const struct wn__forward_effect *what;
};

/* One update of a step: a wn_update whose handles are resolved. */
struct wn__update {
    int32_t op;
    int32_t set;             /* number among the distinct hypers of a program; -1: the step does not read the cell */
    struct wn_cell *cell[3]; /* the parameter, then the states of the optimizer; NULL: none */
    struct wn__hyper *hyper;
};

/* A request: what a program is asked for, a wn_request whose handles are resolved. Invariant: each node, cell and hyper
 * in it is counted, and once the program is open nothing in it changes but the policy, until there is a plan, and the
 * roots, which a commit lets go. */
struct wn__request {
    int32_t mode;              /* WN_RUN_ of wane.h */
    int32_t target;            /* number of the target that it is planned for; 0: this machine, and only then it runs */
    int32_t device;            /* that of all roots and cells */
    int32_t joint;             /* 1: all roots are differentiated together; 0: one after the other */
    int32_t again;             /* 1: the backward may be asked for once more, so nothing is spent */
    int32_t is_fresh;          /* 1: a gradient that is there already is refused */
    double scale;              /* d(root)/d(root), the number that the backward begins with */
    double clip;               /* the most that the joint 2-norm of all gradients may be; 0: any */
    int64_t policy;            /* number of the policy, part of the key */
    struct wn_node **root;     /* (n_roots) in the order of the request */
    struct wn_cell **assigned; /* (n_roots) of an assignment: the cells that get the values; else NULLs */
    struct wn__update *update; /* (n_updates) */
    int32_t n_roots, n_also;   /* roots; of these, at the end, those beside the losses, which nothing differentiates */
    int32_t n_updates, n_sets; /* n_sets: distinct hypers of the updates */
    struct wn__ranks ranks;    /* of a backward among ranks; given is 0 without them */
};

/* Bindings: what this recording puts into the slots of the IR. Invariant: bound, scalar, result, cell, random and
 * offset are in the order in which the IR numbers its slots; nodes and cells are counted, those of the order until the
 * commit. */
struct wn__bindings {
    struct wn__order order;                    /* the nodes that the roots reach */
    int32_t *root_end;                         /* (passes) nodes in the order after each root */
    struct wn_node *limit;                     /* of the gradients' norm, a number that is bound at run; NULL: none */
    struct wn__pending_effect *forward_effect; /* (n_forward_effects) of its forward values, which it carries out */
    int32_t n_forward_effects;
    struct wn_cell **named; /* (n_named) cells that the order reads, n_read, then those that others name */
    int32_t n_read, n_named;
    struct wn_node **bound, **scalar, **result; /* (ir->n_bound), (ir->n_scalars), (ir->n_results) */
    struct wn_cell **cell;                      /* (ir->n_cells) the named ones, then gradients */
    struct wn__slab **slab;                     /* (ir->n_slabs) NULL until it runs; counted */
    struct wn__numbers *random;                 /* (ir->n_random) */
    int64_t *offset;                            /* (ir->n_offsets) elements along the dim that an op names */
    int32_t *line;                              /* (ir->n) lines of this recording; NULL: those of the IR */
};

/* A plan: how a program is executed. Invariant: ir and marks are there once the program is open, and only read once
 * there is a schedule, for the cache may have them too; each is counted. */
struct wn__plan {
    struct wn__bytes key;
    uint64_t as_new; /* hash of the key, where no gradient has a place yet; else 0 */
    const struct wn__ir *ir;
    struct wn__marks *marks;
    struct wn__schedule *schedule; /* NULL until planned */
    struct wn__frontier *frontier; /* NULL until asked for */
    int32_t is_put;                /* 1: this program put its plan into the cache */
    int32_t chosen;              /* point of the frontier to plan by, from 1; 0: by the policy's decisions and marks */
    struct wn__recipe by_recipe; /* recipe to plan by instead; without arrays: none */
};

/* The state of a run: what it leaves. Invariant: `ran` is 1 from the commit on, and a program is committed once. */
struct wn__ran {
    int32_t ran;
    struct wn_measured measured;
    int32_t *trace; /* (n_trace) the instructions that the last run executed, while the trace is on */
    int64_t n_trace;
    double *step_seconds; /* (n of the schedule) seconds of each instruction in the last run, while timing is on */
};

struct wn_program {
    struct wn__pool pool; /* holds the arrays of the request and of the bindings, the trace and the seconds */
    struct wn__request request;
    struct wn__bindings bindings;
    struct wn__plan plan;
    struct wn__ran run;
};

/* Returns whether a program differentiates its losses, which are the roots but for those beside them. */
static inline int32_t wn__is_backward(const struct wn__request *r)
{
    return r->mode == WN_RUN_BACKWARD || r->mode == WN_RUN_STEP;
}
static inline int32_t wn__losses(const struct wn__request *r)
{
    return r->n_roots - r->n_also;
}
/* Returns how many times the graph is walked and differentiated: once a loss, or once for all roots. */
static inline int32_t wn__passes(const struct wn__request *r)
{
    return wn__is_backward(r) && !r->joint ? wn__losses(r) : 1;
}

/* Makes a program with an empty request, which has room for so many roots and updates. The caller fills the request,
 * and counts what it puts there. WN_OOM. */
int32_t wn__program_new(int32_t n_roots, int32_t n_updates, struct wn_program **out);
void wn__program_free(void *program);
/* Opens a program whose request is filled, once. WN_VALUE, WN_STALE, WN_SPENT, WN_OOM: it can only be freed then. */
int32_t wn__program_open(struct wn_program *p);
/* Checks the request, and orders what its roots reach. */
int32_t wn__request_take(struct wn_program *p);
/* Lets the roots and the order go. What is bound stays until the program is freed. */
void wn__request_let_go(struct wn_program *p);
/* Differentiates the ordered graph and builds its IR. */
int32_t wn__program_assemble(struct wn_program *p);
/* Fill the bindings from the order (bind), and find or make the slabs right before a run (bind_slabs). */
int32_t wn__program_bind(struct wn_program *p);
int32_t wn__program_bind_slabs(struct wn_program *p);
/* Returns how many values the program is bound to, numbers too (count), and one of them; NULL: the slot is not used. */
static inline int32_t wn__read_count(const struct wn_program *p)
{
    return p->plan.ir->n_bound + p->plan.ir->n_scalars;
}
static inline struct wn_node *wn__read_node(const struct wn_program *p, int32_t i)
{
    return i < p->plan.ir->n_bound ? p->bindings.bound[i] : p->bindings.scalar[i - p->plan.ir->n_bound];
}
/* Returns the bytes that a bound value takes while the program runs; 0: it was freed. */
static inline int64_t wn__bound_bytes(const struct wn_node *n)
{
    return n->held != NULL ? n->held->bytes : wn__node_is_missing(n) ? wn__padded(wn__bytes(&n->type)) : 0;
}
/* Returns cell k, below 3 times the effects of the IR, that an effect writes; NULL: that effect writes fewer. */
struct wn_cell *wn__effect_cell(const struct wn_program *p, int32_t k);
/* Return the source line of a node in this recording (line), and fill its attributes with this run's offset (attrs). */
int32_t wn__program_line(const struct wn_program *p, int32_t node);
void wn__program_attrs(const struct wn_program *p, int32_t node, struct wn_attrs *attrs);
/* Fills IR, marks and schedule where the cache has a plan of the key. */
void wn__plan_find(struct wn__plan *p);
/* Makes the schedule, or finds it in the cache. Does nothing when there is one. */
int32_t wn__plan_make(struct wn__plan *p);
/* Takes the plan out of the cache, if this program put it there, or is_any. */
void wn__plan_forget(struct wn__plan *p, int32_t is_any);
/* Drops the schedule and opens the program to another policy, whose number is part of its key. Marks stay, proposals
 * for a budget go where a kept plan has them. WN_VALUE once it ran. */
int32_t wn__program_decide_by(struct wn_program *p, int64_t policy);
#endif
