/* The patterns of rewrites but for those of images. Each looks at the last node of its pattern; rewrite.c says when one
 * may be applied, rewriting.h what each makes. */
#include <string.h>
#include "rewriting.h"

int32_t wn__rewrite_map_product(struct wn__rewriting *w, int32_t i, int32_t k)
{
    const struct wn__ir_node *c = &w->ir->node[i];
    int32_t n = wn__elementwise_operands(c->op),
            p = k == 0 && n > 0 && c->op != WN_OP_DROPOUT ? wn__rewrite_sole(w, i, 0, 1) : -1;
    if (p < 0) return 0;
    const struct wn__ir_node *q = &w->ir->node[p];
    if ((q->op != WN_OP_LINEAR && q->op != WN_OP_MATMUL) || q->type.dtype == WN_F64 || !wn__rewrite_may_wait(w, p, i))
        return 0;
    int32_t is_flat = q->op == WN_OP_LINEAR || q->type.ndim == 2;
    if (wn__numel(&q->type) != wn__numel(&c->type) || (!is_flat && !wn__shape_equal(&q->type, &c->type))) return 0;
    if (n == 2 && !wn__type_equal(&w->ir->node[wn__rewrite_input(w, i, 1)].type, &c->type)) return 0;
    struct wn_attrs attrs = q->attrs;
    attrs.n = 3;
    attrs.i[2] = c->op;
    memcpy(attrs.f, c->attrs.f, sizeof attrs.f);
    struct wn__rewrite_inputs in = wn__rewrite_inputs(w, p);
    if (n == 2) in.node[in.n++] = wn__rewrite_input(w, i, 1);
    int32_t op = q->op == WN_OP_LINEAR ? WN_OP_LINEAR_MAP : WN_OP_MATMUL_MAP;
    return wn__rewrite_replace(w, i, 0, p, &(struct wn__fusion){op, &attrs, &in});
}

int32_t wn__rewrite_add_to_norm(struct wn__rewriting *w, int32_t i, int32_t k)
{
    const struct wn__ir *ir = w->ir;
    if (ir->node[i].op != WN_OP_ADD || ir->node[i].type.dtype == WN_BF16) return 0;
    int32_t p = wn__rewrite_sole(w, i, k, 0), other = wn__rewrite_input(w, i, 1 - k);
    if (p < 0 || ir->node[p].op != WN_OP_LAYERNORM_DX || !wn__rewrite_may_wait(w, p, i)) return 0;
    if (!wn__type_equal(&ir->node[p].type, &ir->node[i].type)) return 0;
    if (!wn__type_equal(&ir->node[other].type, &ir->node[i].type)) return 0;
    struct wn__rewrite_inputs in = wn__rewrite_inputs(w, p);
    in.node[in.n++] = other;
    return wn__rewrite_replace(w, i, k, p, &(struct wn__fusion){WN_OP_LAYERNORM_DX_ADD, &ir->node[p].attrs, &in});
}

/* Returns the row_nll node that reads v, if v is a log_softmax along the last dim that only it and node i read; else
 * -1. */
static int32_t loss_over(const struct wn__rewriting *w, int32_t v, int32_t i)
{
    const struct wn__ir *ir = w->ir;
    const struct wn__ir_node *p = &ir->node[v];
    int32_t loss = v + 1;
    while (loss < i && !(ir->node[loss].op == WN_OP_ROW_NLL && wn__rewrite_input(w, loss, 0) == v)) loss++;
    if (loss == i || p->op != WN_OP_LOG_SOFTMAX || !wn__rewrite_is_computed(ir, v) || p->result >= 0 ||
        w->readers[v] != 2 || p->type.dtype == WN_BF16 || p->attrs.i[0] != p->type.ndim - 1)
        return -1;
    return p->region == ir->node[loss].region && p->root == ir->node[loss].root ? loss : -1;
}

