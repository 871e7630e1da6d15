/* Wane's whole public C API. LuaJIT reads this very file (through the preprocessor, with WANE_CDEF set), so
 * the library and its binding cannot drift.
 *
 * Handles are int32_t ids of what the caller holds: a value, a state cell, a hyper block or a program.
 * Functions that make one return its id (>= 0) or -(status); the others return a status (0 is success). The
 * words of the last failure: wn_message(). Any number, NULL or word is taken or refused, only arrays must be as long as the
 * counts beside them. Nothing here prints, exits or calls back. Only the thread that called wn_start is served. */
#ifndef WANE_H
#define WANE_H
#ifndef WANE_CDEF
#include <stdint.h>
#include "base/type.h"
#define WN_API __attribute__((visibility("default")))
#else
#define WN_API
struct wn_type { int32_t dtype; int16_t ndim, layout; int64_t dim[8]; };
struct wn_attrs { int32_t n; int16_t dtype, layout; int64_t i[8]; double f[2]; };
#endif

/* ---- the library ------------------------------------------------------------------------------------ */
WN_API int32_t wn_start(void); /* idempotent; reads the environment; WN_VALUE when a switch makes no sense */
WN_API const char *wn_message(void); WN_API const char *wn_status_word(int32_t code); WN_API const char *wn_version(void);
WN_API const char *wn_notice(void); /* what a start had to work around, one line, or "" */
WN_API const char *wn_warning(void); /* takes the oldest pending warning, or "" */
WN_API const char *wn_kernels(void); /* which CPU kernels this processor gets, in words */
WN_API const char *wn_onednn(void); /* what of oneDNN is here and what it computes, in words */
WN_API int32_t wn_threads(void); WN_API void wn_interrupt(int32_t on); /* asks the running program to stop before its first effect */
WN_API int32_t wn_interrupted(void);     /* what wn_interrupt or a signal set last */
WN_API int32_t wn_signal_on(int32_t on); /* 1: SIGINT sets that flag from now on; 0: as it was before */
WN_API double wn_now(void); /* monotonic seconds */

struct wn_oom { int64_t bytes, live, peak, reserved, limit, least; };
WN_API void wn_oom_last(struct wn_oom *out); /* of the last WN_OOM */

/* ---- other processes: what a sweep runs its points in -------------------------------------------------- */
struct wn_ended { int32_t ended, code, signal; };
/* argv, set ("NAME=value" beside the environment): up to a NULL. Its output is added to a file. Id, or -(status). */
WN_API int32_t wn_spawn(const char *path, const char *const *argv, const char *const *set, const char *output);
WN_API int32_t wn_wait(int32_t pid, double seconds, struct wn_ended *out); /* ended 0: not yet, or interrupted */
WN_API int32_t wn_kill(int32_t pid);      /* it and what it started; WN_IO: this process did not start it, or it ended */
WN_API int32_t wn_exit_with_parent(int32_t parent); /* from now on this process ends with that one; WN_IO: it is gone */
WN_API int32_t wn_process(void);
WN_API const char *wn_signal_name(int32_t number); /* "KILL"; NULL: there is none */
/* FNV-1a of 64 bits over the bytes, going on from *state; it starts as 0xcbf29ce484222325. */
WN_API void wn_digest(uint64_t *state, const void *bytes, int64_t n);

/* ---- the op table ------------------------------------------------------------------------------------ */
/* least, most: number of inputs; the words are those of op.def's columns. */
struct wn_op_info {
    const char *name; int32_t least, most, flags, differentiable; const char *autocast, *positions, *saves;
};
WN_API int32_t wn_op_count(void); WN_API int32_t wn_op_get(int32_t op, struct wn_op_info *out);
WN_API int32_t wn_op_id(const char *name); /* -1: none */

/* ---- devices and memory ------------------------------------------------------------------------------ */
enum { WN_KIND_PARAMETER, WN_KIND_GRADIENT, WN_KIND_OPTIMIZER, WN_KIND_BUFFER, WN_KIND_INPUT, WN_KIND_RESULT,
       WN_KIND_ACTIVATION, WN_KIND_WORKSPACE, WN_KIND_HOST, WN_KIND_COUNT };
