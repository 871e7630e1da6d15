/* The intermediate representation (IR) of a program: the nodes of forward, backward and updates under local numbers, and
 * no value of any run. It is built once for all recordings of the same graph and then only read: recipes, schedules and
 * costs are pure functions of it. */
#ifndef WN_PLAN_IR_H
#define WN_PLAN_IR_H
#include <stdint.h>
#include "../../base/alloc.h"
#include "../../graph/graph.h"

enum wn__leaf_kind {
    WN_LEAF_NONE,   /* computed */
    WN_LEAF_CELL,   /* a state; slot: number of its cell */
    WN_LEAF_HELD,   /* a value that is held before the run; slot: its number among them */
    WN_LEAF_SCALAR, /* a number of the host, uploaded when the run starts; slot: its number among them */
};

/* A node with inputs that has its value before the run: the backward reads its inputs, the forward does not. */
enum wn__bound {
    WN_BOUND_NOT,   /* the run computes it */
    WN_BOUND_HELD,  /* as WN_LEAF_HELD */
    WN_BOUND_NUMBER /* as WN_LEAF_SCALAR */
};

struct wn__ir_node {
    int32_t op, phase;          /* enum of op.def; WN_PHASE_ */
    int32_t n_in, in_at;        /* inputs: ir->in[in_at .. in_at + n_in), and their types in ir->in_type */
    int32_t root;               /* number of the root whose forward or backward the node belongs to */
    int32_t forward_of;         /* of a backward node: the forward node whose rule emitted it; else -1 */
    int32_t leaf, slot, random; /* enum wn__leaf_kind; its slot; slot of its random numbers, -1: it draws none */
    int32_t offset;             /* slot of an offset that is bound at run, attrs then hold 0; -1: attrs hold it */
    int32_t result;             /* number of the result that it is; -1: none */
    int32_t scope, region, line,
        unit;            /* of the recording; unit: of a policy, 0: as recorded, -1: outside every region */
    int32_t block;       /* of the forward, between cuts that a single value crosses (blocks.c) */
    int32_t cell[3];     /* of an effect: slots of the cells that it writes; -1: none */
    int32_t decision;    /* WN_DECISION_: what a policy decided for its value */
    int32_t n_readers;   /* backward nodes that read its value */
    int32_t absorbed_by; /* the node that a rewrite computes it inside of; -1: none */
    uint8_t bound;       /* enum wn__bound */
    uint8_t is_residual; /* the backward reads it, so a policy decides about it */
    uint8_t is_boundary; /* the forward of a later block reads it */
    uint8_t needs_grad;
    uint8_t is_read_whole; /* some backward node reads more of it than whether its elements are above 0 */
    uint8_t is_reissued;   /* a state in another type or layout: computed again at every reader, never kept */
    const char *name;
    struct wn_type type;
    struct wn_attrs attrs;
    int64_t bytes; /* padded */
};

struct wn__ir_cell {
    int32_t kind;        /* WN_KIND_ */
    int32_t gradient_of; /* of a gradient: slot of the cell that it is the gradient of; else -1 */
    int32_t slab;        /* of a gradient that this program assigns: its slab; else -1 */
    int32_t born_here;   /* 1: a gradient that this program assigns rather than adds to */
    int32_t shares;      /* of a gradient that it adds to in a slab that it assigns others in: the slab's number + 1 */
    int64_t slab_offset, bytes;
};
struct wn__ir_slab {
    int64_t bytes;
    int32_t existing; /* number among the slabs that were there, in the order of binding; -1: this program makes it */
};

/* A policy by hand, as a proposal for a budget: regions over the forward, words where nobody said one. */
struct wn__candidate {
    struct wn__candidate *next;
    int32_t *unit;    /* (n) as wn__ir_node's */
    int32_t *parent;  /* (n) as the IR's unit_parent */
    int8_t *decision; /* (n) */
    char name[32];
};

