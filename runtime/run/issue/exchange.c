/* Exchanges of a run among ranks: agrees about the run before anything moves, starts each exchange where the schedule
 * says, and waits for it where the schedule says. */
#include <stdio.h>
#include <string.h>
#include "../../base/clock.h"
#include "../../base/digest.h"
#include "issue.h"

#define BEGINNING 64 /* bytes */

/* ---- agreement --------------------------------------------------------------------------------------------------- */

int32_t wn__exchange_take(struct wn__run *r)
{
    int32_t size = r->p->request.ranks.size, gathers = wn__ir_gathers(r->ir);
    if (r->p->request.ranks.given + gathers == 0 || r->result_kind != NULL) return WN_OK;
    if (!WN_ARRAY(&r->pool, r->exchange.job, r->schedule->n_moves) || !WN_ARRAY(&r->pool, r->exchange.list, size + 1))
        return WN_OOM;
    if (r->device->target.is_unified_memory) return WN_OK;
    if (!WN_ARRAY(&r->pool, r->exchange.begun, r->schedule->n_moves) ||
        !WN_ARRAY(&r->pool, r->exchange.left, r->schedule->n_moves))
        return WN_OOM;
    return r->ir->target->has_link ? r->device->link_take(r->device, r->schedule->n_moves) : WN_OK;
}

/* Agrees with the other ranks about the run, and counts as a wait how long they take to come. */
static int32_t agree(struct wn__run *r, const char *about, int32_t code)
{
    struct wn__exchange *x = &r->exchange;
    char needed[300];
    int32_t is_step = about[0] == 0 && r->p->request.mode != WN_RUN_UPDATE;
    snprintf(needed, sizeof needed, "%s%s", about, x->needed);
    const struct wn__call call = {
        .said = x->said, .needed = needed, .code = code, .words = x->words, .is_step = is_step};
    double began = wn__now();
    int32_t result = wn__control_call(&call, NULL, 0);
    r->p->run.measured.wait_seconds += wn__now() - began;
    if (result == WN_OOM && code != WN_OOM) wn__oom_last = (struct wn_oom){0}; /* that of another rank */
    return result;
}

/* Tells whether the run takes others to make its exchanges. */
static int32_t is_among_ranks(const struct wn__run *r)
{
    return r->exchange.list != NULL && r->p->request.ranks.size > 1;
}

/* Returns a number of the host's numbers of an update, such as a learning rate. */
static uint32_t numbers_of(const struct wn__run *r)
{
    uint64_t state = WN_DIGEST_START;
    for (int32_t i = 0; i < r->ir->n_scalars; i++) {
        char number[WN_SCALAR_BYTES] = {0};
        if (r->p->bindings.scalar[i] != NULL) wn__node_numbers_put(r->p->bindings.scalar[i], number);
        state = wn__digest(state, number, sizeof number);
    }
    return (uint32_t)state;
}

/* Puts a number of the beginnings of all states that an update changes, before it does: ranks whose parameters have
 * come apart are told in the next step. Each rank has a range of its own of some states, which say nothing. */
static int32_t states_of(struct wn__run *r, uint32_t *out)
{
    struct wn__exchange *x = &r->exchange;
    *out = 0;
    if (!r->device->real) return WN_OK;
    WN_TRY(wn__exchange_settle_all(r));
    if (!WN_ARRAY(&r->pool, x->beginnings, r->ir->n_cells * BEGINNING)) return WN_OOM;
    for (int32_t i = 0; i < r->ir->n_cells; i++) {
        const struct wn_cell *c = r->p->bindings.cell[i];
        int64_t bytes = wn__bytes(&c->type);
        if (c->kind == WN_KIND_GRADIENT || c->buffer == NULL || r->ir->cell[i].is_range) continue;
        WN_TRY(r->device->read(r->device, x->beginnings + i * BEGINNING, c->buffer->data,
                               bytes < BEGINNING ? bytes : BEGINNING));
    }
    WN_TRY(r->device->sync(r->device));
    *out = (uint32_t)wn__digest(WN_DIGEST_START, x->beginnings, r->ir->n_cells * BEGINNING);
    return WN_OK;
}

/* Returns a number of the order in which the run gathers states, among the other exchanges: ranks that do so in another
 * one would wait for each other. 0: it gathers none. */