WN_API int32_t wn_device_count(void); WN_API const char *wn_device_name(int32_t device); /* "cpu", "meta", ...; NULL past the last */
WN_API const char *wn_kind_name(int32_t kind);
struct wn_memory { int64_t live, reserved, peak, peak_reserved, limit, host, kinds[9], peak_kinds[9], disk, disk_limit,
                   away; /* of offloaded values: file space; host memory beside a device's own */ };
WN_API int32_t wn_memory_get(int32_t device, struct wn_memory *out);
WN_API int32_t wn_memory_limit(int32_t device, int64_t bytes); /* reserved bytes; 0: none */
WN_API int32_t wn_memory_limit_disk(int32_t device, int64_t bytes); /* bytes of file space a program may take, 0: no limit; WN_VALUE: below 0, or no such device */
WN_API int32_t wn_memory_reset_peak(int32_t device);
/* Seconds to move bytes (1 MiB at least) to host memory (place 0) or disk (1) and back, cold: what plans of this machine
 * assume. WN_VALUE: no such place, too few bytes; WN_IO, WN_OOM: no room there. */
WN_API int32_t wn_probe(int32_t device, int32_t place, int64_t bytes, double *out, double *in);
WN_API int32_t wn_memory_trim(int32_t device); /* gives idle arenas and slabs back */
/* Debugging: "poison" (freed bytes become NaN), "check" (shadow every run: WN_ILLEGAL when a kernel wrote
 * outside its buffers), "trace" (keep the executed instruction numbers), "fail_alloc" (fail the nth from now),
 * "fail_write" (the same for calls of the system that write a file), "unnamed_files" (0: as on file systems
 * without), "replay" (every value that is computed again is compared with what it was: WN_ILLEGAL when a bit differs),
 * "replay_fault" (flips a bit of the nth value computed again in the next run: specs), "fail_offload", "fail_fetch" (fail
 * the nth move from now), "disk_full" (1: no space to offload to), "move_delay" (microseconds each move takes longer). */
WN_API int32_t wn_debug(const char *option, int64_t value);
WN_API int64_t wn_debug_get(const char *option);

/* 1: runs stop at the first application that makes an infinity or a NaN, with WN_ANOMALY; 2: a NaN; 0: none; below 0: as it is.
 * Returns what was before. A STEP may have changed some states by then. anomaly_last: of the last one. */
WN_API int32_t wn_anomaly(int32_t what);
struct wn_anomaly { const char *op, *path, *module; int32_t phase, line, node; int64_t count, elements, first; double value; };
WN_API void wn_anomaly_last(struct wn_anomaly *out);
/* ---- values and state ---------------------------------------------------------------------------------- */
WN_API int32_t wn_release(int32_t handle); /* finalizer: enqueues, cannot fail */
WN_API int32_t wn_seed(uint64_t seed); /* restarts the counter too */
WN_API uint64_t wn_counter(void); /* next number of a random node */
WN_API uint64_t wn_seed_get(void); WN_API void wn_counter_set(uint64_t next);
/* Records one application; `line`: wn_line() id of the user's line, or 0. */
WN_API int32_t wn_record(int32_t op, int32_t n, const int32_t *in, const struct wn_attrs *attrs, int32_t line);
/* y with a gradient recorded ahead of time: r[i] (-1: none) is that of x[i], made from `placeholder` in the place of dy. */
WN_API int32_t wn_custom(int32_t y, int32_t n, const int32_t *x, int32_t placeholder, const int32_t *r, int32_t line);
WN_API int32_t wn_line(const char *text); /* interns "file:line" */
WN_API const char *wn_line_text(int32_t line); /* "" for 0 */
/* n = 0: a 0-d number of that dtype; n = 1..8: a vector. Bound at run, never part of a key. */
WN_API int32_t wn_const(const double *v, int32_t n, int32_t dtype);
/* A held value (kind INPUT) holding a copy of `bytes`; on meta the bytes are not read. */
WN_API int32_t wn_data(const struct wn_type *type, int32_t device, const void *bytes);
/* A state cell of a kind, with the value it starts as (materialised when first needed). */
WN_API int32_t wn_cell(int32_t kind, int32_t init, const char *name);
WN_API int32_t wn_cell_grad(int32_t cell); /* handle of the gradient cell when born, else -1; no message */
WN_API double wn_cell_version(int32_t cell); /* -1: not a cell; no message */
WN_API int32_t wn_cell_state(int32_t cell);  /* 1: needs a gradient, 2: has one, 3: both; -1: not a cell */
WN_API int32_t wn_cell_need_grad(int32_t cell, int32_t on);
WN_API int32_t wn_cell_drop_grad(int32_t cell); /* gives the gradient's bytes back at once */
WN_API int32_t wn_cell_rename(int32_t cell, const char *name);
WN_API int32_t wn_retain(int32_t value); /* becomes a result of the next program that reaches it */
WN_API int32_t wn_rename(int32_t value, const char *name); /* checkpoint_name */
WN_API int32_t wn_free(int32_t handle); /* gives a held value's bytes back now */
struct wn_info { struct wn_type type; int32_t op, device, is_cell, cell_kind, needs_grad, held, scope, line, is_const;
                 int64_t version, bytes; double number; };
