/* Exchanges values among ranks, behind the backward. A gradient becomes the pieces of the own range of its cell, which
 * effects add to the cell in the order of ranks (assemble.c puts them); a statistic becomes those of all ranks, by
 * which an effect changes its cell in that order. A rank that gives none takes part all the same. A gradient of f32
 * that was widened from bf16 travels as bf16. */
#include "emit.h"

/* Emits what all ranks give of a value. cut: of the value; NULL: every rank gets the whole. NULL: WN_OOM. */
static struct wn_node *emit_pieces(struct wn__emitter *e, const struct wn__ranks *ranks, struct wn_node *value,
                                   const struct wn__cut *cut)
{
    struct wn_attrs attrs = {.n = WN_RANKS_COUNT, .dtype = value->type.dtype};
    attrs.i[WN_RANKS_SIZE] = ranks->size;
    attrs.i[WN_RANKS_RANK] = ranks->rank;
    attrs.i[WN_RANKS_START] = cut == NULL ? 0 : cut->start;
    attrs.i[WN_RANKS_GIVEN] = ranks->given;
    attrs.i[WN_RANKS_ELEMENTS] = wn__numel(&value->type);
    attrs.i[WN_RANKS_WHOLE] = cut == NULL;
    attrs.i[WN_RANKS_PER_NODE] = ranks->per_node;
    e->forward = value->phase == WN_PHASE_FORWARD ? value : value->forward_of;
    return wn__emit(&e->base, WN_OP_ALL_TO_ALL, ranks->is_idle ? 0 : 1, &value, &attrs);
}

/* Returns what is exchanged for a gradient: what it was widened from, where it was, as no bits are lost by that. */
static struct wn_node *narrowest(struct wn_node *value)
{
    int32_t is_widened = value->op == WN_OP_CAST && value->type.dtype == WN_F32 && value->in[0]->type.dtype == WN_BF16;
    return is_widened ? value->in[0] : value;
}

int32_t wn__grad_exchange(const struct wn__pass *last, const struct wn__ranks *ranks, struct wn__grads *g)
{
    struct wn__emitter e = {.base = {&wn__graph_recorder}, .g = g, .root = last->root};
    struct wn__cut cut = {.ranks = ranks->size};
    for (int64_t i = 0; i < g->n_cells && e.code == WN_OK; i++) {
        cut.elements = wn__numel(&g->values[i]->type);
        g->values[i] = emit_pieces(&e, ranks, narrowest(g->values[i]), &cut);
        cut.start = wn__cut_next(&cut);
    }
    return e.code;
}

int32_t wn__value_exchange(const struct wn__pass *last, const struct wn__ranks *ranks, struct wn_node **value,
                           struct wn__grads *g)
{
    struct wn__emitter e = {.base = {&wn__graph_recorder}, .g = g, .root = last->root};
    *value = emit_pieces(&e, ranks, *value, NULL);
    return e.code;
}
