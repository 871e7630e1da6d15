/* Running: the schedule, as written. Everything is taken before the first kernel, so a run cannot fail for
 * memory half way; nothing is reordered; no kernel allocates; nothing calls back. */
#include <string.h>
#include "../base/alloc.h"
#include "../base/clock.h"
#include "../base/warning.h"
#include "../plan/lower/instruction.h"
#include "../plan/recipe/action.h"
#include "anomaly.h"
#include "check.h"
#include "measure.h"
#include "../plan/ir/costs.h"
#include "../program/rehearse.h"
#include "run.h"
#include "transfer.h"

volatile int32_t wn__interrupted;
int32_t wn__sync_on; /* wait for the device after every kernel, so that an error is at its own instruction */

struct bases { /* where each space starts, this time */
    char *arena;
    struct wn_program *p;
    struct wn__buffer **result; /* (n_results) */
    const void **in;            /* (most inputs of an instruction) */
    struct wn__transfer transfer;
};

/* NULL has no bytes beside it: that of nothing, and of the meta device, stays NULL. */
static char *at(void *base, int64_t offset)
{
    return base == NULL ? NULL : (char *)base + offset;
}

static char *allocation_address(const struct bases *b, const struct wn__allocation *t)
{
    switch (t->space) {
    case WN_SPACE_SLAB: return at(b->p->slab[t->slot]->data, t->offset);
    case WN_SPACE_CELL: return wn__cell_data(b->p->cell[t->slot]);
    case WN_SPACE_BOUND: return b->p->bound[t->slot]->held->data;
    case WN_SPACE_RESULT: return b->result[t->slot]->data;
    default: return at(b->arena, t->offset);
    }
}

static char *value_address(const struct bases *b, int32_t value)
{
    const struct wn__value *c = &b->p->schedule->value[value];
    return at(allocation_address(b, &b->p->schedule->allocation[c->allocation]), c->at);
}

/* ---- before: what the run needs ------------------------------------------------------------------------- */

static int64_t missing_bytes(const struct wn_program *p)
{
    const struct wn__ir *f = p->ir;
    int64_t bytes = wn__program_missing(p);
    for (int32_t r = 0; r < f->n_results; r++)
        if (p->schedule->result_allocation[r] >= 0)
            bytes += p->schedule->allocation[p->schedule->result_allocation[r]].bytes;
    for (int32_t k = 0; k < f->n_slabs; k++)
        if (p->slab[k]->data == NULL) bytes += p->slab[k]->bytes;
    return bytes;
}

/* An offload buffer in host memory counts where that is the device's own; like the arena, it stays between runs. */
static int64_t offload_buffer_growth(const struct wn_program *p)
{
    int64_t need = p->schedule->offload_buffer[WN_PLACE_HOST] - wn__offload_buffer_bytes(p->device, WN_PLACE_HOST);
    return wn__offload_buffer_is_own(p->device) && need > 0 ? need : 0;
}

/* Refuses before anything ran when the limit would be passed; idle memory goes first. */
static int32_t check_limit(struct wn_program *p)
{
    struct wn__ledger *l = wn__ledger(p->device);
    int64_t arena = wn__arena(p->device)->bytes, need = missing_bytes(p) + offload_buffer_growth(p),
            height = p->schedule->arena;
    int64_t after = l->reserved - arena + (arena > height ? arena : height) + need;
    if (l->limit == 0 || after <= l->limit) return WN_OK;
    wn__slab_trim(p->device, p->slab, p->ir->n_slabs);
    WN_TRY(wn__arena_shrink(p->device, height));
    if (wn__offload_buffer_bytes(p->device, WN_PLACE_HOST) > p->schedule->offload_buffer[WN_PLACE_HOST])
        wn__offload_buffer_trim(p->device, WN_PLACE_HOST);
    need = missing_bytes(p) + offload_buffer_growth(p);
    after = l->reserved - wn__arena(p->device)->bytes + height + need;
    if (after <= l->limit) return WN_OK;
    wn__fail(WN_OOM,
             "out of memory: this program needs %lld bytes reserved on %s (%lld of its own, %lld held beside it), "
             "the limit is %lld; raise wane.memory.limit, free values, or recompute more",
             (long long)after, wn__device(p->device)->name, (long long)p->schedule->summary.reserved,
             (long long)(after - p->schedule->summary.reserved), (long long)l->limit);
    return wn__oom(p->device, p->schedule->summary.reserved, after);
}

