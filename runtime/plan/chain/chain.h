/* Chains: a sequence of blocks described by numbers alone, and the fastest schedule of it within a byte budget. Whoever
 * has blocks (a table of stages, or a graph that is cut into blocks) fills in struct wn__chain_blocks; no file of this
 * room knows what the numbers come from. Bytes and times are whole numbers; the unit of time is the caller's.
 *
 *   forward     x_0 -> [block 1] -> x_1 -> [block 2] -> x_2 .. -> [block n] -> x_n        x_i: output of block i
 *   backward    d_0 <- [block 1] <- d_1 <- [block 2] <- d_2 .. <- [block n] <- d_n        d_i: gradient of x_i
 *
 * A schedule is a list of operations: F i runs block i and keeps x_i alone; Fe i q runs block i and keeps the saved set
 * of its option q, x_i among it; B i runs its backward; Free i drops what is held of it, Shrink i all of it but x_i.
 * Lowering finds what a schedule costs in a plan, and nobody believes the solver: specs hold what it promises to a
 * replay of tables (spec/support/chain_replay.lua). */
#ifndef WN_PLAN_CHAIN_H
#define WN_PLAN_CHAIN_H
#include <stdint.h>
#include "../../base/shared.h"

/* One way of saving block i, its option q. Invariant: saved includes the bytes of x_i. */
struct wn__block_option {
    int64_t forward, backward; /* time of Fe i q; of B i after it */
    int64_t saved;             /* bytes held from Fe i q to B i, x_i included, x_{i-1} excluded */
    int64_t peak_forward;      /* bytes of Fe i q above what is live when it starts */
    int64_t peak_backward; /* bytes of B i: saved, d_i, d_{i-1} and its workspace, without x_{i-1} and `allocated` */
};

/* Block i. Invariant: n_options >= 1. */
struct wn__chain_block {
    int64_t time;        /* of F i */
    int64_t peak;        /* bytes of F i above what is live when it starts: x_i and its workspace */
    int64_t bytes, grad; /* of x_i; of d_i, which lives from B i+1 to B i; 0 of the last block: B n makes it */
    int64_t allocated;   /* bytes that B i allocates and leaves (gradients of parameters); 0: an update takes them */
    int32_t first, n_options; /* its options are chain->option[first .. first + n_options) */
};

/* A chain of one block or more. Invariant: no sum of its bytes, or of its times, reaches WN__CHAIN_EXACT
 * (wn__chain_open checks it). */
struct wn__chain_blocks {
    int32_t n, n_options;
    const struct wn__chain_block *block;   /* (n) */
    const struct wn__block_option *option; /* (n_options) of all blocks */
    int64_t outside;                       /* bytes that live all the time, x_0 among them; every budget counts them */
    int32_t longest;                       /* corners that a table may have; more are thinned (solve.c) */
};

/* One operation of a schedule. */
struct wn__chain_op {
    int32_t what;   /* WN_STEP_ */
    int32_t stage;  /* number of the block, from 1 */
    int32_t option; /* of Fe, from 0 */
};
/* The time and the memory that a schedule takes. */
struct wn__chain_cost {
    int64_t bytes, time; /* the most live bytes; the sum of times */
};

#define WN__CHAIN_EXACT (INT64_C(1) << 53) /* above every sum of bytes or times, so that a double holds them exactly */

struct wn__chain_solution; /* a solver, which reads the arrays of its chain (solve.h) */

/* Checks the numbers, whose arrays must stay until the solution is closed, and finds the least budget. The frontier is
 * solved later. WN_VALUE, WN_OOM. */
int32_t wn__chain_open(const struct wn__chain_blocks *c, struct wn__chain_solution **out);
/* Returns the least budget, in bytes, that any schedule of the solver's class fits. */
int64_t wn__chain_least(const struct wn__chain_solution *s);
/* Returns the frontier: n points, bytes ascending and time descending, which live as long as the solution. The first
 * call solves. WN_OOM; WN_INTERRUPT. */
int32_t wn__chain_frontier(struct wn__chain_solution *s, const struct wn__chain_cost **points, int32_t *n);
/* Makes the fastest schedule within a budget in bytes: *n operations, which the caller frees (wn__free). WN_VALUE: the
 * budget is below the least one. */
int32_t wn__chain_schedule(struct wn__chain_solution *s, int64_t budget, struct wn__chain_op **out, int32_t *n);
/* Frees a solution. Does nothing for NULL. */
void wn__chain_close(void *solution);
#endif
