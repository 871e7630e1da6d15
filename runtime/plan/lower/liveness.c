/* Lifetimes: finds which bytes each value is in, and from when to when, and writes the finished schedule.
 *
 *   item          0     1     2     3     4
 *   value x       make  read  read              x dies at 2 and y = f(x) may overwrite it,
 *   value y                   make  read        so y takes over allocation a
 *   value z             make              read
 *   a             |--------------------| free
 *   b                   |--------------------| free
 *
 * A gradient that becomes a cell's value is made in the cell, a result in its own bytes, every other value in the
 * arena. Each free follows right after the last use. */
#include <string.h>
#include "../recipe/action.h"
#include "../ir/costs.h"
#include "schedule.h"
#include "lower.h"

/* When values are used, as numbers of items. Invariant: last[v] is -1 exactly where no item makes or reads value v. */
struct uses {
    int32_t *last; /* (n_values of the list) the last item that makes or reads a value */
    int32_t *pin;  /* (n_values) the cell that a value is made in; -1: none */
};
/* Facts of allocations while lifetimes are found. Invariant: each allocation that is not pinned is in one of the
 * lists of `freed` and `next`, once. */
struct allocations {
    int32_t *last;     /* (allocations) the last item that uses the value that lives there now */
    int32_t *of_cell;  /* (n_cells) the allocation of each cell; -1: none yet */
    int32_t *of_bound; /* (n_bound) the allocation of each bound input; -1: none yet */
    int32_t *of_move;  /* (n_moves) the allocation that each exchange goes through; -1: none */
    int32_t *freed;    /* (n_items) the first allocation that is freed after an item; -1: none */
    int32_t *next;     /* (allocations) the next that is freed there; -1: none */
};
struct finish {
    const struct wn__ir *ir;
    const struct wn__list *l;
    struct wn__schedule *s;
    struct uses uses;
    struct allocations allocations;
    int32_t *inplace; /* (n_items) number of the input that an item's output overwrites; -1: none */
};

static int32_t put_allocation(struct finish *x, int32_t space, int32_t slot, int32_t kind, int64_t bytes,
                              int32_t pinned)
{
    struct wn__allocation *t = &x->s->allocation[x->s->n_allocations];
    *t = (struct wn__allocation){
        .space = space, .slot = slot, .kind = kind, .first = -1, .last = -1, .pinned = pinned, .bytes = bytes};
    return x->s->n_allocations++;
}

/* Returns whether an item issues a node. */
static int32_t is_node(const struct wn__item *it)
{
    return it->what == WN_DO_RUN || it->what == WN_DO_EXCHANGE;
}

/* Returns whether an item reports wrong data. */
static int32_t is_reporting(const struct finish *x, const struct wn__item *it)
{
    if (!x->ir->target->is_asynchronous || it->what != WN_DO_RUN) return 0;
    const struct wn__ir_node *p = &x->ir->node[it->node];
    return (wn__op_flags(p->op) & (p->type.dtype == WN_I32 ? WN_CHECKED | WN_WHOLE : WN_CHECKED)) != 0;
}

static int32_t cell_allocation(struct finish *x, int32_t slot)
{
    const struct wn__ir_cell *c = &x->ir->cell[slot];
    if (x->allocations.of_cell[slot] >= 0) return x->allocations.of_cell[slot];
    int32_t t = put_allocation(x, c->slab >= 0 ? WN_SPACE_SLAB : WN_SPACE_CELL, c->slab >= 0 ? c->slab : slot, c->kind,
                               c->bytes, 1);
    x->s->allocation[t].offset = c->slab >= 0 ? c->slab_offset : 0;
    return x->allocations.of_cell[slot] = t;
}

/* Returns the number of items that report wrong data: those of checked ops, on an asynchronous device. */
static int64_t count_reports(const struct finish *x)
{
    int64_t n = 0;
    if (!x->ir->target->is_asynchronous) return 0;
    for (int64_t i = 0; i < x->l->n_items; i++) n += is_reporting(x, &x->l->item[i]);
    return n;
}

/* Gives leaves and bound inputs their allocations: cells, held values, and one allocation for all numbers of the
 * host. */
