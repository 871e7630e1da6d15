/* Griewank and Walther's binomial schedule (revolve, 2000) of a chain of equal blocks: with s checkpoints beside the
 * input and r passes over each block, binomial(s + r, s) blocks can be reversed, and no schedule that holds only
 * outputs runs fewer. Here as operations of the memory model: at most s outputs and one saved set are held. */
#include "../../base/alloc.h"
#include "../../base/status.h"
#include "chain.h"

struct binomial {
    struct wn_chain_op *op; /* NULL while counting */
    int64_t n;
};

static void put(struct binomial *b, int32_t what, int32_t stage)
{
    if (b->op != NULL) b->op[b->n] = (struct wn_chain_op){what, stage, 0};
    b->n++;
}

/* Blocks that s slots reverse in r passes, capped: the first does without. */
static int64_t reach(int64_t s, int64_t r)
{
    int64_t value = 1;
    for (int64_t i = 1; i <= s && value <= WN__CHAIN_LONGEST; i++) value = value * (r + i) / i;
    return value;
}

/* Where the next checkpoint lies, counted in blocks from the start: as far as r passes over the left part allow, so
 * that what is right of it takes no more than r with a slot less. */
int32_t wn__chain_split(int32_t l, int32_t slots)
{
    int64_t r = 1;
    if (slots > l) slots = l; /* more of them change nothing */
    while (reach(slots, r) < l) r++;
    int64_t right_most = reach(slots - 1, r), left_least = reach(slots, r - 2 >= 0 ? r - 2 : 0);
    int64_t left = l - right_most > left_least ? l - right_most : left_least;
    return (int32_t)(left < 1 ? 1 : left > l - 1 ? l - 1 : left);
}

/* Stages first .. first + l - 1, the input of the first being held. */
static void reverse(struct binomial *b, int32_t first, int32_t l, int32_t slots)
{
    while (l > 1) {
        int32_t left = wn__chain_split(l, slots);
        for (int32_t i = 0; i < left; i++) {
            put(b, WN_CHAIN_F, first + i);
            if (i > 0) put(b, WN_CHAIN_FREE, first + i - 1);
        }
        reverse(b, first + left, l - left, slots - 1);
        l = left;
    }
    put(b, WN_CHAIN_FE, first);
    put(b, WN_CHAIN_B, first);
}

int32_t wn__chain_binomial(int32_t l, int32_t slots, struct wn_chain_op **out, int32_t *n)
{
    struct binomial b = {0};
    if (l < 1 || l > WN__CHAIN_LONGEST)
        return wn__fail(WN_VALUE, "binomial: %d stages given; expected 1 to %d", l, WN__CHAIN_LONGEST);
    if (slots < (l > 1))
        return wn__fail(WN_VALUE, "binomial: %d slots given; %d stages need at least %d", slots, l, l > 1);
    if (slots > l) slots = l;
    reverse(&b, 1, l, slots);
    b.op = wn__alloc(b.n * (int64_t)sizeof *b.op);
    if (b.op == NULL) return WN_OOM;
    b.n = 0;
    reverse(&b, 1, l, slots);
    *out = b.op;
    *n = (int32_t)b.n;
    return WN_OK;
}