static uint32_t order_of(const struct wn__run *r)
{
    uint64_t state = WN_DIGEST_START;
    int32_t gathers = 0;
    for (int32_t i = 0; i < r->schedule->n; i++) {
        const struct wn__instr *n = &r->schedule->instr[i];
        if (n->what != WN_DO_EXCHANGE || n->out < 0) continue; /* ranges of states come back in any order among these */
        gathers += r->ir->node[n->node].op == WN_OP_ALL_GATHER;
        state = wn__digest(state, &n->node, sizeof n->node);
    }
    return gathers > 0 ? (uint32_t)state : 0;
}

/* Writes what the run is, for messages, and what must be equal. */
static int32_t say(struct wn__run *r)
{
    struct wn__exchange *x = &r->exchange;
    const struct wn__request *q = &r->p->request;
    char what[128];
    int32_t line = q->n_roots > 0 ? wn__program_line(r->p, r->ir->root_node[0]) : 0;
    uint32_t states = 0;
    if (q->mode == WN_RUN_UPDATE) WN_TRY(states_of(r, &states));
    if (q->mode == WN_RUN_UPDATE)
        snprintf(what, sizeof what, "an update of %d nodes, its numbers %08x, its states %08x", r->ir->n, numbers_of(r),
                 states);
    else snprintf(what, sizeof what, "%s of %d nodes", wn__is_backward(q) ? "a backward" : "an evaluation", r->ir->n);
    snprintf(x->said, sizeof x->said, "%s%s%s", what, line ? " at " : "", line ? wn__line_text(line) : "");
    snprintf(x->needed, sizeof x->needed, "%s on %s, %d of %d ranks, seed %llu, %016llx, gathers %08x", what,
             r->device->name, q->ranks.given, q->ranks.size, (unsigned long long)wn__here.seed,
             (unsigned long long)wn__ir_number(r->ir, r->ir->n), order_of(r));
    return WN_OK;
}

static void note_failure(struct wn__exchange *x, int32_t code)
{
    x->code = code;
    snprintf(x->words, sizeof x->words, "%s", wn__message());
}

int32_t wn__exchange_begin(struct wn__run *r)
{
    struct wn__exchange *x = &r->exchange;
    if (!is_among_ranks(r)) return WN_OK;
    int32_t code = say(r);
    if (code != WN_OK) note_failure(x, code);
    code = agree(r, "", code);
    x->has_voted =
        code == WN_OK && r->p->request.mode == WN_RUN_UPDATE; /* it exchanges nothing, and its bytes are here */
    if (code == WN_OK) return wn__own_link_open(r);
    return wn__control_differs() < 0 ? code : wn__difference_find(r->p, wn__control_differs(), order_of(r));
}

int32_t wn__exchange_fails(struct wn__run *r, int32_t code)
{
    struct wn__exchange *x = &r->exchange;
    if (!is_among_ranks(r) || x->has_voted || x->code != WN_OK) return 0;
    note_failure(x, code);
    return 1;
}

int32_t wn__exchange_vote(struct wn__run *r)
{
    struct wn__exchange *x = &r->exchange;
    if (!is_among_ranks(r) || x->has_voted) return WN_OK;
    x->has_voted = 1;
    if (x->code != WN_OK && r->ir->target->has_link) (void)r->device->sync(r->device); /* what others wait for */
    if (x->code == WN_OK) { /* what went wrong on a device that runs behind is found by waiting for it */
        int32_t failed = r->device->sync(r->device);
        if (failed == WN_OK) failed = wn__reports_check(r);
        if (failed != WN_OK) note_failure(x, failed);
    }
    int32_t code = agree(r, "the vote of ", x->code);
    x->has_failed = code != WN_OK;
    return code;
}

int32_t wn__exchange_has_passed(const struct wn__run *r)
{
    return !is_among_ranks(r) || (r->exchange.has_voted && !r->exchange.has_failed);
}

int32_t wn__exchange_stop(const struct wn__run *r, int32_t code)
{
    return is_among_ranks(r) && wn__exchange_has_passed(r) ? wn__link_break(code) : code;
}

/* ---- exchanges --------------------------------------------------------------------------------------------------- */

struct wn__range wn__moved_range(const struct wn__moved *m, int32_t rank)
{
    struct wn__range g = wn__range_at(m->attrs, rank);
    return (struct wn__range){g.first * m->size, g.count * m->size};
}