/* Room for the addresses of any instruction's inputs: nothing may be asked for once an effect ran. */
static int32_t take_inputs(const struct wn_program *p, const void ***out)
{
    *out = wn__alloc((p->ir->most_in + 1) * (int64_t)sizeof **out);
    return *out == NULL ? WN_OOM : WN_OK;
}

static int32_t take_results(struct wn_program *p, struct wn__buffer **result)
{
    for (int32_t r = 0; r < p->ir->n_results; r++) {
        int32_t t = p->schedule->result_allocation[r];
        if (t >= 0) WN_TRY(wn__buffer_new(p->device, WN_KIND_RESULT, p->schedule->allocation[t].bytes, &result[r]));
    }
    return WN_OK;
}

/* A cell that is assigned to and not read: writing it is what mends it. */
static int32_t is_only_written(const struct wn_program *p, int32_t cell)
{
    return p->mode == WN_RUN_ASSIGN && cell >= p->n_read;
}

static int32_t acquire(struct wn_program *p, struct bases *b)
{
    WN_TRY(wn__program_bind_slabs(p));
    for (int32_t i = 0; i < p->ir->n_bound; i++)
        if (p->bound[i] != NULL && p->bound[i]->held == NULL)
            return wn__fail(WN_STALE, "run: a value this program reads was freed; record it again");
    for (int32_t i = 0; i < p->ir->n_cells; i++)
        if (p->cell[i]->invalid && !is_only_written(p, i))
            return wn__fail(WN_STALE, "run: %s was left half updated by a failed run; load it again",
                            p->cell[i]->name ? p->cell[i]->name : "a state");
    WN_TRY(check_limit(p));
    WN_TRY(wn__program_materialise(p));
    WN_TRY(check_limit(p)); /* what computed first values may have left a larger arena */
    for (int32_t k = 0; k < p->ir->n_slabs; k++) WN_TRY(wn__slab_fill(p->slab[k]));
    WN_TRY(take_results(p, b->result));
    WN_TRY(take_inputs(p, &b->in));
    WN_TRY(wn__transfer_take(&b->transfer, p));
    WN_TRY(wn__arena_fit(p->device, p->schedule->arena + wn__check_guard()));
    b->arena = wn__arena(p->device)->data;
    return WN_OK;
}

static void put_number(char *to, const struct wn_node *n)
{
    int64_t size = wn__dtype_size(n->type.dtype);
    if (n->hyper == NULL) {
        wn__number_put(n->type.dtype, n->number, to);
        return;
    }
    for (int32_t i = 0; i < n->type.dim[0]; i++) wn__number_put(n->type.dtype, n->hyper->v[i], to + size * i);
}

static int32_t put_scalars(struct wn_program *p, const struct bases *b)
{
    const struct wn__schedule *s = p->schedule;
    if (s->scalars < 0) return WN_OK;
    int64_t stride = 64, bytes = s->allocation[s->scalars].bytes;
    char small[4096], *host = bytes <= (int64_t)sizeof small ? small : wn__alloc(bytes);
    if (host == NULL) return WN_OOM;
    memset(host, 0, (size_t)bytes);
    for (int32_t i = 0; i < p->ir->n_scalars; i++)
        if (p->scalar[i] != NULL) put_number(host + stride * i, p->scalar[i]);
    struct wn_device *d = wn__device(p->device);
    int32_t code = d->put(d, allocation_address(b, &s->allocation[s->scalars]), host, bytes);
    if (host != small) wn__free(host);
    return code;
}

/* ---- the loop ------------------------------------------------------------------------------------------------ */

