/* Chains as tables, for specs: stages in, the fastest schedule within a byte budget out, as numbers. spec/support/
 * chains.lua reads the declarations behind the line of includes; the solver is runtime/plan/chain/.
 *
 * Stage i = 1 to n makes a_i (out_bytes) from a_{i-1}; a_0 is the input. A stage is run in one of two ways: F keeps
 * a_i alone, Fe with option o keeps a saved set that holds a_i (saved_bytes of the option), which its backward B
 * reads. d_i (grad_bytes) is the gradient of a_i; wgrad_bytes stay after B of the stage. chain_replay.c says which
 * bytes are live during each operation. Times are in any unit, the same in all of a table; bytes and times are 0 or
 * more, and no sum of them reaches 2^53. */
#ifndef WN_SPEC_CHAIN_TABLES_H
#define WN_SPEC_CHAIN_TABLES_H
#include "../../runtime/plan/chain/chain.h"

/* One way of saving for the backward of a stage. */
struct chain_option {
    int64_t fwd_time, bwd_time;
    int64_t saved_bytes;                  /* of the saved set, a_i in it */
    int64_t fwd_tmp_bytes, bwd_tmp_bytes; /* that exist only while Fe and B run */
};
/* One stage. */
struct chain_stage {
    int64_t fwd_time, out_bytes, fwd_tmp_bytes; /* of F */
    int64_t grad_bytes, wgrad_bytes;
    int32_t first, n_options; /* its options are option[first .. first + n_options) */
};
/* A chain. */
struct chain {
    int64_t input_bytes, input_grad_bytes;
    const struct chain_stage *stage;   /* (n_stages) */
    const struct chain_option *option; /* (n_options) */
    int32_t n_stages, n_options;
};
/* Writes at most `room` operations of the fastest schedule of a chain within a budget of bytes. Returns how many there
 * are, 0 where none fits, or -(status). *least: the least budget that a schedule fits. */
int32_t chain_plan(const struct chain *c, int64_t budget, int32_t room, struct wn__chain_op *out, int64_t *least);
/* Writes at most `room` points of the frontier of a chain. Returns how many there are, or -(status). *slack: no
 * schedule of the solver's class is faster than a point by more than this time; 0: each is the optimum. */
int32_t chain_frontier(const struct chain *c, int32_t room, struct wn__chain_cost *out, int64_t *slack);
/* Fills *out with the time and the peak of n operations. WN_ILLEGAL names the operation and the rule that it breaks. */
int32_t chain_replay(const struct chain *c, int32_t n, const struct wn__chain_op *op, struct wn__chain_cost *out);
#endif
