/* The intermediate representation (IR) of a program: its nodes, forward, backward and effects, in one table under local
 * numbers, and no value of any run. runtime/program/assemble.c builds it from the recorded graph and its gradients,
 * once for all recordings of the same graph. Afterwards it is only read: recipes, schedules and costs are functions of
 * it.
 *
 *   node     | forward of root 0 | backward of root 0 | forward of root 1 | .. | numbers of optimizers | effects |
 *
 *   node 7   in_at = 9, n_in = 2: its inputs are in[9] and in[10], two numbers of nodes below 7, with the types
 *            in_type[9] and in_type[10]
 */
#ifndef WN_PLAN_IR_H
#define WN_PLAN_IR_H
#include <stdint.h>
#include "../../base/alloc.h"
#include "../../graph/graph.h"

/* Where the value of a node comes from. */
enum wn__leaf_kind {
    WN_LEAF_NONE,   /* the node is no leaf: the run computes it, unless it is bound (enum wn__bound) */
    WN_LEAF_CELL,   /* a state; slot: number of its cell */
    WN_LEAF_HELD,   /* a value that is held before the run; slot: its number among the bound values */
    WN_LEAF_SCALAR, /* a number of the host, uploaded when the run starts; slot: its number among the numbers */
};

/* Whether a node with inputs has its value before the run. Only the backward reads the inputs of such a node. */
enum wn__bound {
    WN_BOUND_NOT,   /* the run computes it */
    WN_BOUND_HELD,  /* its value is held before the run, with a slot as of WN_LEAF_HELD */
    WN_BOUND_NUMBER /* its value is a number of the host, with a slot as of WN_LEAF_SCALAR */
};

/* One node. Invariants: every input has a smaller number than the node itself; a leaf and an absorbed node have no
 * inputs; no node names an absorbed one as its input. */
struct wn__ir_node {
    int32_t op, phase;   /* enum of op.def; WN_PHASE_ */
    int32_t n_in, in_at; /* inputs: ir->in[in_at .. in_at + n_in), with their types in ir->in_type */
    int32_t root;        /* number of the root whose forward or backward the node belongs to */
    int32_t forward_of;  /* the forward node whose gradient rule emitted this backward node; else -1 */
    int32_t leaf, slot;  /* enum wn__leaf_kind; the leaf's or the bound node's slot, else -1 */
    int32_t random;      /* slot of the counter of its random numbers; -1: it draws none */
    int32_t offset;      /* slot of an offset that each run binds, which attrs then hold as 0; -1: attrs hold it */
    int32_t result;      /* its number among the results of a run; -1: it is none */
    int32_t scope;       /* module path under which it was recorded (graph/scope.c) */
    int32_t region;      /* local number of the region in which it was recorded; 0: outside every region */
    int32_t line;        /* of the script that recorded it */
    int32_t unit;        /* the region that a policy puts it in; 0: the recorded one; -1: none */
    int32_t block;       /* of a forward node, and of its backward: the number of its block (blocks.c); -1: none */
    int32_t cell[3];     /* slots of the cells that an effect writes; -1: none */
    int32_t decision;    /* WN_DECISION_: what a policy decided for its value */
    int32_t n_readers;   /* inputs of backward nodes that are its value */
    int32_t absorbed_by; /* the node whose kernel computes this one as well, after a rewrite; -1: none */
    uint8_t bound;       /* enum wn__bound */
    uint8_t is_residual; /* 1: the backward reads its value, so a policy decides about it */
    uint8_t is_boundary; /* 1: the forward of another block reads its value */
    uint8_t needs_grad;
    uint8_t is_read_whole; /* 1: some backward node reads more of its value than which elements are above 0 */
    uint8_t has_effects;   /* 1: a forward effect reads its value, when it is issued for the first time */
    uint8_t is_data;       /* 1: a forward value that no state is part of: inputs, random numbers, what they become */
    uint8_t is_weight;     /* 1: a forward value that only parameters feed, read twice where others are too */
    uint8_t is_reissued;   /* 1: a state in another dtype or layout, computed again at every reader and never kept */
    const char *name;      /* that the script gave it; NULL: none */
    struct wn_type type;   /* of its value */
    struct wn_attrs attrs;
    int64_t bytes; /* of its value, rounded up to WN_GRANULE */
};