static int32_t take_number(struct wn_program *p, const struct bases *b, const struct wn__instr *n)
{
    const struct wn__ir_node *q = &p->ir->node[n->node];
    struct wn_device *d = wn__device(p->device);
    double element = 0;
    WN_TRY(d->sync(d));
    if (d->real) WN_TRY(d->get(d, &element, value_address(b, n->out), wn__dtype_size(q->type.dtype)));
    p->result[q->result]->number = wn__number_get(q->type.dtype, &element);
    return WN_OK;
}

static int32_t issue(struct wn_program *p, const struct bases *b, const struct wn__instr *n, uint64_t shift)
{
    const struct wn__ir *f = p->ir;
    const struct wn__ir_node *q = &f->node[n->node];
    struct wn_device *d = wn__device(p->device);
    const void **in = b->in;
    void *cell[3] = {NULL, NULL, NULL};
    struct wn_buffers buffers = {.in = in, .cell = cell, .made = n->made};
    struct wn__applied room;
    const struct wn_desc *desc = wn__instr_desc(f, p->schedule, n, &room);
    for (int32_t k = 0; k < desc->n_in; k++) in[k] = value_address(b, p->schedule->in[n->in_at + k]);
    for (int32_t k = 0; k < 3; k++)
        if (n->cell[k] >= 0) cell[k] = allocation_address(b, &p->schedule->allocation[n->cell[k]]);
    if (n->out >= 0) buffers.out = value_address(b, n->out);
    if (n->work_bytes > 0)
        buffers.workspace = (n->work_slab < 0 ? b->arena : (char *)p->slab[n->work_slab]->data) + n->work_offset;
    if (n->what == WN_DO_RUN && q->random >= 0) {
        buffers.seed = p->random[q->random].seed;
        buffers.counter = p->random[q->random].counter + (p->random[q->random].is_kept ? 0 : shift);
    }
    if (n->what == WN_DO_RUN && q->offset >= 0) {
        room.desc = *desc;
        wn__program_attrs(p, n->node, &room.desc.attrs);
        desc = &room.desc;
    }
    if (desc->op == WN_OP_ASSIGN && in[0] == cell[0]) return WN_OK; /* a gradient made in its cell is there already */
    return d->launch(d, n->kernel, desc, &buffers);
}

/* Starts a transfer or waits for one. A checked run looks at bytes between instructions, so it waits at once. */
static int32_t do_move(struct wn_program *p, struct bases *b, struct wn__meter *m, struct wn__check *check, int32_t i)
{
    const struct wn__instr *n = &p->schedule->instr[i];
    double began = wn__now();
    if (n->what == WN_DO_WAIT) {
        WN_TRY(wn__transfer_wait(&b->transfer, n));
    } else {
        int32_t near = n->what == WN_DO_OFFLOAD ? p->schedule->in[n->in_at] : n->out;
        wn__meter_move(m, p, n);
        WN_TRY(wn__check_before(check));
        WN_TRY(wn__transfer_start(&b->transfer, n, value_address(b, near)));
        if (check->on) WN_TRY(wn__transfer_wait(&b->transfer, n));
        WN_TRY(wn__check_after(check, n));
    }
    if (wn__timing_on && p->step_seconds != NULL) p->step_seconds[i] = wn__now() - began;
    return WN_OK;
}

/* Whether an effect changes what a later program can read: one on a gradient that is not allocated yet does not. */
static int32_t changes_state(const struct wn__ir *f, const struct wn__instr *n)
{
    const struct wn__ir_node *q = &f->node[n->node];
    if (n->out >= 0) return 0;
    for (int32_t k = 0; k < 3; k++)
        if (q->cell[k] >= 0 && !(f->cell[q->cell[k]].kind == WN_KIND_GRADIENT && f->cell[q->cell[k]].allocated_here))
            return 1;
    return 0;
}