WN_API int32_t wn_info(int32_t handle, struct wn_info *out);
/* How a value was recorded. serial: its place in record order, so what it is made of has lower ones. Inputs are values too:
 * wn_value_input makes a new handle to one of the n_in. */
struct wn_value_info { struct wn_type type; struct wn_attrs attrs; int32_t op, n_in, line; int64_t serial; double number; };
WN_API double wn_serial(void); /* the place in record order of what was recorded last */
WN_API int32_t wn_value_info(int32_t handle, struct wn_value_info *out);
WN_API int32_t wn_value_input(int32_t handle, int32_t i); /* i from 0 */
/* Copies a held value or a cell out, or in, as plain row-major bytes. WN_VALUE when it holds nothing yet (run it first). */
WN_API int32_t wn_read(int32_t handle, void *bytes, int64_t n);
WN_API int32_t wn_write(int32_t handle, const void *bytes, int64_t n); /* cells: a new version */
/* The same for n bytes from byte `at`. What was never written of a cell is not the cell's value: write all parts. */
WN_API int32_t wn_read_part(int32_t handle, int64_t at, void *bytes, int64_t n);
WN_API int32_t wn_write_part(int32_t handle, int64_t at, const void *bytes, int64_t n);
/* Pieces of a held value, one after the other, become a cell's value: `length` elements from each of start[0..n), counted
 * row-major over all of it. The dtypes are equal, or bytes (u8) become i32. */
WN_API int32_t wn_gather(int32_t cell, int32_t value, const int64_t *start, int64_t n, int64_t length);
/* Numbers of an optimizer, read when a program runs. As an input: a CONST of 8. */
WN_API int32_t wn_hyper(void);
WN_API int32_t wn_hyper_set(int32_t hyper, int32_t i, double v);

/* ---- files: tensors go through a small block, never as a whole ------------------------------------------------ */
WN_API int32_t wn_file_create(const char *path); /* a handle; nothing is seen in the folder until the commit */
WN_API int32_t wn_file_write(int32_t file, const void *bytes, int64_t n);
WN_API int32_t wn_file_save(int32_t file, int32_t handle); /* the bytes of a held value or a cell */
WN_API int32_t wn_file_commit(int32_t file); /* on disk, in the place of the old file, by one rename */
WN_API int32_t wn_file_open(const char *path); /* a handle; to read */
WN_API double wn_file_size(int32_t file);      /* -1: not a file */
WN_API int32_t wn_file_read(int32_t file, int64_t at, void *bytes, int64_t n);
/* Kinds of elements, "F16" (io/convert.h). */
WN_API int32_t wn_element_bytes(const char *kind); /* of one; 0: there is no such kind */
WN_API int32_t wn_element_dtype(const char *kind); /* what they become, or -1 */
/* A tensor in a file, from byte `at`; swap: the bytes of elements in the other order; cell: what takes it; name: for messages. */
struct wn_file_piece { int64_t at; const char *kind, *name; int32_t cell, swap; };
/* A held value of the type. Floats become floats and integers integers; WN_VALUE names the first that does not fit. */
WN_API int32_t wn_file_data(int32_t file, const struct wn_file_piece *piece, const struct wn_type *type, int32_t device);
/* Values of cells, in their own dtypes. All is looked at and all storage taken before the first cell is written; until
 * then a failure changes nothing. If reading fails later, cells that had a value are invalid until they are written, the
 * others as they were. */
