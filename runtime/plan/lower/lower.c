/* Lowering: makes a schedule of a recipe, pass by pass (lower.h), and gives it places and costs. One road serves plans
 * of every policy, proposals and forecasts. */
#include "../ir/costs.h"
#include "lower.h"

struct wn__item *wn__list_item(struct wn__list *l, int32_t n_in)
{
    int32_t in_at = wn__list_inputs(l, n_in);
    if (in_at < 0 || wn__grow(&l->item, &l->item_capacity, l->n_items + 1, sizeof *l->item) != WN_OK) return NULL;
    struct wn__item *it = &l->item[l->n_items++];
    *it = (struct wn__item){.in_at = in_at, .n_in = n_in};
    return it;
}

int32_t wn__list_inputs(struct wn__list *l, int32_t n_in)
{
    if (wn__grow(&l->in, &l->in_capacity, l->n_in + n_in, sizeof *l->in) != WN_OK) return -1;
    l->n_in += n_in;
    return (int32_t)(l->n_in - n_in);
}

int32_t wn__list_value(struct wn__list *l, int32_t node, int32_t action)
{
    if (wn__grow(&l->value, &l->value_capacity, l->n_values + 1, sizeof *l->value) != WN_OK) return -1;
    l->value[l->n_values] = (struct wn__value){.node = node, .allocation = -1, .action = action};
    return (int32_t)l->n_values++;
}

int32_t wn__list_wait(struct wn__list *l, struct wn__item *it)
{
    int32_t source = it->n_in > 0 ? l->in[it->in_at] : it->out, target = it->out;
    it->what = WN_DO_WAIT;
    it->out = -1;
    it->n_in = 2;
    it->in_at = wn__list_inputs(l, 2);
    if (it->in_at < 0) return WN_OOM;
    l->in[it->in_at] = source;
    l->in[it->in_at + 1] = target;
    return WN_OK;
}

int32_t wn__list_insert(struct wn__list *l, int32_t n, const struct wn__item *more, const int32_t *at)
{
    int64_t before = l->n_items;
    WN_TRY(wn__grow(&l->item, &l->item_capacity, before + n, sizeof *l->item));
    int32_t *put = wn__alloc((before + 1) * (int64_t)sizeof *put); /* how many come before item i, all in all */
    if (put == NULL) return WN_OOM;
    for (int32_t k = 0; k < n; k++) put[at[k]]++;
    for (int64_t i = 1; i <= before; i++) put[i] += put[i - 1];
    for (int64_t i = before - 1; i >= 0; i--) l->item[i + put[i]] = l->item[i];
    for (int32_t k = n - 1; k >= 0; k--) l->item[at[k] + --put[at[k]]] = more[k];
    l->n_items = before + n;
    wn__free(put);
    return WN_OK;
}

static void issued_release(struct wn__issued *i)
{
    wn__free(i->list.item);
    wn__free(i->list.in);
    wn__free(i->list.value);
    wn__free(i->departures.departure);
    wn__free(i->effect_in);
}

int32_t wn__lower(const struct wn__ir *ir, const struct wn__recipe *r, struct wn__schedule **out)
{
    struct wn__issued issued = {.effect_in = NULL};
    struct wn__list *list = &issued.list;
    int64_t group = r->group == WN__GROUP ? wn__exchange_group(ir) : r->group;
    int32_t code = wn__lower_issue(ir, r, &issued);
    if (code == WN_OK) code = wn__lower_departures(r->block_of, &issued.departures, list);
    if (code == WN_OK) code = wn__lower_gathers(ir, r->prefetch, list);
    if (code == WN_OK) code = wn__lower_exchanges(ir, r->prefetch, group, list);
    if (code == WN_OK) code = wn__lower_effects(ir, issued.effect_in, group, list);
    if (code == WN_OK) code = wn__lower_prefetch(ir, r->prefetch, list);
    if (code == WN_OK) code = wn__lower_finish(ir, r->n_blocks, list, out);
    issued_release(&issued);
    return code;
}

int32_t wn__compile(const struct wn__ir *ir, const struct wn__recipe *r, wn__bind_kernels bind,
                    enum wn__place_effort effort, struct wn__schedule **out)
{
    struct wn__schedule *s = NULL;
    int32_t code = wn__lower(ir, r, &s);
    if (code == WN_OK && bind != NULL) code = bind(ir, s);
    if (code == WN_OK) code = wn__place(ir, s, effort);
    if (code == WN_OK) code = wn__simulate(ir, s);
    if (code != WN_OK) wn__schedule_unref(s);
    *out = code == WN_OK ? s : NULL;
    return code;
}
