/* Switches for debugging, and what only specs use: failures made on purpose, edits of schedules that the verifier must
 * refuse, and chains as tables. Handles, statuses and ids are those of wane.h. */
#ifndef WANE_TEST_H
#define WANE_TEST_H
#include "wane.h"

/* Sets a switch; on is any value but 0. Status: WN_VALUE lists the switches when there is none of this name.
 *   check          on: every run watches all its bytes; WN_ILLEGAL when a kernel wrote outside its buffers
 *   poison         on: freed bytes become NaN
 *   replay         on: every value computed again is compared with what it was; WN_ILLEGAL when a bit differs
 *   replay_fault   flips a bit of the nth value computed again in the next run
 *   trace          on: runs note the instructions that they execute, for wn_trace
 *   rewrite        on: graphs are rewritten into fused ops; this is the default
 *   graphs         on: kernels of a step are captured, and launched as graphs, where the device has them; the default
 *   fail_alloc     fails the nth allocation from now on; 0: none
 *   fail_write     fails the nth call of the system that writes a file; 0: none
 *   unnamed_files  0: files are written as on file systems without unnamed files
 *   no_locks       on: files are locked as on file systems without locks
 *   fail_offload, fail_fetch  fail the nth transfer out or in from now on; 0: none
 *   disk_full      on: there is no space to offload to
 *   move_delay     microseconds that each transfer takes longer
 *   cache_bytes    plans and frontiers are kept in at most so many bytes; 64 MiB unless set
 *   forget_plans   drops all plans and frontiers that are kept */
WN_API int32_t wn_debug(const char *option, int64_t value);
/* Returns a switch of wn_debug, or a count: plans, plan_bytes (of plans and frontiers that are kept), plans_made,
 * placed_boxes (since the start), host_allocations (that are live), onednn (1: it is used); -1 when there is none of
 * this name. */
WN_API int64_t wn_debug_get(const char *option);
/* Returns the number, from 0, of the i-th instruction that the last run executed, with debug "trace"; -1 past the
 * last. */
WN_API int32_t wn_trace(int32_t program, int32_t i);
/* Edits instruction `step`, from 0, of a planned program's schedule. Fields: swap (with instruction `value`), repeat
 * (becomes a copy of it), drop, inplace, input (its first), offset (of the allocation that it writes), move, cell.
 * Status: WN_VALUE when the instruction has no such field. The plan is spoiled: forget it with debug "forget_plans". */
WN_API int32_t wn_test_mutate(int32_t program, int32_t step, const char *field, int64_t value);
/* Verifies a plan with one edit of wn_test_mutate, and takes the edit back. Status: WN_ILLEGAL names the rule and the
 * instruction, as it should. */
WN_API int32_t wn_verify_edited(int32_t program, int32_t step, const char *field, int64_t value);

/* ---- chains ----------------------------------------------------------------------------------------------------
 * A table of stages in, the fastest schedule within a byte budget out, as numbers: nothing here knows values, programs
 * or devices.
 *
 * Stage i = 1 to n makes a_i (out_bytes) from a_{i-1}; a_0 is the input. A stage is run in one of two ways: F keeps
 * a_i alone, Fe with option o keeps a saved set that holds a_i (saved_bytes of the option), which its backward B
 * reads. d_i (grad_bytes) is the gradient of a_i; wgrad_bytes stay after B of the stage. plan/chain/replay.c says
 * which bytes are live during each operation. Times are in any unit, the same in all of a table; bytes and times are
 * 0 or more, and no sum of them reaches 2^53. */

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
/* Writes at most `room` operations of the fastest schedule of a chain within a budget of bytes. Returns how many there
 * are, 0 where none fits, or -(status). *least: the least budget that a schedule fits. */
WN_API int32_t wn_test_chain(const struct wn_chain *c, int64_t budget, int32_t room, struct wn_chain_op *out,
                             int64_t *least);
/* Writes at most `room` points of the frontier of a chain. Returns how many there are, or -(status). *slack: no
 * schedule of the solver's class is faster than a point by more than this time; 0: each is the optimum. */
WN_API int32_t wn_test_chain_frontier(const struct wn_chain *c, int32_t room, struct wn_chain_cost *out,
                                      int64_t *slack);
/* Fills *out with what n operations take. Status: WN_ILLEGAL names the operation and the rule that it breaks. */
WN_API int32_t wn_test_chain_replay(const struct wn_chain *c, int32_t n, const struct wn_chain_op *op,
                                    struct wn_chain_cost *out);
#endif
