/* The recorded graph: nodes, each one application of an op and its value, and cells, which hold state.
 *
 * Invariant: the op, the inputs, the attributes and the type of a node never change once it is recorded; only the
 * marks of passes, its name and whether its value is held do. Nodes and cells count references and are freed when
 * nothing counts one: nodes count their inputs, CELL nodes their cell, handles and programs what they name. Where a
 * comment says "counted", the reference is the caller's to give up. Only wn__node_drop_inputs takes inputs away, from
 * nodes that will not be computed any more. */
#ifndef WN_GRAPH_H
#define WN_GRAPH_H
#include <stdint.h>
#include "../base/alloc.h"
#include "../memory/ledger.h"
#include "../ops/op.h"

#define WN_NO_DEVICE (-1) /* device of a number of the host, which fits any device */
#define WN_DEEPEST 100000 /* applications above each other without a run point; recording one more fails */

/* The numbers of an optimizer. They may change between steps and are read when a program runs. */
struct wn__hyper {
    int32_t refs;
    double v[8];
};
/* Gives up a reference; NULL does nothing. */
static inline void wn__hyper_unref(struct wn__hyper *h)
{
    if (h != NULL && --h->refs == 0) wn__free(h);
}

struct wn_cell;
struct wn__template; /* custom.c: a gradient recorded ahead of time */
struct wn__past;     /* past.c: what a value was made of */

/* An effect that hangs on a value of the forward (forward_effect.c). */
struct wn__forward_effect {
    struct wn__forward_effect *next; /* the one recorded after it; NULL: it is the last */
    struct wn_cell *cell;            /* that it changes; counted */
    int32_t op;
    struct wn_attrs attrs;
};

/* One application of an op. Fields that counting, ordering and freeing read stand first, in one or two cache lines:
 * nodes wait for the caller's collector, so most of them are outside the caches when they are met. */
struct wn_node {
    int32_t refs, op, n_in;
    int32_t local;                      /* number in the program that is opened */
    int64_t seq;                        /* place in record order */
    int64_t stamp;                      /* of the last order that has the node */
    struct wn_node *forward_of;         /* of a node that differentiation emitted: the forward node that it serves */
    struct wn_cell *cell;               /* of a CELL: the cell that it reads; counted */
    struct wn__buffer *held;            /* the value, of an input or of a result with one dim or more; NULL: none */
    struct wn__hyper *hyper;            /* of a CONST of 8 numbers: an optimizer's; else NULL */
    struct wn__template *custom;        /* of a RESHAPE whose gradient a script gave; else NULL */
    struct wn__forward_effect *effects; /* in the order of recording; NULL: none */
    uint8_t effects_done;               /* 1: a program has carried its effects out */
    uint8_t needs_grad;                 /* 1: it depends on a cell that needs a gradient */
    uint8_t is_cut;                     /* 1: recorded where gradients are off, so that none flows through it */
    uint8_t is_held;                    /* 1: its value is there, in `held` or `number` */
    uint8_t retain;                     /* 1: the next program that reaches it makes it a result; data stays */
    uint8_t lasts;                      /* 1: it was retained before it was computed, and is made of no state */
    uint8_t issued;                     /* programs that have computed it, up to 3: a third one warns */
    uint8_t warned;                     /* 1: a warning was given that it is computed over and over */
    uint8_t phase;                      /* WN_PHASE */
    uint8_t spent;                      /* 1: a backward has used up its graph */
    uint8_t over_spent;                 /* 1: a value below it is spent, so no gradient can reach that value */
    uint8_t closed; /* 1: the last order takes its value as it is there when it runs, without what it is made of */
    uint8_t stale;  /* 1: a state below it changed before it was computed, or, of data, its bytes were drawn over */
    int32_t device, scope, region;
    int32_t line;        /* id of the source line; 0: not known */
    int32_t depth;       /* applications on the longest way to a leaf */
    int32_t root;        /* number of the pass whose differentiation emitted it */
    int32_t retained_at; /* its place, from 1, among the retained values that nothing computed yet; 0: it is none */
    int64_t version;     /* of a CELL: the version of the cell that it reads */
    const char *name;    /* interned; NULL: none */
    struct wn_type type;
    struct wn_attrs attrs;
    uint64_t seed, counter;      /* where its random numbers begin */
    double number;               /* the value of a CONST, or of a result without dims */
    const struct wn__past *past; /* what it was made of, once its inputs are dropped; NULL: of nothing */
    int64_t wanted;              /* stamp of the differentiation, or of the order, that asks for its gradient */
    struct wn_node *laid;        /* a RELAYOUT of it, the last that was recorded; NULL: none. Not counted */
    struct wn_node *grad;        /* the sum of its gradient so far, while a differentiation is under way */
    struct wn_node *slice; /* meanwhile: the first of its slices whose gradients wait; of such a slice: the next */
    struct wn_node *in[];  /* (n_in) counted */
};