/* What an instruction made, while anomalies are looked for. Inputs that lie where the result does are gone by now. */
static int32_t look_for_anomaly(struct wn_program *p, const struct bases *b, const struct wn__instr *n)
{
    struct wn__anomaly_value made, in[8];
    struct wn__applied room;
    const struct wn_desc *desc = wn__instr_desc(p->ir, p->schedule, n, &room);
    int32_t n_in = desc->n_in < 8 ? desc->n_in : 8;
    made.type = &desc->out;
    made.data = n->out >= 0 ? value_address(b, n->out) : NULL;
    for (int32_t k = 0; k < n_in; k++) {
        const void *at = value_address(b, p->schedule->in[n->in_at + k]);
        in[k] = (struct wn__anomaly_value){&desc->in[k], n->out >= 0 && at == made.data ? NULL : at};
    }
    if (n->out >= 0) return wn__anomaly_check(p, n, &made, in, n_in);
    for (int32_t k = 0; k < 3; k++) {
        if (n->cell[k] < 0) continue;
        made.data = allocation_address(b, &p->schedule->allocation[n->cell[k]]);
        WN_TRY(wn__anomaly_check(p, n, &made, in, n_in));
    }
    return WN_OK;
}

/* What effects read that no instruction makes: gradients and held values, looked at before any state is changed. */
static int32_t look_before(struct wn_program *p)
{
    const struct wn__ir *f = p->ir;
    for (int32_t i = f->n - f->n_effects; i < f->n; i++) {
        const struct wn__ir_node *q = &f->node[f->in[f->node[i].in_at]];
        struct wn__anomaly_value v = {&q->type, NULL};
        if (q->leaf == WN_LEAF_CELL) v.data = wn__cell_data(p->cell[q->slot]);
        if (q->leaf == WN_LEAF_HELD) v.data = p->bound[q->slot]->held->data;
        if (v.data != NULL) WN_TRY(wn__anomaly_check_leaf(p, i, &v));
    }
    return WN_OK;
}

static int32_t loop(struct wn_program *p, struct bases *b, struct wn__meter *m, struct wn__check *check, uint64_t shift,
                    int32_t *effects)
{
    const struct wn__schedule *s = p->schedule;
    for (int32_t i = 0; i < s->n; i++) {
        const struct wn__instr *n = &s->instr[i];
        if (p->trace != NULL) p->trace[p->n_trace++] = i;
        if (n->what == WN_DO_FREE) {
            wn__meter_free(m, p, n);
            if (s->allocation[n->out].space < WN_SPACE_HOST)
                WN_TRY(
                    wn__check_free(check, allocation_address(b, &s->allocation[n->out]), s->allocation[n->out].bytes));
            continue;
        }
        if (wn__instr_way(n) >= 0 || n->what == WN_DO_WAIT) {
            WN_TRY(do_move(p, b, m, check, i));
            continue;
        }
        if (n->what == WN_DO_READ) {
            WN_TRY(take_number(p, b, n));
            continue;
        }
        if (wn__interrupted && *effects == 0) return wn__fail(WN_INTERRUPT, "interrupted before anything was changed");
        wn__meter_run(m, p, n);
        *effects += changes_state(p->ir, n);
        WN_TRY(wn__check_before(check));
        double began = wn__timing_on ? wn__now() : 0;
        WN_TRY(issue(p, b, n, shift));
        if (wn__sync_on || wn__timing_on) WN_TRY(wn__device(p->device)->sync(wn__device(p->device)));
        if (wn__timing_on && p->step_seconds != NULL) p->step_seconds[i] = wn__now() - began;
        WN_TRY(wn__check_after(check, n));
        WN_TRY(wn__replay_after(check, n));
        if (wn__anomaly_on) WN_TRY(look_for_anomaly(p, b, n));
    }
    return WN_OK;
}

/* ---- after: what has changed ------------------------------------------------------------------------------------ */

/* In a rerun the nodes of the first time are the caller's: the results are new values. */
static int32_t fresh_results(struct wn_program *p)
{
    for (int32_t r = 0; r < p->ir->n_results; r++) {
        struct wn_node *n = wn__node_new(0);
        if (n == NULL) return WN_OOM;
        n->op = WN_OP_DATA;
        n->device = p->device;
        n->type = p->result[r]->type;
        wn__node_unref(p->result[r]);
        p->result[r] = n;
    }
    return WN_OK;
}

