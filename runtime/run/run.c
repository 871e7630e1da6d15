/* Runs a schedule as it is written. Everything is acquired before the first kernel, so a run cannot fail for memory
 * half way; nothing is reordered; no kernel allocates; nothing calls back. */
#include "../base/memory_order.h"
#include <stdio.h>
#include "../base/clock.h"
#include "../base/interrupt.h"
#include "../base/warning.h"
#include "../plan/ir/rewrite.h"
#include "../plan/lower/instruction.h"
#include "../plan/recipe/action.h"
#include "acquire.h"
#include "anomaly.h"
#include "capture.h"
#include "check.h"
#include "commit.h"
#include "measure.h"
#include "../plan/ir/costs.h"
#include "../program/sequence.h"
#include "run.h"
#include "scalars.h"

int32_t wn__sync_on; /* 1: waits for the device after every kernel, so that an error is at its own instruction */

/* ---- the loop ------------------------------------------------------------------------------------------------ */

/* The place of a run in its program. Invariant: ended <= at. */
struct progress {
    int32_t at;                   /* the instruction that is being started */
    int32_t ended;                /* instructions before this one have ended: the device was waited for */
    int32_t effects;              /* instructions started that change a state */
    struct wn__captured captured; /* the kernels that graphs start */
};

/* Fills the addresses of seed, counter and report, for a kernel of an asynchronous device. */
static void point_at_scalars(const struct wn_program *p, const struct wn__bases *b, const struct wn__instr *n,
                             struct wn_buffers *buffers)
{
    const struct wn__schedule *s = p->schedule;
    if (s->scalars < 0) return;
    char *scalars = wn__allocation_address(b, &s->allocation[s->scalars]);
    int32_t random = n->what == WN_DO_RUN ? p->ir->node[n->node].random : -1;
    if (random >= 0) buffers->random = (const uint64_t *)(scalars + wn__random_at(p->ir, random));
    if (n->report >= 0) buffers->report = (uint64_t *)(scalars + wn__report_at(p->ir, n->report));
}

/* Returns the address that a kernel is given for a value: NULL, of no bytes, is none that memcpy takes. */
static void *given(void *address)
{
    static _Alignas(256) char none[256];
    return address == NULL ? none : address;
}

/* Launches the kernel of an instruction. */
static int32_t issue(struct wn_program *p, const struct wn__bases *b, const struct wn__instr *n)
{
    const struct wn__ir *ir = p->ir;
    const struct wn__ir_node *q = &ir->node[n->node];
    struct wn_device *d = wn__device(p->device);
    const void **in = b->in;
    void *cell[3] = {NULL, NULL, NULL};
    struct wn_buffers buffers = {.in = in, .cell = cell, .made = n->made};
    struct wn__applied room;
    const struct wn_desc *desc = wn__instr_desc(ir, p->schedule, n, &room);
    for (int32_t k = 0; k < desc->n_in; k++) in[k] = given(wn__value_address(b, p->schedule->in[n->in_at + k]));
    for (int32_t k = 0; k < 3; k++)
        if (n->cell[k] >= 0) cell[k] = given(wn__allocation_address(b, &p->schedule->allocation[n->cell[k]]));
    if (n->out >= 0) buffers.out = given(wn__value_address(b, n->out));
    if (n->work_bytes > 0)
        buffers.workspace = (n->work_slab < 0 ? b->arena : (char *)p->slab[n->work_slab]->data) + n->work_offset;
    if (n->what == WN_DO_RUN && q->random >= 0) {
        buffers.seed = p->random[q->random].seed;
        buffers.counter = p->random[q->random].counter;
    }
    if (ir->target->is_asynchronous) point_at_scalars(p, b, n, &buffers);
    if (n->what == WN_DO_RUN && q->offset >= 0) {
        room.desc = *desc;
        wn__program_attrs(p, n->node, &room.desc.attrs);
        desc = &room.desc;
    }
    if (desc->op == WN_OP_ASSIGN && in[0] == cell[0])
        return WN_OK; /* a gradient that was made in its cell is there already */
    return d->launch(d, n->kernel, wn__in_memory_order(desc, &room.order), &buffers);
}

