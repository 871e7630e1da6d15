/* The verifier: checks every rule of legality by executing the finished schedule in a machine of its own. It trusts no
 * pass, and runs after every lowering, in release builds too.
 *
 *  1 an input is the value that the IR names, whole, not overwritten and not freed   (read)
 *  2 allocations that are alive never overlap, are inside their space and start on a
 *    granule; every number of an instruction is inside the table that it indexes     (overlap, bounds)
 *  3 an output goes where nothing lives, or over a dying input that its op may
 *    overwrite                                                                       (inplace)
 *  4 an effect is issued exactly once, into the cells that it names, after every
 *    read of their old version                                                       (effect, stale)
 *  5 an integer result is issued once: never recomputed                              (index)
 *  6 a free is of an allocation of the arena that is alive; at the end none is       (free, leak)
 *  7 every result that was asked for is there at the end                             (result)
 *  8 a kept form is made of its value, only it becomes the value again, and nothing
 *    else reads it                                                                   (action)
 *  9 until a transfer is waited for, its source is neither written nor freed and its
 *    target is not touched; each transfer is waited for exactly once                 (wait)
 * 10 a kernel of the op reads its inputs and writes its result in the layouts and
 *    dtypes that they have                                                           (layout)
 * 11 exchanges among ranks start in the order of nodes; every element of a gradient
 *    is summed by exactly one rank, and comes from that one                          (ranks) */
#include <string.h>
#include "../recipe/action.h"
#include "verify.h"

int32_t wn__illegal(const struct machine *m, const char *rule, const char *what, int32_t which)
{
    const struct wn__instr *n = &m->s->instr[m->at < m->s->n ? m->at : m->s->n - 1];
    return wn__fail(WN_ILLEGAL, "illegal schedule, rule '%s', instruction %d (%s): %s (%d)", rule, m->at + 1,
                    m->s->n > 0 ? wn__op_name(m->ir->node[n->node].op) : "none", what, which);
}

/* Returns the bytes of the space that an allocation is in. */
static int64_t space_size(const struct machine *m, const struct wn__allocation *t)
{
    switch (t->space) {
    case WN_SPACE_ARENA: return m->s->arena;
    case WN_SPACE_SLAB: return m->ir->slab[t->slot].bytes;
    case WN_SPACE_HOST: return m->s->offload_buffer[WN_MEDIUM_HOST];
    case WN_SPACE_DISK: return m->s->offload_buffer[WN_MEDIUM_DISK];
    case WN_SPACE_RANKS: return m->s->offload_buffer[WN_MEDIUM_RANKS];
    default: return t->bytes;
    }
}

/* Returns a number for the start that an allocation's offset counts from: one for the arena, one for each slot of
 * another space. */
static int64_t origin_of(const struct wn__allocation *t)
{
    return ((int64_t)t->space << 32) + (t->space == WN_SPACE_ARENA ? 0 : t->slot);
}

/* Returns the index of the first of `taken` that begins above `offset` of the same origin, or that is of a later
 * origin. */
static int32_t first_above(const struct machine *m, int64_t origin, int64_t offset)
{
    int32_t lo = 0, hi = m->n_taken;
    while (lo < hi) {
        int32_t middle = (lo + hi) / 2;
        const struct wn__allocation *t = &m->s->allocation[m->taken[middle]];
        if (origin_of(t) > origin || (origin_of(t) == origin && t->offset > offset)) hi = middle;
        else lo = middle + 1;
    }
    return lo;
}

/* Checks that no allocation alive is in the way of t. Since none overlap, only the neighbours of t's offset can be. */
static int32_t check_extent(const struct machine *m, const struct wn__allocation *t)
{
    int64_t origin = origin_of(t), end = t->offset + wn__allocation_span(t);
    int32_t above = first_above(m, origin, t->offset);
    for (int32_t k = above - 1; k <= above; k++) {
        const struct wn__allocation *o = k >= 0 && k < m->n_taken ? &m->s->allocation[m->taken[k]] : NULL;
        if (o == NULL || origin_of(o) != origin) continue;
        if (o->offset < end && t->offset < o->offset + wn__allocation_span(o))
            return wn__illegal(m, "overlap", "bytes are in use by allocation", m->taken[k]);
    }
    return WN_OK;
}

