/* Rewrites an IR: replaces patterns of nodes by one node whose op a single kernel computes (operator fusion), before a
 * policy decides anything about the graph.
 *
 *   recorded    4: linear(x, w, b)    5: relu(4)    6: linear(5, v, c)
 *   rewritten   4: absorbed by 5      5: linear+relu(x, w, b)    6: linear(5, v, c)
 *
 * A rewrite depends on the graph alone, never on a policy, a budget or a number of threads. So every plan of a graph
 * runs the same kernels and gives the same bits; and a fused kernel gives the bits of the nodes that it replaces,
 * because kernels/scalar.h holds each formula once. The last node of a pattern takes over the inputs of the others,
 * which are absorbed: no node reads them, so they are never issued. It keeps its number, name, scope and recorded op
 * (ir->recorded), which policies and reports see.
 *
 * A node is replaced only if a kernel of the new op reads every operand in the layout and dtype that it has
 * (wn__op_reads). `replace` is the only function that makes a node another op.
 *
 * A value is absorbed only where that costs no memory: it has one reader, and computing it later keeps no more bytes
 * alive until then than the value itself would take, or next to nothing is computed in between.
 *
 * A new pattern is a function that looks at the last node of the pattern, a row in `patterns`, and a record in
 * spec/rewrite_spec.lua that shows equal bits and fewer bytes. */
#include "rewrite.h"
#include <stdio.h>
#include <string.h>
#include "ir.h"

enum { MAX_INPUTS = 8, NEGLIGIBLE_PART = 16 }; /* of a rewritten node; up to 1/16 of a value's bytes count as none */

/* The inputs of a rewritten node. */
struct window {
    int32_t n, node[MAX_INPUTS];
};
/* The op, attributes and inputs that a node gets. Invariant: the node's own type is what `op` makes of these inputs. */
struct fusion {
    int32_t op;
    const struct wn_attrs *attrs;
    const struct window *in;
};
/* A rewrite under way. Invariant: readers and last hold for the nodes as rewritten so far; those of an absorbed node
 * are not read any more. */
struct rewriting {
    struct wn__ir *ir;
    struct wn__pool scratch;
    int32_t *readers;   /* (n) inputs of all nodes that are this value */
    int32_t *last;      /* (n) the last node that reads the value's bytes, through aliases too; itself if none does */
    int32_t *at;        /* (n) index of the node's window; -1: it has its recorded inputs */
    int32_t *cell_last; /* (n_cells) the last backward node that reads the state; NULL until the first update */
    int32_t *cell_forward; /* (n_cells) inputs of forward nodes that are the state */
    uint8_t *cell_written; /* (n_cells) 1: an effect of this program writes the state */
    struct window *window; /* (n_windows) */
    int64_t n_windows, capacity;
    int32_t code; /* WN_OK, or the first failure */
};

static int32_t n_inputs(const struct rewriting *w, int32_t i)
{
    return w->at[i] >= 0 ? w->window[w->at[i]].n : w->ir->node[i].n_in;
}

static int32_t input(const struct rewriting *w, int32_t i, int32_t k)
{
    return w->at[i] >= 0 ? w->window[w->at[i]].node[k] : wn__ir_in(w->ir, i, k);
}

static int32_t is_computed(const struct wn__ir *ir, int32_t i)
{
    const struct wn__ir_node *p = &ir->node[i];
    return p->leaf == WN_LEAF_NONE && !p->bound;
}

/* Returns the computed node whose value is input k of node i, if it has no other reader, is no result, and is of the
 * same phase, root and region as i; else -1. With `through`, aliases may lie between the two if each has one reader. */
static int32_t sole(const struct rewriting *w, int32_t i, int32_t k, int32_t through)
{
    const struct wn__ir *ir = w->ir;
    int32_t v = input(w, i, k);
    for (; wn__ir_is_alias(ir, v); v = input(w, v, 0))
        if (!through || w->readers[v] != 1) return -1;
    const struct wn__ir_node *p = &ir->node[v], *by = &ir->node[i];
    if (!is_computed(ir, v) || w->readers[v] != 1 || p->result >= 0 || p->region != by->region) return -1;
    return p->phase == by->phase && p->root == by->root ? v : -1;
}