/* Starts a transfer or waits for one. A checked run looks at bytes between instructions, so it waits at once. */
static int32_t do_move(struct wn_program *p, struct wn__bases *b, struct wn__meter *m, struct wn__check *check,
                       int32_t i)
{
    const struct wn__instr *n = &p->schedule->instr[i];
    WN_TRY(wn__timing_mark(p, i, 0));
    if (n->what == WN_DO_WAIT) {
        WN_TRY(wn__transfer_wait(&b->transfer, n));
    } else {
        int32_t near = n->what == WN_DO_OFFLOAD ? p->schedule->in[n->in_at] : n->out;
        wn__meter_move(m, p, n);
        WN_TRY(wn__check_before(check));
        WN_TRY(wn__transfer_start(&b->transfer, n, wn__value_address(b, near)));
        if (check->on) WN_TRY(wn__transfer_wait(&b->transfer, n));
        WN_TRY(wn__check_after(check, n));
    }
    return wn__timing_mark(p, i, 1);
}

int32_t wn__changes_state(const struct wn__ir *ir, const struct wn__instr *n)
{
    const struct wn__ir_node *q = &ir->node[n->node];
    if (n->out >= 0) return 0;
    for (int32_t k = 0; k < 3; k++)
        if (q->cell[k] >= 0 && !(ir->cell[q->cell[k]].kind == WN_KIND_GRADIENT && ir->cell[q->cell[k]].allocated_here))
            return 1;
    return 0;
}

/* Searches what an instruction made for anomalies. Inputs whose bytes the output took over are gone by now. */
static int32_t look_for_anomaly(struct wn_program *p, const struct wn__bases *b, const struct wn__instr *n)
{
    struct wn__anomaly_value made, in[8];
    struct wn__applied room;
    const struct wn_desc *desc = wn__instr_desc(p->ir, p->schedule, n, &room);
    int32_t n_in = desc->n_in < 8 ? desc->n_in : 8;
    made.type = &desc->out;
    made.data = n->out >= 0 ? wn__value_address(b, n->out) : NULL;
    for (int32_t k = 0; k < n_in; k++) {
        const void *at = wn__value_address(b, p->schedule->in[n->in_at + k]);
        in[k] = (struct wn__anomaly_value){&desc->in[k], n->out >= 0 && at == made.data ? NULL : at};
    }
    if (n->out >= 0) return wn__anomaly_check(p, n, &made, in, n_in);
    for (int32_t k = 0; k < 3; k++) {
        if (n->cell[k] < 0) continue;
        made.data = wn__allocation_address(b, &p->schedule->allocation[n->cell[k]]);
        WN_TRY(wn__anomaly_check(p, n, &made, in, n_in));
    }
    return WN_OK;
}

/* Searches what effects read and no instruction makes, gradients and held values, before any state is changed. */
static int32_t look_before(struct wn_program *p)
{
    const struct wn__ir *ir = p->ir;
    for (int32_t i = ir->n - ir->n_effects; i < ir->n; i++) {
        const struct wn__ir_node *q = &ir->node[ir->in[ir->node[i].in_at]];
        struct wn__anomaly_value v = {&q->type, NULL};
        if (q->leaf == WN_LEAF_CELL) v.data = wn__cell_data(p->cell[q->slot]);
        if (q->leaf == WN_LEAF_HELD) v.data = p->bound[q->slot]->held->data;
        if (v.data != NULL) WN_TRY(wn__anomaly_check_leaf(p, i, &v));
    }
    return WN_OK;
}

