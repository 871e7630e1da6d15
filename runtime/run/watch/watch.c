/* The list of watches of a run: see watch.h. */
#include "watch.h"

static const struct wn__watch *const all[] = {&wn__watch_trace,  &wn__watch_anomaly, &wn__watch_replay,
                                              &wn__watch_poison, &wn__watch_check,   &wn__watch_sync,
                                              &wn__watch_timing};

int32_t wn__watches_start(struct wn__watches *w, struct wn__run *r)
{
    int32_t code = WN_OK;
    for (size_t i = 0; i < sizeof all / sizeof all[0] && code == WN_OK; i++) {
        void *own = all[i]->start == NULL ? r : NULL;
        if (!*all[i]->is_on) continue;
        if (own == NULL) code = all[i]->start(r, &own);
        if (own == NULL) continue;
        w->watch[w->n].is = all[i];
        w->watch[w->n++].own = own;
        w->is_apart |= all[i]->is_apart;
    }
    return code;
}

int32_t wn__watches_call(struct wn__watches *w, struct wn__run *r, const struct wn__instr *n, int32_t moment)
{
    for (int32_t i = 0; i < w->n; i++) {
        int32_t k = moment == WN_MOMENT_AFTER ? w->n - 1 - i : i;
        if (w->watch[k].is->at[moment] != NULL) WN_TRY(w->watch[k].is->at[moment](r, w->watch[k].own, n));
    }
    return WN_OK;
}

void wn__watches_stop(struct wn__watches *w, struct wn__run *r)
{
    for (int32_t i = w->n - 1; i >= 0; i--)
        if (w->watch[i].is->stop != NULL) w->watch[i].is->stop(r, w->watch[i].own);
}