/* Returns whether computing p at the place of c costs no memory: the values computed between them are negligible, or
 * the inputs that only p needs until then take no more bytes than p's own value. */
static int32_t may_wait(const struct rewriting *w, int32_t p, int32_t c)
{
    const struct wn__ir *ir = w->ir;
    int64_t made = 0, kept = 0;
    for (int32_t i = p + 1; i < c; i++)
        if (is_computed(ir, i) && ir->node[i].absorbed_by < 0 && !wn__ir_is_alias(ir, i)) made += ir->node[i].bytes;
    for (int32_t k = 0; k < n_inputs(w, p); k++) {
        int32_t v = wn__ir_storage(ir, input(w, p, k));
        if (is_computed(ir, v) && w->last[v] < c) kept += ir->node[v].bytes;
    }
    return made <= ir->node[p].bytes / NEGLIGIBLE_PART || kept <= ir->node[p].bytes;
}

/* Marks p, and the aliases between p and input k of node i, as absorbed by i. */
static void absorb(struct rewriting *w, int32_t i, int32_t k, int32_t p)
{
    struct wn__ir *ir = w->ir;
    int32_t v = input(w, i, k);
    for (; v != p; v = input(w, v, 0)) ir->node[v].absorbed_by = i;
    ir->node[p].absorbed_by = i;
    if (ir->node[p].random >= 0) ir->node[i].random = ir->node[p].random;
    for (int32_t j = 0; j < n_inputs(w, p); j++) w->readers[input(w, p, j)]--;
}

/* Makes node i what `to` says. Requires that what it does not read any more was absorbed before. */
static void become(struct rewriting *w, int32_t i, const struct fusion *to)
{
    struct wn__ir *ir = w->ir;
    const struct window *in = to->in;
    for (int32_t k = 0; k < n_inputs(w, i); k++) w->readers[input(w, i, k)]--;
    if (w->at[i] < 0) {
        w->code = wn__grow(&w->window, &w->capacity, w->n_windows + 1, sizeof *w->window);
        if (w->code != WN_OK) return;
        w->at[i] = (int32_t)w->n_windows++;
    }
    w->window[w->at[i]] = *in;
    for (int32_t k = 0; k < in->n; k++) {
        int32_t v = in->node[k];
        w->readers[v]++;
        for (;; v = input(w, v, 0)) {
            if (w->last[v] < i) w->last[v] = i;
            if (!wn__ir_is_alias(ir, v)) break;
        }
    }
    ir->node[i].op = to->op;
    ir->node[i].attrs = *to->attrs;
}

/* Returns whether a kernel of the op reads the inputs of `to` in the layouts and dtypes that they have. */
static int32_t fits(const struct rewriting *w, int32_t i, const struct fusion *to)
{
    struct wn_type type[MAX_INPUTS];
    for (int32_t k = 0; k < to->in->n; k++) type[k] = w->ir->node[to->in->node[k]].type;
    struct wn_desc d = {.op = to->op, .n_in = to->in->n, .out = w->ir->node[i].type, .in = type, .attrs = *to->attrs};
    return wn__op_reads(&d);
}

/* Makes node i what `to` says and marks p, the value of its input k, as absorbed. Returns 0, and changes nothing, if no
 * kernel reads the inputs. */
static int32_t replace(struct rewriting *w, int32_t i, int32_t k, int32_t p, const struct fusion *to)
{
    if (!fits(w, i, to)) return 0;
    absorb(w, i, k, p);
    become(w, i, to);
    return 1;
}

/* ---- patterns: each returns 1 if it replaced node i ------------------------------------------------------ */

/* Fuses a product with the elementwise op that reads it: a linear layer and its activation, or a gradient through
 * one. */