/* Makes sure that nothing is wrong before the first change of a state: waits for reports, and stops for ^C. */
static int32_t stop_before_effects(struct wn_program *p, const struct wn__bases *b, struct progress *at)
{
    if (p->schedule->n_reports > 0) {
        WN_TRY(wn__reports_check(p, b));
        at->ended = at->at;
    }
    return WN_OK;
}

/* Runs the kernel of an instruction, and the checks around it. */
static int32_t run_kernel(struct wn_program *p, struct wn__bases *b, struct wn__check *check, struct progress *at)
{
    const struct wn__instr *n = &p->schedule->instr[at->at];
    int32_t changes = wn__changes_state(p->ir, n);
    if (wn__interrupted && at->effects == 0) return wn__fail(WN_INTERRUPT, "interrupted before anything was changed");
    if (changes && at->effects == 0) WN_TRY(stop_before_effects(p, b, at));
    at->effects += changes;
    WN_TRY(wn__check_before(check));
    WN_TRY(wn__captured_reach(&at->captured, at->at));
    WN_TRY(wn__timing_mark(p, at->at, 0));
    if (at->at >= at->captured.started) WN_TRY(issue(p, b, n));
    WN_TRY(wn__timing_mark(p, at->at, 1));
    if (wn__sync_on) {
        WN_TRY(wn__device(p->device)->sync(wn__device(p->device)));
        at->ended = at->at + 1;
    }
    WN_TRY(wn__check_after(check, n));
    WN_TRY(wn__replay_after(check, n));
    return wn__anomaly_on ? look_for_anomaly(p, b, n) : WN_OK;
}

/* Runs the instructions in their order. */
static int32_t loop(struct wn_program *p, struct wn__bases *b, struct wn__meter *m, struct wn__check *check,
                    struct progress *at)
{
    const struct wn__schedule *s = p->schedule;
    for (at->at = 0; at->at < s->n; at->at++) {
        const struct wn__instr *n = &s->instr[at->at];
        if (p->trace != NULL) p->trace[p->n_trace++] = at->at;
        if (n->what == WN_DO_FREE) {
            wn__meter_free(m, p, n);
            if (s->allocation[n->out].space < WN_SPACE_HOST)
                WN_TRY(wn__check_free(check, wn__allocation_address(b, &s->allocation[n->out]),
                                      s->allocation[n->out].bytes));
        } else if (wn__instr_way(n) >= 0 || n->what == WN_DO_WAIT) {
            WN_TRY(do_move(p, b, m, check, at->at));
        } else if (n->what == WN_DO_READ) {
            WN_TRY(wn__number_read(p, b, n));
        } else {
            wn__meter_run(m, p, n);
            WN_TRY(run_kernel(p, b, check, at));
        }
    }
    return WN_OK;
}

/* Waits until everything that was started has ended, and takes what it made for the host. */
static int32_t finish(struct wn_program *p, const struct wn__bases *b)
{
    struct wn_device *d = wn__device(p->device);
    WN_TRY(d->sync(d));
    WN_TRY(wn__reports_check(p, b));
    wn__numbers_take(p, b);
    return WN_OK;
}

/* Waits for the work of a run that failed, so that its bytes can be given back. The message of `code` stays. */
static void end_started(const struct wn_program *p, int32_t code)
{
    struct wn_device *d = wn__device(p->device);
    char message[1024];
    snprintf(message, sizeof message, "%s", wn__message());
    if (d->sync(d) != WN_OK) wn__fail(code, "%s", message);
}

/* Returns "linear (node 3)", and the line where the node was recorded, where that is known. */
static const char *instr_text(const struct wn_program *p, int32_t at, char *text, size_t room)
{
    const struct wn__instr *n = &p->schedule->instr[at];
    int32_t line = wn__program_line(p, n->node);
    snprintf(text, room, "%s (node %d%s%s)", wn__ir_op_text(p->ir, n->node), n->node, line ? ", recorded at " : "",
             line ? wn__line_text(line) : "");
    return text;
}

