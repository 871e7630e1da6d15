/* Switches for debugging, and what only specs use: failures made on purpose, and edits of schedules that the verifier
 * must refuse. Handles, statuses and ids are those of wane.h. */
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
 *   forget_plans   drops all plans and frontiers that are kept
 *   left_out       proposals that a frontier is made without: bits of enum wn__proposals of plan/search/frontier.h */
WN_API int32_t wn_debug(const char *option, int64_t value);
/* Returns a switch of wn_debug, or a count: plans, plan_bytes (of plans and frontiers that are kept), plans_made,
 * placed_boxes (since the start), host_allocations (that are live); -1 when there is none of this name. */
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
#endif
