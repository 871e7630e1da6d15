/* The API of chains: tables of stages in, schedules out. A chain is opened once, which finds its least budget, and
 * solved when its frontier or a schedule is first asked for. Only wn_chain_replay says what a schedule takes. */
#include <string.h>
#include "api.h"
#include "../plan/chain/chain.h"

static struct wn__chain_solution *get_chain(int32_t handle)
{
    return wn__handle_get(handle, WN_HANDLE_CHAIN);
}

int32_t wn_chain_open(const struct wn_chain *c)
{
    struct wn__chain_blocks chain;
    struct wn__chain_solution *s = NULL;
    void *memory = NULL;
    int32_t code = wn__enter();
    if (code == WN_OK) code = wn__check_chain(c);
    if (code == WN_OK) code = wn__chain_of_stages(c, &chain, &memory);
    if (code == WN_OK) code = wn__chain_open(&chain, &s);
    wn__free(memory);
    if (code != WN_OK) return -code;
    int32_t id = wn__handle_new(WN_HANDLE_CHAIN, s);
    if (id < 0) wn__chain_close(s);
    return id;
}

int32_t wn_chain_least(int32_t chain, int64_t *bytes)
{
    const struct wn__chain_solution *s = get_chain(chain);
    if (s == NULL) return WN_VALUE;
    WN_TRY(wn__need(bytes, "chain"));
    *bytes = wn__chain_least(s);
    return WN_OK;
}

static int32_t least_of(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

int32_t wn_chain_frontier(int32_t chain, int32_t room, struct wn_chain_cost *out, int64_t *slack)
{
    struct wn__chain_solution *s = get_chain(chain);
    const struct wn_chain_cost *points;
    int32_t n, code = s == NULL ? WN_VALUE : wn__need(slack, "chain: slack");
    if (code == WN_OK) code = wn__check_array(out, room, INT32_MAX, "chain: points");
    if (code == WN_OK) code = wn__chain_frontier(s, &points, &n, slack);
    if (code != WN_OK) return -code;
    if (room > 0) memcpy(out, points, (size_t)least_of(n, room) * sizeof *out);
    return n;
}

/* Copies at most `room` of n operations out and frees them. Returns n, or -code. */
static int32_t give(int32_t code, struct wn_chain_op *op, int32_t n, int32_t room, struct wn_chain_op *out)
{
    if (code != WN_OK) return -code;
    if (room > 0) memcpy(out, op, (size_t)least_of(n, room) * sizeof *out);
    wn__free(op);
    return n;
}

int32_t wn_chain_schedule(int32_t chain, int64_t budget, int32_t room, struct wn_chain_op *out)
{
    struct wn__chain_solution *s = get_chain(chain);
    struct wn_chain_op *op = NULL;
    int32_t n = 0, code = s == NULL ? WN_VALUE : wn__check_array(out, room, INT32_MAX, "chain: operations");
    if (code == WN_OK) code = wn__chain_schedule(s, budget, &op, &n);
    return give(code, op, n, room, out);
}

int32_t wn_chain_split(int32_t n_stages, int32_t slots)
{
    if (n_stages < 2 || n_stages > WN__CHAIN_LONGEST || slots < 1)
        return -wn__fail(WN_VALUE, "binomial: %d stages and %d slots given; expected 2 to %d stages and 1 slot or more",
                         n_stages, slots, WN__CHAIN_LONGEST);
    return wn__chain_split(n_stages, slots);
}

int32_t wn_chain_binomial(int32_t n_stages, int32_t slots, int32_t room, struct wn_chain_op *out)
{
    struct wn_chain_op *op = NULL;
    int32_t n = 0, code = wn__enter();
    if (code == WN_OK) code = wn__check_array(out, room, INT32_MAX, "binomial: operations");
    if (code == WN_OK) code = wn__chain_binomial(n_stages, slots, &op, &n);
    return give(code, op, n, room, out);
}

int32_t wn_chain_replay(const struct wn_chain *c, int32_t n, const struct wn_chain_op *op, struct wn_chain_cost *out)
{
    WN_TRY(wn__enter());
    WN_TRY(wn__check_chain(c));
    WN_TRY(wn__check_array(op, n, INT32_MAX, "chain: operations"));
    WN_TRY(wn__need(out, "chain"));
    return wn__chain_replay(c, n, op, out);
}
