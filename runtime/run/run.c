/* Runs a schedule as it is written. Everything is acquired before the first kernel, so a run cannot fail for memory
 * half way; nothing is reordered; no kernel allocates; nothing calls back. */
#include <stdio.h>
#include "../base/clock.h"
#include "../base/interrupt.h"
#include "../plan/ir/costs.h"
#include "../program/sequence.h"
#include "run.h"
#include "watch/watch.h"

/* Advances to an instruction. Before the first change of a state nothing may be wrong: it stops for ^C, unless other
 * ranks rely on this one by now, and waits for reports. */
static int32_t advance(struct wn__run *r, const struct wn__instr *n)
{
    int32_t changes = wn__instr_has_kernel(n) && wn__ir_changes_state(r->ir, n->node);
    if (wn__interrupted && r->effects == 0 && !r->exchange.has_voted)
        return wn__fail(WN_INTERRUPT, "interrupted before anything was changed");
    if (changes && r->effects == 0 && r->schedule->n_reports > 0) {
        WN_TRY(wn__reports_check(r));
        r->ended = r->at;
    }
    if (changes && wn__is_forward_effect(r->ir, n->node)) WN_TRY(wn__exchange_vote(r));
    r->effects += changes;
    wn__meter_count(r, n);
    return WN_OK;
}

/* Tells whether an instruction starts an exchange or waits for one. */
static int32_t is_exchange(const struct wn__run *r, const struct wn__instr *n)
{
    return (n->what == WN_DO_EXCHANGE || n->what == WN_DO_WAIT) && (wn__ir_flags(r->ir, n->node) & WN_LINK) != 0;
}

/* Runs an instruction. A FREE is there for those who count or watch. */
static int32_t step(struct wn__run *r, struct wn__watches *w, const struct wn__instr *n)
{
    WN_TRY(advance(r, n));
    if (n->what == WN_DO_FREE) return wn__watches_call(w, r, n, WN_MOMENT_FREED);
    if (wn__cells_arriving > 0) WN_TRY(wn__exchange_settle(r, n));
    WN_TRY(wn__watches_call(w, r, n, WN_MOMENT_BEFORE));
    switch (n->what) {
    case WN_DO_READ: WN_TRY(wn__number_read(r, n)); break;
    case WN_DO_OFFLOAD:
    case WN_DO_FETCH: WN_TRY(wn__transfer_start(r, n)); break;
    case WN_DO_EXCHANGE: WN_TRY(wn__exchange_start(r, n)); break;
    case WN_DO_WAIT: WN_TRY(is_exchange(r, n) ? wn__exchange_wait(r, n) : wn__transfer_wait(r, n)); break;
    default: WN_TRY(r->issue(r, n));
    }
    return wn__watches_call(w, r, n, WN_MOMENT_AFTER);
}

/* Goes on after a failure, for the ranks that wait for this one: moves what is exchanged, and computes nothing. */
static int32_t step_failed(struct wn__run *r, const struct wn__instr *n)
{
    if (n->what == WN_DO_RUN && wn__is_forward_effect(r->ir, n->node)) return wn__exchange_vote(r);
    if (!is_exchange(r, n)) return WN_OK;
    return n->what == WN_DO_WAIT ? wn__exchange_wait(r, n) : wn__exchange_start(r, n);
}

/* Runs the instructions in their order. */
static int32_t loop(struct wn__run *r, struct wn__watches *w)
{
    for (r->at = 0; r->at < r->schedule->n; r->at++) {
        const struct wn__instr *n = &r->schedule->instr[r->at];
        int32_t code = r->exchange.code == WN_OK ? step(r, w, n) : step_failed(r, n);
        if (code != WN_OK && !wn__exchange_fails(r, code)) return code;
        if (code != WN_OK) r->at--; /* the same once more, as one that has failed */
    }
    return wn__exchange_vote(r);
}

/* Waits until everything that was started has ended, and takes what it made for the host. */
static int32_t finish(struct wn__run *r)
{
    WN_TRY(r->device->sync(r->device));
    WN_TRY(wn__reports_check(r));
    wn__numbers_take(r);
    return WN_OK;
}

/* Waits for the work of a run that failed, so that its bytes can be given back. The message of `code` stays. */
static void end_started(const struct wn__run *r, int32_t code)
{
    char message[1024];
    snprintf(message, sizeof message, "%s", wn__message());
    if (r->device->sync(r->device) != WN_OK) wn__fail(code, "%s", message);
}

