/* Splits a chain of equal blocks as the binomial schedule does (Griewank and Walther: "Algorithm 799: revolve", ACM
 * TOMS 2000): with s checkpoints beside the input and r forward runs of each block, binomial(s + r, s) blocks can be
 * reversed, and no schedule that holds only outputs runs fewer blocks.
 *
 *   l = 6, slots = 2; [i]: output of block i held as a checkpoint, 0: the input of the chain
 *   0 1 2 [3] 4 [5] 6    run to 5, keeping 3 and 5; Fe 6, B 6
 *   0 1 2 [3] 4 5        from 3: F 4, Fe 5, B 5; Fe 4, B 4
 *   0 [1] [2] 3          from 0, both slots free again: F 1, F 2, Fe 3, B 3; Fe 2, B 2; Fe 1, B 1
 */
#include "../../base/alloc.h"
#include "../../base/number.h"
#include "../../base/status.h"
#include "chain.h"

/* Returns binomial(s + r, s), or some number above WN__CHAIN_LONGEST where that is larger: the blocks that s slots
 * reverse if each runs forward at most r times. */
static int64_t reach(int64_t s, int64_t r)
{
    int64_t value = 1;
    for (int64_t i = 1; i <= s && value <= WN__CHAIN_LONGEST; i++) value = value * (r + i) / i;
    return value;
}

/* With r the least number of runs that reverses l blocks, the next checkpoint leaves at most reach(slots - 1, r) blocks
 * right of it, and at least reach(slots, r - 2) blocks left of it. */
int32_t wn__chain_split(int32_t l, int32_t slots)
{
    int64_t r = 1;
    if (slots > l) slots = l; /* l slots hold every output */
    while (reach(slots, r) < l) r++;
    int64_t right_most = reach(slots - 1, r), left_least = reach(slots, r - 2 >= 0 ? r - 2 : 0);
    int64_t left = wn_max(l - right_most, left_least);
    return (int32_t)wn_min(wn_max(left, 1), l - 1);
}