static int32_t map_product(struct rewriting *w, int32_t i)
{
    const struct wn__ir_node *c = &w->ir->node[i];
    int32_t n = wn__elementwise_operands(c->op), p = n > 0 && c->op != WN_OP_DROPOUT ? sole(w, i, 0, 1) : -1;
    if (p < 0) return 0;
    const struct wn__ir_node *q = &w->ir->node[p];
    if ((q->op != WN_OP_LINEAR && q->op != WN_OP_MATMUL) || q->type.dtype == WN_F64 || !may_wait(w, p, i)) return 0;
    int32_t is_flat = q->op == WN_OP_LINEAR || q->type.ndim == 2;
    if (wn__numel(&q->type) != wn__numel(&c->type) || (!is_flat && !wn__shape_equal(&q->type, &c->type))) return 0;
    if (n == 2 && !wn__type_equal(&w->ir->node[input(w, i, 1)].type, &c->type)) return 0;
    struct wn_attrs attrs = q->attrs;
    attrs.n = 3;
    attrs.i[2] = c->op;
    memcpy(attrs.f, c->attrs.f, sizeof attrs.f);
    struct window in = {.n = 0};
    for (int32_t k = 0; k < q->n_in; k++) in.node[in.n++] = input(w, p, k);
    if (n == 2) in.node[in.n++] = input(w, i, 1);
    int32_t op = q->op == WN_OP_LINEAR ? WN_OP_LINEAR_MAP : WN_OP_MATMUL_MAP;
    return replace(w, i, 0, p, &(struct fusion){op, &attrs, &in});
}

/* Fuses a layer norm's gradient with the gradient of the residual connection that is added to it. */
static int32_t add_to_norm(struct rewriting *w, int32_t i)
{
    const struct wn__ir *ir = w->ir;
    if (ir->node[i].op != WN_OP_ADD || ir->node[i].type.dtype == WN_BF16) return 0;
    for (int32_t k = 0; k < 2; k++) {
        int32_t p = sole(w, i, k, 0), other = input(w, i, 1 - k);
        if (p < 0 || ir->node[p].op != WN_OP_LAYERNORM_DX || !may_wait(w, p, i)) continue;
        if (!wn__type_equal(&ir->node[p].type, &ir->node[i].type)) continue;
        if (!wn__type_equal(&ir->node[other].type, &ir->node[i].type)) continue;
        struct window in = {.n = 6};
        for (int32_t j = 0; j < 5; j++) in.node[j] = input(w, p, j);
        in.node[5] = other;
        if (replace(w, i, k, p, &(struct fusion){WN_OP_LAYERNORM_DX_ADD, &ir->node[p].attrs, &in})) return 1;
    }
    return 0;
}

/* Returns the nll node that reads v, if v is a log_softmax along the last dim that only it and node i read; else -1. */
static int32_t loss_over(const struct rewriting *w, int32_t v, int32_t i)
{
    const struct wn__ir *ir = w->ir;
    const struct wn__ir_node *p = &ir->node[v];
    int32_t loss = v + 1;
    while (loss < i && !(ir->node[loss].op == WN_OP_NLL && input(w, loss, 0) == v)) loss++;
    if (loss == i || p->op != WN_OP_LOG_SOFTMAX || !is_computed(ir, v) || p->result >= 0 || w->readers[v] != 2)
        return -1;
    if ((p->type.dtype != WN_F32 && p->type.dtype != WN_F64) || p->attrs.i[0] != p->type.ndim - 1) return -1;
    return p->region == ir->node[loss].region && p->root == ir->node[loss].root ? loss : -1;
}

/* Fuses nll with log_softmax, and log_softmax_grad (node i) with nll_grad. Both fused ops compute the probabilities of
 * a row from its logits, so the log_softmax is no residual any more. */