static void keep_results(struct wn_program *p, struct bases *b)
{
    for (int32_t r = 0; r < p->ir->n_results; r++) {
        struct wn_node *n = p->result[r];
        if (p->taken_results != NULL) { /* first values: the node stays as it is, its bytes are a cell's */
            p->taken_results[r] = b->result[r];
            b->result[r] = NULL;
            continue;
        }
        wn__buffer_unref(n->held); /* of a program that was opened earlier and ran in between */
        n->held = b->result[r];
        b->result[r] = NULL;
        n->is_held = 1;
        n->retain = 0;
        if (!n->needs_grad) wn__node_drop_inputs(n);
    }
}

static void keep_effects(struct wn_program *p)
{
    const struct wn__ir *f = p->ir;
    for (int32_t i = f->n - f->n_effects; i < f->n; i++)
        for (int32_t k = 0; k < 3; k++) {
            if (f->node[i].cell[k] < 0) continue;
            struct wn_cell *c = p->cell[f->node[i].cell[k]];
            if (c->kind == WN_KIND_GRADIENT && c->slab != NULL) wn__cell_allocate(c);
            c->invalid = 0;
            wn__cell_changed(c);
        }
}

static void spend_roots(struct wn_program *p)
{
    if ((p->mode != WN_RUN_BACKWARD && p->mode != WN_RUN_STEP) || p->again) return;
    for (int32_t i = 0; i < p->n_roots; i++) {
        p->root[i]->spent = p->root[i]->over_spent = 1;
        wn__node_drop_inputs(p->root[i]);
    }
}

static void count_issues(struct wn_program *p)
{
    for (int64_t i = 0; i < p->order.count; i++) {
        struct wn_node *n = p->order.nodes[i];
        int32_t at = p->ir->order_node[i];
        while (p->ir->node[at].absorbed_by >= 0) at = p->ir->node[at].absorbed_by;
        if (p->ir->node[at].leaf != WN_LEAF_NONE || p->schedule->node_issues[at] == 0 || n->is_held) continue;
        if (n->issued < 3) n->issued++;
        if (n->issued < 3 || n->warned) continue;
        n->warned = 1;
        wn__warn("%s%s%s was computed by three programs; call :retain() on it to keep its value%s",
                 n->line ? wn__line_text(n->line) : "", n->line ? ": " : "", n->name ? n->name : wn__op_name(n->op),
                 n->line ? "" : " (wane.lines(true) tells where it is recorded)");
    }
}

/* After a failure: gradients that were added to are dropped, so that the next backward makes them anew; other cells are
 * invalid until they are written. Cells that had their first value from this run begin again, or keep it unwritten. */
static void take_back_effects(struct wn_program *p, int32_t code)
{
    const struct wn__ir *f = p->ir;
    int32_t dropped = 0;
    for (int32_t i = f->n - f->n_effects; i < f->n; i++)
        for (int32_t k = 0; k < 3; k++) {
            struct wn_cell *c = f->node[i].cell[k] < 0 ? NULL : p->cell[f->node[i].cell[k]];
            if (c == NULL) continue;
            if (c->kind != WN_KIND_GRADIENT) {
                c->invalid = 1;
            } else if (c->allocated) {
                wn__cell_drop_own(c);
                dropped = 1;
            }
        }
    if (dropped)
        wn__fail(code,
                 "%s; gradients this run had begun to change were dropped: run each backward since zero_grad again",
                 wn__message());
    wn__program_end_first(p, WN_FIRST_COMMIT_WRITTEN);
}

/* The walk is this run's; once it is over only leaves and results stay, for a rerun. */
static void let_walk_go(struct wn_program *p)
{
    for (int64_t i = 0; i < p->order.count; i++) wn__node_unref(p->order.nodes[i]);
    for (int32_t i = 0; i < p->n_roots; i++) {
        wn__node_unref(p->root[i]);
        wn__cell_unref(p->assigned[i]);
    }
    p->order.count = 0;
    p->n_roots = 0;
}

