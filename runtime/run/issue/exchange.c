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
    if (!r->device->target.is_unified_memory && size > 1)
        return wn__fail(WN_UNSUPPORTED, "run: gradients of values on %s are not exchanged in this version",
                        r->device->name);
    if (!WN_ARRAY(&r->pool, r->exchange.job, r->schedule->n_moves)) return WN_OOM;
    return WN_ARRAY(&r->pool, r->exchange.list, size + 1) ? WN_OK : WN_OOM;
}

static int32_t agree(struct wn__run *r, const char *about, int32_t code)
{
    struct wn__exchange *x = &r->exchange;
    char needed[300];
    int32_t is_step = about[0] == 0 && r->p->request.mode != WN_RUN_UPDATE;
    snprintf(needed, sizeof needed, "%s%s", about, x->needed);
    const struct wn__call call = {
        .said = x->said, .needed = needed, .code = code, .words = x->words, .is_step = is_step};
    int32_t result = wn__control_call(&call, NULL, 0);
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

/* Returns a number of the beginnings of all states that an update changes, before it does: ranks whose parameters have
 * come apart are told in the next step. Each rank has a range of its own of some states, which say nothing. */
static uint32_t states_of(const struct wn__run *r)
{
    uint64_t state = WN_DIGEST_START;
    for (int32_t i = 0; i < r->ir->n_cells; i++) {
        const struct wn_cell *c = r->p->bindings.cell[i];
        int64_t bytes = wn__bytes(&c->type);
        if (c->kind == WN_KIND_GRADIENT || c->buffer == NULL || !r->device->real || r->ir->cell[i].is_range) continue;
        state = wn__digest(state, c->buffer->data, bytes < BEGINNING ? bytes : BEGINNING);
    }
    return (uint32_t)state;
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
static void say(struct wn__run *r)
{
    struct wn__exchange *x = &r->exchange;
    const struct wn__request *q = &r->p->request;
    char what[128];
    int32_t line = q->n_roots > 0 ? wn__program_line(r->p, r->ir->root_node[0]) : 0;
    if (q->mode == WN_RUN_UPDATE)
        snprintf(what, sizeof what, "an update of %d nodes, its numbers %08x, its states %08x", r->ir->n, numbers_of(r),
                 states_of(r));
    else snprintf(what, sizeof what, "%s of %d nodes", wn__is_backward(q) ? "a backward" : "an evaluation", r->ir->n);
    snprintf(x->said, sizeof x->said, "%s%s%s", what, line ? " at " : "", line ? wn__line_text(line) : "");
    snprintf(x->needed, sizeof x->needed, "%s, %d of %d ranks, seed %llu, %016llx, gathers %08x", what, q->ranks.given,
             q->ranks.size, (unsigned long long)wn__here.seed, (unsigned long long)wn__ir_number(r->ir, r->ir->n),
             order_of(r));
}

int32_t wn__exchange_begin(struct wn__run *r)
{
    struct wn__exchange *x = &r->exchange;
    if (!is_among_ranks(r)) return WN_OK;
    say(r);
    int32_t code = agree(r, "", WN_OK);
    x->has_voted =
        code == WN_OK && r->p->request.mode == WN_RUN_UPDATE; /* it exchanges nothing, and its bytes are here */
    return code == WN_OK || wn__control_differs() < 0 ? code : wn__difference_find(r->p, wn__control_differs());
}

int32_t wn__exchange_fails(struct wn__run *r, int32_t code)
{
    struct wn__exchange *x = &r->exchange;
    if (!is_among_ranks(r) || x->has_voted || x->code != WN_OK) return 0;
    x->code = code;
    snprintf(x->words, sizeof x->words, "%s", wn__message());
    return 1;
}

int32_t wn__exchange_vote(struct wn__run *r)
{
    struct wn__exchange *x = &r->exchange;
    if (!is_among_ranks(r) || x->has_voted) return WN_OK;
    x->has_voted = 1;
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

/* The addresses of one exchange. */
struct moved {
    const struct wn_attrs *attrs;
    int32_t rank, ranks; /* this one; how many take part */
    int64_t size;        /* bytes of an element */
    char *from, *to;
};

static struct wn__range range_of(const struct moved *m, int32_t rank)
{
    struct wn__range g = wn__range_at(m->attrs, rank);
    return (struct wn__range){g.first * m->size, g.count * m->size};
}

/* Lists the messages of ALL_TO_ALL: to each rank its range, from each that gives the own range of this one. */
static int32_t list_pieces(const struct moved *m, int32_t gives, struct wn__message *list)
{
    int32_t given = (int32_t)m->attrs->i[WN_RANKS_GIVEN], n = 0;
    int64_t own = range_of(m, m->rank).count, skipped = wn__given_range(m->attrs).first * m->size;
    for (int32_t k = 0; k < m->ranks; k++) {
        int32_t peer = wn__rank_at(m->attrs, k);
        struct wn__range theirs = range_of(m, peer);
        if (peer == m->rank) continue;
        list[n++] = (struct wn__message){.peer = peer,
                                         .out = gives ? theirs.count : 0,
                                         .in = k < given ? own : 0,
                                         .from = gives ? m->from + theirs.first - skipped : NULL,
                                         .to = k < given ? m->to + k * own : NULL};
    }
    return n;
}

/* Lists the messages of REFRESH and ALL_GATHER: to each rank the own range of this one, from each its own. own_at:
 * where that begins. */
static int32_t list_ranges(const struct moved *m, const char *own_at, struct wn__message *list)
{
    int64_t own = range_of(m, m->rank).count;
    int32_t n = 0;
    for (int32_t k = 0; k < m->ranks; k++) {
        int32_t peer = wn__rank_at(m->attrs, k);
        struct wn__range theirs = range_of(m, peer);
        if (peer == m->rank) continue;
        list[n++] = (struct wn__message){
            .peer = peer, .out = own, .in = theirs.count, .from = own_at, .to = m->to + theirs.first};
    }
    return n;
}

/* Copies what this rank gives to itself: a piece of a value, or its range of a state. */
static int32_t copy_own(const struct wn__run *r, const struct moved *m, int32_t is_gather)
{
    struct wn__range own = range_of(m, m->rank);
    int64_t skipped = wn__given_range(m->attrs).first * m->size;
    if (own.count == 0) return WN_OK;
    if (is_gather) return r->device->copy(r->device, m->to + own.first, m->from, own.count);
    return r->device->copy(r->device, m->to + wn__place_at(m->attrs, m->rank) * own.count,
                           m->from + own.first - skipped, own.count);
}

/* Returns the addresses of an exchange: of a value and its pieces, or of a state twice. */
static struct moved moved_of(const struct wn__run *r, const struct wn__instr *n)
{
    const struct wn__schedule *s = r->schedule;
    const struct wn__ir_node *q = &r->ir->node[n->node];
    struct moved m = {.attrs = &q->attrs,
                      .rank = (int32_t)q->attrs.i[WN_RANKS_RANK],
                      .ranks = wn__group_size(&q->attrs),
                      .size = wn__dtype_size(q->type.dtype)};
    if (n->out < 0) m.from = m.to = wn__allocation_address(r, &s->allocation[n->cell[0]]);
    else {
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

int32_t wn__exchange_start(struct wn__run *r, const struct wn__instr *n)
{
    struct wn__exchange *x = &r->exchange;
    const struct moved m = moved_of(r, n);
    int32_t gives = wn__place_at(m.attrs, m.rank) < m.attrs->i[WN_RANKS_GIVEN];
    int32_t is_gather = r->ir->node[n->node].op == WN_OP_ALL_GATHER, is_state = n->out < 0, code = WN_OK, messages;
    int32_t channel = is_gather ? WN_CHANNEL_GATHER : is_state ? WN_CHANNEL_REFRESH : WN_CHANNEL_DATA;
    if (is_gather) messages = list_ranges(&m, m.from, x->list);
    else if (is_state) messages = list_ranges(&m, m.from + range_of(&m, m.rank).first, x->list);
    else messages = list_pieces(&m, gives, x->list);
    count(r, x->list, messages);
    if (messages > 0) code = wn__link_start(channel, x->list, messages, &x->job[n->move]);
    if (code == WN_OK && (is_gather || (!is_state && gives))) code = copy_own(r, &m, is_gather);
    return code == WN_OK ? WN_OK : wn__link_break(code);
}

int32_t wn__exchange_wait(struct wn__run *r, const struct wn__instr *n)
{
    struct wn__exchange *x = &r->exchange;
    struct wn__job *job = x->job[n->move];
    double began = wn__now();
    x->job[n->move] = NULL;
    if (job == NULL) return WN_OK;
    int32_t code = wn__control_finish(job);
    r->p->run.measured.wait_seconds += wn__now() - began;
    return code;
}
