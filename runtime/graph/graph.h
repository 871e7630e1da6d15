/* The recorded graph: nodes, each one application of an op and its value, and cells, which hold state.
 *
 * A node never changes once it is recorded, but for whether its value is held. Nodes and cells are freed when
 * nothing counts a reference: nodes count their inputs, handles and programs what they name. */
#ifndef WN_GRAPH_H
#define WN_GRAPH_H
#include <stdint.h>
#include "../memory/ledger.h"
#include "../ops/op.h"

#define WN_NO_DEVICE (-1) /* a number of the host fits any device */
#define WN_DEEPEST                                                                                                     \
    100000 /* applications above each other without a run; recording more fails, for want of a run point */

/* The numbers of an optimizer. They may change between steps and are read when a program runs. */
struct wn__hyper {
    int32_t refs;
    double v[8];
};

struct wn_cell;
struct wn__template; /* custom.c: a gradient recorded ahead of time */

/* Fields that counting, ordering and freeing read stand first, in one or two cache lines: nodes wait for the caller's
 * collector, so most of them are outside the caches when they are met. */
struct wn_node {
    int32_t refs, op, n_in;
    int32_t local;               /* number in the program that is being made */
    int64_t seq;                 /* record order */
    int64_t stamp;               /* of the last order that took the node in */
    struct wn_node *forward_of;  /* of a node that differentiation emitted: the forward node that it serves */
    struct wn_cell *cell;        /* of a CELL: the state that it reads */
    struct wn__buffer *held;     /* the value, of an input or of a result with one dim or more; NULL: none */
    struct wn__hyper *hyper;     /* of a CONST of 8 numbers: an optimizer's; else NULL */
    struct wn__template *custom; /* of a RESHAPE whose gradient a script gave; else NULL */
    uint8_t needs_grad, is_held, retain, warned, issued, phase;
    uint8_t spent;      /* a backward has used it up */
    uint8_t over_spent; /* a value below it is spent, so no gradient can reach that one */
    uint8_t stale;      /* a state below it changed before it was computed, so it cannot be computed any more */
    int32_t device, scope, region, line, depth;
    int32_t root;     /* number of the root whose differentiation emitted it */
    int64_t version;  /* of a CELL: the version of the state that it reads */
    const char *name; /* interned; NULL: none */
    struct wn_type type;
    struct wn_attrs attrs;
    uint64_t seed, counter; /* where its random numbers begin */
    double number;          /* the value of a CONST, or of a result without dims */
    int64_t wanted;         /* stamp of the differentiation that asks for its gradient */
    struct wn_node *grad;   /* its gradient so far, while a differentiation is under way */
    struct wn_node *in[];
};

struct wn_cell {
    int32_t refs, kind, device, needs_grad;
    int64_t version, serial;
    struct wn_type type;
    struct wn__buffer *buffer; /* the value; NULL: it has none yet, or is a gradient, whose value is in a slab */
    struct wn__slab *slab;
    int64_t slab_offset;
    int32_t allocated;      /* of a gradient: it has a value */
    int32_t invalid;        /* an effect failed half-way: every use fails until the cell is written */
    struct wn_node *init;   /* the value that it begins with */
    struct wn_node *reader; /* the CELL node that reads the present version; not counted */
    struct wn_cell *grad;   /* the cell of its gradient; counted */
    const char *name;
    int64_t stamp;
    int32_t local;
    int32_t rehearsed; /* its number, from 1, in the rehearsal under way: program/rehearse.h; 0: not in it */
};

/* ---- node.c */
struct wn_node *wn__node_new(int32_t n_in); /* returns a node with one reference; NULL: no memory */
void wn__node_ref(struct wn_node *n);
int64_t wn__node_last(void);            /* returns the seq of the last node made */
void wn__node_unref(struct wn_node *n); /* frees chains of any depth without recursion */
void wn__node_drop_inputs(struct wn_node *n);
int64_t wn__node_stamp(void);                      /* returns a number that no order had */
int32_t wn__node_is_leaf(const struct wn_node *n); /* returns 1 if its value needs no input */

/* ---- cell.c */
int32_t wn__cell_new(int32_t kind, const struct wn_type *type, int32_t device, struct wn_cell **out);
void wn__cell_ref(struct wn_cell *c);
void wn__cell_unref(struct wn_cell *c);
int32_t wn__cell_reader(struct wn_cell *c, struct wn_node **out); /* counted */
int32_t wn__cell_has_value(const struct wn_cell *c);
int32_t wn__cell_materialise(struct wn_cell *c); /* takes storage; leaves it unwritten */
void *wn__cell_data(const struct wn_cell *c);
void wn__cell_changed(struct wn_cell *c);                           /* a new version */
int32_t wn__cell_gradient(struct wn_cell *c, struct wn_cell **out); /* makes the cell; not counted */
void wn__cell_give_birth(struct wn_cell *grad);
void wn__cell_drop_own(struct wn_cell *grad);   /* a gradient's value ends: its bytes are lent to activations again */
void wn__cell_drop_gradient(struct wn_cell *c); /* the same of c's gradient, if it has one */
/* The one pair through which a cell's bytes, plain and row-major, meet the host, whatever its layout; `n` of them
 * from `at`. Written bytes become the cell's value with wn__cell_written; after a failure wn__cell_unwritten puts a
 * cell that had not begun back to its beginning, and makes any other invalid: every use of it says so, until it is
 * written. */