static int32_t check_rerun(const struct wn_program *p)
{
    for (int32_t i = p->n_named; i < p->ir->n_cells; i++)
        if (!p->transient && p->cell[i]->allocated == p->ir->cell[i].allocated_here)
            return wn__fail(WN_STALE,
                            "compiled step: a gradient that was %s when it was recorded is %s now; call "
                            "zero_grad at the same place each step",
                            p->cell[i]->allocated ? "absent" : "there", p->cell[i]->allocated ? "there" : "absent");
    return WN_OK;
}

/* A program may wait between its opening and its run, for a policy that yields or a script that opens two: what it
 * reads must be what was recorded. */
static int32_t check_versions(const struct wn_program *p)
{
    for (int64_t i = 0; i < p->order.count; i++) {
        const struct wn_node *n = p->order.nodes[i];
        if (n->op == WN_OP_CELL && n->version != n->cell->version)
            return wn__fail(WN_STALE,
                            "run: %s has changed since the program that reads it was opened; another program ran in "
                            "between, so record it again",
                            n->cell->name ? n->cell->name : "a state");
    }
    return WN_OK;
}

static int32_t execute(struct wn_program *p, struct bases *b, uint64_t shift)
{
    struct wn__meter meter = {0};
    struct wn__check check = {0};
    int32_t effects = 0;
    double started = wn__now();
    WN_TRY(wn__meter_start(&meter, p));
    int32_t code = wn__check_start(&check, p, b->arena, b->result);
    if (code == WN_OK) code = put_scalars(p, b);
    if (code == WN_OK && wn__anomaly_on) code = look_before(p);
    if (code == WN_OK) code = loop(p, b, &meter, &check, shift, &effects);
    wn__transfer_stop(&b->transfer);
    if (code == WN_OK) code = wn__device(p->device)->sync(wn__device(p->device));
    if (code != WN_OK && effects > 0) take_back_effects(p, code);
    p->measured.high_water = wn__check_stop(&check);
    wn__meter_stop(&meter, p);
    p->measured.seconds = wn__now() - started;
    return code;
}

int32_t wn__program_run(struct wn_program *p, int32_t rerun)
{
    struct bases b = {.p = p};
    uint64_t shift = 0;
    int32_t code;
    if (p->schedule == NULL) return wn__fail(WN_VALUE, "run: the program was not planned");
    if (p->ran && !rerun) return wn__fail(WN_VALUE, "run: the program ran already");
    if (wn__rehearsal_now() != NULL)
        return wn__fail(WN_VALUE, "run: a step is being planned and nothing runs meanwhile; leave the rehearsal first");
    if (p->target != 0)
        return wn__fail(WN_UNSUPPORTED, "run: this program was planned for another machine, %s; plan it without target",
                        wn__machine_name(p->target));
    WN_TRY(rerun ? check_rerun(p) : check_versions(p));
    b.result = wn__alloc((p->ir->n_results + 1) * (int64_t)sizeof *b.result);
    if (b.result == NULL) return WN_OOM;
    WN_TRY_GOTO(rerun ? fresh_results(p) : WN_OK);
    WN_TRY_GOTO(wn__trace_room(p));
    WN_TRY_GOTO(acquire(p, &b));
    if (rerun) shift = wn__here.counter - p->first_number;
    WN_TRY_GOTO(execute(p, &b, shift));
    if (rerun) wn__here.counter += p->taken; /* a run that failed took none */
    keep_results(p, &b);
    keep_effects(p);
    wn__program_end_first(p, WN_FIRST_COMMIT);
    if (p->taken_results == NULL) count_issues(p);
    spend_roots(p);
    let_walk_go(p);
    p->ran = 1;
fail:
    wn__program_end_first(p, WN_FIRST_ROLL_BACK);
    wn__free(b.in);
    wn__transfer_release(&b.transfer);
    for (int32_t r = 0; r < p->ir->n_results; r++) wn__buffer_unref(b.result[r]);
    wn__free(b.result);
    return code;
}