WN_API int32_t wn_file_load(int32_t file, int32_t n, const struct wn_file_piece *pieces);
WN_API int32_t wn_file_check(const char *path, int32_t is_written); /* WN_IO: a pipe, socket, device or folder has this name */
WN_API double wn_json_cost(const char *text, int64_t n); /* bytes that its value may take in Lua (io/json.h) */
WN_API int32_t wn_file_close(int32_t file); /* now; what was not committed is given up */
/* The right to write a file, by PATH.lock beside it: until wn_lock_close, or until this process ends, however it ends. A
 * handle, or -(status): WN_IO says which process has it and since when. is_kept 0: that file system has no locks. */
WN_API int32_t wn_lock(const char *path, int32_t *is_kept);
WN_API int32_t wn_lock_close(int32_t lock);

/* ---- where recording stands ------------------------------------------------------------------------------ */
/* Interned; 0 is the root. Scopes of one path that differ in `variant` are different scopes: by it a caller keeps apart
 * modules of the same path for which policies decide differently. */
WN_API int32_t wn_scope(int32_t parent, const char *name, const char *type, int32_t variant);
WN_API int32_t wn_scope_set(int32_t scope); /* returns the one before; one that is none changes nothing */
WN_API int32_t wn_region_new(int32_t parent, const char *name); /* 0 is no region */
WN_API int32_t wn_region_set(int32_t region); /* returns the one before; one that is none changes nothing */
WN_API int32_t wn_grad_set(int32_t on); /* returns the one before */
/* The layout (base/layout.h) of an nn.Linear weight (outputs, inputs) on this device; WN_PLAIN where it has none for that
 * shape, or there is no such device. */
WN_API int32_t wn_weight_layout(int32_t device, int64_t outputs, int64_t inputs);
WN_API int32_t wn_device_set(int32_t device); /* of creation nodes; returns the one before */

/* ---- programs: what one run point executes ----------------------------------------------------------------- */
/* Of a residual. Those after RECOMPUTE are actions (plan/recipe/action.h): what a kept value is until the backward reads it. */
enum { WN_DECISION_NONE, WN_DECISION_SAVE, WN_DECISION_RECOMPUTE, WN_DECISION_OFFLOAD, WN_DECISION_OFFLOAD_DISK, WN_DECISION_OFFLOAD_HOST,
       WN_DECISION_BF16, WN_DECISION_INT8, WN_DECISION_BITS, WN_DECISION_COUNT };
enum { WN_PHASE_FORWARD, WN_PHASE_RECOMPUTE, WN_PHASE_BACKWARD, WN_PHASE_UPDATE };
enum { WN_RUN_EVAL,      /* roots become results */
       WN_RUN_BACKWARD,  /* gradients of the roots into their cells */
       WN_RUN_STEP,      /* gradients straight into the updates, then gone */
       WN_RUN_UPDATE,    /* updates from the gradient cells */
       WN_RUN_ASSIGN };  /* cells[i] = roots[i] */
struct wn_update { int32_t op, cell[3], hyper; };
struct wn_request {
    int32_t mode, n_roots, n_updates, n_cells;
    const int32_t *roots;
    const int32_t *cells;              /* ASSIGN: one a root */
    const struct wn_update *updates;
    int32_t joint;                     /* one backward pass over all roots; else root after root */
    int32_t again;                     /* keep the graph for another backward */
    int32_t transient;                 /* BACKWARD: gradients into cells of the program's own, gone after it */
    double scale, clip;                /* d(root)/d(root); STEP: the most that the joint 2-norm of all gradients may be, 0: any */
    int32_t target;                    /* of wn_target_set: the machine it is planned for; 0: this one */
    int64_t policy;                    /* serial number of what will decide; 0: marks and save */
};
WN_API int32_t wn_grad(int32_t root, int32_t n, const int32_t *wrt, int32_t *out); /* records; out -1: no dependence */
WN_API int32_t wn_open(const struct wn_request *r); /* program: planned when this was met before, else open to words */
WN_API int32_t wn_is_planned(int32_t program); /* 1, 0 or -(status) */
struct wn_residual { const char *op, *path, *module, *name; int32_t node, index, block, boundary, random, readers, ndim, dtype,
                     scope, line, region; int64_t bytes, dim[8]; double flops, seconds; };
