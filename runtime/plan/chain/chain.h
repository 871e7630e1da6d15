/* A chain for the planner: blocks one after the other, each with numbers only, and the schedule that is fastest
 * within a byte budget. Who has blocks - a table of stages, or a graph cut into blocks - fills in wn__chain_blocks and
 * asks; nothing here knows where the numbers come from. Bytes and time are whole numbers (time in any unit).
 *
 * What the numbers mean, of block i = 1..n (x_i its output, d_i the gradient of x_i, x_0 the chain's input):
 *   time, peak     one plain forward, and its bytes above what is live when it starts (x_{i-1} is; x_i is in peak)
 *   bytes, grad    of x_i, of d_i. d_i lives from B_{i+1} to B_i; that of the last block only inside its B
 *   born           bytes that B_i leaves behind for good (gradients of parameters), 0 when an update takes them
 * and of one way of saving it, its option q:
 *   forward, backward    time of Fe i q and of B i after it
 *   saved                bytes held from Fe i q to B i beside x_{i-1}; x_i is among them
 *   peak_forward         above what is live when Fe i q starts
 *   peak_backward        during B_i: saved, d_i, d_{i-1} and what it works with; not x_{i-1}, not what is born
 * Bytes live all the time (x_0 among them) are `outside`; every budget counts them.
 *
 * Invariant: what a plan costs is said by a replay (chain/replay.c for tables of stages), never by the solver. */
#ifndef WN_PLAN_CHAIN_H
#define WN_PLAN_CHAIN_H
#include <stdint.h>
#include "../../wane_chain.h"

struct wn__block_option {
    int64_t forward, backward, saved, peak_forward, peak_backward;
};

struct wn__chain_block {
    int64_t time, peak, bytes, grad, born;
    int32_t first, n_options; /* chain->option[first .. first + n_options); at least one */
};

struct wn__chain_blocks {
    int32_t n, n_options;
    const struct wn__chain_block *block;   /* (n) */
    const struct wn__block_option *option; /* (n_options) */
    int64_t outside;
};

enum { WN__CHAIN_LONGEST = 1024, WN__CHAIN_MOST_OPTIONS = 1024 }; /* blocks; options of one of them */
#define WN__CHAIN_EXACT (INT64_C(1) << 53) /* no sum of bytes or times reaches it: exact in a double too */

/* ---- solve.c, solve_emit.c */
struct wn__chain_solution; /* has copies of all it needs */

/* Checks the numbers and finds the least budget; the frontier is not there yet. WN_VALUE, WN_OOM. */
int32_t wn__chain_open(const struct wn__chain_blocks *c, struct wn__chain_solution **out);
int64_t wn__chain_least(const struct wn__chain_solution *s);
/* Solves; once. `slack`: no schedule of the class is faster than a point by more than this; 0: the optimum. */
int32_t wn__chain_frontier(struct wn__chain_solution *s, const struct wn_chain_cost **points, int32_t *n,
                           int64_t *slack);
/* The fastest schedule within a budget; *n operations, allocated (wn__free). WN_VALUE below the least budget. */
int32_t wn__chain_schedule(struct wn__chain_solution *s, int64_t budget, struct wn_chain_op **out, int32_t *n);
void wn__chain_close(void *solution); /* NULL is fine */

/* ---- chain/stages.c: tables of stages */

/* Numbers that make no sense, by stage and field. */
int32_t wn__chain_check(const struct wn_chain *c);
/* The table as blocks: pointers into *memory, which the caller frees (wn__free). The table was checked. */
int32_t wn__chain_of_stages(const struct wn_chain *c, struct wn__chain_blocks *out, void **memory);

/* ---- chain/replay.c: the reference memory model of a table of stages */

/* Time and peak of a schedule, operation by operation. WN_ILLEGAL names the operation and the rule it breaks. */
int32_t wn__chain_replay(const struct wn_chain *c, int32_t n, const struct wn_chain_op *op, struct wn_chain_cost *out);

/* ---- chain/binomial.c */

/* How many of l blocks, 2 or more, lie left of the next checkpoint when `slots` outputs, 1 or more, may be held: that
 * of the block before the one that is reversed is among them. */
int32_t wn__chain_split(int32_t l, int32_t slots);

/* Griewank and Walther's schedule of l equal blocks with at most `slots` outputs held as checkpoints; *n
 * operations, allocated. */
int32_t wn__chain_binomial(int32_t l, int32_t slots, struct wn_chain_op **out, int32_t *n);
#endif
