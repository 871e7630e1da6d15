/* Takes casts into the ops beside them, on a target whose kernels load and store by type:
 *
 *   recorded    4: matmul(a, b)  bf16    5: cast(4) f32    6: row_stats(5)    7: row_nll(5, labels, 6)
 *   rewritten   4: matmul(a, b)  bf16    5: absorbed       6: row_stats(4)    7: row_nll(4, labels, 6)
 *
 *   recorded    8: layernorm(x, ..) f32              9: cast(8) bf16
 *   rewritten   8: absorbed                          9: layernorm(x, ..) bf16
 *
 * Numbers are f32 in registers as before, widened where they are read and rounded where the cast rounded, so bits are
 * the same. A widening cast goes only where every reader of it can do without, so that its value, twice as large as
 * what it was made of, is never written. A narrowing one goes where nothing else reads its input.
 *
 * This runs behind the patterns of rewrite.c, on the ops that they leave. */
#include "rewriting.h"

/* Says which inputs and whether the result of an op may be bf16 where the op computes in f32. */
struct halves {
    int32_t op;
    uint32_t reads; /* bit k: input k */
    int32_t writes;
};

static const struct halves *halves_of(int32_t op)
{
    static const struct halves rows[] = {
        {WN_OP_ROW_STATS, 1, 0},
        {WN_OP_ROW_NLL, 1, 0},
        {WN_OP_ROW_NLL_GRAD, 1 << 2, 1},
        {WN_OP_ROW_MEAN, 1, 0},
        {WN_OP_ROW_RSTD, 1, 0},
        {WN_OP_LAYERNORM, 1, 1},
        {WN_OP_LAYERNORM_DX, 1 | 1 << 1, 1},
        {WN_OP_LAYERNORM_DX_ADD, 1 | 1 << 1 | 1 << 5, 1},
        {WN_OP_LAYERNORM_DW, 1 | 1 << 1, 0},
        {WN_OP_SUM, 1, 0},
        {WN_OP_MEAN, 1, 0},
        {WN_OP_ADD, 1 | 1 << 1, 0},
        {WN_OP_ACCUMULATE, 1, 0},
    };
    static const struct halves update = {.reads = 1};
    if (wn__optimizer_cells(op) > 0) return &update;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (rows[i].op == op) return &rows[i];
    return NULL;
}

static int32_t is_cast(const struct wn__rewriting *w, int32_t i, int32_t from, int32_t to)
{
    const struct wn__ir_node *p = &w->ir->node[i];
    if (p->op != WN_OP_CAST || !wn__rewrite_is_computed(w->ir, i) || p->absorbed_by >= 0) return 0;
    return p->type.dtype == to && w->ir->node[wn__rewrite_input(w, i, 0)].type.dtype == from;
}

/* Returns whether node r, a reader of value c, can read bf16 wherever it reads c. The gradient of log-probabilities
 * reads no logits: weights are in their place. */
static int32_t may_read(const struct wn__rewriting *w, int32_t r, int32_t c)
{
    const struct wn__ir_node *p = &w->ir->node[r];
    const struct halves *h = halves_of(p->op);
    if (p->op == WN_OP_ROW_NLL_GRAD && p->attrs.i[WN_LOSS_STATS] == 0) return 0;
    for (int32_t k = 0; k < wn__rewrite_n_inputs(w, r); k++)
        if (wn__rewrite_input(w, r, k) == c && (h == NULL || (h->reads >> k & 1) == 0)) return 0;
    return 1;
}

static int32_t reads(const struct wn__rewriting *w, int32_t r, int32_t c)
{
    if (w->ir->node[r].absorbed_by >= 0) return 0;
    for (int32_t k = 0; k < wn__rewrite_n_inputs(w, r); k++)
        if (wn__rewrite_input(w, r, k) == c) return 1;
    return 0;
}

/* Gives node r the value v in the place of c. */
static void put_in_place(struct wn__rewriting *w, int32_t r, int32_t c, int32_t v)
{
    struct wn__rewrite_inputs in = wn__rewrite_inputs(w, r);
    const struct wn_attrs attrs = w->ir->node[r].attrs;
    for (int32_t k = 0; k < in.n; k++)
        if (in.node[k] == c) in.node[k] = v;
    (void)wn__rewrite_become(w, r, &(struct wn__fusion){w->ir->node[r].op, &attrs, &in});
}

/* Lets the readers of c, a cast of bf16 to f32, read what it was made of, if all of them can. A value of another
 * region keeps its cast: the backward would have to run that region for it. */
static void take_widening(struct wn__rewriting *w, int32_t c)
{
    struct wn__ir *ir = w->ir;
    const struct wn__ir_node *p = &ir->node[c];
    int32_t v = wn__rewrite_input(w, c, 0), first = -1, n = 0;
    if (p->result >= 0 || ir->node[v].leaf == WN_LEAF_CELL || ir->node[v].region != p->region) return;
    for (int32_t r = c + 1; r <= w->last[c]; r++) {
        if (!reads(w, r, c)) continue;
        if (!wn__rewrite_is_computed(ir, r) || !may_read(w, r, c)) return;
        first = first < 0 ? r : first;
        n += 1;
    }
    if (n == 0) return;
    for (int32_t r = first; r <= w->last[c] && w->code == WN_OK; r++)
        if (reads(w, r, c)) put_in_place(w, r, c, v);
    w->readers[v]--;
    /* An effect computes what it absorbs by itself, as a product's update does; it only reads this value. */
    ir->node[c].absorbed_by = first < ir->n - ir->n_effects ? first : v;
}

/* Has the op whose value cast i alone reads write bf16. */
static void take_narrowing(struct wn__rewriting *w, int32_t i)
{
    int32_t p = wn__rewrite_sole(w, i, 0, 0);
    const struct halves *h = p >= 0 ? halves_of(w->ir->node[p].op) : NULL;
    if (h == NULL || !h->writes || !wn__rewrite_may_wait(w, p, i)) return;
    struct wn_attrs attrs = w->ir->node[p].attrs;
    const struct wn__rewrite_inputs in = wn__rewrite_inputs(w, p);
    (void)wn__rewrite_replace(w, i, 0, p, &(struct wn__fusion){w->ir->node[p].op, &attrs, &in});
}

void wn__rewrite_casts(struct wn__rewriting *w)
{
    if (!w->ir->target->has_mixed_types) return;
    for (int32_t i = 0; i < w->ir->n && w->code == WN_OK; i++) {
        if (is_cast(w, i, WN_BF16, WN_F32)) take_widening(w, i);
        else if (is_cast(w, i, WN_F32, WN_BF16)) take_narrowing(w, i);
    }
}