/* Lists the messages of ALL_TO_ALL: to each rank its range, from each that gives the own range of this one. */
static int32_t list_pieces(const struct wn__moved *m, struct wn__message *list)
{
    int32_t given = (int32_t)m->attrs->i[WN_RANKS_GIVEN], n = 0;
    int64_t own = wn__moved_range(m, m->rank).count, skipped = wn__given_range(m->attrs).first * m->size;
    for (int32_t k = 0; k < m->ranks; k++) {
        int32_t peer = wn__rank_at(m->attrs, k);
        struct wn__range theirs = wn__moved_range(m, peer);
        if (peer == m->rank) continue;
        list[n++] = (struct wn__message){.peer = peer,
                                         .out = m->gives ? theirs.count : 0,
                                         .in = k < given ? own : 0,
                                         .from = m->gives ? m->from + theirs.first - skipped : NULL,
                                         .to = k < given ? m->to + k * own : NULL};
    }
    return n;
}

/* Lists the messages of REFRESH and ALL_GATHER: to each rank the own range of this one, from each its own. */
static int32_t list_ranges(const struct wn__moved *m, struct wn__message *list)
{
    int64_t own = wn__moved_range(m, m->rank).count;
    int32_t n = 0;
    for (int32_t k = 0; k < m->ranks; k++) {
        int32_t peer = wn__rank_at(m->attrs, k);
        struct wn__range theirs = wn__moved_range(m, peer);
        if (peer == m->rank) continue;
        list[n++] = (struct wn__message){
            .peer = peer, .out = own, .in = theirs.count, .from = m->from, .to = m->to + theirs.first};
    }
    return n;
}

int32_t wn__exchange_list(const struct wn__moved *m, struct wn__message *list)
{
    return m->op == WN_OP_ALL_TO_ALL ? list_pieces(m, list) : list_ranges(m, list);
}

/* Copies what this rank gives to itself: a piece of a value, or its range of a state. */
static int32_t copy_own(const struct wn__run *r, const struct wn__moved *m)
{
    struct wn__range own = wn__moved_range(m, m->rank);
    int64_t skipped = wn__given_range(m->attrs).first * m->size;
    if (own.count == 0 || m->op == WN_OP_REFRESH) return WN_OK;
    if (m->op == WN_OP_ALL_GATHER) return r->device->copy(r->device, m->to + own.first, m->from, own.count);
    if (!m->gives) return WN_OK;
    return r->device->copy(r->device, m->to + wn__place_at(m->attrs, m->rank) * own.count,
                           m->from + own.first - skipped, own.count);
}

struct wn__moved wn__moved_of(const struct wn__run *r, const struct wn__instr *n)
{
    const struct wn__schedule *s = r->schedule;
    const struct wn__ir_node *q = &r->ir->node[n->node];
    struct wn__moved m = {.attrs = &q->attrs,
                          .op = q->op,
                          .channel = q->op == WN_OP_ALL_GATHER ? WN_CHANNEL_GATHER
                                     : q->op == WN_OP_REFRESH  ? WN_CHANNEL_REFRESH
                                                               : WN_CHANNEL_DATA,
                          .rank = (int32_t)q->attrs.i[WN_RANKS_RANK],
                          .ranks = wn__group_size(&q->attrs),
                          .size = wn__dtype_size(q->type.dtype)};
    m.gives = wn__place_at(m.attrs, m.rank) < m.attrs->i[WN_RANKS_GIVEN];
    if (n->out < 0) {
        m.to = wn__allocation_address(r, &s->allocation[n->cell[0]]);
        m.from = m.to + wn__moved_range(&m, m.rank).first;
    } else {
        m.from = q->n_in > 0 ? wn__value_address(r, s->in[n->in_at]) : NULL;
        m.to = wn__value_address(r, n->out);
    }
    return m;
}

/* Adds the bytes of messages to what was measured. */
static void count(const struct wn__run *r, const struct wn__message *list, int32_t n)
{
    const struct wn__link *l = wn__link_get();
    struct wn_measured *m = &r->p->run.measured;
    for (int32_t k = 0; k < n; k++) {
        int32_t level = list[k].peer / l->per_node != l->rank / l->per_node;
        m->wire_out[level] += list[k].out;
        m->wire_in[level] += list[k].in;
    }
}

/* Tells whether another exchange comes right behind one, or a wait for one: the link is handed both at once. */
static int32_t goes_on(const struct wn__run *r, const struct wn__instr *n)
{
    const struct wn__instr *end = r->schedule->instr + r->schedule->n;
    while (++n < end && n->what == WN_DO_FREE) continue;
    return n < end && (n->what == WN_DO_EXCHANGE || n->what == WN_DO_WAIT) &&
           (wn__ir_flags(r->ir, n->node) & WN_LINK) != 0;
}