static int32_t cross_entropy(struct rewriting *w, int32_t i)
{
    const struct wn__ir *ir = w->ir;
    if (ir->node[i].op != WN_OP_LOG_SOFTMAX_GRAD) return 0;
    int32_t g = sole(w, i, 0, 0), v = input(w, i, 1), loss = loss_over(w, v, i);
    if (g < 0 || ir->node[g].op != WN_OP_NLL_GRAD || loss < 0 || input(w, loss, 1) != input(w, g, 1)) return 0;
    struct wn_attrs attrs = {.n = 1, .i = {ir->node[g].attrs.i[0]}};
    struct window in = {.n = 2, .node = {input(w, v, 0), input(w, g, 1)}};
    struct window back = {.n = 3, .node = {input(w, g, 0), input(w, g, 1), input(w, v, 0)}};
    const struct fusion forward = {WN_OP_CROSS_ENTROPY, &attrs, &in},
                        backward = {WN_OP_CROSS_ENTROPY_GRAD, &attrs, &back};
    if (!fits(w, i, &backward)) return 0;
    if (!replace(w, loss, 0, v, &forward) || w->code != WN_OK) return 0;
    return replace(w, i, 0, g, &backward);
}

static int32_t is_update(int32_t op)
{
    return op == WN_OP_SGD || op == WN_OP_MOMENTUM || op == WN_OP_ADAM || op == WN_OP_ACCUMULATE;
}

/* Returns the gradient that effect i reads, of any region and root, if it has no other reader; else -1. */
static int32_t sole_gradient(const struct rewriting *w, int32_t i)
{
    const struct wn__ir *ir = w->ir;
    int32_t v = input(w, i, 0);
    for (; wn__ir_is_alias(ir, v); v = input(w, v, 0))
        if (w->readers[v] != 1) return -1;
    return is_computed(ir, v) && w->readers[v] == 1 && ir->node[v].phase == WN_PHASE_BACKWARD ? v : -1;
}

/* Fills cell_last, cell_forward and cell_written, once. */
static int32_t find_cell_readers(struct rewriting *w)
{
    const struct wn__ir *ir = w->ir;
    if (w->cell_last != NULL) return WN_OK;
    w->cell_last = wn__pool_get(&w->scratch, (ir->n_cells + 1) * (int64_t)sizeof *w->cell_last);
    w->cell_forward = wn__pool_get(&w->scratch, (ir->n_cells + 1) * (int64_t)sizeof *w->cell_forward);
    w->cell_written = wn__pool_get(&w->scratch, ir->n_cells + 1);
    if (w->cell_last == NULL || w->cell_forward == NULL || w->cell_written == NULL) return WN_OOM;
    for (int32_t i = ir->n - ir->n_effects; i < ir->n; i++)
        for (int32_t k = 0; k < 3; k++)
            if (ir->node[i].cell[k] >= 0) w->cell_written[ir->node[i].cell[k]] = 1;
    for (int32_t i = 0; i < ir->n - ir->n_effects; i++) {
        if (ir->node[i].absorbed_by >= 0 || wn__ir_is_alias(ir, i)) continue;
        for (int32_t k = 0; k < n_inputs(w, i); k++) {
            const struct wn__ir_node *v = &ir->node[wn__ir_storage(ir, input(w, i, k))];
            if (v->leaf != WN_LEAF_CELL) continue;
            if (ir->node[i].phase == WN_PHASE_FORWARD) w->cell_forward[v->slot]++;
            else w->cell_last[v->slot] = i;
        }
    }
    return WN_OK;
}

/* Returns whether product p reads a state that this program writes. Fused into an update, p would read that state while
 * the update writes it, or after another update wrote it; two updates that read each other's states have no legal
 * order. */
static int32_t reads_written(struct rewriting *w, int32_t p)
{
    const struct wn__ir *ir = w->ir;
    w->code = find_cell_readers(w);
    for (int32_t k = 0; w->code == WN_OK && k < n_inputs(w, p); k++) {
        const struct wn__ir_node *v = &ir->node[wn__ir_storage(ir, input(w, p, k))];
        if (v->leaf == WN_LEAF_CELL && w->cell_written[v->slot]) return 1;
    }
    return w->code != WN_OK;
}