/* A state that the program reads or writes. Invariants: slab >= 0 exactly if allocated_here; allocated_here and shares
 * are 0 unless the kind is WN_KIND_GRADIENT. */
struct wn__ir_cell {
    int32_t kind;           /* WN_KIND_ */
    int32_t gradient_of;    /* slot of the cell whose gradient it is; -1: it is no gradient of this backward */
    int32_t slab;           /* the slab in which this program allocates it; -1: it exists before the run */
    int32_t allocated_here; /* 1: a gradient that this program assigns, and does not add to */
    int32_t shares;         /* 1 + slab in which it already exists, where this program assigns others there; else 0 */
    int64_t slab_offset;    /* bytes from the start of `slab` */
    int64_t bytes;          /* rounded up to WN_GRANULE */
};
/* A slab (memory/ledger.h) in which gradients are allocated. */
struct wn__ir_slab {
    int64_t bytes;
    int32_t existing; /* its number in the key among the slabs that exist before the run; -1: this program makes it */
};

/* A policy that a script proposes for a budget. A residual takes its decision only where the program itself has
 * none. */
struct wn__candidate {
    struct wn__candidate *next; /* the next proposal; NULL: none */
    int32_t *unit;              /* (n) the unit of each node, as in struct wn__ir_node */
    int32_t *parent;            /* (n) the unit around each unit, as unit_parent of the IR */
    int8_t *decision;           /* (n) WN_DECISION_ of each node's value */
    char name[32];
};

/* The IR of one program. Arrays are in `pool` and live as long as the IR. After assembly nothing in it changes but
 * decisions, units, candidates and allowed actions, which a policy writes before a plan is made (wn_decide, wn_mark,
 * wn_mark_parent, wn_candidate, wn_allow). */
struct wn__ir {
    struct wn__pool pool;
    int64_t refs;
    struct wn__ir_node *node;           /* (n) root by root forward and backward, then effects */
    const struct wn__ir_node *recorded; /* (n) the nodes before rewrites: op, inputs and attributes as recorded */
    int32_t n, n_effects;               /* effects are the last n_effects nodes */
    int32_t *in;                        /* (n_in) inputs: numbers of nodes */
    struct wn_type *in_type;            /* (n_in) their types */
    int32_t n_in, most_in;              /* inputs of all nodes; of the node that has the most */
    struct wn__ir_cell *cell;           /* (n_cells) by slot */
    int32_t n_cells;
    struct wn__ir_slab *slab; /* (n_slabs) */
    int32_t n_slabs;
    int32_t n_bound, n_scalars, n_random, n_offsets; /* slots that each run binds: values, numbers, counters, offsets */
    int32_t n_results, n_roots, n_updates;
    int32_t norm;           /* the result that is the norm of the gradients before they were clipped; -1: none is */
    int32_t *region_parent; /* (n_regions) of region i + 1: the region around it; 0: none */
    int32_t n_regions;
    int32_t *unit_parent; /* (n) of unit i + 1: the unit around it, a smaller number; 0: none. NULL: no unit has one */
    struct wn__candidate *candidate; /* proposals of the script, in its order; NULL: none */
    int32_t n_candidates;
    int32_t *result_node; /* (n_results) */
    int32_t *order_node;  /* (n_ordered) ascending: the node of the i-th recorded one */
    int32_t n_ordered;
    int32_t *root_node; /* (n_roots) */
    int32_t *set_slot;  /* (n_sets) of each set of an optimizer's numbers: its slot among the scalars; -1: not read */
    int32_t n_sets;
    int32_t *residual; /* (n_residuals) ascending: nodes */
    int32_t n_residuals, n_blocks;
    int32_t device, threads, mode; /* number of the device; its threads; WN_RUN_ */
    int32_t allowed;               /* bits 1 << decision: lossy or moving actions that a budget may choose by itself */
    int32_t machine;               /* number of the machine that it is planned for (costs.h) */
    const struct wn__target *target; /* of the device where that is this machine, else of that machine */
    double *seconds;                 /* (n) of one application of each node */
    uint8_t *is_measured;            /* (n) 1: `seconds` were measured; 0: a roofline gave them */
    double *seconds_again;           /* (n) of one application that reads a recomputed value, still in a cache */
    uint8_t *key2; /* (key2_bytes) what a plan depends on, without tags and decisions; a plan's key adds its recipe */
    int64_t key2_bytes;
};

