/* Transfers of a run: see transfer.h. */
#include "transfer.h"
#include "../base/alloc.h"
#include "../base/clock.h"
#include "../base/warning.h"
#include "../plan/recipe/action.h"

/* Returns the enum wn_place that an instruction transfers to or from. */
static int32_t place_of(const struct wn__schedule *s, const struct wn__instr *n)
{
    int32_t kept = n->what == WN_DO_OFFLOAD ? n->out : s->in[n->in_at];
    return wn__action_place(s->value[kept].action);
}

static void note(const struct wn_offload_buffer *offload_buffer)
{
    static int32_t noted;
    if (offload_buffer == NULL || offload_buffer->note[0] == 0 || noted) return;
    noted = 1;
    wn__warn("offload: %s", offload_buffer->note);
}

int32_t wn__transfer_take(struct wn__transfer *t, struct wn_program *p)
{
    const struct wn__schedule *s = p->schedule;
    int32_t most[WN_PLACE_COUNT] = {0};
    t->p = p;
    if (s->n_moves == 0) return WN_OK;
    for (int32_t i = 0; i < s->n; i++)
        if (wn__instr_way(&s->instr[i]) >= 0) most[place_of(s, &s->instr[i])]++;
    t->number = wn__alloc((s->n_moves + 1) * (int64_t)sizeof *t->number);
    t->lane = wn__alloc(s->n_moves + 1);
    if (t->number == NULL || t->lane == NULL) return WN_OOM;
    for (int32_t place = 0; place < WN_PLACE_COUNT; place++) {
        WN_TRY(
            wn__offload_buffer_fit(p->device, place, s->offload_buffer[place], most[place], &t->offload_buffer[place]));
        note(t->offload_buffer[place]);
    }
    return WN_OK;
}

int32_t wn__transfer_start(struct wn__transfer *t, const struct wn__instr *n, char *near)
{
    const struct wn__schedule *s = t->p->schedule;
    struct wn_device *d = wn__device(t->p->device);
    int32_t way = wn__instr_way(n), place = place_of(s, n);
    const struct wn__allocation *far =
        &s->allocation[s->value[way == WN_WAY_OUT ? n->out : s->in[n->in_at]].allocation];
    const struct wn_move move = {.way = way, .at = far->offset, .address = near, .bytes = far->bytes};
    t->lane[n->move] = (uint8_t)(place * WN_WAY_COUNT + way);
    t->number[n->move] = t->started[place][way]++;
    return d->offload_buffer_start(d, t->offload_buffer[place], &move);
}

int32_t wn__transfer_wait(struct wn__transfer *t, const struct wn__instr *n)
{
    struct wn_device *d = wn__device(t->p->device);
    int32_t place = t->lane[n->move] / WN_WAY_COUNT, way = t->lane[n->move] % WN_WAY_COUNT;
    double began = wn__now();
    int32_t code = d->offload_buffer_wait(d, t->offload_buffer[place], way, t->number[n->move]);
    t->stall += wn__now() - began;
    return code;
}

void wn__transfer_stop(struct wn__transfer *t)
{
    if (t->p == NULL || t->number == NULL) return;
    struct wn_device *d = wn__device(t->p->device);
    struct wn_measured *m = &t->p->measured;
    for (int32_t place = 0; place < WN_PLACE_COUNT; place++) {
        struct wn_offload_buffer *offload_buffer = t->offload_buffer[place];
        if (offload_buffer == NULL) continue;
        d->offload_buffer_stop(d, offload_buffer);
        m->out += offload_buffer->moved[WN_WAY_OUT];
        m->in += offload_buffer->moved[WN_WAY_IN];
        m->move_seconds += offload_buffer->busy[WN_WAY_OUT] + offload_buffer->busy[WN_WAY_IN];
        t->stall += offload_buffer->stall;
    }
    m->stall_seconds = t->stall;
}

void wn__transfer_release(struct wn__transfer *t)
{
    wn__free(t->number);
    wn__free(t->lane);
}