/* Returns whether gradient p may be computed by the update of cell `slot`, which waits for the last reader of the cell:
 * the operands that only p needs until then take no more bytes than the gradient. Forbids cells that several forward
 * nodes read (tied weights). */
static int32_t may_update(struct rewriting *w, int32_t slot, int32_t p)
{
    const struct wn__ir *ir = w->ir;
    int64_t kept = 0;
    if (reads_written(w, p) || w->cell_forward[slot] > 1) return 0;
    if (w->cell_last[slot] <= p) return 1;
    for (int32_t k = 0; k < n_inputs(w, p); k++) {
        int32_t v = wn__ir_storage(ir, input(w, p, k));
        if (is_computed(ir, v) && w->last[v] < w->cell_last[slot]) kept += ir->node[v].bytes;
    }
    return kept <= ir->node[p].bytes;
}

/* Fuses a product over at most WN_PRODUCT_UPDATE_ROWS rows with the update that reads it. */
static int32_t update_by_product(struct rewriting *w, int32_t i)
{
    const struct wn__ir *ir = w->ir;
    const struct wn__ir_node *c = &ir->node[i];
    int32_t p = i >= ir->n - ir->n_effects && is_update(c->op) ? sole_gradient(w, i) : -1;
    if (p < 0) return 0;
    const struct wn__ir_node *q = &ir->node[p];
    if (q->op != WN_OP_MATMUL || q->type.dtype != WN_F32 || q->type.ndim != 2 || q->n_in != 2) return 0;
    const struct wn_type *a = &ir->node[input(w, p, 0)].type, *b = &ir->node[input(w, p, 1)].type;
    if (a->ndim != 2 || b->ndim != 2 || a->dim[q->attrs.i[0] ? 0 : 1] > WN_PRODUCT_UPDATE_ROWS) return 0;
    if (!wn__type_equal(&q->type, &c->type) || !may_update(w, c->cell[0], p)) return 0;
    struct wn_attrs attrs = q->attrs;
    attrs.n = 3;
    attrs.i[2] = c->op;
    struct window in = {.n = 2, .node = {input(w, p, 0), input(w, p, 1)}};
    if (c->n_in > 1) in.node[in.n++] = input(w, i, 1);
    return replace(w, i, 0, p, &(struct fusion){WN_OP_PRODUCT_UPDATE, &attrs, &in});
}

/* Fills `out` with the steps of node i: those of a fused op, or the one step of an elementwise op. Returns 0 if node i
 * is neither. */
static int32_t chain_of(const struct wn__ir *ir, int32_t i, struct wn__fused *out)
{
    const struct wn__ir_node *p = &ir->node[i];
    int32_t n = wn__elementwise_operands(p->op);
    if (!wn__dtype_is_float(p->type.dtype)) return 0;
    if (p->op == WN_OP_CHAIN) *out = wn__fused_get(&p->attrs);
    else *out = (struct wn__fused){1, {{p->op, {0, n - 1}}}};
    return p->op == WN_OP_CHAIN || n > 0;
}

/* Returns how many steps have numbers in their attributes. */
static int32_t numbers_of(const struct wn__fused *c)
{
    int32_t n = 0;
    for (int32_t k = 0; k < c->n; k++) n += wn__elementwise_has_numbers(c->step[k].op);
    return n;
}

/* Returns the index of value v among the inputs, and adds v if it is new. An index of WN_CHAIN_INPUTS or above: the
 * inputs are full. */
static int32_t operand_of(struct window *in, int32_t v)
{
    for (int32_t k = 0; k < in->n; k++)
        if (in->node[k] == v) return k;
    if (in->n < WN_CHAIN_INPUTS) in->node[in->n] = v;
    return in->n++;
}

/* Appends the steps c of node i to `to`, and the values that they read to `in`. A step that reads the value of node
 * `inside` reads the last step that `to` has on entry. */
