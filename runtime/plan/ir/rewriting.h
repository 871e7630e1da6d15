/* A rewrite under way: what the patterns of rewrite.c share. Only the files of rewrites include this header. */
#ifndef WN_PLAN_IR_REWRITING_H
#define WN_PLAN_IR_REWRITING_H
#include "ir.h"

enum {
    WN_REWRITE_INPUTS = 8,
    NEGLIGIBLE_PART = 16
}; /* of a rewritten node; up to 1/16 of a value's bytes count as none */

/* The inputs of a rewritten node. */
struct wn__rewrite_inputs {
    int32_t n, node[WN_REWRITE_INPUTS];
};
/* The op, attributes and inputs that a node gets. Invariant: the node's own type is what `op` makes of these inputs. */
struct wn__fusion {
    int32_t op;
    const struct wn_attrs *attrs;
    const struct wn__rewrite_inputs *in;
};
/* A rewrite under way. Invariant: readers and last hold for the nodes as rewritten so far; those of an absorbed node
 * are not read any more. */
struct wn__rewriting {
    struct wn__ir *ir;
    struct wn__pool scratch;
    int32_t *readers;   /* (n) inputs of all nodes that are this value */
    int32_t *last;      /* (n) the last node that reads the value's bytes, through aliases too; itself if none does */
    int32_t *at;        /* (n) index of the node's window; -1: it has its recorded inputs */
    int32_t *cell_last; /* (n_cells) the last backward node that reads the state; NULL until the first update */
    int32_t *cell_forward;             /* (n_cells) inputs of forward nodes that are the state */
    uint8_t *cell_written;             /* (n_cells) 1: an effect of this program writes the state */
    struct wn__rewrite_inputs *window; /* (n_windows) */
    int64_t n_windows, capacity;
    int32_t code; /* WN_OK, or the first failure */
};

/* Return the number of inputs of node i as rewritten so far, input k of it, and all of them: at most
 * WN_REWRITE_INPUTS. */
int32_t wn__rewrite_n_inputs(const struct wn__rewriting *w, int32_t i);
int32_t wn__rewrite_input(const struct wn__rewriting *w, int32_t i, int32_t k);
struct wn__rewrite_inputs wn__rewrite_inputs(const struct wn__rewriting *w, int32_t i);
/* Returns whether the run computes node i: it is no leaf, and not bound. */
int32_t wn__rewrite_is_computed(const struct wn__ir *ir, int32_t i);
/* Returns the computed node whose value is input k of node i, if it has no other reader, is no result, and is of the
 * same phase, root and region as i; else -1. With `through`, aliases may lie between the two if each has one reader. */
int32_t wn__rewrite_sole(const struct wn__rewriting *w, int32_t i, int32_t k, int32_t through);
/* Returns whether computing p at the place of c costs no memory: the values computed between them are negligible, or
 * the inputs that only p needs until then take no more bytes than p's own value. */
int32_t wn__rewrite_may_wait(const struct wn__rewriting *w, int32_t p, int32_t c);
/* Returns whether a kernel of the op reads the inputs of `to` in the layouts and dtypes that they have. */
int32_t wn__rewrite_fits(const struct wn__rewriting *w, int32_t i, const struct wn__fusion *to);
/* Makes node i what `to` says and marks p, the value of its input k, as absorbed. Returns 1; 0, where no kernel reads
 * the inputs and nothing was changed, or after a failure. */
int32_t wn__rewrite_replace(struct wn__rewriting *w, int32_t i, int32_t k, int32_t p, const struct wn__fusion *to);
/* Makes node i, which absorbs nothing any more, what `to` says. Returns 1, or 0 after a failure. */
int32_t wn__rewrite_become(struct wn__rewriting *w, int32_t i, const struct wn__fusion *to);

/* ---- patterns: each returns 1 if it replaced node i by what it makes of input k, or at k = 0 of all inputs ------- */
/* Fuses a product with the elementwise op that reads it: a linear layer and its activation, or a gradient through
 * one. */
int32_t wn__rewrite_map_product(struct wn__rewriting *w, int32_t i, int32_t k);
/* Fuses a layer norm's gradient with the gradient of the residual connection that is added to it. */
int32_t wn__rewrite_add_to_norm(struct wn__rewriting *w, int32_t i, int32_t k);
/* Lets the loss of the rows of a log_softmax, and log_softmax_grad (node i) of that loss's gradient, read the logits.
 * The log_softmax becomes the statistics of their rows, so no probability is written or kept. */
int32_t wn__rewrite_row_loss(struct wn__rewriting *w, int32_t i, int32_t k);
/* Fuses a product over at most WN_PRODUCT_UPDATE_ROWS rows with the update that reads it. */
int32_t wn__rewrite_update_by_product(struct wn__rewriting *w, int32_t i, int32_t k);
/* Fuses elementwise node i with the elementwise node that is its input. One set of numbers in attributes is
 * allowed. */
int32_t wn__rewrite_fused(struct wn__rewriting *w, int32_t i, int32_t k);
/* Fuses a convolution, and the steps over it so far, with the elementwise node i that reads it, or with a batch norm
 * whose statistics are given. */
int32_t wn__rewrite_map_conv(struct wn__rewriting *w, int32_t i, int32_t k);
/* Fuses elementwise node i with the batch norm that it reads, or with the steps over one: relu, or add and relu. */
int32_t wn__rewrite_map_norm(struct wn__rewriting *w, int32_t i, int32_t k);
/* Fuses node g, relu's gradient, with both derivatives of the batch norm under the relu. Tried before elementwise: what
 * g is the gradient of need not be read then. */
int32_t wn__rewrite_relu_into_norm(struct wn__rewriting *w, int32_t g, int32_t k);

/* ---- casts (casts.c) ---------------------------------------------------------------------------------------- */
/* Takes casts into the ops beside them, where the target's kernels load and store by type. */
void wn__rewrite_casts(struct wn__rewriting *w);

/* ---- rows (rows.c) ------------------------------------------------------------------------------------------- */
/* Lays values out in padded rows, in an IR that is rewritten. WN_OOM. */
int32_t wn__ir_rows(struct wn__ir *ir, struct wn__pool *scratch);
#endif