/* Returns "linear (node 3)", and the line where the node was recorded, where that is known. */
static const char *instr_text(const struct wn__run *r, int32_t at, char *text, size_t room)
{
    int32_t node = r->schedule->instr[at].node, line = wn__program_line(r->p, node);
    snprintf(text, room, "%s (node %d%s%s)", wn__ir_op_text(r->ir, node), node, line ? ", recorded at " : "",
             line ? wn__line_text(line) : "");
    return text;
}

/* Adds to the message of a device's failure where it happened: at one instruction, or between two. A device that runs
 * out of memory after the first effect has failed: the caller would run the program again, over states that have
 * changed. */
static int32_t name_fault(const struct wn__run *r, int32_t code)
{
    char first[256], last[256];
    int32_t n = r->schedule->n, from = r->ended < n ? r->ended : n - 1, to = r->at < n ? r->at : n - 1;
    if (code == WN_OOM && r->effects > 0) code = WN_DEVICE;
    if (code != WN_DEVICE || n == 0) return code;
    instr_text(r, from, first, sizeof first);
    instr_text(r, to, last, sizeof last);
    if (from >= to) return wn__fail(code, "%s; it ran %s", wn__message(), last);
    return wn__fail(code, "%s; it ran something from %s to %s (WANE_SYNC=1 names it)", wn__message(), first, last);
}

/* Checks that the program reads what was recorded: it may have waited between its opening and its run, for a policy
 * that yields or a script that opens two. */
static int32_t check_versions(const struct wn__bindings *b)
{
    for (int64_t i = 0; i < b->order.count; i++) {
        const struct wn_node *n = b->order.nodes[i];
        if (n->op == WN_OP_CELL && n->version != n->cell->version)
            return wn__fail(WN_STALE,
                            "run: %s has changed since the program that reads it was opened; another program ran in "
                            "between, so record it again",
                            n->cell->name ? n->cell->name : "a state");
    }
    for (int32_t i = 0; i < b->n_forward_effects; i++)
        if (b->order.nodes[b->forward_effect[i].node]->effects_done)
            return wn__fail(WN_STALE, "run: another program has computed the statistics of this one since it was "
                                      "opened, and changed the running ones; record it again");
    return WN_OK;
}

int32_t wn__execute(struct wn__run *r)
{
    struct wn__watches watches = {0};
    double started = wn__now();
    r->p->run.measured = (struct wn_measured){0};
    int32_t code = wn__meter_start(r);
    if (code == WN_OK) code = wn__watches_start(&watches, r);
    if (code == WN_OK) code = wn__scalars_put(r);
    r->exchange.is_apart = watches.is_apart;
    if (code == WN_OK && r->exchange.is_apart) code = wn__exchange_settle_all(r);
    if (code == WN_OK && !r->exchange.is_apart) wn__captured_start(r);
    if (code == WN_OK) code = wn__exchange_begin(r);
    if (code == WN_OK) code = loop(r, &watches);
    wn__transfer_stop(r);
    if (code == WN_OK) code = finish(r);
    if (code != WN_OK) end_started(r, code = name_fault(r, code));
    if (code != WN_OK) wn__exchange_stop(r, code);
    if (code != WN_OK && r->effects > 0) wn__effects_roll_back(r, code);
    wn__watches_stop(&watches, r);
    wn__meter_stop(r);
    r->p->run.measured.seconds = wn__now() - started;
    return code;
}

/* Refuses a program that cannot run now. */
static int32_t check_run(const struct wn_program *p)
{
    if (p->plan.schedule == NULL) return wn__fail(WN_VALUE, "run: the program was not planned");
    WN_TRY(wn__device_usable(p->request.device, "run"));
    if (p->run.ran) return wn__fail(WN_VALUE, "run: the program ran already");
    if (wn__sequence_is_planned())
        return wn__fail(WN_VALUE, "run: a step is being planned and nothing runs meanwhile; leave its sequence first");
    if (p->request.target != 0)
        return wn__fail(WN_UNSUPPORTED, "run: this program was planned for another machine, %s; plan it without target",
                        wn__machine_name(p->request.target));
    return check_versions(&p->bindings);
}

int32_t wn__program_run(struct wn_program *p)
{
    struct wn__run r;
    WN_TRY(check_run(p));
    WN_TRY(wn__sequence_add(p));
    int32_t code = wn__acquire(p, NULL, &r);
    if (code == WN_OK) code = wn__sequence_save(p);
    if (code == WN_OK) code = wn__execute(&r);
    if (code == WN_OK) wn__commit(&r);
    wn__acquired_release(&r);
    if (code != WN_OK) wn__sequence_take_back();
    return code;
}