WN_API int32_t wn_residual_count(int32_t program); WN_API int32_t wn_residual(int32_t program, int32_t i, struct wn_residual *out); /* i from 0 */
WN_API int32_t wn_decide(int32_t program, int32_t i, int32_t decision);
WN_API int32_t wn_allow(int32_t program, int32_t decision); /* a budget may choose this action by itself; WN_UNSUPPORTED: the decision is none; WN_VALUE: planned already */
/* Why an action cannot be done with a residual, in words that follow "it"; "": it can. */
WN_API const char *wn_action_reason(int32_t program, int32_t i, int32_t decision);
WN_API const char *wn_action_name(int32_t decision); /* "compress:bf16"; "": the decision is no action of this version */
WN_API int32_t wn_action_lossy(int32_t decision); /* 1: what comes back may differ from what left; 0: the same bits, or no action */
/* Marks a stretch of forward nodes as a region, as if recorded inside one (policies made of units). */
WN_API int32_t wn_mark(int32_t program, int32_t node, int32_t unit);
WN_API int32_t wn_mark_parent(int32_t program, int32_t unit, int32_t parent); /* a unit inside another of a smaller number, from 1; else WN_VALUE */
/* A policy by hand that a budget may pick, before wn_frontier; n = wn_node_count numbers each: a region from 1, 0 or -1 (none: kept); the one it lies in, or 0; a decision, or 0. NULL: none. */
WN_API int32_t wn_candidate(int32_t program, const char *name, int32_t n, const int32_t *unit, const int32_t *parent, const int32_t *decision); WN_API int32_t wn_candidates(int32_t program); /* how many were given */
/* Every plan worth having, fastest first: how many, or -(status). Nothing runs. 0: not yet after about so many seconds; the next call goes on, to the same list however it was cut. progress: plans looked at, and about how many will be. */
WN_API int32_t wn_frontier(int32_t program, double seconds, int32_t *progress /* (2) */);
struct wn_point { int64_t reserved, peak; double seconds; int32_t recomputed, instructions, tried; const char *name; }; /* bytes, predicted seconds, nodes;
                  tried: plans looked at for the whole list; name: where it came from, "solved", "sqrt", ... */
WN_API int32_t wn_point(int32_t program, int32_t i, struct wn_point *out); /* i from 0; WN_VALUE before wn_frontier */
WN_API int32_t wn_choose(int32_t program, int32_t i); /* an open program will be planned as point i */
/* A recipe from outside (plan/recipe/text.c). Blocks end at limit[b], a place: the forward's values count from 1. */
enum { WN_STEP_F, WN_STEP_FE, WN_STEP_FREE, WN_STEP_B, WN_STEP_SHRINK, WN_STEP_COUNT };
struct wn_recipe_step { int32_t what, block, root, keep_at, n_keep; }; /* block from 1; root from 1, 0: the block's own */
struct wn_recipe_given { const struct wn_recipe_step *step; const int32_t *keep, *action /* words, 0: none */, *limit; int32_t n_steps, n_blocks,
                         n_keep /* of keep and action */, ahead; /* eighths, 0 to 8: room for moves to be under way (plan/lower/prefetch.c); -1: as if nothing is said */ };
WN_API int32_t wn_give_recipe(int32_t program, const struct wn_recipe_given *r); /* an open program will be planned by it; WN_ILLEGAL names step and rule */
WN_API int32_t wn_plan(int32_t program); /* recipe, lowering, placement, verifier, simulator; cached */
WN_API int32_t wn_plan_forget(int32_t program); /* takes a plan that wn_plan made for this program out of the cache: it was to be looked at only */
WN_API int32_t wn_run(int32_t program); /* WN_OOM before anything ran when the limit would be passed */
/* A compiled step: the same program again with other inputs. */
WN_API int32_t wn_same_encoding(int32_t a, int32_t b); /* 1 when equal, else 0 */
WN_API int32_t wn_leaf_count(int32_t program); struct wn_leaf { int32_t op, is_cell, is_hyper, line; int64_t handle; double number; };
WN_API int32_t wn_leaf(int32_t program, int32_t i, struct wn_leaf *out);
WN_API int32_t wn_leaf_find(int32_t program, int32_t value); /* leaf number of a DATA or CONST value, or -1 */
WN_API int32_t wn_rebind(int32_t program, int32_t leaf, int32_t value); /* another value of the same type; WN_VALUE: its gradient goes on to what it was computed from */
WN_API int32_t wn_rerun(int32_t program); /* random nodes take new numbers, but for values that were held before; effects run again */
WN_API int32_t wn_keep_numbers(int32_t program, double serial); /* reruns keep the numbers of all recorded up to this place (wn_serial) */
WN_API int32_t wn_result(int32_t program, int32_t i); /* a new handle to root i's result */
WN_API int32_t wn_results(int32_t program); /* how many */ WN_API int32_t wn_program_cells(int32_t program);
WN_API int32_t wn_program_cell(int32_t program, int32_t i); /* a new handle to a cell it reads or writes */
WN_API const char *wn_program_cell_name(int32_t program, int32_t i); /* of a gradient: that of its cell */