static void append(const struct rewriting *w, int32_t i, const struct wn__fused *c, int32_t inside, struct window *in,
                   struct wn__fused *to)
{
    int32_t before = to->n;
    for (int32_t k = 0; k < c->n; k++) {
        struct wn__fused_step s = c->step[k];
        for (int32_t j = 0; j < wn__elementwise_operands(s.op); j++) {
            int32_t v = s.operand[j];
            if (v >= WN_CHAIN_INPUTS) s.operand[j] = v + before;
            else if (input(w, i, v) == inside) s.operand[j] = WN_CHAIN_INPUTS + before - 1;
            else s.operand[j] = operand_of(in, input(w, i, v));
        }
        to->step[to->n++] = s;
    }
}

/* Fuses elementwise node i with the elementwise node that is its input k. One set of numbers in attributes is
 * allowed. */
static int32_t absorb_step(struct rewriting *w, int32_t i, int32_t k)
{
    struct wn__ir *ir = w->ir;
    struct wn__fused first, second, all = {.n = 0};
    struct window in = {.n = 0};
    int32_t p = sole(w, i, k, 0);
    if (p < 0 || !chain_of(ir, p, &first) || !chain_of(ir, i, &second)) return 0;
    if (first.n + second.n > WN_CHAIN_STEPS || numbers_of(&first) + numbers_of(&second) > 1) return 0;
    if (!wn__type_equal(&ir->node[p].type, &ir->node[i].type) || !may_wait(w, p, i)) return 0;
    append(w, p, &first, -1, &in, &all);
    append(w, i, &second, p, &in, &all);
    if (in.n > WN_CHAIN_INPUTS) return 0;
    struct wn_attrs attrs = {.n = 0};
    memcpy(attrs.f, numbers_of(&first) ? ir->node[p].attrs.f : ir->node[i].attrs.f, sizeof attrs.f);
    wn__fused_put(&all, &attrs);
    return replace(w, i, k, p, &(struct fusion){WN_OP_CHAIN, &attrs, &in});
}

/* Fuses elementwise node i with one of its inputs. */
static int32_t chain(struct rewriting *w, int32_t i)
{
    for (int32_t k = 0; k < n_inputs(w, i) && k < WN_CHAIN_INPUTS; k++)
        if (absorb_step(w, i, k)) return 1;
    return 0;
}

/* ---- the pass ------------------------------------------------------------------------------------------- */

/* The patterns, in the order in which each node tries them. */

static int32_t (*const patterns[])(struct rewriting *w, int32_t i) = {
    map_product,       /* product + elementwise op   -> matmul_map, linear_map */
    update_by_product, /* product + update           -> product_update */
    add_to_norm,       /* layernorm_dx + add         -> layernorm_dx_add */
    cross_entropy,     /* log_softmax + nll, and back -> cross_entropy, cross_entropy_grad */
    chain,             /* elementwise + elementwise  -> chain */
};

int32_t wn__rewrite_on = 1;

/* Fills readers, last and at for the recorded nodes. */
static void find_readers(struct rewriting *w)
{
    const struct wn__ir *ir = w->ir;
    for (int32_t i = 0; i < ir->n; i++) w->at[i] = -1;
    for (int32_t i = 0; i < ir->n; i++) {
        w->last[i] = i;
        for (int32_t k = 0; k < ir->node[i].n_in; k++) {
            int32_t v = wn__ir_in(ir, i, k);
            w->readers[v]++;
            w->last[v] = w->last[wn__ir_storage(ir, v)] = i;
        }
    }
}

/* Gives the rewritten nodes their inputs: in and in_type of the IR become copies with the windows behind the recorded
 * inputs, which the recorded nodes go on naming. */