/* A state. Invariant: of `buffer` and `slab` at most one is set; `allocated` is 1 only where `slab` is. */
struct wn_cell {
    int32_t refs, kind; /* kind: WN_KIND */
    int32_t device, needs_grad;
    int64_t version; /* from 1; each write makes a larger one, which no cell had before */
    int64_t serial;  /* place among all cells, in the order in which they were made */
    struct wn_type type;
    struct wn__buffer *buffer; /* the value; NULL: it has none yet, or is a gradient, whose value is in a slab */
    struct wn__slab *slab;     /* of a gradient; counted */
    int64_t slab_offset;       /* bytes from the start of the slab */
    int32_t allocated;         /* 1: a gradient that has a value */
    int32_t invalid;           /* 1: an effect failed half-way, and every use fails until the cell is written */
    struct wn_node *init;      /* the value that it begins with; NULL: it has begun. Counted */
    struct wn_node *reader;    /* the CELL node that reads the present version; not counted */
    struct wn_cell *grad;      /* the cell of its gradient; counted */
    const char *name;          /* interned; NULL: none */
    int64_t stamp;             /* of the last pass that met the cell */
    int32_t local;             /* number in the program that is opened */
    int64_t cleared;           /* number of the last sequence that dropped its gradient before any program */
    int32_t noted;             /* number, from 1, in the sequence under way (program/sequence.h); 0: it is not in it */
    int32_t is_sliced;         /* 1: each rank has the gradient and the states of its own range alone */
    int32_t is_sharded;        /* 1: and the value, too, whose `type` is that of the range then */
    int32_t is_tried;          /* 1: a sharded cell whose buffer has the whole: plans are made, and nothing runs */
    struct wn_node *unsharded; /* of a sharded cell that has not begun: what its whole would begin with. Counted */
    struct wn_type whole;      /* of the value that scripts see: `type`, but of a sharded cell */
    int32_t cut_start;         /* of the cut of a sliced cell (base/ranks.h) */
    int32_t laid;              /* the layout that it had before it was sliced */
    struct wn__range own;      /* of a sliced cell */
    struct wn__job *arriving;  /* the exchange that brings the ranges of others; NULL: they are there */
};
struct wn__job;
extern int64_t wn__cells_arriving;                    /* cells with one under way */
extern int32_t (*wn__cell_arrive)(struct wn_cell *c); /* waits for it; whoever starts it says how */
/* Waits until a cell has all that other ranks give it. Status: that of the link; the cell is invalid then. */
static inline int32_t wn__cell_settle(struct wn_cell *c)
{
    return c->arriving == NULL ? WN_OK : wn__cell_arrive(c);
}

/* ---- node.c --------------------------------------------------------------------------------------------------- */
/* Returns a node of zeros with room for n_in inputs, one reference and the next place in record order; NULL: WN_OOM. */
struct wn_node *wn__node_new(int32_t n_in);
/* Returns such a node without inputs: a leaf of an op, type and device. */
struct wn_node *wn__leaf_new(int32_t op, const struct wn_type *type, int32_t device);
static inline void wn__node_ref(struct wn_node *n)
{
    n->refs++;
}
/* Frees a node that nothing counts, and graphs of any depth without recursion. Cannot fail. */
void wn__node_free(struct wn_node *n);
/* Gives up a reference; NULL does nothing. */
static inline void wn__node_unref(struct wn_node *n)
{
    if (n != NULL && --n->refs == 0) wn__node_free(n);
}
/* Lets go of the inputs of a node that will not be computed any more: it is a leaf from then on. */
void wn__node_drop_inputs(struct wn_node *n);
/* Fails with WN_STALE: the bytes of a held value were freed, or drawn over. reader: what would read it; NULL: the
 * caller. */
