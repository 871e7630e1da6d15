/* Exchanges of a run among ranks: agrees about the run before anything moves, starts each exchange where the schedule
 * says, and waits for it. */
#include <stdio.h>
#include <string.h>
#include "issue.h"

/* ---- agreement --------------------------------------------------------------------------------------------------- */

int32_t wn__exchange_take(struct wn__run *r)
{
    int32_t size = r->p->request.ranks.size;
    if (r->p->request.ranks.given == 0 || r->result_kind != NULL) return WN_OK;
    if (!r->device->target.is_unified_memory && size > 1)
        return wn__fail(WN_UNSUPPORTED, "run: gradients of values on %s are not exchanged in this version",
                        r->device->name);
    return WN_ARRAY(&r->pool, r->exchange.list, size + 1) ? WN_OK : WN_OOM;
}

static int32_t agree(struct wn__run *r, const char *about, int32_t code)
{
    struct wn__exchange *x = &r->exchange;
    char needed[160];
    snprintf(needed, sizeof needed, "%s%s", about, x->needed);
    const struct wn__call call = {
        .said = x->said, .needed = needed, .code = code, .words = x->words, .is_step = about[0] == 0};
    return wn__control_call(&call, NULL, 0);
}

/* Tells whether the run takes others to make its exchanges. */
static int32_t is_among_ranks(const struct wn__run *r)
{
    return r->exchange.list != NULL && r->p->request.ranks.size > 1;
}

int32_t wn__exchange_begin(struct wn__run *r)
{
    struct wn__exchange *x = &r->exchange;
    if (!is_among_ranks(r)) return WN_OK;
    int32_t line = wn__program_line(r->p, r->ir->root_node[0]);
    snprintf(x->said, sizeof x->said, "a backward of %d nodes%s%s", r->ir->n, line ? " at " : "",
             line ? wn__line_text(line) : "");
    snprintf(x->needed, sizeof x->needed, "a backward of %d nodes, %d of %d ranks, seed %llu, %016llx", r->ir->n,
             r->p->request.ranks.given, r->p->request.ranks.size, (unsigned long long)wn__here.seed,
             (unsigned long long)wn__ir_number(r->ir, r->ir->n));
    int32_t code = agree(r, "", WN_OK);
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

int32_t wn__exchange_stop(const struct wn__run *r, int32_t code)
{
    return is_among_ranks(r) && r->exchange.has_voted && !r->exchange.has_failed ? wn__link_break(code) : code;
}

/* ---- exchanges --------------------------------------------------------------------------------------------------- */

/* The addresses of one exchange. */
struct moved {
    const struct wn_attrs *attrs;
    int32_t ranks;
    int64_t size; /* bytes of an element */
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
    int32_t rank = (int32_t)m->attrs->i[WN_RANKS_RANK], given = (int32_t)m->attrs->i[WN_RANKS_GIVEN], n = 0;
    int64_t own = range_of(m, rank).count;
    for (int32_t k = 0; k < m->ranks; k++) {
        struct wn__range theirs = range_of(m, k);
        if (k == rank) continue;
        list[n++] = (struct wn__message){.peer = k,
                                         .out = gives ? theirs.count : 0,
                                         .in = k < given ? own : 0,
                                         .from = gives ? m->from + theirs.first : NULL,
                                         .to = k < given ? m->to + k * own : NULL};
    }
    return n;
}

/* Lists the messages of REFRESH: to each rank the own range of this one, from each its own. */
static int32_t list_ranges(const struct moved *m, struct wn__message *list)
{
    int32_t rank = (int32_t)m->attrs->i[WN_RANKS_RANK], n = 0;
    struct wn__range own = range_of(m, rank);
    for (int32_t k = 0; k < m->ranks; k++) {
        struct wn__range theirs = range_of(m, k);
        if (k == rank) continue;
        list[n++] = (struct wn__message){
            .peer = k, .out = own.count, .in = theirs.count, .from = m->from + own.first, .to = m->to + theirs.first};
    }
    return n;
}

/* Copies what this rank gives to itself. */
static int32_t copy_own(const struct wn__run *r, const struct moved *m)
{
    int32_t rank = (int32_t)m->attrs->i[WN_RANKS_RANK];
    struct wn__range own = range_of(m, rank);
    return r->device->copy(r->device, m->to + rank * own.count, m->from + own.first, own.count);
}

int32_t wn__exchange_run(struct wn__run *r, const struct wn__instr *n)
{
    const struct wn__schedule *s = r->schedule;
    const struct wn__ir_node *q = &r->ir->node[n->node];
    struct moved m = {
        .attrs = &q->attrs, .ranks = (int32_t)q->attrs.i[WN_RANKS_SIZE], .size = wn__dtype_size(q->type.dtype)};
    struct wn__job *job;
    int32_t count;
    if (q->op == WN_OP_REFRESH) {
        m.from = m.to = wn__allocation_address(r, &s->allocation[n->cell[0]]);
        count = list_ranges(&m, r->exchange.list);
    } else {
        m.from = q->n_in > 0 ? wn__value_address(r, s->in[n->in_at]) : NULL;
        m.to = wn__value_address(r, n->out);
        count = list_pieces(&m, q->n_in > 0, r->exchange.list);
    }
    int64_t own = range_of(&m, (int32_t)q->attrs.i[WN_RANKS_RANK]).count;
    if (own > 0 && m.from != m.to && m.from != NULL) WN_TRY(copy_own(r, &m));
    if (count == 0) return WN_OK;
    int32_t code = wn__link_start(WN_CHANNEL_DATA, r->exchange.list, count, &job);
    return code == WN_OK ? wn__control_finish(job) : wn__link_break(code);
}
