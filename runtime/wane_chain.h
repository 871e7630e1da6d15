/* Chains: a table of stages in, the fastest schedule within a byte budget out. Numbers only: nothing here knows
 * values, programs or devices.
 *
 * Stage i = 1 to n makes a_i (out_bytes) from a_{i-1}; a_0 is the input. A stage is run in one of two ways: F keeps
 * a_i alone, Fe with option o keeps a saved set that holds a_i (saved_bytes of the option), which its backward B
 * reads. d_i (grad_bytes) is the gradient of a_i; wgrad_bytes stay after B of the stage. plan/chain/replay.c says
 * which bytes are live during each operation. Times are in any unit, the same in all of a table; bytes and times are
 * 0 or more. */
#ifndef WANE_CHAIN_H
#define WANE_CHAIN_H
#include "wane.h"

/* One way of saving for the backward of a stage. */
struct wn_chain_option {
    int64_t fwd_time, bwd_time;
    int64_t saved_bytes;                  /* of the saved set, a_i in it */
    int64_t fwd_tmp_bytes, bwd_tmp_bytes; /* that exist only while Fe and B run */
};
/* One stage. */
struct wn_chain_stage {
    int64_t fwd_time, out_bytes, fwd_tmp_bytes; /* of F */
    int64_t grad_bytes, wgrad_bytes;
    int32_t first, n_options; /* its options are option[first .. first + n_options) */
};
/* A chain. */
struct wn_chain {
    int64_t input_bytes, input_grad_bytes;
    const struct wn_chain_stage *stage;   /* (n_stages) */
    const struct wn_chain_option *option; /* (n_options) */
    int32_t n_stages, n_options;
};
/* Operations of a schedule; SHRINK drops a saved set but for a_i. */
enum { WN_CHAIN_F, WN_CHAIN_FE, WN_CHAIN_B, WN_CHAIN_FREE, WN_CHAIN_SHRINK };
/* One operation. */
struct wn_chain_op {
    int32_t what;   /* WN_CHAIN */
    int32_t stage;  /* from 1 */
    int32_t option; /* of FE, from 0 */
};
/* The time and the memory that a schedule takes. */
struct wn_chain_cost {
    int64_t bytes, time; /* the most live bytes; the sum of times */
};
/* Returns a handle of a chain, whose least budget is found at once. Id: WN_VALUE names the stage and the field that
 * make no sense. */
WN_API int32_t wn_chain_open(const struct wn_chain *c);
/* Fills *bytes with the least budget for which the chain has a schedule. */
WN_API int32_t wn_chain_least(int32_t chain, int64_t *bytes);
/* Solves the chain, at the first call, and writes at most `room` points of its frontier. Returns how many there are,
 * or -(status). *slack: no schedule of the solver's class is faster than a point by more than this time; 0: each is
 * the optimum. */
WN_API int32_t wn_chain_frontier(int32_t chain, int32_t room, struct wn_chain_cost *out, int64_t *slack);
/* Writes at most `room` operations of the fastest schedule within a budget of bytes. Returns how many there are, or
 * -(status): WN_VALUE below the least budget. */
WN_API int32_t wn_chain_schedule(int32_t chain, int64_t budget, int32_t room, struct wn_chain_op *out);
/* Returns how many of n_stages (2 or more) equal stages come before the next checkpoint in the binomial schedule
 * with that many slots (1 or more), or -(status). */
WN_API int32_t wn_chain_split(int32_t n_stages, int32_t slots);
/* Writes at most `room` operations of the binomial schedule of n_stages equal stages. Returns how many there are, or
 * -(status). */
WN_API int32_t wn_chain_binomial(int32_t n_stages, int32_t slots, int32_t room, struct wn_chain_op *out);
/* Fills *out with what n operations take. Status: WN_ILLEGAL names the operation and the rule that it breaks. */
WN_API int32_t wn_chain_replay(const struct wn_chain *c, int32_t n, const struct wn_chain_op *op,
                               struct wn_chain_cost *out);
#endif