int32_t wn__node_lost(const struct wn_node *n, const struct wn_node *reader);
/* Writes the number of a CONST, or of a result without dims, or all numbers of an optimizer, in the dtype of n. */
void wn__node_numbers_put(const struct wn_node *n, void *bytes);
/* Returns the place in record order of the last node made. */
int64_t wn__node_last(void);
/* Returns a number that no order and no pass had. */
int64_t wn__node_stamp(void);
/* Returns 1 if the value of a node needs no input. */
int32_t wn__node_is_leaf(const struct wn_node *n);
/* Returns 1 for data that last beyond the step that reads them first, as states do, and are not computed yet. They are
 * made before that step, so that it is the step that every later one is. */
static inline int32_t wn__node_is_missing(const struct wn_node *n)
{
    return n->lasts && !n->is_held;
}
/* Returns 1 if a and b are one value: one node, or readers of one version of one cell. */
int32_t wn__node_is_same(const struct wn_node *a, const struct wn_node *b);

/* ---- past.c --------------------------------------------------------------------------------------------------- */
/* Notes what n is made of, as far as gradients flow, before it drops its inputs. Cannot fail: where memory is short, n
 * may be made of anything. */
void wn__past_note(struct wn_node *n);
/* Returns 0 if n, which dropped its inputs, was not made of v; 1 if it was or may have been. */
int32_t wn__past_has(const struct wn_node *n, const struct wn_node *v);
void wn__past_free(const struct wn__past *past); /* NULL does nothing */

/* ---- retained.c ----------------------------------------------------------------------------------------------- */
struct wn__retained {
    struct wn_node *node;
    const void *by; /* the planned sequence whose function retained it, which computes nothing; NULL: none */
};
/* Put a node among the retained values that nothing computed yet (add), or take it out, if it is one (remove). Adding
 * notes whether it lasts. */
int32_t wn__retained_add(struct wn_node *n, const void *by);
void wn__retained_remove(struct wn_node *n);
void wn__retained_forget(const void *by); /* takes out those of a planned sequence */
/* Points *out at the list of these values, which the next change moves, and returns how many there are. */
int64_t wn__retained(const struct wn__retained **out);

/* ---- cell.c --------------------------------------------------------------------------------------------------- */
/* Makes a cell without storage, at version 1. Counted. */
int32_t wn__cell_new(int32_t kind, const struct wn_type *type, int32_t device, struct wn_cell **out);
static inline void wn__cell_ref(struct wn_cell *c)
{
    c->refs++;
}
void wn__cell_free(struct wn_cell *c); /* frees a cell that nothing counts */
/* Gives up a reference; NULL does nothing. */
static inline void wn__cell_unref(struct wn_cell *c)
{
    if (c != NULL && --c->refs == 0) wn__cell_free(c);
}
/* Fills *out with the node that reads the present version of a cell. Counted. */
int32_t wn__cell_reader(struct wn_cell *c, struct wn_node **out);
int32_t wn__cell_has_value(const struct wn_cell *c);
/* Takes storage for a cell that has none, and leaves its bytes unwritten. Gradients get theirs from a slab. */
int32_t wn__cell_materialise(struct wn_cell *c);
/* Returns the address of the bytes of a cell; NULL: it has none. */
void *wn__cell_data(const struct wn_cell *c);
/* Makes a new version: nodes recorded before read a version that is gone. */
void wn__cell_changed(struct wn_cell *c);
/* Takes it that the value of an earlier version is in the cell again: what read that version may read it. */
void wn__cell_restored(struct wn_cell *c, int64_t version);
/* Has each rank keep the gradient and the states of its own range of a cell alone, by a cut of it; one of no ranks: of
 * the whole. WN_VALUE: the cell has a gradient, or is sharded. */