static int32_t write_back(struct rewriting *w, const struct wn__ir_node *recorded)
{
    struct wn__ir *ir = w->ir;
    int64_t n = ir->n_in;
    for (int64_t i = 0; i < w->n_windows; i++) n += w->window[i].n;
    int32_t *in = wn__pool_get(&ir->pool, (n + 1) * (int64_t)sizeof *in);
    struct wn_type *type = wn__pool_get(&ir->pool, (n + 1) * (int64_t)sizeof *type);
    if (in == NULL || type == NULL) return WN_OOM;
    memcpy(in, ir->in, (size_t)ir->n_in * sizeof *in);
    memcpy(type, ir->in_type, (size_t)ir->n_in * sizeof *type);
    ir->in = in;
    ir->in_type = type;
    ir->recorded = recorded;
    for (int32_t i = 0; i < ir->n; i++) {
        struct wn__ir_node *p = &ir->node[i];
        if (p->absorbed_by >= 0) p->n_in = 0;
        if (w->at[i] < 0 || p->absorbed_by >= 0) continue;
        const struct window *x = &w->window[w->at[i]];
        p->in_at = ir->n_in;
        p->n_in = x->n;
        for (int32_t k = 0; k < x->n; k++) {
            ir->in[ir->n_in] = x->node[k];
            ir->in_type[ir->n_in++] = ir->node[x->node[k]].type;
        }
    }
    return WN_OK;
}

/* Applies every pattern to every computed node, until none fits, in the order of nodes. */
static int32_t rewrite(struct rewriting *w)
{
    struct wn__ir *ir = w->ir;
    struct wn__ir_node *recorded = wn__pool_get(&ir->pool, (ir->n + 1) * (int64_t)sizeof *recorded);
    if (recorded == NULL) return WN_OOM;
    memcpy(recorded, ir->node, (size_t)ir->n * sizeof *recorded);
    find_readers(w);
    for (int32_t i = 0; i < ir->n && w->code == WN_OK; i++) {
        if (!is_computed(ir, i)) continue;
        for (size_t p = 0; p < sizeof patterns / sizeof patterns[0] && w->code == WN_OK; p++)
            while (w->code == WN_OK && patterns[p](w, i)) continue;
    }
    if (w->code == WN_OK && w->n_windows > 0) w->code = write_back(w, recorded);
    return w->code;
}

int32_t wn__ir_rewrite(struct wn__ir *ir)
{
    struct rewriting w = {.ir = ir};
    ir->recorded = ir->node;
    if (!wn__rewrite_on) return WN_OK;
    w.readers = wn__pool_get(&w.scratch, (ir->n + 1) * (int64_t)sizeof *w.readers);
    w.last = wn__pool_get(&w.scratch, (ir->n + 1) * (int64_t)sizeof *w.last);
    w.at = wn__pool_get(&w.scratch, (ir->n + 1) * (int64_t)sizeof *w.at);
    int32_t code = w.readers && w.last && w.at ? rewrite(&w) : WN_OOM;
    wn__free(w.window);
    wn__pool_release(&w.scratch);
    return code;
}

const char *wn__ir_op_text(const struct wn__ir *ir, int32_t node)
{
    const struct wn__ir_node *p = &ir->node[node];
    struct wn__fused c = {.n = 0};
    char text[256];
    if (p->op == WN_OP_CHAIN) c = wn__fused_get(&p->attrs);
    else if (p->op == WN_OP_LINEAR_MAP || p->op == WN_OP_MATMUL_MAP || p->op == WN_OP_PRODUCT_UPDATE)
        c = (struct wn__fused){
            2, {{p->op == WN_OP_LINEAR_MAP ? WN_OP_LINEAR : WN_OP_MATMUL, {0}}, {(int32_t)p->attrs.i[2], {0}}}};
    if (c.n == 0) return wn__op_name(p->op);
    int32_t at = 0;
    for (int32_t k = 0; k < c.n && at < (int32_t)sizeof text - 1; k++)
        at += snprintf(text + at, sizeof text - (size_t)at, "%s%s", k ? "+" : "", wn__op_name(c.step[k].op));
    const char *interned = wn__intern(text);
    return interned != NULL ? interned : wn__op_name(p->op);
}