/* ---- a plan, looked at ---------------------------------------------------------------------------------------- */
struct wn_summary { int64_t peak, reserved, arena, state, kinds[9], peak_kinds[9], at[5]; double seconds, base_seconds,
                    measured_seconds; /* of seconds: what the table of costs knew */ int32_t nodes, instructions, recomputed, residuals, blocks, device; int64_t activation_bytes, lent,
                    moved; /* bytes read + written by all instructions, by the cost rules */ int32_t packed, lossy; /* values kept in
                    another form; of those, how many do not come back to the bit */
                    int64_t host, disk, out, in; /* bytes of the depots; bytes moved out and in */
                    double move_seconds, stall_seconds; /* of all moves; of those, what is waited for */ };
WN_API int32_t wn_summary(int32_t program, struct wn_summary *out); /* predicted. at: before, after_forward, peak_forward, peak_backward, after */
/* Predicted: making the states that a program reads and nobody has made, before its first run. beside: bytes they begin as. */
struct wn_first { int64_t peak, reserved, beside; int32_t cells; };
WN_API int32_t wn_first(int32_t program, struct wn_first *out); /* zeros: none is missing */
/* A step of several run points (program/rehearse.h): in a rehearsal programs are opened as they are after those before them.
 * before: the one under way, -1: none. beside: bytes n programs hold beside each: alive, reserved, the same the first time. */
WN_API int32_t wn_rehearsal(void); WN_API int32_t wn_rehearse(int32_t rehearsal, int32_t *before); /* enters it; -1: none */
WN_API int32_t wn_rehearse_run(int32_t program); /* gradients and states are from now on as if it had run */
struct wn_beside { int64_t live, reserved, first_live, first_reserved, kinds[9]; };
WN_API int32_t wn_beside(int32_t n, const int32_t *programs, struct wn_beside *out);
WN_API int32_t wn_keep_apart(int32_t program); /* takes its plan back; no other program finds the next one */
/* Costs (plan/ir/costs.h). Rates a second; launch: seconds added to every application. */
struct wn_profile { int32_t cuda; double f64, f32, bf16, bytes, launch, out[2], in[2]; }; /* out, in: moved to and from host memory, disk */
WN_API int32_t wn_target_set(const char *name, const struct wn_profile *p); /* its number: new, or changed; 'this machine' is 0 */
WN_API const char *wn_target_name(int32_t target);
WN_API int32_t wn_cost(const char *key, double seconds); /* measured; NULL: forget all */
WN_API const char *wn_cost_key(int32_t program, int32_t node); /* what a node's measured seconds are kept under */
WN_API double wn_roofline(int32_t program); /* seconds that the rates allow for all its applications */
WN_API const char *wn_cost_key_step(int32_t program, int32_t i); /* the same of what instruction i applies; "": nothing */
WN_API int32_t wn_timing(int32_t on); /* runs note the seconds of each instruction; returns what was before */
WN_API double wn_step_seconds(int32_t program, int32_t i); /* of the last run; -1: not noted */
struct wn_measured { int64_t peak, reserved, peak_kinds[9], at[5], high_water,
                     replayed, replayed_bytes; /* values compared, with debug "replay" */ double seconds;
                     int64_t host, disk, out, in; double move_seconds, stall_seconds; /* as in wn_summary */ };
