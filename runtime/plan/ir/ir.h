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

typedef int32_t wn__slots[3];

/* The fields of the structs below are the rows of ir.def. */

/* One node. Invariants: every input has a smaller number than the node itself; a leaf and an absorbed node have no
 * inputs; no node names an absorbed one as its input. */
struct wn__ir_node {
#define NODE(class, write, type, name) type name;
#include "ir.def"
};

/* A state that the program reads or writes. Invariants: slab >= 0 exactly if allocated_here; allocated_here and shares
 * are 0 unless the kind is WN_KIND_GRADIENT. */
struct wn__ir_cell {
#define CELL(class, write, type, name) type name;
#include "ir.def"
};
/* A slab (memory/ledger.h) in which gradients are allocated. */
struct wn__ir_slab {
#define SLAB(class, write, type, name) type name;
#include "ir.def"
};

/* The IR of one program. Arrays are in `pool` and live as long as the IR. After assembly nothing in it changes; what a
 * policy says of its nodes is beside it (marks.h). */
struct wn__ir {
#define IR(class, write, type, name) type name;
#include "ir.def"
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
static inline void wn__ir_desc_to(const struct wn__ir *ir, const struct wn__ir_node *p, struct wn_desc *d)
{
    d->op = p->op, d->n_in = p->n_in, d->in = ir->in_type + p->in_at, d->out = p->type, d->attrs = p->attrs;
}
static inline struct wn_desc wn__ir_desc_of(const struct wn__ir *ir, const struct wn__ir_node *p)
{
    struct wn_desc d;
    wn__ir_desc_to(ir, p, &d);
    return d;
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
/* Returns whether the node is an effect that hangs on a forward value. These are the first of the effects, in the order
 * of recording. */
static inline int32_t wn__is_forward_effect(const struct wn__ir *ir, int32_t node)
{
    return ir->node[node].op == WN_OP_RUNNING_MEAN || ir->node[node].op == WN_OP_RUNNING_VAR;
}
/* Returns whether a node changes a state that a later program can read: an effect does, unless it is on a gradient that
 * this program allocates. */
int32_t wn__ir_changes_state(const struct wn__ir *ir, int32_t node);
/* Returns how many states a program gathers from ranks. */
int32_t wn__ir_gathers(const struct wn__ir *ir);
/* Tells whether a node updates the own range of a state, of which each rank has another. */
static inline int32_t wn__ir_updates_range(const struct wn__ir *ir, int32_t node)
{
    const struct wn__ir_node *q = &ir->node[node];
    if (wn__optimizer_cells(q->op) == 0) return 0;
    const struct wn__ir_node *gradient = &ir->node[ir->in[q->in_at]];
    return gradient->leaf == WN_LEAF_CELL && ir->cell[gradient->slot].is_range;
}
/* Returns the node whose bytes the node's value is: the node itself, or the first of its aliases. */
int32_t wn__ir_storage(const struct wn__ir *ir, int32_t node);
/* Returns whether a forward node reads a state, or a value that stands for one: reissued, or a weight. */
int32_t wn__ir_reads_state(const struct wn__ir *ir, int32_t node);
/* Returns whether the node's value is the bytes of its input 0 (a reshape). A result and a bound node have bytes of
 * their own. */
int32_t wn__ir_is_alias(const struct wn__ir *ir, int32_t node);
/* Adds a reference; drops one, and frees the IR with the last one. The second does nothing for NULL. */
const struct wn__ir *wn__ir_ref(const struct wn__ir *ir);
void wn__ir_unref(const struct wn__ir *ir);

/* Returns whether a node asks of its input k only which elements are above 0: ReLU's gradient, alone or inside a fused
 * op. */
int32_t wn__ir_reads_sign(const struct wn__ir *ir, int32_t node, int32_t k);

/* Numbers the blocks, lists the residuals, and marks boundaries and reissued states (blocks.c). WN_OOM. */
int32_t wn__ir_blocks(struct wn__ir *ir);
/* Fills `last`, (n): the last forward node that reads a value or an alias of it; the node itself if none does. */
void wn__ir_last_readers(const struct wn__ir *ir, int32_t *last);
/* Rewrites an IR that has all its nodes and no blocks yet, and sets ir->recorded. WN_OOM. */
int32_t wn__ir_rewrite(struct wn__ir *ir);
/* Returns the names of the recorded ops that an application computes: "linear+relu". The text lives as long as the
 * library. */
const char *wn__op_text(int32_t op, const struct wn_attrs *attrs);
static inline const char *wn__ir_op_text(const struct wn__ir *ir, int32_t node)
{
    return wn__op_text(ir->node[node].op, &ir->node[node].attrs);
}
/* 1: wn__ir_rewrite rewrites; 0: it leaves every node as recorded, for specs that compare. Part of a plan's key. */
extern int32_t wn__rewrite_on;
/* 1: values get padded rows where rows.c says so; 0: none does (WANE_CUDA_ROWS=off). Part of a plan's key. */
extern int32_t wn__rows_on;
#endif