/* Starts an exchange on the link of the device. */
static int32_t start_on_device(struct wn__run *r, const struct wn__instr *n, int32_t messages)
{
    struct wn__exchange *x = &r->exchange;
    WN_TRY(r->device->link_start(r->device, x->list, messages));
    x->begun[n->move] = n;
    x->left[n->move] = x->started++;
    return WN_OK;
}

int32_t wn__exchange_start(struct wn__run *r, const struct wn__instr *n)
{
    struct wn__exchange *x = &r->exchange;
    const struct wn__moved m = wn__moved_of(r, n);
    struct wn__moved host = m; /* what the host finds there; staging.c lists what it has instead */
    host.from = wn__device_bytes(r->device, m.from);
    host.to = wn__device_bytes(r->device, m.to);
    int32_t messages = wn__exchange_list(&host, x->list), code = WN_OK;
    /* A run that moves no byte of this rank has no buffer. */
    int32_t is_staged = n->staged >= 0 && r->transfer.offload_buffer[WN_MEDIUM_RANKS] != NULL;
    count(r, x->list, messages);
    if (messages == 0) code = copy_own(r, &m);
    else if (is_staged) code = wn__staging_start(r, n, &m, &x->job[n->move]);
    else if (r->ir->target->has_link) code = start_on_device(r, n, messages);
    else code = wn__link_start(m.channel, x->list, messages, NULL, &x->job[n->move]);
    if (code == WN_OK && messages > 0 && !is_staged) code = copy_own(r, &m);
    if (!goes_on(r, n)) wn__link_urge();
    return code == WN_OK ? WN_OK : wn__link_break(code);
}

/* ---- what comes behind a run ------------------------------------------------------------------------------------- */

/* Waits for the ranges of a parameter that others have updated; where they do not come it is half updated. */
static int32_t arrive(struct wn_cell *c)
{
    struct wn__job *job = c->arriving;
    c->arriving = NULL;
    wn__cells_arriving--;
    int32_t code = wn__control_finish(job);
    c->invalid |= code != WN_OK;
    return code;
}

/* Leaves an exchange to whoever uses the parameter next: a forward that computes meanwhile. */
static void leave_to_next(struct wn_cell *c, struct wn__job *job)
{
    wn__cell_arrive = arrive;
    wn__cells_arriving++;
    c->arriving = job;
}

static int32_t settle(struct wn__run *r, int32_t allocation)
{
    const struct wn__allocation *t = &r->schedule->allocation[allocation];
    return t->space == WN_SPACE_CELL ? wn__cell_settle(r->p->bindings.cell[t->slot]) : WN_OK;
}

int32_t wn__exchange_settle_all(const struct wn__run *r)
{
    for (int32_t i = 0; i < r->ir->n_cells; i++) WN_TRY(wn__cell_settle(r->p->bindings.cell[i]));
    return WN_OK;
}

int32_t wn__exchange_settle(struct wn__run *r, const struct wn__instr *n)
{
    double began = wn__now();
    int32_t code = WN_OK;
    for (int32_t k = 0; k < wn__instr_n_in(r->ir, n) && code == WN_OK; k++)
        code = settle(r, r->schedule->value[r->schedule->in[n->in_at + k]].allocation);
    for (int32_t k = 0; k < 3 && code == WN_OK; k++)
        if (n->cell[k] >= 0) code = settle(r, n->cell[k]);
    r->p->run.measured.wait_seconds += wn__now() - began;
    return code;
}

int32_t wn__exchange_wait(struct wn__run *r, const struct wn__instr *n)
{
    struct wn__exchange *x = &r->exchange;
    struct wn__job *job = x->job[n->move];
    double began = wn__now();
    if (r->ir->target->has_link && x->begun[n->move] != NULL) {
        x->begun[n->move] = NULL;
        int32_t failed = r->device->link_wait(r->device, x->left[n->move]);
        return failed == WN_OK ? WN_OK : wn__link_break(failed);
    }
    x->job[n->move] = NULL;
    if (job == NULL) return WN_OK;
    if (wn__instr_is_late(r->ir, n) && !r->exchange.is_apart) {
        leave_to_next(r->p->bindings.cell[r->ir->node[n->node].cell[0]], job);
        return WN_OK;
    }
    if (x->begun != NULL && x->begun[n->move] != NULL) { /* its seconds are those of the device's clock */
        int32_t failed = wn__staging_wait(r, n->move, job);
        return failed == WN_OK ? WN_OK : wn__link_break(failed);
    }
    int32_t code = wn__control_finish(job);
    r->p->run.measured.wait_seconds += wn__now() - began;
    return code;
}