int32_t wn__cell_slice(struct wn_cell *c, struct wn__cut cut, int32_t rank);
/* Has each rank keep the own range of the value of a sliced cell alone: for good, once it has begun. is_tried: leaves a
 * value whole, so that it can be taken back before anything runs. */
int32_t wn__cell_shard(struct wn_cell *c, int32_t is_tried);
/* Has each rank keep the value of a sharded cell again. WN_VALUE: it has begun, so that none has all of it. */
int32_t wn__cell_unshard(struct wn_cell *c);
/* Lets go of the values that a cell begins with: it has begun. */
void wn__cell_begun(struct wn_cell *c);
/* Returns the type of what a rank has of the gradient and of a state of a cell. */
struct wn_type wn__cell_own_type(const struct wn_cell *c);
/* Fills *out with the cell of the gradient, and makes it if there is none. Not counted. */
int32_t wn__cell_gradient(struct wn_cell *c, struct wn_cell **out);
/* Notes that a gradient has a value in its slab from now on, in the ledger too. */
void wn__cell_allocate(struct wn_cell *grad);
/* Ends the value of a gradient: its bytes are lent to activations again. */
void wn__cell_drop_own(struct wn_cell *grad);
/* Ends the value of the gradient of c, if it has one. */
void wn__cell_drop_gradient(struct wn_cell *c);
/* Copy n bytes of a cell, plain and row-major whatever its layout, from byte `at`, to the host and from it. Only
 * these two move bytes between a cell and the host. WN_VALUE past its end, or where there is no value; WN_STALE
 * where it is invalid. */
int32_t wn__cell_read(const struct wn_cell *c, int64_t at, void *bytes, int64_t n);
int32_t wn__cell_write(struct wn_cell *c, int64_t at, const void *bytes, int64_t n);
/* Makes the bytes that were written the value of the cell: a new version. */
void wn__cell_written(struct wn_cell *c);
/* Takes back a write that failed: a cell that had not begun is as it was, any other is invalid until it is written. */
void wn__cell_unwritten(struct wn_cell *c);

/* ---- scope.c -------------------------------------------------------------------------------------------------- */
/* A module under which nodes are recorded. */
struct wn__scope {
    int32_t parent;          /* id; -1: it is the root */
    const char *name, *type; /* "attn", "Attention"; interned */
    const char *path;        /* "blocks.3.attn"; interned */
};
/* A hash table of texts, open addressing; it doubles when half of its slots are taken. A zeroed struct is empty. */
struct wn__name {
    uint64_t hash;
    int32_t id; /* that the owner of the table gave it; -1: none */
    char *text; /* NULL: the slot is empty */
};
struct wn__names {
    struct wn__name *slot; /* (capacity) */
    int64_t capacity, count;
};
/* Return the entry of a text, valid until the next text is added: made with id -1 when it is new, NULL: WN_OOM (get);
 * NULL when there is none (known). */
struct wn__name *wn__names_get(struct wn__names *w, const char *text);
const struct wn__name *wn__names_known(const struct wn__names *w, const char *text);
void wn__names_release(struct wn__names *w); /* frees all texts and leaves an empty table */
/* Returns the one copy of a text that lives as long as the process; NULL: WN_OOM. */
const char *wn__intern(const char *text);
/* Returns the id of a scope, the same for equal arguments, or -(status). */
int32_t wn__scope_of(int32_t parent, const char *name, const char *type, int32_t variant);
/* Returns a scope, the root for an id that is none. Valid until the next wn__scope_of. */
const struct wn__scope *wn__scope_get(int32_t id);
/* Returns the id of a new region inside another (0: none), or -(status). */
int32_t wn__region_new(int32_t parent, const char *name);
int32_t wn__region_parent(int32_t id); /* returns 0 for a region inside none */
/* Returns the id of a text "file:line", the same for equal texts; 0 when memory is short. */
int32_t wn__line_of(const char *text);
const char *wn__line_text(int32_t id); /* returns "" for 0 */

/* ---- record.c ------------------------------------------------------------------------------------------------- */
extern struct wn_context wn__here; /* the place where recording stands */
/* Records one application of an op. in: (n); attrs: NULL for none. Fails as the rules of the op do, with WN_DEVICE for
 * inputs on two devices, and with WN_VALUE above WN_DEEPEST. Counted. */