static void take(struct machine *m, int32_t allocation)
{
    const struct wn__allocation *t = &m->s->allocation[allocation];
    if (wn__allocation_span(t) == 0) return;
    int32_t k = first_above(m, origin_of(t), t->offset);
    memmove(&m->taken[k + 1], &m->taken[k], (size_t)(m->n_taken - k) * sizeof *m->taken);
    m->taken[k] = allocation;
    m->n_taken++;
}

static void give_back(struct machine *m, int32_t allocation)
{
    const struct wn__allocation *t = &m->s->allocation[allocation];
    if (wn__allocation_span(t) == 0) return;
    int32_t k = first_above(m, origin_of(t), t->offset);
    memmove(&m->taken[k - 1], &m->taken[k], (size_t)(m->n_taken - k) * sizeof *m->taken);
    m->n_taken--;
}

/* Checks that an allocation is inside its space and overlaps none that is alive, and makes it alive. */
int32_t wn__verify_alive(struct machine *m, int32_t allocation)
{
    const struct wn__allocation *t = &m->s->allocation[allocation];
    if (m->alive[allocation]) return WN_OK;
    int32_t granule = t->is_paged ? WN_PAGE : WN_GRANULE;
    if (t->offset < 0 || t->offset % granule != 0 || t->offset > space_size(m, t) - wn__allocation_span(t))
        return wn__illegal(m, "bounds", "an allocation lies outside its space", allocation);
    WN_TRY(check_extent(m, t));
    take(m, allocation);
    m->alive[allocation] = 1;
    return WN_OK;
}

/* Checks rules 1, 4, 8 and 9 of what an instruction that runs a node reads. */
int32_t wn__verify_inputs(struct machine *m, const struct wn__instr *n)
{
    const struct wn__ir_node *p = &m->ir->node[n->node];
    for (int32_t k = 0; k < p->n_in; k++) {
        int32_t c = m->s->in[n->in_at + k];
        if (c < 0 || c >= m->s->n_values) return wn__illegal(m, "read", "no value is named for input", k + 1);
        const struct wn__value *value = &m->s->value[c];
        const struct wn__ir_node *v = &m->ir->node[value->node];
        if (value->action != 0) return wn__illegal(m, "action", "a packed form is read as a value, input", k + 1);
        if (wn__action_is_partial(value->back) && !wn__ir_reads_sign(m->ir, n->node, k))
            return wn__illegal(m, "action", "a part of a value is read as all of it, input", k + 1);
        if (value->node != wn__ir_storage(m->ir, wn__ir_in(m->ir, n->node, k)))
            return wn__illegal(m, "read", "another value than the graph's is read as input", k + 1);
        if (m->arriving[value->allocation])
            return wn__illegal(m, "wait", "a value is read before it has arrived, input", k + 1);
        if (!m->alive[value->allocation])
            return wn__illegal(m, "read", "a value is read before it is made or after it is freed, input", k + 1);
        int32_t leaf = v->leaf != WN_LEAF_NONE || v->bound;
        if (!leaf && m->content[value->allocation] != c)
            return wn__illegal(m, "read", "a value was overwritten before it is read, input", k + 1);
        if (v->leaf == WN_LEAF_CELL && m->written[v->slot])
            return wn__illegal(m, "stale", "a state is read after an effect changed it, input", k + 1);
    }
    return WN_OK;
}