int32_t wn__rewrite_row_loss(struct wn__rewriting *w, int32_t i, int32_t k)
{
    struct wn__ir *ir = w->ir;
    if (k > 0 || ir->node[i].op != WN_OP_LOG_SOFTMAX_GRAD) return 0;
    int32_t g = wn__rewrite_sole(w, i, 0, 0), v = wn__rewrite_input(w, i, 1), loss = loss_over(w, v, i);
    if (g < 0 || loss < 0 || ir->node[g].op != WN_OP_ROW_NLL_GRAD ||
        wn__rewrite_input(w, loss, 1) != wn__rewrite_input(w, g, 1))
        return 0;
    struct wn_attrs plain = {.n = 0}, attrs = ir->node[loss].attrs, back_attrs = ir->node[g].attrs;
    attrs.i[WN_LOSS_STATS] = back_attrs.i[WN_LOSS_STATS] = 1;
    int32_t x = wn__rewrite_input(w, v, 0), labels = wn__rewrite_input(w, g, 1);
    struct wn__rewrite_inputs of = {.n = 1, .node = {x}}, in = {.n = 3, .node = {x, labels, v}},
                              back = {.n = 4, .node = {wn__rewrite_input(w, g, 0), labels, x, v}};
    if (ir->node[loss].n_in > 2) in.node[in.n++] = back.node[back.n++] = wn__rewrite_input(w, loss, 2);
    const struct wn__fusion stats = {WN_OP_ROW_STATS, &plain, &of}, forward = {WN_OP_ROW_NLL, &attrs, &in},
                            backward = {WN_OP_ROW_NLL_GRAD, &back_attrs, &back};
    const struct wn_type before = ir->node[v].type;
    struct wn_type *type = &ir->node[v].type;
    type->dim[type->ndim - 1] = 2;
    if (!wn__rewrite_fits(w, v, &stats) || !wn__rewrite_fits(w, loss, &forward) || !wn__rewrite_fits(w, i, &backward)) {
        *type = before;
        return 0;
    }
    ir->node[v].bytes = wn__padded(wn__bytes(type));
    return wn__rewrite_become(w, v, &stats) && wn__rewrite_become(w, loss, &forward) &&
           wn__rewrite_replace(w, i, 0, g, &backward);
}

static int32_t is_update(int32_t op)
{
    return op == WN_OP_ACCUMULATE || wn__optimizer_cells(op) > 0;
}

/* Returns the gradient that effect i reads, of any region and root, if it has no other reader; else -1. */
static int32_t sole_gradient(const struct wn__rewriting *w, int32_t i)
{
    const struct wn__ir *ir = w->ir;
    int32_t v = wn__rewrite_input(w, i, 0);
    for (; wn__ir_is_alias(ir, v); v = wn__rewrite_input(w, v, 0))
        if (w->readers[v] != 1) return -1;
    return wn__rewrite_is_computed(ir, v) && w->readers[v] == 1 && ir->node[v].phase == WN_PHASE_BACKWARD ? v : -1;
}

