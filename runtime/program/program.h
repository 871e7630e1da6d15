/* A program in the making and in use: what one run point executes. The topological order of the
 * recorded graph gives the key and the bindings; the IR and the schedule come from the cache, or are built and put there. */
#ifndef WN_PROGRAM_H
#define WN_PROGRAM_H
#include "../graph/encode.h"
#include "../plan/search/frontier.h"
#include "../plan/lower/schedule.h"

/* Where a random node's numbers begin. is_held: the value was there before, so its numbers are those it was made of. */
struct wn__numbers {
    uint64_t seed, counter;
    int64_t seq;              /* of the node that drew them */
    int32_t is_held, is_kept; /* a rerun leaves them as they are */
};

struct wn_program {
    int32_t machine; /* target it is planned for; 0: this one */
    int32_t mode, device, joint, again, transient, ran;
    double scale;
    int64_t policy;
    struct wn__ir *ir;
    struct wn__schedule *schedule; /* NULL until planned */
    struct wn__frontier *frontier; /* NULL until asked for; counted */
    int32_t put_plan;              /* the plan was not in the cache before this program */
    int32_t chosen;                /* point of the frontier to plan by, from 1; 0: by words and marks */
    struct wn__recipe *by_recipe;  /* what to plan by instead, or NULL */
    struct wn_node **root;         /* (n_roots) as asked; counted */
    int32_t n_roots;
    struct wn_update *update;     /* (n_updates) hyper and cells as handles are resolved below */
    struct wn_cell **update_cell; /* (n_updates * 3) counted */
    struct wn__hyper **hyper;     /* (n_updates) counted */
    int32_t *hyper_set;           /* (n_updates) which of n_sets distinct ones; -1: a step does not read its cell */
    int32_t n_sets;
    int32_t n_updates;
    struct wn_node *clip;    /* the limit of the gradients' norm, a number bound at run like hyperparameters; or NULL */
    struct wn_cell **target; /* ASSIGN: (n_roots) counted */
    /* bindings, in the order the IR numbers them */
    struct wn__order order;     /* counted while the program lives */
    int32_t *root_end;          /* (n passes): order length after each root */
    struct wn_cell **read_cell; /* (n_read) counted through the order */
    int32_t n_read, n_named;    /* cells the order reads; and those updates and targets name besides */
    struct wn_node **given, **scalar, **result;
    struct wn_cell **cell;  /* (ir->n_cells) counted */
    struct wn__slab **slab; /* (ir->n_slabs) counted; bound when it runs */
    struct wn__numbers *random;
    int64_t *offset;              /* (ir->n_offsets) in elements along the dim */
    int32_t *line;                /* (ir->n) lines of this recording; NULL: those of the IR */
    uint64_t first_number, taken; /* numbers the recording took: a rerun takes as many */
    struct wn__bytes key;
    uint64_t as_new;             /* hash of the key, when it says that no gradient has a place yet; else 0 */
    struct wn__buffer **harvest; /* (n_results) not NULL: takes the results' bytes; nodes stay unheld */
    struct wn_cell **fresh;      /* (n_fresh) given storage by the run under way, not counted */
    int32_t n_fresh;
    struct wn_measured measured;
    int32_t *trace;
    int64_t n_trace;
    double *step_seconds; /* (schedule->n) of the last run, when timing is on */
};

/* open.c */
int32_t wn__program_open(const struct wn_request *r, struct wn_program **out);
/* assemble.c: differentiates and builds the IR of a program whose order is done. */
int32_t wn__program_assemble(struct wn_program *p);
/* bind.c: says which numbers reruns keep: of what was held before, and of nodes recorded up to place `seq`. */
void wn__program_keep_numbers(struct wn_program *p, int64_t seq);
/* bind.c: fills the bindings from the order, by the IR. */
int32_t wn__program_bind(struct wn_program *p);
int32_t wn__program_bind_slabs(struct wn_program *p);
/* The line by which this recording knows a node of the IR, and its attributes with this run's offset put in. */
int32_t wn__program_line(const struct wn_program *p, int32_t node);
void wn__program_attrs(const struct wn_program *p, int32_t node, struct wn_attrs *attrs);
/* plan.c: recipe, lowering, placement, verifier, simulator, cache. */
int32_t wn__program_plan(struct wn_program *p);
/* Takes back a plan; the next one is not found by this program's key, for it depends on more than the program. */
int32_t wn__program_keep_apart(struct wn_program *p);
void wn__program_plan_forget(struct wn_program *p); /* takes it out of the cache again when this program put it there */
int32_t wn__program_frontier(struct wn_program *p, double seconds); /* into p->frontier; NULL there: not whole yet */
int32_t wn__program_by_recipe(struct wn_program *p, const struct wn_recipe_given *g); /* into p->by_recipe */
#endif