int32_t wn__cell_read(const struct wn_cell *c, int64_t at, void *bytes, int64_t n);
int32_t wn__cell_write(struct wn_cell *c, int64_t at, const void *bytes, int64_t n);
void wn__cell_written(struct wn_cell *c);
void wn__cell_unwritten(struct wn_cell *c);

/* ---- scope.c: interned words, module paths, checkpoint regions, source lines */
struct wn__scope {
    int32_t parent;
    const char *name, *type, *path;
};
const char *wn__intern(const char *text); /* NULL: WN_OOM */
/* id or -(status) */
int32_t wn__scope_of(int32_t parent, const char *name, const char *type, int32_t variant);
const struct wn__scope *wn__scope_get(int32_t id);
int32_t wn__scope_is(int32_t id); /* 1: there is such a scope */
int32_t wn__region_new(int32_t parent, const char *name);
int32_t wn__region_parent(int32_t id);
int32_t wn__region_is(int32_t id);
int32_t wn__line_of(const char *text);
const char *wn__line_text(int32_t id);

/* ---- record.c */
struct wn__context { /* where recording stands */
    int32_t scope, region, grad_off, device;
    uint64_t seed, counter;
};
extern struct wn__context wn__here;
int32_t wn__record(int32_t op, int32_t n, struct wn_node *const *in, const struct wn_attrs *attrs, int32_t line,
                   struct wn_node **out); /* counted */
/* Whether input i must be made plain (WN_OP_RELAYOUT) before it is recorded as one. */
int32_t wn__must_be_plain(int32_t op, int32_t n, struct wn_node *const *in, const struct wn_attrs *attrs, int32_t i);
/* The value in another layout: itself, or a RELAYOUT of it. Counted. */
int32_t wn__record_layout(struct wn_node *v, int32_t layout, int32_t line, struct wn_node **out);
int32_t wn__record_const(const double *v, int32_t n, int32_t dtype, struct wn_node **out);
int32_t wn__record_hyper(struct wn__hyper *h, struct wn_node **out);

/* ---- custom.c */
/* A custom gradient. Invariant: x and r have n entries each, and r[i] has the type of x[i]. */
struct wn__custom {
    struct wn_node *y; /* the value that gets the gradient */
    int32_t n;
    struct wn_node *const *x;          /* (n) what y was computed from */
    const struct wn_node *placeholder; /* stands for dy in what r was recorded with */
    struct wn_node *const *r;          /* (n) the gradient of x[i]; NULL: none */
};
/* Records y with the gradients that `c` gives. WN_SHAPE: a gradient has another type than its tensor. Counted. */
int32_t wn__record_custom(const struct wn__custom *c, int32_t line, struct wn_node **out);
void wn__template_unref(struct wn__template *t);

/* ---- grad.c */
struct wn__grads {          /* the outcome of differentiating */
    struct wn_node **nodes; /* emitted, in order; counted */
    int64_t count, capacity;
    struct wn_cell **cells;  /* reached, in order of first contribution's completion */
    struct wn_node **values; /* their gradients; not counted beyond nodes */
    int64_t n_cells, cells_capacity, values_capacity;
};
/* Differentiates `roots` in one pass and adds to `g`: a cell reached before gets the sum. `forward` is what
 * the roots reach, in record order. When `wrt` is given, only those values' gradients are wanted. */
struct wn__pass {
    struct wn_node *const *forward; /* (n_forward) */
    int64_t n_forward;
    struct wn_node *const *roots;
    int32_t n_roots, root; /* root: number of the pass */
    double scale;
    struct wn_node *const *wrt; /* (n_wrt) or NULL: cells */
    int32_t n_wrt;
    const struct wn_cell *const *only; /* (n_only) or NULL: every cell that needs a gradient */
    int32_t n_only;
};
int32_t wn__grad_pass(const struct wn__pass *pass, struct wn__grads *g);
void wn__grads_release(struct wn__grads *g);
/* clip.c: scales the gradients of `cell` in `g`, so that their joint 2-norm is at most `limit`. */
struct wn__clip {
    struct wn_cell *const *cell; /* every third of (3 n_cells): the parameters of a step's updates, in order */
    int32_t n_cells, pass;       /* pass: number of the last one */
    struct wn_node *limit;       /* a 0-d value of f32, or of f64 where the gradients are */
    struct wn_node *root;
};
int32_t wn__grad_clip(const struct wn__clip *clip, struct wn__grads *g);

/* ---- topological.c */
struct wn__order {
    struct wn_node **nodes; /* in record order; not counted */
    int64_t count, capacity;
};
/* Appends to `w` what `roots` reach, in record order, but for nodes that carry the stamp already. Passes through held
 * values only where their gradient may be asked for. WN_STALE and WN_SPENT name the value. */
int32_t wn__topological_order(struct wn_node *const *roots, int32_t n, int32_t through_held, int64_t stamp,
                              struct wn__order *w);
void wn__order_release(struct wn__order *w);
#endif