static void place_leaves(struct finish *x)
{
    const struct wn__ir *ir = x->ir;
    int64_t scalar_bytes = wn__report_at(ir, count_reports(x));
    if (scalar_bytes > 0)
        x->s->scalars = put_allocation(x, WN_SPACE_ARENA, -1, WN_KIND_WORKSPACE, wn__padded(scalar_bytes), 1);
    for (int64_t c = 0; c < x->l->n_values; c++) {
        struct wn__value *value = &x->s->value[c];
        const struct wn__ir_node *p = &ir->node[value->node];
        if (p->leaf == WN_LEAF_CELL) {
            value->allocation = cell_allocation(x, p->slot);
        } else if (p->leaf == WN_LEAF_SCALAR || p->bound == WN_BOUND_NUMBER) {
            value->allocation = x->s->scalars;
            value->at = wn__scalar_at(p->slot);
        } else if (p->leaf == WN_LEAF_HELD || p->bound == WN_BOUND_HELD) {
            if (x->allocations.of_bound[p->slot] < 0)
                x->allocations.of_bound[p->slot] =
                    put_allocation(x, WN_SPACE_BOUND, p->slot, WN_KIND_INPUT, p->bytes, 1);
            value->allocation = x->allocations.of_bound[p->slot];
        }
    }
}

/* Fills the last use of each value, and the cell that a value is made in: one that an assignment puts into a slab. */
static void find_uses(struct finish *x)
{
    const struct wn__list *l = x->l;
    for (int64_t c = 0; c < l->n_values; c++) x->uses.last[c] = x->uses.pin[c] = -1;
    for (int64_t i = 0; i < l->n_items; i++) {
        const struct wn__item *it = &l->item[i];
        const struct wn__ir_node *p = &x->ir->node[it->node];
        if (it->out >= 0) x->uses.last[it->out] = (int32_t)i;
        for (int32_t k = 0; k < it->n_in; k++) x->uses.last[l->in[it->in_at + k]] = (int32_t)i;
        if (it->what != WN_DO_RUN || p->op != WN_OP_ASSIGN || x->ir->cell[p->cell[0]].slab < 0) continue;
        int32_t c = l->in[it->in_at];
        const struct wn__ir_node *v = &x->ir->node[l->value[c].node];
        if (v->leaf == WN_LEAF_NONE && !v->bound && v->result < 0 && x->uses.pin[c] < 0) x->uses.pin[c] = p->cell[0];
    }
}

/* Returns the number of the input that an item may overwrite: one that dies here, is the arena's and has the
 * output's type. -1: none. */
static int32_t find_inplace(const struct finish *x, int32_t i)
{
    const struct wn__item *it = &x->l->item[i];
    const struct wn__ir_node *p = &x->ir->node[it->node];
    if (it->what != WN_DO_RUN || !(wn__op_flags(p->op) & WN_INPLACE) || x->uses.pin[it->out] >= 0 || p->result >= 0)
        return -1;
    for (int32_t k = 0; k < p->n_in && k < 4; k++) {
        int32_t c = x->l->in[it->in_at + k], t = x->s->value[c].allocation;
        const struct wn__allocation *allocation = &x->s->allocation[t];
        if (allocation->pinned || x->allocations.last[t] != i || allocation->bytes != p->bytes) continue;
        if (!wn__may_overwrite(p->op, &p->attrs, k)) continue;
        if (wn__type_equal(&x->ir->in_type[p->in_at + k], &p->type)) return k;
    }
    return -1;
}

/* Gives an exchange that goes through the host an allocation there, whose last use is the wait. */
static void put_staged(struct finish *x, int32_t i)
{
    const struct wn__item *it = &x->l->item[i];
    int64_t bytes;
    if (it->what == WN_DO_EXCHANGE && wn__target_stages(x->ir->target)) {
        wn__staged_bytes(x->ir, it->node, &bytes);
        x->allocations.of_move[it->move] = put_allocation(x, WN_SPACE_RANKS, -1, WN_KIND_HOST, bytes, 0);
    }
    int32_t is_moved = it->what == WN_DO_EXCHANGE || it->what == WN_DO_WAIT;
    int32_t t = is_moved ? x->allocations.of_move[it->move] : -1;
    if (t >= 0) x->allocations.last[t] = i;
}

/* Gives every output an allocation, and notes the last use of the value in it. An in-place output takes over its
 * input's allocation, whose last use is then later. */
