/* Transfers of a run, values to the offload buffers and back: see struct wn__transfer in issue.h. */
#include "../../base/clock.h"
#include "../../base/warning.h"
#include "../../plan/recipe/action.h"
#include "issue.h"

/* Returns the enum wn_medium that an instruction transfers to or from. */
static int32_t place_of(const struct wn__schedule *s, const struct wn__instr *n)
{
    int32_t kept = n->what == WN_DO_OFFLOAD ? n->out : s->in[n->in_at];
    return wn__action_medium(s->value[kept].action);
}

static void note(const struct wn_offload_buffer *offload_buffer)
{
    static int32_t noted;
    if (offload_buffer == NULL || offload_buffer->note[0] == 0 || noted) return;
    noted = 1;
    wn__warn("offload: %s", offload_buffer->note);
}

int32_t wn__transfer_take(struct wn__run *r)
{
    const struct wn__schedule *s = r->schedule;
    struct wn__transfer *t = &r->transfer;
    int32_t most[WN_MEDIUM_COUNT] = {0};
    if (s->n_moves == 0) return WN_OK;
    for (int32_t i = 0; i < s->n; i++)
        if (wn__instr_way(&s->instr[i]) >= 0) most[place_of(s, &s->instr[i])]++;
        else most[WN_MEDIUM_RANKS] += s->instr[i].staged >= 0;
    if (!WN_ARRAY(&r->pool, t->move, s->n_moves)) return WN_OOM;
    for (int32_t medium = 0; medium < WN_MEDIUM_COUNT; medium++) {
        WN_TRY(wn__offload_buffer_fit(r->p->request.device, medium, s->offload_buffer[medium], most[medium],
                                      &t->offload_buffer[medium]));
        note(t->offload_buffer[medium]);
    }
    return WN_OK;
}

int32_t wn__transfer_start(struct wn__run *r, const struct wn__instr *n)
{
    const struct wn__schedule *s = r->schedule;
    struct wn__transfer *t = &r->transfer;
    int32_t way = wn__instr_way(n), medium = place_of(s, n), in = s->in[n->in_at];
    const struct wn__allocation *far = &s->allocation[s->value[way == WN_WAY_OUT ? n->out : in].allocation];
    const struct wn_move move = {.way = way,
                                 .at = far->offset,
                                 .address = wn__value_address(r, way == WN_WAY_OUT ? in : n->out),
                                 .bytes = far->bytes};
    t->move[n->move].medium = medium;
    t->move[n->move].way = way;
    t->move[n->move].number = t->started[medium][way]++;
    *(way == WN_WAY_OUT ? &r->p->run.measured.out : &r->p->run.measured.in) += move.bytes;
    return r->device->offload_buffer_start(r->device, t->offload_buffer[medium], &move);
}

int32_t wn__transfer_wait(struct wn__run *r, const struct wn__instr *n)
{
    struct wn__transfer *t = &r->transfer;
    int32_t medium = t->move[n->move].medium, way = t->move[n->move].way;
    double began = wn__now();
    int32_t code = r->device->offload_buffer_wait(r->device, t->offload_buffer[medium], way, t->move[n->move].number);
    t->stall += wn__now() - began;
    return code;
}

void wn__transfer_stop(struct wn__run *r)
{
    struct wn__transfer *t = &r->transfer;
    struct wn_measured *m = &r->p->run.measured;
    if (t->move == NULL) return;
    if (r->exchange.begun != NULL && r->ir->target->has_link) m->wait_seconds += r->device->link_stop(r->device);
    for (int32_t medium = 0; medium < WN_MEDIUM_COUNT; medium++) {
        struct wn_offload_buffer *offload_buffer = t->offload_buffer[medium];
        if (offload_buffer == NULL) continue;
        r->device->offload_buffer_stop(r->device, offload_buffer);
        if (medium == WN_MEDIUM_RANKS) {
            m->wait_seconds += offload_buffer->stall;
            continue;
        }
        m->move_seconds += offload_buffer->busy[WN_WAY_OUT] + offload_buffer->busy[WN_WAY_IN];
        t->stall += offload_buffer->stall;
    }
    m->stall_seconds = t->stall;
}