/* Checks rules 2, 3, 8 and 9 of what an instruction makes, and makes its allocation alive. */
int32_t wn__verify_output(struct machine *m, const struct wn__instr *n)
{
    const struct wn__ir_node *p = &m->ir->node[n->node];
    const struct wn__value *value = &m->s->value[n->out];
    const struct wn__allocation *t = &m->s->allocation[value->allocation];
    if (value->node != n->node) return wn__illegal(m, "read", "the output belongs to node", value->node);
    if ((value->action != 0) != (n->what == WN_DO_PACK || n->what == WN_DO_OFFLOAD))
        return wn__illegal(m, "action", "the output is of another form than this makes, value", n->out);
    if (t->bytes < wn__value_bytes(m->ir, value) || value->at != 0)
        return wn__illegal(m, "bounds", "the output's allocation is too small", value->allocation);
    if (n->inplace >= 0) {
        int32_t over = m->s->value[m->s->in[n->in_at + n->inplace]].allocation;
        if (over != value->allocation || t->pinned || !wn__may_overwrite(p->op, &p->attrs, n->inplace))
            return wn__illegal(m, "inplace", "this op may not overwrite input", n->inplace + 1);
        if (m->leaving[over] || m->arriving[over])
            return wn__illegal(m, "wait", "a value under way is overwritten in allocation", over);
    } else if (m->alive[value->allocation]) {
        return wn__illegal(m, "inplace", "the output goes over a value alive in allocation", value->allocation);
    }
    WN_TRY(wn__verify_alive(m, value->allocation));
    m->content[value->allocation] = n->out;
    return WN_OK;
}

/* Checks rule 4: an effect writes its own cells, and a product reads no state that it writes. */
static int32_t check_effect(struct machine *m, const struct wn__instr *n)
{
    const struct wn__ir_node *p = &m->ir->node[n->node];
    int32_t after;
    if (!(wn__op_flags(p->op) & WN_EFFECT))
        return wn__illegal(m, "effect", "an op without output is no effect, node", n->node);
    for (int32_t k = 0; k < 3; k++) {
        if (p->cell[k] < 0) continue;
        const struct wn__ir_cell *c = &m->ir->cell[p->cell[k]];
        const struct wn__allocation *t = n->cell[k] >= 0 ? &m->s->allocation[n->cell[k]] : NULL;
        int32_t right = t != NULL && t->pinned &&
                        (c->slab >= 0 ? t->space == WN_SPACE_SLAB && t->slot == c->slab && t->offset == c->slab_offset
                                      : t->space == WN_SPACE_CELL && t->slot == p->cell[k]);
        if (!right) return wn__illegal(m, "effect", "it writes elsewhere than its cell", p->cell[k]);
        if (m->arriving[n->cell[k]])
            return wn__illegal(m, "wait", "a state is written before it has arrived", p->cell[k]);
        WN_TRY(wn__verify_sum(m, p));
        WN_TRY(wn__verify_alive(m, n->cell[k]));
        (void)wn__verify_sum_before(p, &after);
        m->written[p->cell[k]] = (uint8_t)after;
    }
    for (int32_t k = 0; p->op == WN_OP_PRODUCT_UPDATE && k < p->n_in; k++) {
        const struct wn__ir_node *v = &m->ir->node[m->s->value[m->s->in[n->in_at + k]].node];
        int32_t is_own = v->leaf == WN_LEAF_CELL ? m->written[v->slot] : 0; /* check_inputs has found it unwritten */
        if (is_own)
            return wn__illegal(m, "stale", "a product reads a state that it writes at the same time, input", k + 1);
    }
    return WN_OK;
}

/* Checks the one input of a pack, an unpack, an offload or a fetch: of the same node, alive, and of the form that
 * the instruction reads. */