static void put_allocations(struct finish *x)
{
    for (int32_t i = 0; i < x->l->n_items; i++) {
        const struct wn__item *it = &x->l->item[i];
        const struct wn__ir_node *p = &x->ir->node[it->node];
        x->inplace[i] = -1;
        put_staged(x, i);
        for (int32_t k = 0; k < 3 && is_node(it) && it->out < 0; k++)
            if (p->cell[k] >= 0) cell_allocation(x, p->cell[k]);
        if (it->out < 0) continue;
        struct wn__value *value = &x->s->value[it->out];
        int32_t k = find_inplace(x, i);
        if (k >= 0) {
            x->inplace[i] = k;
            value->allocation = x->s->value[x->l->in[it->in_at + k]].allocation;
        } else if (x->uses.pin[it->out] >= 0) {
            value->allocation = cell_allocation(x, x->uses.pin[it->out]);
        } else if (p->result >= 0 && p->type.ndim > 0) {
            value->allocation = put_allocation(x, WN_SPACE_RESULT, p->result, WN_KIND_RESULT, p->bytes, 1);
            x->s->result_allocation[p->result] = value->allocation;
        } else if (it->what == WN_DO_OFFLOAD) {
            int32_t space = wn__action_medium(value->action) == WN_MEDIUM_DISK ? WN_SPACE_DISK : WN_SPACE_HOST;
            value->allocation = put_allocation(x, space, -1, WN_KIND_HOST, wn__value_bytes(x->ir, value), 0);
            x->s->allocation[x->s->value[x->l->in[it->in_at]].allocation].is_paged = 1;
        } else {
            value->allocation =
                put_allocation(x, WN_SPACE_ARENA, -1, WN_KIND_ACTIVATION, wn__value_bytes(x->ir, value), 0);
        }
        x->s->allocation[value->allocation].is_paged |= it->what == WN_DO_OFFLOAD || it->what == WN_DO_FETCH;
        x->allocations.last[value->allocation] = x->uses.last[it->out];
    }
}

/* ---- the finished list ---------------------------------------------------------------------------------------- */

/* Appends an instruction that does what an item says. */
static struct wn__instr *put_instr(struct finish *x, int32_t what, const struct wn__item *it, int32_t out)
{
    struct wn__instr *n = &x->s->instr[x->s->n++];
    *n = (struct wn__instr){.what = what,
                            .node = it->node,
                            .phase = it->phase,
                            .block = it->block,
                            .step = it->step,
                            .out = out,
                            .inplace = -1,
                            .report = -1,
                            .in_at = it->in_at,
                            .work_slab = -1,
                            .staged = -1,
                            .cell = {-1, -1, -1}};
    return n;
}

static void thread_frees(struct finish *x)
{
    for (int64_t i = 0; i < x->l->n_items; i++) x->allocations.freed[i] = -1;
    for (int32_t t = x->s->n_allocations - 1; t >= 0; t--) {
        if (x->s->allocation[t].pinned) continue;
        x->allocations.next[t] = x->allocations.freed[x->allocations.last[t]];
        x->allocations.freed[x->allocations.last[t]] = t;
    }
}

static void touch(struct wn__allocation *t, int32_t at)
{
    if (t->first < 0) t->first = at;
    t->last = at;
}

/* Notes that the last instruction, that of an item, uses the allocations of its inputs and of its output. */
static void touch_item(struct finish *x, const struct wn__item *it)
{
    const int32_t at = x->s->n - 1;
    for (int32_t k = 0; k < it->n_in; k++)
        touch(&x->s->allocation[x->s->value[x->l->in[it->in_at + k]].allocation], at);
    if (it->out < 0) return;
    touch(&x->s->allocation[x->s->value[it->out].allocation], at);
    if (x->s->value[it->out].action != 0) x->s->node_action[it->node] = x->s->value[it->out].action;
}

static void touch_staged(struct finish *x, int32_t allocation)
{
    if (allocation >= 0) touch(&x->s->allocation[allocation], x->s->n - 1);
}

/* Appends the instruction of an item with a kernel, and a READ behind the first issue of a 0-d result. */
static void put_run(struct finish *x, int32_t i)
{
    const struct wn__item *it = &x->l->item[i];
    const struct wn__ir_node *p = &x->ir->node[it->node];
    struct wn__instr *n = put_instr(x, it->what, it, it->out);
    struct wn__applied room;
    const struct wn_desc *d = wn__instr_kernel_desc(x->ir, x->s, n, &room);
    n->inplace = x->inplace[i];
    if (is_reporting(x, it)) n->report = x->s->n_reports++;
    n->recompute = it->what == WN_DO_RUN && it->phase == WN_PHASE_RECOMPUTE;
    n->work_bytes = wn__padded(x->ir->target->workspace(x->ir->target, d));
    touch_item(x, it);
    for (int32_t k = 0; k < 3 && it->out < 0; k++) {
        if (p->cell[k] < 0) continue;
        n->cell[k] = cell_allocation(x, p->cell[k]);
        touch(&x->s->allocation[n->cell[k]], x->s->n - 1);
    }
    n->move = it->move;
    if (it->what == WN_DO_EXCHANGE) touch_staged(x, n->staged = x->allocations.of_move[it->move]);
    if (it->out < 0 || !is_node(it)) return;
    if (x->s->node_issues[it->node]++ == 0 && p->result >= 0 && p->type.ndim == 0)
        put_instr(x, WN_DO_READ, it, it->out);
}

