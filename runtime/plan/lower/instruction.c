/* Describes what an instruction applies and makes, whether it runs a node or packs and unpacks a kept value. */
#include "schedule.h"
#include "../recipe/action.h"

int64_t wn__value_bytes(const struct wn__ir *ir, const struct wn__value *c)
{
    struct wn_type type;
    wn__action_type(ir, c->node, c->action, &type);
    return wn__action_medium(c->action) >= 0 ? wn__paged(wn__bytes(&type)) : wn__padded(wn__bytes(&type));
}

const struct wn_desc *wn__instr_desc(const struct wn__ir *ir, const struct wn__schedule *s, const struct wn__instr *n,
                                     struct wn__applied *room)
{
    struct wn_desc *d = &room->desc;
    if (wn__instr_is_node(n)) wn__ir_desc_to(ir, &ir->node[n->node], d);
    else if (n->what == WN_DO_PACK) wn__action_pack(ir, n->node, s->value[n->out].action, d);
    else wn__action_unpack(ir, n->node, s->value[s->in[n->in_at]].action, &room->in, d);
    return d;
}

const struct wn_desc *wn__instr_kernel_desc(const struct wn__ir *ir, const struct wn__schedule *s,
                                            const struct wn__instr *n, struct wn__applied *room)
{
    return wn__in_memory_order(wn__instr_desc(ir, s, n, room), &room->order);
}

int32_t wn__instr_n_in(const struct wn__ir *ir, const struct wn__instr *n)
{
    if (wn__instr_is_node(n)) return ir->node[n->node].n_in;
    if (n->what == WN_DO_WAIT) return (wn__op_flags(ir->node[n->node].op) & WN_EFFECT) != 0 ? 0 : 2;
    return wn__instr_makes(n);
}

int64_t wn__instr_bytes(const struct wn__ir *ir, const struct wn__schedule *s, const struct wn__instr *n)
{
    struct wn__applied room;
    if (wn__instr_is_node(n)) return wn__bytes(&ir->node[n->node].type);
    return wn__bytes(&wn__instr_desc(ir, s, n, &room)->out);
}

int64_t wn__staged_bytes(const struct wn__ir *ir, int32_t node, int64_t *both)
{
    const struct wn__ir_node *p = &ir->node[node];
    int32_t place = wn__place_at(&p->attrs, (int32_t)p->attrs.i[WN_RANKS_RANK]);
    int32_t leaves = p->op == WN_OP_ALL_TO_ALL && p->n_in > 0 && place < p->attrs.i[WN_RANKS_GIVEN];
    int64_t first = leaves ? wn__padded(wn__bytes(&ir->in_type[p->in_at])) : 0;
    int64_t ranges = wn__group_range(&p->attrs).count * wn__dtype_size(p->type.dtype);
    *both = first + wn__padded(p->op == WN_OP_ALL_TO_ALL ? wn__bytes(&p->type) : ranges);
    return first;
}