static int32_t check_moved(struct machine *m, const struct wn__instr *n)
{
    int32_t c = m->s->in[n->in_at];
    if (c < 0 || c >= m->s->n_values || n->out < 0) return wn__illegal(m, "action", "no value is named", c);
    const struct wn__value *from = &m->s->value[c];
    if (from->node != n->node) return wn__illegal(m, "action", "the value belongs to another node", from->node);
    if ((from->action != 0) != (n->what == WN_DO_UNPACK || n->what == WN_DO_FETCH))
        return wn__illegal(m, "action", "the value is of another form than this reads, value", c);
    int32_t back = n->what == WN_DO_UNPACK ? m->s->value[n->out].back : from->back;
    if (n->what == WN_DO_UNPACK ? back != from->action : wn__action_is_partial(back))
        return wn__illegal(m, "action", "what comes back is not what left, value", n->out);
    const struct wn__ir_node *v = &m->ir->node[from->node];
    if (m->arriving[from->allocation]) return wn__illegal(m, "wait", "a value is moved before it has arrived", c);
    if (!m->alive[from->allocation] || (v->leaf == WN_LEAF_NONE && !v->bound && m->content[from->allocation] != c))
        return wn__illegal(m, "action", "a value is read that is not there", c);
    return n->inplace < 0 ? WN_OK : wn__illegal(m, "inplace", "this op may not overwrite input", n->inplace + 1);
}

/* Notes that a transfer is under way. */
int32_t wn__verify_start(struct machine *m, const struct wn__instr *n, int32_t from, int32_t to)
{
    if (n->move < 0 || n->move >= m->s->n_moves || m->move[n->move].state != 0)
        return wn__illegal(m, "wait", "a move that was started before", n->move);
    m->move[n->move] = (struct under_way){from, to, n->staged, 1};
    m->leaving[from]++;
    m->arriving[to]++;
    if (n->staged >= 0) m->leaving[n->staged]++;
    return WN_OK;
}

/* Checks a transfer: from the arena to the offload buffer that its action names, or back; both ends are on pages. */
static int32_t step_move(struct machine *m, const struct wn__instr *n)
{
    WN_TRY(check_moved(m, n));
    int32_t out = n->what == WN_DO_OFFLOAD, from = m->s->value[m->s->in[n->in_at]].allocation,
            to = m->s->value[n->out].allocation;
    int32_t place = wn__action_medium(m->s->value[out ? n->out : m->s->in[n->in_at]].action);
    int32_t offload_buffer = place == WN_MEDIUM_DISK ? WN_SPACE_DISK : WN_SPACE_HOST;
    const struct wn__allocation *near = &m->s->allocation[out ? from : to], *far = &m->s->allocation[out ? to : from];
    int32_t is_near =
        near->is_paged && !near->pinned && (near->space == WN_SPACE_ARENA || near->space == WN_SPACE_SLAB);
    if (place < 0 || far->space != offload_buffer || !is_near)
        return wn__illegal(m, "action", "a move between other places than its action names, allocation", to);
    WN_TRY(wn__verify_output(m, n));
    return wn__verify_start(m, n, from, to);
}

static int32_t step_wait(struct machine *m, const struct wn__instr *n)
{
    if (n->move < 0 || n->move >= m->s->n_moves || m->move[n->move].state != 1)
        return wn__illegal(m, "wait", "a move is waited for that is not under way", n->move);
    m->move[n->move].state = 2;
    m->leaving[m->move[n->move].from]--;
    m->arriving[m->move[n->move].to]--;
    if (m->move[n->move].through >= 0) m->leaving[m->move[n->move].through]--;
    return WN_OK;
}

static int32_t check_layouts(const struct machine *m, const struct wn__instr *n)
{
    struct wn_desc d = wn__ir_desc_of(m->ir, &m->ir->node[n->node]);
    return wn__op_reads(&d) ? WN_OK : wn__illegal(m, "layout", "no kernel of this op reads its inputs as they lie", 0);
}

/* Checks how often a node is issued, and what an effect writes. */
int32_t wn__verify_issue(struct machine *m, const struct wn__instr *n)
{
    if (n->out < 0) WN_TRY(check_effect(m, n));
    if (m->issued[n->node]++ > 0) {
        if (n->out < 0) return wn__illegal(m, "effect", "an effect is issued twice, node", n->node);
        if (wn__op_flags(m->ir->node[n->node].op) & WN_INDEX)
            return wn__illegal(m, "index", "an integer result is recomputed, node", n->node);
    }
    return WN_OK;
}