/* Adds to the message of a device's failure where it happened: at one instruction, or between two. A device that runs
 * out of memory after the first effect has failed: the caller would run the program again, over states that have
 * changed. */
static int32_t name_fault(const struct wn_program *p, const struct progress *at, int32_t code)
{
    char first[256], last[256], fault[512];
    int32_t n = p->schedule->n, from = at->ended < n ? at->ended : n - 1, to = at->at < n ? at->at : n - 1;
    if (code == WN_OOM && at->effects > 0) code = WN_DEVICE;
    if (code != WN_DEVICE || n == 0) return code;
    instr_text(p, from, first, sizeof first);
    instr_text(p, to, last, sizeof last);
    snprintf(fault, sizeof fault, "%s", wn__message());
    if (from >= to) return wn__fail(code, "%s; it ran %s", fault, last);
    return wn__fail(code, "%s; it ran something from %s to %s (WANE_SYNC=1 names it)", fault, first, last);
}

/* Checks that the program reads what was recorded: it may have waited between its opening and its run, for a policy
 * that yields or a script that opens two. */
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
    for (int32_t i = 0; i < p->n_forward_effects; i++)
        if (p->order.nodes[p->forward_effect[i].node]->effects_done)
            return wn__fail(WN_STALE, "run: another program has computed the statistics of this one since it was "
                                      "opened, and changed the running ones; record it again");
    return WN_OK;
}

/* Runs the schedule with its account and its checks. A failure after the first effect rolls effects back. */
static int32_t execute(struct wn_program *p, struct wn__bases *b)
{
    struct wn__meter meter = {0};
    struct wn__check check = {0};
    struct progress at = {0};
    double started = wn__now();
    WN_TRY(wn__meter_start(&meter, p));
    int32_t code = wn__check_start(&check, p, b->arena, b->result);
    if (code == WN_OK) code = wn__scalars_put(p, b);
    if (code == WN_OK && wn__anomaly_on) code = look_before(p);
    if (code == WN_OK) code = wn__timing_start(p);
    if (code == WN_OK) wn__captured_start(&at.captured, p, b, issue);
    if (code == WN_OK) code = loop(p, b, &meter, &check, &at);
    wn__transfer_stop(&b->transfer);
    if (code == WN_OK) code = finish(p, b);
    if (code != WN_OK) end_started(p, code = name_fault(p, &at, code));
    wn__timing_stop(p);
    if (code != WN_OK && at.effects > 0) wn__effects_roll_back(p, code);
    p->measured.high_water = wn__check_stop(&check);
    wn__meter_stop(&meter, p);
    p->measured.seconds = wn__now() - started;
    return code;
}

/* Refuses a program that cannot run now. */
static int32_t check_run(const struct wn_program *p)
{
    if (p->schedule == NULL) return wn__fail(WN_VALUE, "run: the program was not planned");
    WN_TRY(wn__device_usable(p->device, "run"));
    if (p->ran) return wn__fail(WN_VALUE, "run: the program ran already");
    if (wn__sequence_is_planned())
        return wn__fail(WN_VALUE, "run: a step is being planned and nothing runs meanwhile; leave its sequence first");
    if (p->target != 0)
        return wn__fail(WN_UNSUPPORTED, "run: this program was planned for another machine, %s; plan it without target",
                        wn__machine_name(p->target));
    return check_versions(p);
}

int32_t wn__program_run(struct wn_program *p)
{
    struct wn__bases b;
    WN_TRY(check_run(p));
    WN_TRY(wn__trace_room(p));
    int32_t is_point = p->taken_results == NULL; /* 0: it computes first values, and is no run point */
    if (is_point) WN_TRY(wn__sequence_add(p));
    WN_TRY(wn__acquire(p, &b));
    int32_t code = is_point ? wn__sequence_save(p) : WN_OK;
    if (code == WN_OK) code = execute(p, &b);
    if (code == WN_OK) wn__commit(p, &b);
    wn__acquired_release(&b);
    return code;
}
