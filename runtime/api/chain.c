/* The API of chains: how to split one, and for specs, tables of stages in and schedules out (wane_test.h). Only
 * wn_test_chain_replay says what a schedule takes. */
#include <string.h>
#include "../base/number.h"
#include "../plan/chain/chain.h"
#include "api.h"

int32_t wn_chain_split(int32_t n_stages, int32_t slots)
{
    if (n_stages < 2 || n_stages > WN__CHAIN_LONGEST || slots < 1)
        return -wn__fail(WN_VALUE, "binomial: %d stages and %d slots given; expected 2 to %d stages and 1 slot or more",
                         n_stages, slots, WN__CHAIN_LONGEST);
    return wn__chain_split(n_stages, slots);
}

/* Enters, and fails with WN_VALUE unless the arrays of a table are there and its stages name options in them. */
static int32_t enter(const struct wn_chain *c)
{
    WN_TRY(wn__enter());
    WN_TRY(wn__need(c, "chain"));
    WN_TRY(wn__check_array(c->stage, c->n_stages, WN__CHAIN_LONGEST, "chain: stages"));
    WN_TRY(wn__check_array(c->option, c->n_options, 1 << 24, "chain: options"));
    for (int32_t i = 0; i < c->n_stages; i++) {
        const struct wn_chain_stage *s = &c->stage[i];
        if (s->first < 0 || s->n_options < 1 || s->first > c->n_options - s->n_options)
            return wn__fail(WN_VALUE, "chain: stage %d names options %d to %lld of %d", i + 1, s->first,
                            (long long)s->first + s->n_options, c->n_options);
    }
    return WN_OK;
}

static int32_t open_chain(const struct wn_chain *c, struct wn__chain_solution **out)
{
    struct wn__chain_blocks chain;
    void *memory = NULL;
    WN_TRY(enter(c));
    WN_TRY(wn__chain_of_stages(c, &chain, &memory));
    int32_t code = wn__chain_open(&chain, out);
    wn__free(memory);
    return code;
}

int32_t wn_test_chain(const struct wn_chain *c, int64_t budget, int32_t room, struct wn_chain_op *out, int64_t *least)
{
    struct wn__chain_solution *s = NULL;
    struct wn_chain_op *op = NULL;
    int32_t n = 0, code = wn__need(least, "chain: least");
    WN_KEEP(code, wn__check_array(out, room, INT32_MAX, "chain: operations"));
    if (code == WN_OK) code = open_chain(c, &s);
    if (code == WN_OK) *least = wn__chain_least(s);
    if (code == WN_OK && budget >= *least) code = wn__chain_schedule(s, budget, &op, &n);
    if (code == WN_OK && room > 0 && n > 0) memcpy(out, op, (size_t)wn_min(n, room) * sizeof *out);
    wn__free(op);
    wn__chain_close(s);
    return code == WN_OK ? n : -code;
}

int32_t wn_test_chain_frontier(const struct wn_chain *c, int32_t room, struct wn_chain_cost *out, int64_t *slack)
{
    struct wn__chain_solution *s = NULL;
    const struct wn_chain_cost *points;
    int32_t n = 0, code = wn__need(slack, "chain: slack");
    WN_KEEP(code, wn__check_array(out, room, INT32_MAX, "chain: points"));
    if (code == WN_OK) code = open_chain(c, &s);
    if (code == WN_OK) code = wn__chain_frontier(s, &points, &n, slack);
    if (code == WN_OK && room > 0) memcpy(out, points, (size_t)wn_min(n, room) * sizeof *out);
    wn__chain_close(s);
    return code == WN_OK ? n : -code;
}

int32_t wn_test_chain_replay(const struct wn_chain *c, int32_t n, const struct wn_chain_op *op,
                             struct wn_chain_cost *out)
{
    WN_TRY(enter(c));
    WN_TRY(wn__check_array(op, n, INT32_MAX, "chain: operations"));
    WN_TRY(wn__need(out, "chain"));
    return wn__chain_replay(c, n, op, out);
}