int32_t wn__record(int32_t op, int32_t n, struct wn_node *const *in, const struct wn_attrs *attrs, int32_t line,
                   struct wn_node **out);
/* Returns the layout that input i must have, by a RELAYOUT where it has another, before the op is recorded. */
int32_t wn__wanted_layout(int32_t op, int32_t n, struct wn_node *const *in, const struct wn_attrs *attrs, int32_t i);
/* Fills *out with v in a layout: v itself, a RELAYOUT of it, or of a plain one of it, since a RELAYOUT has a plain
 * value on one of its sides. Counted. */
int32_t wn__record_layout(struct wn_node *v, int32_t layout, int32_t line, struct wn_node **out);
/* Records numbers of the host: n = 0 one number of shape (), n = 1 to 8 a vector (n). Counted. */
int32_t wn__record_const(const double *v, int32_t n, int32_t dtype, struct wn_node **out);
/* Records the 8 numbers of an optimizer, as they are when a program runs. Counted. */
int32_t wn__record_hyper(struct wn__hyper *h, struct wn_node **out);

/* ---- forward_effect.c ----------------------------------------------------------------------------------------- */
/* Lets the program that computes a value first change a buffer by it: RUNNING_MEAN or RUNNING_VAR. WN_VALUE, WN_SHAPE,
 * WN_DEVICE: the value, the op or the buffer does not fit. */
int32_t wn__node_affect(struct wn_node *value, int32_t op, struct wn_cell *cell, const struct wn_attrs *attrs);
void wn__forward_effects_free(struct wn__forward_effect *first); /* NULL does nothing */

/* ---- elsewhere.c ---------------------------------------------------------------------------------------------- */
/* Records n, and all it is made of, again on another device, where it will have the same bits: the same numbers at
 * random, in the plain layout. *out becomes NULL where that is not known of one of its ops. Counted. */
int32_t wn__record_elsewhere(struct wn_node *n, int32_t device, struct wn_node **out);
/* Records the elements of a range of a value of one dim or more, as one row: made again by themselves where the ops of
 * the value allow it, else taken out of the whole. *out is counted. */
int32_t wn__record_range(struct wn_node *value, struct wn__range own, struct wn_node **out);

/* ---- custom.c ------------------------------------------------------------------------------------------------- */
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
void wn__template_unref(struct wn__template *t); /* NULL does nothing */
/* Returns the number of inputs that get gradients: in[1 .. count] of a node with the template. */
int32_t wn__template_count(const struct wn__template *t);

/* ---- topological.c -------------------------------------------------------------------------------------------- */
/* The nodes that a set of roots reaches. */
struct wn__order {
    struct wn_node **nodes; /* (count) in record order; not counted */
    int64_t count, capacity;
    struct wn_node *const *from; /* (n_from) roots that gradients start from; not counted. NULL: there is no gradient */
    int32_t n_from;
    int64_t reach; /* stamp of the values that gradients from them reach; 0: not asked for yet */
};
/* Appends what `roots`, (n), reach to `w`, in record order, except nodes that carry the stamp already. A held value is
 * closed, and what it is made of is left out, unless a gradient from the roots w->from reaches it; where there are such
 * roots, so are data that are missing. WN_STALE and WN_SPENT name the value that cannot be computed any more. */
int32_t wn__topological_order(struct wn_node *const *roots, int32_t n, int64_t stamp, struct wn__order *w);
/* Sets *is to 1 if n reads a value that the order of `stamp` computes, or is one; to 0 if it does not, and to -1 if it
 * cannot be computed any more. */
int32_t wn__order_shares(struct wn_node *n, int64_t stamp, int32_t *is);
void wn__order_release(struct wn__order *w);
/* Appends a node to a list of nodes, whatever they are of. WN_OOM. */
int32_t wn__order_push(struct wn__order *w, struct wn_node *n);
/* Appends a node that does not carry the mark in `wanted` yet, and marks it. WN_OOM. */
int32_t wn__order_want(struct wn__order *w, struct wn_node *n, int64_t mark);
/* Compares two pointers to nodes by their places in record order, for qsort. */
int wn__node_by_record(const void *a, const void *b);
/* Fails with WN_SPENT: a gradient would have to flow into n, a root whose own backward used its graph up. */
int32_t wn__order_refuse_spent(const struct wn_node *n);