struct wn__ir {
    struct wn__pool pool;
    int64_t refs;
    struct wn__ir_node *node;           /* (n): root by root forward, backward; then effects */
    const struct wn__ir_node *recorded; /* (n) the same before rewrites: op, inputs and numbers as recorded */
    int32_t n, n_effects;               /* effects are the last n_effects nodes */
    int32_t *in;
    struct wn_type *in_type;
    int32_t n_in, most_in; /* of all nodes; of one */
    struct wn__ir_cell *cell;
    int32_t n_cells;
    struct wn__ir_slab *slab;
    int32_t n_slabs;
    int32_t n_given, n_scalars, n_random, n_offsets, n_results, n_roots, n_updates;
    int32_t *region_parent; /* (n_regions), of local number i + 1; 0: none */
    int32_t n_regions;
    int32_t
        *unit_parent; /* (n), of unit i + 1: the unit it lies in, smaller than itself; 0: none. NULL: none has one */
    struct wn__candidate *candidate; /* in the order they were given; NULL: none */
    int32_t n_candidates;
    int32_t *result_node; /* (n_results) */
    int32_t *order_node;  /* (n_ordered): node of the order's i-th */
    int32_t n_ordered;
    int32_t *root_node; /* (n_roots) */
    int32_t
        *set_slot; /* (n_sets) the slot among the scalars of a set of an optimizer's numbers; -1: nothing reads it */
    int32_t n_sets;
    int32_t *residual; /* (n_residuals): nodes */
    int32_t n_residuals, n_blocks;
    int32_t device, threads, mode;
    int32_t
        allowed; /* bits 1 << decision: actions that a budget may choose by itself, besides those that lose nothing */
    int32_t target;        /* of costs.h: the machine it is planned for */
    double *seconds;       /* (n) of one application */
    uint8_t *is_measured;  /* (n) seconds were measured, not derived */
    double *seconds_again; /* (n) where it reads a value that was computed again */
    uint8_t *key2;         /* key2: without tags and words; the recipe's bytes follow it in the cache */
    int64_t key2_bytes;
};

static inline int32_t wn__ir_in(const struct wn__ir *f, int32_t node, int32_t i)
{
    return f->in[f->node[node].in_at + i];
}
static inline int32_t wn__ir_flags(const struct wn__ir *f, int32_t node)
{
    return wn__op_flags(f->node[node].op);
}
static inline struct wn_desc wn__ir_desc_of(const struct wn__ir *f, const struct wn__ir_node *p)
{
    return (struct wn_desc){
        .op = p->op, .n_in = p->n_in, .out = p->type, .in = f->in_type + p->in_at, .attrs = p->attrs};
}
static inline struct wn_desc wn__ir_desc(const struct wn__ir *f, int32_t node)
{
    return wn__ir_desc_of(f, &f->node[node]);
}
/* A value the forward computes; leaves are not. */
static inline int32_t wn__ir_node_is_forward(const struct wn__ir_node *p)
{
    return p->phase == WN_PHASE_FORWARD && p->leaf == WN_LEAF_NONE;
}
static inline int32_t wn__ir_is_forward(const struct wn__ir *f, int32_t node)
{
    return wn__ir_node_is_forward(&f->node[node]);
}
/* An effect that takes over a gradient's product works for the backward: what it reads is a residual. */
static inline int32_t wn__ir_is_backward(const struct wn__ir *f, int32_t node)
{
    return f->node[node].phase == WN_PHASE_BACKWARD || f->node[node].op == WN_OP_PRODUCT_UPDATE;
}
/* The node whose bytes a value is: itself, or what its chain of aliases starts from. A result asked for is
 * made of bytes of its own, so the chain ends there. */
int32_t wn__ir_storage(const struct wn__ir *f, int32_t node);
int32_t wn__ir_is_alias(const struct wn__ir *f, int32_t node);
void wn__ir_unref(struct wn__ir *f);

/* Whether input k of a node is read for nothing but whether its elements are above 0: ReLU's gradient, alone or within. */
int32_t wn__ir_reads_sign(const struct wn__ir *f, int32_t node, int32_t k);

/* blocks.c: cuts of the forward into stretches, residuals and boundaries. */
int32_t wn__ir_blocks(struct wn__ir *f);
/* last: (n) the last forward node that reads a value or its bytes; itself when there is none. */
void wn__ir_last_readers(const struct wn__ir *f, int32_t *last);
#endif