/* Returns input i of a node: the number of a node. */
static inline int32_t wn__ir_in(const struct wn__ir *ir, int32_t node, int32_t i)
{
    return ir->in[ir->node[node].in_at + i];
}
/* Returns the flags of the node's op (op.def). */
static inline int32_t wn__ir_flags(const struct wn__ir *ir, int32_t node)
{
    return wn__op_flags(ir->node[node].op);
}
/* Returns what kernels and rules are told about a node of this IR. The types of inputs are those of the IR. */
static inline struct wn_desc wn__ir_desc_of(const struct wn__ir *ir, const struct wn__ir_node *p)
{
    return (struct wn_desc){
        .op = p->op, .n_in = p->n_in, .out = p->type, .in = ir->in_type + p->in_at, .attrs = p->attrs};
}
static inline struct wn_desc wn__ir_desc(const struct wn__ir *ir, int32_t node)
{
    return wn__ir_desc_of(ir, &ir->node[node]);
}
/* Returns whether the forward computes the node; a leaf is not computed, a bound node counts as if it were. */
static inline int32_t wn__ir_node_is_forward(const struct wn__ir_node *p)
{
    return p->phase == WN_PHASE_FORWARD && p->leaf == WN_LEAF_NONE;
}
static inline int32_t wn__ir_is_forward(const struct wn__ir *ir, int32_t node)
{
    return wn__ir_node_is_forward(&ir->node[node]);
}
/* Returns whether what the node reads of the forward is a residual: backward nodes, and an update whose kernel computes
 * the gradient's product too. */
static inline int32_t wn__ir_is_backward(const struct wn__ir *ir, int32_t node)
{
    return ir->node[node].phase == WN_PHASE_BACKWARD || ir->node[node].op == WN_OP_PRODUCT_UPDATE;
}
/* Returns whether the node is an effect that hangs on a forward value. These are the first of the effects, in the order
 * of recording. */
static inline int32_t wn__is_forward_effect(const struct wn__ir *ir, int32_t node)
{
    return ir->node[node].op == WN_OP_RUNNING_MEAN || ir->node[node].op == WN_OP_RUNNING_VAR;
}
/* Returns the node whose bytes the node's value is: the node itself, or the first of its chain of aliases. */
int32_t wn__ir_storage(const struct wn__ir *ir, int32_t node);
/* Returns whether a forward node reads a state, or a value that stands for one: reissued, or a weight. */
int32_t wn__ir_reads_state(const struct wn__ir *ir, int32_t node);
/* Returns whether the node's value is the bytes of its input 0 (a reshape). A result and a bound node have bytes of
 * their own. */
int32_t wn__ir_is_alias(const struct wn__ir *ir, int32_t node);
/* Drops a reference, and frees the IR with the last one. Does nothing for NULL. */
void wn__ir_unref(struct wn__ir *ir);

/* Returns whether a node asks of its input k only which elements are above 0: ReLU's gradient, alone or inside a fused
 * op. */
int32_t wn__ir_reads_sign(const struct wn__ir *ir, int32_t node, int32_t k);

/* Numbers the blocks, lists the residuals, and marks boundaries and reissued states (blocks.c). WN_OOM. */
int32_t wn__ir_blocks(struct wn__ir *ir);
/* Fills `last`, (n): the last forward node that reads a value or an alias of it; the node itself if none does. */
void wn__ir_last_readers(const struct wn__ir *ir, int32_t *last);
#endif
