/* Exchanges of a device whose memory the host does not address: what leaves is brought to host memory, from which the
 * link sends it, and what arrives there is taken to the device once all of it has come.
 *
 *   device      make x |....................| wait: x's pieces are there | kernels that read them
 *   to host            | x |
 *   link                   | messages    |      (the thread of the link sees that x is there)
 *   from host                              | pieces |
 *
 * The host waits where the schedule waits, so that it knows when to start the way back; the device waits for that. The
 * bytes are an allocation of the schedule, in an offload buffer of their own (wn__staged_bytes). */
#include <string.h>
#include "issue.h"

/* Says where an exchange goes through the host. */
struct staged {
    struct wn_offload_buffer *buffer;
    int64_t at;            /* offset of its allocation in the buffer */
    int64_t pieces;        /* offset of what arrives, from there */
    int64_t first;         /* the first byte of a state that is there; 0 of a value */
    struct wn__moved host; /* the addresses there */
};

static struct staged staged_of(const struct wn__run *r, const struct wn__instr *n, const struct wn__moved *m)
{
    int64_t both;
    int32_t is_value = m->op == WN_OP_ALL_TO_ALL;
    struct staged s = {.buffer = r->transfer.offload_buffer[WN_MEDIUM_RANKS],
                       .at = r->schedule->allocation[n->staged].offset,
                       .pieces = wn__staged_bytes(r->ir, n->node, &both),
                       .first = is_value ? 0 : wn__group_range(m->attrs).first * m->size,
                       .host = *m};
    s.host.to = s.buffer->host + s.at + s.pieces - s.first;
    s.host.from = is_value ? s.buffer->host + s.at : s.host.to + wn__moved_range(m, m->rank).first;
    return s;
}

/* Returns the way out: of the value, or of the own range of a state. */
static struct wn_move move_out(const struct wn__run *r, const struct wn__instr *n, const struct wn__moved *m,
                               const struct staged *s)
{
    const struct wn__ir_node *q = &r->ir->node[n->node];
    struct wn__range own = wn__moved_range(m, m->rank);
    struct wn_move out = {.way = WN_WAY_OUT, .at = s->at, .address = m->from};
    if (m->op != WN_OP_ALL_TO_ALL) {
        out.at += own.first - s->first;
        out.bytes = own.count;
    } else if (q->n_in > 0 && m->gives) out.bytes = wn__bytes(&r->ir->in_type[q->in_at]);
    return out;
}

/* Returns the way in: of the pieces, or of the ranges of all who take part. */
static struct wn_move move_in(const struct wn__moved *m, const struct staged *s)
{
    struct wn_move in = {.way = WN_WAY_IN, .at = s->at + s->pieces, .address = m->to + s->first};
    if (m->op == WN_OP_ALL_TO_ALL) in.bytes = m->attrs->i[WN_RANKS_GIVEN] * wn__moved_range(m, m->rank).count;
    else in.bytes = wn__group_range(m->attrs).count * m->size;
    return in;
}

/* Starts a move, and notes how far into the buffer it goes. One without bytes says when the exchange that had the bytes
 * of the buffer before has left them. */
static int32_t start_move(struct wn__run *r, const struct staged *s, const struct wn_move *move)
{
    int64_t top = move->at + wn__padded(move->bytes);
    if (top > r->exchange.staged_top) r->exchange.staged_top = top;
    r->transfer.started[WN_MEDIUM_RANKS][move->way]++;
    return r->device->offload_buffer_start(r->device, s->buffer, move);
}

int32_t wn__staging_start(struct wn__run *r, const struct wn__instr *n, const struct wn__moved *m, struct wn__job **out)
{
    struct wn__exchange *x = &r->exchange;
    const struct staged s = staged_of(r, n, m);
    struct wn_move move = move_out(r, n, m, &s);
    int32_t messages = wn__exchange_list(&s.host, x->list), waits = wn__link_get()->is_ghost;
    x->begun[n->move] = n;
    x->left[n->move] = r->transfer.started[WN_MEDIUM_RANKS][WN_WAY_OUT];
    if (!waits) WN_TRY(wn__link_start(m->channel, x->list, messages, &move.ended, out));
    WN_TRY(start_move(r, &s, &move));
    if (!waits) return WN_OK;
    WN_TRY(r->device->offload_buffer_left(r->device, s.buffer, x->left[n->move]));
    return wn__link_start(m->channel, x->list, messages, NULL, out); /* a ghost's copies are made here */
}

int32_t wn__staging_wait(struct wn__run *r, int32_t number, struct wn__job *job)
{
    struct wn__exchange *x = &r->exchange;
    const struct wn__instr *n = x->begun[number];
    const struct wn__moved m = wn__moved_of(r, n);
    const struct staged s = staged_of(r, n, &m);
    const struct wn_move move = move_in(&m, &s);
    struct wn__range own = wn__moved_range(&m, m.rank), given = wn__given_range(m.attrs);
    int64_t way_in = r->transfer.started[WN_MEDIUM_RANKS][WN_WAY_IN];
    WN_TRY(r->device->offload_buffer_left(r->device, s.buffer, x->left[number]));
    WN_TRY(wn__control_finish(job));
    if (m.op == WN_OP_ALL_TO_ALL && m.gives && own.count > 0)
        memcpy(s.host.to + wn__place_at(m.attrs, m.rank) * own.count, s.host.from + own.first - given.first * m.size,
               (size_t)own.count);
    if (move.bytes == 0) return WN_OK;
    WN_TRY(start_move(r, &s, &move));
    return r->device->offload_buffer_wait(r->device, s.buffer, WN_WAY_IN, way_in);
}