/* Appends the instructions of all items, each with the frees that follow it. */
static void put_list(struct finish *x)
{
    thread_frees(x);
    for (int32_t i = 0; i < x->l->n_items; i++) {
        const struct wn__item *it = &x->l->item[i];
        if (it->what == WN_DO_OFFLOAD || it->what == WN_DO_FETCH || it->what == WN_DO_WAIT) {
            put_instr(x, it->what, it, it->out)->move = it->move;
            touch_item(x, it);
            if (it->what == WN_DO_WAIT) touch_staged(x, x->allocations.of_move[it->move]);
        } else {
            put_run(x, i);
        }
        for (int32_t t = x->allocations.freed[i]; t >= 0; t = x->allocations.next[t]) {
            put_instr(x, WN_DO_FREE, it, t);
            x->s->allocation[t].last = x->s->n - 1;
        }
    }
    if (x->s->scalars >= 0) {
        x->s->allocation[x->s->scalars].first = 0;
        x->s->allocation[x->s->scalars].last = x->s->n;
    }
}

/* Takes the schedule's arrays, with room for `allocations`, and values the list's values and inputs. */
static int32_t take_schedule(struct finish *x, int64_t allocations)
{
    const struct wn__list *l = x->l;
    const struct wn__ir *ir = x->ir;
    struct wn__schedule *s = x->s;
    if (!WN_ARRAY(&s->pool, s->value, l->n_values) || !WN_ARRAY(&s->pool, s->in, l->n_in) ||
        !WN_ARRAY(&s->pool, s->allocation, allocations) ||
        !WN_ARRAY(&s->pool, s->instr, 2 * l->n_items + allocations + ir->n_results) ||
        !WN_ARRAY(&s->pool, s->result_allocation, ir->n_results) || !WN_ARRAY(&s->pool, s->node_issues, ir->n) ||
        !WN_ARRAY(&s->pool, s->node_action, ir->n))
        return WN_OOM;
    if (l->n_values > 0) memcpy(s->value, l->value, (size_t)l->n_values * sizeof *s->value);
    if (l->n_in > 0) memcpy(s->in, l->in, (size_t)l->n_in * sizeof *s->in);
    s->n_values = (int32_t)l->n_values;
    s->n_in = (int32_t)l->n_in;
    s->n_moves = l->n_moves;
    s->scalars = -1;
    for (int32_t i = 0; i < ir->n_results; i++) s->result_allocation[i] = -1;
    return WN_OK;
}

static int32_t take_scratch(struct finish *x, int64_t allocations, struct wn__pool *scratch)
{
    const struct wn__list *l = x->l;
    const struct wn__ir *ir = x->ir;
    struct allocations *a = &x->allocations;
    if (!WN_ARRAY(scratch, x->uses.last, l->n_values) || !WN_ARRAY(scratch, x->uses.pin, l->n_values) ||
        !WN_ARRAY(scratch, a->last, allocations) || !WN_ARRAY(scratch, a->next, allocations) ||
        !WN_ARRAY(scratch, a->of_cell, ir->n_cells) || !WN_ARRAY(scratch, a->of_bound, ir->n_bound) ||
        !WN_ARRAY(scratch, a->of_move, l->n_moves) || !WN_ARRAY(scratch, a->freed, l->n_items) ||
        !WN_ARRAY(scratch, x->inplace, l->n_items))
        return WN_OOM;
    for (int32_t i = 0; i < ir->n_cells; i++) a->of_cell[i] = -1;
    for (int32_t i = 0; i < ir->n_bound; i++) a->of_bound[i] = -1;
    for (int32_t i = 0; i < l->n_moves; i++) a->of_move[i] = -1;
    return WN_OK;
}

int32_t wn__lower_finish(const struct wn__ir *ir, int32_t n_blocks, const struct wn__list *l, struct wn__schedule **out)
{
    struct wn__pool first = {0}, scratch = {0};
    struct finish x = {.ir = ir, .l = l, .s = wn__pool_get(&first, sizeof *x.s)};
    int64_t allocations = l->n_values + ir->n_cells + ir->n_bound + l->n_moves + 1;
    if (x.s == NULL) return WN_OOM;
    x.s->pool = first;
    x.s->refs = 1;
    x.s->n_blocks = n_blocks;
    int32_t code = take_schedule(&x, allocations);
    if (code == WN_OK) code = take_scratch(&x, allocations, &scratch);
    if (code == WN_OK) {
        place_leaves(&x);
        find_uses(&x);
        put_allocations(&x);
        put_list(&x);
        *out = x.s;
    } else {
        wn__schedule_unref(x.s);
    }
    wn__pool_release(&scratch);
    return code;
}

void wn__schedule_unref(struct wn__schedule *s)
{
    if (s == NULL || --s->refs > 0) return;
    if (s->kept != NULL) s->kept->let_go(s->kept);
    struct wn__pool pool = s->pool;
    wn__pool_release(&pool);
}
