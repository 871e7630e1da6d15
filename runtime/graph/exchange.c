/* Exchanges values among ranks, behind the backward. A gradient becomes the pieces of the own range of its cell, which
 * effects add to the cell in the order of ranks (assemble.c puts them); a statistic becomes those of all ranks, by
 * which an effect changes its cell in that order. A rank that gives none takes part all the same. A gradient of f32
 * that was widened from bf16 travels as bf16. */
#include "emit.h"

#define TOGETHER (16 * WN_STRIPE) /* elements of gradients that go on across teams one behind the other */

void wn__cut_attrs(const struct wn__ranks *ranks, const struct wn_cell *c, struct wn_attrs *attrs)
{
    *attrs = (struct wn_attrs){.n = WN_RANKS_COUNT, .dtype = (int16_t)c->type.dtype};
    attrs->i[WN_RANKS_SIZE] = ranks->size;
    attrs->i[WN_RANKS_RANK] = ranks->rank;
    attrs->i[WN_RANKS_START] = c->cut_start;
    attrs->i[WN_RANKS_GIVEN] = ranks->size;
    attrs->i[WN_RANKS_ELEMENTS] = wn__numel(&c->whole);
    attrs->i[WN_RANKS_TEAM] = ranks->team;
}

/* Emits what the ranks of a group give of a value. cut: of the cell that it is for; NULL: every rank gets the whole.
 * NULL: WN_OOM. */
static struct wn_node *emit_pieces(struct wn__emitter *e, const struct wn__ranks *ranks, struct wn_node *value,
                                   const struct wn__cut *cut, int32_t group)
{
    struct wn_attrs attrs = {.n = WN_RANKS_COUNT, .dtype = value->type.dtype};
    attrs.i[WN_RANKS_SIZE] = ranks->size;
    attrs.i[WN_RANKS_RANK] = ranks->rank;
    attrs.i[WN_RANKS_START] = cut == NULL ? 0 : cut->start;
    attrs.i[WN_RANKS_GIVEN] = group != WN_GROUP_TEAM ? ranks->given : ranks->is_idle ? 0 : ranks->team;
    attrs.i[WN_RANKS_ELEMENTS] = cut == NULL ? wn__numel(&value->type) : cut->elements;
    attrs.i[WN_RANKS_WHOLE] = cut == NULL;
    attrs.i[WN_RANKS_TEAM] = ranks->team;
    attrs.i[WN_RANKS_GROUP] = group;
    e->forward = value->phase == WN_PHASE_FORWARD ? value : value->forward_of;
    return wn__emit(&e->base, WN_OP_ALL_TO_ALL, ranks->has_no_part ? 0 : 1, &value, &attrs);
}

/* Returns what is exchanged for a gradient: what it was widened from, where it was, as no bits are lost by that. */
static struct wn_node *narrowest(struct wn_node *value)
{
    int32_t is_widened = value->op == WN_OP_CAST && value->type.dtype == WN_F32 && value->in[0]->type.dtype == WN_BF16;
    return is_widened ? value->in[0] : value;
}

/* Returns the cut of a cell: its own where it is sliced, else one behind those before it. next: where that starts. */
static struct wn__cut cut_of(const struct wn_cell *c, const struct wn__ranks *ranks, int32_t *next)
{
    struct wn__cut cut = {.elements = wn__numel(&c->whole),
                          .ranks = ranks->size,
                          .start = c->is_sliced ? c->cut_start : *next,
                          .team = ranks->team};
    if (!c->is_sliced) *next = wn__cut_next(&cut);
    return cut;
}

int32_t wn__grad_exchange(const struct wn__pass *last, const struct wn__ranks *ranks, struct wn__grads *g)
{
    struct wn__emitter e = {.base = {&wn__graph_recorder}, .g = g, .root = last->root};
    int32_t next = 0;
    for (int64_t i = 0; i < g->n_cells && e.code == WN_OK; i++) {
        const struct wn__cut cut = cut_of(g->cells[i], ranks, &next);
        g->values[i] = emit_pieces(&e, ranks, narrowest(g->values[i]), &cut, WN_GROUP_ALL);
    }
    return e.code;
}

/* Returns the share of a partial sum: what the team gives of a gradient, added to the share so far. NULL: WN_OOM. */
static struct wn_node *emit_share(struct wn__emitter *e, const struct wn__ranks *ranks, struct wn_node *value,
                                  struct wn_node *before, const struct wn__cut *cut)
{
    const struct wn_attrs attrs = {.dtype = value->type.dtype};
    struct wn_node *in[] = {emit_pieces(e, ranks, narrowest(value), cut, WN_GROUP_TEAM), before};
    return in[0] == NULL ? NULL : wn__emit(&e->base, WN_OP_PARTIAL_SUM, before == NULL ? 1 : 2, in, &attrs);
}

/* Puts in the place of each gradient its share, or, of the last pass, what all teams give for the own range of its
 * cell. Gradients go on across teams before the next ones are given, some small ones together, so that a plan can start
 * them so. before: (n) the shares so far. */
static void share_all(struct wn__emitter *e, const struct wn__ranks *ranks, struct wn_node *const *before, int64_t n,
                      int32_t is_last)
{
    int32_t next = 0, next_across = 0;
    int64_t elements = 0, across = 0;
    for (int64_t i = 0; i < e->g->n_cells && e->code == WN_OK; i++) {
        struct wn_node **value = &e->g->values[i], *so_far = i < n ? before[i] : NULL;
        const struct wn__cut cut = cut_of(e->g->cells[i], ranks, &next);
        *value = *value == NULL ? so_far : emit_share(e, ranks, *value, so_far, &cut);
        elements += cut.elements;
        if (!is_last || (elements < TOGETHER && i + 1 < e->g->n_cells)) continue;
        for (elements = 0; across <= i; across++) {
            const struct wn__cut same = cut_of(e->g->cells[across], ranks, &next_across);
            value = &e->g->values[across];
            if (*value != NULL) *value = emit_pieces(e, ranks, *value, &same, WN_GROUP_ACROSS);
        }
    }
}

int32_t wn__grad_share(struct wn__pass *pass, const struct wn__ranks *ranks, int32_t is_last, struct wn__grads *g)
{
    struct wn__emitter e = {.base = {&wn__graph_recorder}, .g = g, .root = pass->root};
    int64_t n = g->n_cells;
    struct wn_node **before = wn__alloc((n + 1) * (int64_t)sizeof *before);
    if (before == NULL) return WN_OOM;
    for (int64_t i = 0; i < n; i++) {
        before[i] = g->values[i];
        g->values[i] = NULL; /* until this pass gives one */
    }
    WN_KEEP(e.code, wn__grad_pass(pass, g));
    share_all(&e, ranks, before, n, is_last);
    wn__free(before);
    return e.code;
}

int32_t wn__values_exchange(const struct wn__pass *last, const struct wn__ranks *ranks, struct wn_node **value,
                            int32_t n, struct wn__grads *g)
{
    static const struct wn_attrs first_dim;
    struct wn__emitter e = {.base = {&wn__graph_recorder}, .g = g, .root = last->root};
    struct wn__ranks all = *ranks;
    struct wn_node *joined = value[0];
    if (ranks->is_shared) all.given *= ranks->team;
    e.forward = value[0];
    if (n > 1) joined = wn__emit(&e.base, WN_OP_CAT, n, value, &first_dim);
    if (joined != NULL) value[0] = emit_pieces(&e, &all, joined, NULL, WN_GROUP_ALL);
    return e.code;
}
