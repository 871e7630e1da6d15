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
 * A new pattern is a function in a file of patterns that looks at the last node, a row in `patterns`, and a record in
 * spec/rewrite_spec.lua that shows equal bits and fewer bytes. */
#include <string.h>
#include "rewriting.h"

int32_t wn__rewrite_n_inputs(const struct wn__rewriting *w, int32_t i)
{
    return w->at[i] >= 0 ? w->window[w->at[i]].n : w->ir->node[i].n_in;
}

int32_t wn__rewrite_input(const struct wn__rewriting *w, int32_t i, int32_t k)
{
    return w->at[i] >= 0 ? w->window[w->at[i]].node[k] : wn__ir_in(w->ir, i, k);
}

struct wn__rewrite_inputs wn__rewrite_inputs(const struct wn__rewriting *w, int32_t i)
{
    struct wn__rewrite_inputs in = {.n = wn__rewrite_n_inputs(w, i)};
    for (int32_t k = 0; k < in.n; k++) in.node[k] = wn__rewrite_input(w, i, k);
    return in;
}

int32_t wn__rewrite_is_computed(const struct wn__ir *ir, int32_t i)
{
    const struct wn__ir_node *p = &ir->node[i];
    return p->leaf == WN_LEAF_NONE && !p->bound;
}

int32_t wn__rewrite_sole(const struct wn__rewriting *w, int32_t i, int32_t k, int32_t through)
{
    const struct wn__ir *ir = w->ir;
    int32_t v = wn__rewrite_input(w, i, k);
    for (; wn__ir_is_alias(ir, v); v = wn__rewrite_input(w, v, 0))
        if (!through || w->readers[v] != 1) return -1;
    const struct wn__ir_node *p = &ir->node[v], *by = &ir->node[i];
    if (!wn__rewrite_is_computed(ir, v) || w->readers[v] != 1 || p->result >= 0 || p->region != by->region) return -1;
    return p->phase == by->phase && p->root == by->root ? v : -1;
}

int32_t wn__rewrite_may_wait(const struct wn__rewriting *w, int32_t p, int32_t c)
{
    const struct wn__ir *ir = w->ir;
    int64_t made = 0, kept = 0;
    for (int32_t i = p + 1; i < c; i++)
        if (wn__rewrite_is_computed(ir, i) && ir->node[i].absorbed_by < 0 && !wn__ir_is_alias(ir, i))
            made += ir->node[i].bytes;
    for (int32_t k = 0; k < wn__rewrite_n_inputs(w, p); k++) {
        int32_t v = wn__ir_storage(ir, wn__rewrite_input(w, p, k));
        if (wn__rewrite_is_computed(ir, v) && w->last[v] < c) kept += ir->node[v].bytes;
    }
    return made <= ir->node[p].bytes / NEGLIGIBLE_PART || kept <= ir->node[p].bytes;
}

/* Marks p, and the aliases between p and input k of node i, as absorbed by i. */
static void absorb(struct wn__rewriting *w, int32_t i, int32_t k, int32_t p)
{
    struct wn__ir *ir = w->ir;
    int32_t v = wn__rewrite_input(w, i, k);
    for (; v != p; v = wn__rewrite_input(w, v, 0)) ir->node[v].absorbed_by = i;
    ir->node[p].absorbed_by = i;
    if (ir->node[p].random >= 0) ir->node[i].random = ir->node[p].random;
    for (int32_t j = 0; j < wn__rewrite_n_inputs(w, p); j++) w->readers[wn__rewrite_input(w, p, j)]--;
}

int32_t wn__rewrite_become(struct wn__rewriting *w, int32_t i, const struct wn__fusion *to)
{
    struct wn__ir *ir = w->ir;
    const struct wn__rewrite_inputs *in = to->in;
    for (int32_t k = 0; k < wn__rewrite_n_inputs(w, i); k++) w->readers[wn__rewrite_input(w, i, k)]--;
    if (w->at[i] < 0) {
        WN_KEEP(w->code, wn__grow(&w->window, &w->capacity, w->n_windows + 1, sizeof *w->window));
        if (w->code != WN_OK) return 0;
        w->at[i] = (int32_t)w->n_windows++;
    }
    w->window[w->at[i]] = *in;
    for (int32_t k = 0; k < in->n; k++) {
        int32_t v = in->node[k];
        w->readers[v]++;
        for (;; v = wn__rewrite_input(w, v, 0)) {
            if (w->last[v] < i) w->last[v] = i;
            if (!wn__ir_is_alias(ir, v)) break;
        }
    }
    ir->node[i].op = to->op;
    ir->node[i].attrs = *to->attrs;
    return 1;
}

int32_t wn__rewrite_fits(const struct wn__rewriting *w, int32_t i, const struct wn__fusion *to)
{
    struct wn_type type[WN_REWRITE_INPUTS];
    for (int32_t k = 0; k < to->in->n; k++) type[k] = w->ir->node[to->in->node[k]].type;
    struct wn_desc d = {.op = to->op, .n_in = to->in->n, .out = w->ir->node[i].type, .in = type, .attrs = *to->attrs};
    return wn__op_reads(&d);
}