/* Checks an instruction with a kernel: inputs, workspace, output, effects, and how often it is issued. */
static int32_t step_run(struct machine *m, const struct wn__instr *n)
{
    if (n->what == WN_DO_RUN && (wn__op_flags(m->ir->node[n->node].op) & WN_LINK))
        return wn__illegal(m, "ranks", "an exchange runs as a kernel, node", n->node);
    if (n->what == WN_DO_RUN) WN_TRY(check_layouts(m, n));
    if (n->what == WN_DO_RUN) WN_TRY(wn__verify_inputs(m, n));
    else WN_TRY(check_moved(m, n));
    if (n->work_bytes > 0) {
        int32_t slab = n->work_slab;
        struct wn__allocation w = {.space = slab < 0 ? WN_SPACE_ARENA : WN_SPACE_SLAB,
                                   .slot = slab,
                                   .offset = n->work_offset,
                                   .bytes = n->work_bytes};
        if (w.offset < 0 || w.offset > space_size(m, &w) - w.bytes)
            return wn__illegal(m, "bounds", "a workspace lies outside its space", 0);
        if (n->out >= 0) WN_TRY(wn__verify_output(m, n));
        WN_TRY(check_extent(m, &w));
    } else if (n->out >= 0) {
        WN_TRY(wn__verify_output(m, n));
    }
    return n->what == WN_DO_RUN ? wn__verify_issue(m, n) : WN_OK;
}

/* Checks a free, and ends the life of its allocation. */
static int32_t step_free(struct machine *m, const struct wn__instr *n)
{
    if (n->out < 0 || n->out >= m->s->n_allocations || !m->alive[n->out] || m->s->allocation[n->out].pinned)
        return wn__illegal(m, "free", "this allocation cannot be freed here", n->out);
    if (m->leaving[n->out] || m->arriving[n->out])
        return wn__illegal(m, "wait", "an allocation is freed while a move is under way, allocation", n->out);
    give_back(m, n->out);
    m->alive[n->out] = 0;
    m->content[n->out] = -1;
    return WN_OK;
}

/* Checks that a result that is read to the host is there, whole. */
static int32_t step_read(struct machine *m, const struct wn__instr *n)
{
    const struct wn__value *c = &m->s->value[n->out];
    if (m->arriving[c->allocation])
        return wn__illegal(m, "wait", "a result is taken before it has arrived, allocation", c->allocation);
    if (!m->alive[c->allocation] || m->content[c->allocation] != n->out || c->node != n->node || c->action != 0 ||
        wn__action_is_partial(c->back))
        return wn__illegal(m, "result", "a result is taken from an allocation that does not hold it", c->allocation);
    m->read_out[n->node]++;
    return WN_OK;
}

/* Checks what must hold after the last instruction: transfers, leaks, effects, results. */
static int32_t check_end(struct machine *m)
{
    const struct wn__ir *ir = m->ir;
    m->at = m->s->n;
    for (int32_t k = 0; k < m->s->n_moves; k++)
        if (m->move[k].state != 2) return wn__illegal(m, "wait", "a move is never waited for", k);
    for (int32_t t = 0; t < m->s->n_allocations; t++)
        if (m->alive[t] && !m->s->allocation[t].pinned)
            return wn__illegal(m, "leak", "an allocation is never freed", t);
    for (int32_t i = ir->n - ir->n_effects; i < ir->n; i++)
        if (m->issued[i] != 1) return wn__illegal(m, "effect", "an effect is not issued, node", i);
    for (int32_t r = 0; r < ir->n_results; r++) {
        int32_t node = ir->result_node[r], t = m->s->result_allocation[r];
        int32_t there = ir->node[node].type.ndim == 0
                            ? m->read_out[node] == 1
                            : t >= 0 && m->content[t] >= 0 && m->s->value[m->content[t]].node == node &&
                                  m->s->value[m->content[t]].action == 0 &&
                                  !wn__action_is_partial(m->s->value[m->content[t]].back);
        if (!there) return wn__illegal(m, "result", "a result asked for is missing, node", node);
    }
    return wn__verify_ranks(m);
}