WN_API int32_t wn_measured(int32_t program, struct wn_measured *out); /* of its last run */
/* link, takes: of a move, NULL and 0 of others: the way it goes ("to disk", "from host") and its seconds there. */
struct wn_step { const char *what, *op, *path, *link; int32_t node, value, phase, inplace, kind, space, block, is_free, store, move, counts; /* counts: among the live bytes */ int64_t offset, bytes, workspace,
                 live; double seconds, takes; };
WN_API int32_t wn_step_count(int32_t program);
WN_API int32_t wn_step(int32_t program, int32_t i, struct wn_step *out);
/* Bytes by kind, (steps + 1) x 9: row 0 before the first step, row i + 1 while step i runs (what frees: after it). */
WN_API int32_t wn_step_kinds(int32_t program, int64_t *rows);
WN_API int32_t wn_trace(int32_t program, int32_t i); /* i-th executed instruction number, -1 past the last */
struct wn_node_info { const char *op, *path, *module, *name; struct wn_type type; int32_t node, n_in, phase, scope, region, line, block,
                      forward_of, cell_kind, decision, action, is_residual, needs_grad, alias_of, root, issues, leaf; int64_t bytes; double flops;
                      struct wn_attrs attrs; int32_t is_held, is_result; double serial; }; /* computed by an earlier program; stays when this
                      one has run; place in record order (0: made by Wane, or the program has run) */
WN_API int32_t wn_node_count(int32_t program);
WN_API int32_t wn_node(int32_t program, int32_t i, struct wn_node_info *out);
WN_API int32_t wn_node_input(int32_t program, int32_t node, int32_t i); /* node number */
WN_API const char *wn_recipe(int32_t program); /* as lines of text: plan/recipe/text.c */
WN_API int32_t wn_verify(int32_t program); /* the verifier once more; WN_ILLEGAL names rule and instruction */
WN_API int32_t wn_verify_edited(int32_t program, int32_t step, const char *field, int64_t value); /* with one edit (wn_test_mutate), taken back */
WN_API int32_t wn_test_mutate(int32_t program, int32_t step, const char *field, int64_t value); /* edits a schedule: for specs of the verifier */

/* ---- chains: a table of stages in, the fastest schedule within a byte budget out ---------------------------------- */
/* Stage i = 1..n makes a_i (out_bytes) of a_{i-1}, a_0 being the input; its option o saves a set that holds a_i
 * (saved_bytes); grad_bytes are those of d_i, wgrad_bytes stay after B i. The memory model: plan/chain/replay.c. */
struct wn_chain_option { int64_t fwd_time, bwd_time, saved_bytes, fwd_tmp_bytes, bwd_tmp_bytes; };
struct wn_chain_stage { int64_t fwd_time, out_bytes, fwd_tmp_bytes, grad_bytes, wgrad_bytes;
                        int32_t first, n_options; }; /* option[first .. first + n_options) */
struct wn_chain { int64_t input_bytes, input_grad_bytes; const struct wn_chain_stage *stage;
                  const struct wn_chain_option *option; int32_t n_stages, n_options; };
enum { WN_CHAIN_F, WN_CHAIN_FE, WN_CHAIN_B, WN_CHAIN_FREE, WN_CHAIN_SHRINK };
struct wn_chain_op { int32_t what, stage, option; }; /* stages from 1, options from 0 */
struct wn_chain_cost { int64_t bytes, time; };
WN_API int32_t wn_chain_open(const struct wn_chain *c); /* a handle; knows the least budget, solves when more is asked */
WN_API int32_t wn_chain_least(int32_t chain, int64_t *bytes);
/* These write at most `room` and return how many there are, or -(status). */
WN_API int32_t wn_chain_frontier(int32_t chain, int32_t room, struct wn_chain_cost *out, int64_t *slack);
WN_API int32_t wn_chain_schedule(int32_t chain, int64_t budget, int32_t room, struct wn_chain_op *out);
WN_API int32_t wn_chain_split(int32_t n_stages, int32_t slots); /* of 2 stages or more: those before the next checkpoint; or -(status) */
WN_API int32_t wn_chain_binomial(int32_t n_stages, int32_t slots, int32_t room, struct wn_chain_op *out);
WN_API int32_t wn_chain_replay(const struct wn_chain *c, int32_t n, const struct wn_chain_op *op, struct wn_chain_cost *out);
#endif