int32_t wn__rewrite_replace(struct wn__rewriting *w, int32_t i, int32_t k, int32_t p, const struct wn__fusion *to)
{
    if (!wn__rewrite_fits(w, i, to)) return 0;
    absorb(w, i, k, p);
    return wn__rewrite_become(w, i, to);
}

/* ---- the pass ------------------------------------------------------------------------------------------- */

/* The patterns, in the order in which each node tries them. */

static int32_t (*const patterns[])(struct wn__rewriting *w, int32_t i, int32_t k) = {
    wn__rewrite_map_product,       /* product + elementwise op   -> matmul_map, linear_map */
    wn__rewrite_update_by_product, /* product + update           -> product_update */
    wn__rewrite_add_to_norm,       /* layernorm_dx + add         -> layernorm_dx_add */
    wn__rewrite_row_loss,          /* log_softmax + row_nll, and back -> row_stats, and both of logits */
    wn__rewrite_map_conv,          /* conv2d [+ batch_norm] + elementwise ops -> conv2d_map */
    wn__rewrite_map_norm,          /* batch_norm + elementwise ops -> batch_norm_map */
    wn__rewrite_relu_into_norm,    /* relu_grad + batch_norm_sums, _dx -> relu_norm_sums, relu_norm_dx */
    wn__rewrite_fused,             /* elementwise + elementwise  -> elementwise */
};

int32_t wn__rewrite_on = 1;

/* Fills readers, last and at for the recorded nodes. */
static void find_readers(struct wn__rewriting *w)
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
static int32_t write_back(struct wn__rewriting *w, const struct wn__ir_node *recorded)
{
    struct wn__ir *ir = w->ir;
    int64_t n = ir->n_in;
    for (int64_t i = 0; i < w->n_windows; i++) n += w->window[i].n;
    int32_t *in;
    struct wn_type *type;
    if (!WN_ARRAY(&ir->pool, in, n) || !WN_ARRAY(&ir->pool, type, n)) return WN_OOM;
    memcpy(in, ir->in, (size_t)ir->n_in * sizeof *in);
    memcpy(type, ir->in_type, (size_t)ir->n_in * sizeof *type);
    ir->in = in;
    ir->in_type = type;
    ir->recorded = recorded;
    for (int32_t i = 0; i < ir->n; i++) {
        struct wn__ir_node *p = &ir->node[i];
        if (p->absorbed_by >= 0) p->n_in = 0;
        if (w->at[i] < 0 || p->absorbed_by >= 0) continue;
        const struct wn__rewrite_inputs *x = &w->window[w->at[i]];
        p->in_at = ir->n_in;
        p->n_in = x->n;
        for (int32_t k = 0; k < x->n; k++) {
            ir->in[ir->n_in] = x->node[k];
            ir->in_type[ir->n_in++] = ir->node[x->node[k]].type;
        }
    }
    return WN_OK;
}

/* Applies every pattern to every computed node and each of its inputs, until none fits, in the order of nodes. */
static int32_t rewrite(struct wn__rewriting *w)
{
    struct wn__ir *ir = w->ir;
    struct wn__ir_node *recorded;
    if (!WN_ARRAY(&ir->pool, recorded, ir->n)) return WN_OOM;
    memcpy(recorded, ir->node, (size_t)ir->n * sizeof *recorded);
    find_readers(w);
    for (int32_t i = 0; i < ir->n && w->code == WN_OK; i++) {
        if (!wn__rewrite_is_computed(ir, i)) continue;
        for (size_t p = 0; p < sizeof patterns / sizeof patterns[0] && w->code == WN_OK; p++)
            for (int32_t k = 0; w->code == WN_OK && k < wn__rewrite_n_inputs(w, i);)
                k = patterns[p](w, i, k) ? 0 : k + 1;
    }
    if (w->code == WN_OK) wn__rewrite_casts(w);
    if (w->n_windows > 0) WN_KEEP(w->code, write_back(w, recorded));
    if (w->code == WN_OK) WN_KEEP(w->code, wn__ir_rows(ir, &w->scratch));
    return w->code;
}

int32_t wn__ir_rewrite(struct wn__ir *ir)
{
    struct wn__rewriting w = {.ir = ir};
    ir->recorded = ir->node;
    if (!wn__rewrite_on) return WN_OK;
    int32_t is_there = WN_ARRAY(&w.scratch, w.readers, ir->n) && WN_ARRAY(&w.scratch, w.last, ir->n) &&
                       WN_ARRAY(&w.scratch, w.at, ir->n);
    int32_t code = is_there ? rewrite(&w) : WN_OOM;
    wn__free(w.window);
    wn__pool_release(&w.scratch);
    return code;
}