/* Fills cell_last, cell_forward and cell_written, once. */
static int32_t find_cell_readers(struct wn__rewriting *w)
{
    const struct wn__ir *ir = w->ir;
    if (w->cell_last != NULL) return WN_OK;
    if (!WN_ARRAY(&w->scratch, w->cell_last, ir->n_cells) || !WN_ARRAY(&w->scratch, w->cell_forward, ir->n_cells) ||
        !WN_ARRAY(&w->scratch, w->cell_written, ir->n_cells))
        return WN_OOM;
    for (int32_t i = ir->n - ir->n_effects; i < ir->n; i++)
        for (int32_t k = 0; k < 3; k++)
            if (ir->node[i].cell[k] >= 0) w->cell_written[ir->node[i].cell[k]] = 1;
    for (int32_t i = 0; i < ir->n - ir->n_effects; i++) {
        if (ir->node[i].absorbed_by >= 0 || wn__ir_is_alias(ir, i)) continue;
        for (int32_t k = 0; k < wn__rewrite_n_inputs(w, i); k++) {
            const struct wn__ir_node *v = &ir->node[wn__ir_storage(ir, wn__rewrite_input(w, i, k))];
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
static int32_t reads_written(struct wn__rewriting *w, int32_t p)
{
    const struct wn__ir *ir = w->ir;
    WN_KEEP(w->code, find_cell_readers(w));
    for (int32_t k = 0; w->code == WN_OK && k < wn__rewrite_n_inputs(w, p); k++) {
        const struct wn__ir_node *v = &ir->node[wn__ir_storage(ir, wn__rewrite_input(w, p, k))];
        if (v->leaf == WN_LEAF_CELL && w->cell_written[v->slot]) return 1;
    }
    return w->code != WN_OK;
}

/* Returns whether gradient p may be computed by the update of cell `slot`, which waits for the last reader of the cell:
 * the operands that only p needs until then take no more bytes than the gradient. Forbids cells that several forward
 * nodes read (tied weights). */
static int32_t may_update(struct wn__rewriting *w, int32_t slot, int32_t p)
{
    const struct wn__ir *ir = w->ir;
    int64_t kept = 0;
    if (reads_written(w, p) || w->cell_forward[slot] > 1) return 0;
    if (w->cell_last[slot] <= p) return 1;
    for (int32_t k = 0; k < wn__rewrite_n_inputs(w, p); k++) {
        int32_t v = wn__ir_storage(ir, wn__rewrite_input(w, p, k));
        if (wn__rewrite_is_computed(ir, v) && w->last[v] < w->cell_last[slot]) kept += ir->node[v].bytes;
    }
    return kept <= ir->node[p].bytes;
}

int32_t wn__rewrite_update_by_product(struct wn__rewriting *w, int32_t i, int32_t k)
{
    const struct wn__ir *ir = w->ir;
    const struct wn__ir_node *c = &ir->node[i];
    int32_t p = k == 0 && i >= ir->n - ir->n_effects && is_update(c->op) ? sole_gradient(w, i) : -1;
    if (p < 0) return 0;
    const struct wn__ir_node *q = &ir->node[p];
    if (q->op != WN_OP_MATMUL || q->type.dtype != WN_F32 || q->type.ndim != 2 || q->n_in != 2) return 0;
    const struct wn_type *a = &ir->node[wn__rewrite_input(w, p, 0)].type,
                         *b = &ir->node[wn__rewrite_input(w, p, 1)].type;
    if (a->ndim != 2 || b->ndim != 2 || a->dim[q->attrs.i[0] ? 0 : 1] > WN_PRODUCT_UPDATE_ROWS) return 0;
    if (!wn__type_equal(&q->type, &c->type) || !may_update(w, c->cell[0], p)) return 0;
    struct wn_attrs attrs = q->attrs;
    attrs.n = 3;
    attrs.i[2] = c->op;
    struct wn__rewrite_inputs in = wn__rewrite_inputs(w, p);
    if (c->n_in > 1) in.node[in.n++] = wn__rewrite_input(w, i, 1);
    return wn__rewrite_replace(w, i, 0, p, &(struct wn__fusion){WN_OP_PRODUCT_UPDATE, &attrs, &in});
}

/* Fills `out` with the steps of node i: those of a fused op, or the one step of an elementwise op. Returns 0 if node i
 * is neither. */
static int32_t chain_of(const struct wn__ir *ir, int32_t i, struct wn__fused *out)
{
    const struct wn__ir_node *p = &ir->node[i];
    int32_t n = wn__elementwise_operands(p->op);
    if (!wn__dtype_is_float(p->type.dtype)) return 0;
    if (p->op == WN_OP_ELEMENTWISE) *out = wn__fused_get(&p->attrs, 0);
    else *out = (struct wn__fused){1, {{p->op, {0, n - 1}}}};
    return p->op == WN_OP_ELEMENTWISE || n > 0;
}

/* Returns the index of value v among the inputs, and adds v if it is new. An index of WN_FUSED_INPUTS or above: the
 * inputs are full. */
static int32_t operand_of(struct wn__rewrite_inputs *in, int32_t v)
{
    for (int32_t k = 0; k < in->n; k++)
        if (in->node[k] == v) return k;
    if (in->n < WN_FUSED_INPUTS) in->node[in->n] = v;
    return in->n++;
}

/* Appends the steps c of node i to `to`, and the values that they read to `in`. A step that reads the value of node
 * `inside` reads the last step that `to` has on entry. */
static void append(const struct wn__rewriting *w, int32_t i, const struct wn__fused *c, int32_t inside,
                   struct wn__rewrite_inputs *in, struct wn__fused *to)
{
    int32_t before = to->n;
    for (int32_t k = 0; k < c->n; k++) {
        struct wn__fused_step s = c->step[k];
        for (int32_t j = 0; j < wn__elementwise_operands(s.op); j++) {
            int32_t v = s.operand[j];
            if (v >= WN_FUSED_INPUTS) s.operand[j] = v + before;
            else if (wn__rewrite_input(w, i, v) == inside) s.operand[j] = WN_FUSED_INPUTS + before - 1;
            else s.operand[j] = operand_of(in, wn__rewrite_input(w, i, v));
        }
        to->step[to->n++] = s;
    }
}

int32_t wn__rewrite_fused(struct wn__rewriting *w, int32_t i, int32_t k)
{
    struct wn__ir *ir = w->ir;
    struct wn__fused first, second, all = {.n = 0};
    struct wn__rewrite_inputs in = {.n = 0};
    int32_t p = k < WN_FUSED_INPUTS ? wn__rewrite_sole(w, i, k, 0) : -1;
    if (p < 0 || !chain_of(ir, p, &first) || !chain_of(ir, i, &second)) return 0;
    if (first.n + second.n > WN_FUSED_STEPS || wn__fused_numbers(&first) + wn__fused_numbers(&second) > 1) return 0;
    if (!wn__type_equal(&ir->node[p].type, &ir->node[i].type) || !wn__rewrite_may_wait(w, p, i)) return 0;
    append(w, p, &first, -1, &in, &all);
    append(w, i, &second, p, &in, &all);
    if (in.n > WN_FUSED_INPUTS) return 0;
    struct wn_attrs attrs = {.n = 0};
    memcpy(attrs.f, wn__fused_numbers(&first) ? ir->node[p].attrs.f : ir->node[i].attrs.f, sizeof attrs.f);
    wn__fused_put(&all, 0, &attrs);
    return wn__rewrite_replace(w, i, k, p, &(struct wn__fusion){WN_OP_ELEMENTWISE, &attrs, &in});
}