/* Checks the numbers that the rules index with, before any rule does: values, allocations, inputs and slabs. */
static int32_t check_numbers(const struct machine *m, const struct wn__instr *n)
{
    const struct wn__schedule *s = m->s;
    if (n->node < 0 || n->node >= m->ir->n) return wn__illegal(m, "read", "no such node", n->node);
    int32_t n_in = n->what == WN_DO_WAIT ? 0 : wn__instr_n_in(m->ir, n);
    int32_t most_out = n->what == WN_DO_FREE ? s->n_allocations : s->n_values;
    if (n_in > 0 && (n->in_at < 0 || n->in_at > s->n_in - n_in))
        return wn__illegal(m, "bounds", "its inputs lie outside the list of inputs, at", n->in_at);
    if (n->inplace < -1 || n->inplace >= n_in)
        return wn__illegal(m, "inplace", "there is no such input, counted from 0", n->inplace);
    int32_t least_out = wn__instr_is_node(n) || n->what == WN_DO_WAIT ? -1 : 0;
    if (n->out < least_out || n->out >= most_out) return wn__illegal(m, "bounds", "there is no such output", n->out);
    for (int32_t k = 0; k < 3; k++)
        if (n->cell[k] < -1 || n->cell[k] >= s->n_allocations)
            return wn__illegal(m, "effect", "there is no allocation of a cell", n->cell[k]);
    if (n->staged < -1 || n->staged >= s->n_allocations)
        return wn__illegal(m, "ranks", "there is no allocation to go through", n->staged);
    if (n->work_bytes > 0 && n->work_slab >= m->ir->n_slabs)
        return wn__illegal(m, "bounds", "there is no slab for a workspace", n->work_slab);
    return WN_OK;
}

/* Makes alive what is there before the program, then checks instruction by instruction. */
static int32_t check_all(struct machine *m)
{
    for (int32_t t = 0; t < m->s->n_allocations; t++) {
        const struct wn__allocation *st = &m->s->allocation[t];
        m->content[t] = -1;
        if (st->space == WN_SPACE_BOUND || st->space == WN_SPACE_CELL || t == m->s->scalars)
            WN_TRY(wn__verify_alive(m, t));
    }
    for (m->at = 0; m->at < m->s->n; m->at++) {
        const struct wn__instr *n = &m->s->instr[m->at];
        WN_TRY(check_numbers(m, n));
        int32_t code = wn__instr_has_kernel(n)     ? step_run(m, n)
                       : wn__instr_way(n) >= 0     ? step_move(m, n)
                       : n->what == WN_DO_EXCHANGE ? wn__verify_exchange(m, n)
                       : n->what == WN_DO_WAIT     ? step_wait(m, n)
                       : n->what == WN_DO_FREE     ? step_free(m, n)
                                                   : step_read(m, n);
        if (code != WN_OK) return code;
    }
    return check_end(m);
}

int32_t wn__verify(const struct wn__ir *ir, const struct wn__schedule *s)
{
    struct wn__pool scratch = {0};
    struct machine m = {.ir = ir, .s = s, .exchanged = {-1, -1, -1}};
    int32_t n = s->n_allocations;
    int32_t is_there = WN_ARRAY(&scratch, m.content, n) && WN_ARRAY(&scratch, m.alive, n) &&
                       WN_ARRAY(&scratch, m.taken, n) && WN_ARRAY(&scratch, m.issued, ir->n) &&
                       WN_ARRAY(&scratch, m.written, ir->n_cells) && WN_ARRAY(&scratch, m.read_out, ir->n) &&
                       WN_ARRAY(&scratch, m.leaving, n) && WN_ARRAY(&scratch, m.arriving, n) &&
                       WN_ARRAY(&scratch, m.move, s->n_moves);
    int32_t code = is_there ? check_all(&m) : WN_OOM;
    wn__pool_release(&scratch);
    return code;
}