/* ---- grad.c --------------------------------------------------------------------------------------------------- */
/* The outcome of differentiating. */
struct wn__grads {
    struct wn_node **nodes; /* (count) emitted, in order; counted */
    int64_t count, capacity;
    struct wn_cell **cells;  /* (n_cells) reached, in the order in which their first gradients were complete */
    struct wn_node **values; /* (n_cells) their gradients; counted only as `nodes` */
    int64_t n_cells, cells_capacity, values_capacity;
    struct wn_node *norm; /* that clipping computed, of shape (); NULL: nothing was clipped. Counted only as `nodes` */
};
/* One pass of differentiation, over what its roots reach. */
struct wn__pass {
    struct wn__order forward;     /* what the roots reach; `from` is the caller's, the rest belongs to the pass */
    struct wn_node *const *roots; /* (n_roots) */
    int32_t n_roots;
    int32_t root;               /* number of the pass */
    double scale;               /* d(root)/d(root) */
    struct wn_node *const *wrt; /* (n_wrt) values whose gradients alone are asked for; NULL: cells */
    int32_t n_wrt;
    const struct wn_cell *const *only; /* (n_only) cells asked for; NULL: every cell that needs a gradient */
    int32_t n_only;
};
/* Differentiates the roots of a pass and adds to `g`: a cell that an earlier pass reached gets the sum.
 * WN_UNSUPPORTED names an op without a gradient rule that a gradient flows into. */
int32_t wn__grad_pass(struct wn__pass *pass, struct wn__grads *g);
void wn__grads_release(struct wn__grads *g);

/* ---- clip.c --------------------------------------------------------------------------------------------------- */
/* Scales the gradients in `g` of the cells that the last pass was asked for, in their order, so that their joint 2-norm
 * is at most the limit, a value of shape (), f32, or f64 where the gradients are. */
int32_t wn__grad_clip(const struct wn__pass *last, struct wn_node *limit, struct wn__grads *g);

/* ---- exchange.c ----------------------------------------------------------------------------------------------- */
/* Says how a backward goes on among ranks. */
struct wn__ranks {
    int32_t size, rank;
    int32_t team;  /* so many consecutive ranks share a machine */
    int32_t given; /* so many ranks, the first ones, give gradients; of partial sums of teams, so many teams; 0: there
                          is no exchange */
    int32_t is_shared;   /* each pass is one micro-batch of a partial sum, whose others are those of the team */
    int32_t is_idle;     /* this one gives none */
    int32_t has_no_part; /* and needs not compute any: no rank gathers states from it meanwhile */
    int32_t is_last;     /* every rank gets the sums */
};
/* Returns the group that a rank's own ranges go to first: those of other teams, which share them inside of each then;
 * or all, where there is one team, or teams of one. */
static inline int32_t wn__first_group(const struct wn__ranks *r)
{
    return r->team > 1 && r->team < r->size ? WN_GROUP_ACROSS : WN_GROUP_ALL;
}
/* Fills in the attributes of what ranks exchange of a sliced cell. */
void wn__cut_attrs(const struct wn__ranks *ranks, const struct wn_cell *c, struct wn_attrs *attrs);
/* Puts in the place of each gradient in `g` what all ranks give for the own range of its cell. */
int32_t wn__grad_exchange(const struct wn__pass *last, const struct wn__ranks *ranks, struct wn__grads *g);
/* Differentiates the root of a pass of a shared partial sum, and adds to `g` what the team gives: the values there are
 * this rank's shares of the partial sum so far; of the last pass, what all teams give for the own range of a cell. */
int32_t wn__grad_share(struct wn__pass *pass, const struct wn__ranks *ranks, int32_t is_last, struct wn__grads *g);
/* Puts in the place of the first of n values of one dim what all ranks give of all of them, whole, behind each other,
 * which belongs to `g`. */
int32_t wn__values_exchange(const struct wn__pass *last, const struct wn__ranks *ranks, struct wn_node **value,
                            int32_t n, struct wn__grads *g);
#endif
