/* Clips gradients inside a step: emits the nodes that optim.clip_grad_norm records behind the backward, so that a
 * step that clips is one program, which is planned and capped as a whole.
 *
 *   norm   = sqrt(sum over the parameters, in the order of the updates, of sum(squares(g)))
 *   factor = clamp(limit / (norm + 1e-6), 0, 1)
 *   g      = g * factor
 *
 * Squares are summed in f64, those of each stripe first: ranks that have ranges of the gradients get the same norm.
 * Gradients of bf16 are scaled in f32. Order and ops are those of lua/wane/optim/clip.lua, so the bits
 * are those of the three lines. Clipping costs that every gradient is alive until the norm is known. */
#include <stddef.h>
#include "emit.h"

static struct wn_node *emit_cast(struct wn__emitter *e, struct wn_node *v, int32_t dtype)
{
    struct wn_attrs attrs = {.dtype = (int16_t)dtype};
    return v == NULL || v->type.dtype == dtype ? v : wn__emit(&e->base, WN_OP_CAST, 1, &v, &attrs);
}

static struct wn_node *emit_wide(struct wn__emitter *e, struct wn_node *v)
{
    int32_t is_half = v != NULL && (v->type.dtype == WN_BF16 || v->type.dtype == WN_F16);
    return is_half ? emit_cast(e, v, WN_F32) : v;
}

/* Returns where the gradient of a cell is; NULL: the loss does not reach the cell. */
static struct wn_node **find_value(const struct wn__grads *g, const struct wn_cell *c)
{
    for (int64_t i = 0; i < g->n_cells; i++)
        if (g->cells[i] == c) return &g->values[i];
    return NULL;
}

static struct wn_node *emit_factor(struct wn__emitter *e, struct wn_node *norm, struct wn_node *limit)
{
    struct wn_attrs clamp = {.f = {0, 1}};
    struct wn_node *room = wn__emit_scalar(&e->base, 1e-6, norm == NULL ? WN_F32 : norm->type.dtype);
    struct wn_node *share = wn__emit2(&e->base, WN_OP_DIV, limit, wn__emit2(&e->base, WN_OP_ADD, norm, room));
    return wn__emit(&e->base, WN_OP_CLAMP, 1, &share, &clamp);
}

/* Takes the nodes from number `from` on out of every module and region: they serve no forward node. */
static void disown(const struct wn__grads *g, int64_t from)
{
    for (int64_t i = from; i < g->count; i++) {
        g->nodes[i]->forward_of = NULL;
        g->nodes[i]->scope = g->nodes[i]->region = 0;
    }
}

int32_t wn__grad_clip(const struct wn__pass *last, struct wn_node *limit, struct wn__grads *g)
{
    static const struct wn_attrs all;
    struct wn__emitter e = {.base = {&wn__graph_recorder}, .g = g, .forward = last->roots[0], .root = last->root};
    struct wn_node *total = NULL;
    int64_t from = g->count;
    for (int32_t i = 0; i < last->n_only; i++) {
        struct wn_node **value = find_value(g, last->only[i]);
        if (value == NULL) continue;
        struct wn_node *square = wn__emit1(&e.base, WN_OP_SQUARES, *value);
        square = wn__emit(&e.base, WN_OP_SUM, 1, &square, &all);
        total = total == NULL ? square : wn__emit2(&e.base, WN_OP_ADD, total, square);
        if (e.code != WN_OK) return e.code;
    }
    g->norm = emit_cast(&e, wn__emit1(&e.base, WN_OP_SQRT, total), limit->type.dtype);
    struct wn_node *factor = emit_factor(&e, g->norm, limit);
    for (int32_t i = 0; i < last->n_only; i++) {
        struct wn_node **value = find_value(g, last->only[i]);
        if (value == NULL) continue;
        int32_t dtype = *value == NULL ? WN_F32 : (*value)->type.dtype;
        *value = emit_cast(&e, wn__emit2(&e.base, WN_OP_MUL, emit_wide(&e, *value), factor), dtype);
    }
    disown(g, from);
    return e.code;
}
