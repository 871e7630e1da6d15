/* Solves chains of random stages and replays random schedules of them. A chain that makes no sense must be refused. A
 * schedule that the solver returns must be legal and fit its budget. */
#include <stdlib.h>
#include "bytes.h"
#include "wane_chain.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { STAGES = 12, OPTIONS = 24, OPS = 4096 };

static int64_t amount(struct bytes *b)
{
    return take(b) < 245 ? take(b) : take_wide(b);
}

/* Draws the bytes that a stage saves: mostly enough to hold its output. */
static int64_t saved(struct bytes *b)
{
    return take(b) < 245 ? 256 + take(b) : take_wide(b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct wn_chain_op op[OPS];
    struct bytes b = {data, data + size};
    struct wn_chain_stage stage[STAGES];
    struct wn_chain_option option[OPTIONS];
    struct wn_chain_cost cost, points[8];
    int64_t least = 0, slack;
    wn_start();
    for (int32_t i = 0; i < OPTIONS; i++)
        option[i] = (struct wn_chain_option){amount(&b), amount(&b), saved(&b), amount(&b), amount(&b)};
    for (int32_t i = 0; i < STAGES; i++)
        stage[i] = (struct wn_chain_stage){amount(&b),      amount(&b), amount(&b),
                                           amount(&b),      amount(&b), take(&b) < 245 ? 2 * i : take_int(&b),
                                           1 + take(&b) % 2};
    struct wn_chain c = {amount(&b), amount(&b), stage, option, 1 + take(&b) % STAGES, OPTIONS};
    if (take(&b) > 250) c.n_stages = -1;
    int32_t n = 0, chain = wn_chain_open(&c);
    if (chain >= 0) {
        wn_chain_least(chain, &least);
        wn_chain_frontier(chain, 8, points, &slack);
        int64_t more = amount(&b), budget = more > 0 && more < INT64_MAX - least ? least + more : least;
        n = wn_chain_schedule(chain, budget, OPS, op);
        if (n > 0 && n <= OPS && (wn_chain_replay(&c, n, op, &cost) != 0 || cost.bytes > budget)) abort();
        wn_release(chain);
    }
    for (int32_t i = 0; i < 16; i++)
        op[i] = (struct wn_chain_op){take_int(&b), take_int(&b), take(&b) < 250 ? take(&b) % 2 : take_int(&b)};
    wn_chain_replay(&c, 16, op, &cost);
    wn_chain_binomial(take_int(&b), take_int(&b), OPS, op);
    wn_chain_split(take_int(&b), take_int(&b));
    return 0;
}
