/* Checks what a schedule exchanges among ranks: rule 11 of verify.c, and how far each sum has come. */
#include "verify.h"

/* Says how far the sum of a cell has come: none, of the own range, of the own share, whole. */
enum { NO_SUM, OWN_SUM, SHARED_SUM, WHOLE_SUM };

/* Returns how far a sum must have come for an effect among ranks, -1 for others; *to: how far it comes by that. */
int32_t wn__verify_sum_before(const struct wn__ir_node *p, int32_t *to)
{
    int64_t group = p->attrs.i[WN_RANKS_GROUP];
    *to = OWN_SUM;
    if (p->op != WN_OP_ORDERED_SUM && p->op != WN_OP_REFRESH) return -1;
    *to = p->op == WN_OP_ORDERED_SUM ? OWN_SUM : group == WN_GROUP_ACROSS ? SHARED_SUM : WHOLE_SUM;
    return p->op == WN_OP_ORDERED_SUM ? NO_SUM : group == WN_GROUP_TEAM ? SHARED_SUM : OWN_SUM;
}

/* Checks that an effect among ranks comes in its turn. */
int32_t wn__verify_sum(struct machine *m, const struct wn__ir_node *p)
{
    int32_t to, from = wn__verify_sum_before(p, &to);
    return from < 0 || m->written[p->cell[0]] == from
               ? WN_OK
               : wn__illegal(m, "ranks", "summed twice, or exchanged before it is summed, cell", p->cell[0]);
}

/* Checks that an exchange goes through bytes of the host exactly where devices exchange through it. */
static int32_t check_staged(struct machine *m, const struct wn__instr *n)
{
    int64_t bytes;
    if ((n->staged < 0) == wn__target_stages(m->ir->target))
        return wn__illegal(m, "ranks", "an exchange goes another way than its device has, allocation", n->staged);
    if (n->staged < 0) return WN_OK;
    const struct wn__allocation *t = &m->s->allocation[n->staged];
    wn__staged_bytes(m->ir, n->node, &bytes);
    if (t->space != WN_SPACE_RANKS || t->pinned || t->bytes < bytes || m->alive[n->staged])
        return wn__illegal(m, "ranks", "an exchange goes through bytes that are not its own, allocation", n->staged);
    return wn__verify_alive(m, n->staged);
}

/* Checks an exchange among ranks, from its input, or the state that it refreshes, to what it makes. */
int32_t wn__verify_exchange(struct machine *m, const struct wn__instr *n)
{
    const struct wn__ir_node *p = &m->ir->node[n->node];
    int32_t is_state = n->out < 0, is_share = is_state && p->attrs.i[WN_RANKS_GROUP] == WN_GROUP_TEAM;
    int32_t line = is_state + is_share, of = is_state && !is_share ? wn__ir_in(m->ir, n->node, 0) : n->node;
    if (!(wn__op_flags(p->op) & WN_LINK))
        return wn__illegal(m, "ranks", "an op that runs on one rank is exchanged", p->op);
    int32_t is_again = p->op == WN_OP_ALL_GATHER; /* it may be gathered many times */
    if (!is_again && of <= m->exchanged[line])
        return wn__illegal(m, "ranks", "other ranks have exchanged it before node", of);
    for (int32_t later = line + 1; later < 3 && m->ir->target->has_link; later++)
        if (m->exchanged[later] >= 0)
            return wn__illegal(m, "ranks", "other ranks exchange it before what was exchanged, node", of);
    if (is_state) WN_TRY(wn__verify_sum(m, p));
    WN_TRY(check_staged(m, n));
    if (!is_again) m->exchanged[line] = of;
    WN_TRY(wn__verify_inputs(m, n));
    if (n->out >= 0) WN_TRY(wn__verify_output(m, n));
    WN_TRY(wn__verify_issue(m, n));
    int32_t to = n->out >= 0 ? m->s->value[n->out].allocation : n->cell[0];
    int32_t from = n->out >= 0 && p->n_in > 0 ? m->s->value[m->s->in[n->in_at]].allocation : to;
    return wn__verify_start(m, n, from, to);
}

/* Checks that ranks cut a value into ranges that follow each other, and that effect i cuts it as the exchange did that
 * it reads. */
static int32_t check_cut(struct machine *m, int32_t i)
{
    const struct wn__ir_node *p = &m->ir->node[i], *of = &m->ir->node[wn__ir_in(m->ir, i, 0)];
    const struct wn__cut cut = wn__cut_of(&p->attrs), other = wn__cut_of(&of->attrs);
    int64_t end = 0;
    if (of->leaf != WN_LEAF_CELL && (of->op != WN_OP_ALL_TO_ALL || !wn__cut_equal(&cut, &other)))
        return wn__illegal(m, "ranks", "a sum is cut in another way than what is summed, node", i);
    for (int32_t part = 0; part < cut.ranks; part++) {
        struct wn__range range = wn__range_of(&cut, wn__part_owner(&cut, part), 0);
        if (range.first != end || range.count < 0)
            return wn__illegal(m, "ranks", "two ranks sum one element, part", part);
        end += range.count;
    }
    return end == cut.elements ? WN_OK : wn__illegal(m, "ranks", "no rank sums an element, node", i);
}

/* Checks rule 11 for what is summed, and that all or none of it comes back. Stamps `written` with the sums. */
int32_t wn__verify_ranks(struct machine *m)
{
    const struct wn__ir *ir = m->ir;
    int32_t sums = 0, back = 0;
    for (int32_t k = 0; k < ir->n_cells; k++) m->written[k] = 0;
    for (int32_t i = ir->n - ir->n_effects; i < ir->n; i++) {
        const struct wn__ir_node *p = &ir->node[i];
        int32_t to, is_sum = wn__verify_sum_before(p, &to) >= 0;
        if (!is_sum && !wn__ir_updates_range(ir, i)) continue;
        if (is_sum) WN_TRY(check_cut(m, i));
        if (is_sum) WN_TRY(wn__verify_sum(m, p));
        m->written[p->cell[0]] = (uint8_t)to;
        sums += to == OWN_SUM && !ir->cell[p->cell[0]].is_range;
        back += to == WHOLE_SUM;
    }
    return back == 0 || back == sums ? WN_OK : wn__illegal(m, "ranks", "a sum does not come back, of sums", sums);
}
