/* Settles the states that are gathered from ranks, once all that reads them has been put.
 *
 * Such a value belongs to the module and the region of the node that reads it first, so that a policy of that module
 * decides about it, and no region is cut in two. Where all its readers cast it to one narrower dtype, as under
 * autocast, each rank casts its own range and that is gathered: half of the bytes on the wire and of the value, and the
 * same bits, since a cast rounds element by element.
 *
 *   put       w (range)   g = all_gather(w)    x = cast(g)         y = cast(g)      readers of x and y
 *   settled   w (range)   g = cast(w)          x = all_gather(g)   y = reshape(x)   the same */
#include "assembly.h"

/* Readers of the states that are gathered, by node: (n of the IR) each. */
struct gathers {
    struct wn__ir *ir;
    int32_t *first;   /* the first node that reads it; 0: none does */
    uint8_t *is_wide; /* 1: some node reads it and is not such a cast as the first one */
};

/* Returns whether node i is a cast to the dtype that node `first` casts to, and no value of its own. */
static int32_t is_like(const struct wn__ir *ir, int32_t i, int32_t first)
{
    const struct wn__ir_node *p = &ir->node[i];
    return p->op == WN_OP_CAST && wn__ir_node_is_forward(p) && !p->bound && p->result < 0 &&
           p->attrs.dtype == ir->node[first].attrs.dtype;
}

static void find_readers(struct gathers *x)
{
    struct wn__ir *ir = x->ir;
    for (int32_t i = 0; i < ir->n; i++)
        for (int32_t k = 0; k < ir->node[i].n_in; k++) {
            int32_t v = wn__ir_in(ir, i, k);
            if (ir->node[v].op != WN_OP_ALL_GATHER) continue;
            if (x->first[v] == 0) x->first[v] = i;
            x->is_wide[v] |= !is_like(ir, i, x->first[v]);
        }
}

/* Makes each rank cast its range of state g, which all that reads it casts: the first such cast becomes what is
 * gathered, and the others views of it. */
static void narrow(const struct gathers *x, int32_t g)
{
    struct wn__ir *ir = x->ir;
    struct wn__ir_node *range = &ir->node[g], *whole = &ir->node[x->first[g]];
    const struct wn_attrs cast = whole->attrs;
    whole->op = WN_OP_ALL_GATHER;
    whole->attrs = range->attrs;
    whole->attrs.dtype = cast.dtype;
    whole->name = range->name;
    range->op = WN_OP_CAST;
    range->attrs = cast;
    range->type = ir->in_type[range->in_at];
    range->type.dtype = cast.dtype;
    range->bytes = wn__padded(wn__bytes(&range->type));
    ir->in_type[whole->in_at] = range->type;
    for (int32_t i = x->first[g] + 1; i < ir->n; i++) {
        struct wn__ir_node *p = &ir->node[i];
        if (p->op != WN_OP_CAST || p->n_in == 0 || wn__ir_in(ir, i, 0) != g) continue;
        p->op = WN_OP_RESHAPE;
        p->attrs = (struct wn_attrs){.n = (int16_t)p->type.ndim};
        for (int32_t k = 0; k < p->type.ndim; k++) p->attrs.i[k] = p->type.dim[k];
        ir->in[p->in_at] = x->first[g];
        ir->in_type[p->in_at] = whole->type;
    }
}

int32_t wn__settle_gathers(struct wn__ir *ir)
{
    struct gathers x = {.ir = ir};
    struct wn__pool scratch = {0};
    if (wn__ir_gathers(ir) == 0) return WN_OK;
    int32_t is_there = WN_ARRAY(&scratch, x.first, ir->n) && WN_ARRAY(&scratch, x.is_wide, ir->n);
    if (is_there) find_readers(&x);
    for (int32_t g = 0; is_there && g < ir->n; g++) {
        struct wn__ir_node *p = &ir->node[g], *by = &ir->node[x.first[g]];
        if (p->op != WN_OP_ALL_GATHER || x.first[g] == 0) continue;
        if (wn__ir_node_is_forward(by)) p->scope = by->scope, p->region = by->region;
        if (!x.is_wide[g] && p->result < 0 && p->type.layout == by->type.layout && by->bytes < p->bytes) narrow(&x, g);
    }
    wn__pool_release(&scratch);
    return is_there ? WN_OK : WN_OOM;
}
