/* The public C API of Wane: what a script uses. Beside it are wane_inspect.h (what values, programs and plans look
 * like), wane_process.h (other processes and locks of files) and wane_test.h (switches for debugging, edits of
 * schedules). LuaJIT reads these very files, through the preprocessor with WANE_CDEF set, from the
 * library itself, so that the library and its binding cannot drift.
 *
 * Handle   an id >= 0 of something that the caller holds: a value, a cell, a hyper block, a program, a file, a lock
 *          or a sequence. The holder gives it up with wn_release.
 * Status   0 (success) or a code of runtime/status.def; wn_status_name names it and wn_message has its words. Id
 * what a function that makes something returns: a handle or another number >= 0, or -(status).
 *
 * Every function checks its arguments, so that any number, NULL or text either works or fails. Unless its comment
 * says otherwise, a function fails with WN_VALUE when a handle is not of the kind that it asks for, when a number is
 * outside what its comment allows, when a pointer is NULL, and when another thread than that of wn_start calls it;
 * and with WN_OOM when memory is short. What cannot be checked is the length of an array: it must be that of the
 * count beside it. No function prints or exits; wn_frontier alone calls back.
 *
 * A call in Lua, where binding.check raises with the words of wn_message:
 *   local binding = require 'wane.ffi'
 *   local memory = binding.new 'struct wn_memory'
 *   binding.check(binding.C.wn_memory_get(0, memory)) */
#ifndef WANE_H
#define WANE_H
#ifndef WANE_CDEF
#include <stdint.h>
#include "base/desc.h"
#define WN_API __attribute__((visibility("default")))
#else
#define WN_API
#endif
#include "base/shared.h"

/* ---- the library ---------------------------------------------------------------------------------------------- */

/* Starts the library: finds devices, reads the environment, whose variables are in lua/wane/cli/README.md, and makes
 * the calling thread the one that is served. Later calls only check the thread. Status: WN_VALUE when a switch is no
 * number, WN_DEVICE when WANE_DEVICE names no device. */
WN_API int32_t wn_start(void);
/* Returns the words of the last failure. Valid until the next one. */
WN_API const char *wn_message(void);
/* Returns the name of a status, "shape", which is `code` of the error in Lua. */
WN_API const char *wn_status_name(int32_t code);
/* Returns the version of the library, "0.1.0". */
WN_API const char *wn_version(void);
/* Returns one line about settings that wn_start could not use and what it used instead; "" when there are none. */
WN_API const char *wn_notice(void);
/* Takes the oldest pending warning and returns it; "" when there is none. */
WN_API const char *wn_warning(void);
/* Returns the class of the CPU's kernels and its instruction sets, "avx2 (AVX2)", which WANE_KERNELS chooses, and what
 * a library computes in their place. */
WN_API const char *wn_kernels(void);
/* Returns the number of threads of the CPU's kernels. */
WN_API int32_t wn_threads(void);
/* Asks the running program to stop before its first effect (on = 1), or takes that back (0). */
WN_API void wn_interrupt(int32_t on);
/* Returns 1 while a running program is asked to stop, by wn_interrupt or a signal. */
WN_API int32_t wn_interrupted(void);
/* Which signals ask as wn_interrupt(1) does: none, so that they do what they did before; SIGINT; that, SIGTERM and
 * SIGUSR1; or those of the call before, and they do nothing. */
enum { WN_SIGNAL_NONE, WN_SIGNAL_INT, WN_SIGNAL_IGNORED, WN_SIGNAL_ALL };
/* Sets them. Status: WN_IO when that fails. */
WN_API int32_t wn_signal_on(int32_t on);
/* Returns seconds of a clock that never goes back. */
WN_API double wn_now(void);

/* Fills *out with the bytes of the last WN_OOM. */
WN_API void wn_oom_last(struct wn_oom *out);

/* ---- the op table --------------------------------------------------------------------------------------------- */

/* A row of op.def. */
struct wn_op_info {
    const char *name;       /* "matmul" */
    int32_t least, most;    /* number of inputs */
    int32_t flags;          /* enum wn_op_flag of base/opcode.h */
    int32_t differentiable; /* 1: it has a gradient rule */
    int32_t operands;       /* 1 or 2: of a step of a fused elementwise op; 0: it cannot be one */
    const char *autocast;   /* "low", "high", "promote" or "same" */
    const char *positions;  /* the rule by which wane.chunked follows the positions of one dim */
};
/* Returns the number of ops; ids of ops are below it. */
WN_API int32_t wn_op_count(void);
/* Fills *out with the row of an op. */
WN_API int32_t wn_op_get(int32_t op, struct wn_op_info *out);
/* Returns the id of the op with this name; -1: there is none. */
WN_API int32_t wn_op_id(const char *name);

/* ---- devices and memory --------------------------------------------------------------------------------------- */

/* Returns the number of devices that Wane knows; their ids are below it, here or not. */
WN_API int32_t wn_device_count(void);
/* Returns the name of a device, "cpu", "meta" or "cuda"; NULL: there is no such device. */
WN_API const char *wn_device_name(int32_t device);
/* Returns why a device is not here, in one line; NULL: it is here. */
WN_API const char *wn_device_absent(int32_t device);
/* Returns the id of the device that 'auto' means: a GPU where there is one, else the CPU, 0. */
WN_API int32_t wn_device_auto(void);
/* Returns one line about CUDA: the GPU, its driver and the library that was opened, or why there is none. */
WN_API const char *wn_cuda(void);
/* Lets (1) or does not let (0) a library round the operands of products and convolutions of f32 to tf32, 10 bits of
 * fraction, on a GPU; -1: asks. It is part of a plan's key. Returns what it was, 0 or 1; -WN_UNSUPPORTED where no
 * library computes them. */
WN_API int32_t wn_tf32(int32_t on);
/* Returns the name of a kind, "parameter"; NULL: there is no such kind. */
WN_API const char *wn_kind_name(int32_t kind);

/* Fills *out with the ledger of a device. Status: WN_DEVICE when there is no such device, as of all that take one. */
WN_API int32_t wn_memory_get(int32_t device, struct wn_memory *out);
/* Returns the bytes that values and states hold on all devices, gradients left out; 0 from another thread. */
WN_API double wn_memory_held(void);
/* Limits the bytes that a device's memory may take, or (is_disk = 1) the bytes of file space that its programs may
 * offload to; 0: no limit. A program that needs more fails with WN_OOM before it runs. */
WN_API int32_t wn_memory_limit(int32_t device, int32_t is_disk, int64_t bytes);
/* Starts peaks again from what is alive now. */
WN_API int32_t wn_memory_reset_peak(int32_t device);
/* Gives idle arenas, slabs, offload buffers and captured graphs back to the system. */
WN_API int32_t wn_memory_trim(int32_t device);
/* Measures the seconds to move `bytes` (1 MiB or more) to host memory (place 0) or disk (1), into *out, and back,
 * into *in, outside the caches. Status: WN_IO or WN_OOM when there is no room. */
WN_API int32_t wn_probe(int32_t device, int32_t place, int64_t bytes, double *out, double *in);

/* Makes programs stop, with WN_ANOMALY, at the first application that makes an infinity or a NaN (1), or a NaN (2), or
 * not (0); any other number changes nothing. A step may have changed some states when it stops. Returns what was set
 * before. */
WN_API int32_t wn_anomaly(int32_t what);
/* The application behind a WN_ANOMALY. */
struct wn_anomaly {
    const char *op, *path, *module; /* its op, and the path and type of the module that recorded it */
    int32_t phase;                  /* WN_PHASE */
    int32_t line;                   /* id for wn_line_text */
    int32_t node;                   /* its number in the program */
    int64_t count, elements;        /* how many elements are not finite, of how many */
    int64_t first;                  /* row-major index of the first of them, from 0 */
    double value;                   /* that element */
};
/* Fills *out with the application behind the last WN_ANOMALY. */
WN_API void wn_anomaly_last(struct wn_anomaly *out);

/* ---- values and cells ----------------------------------------------------------------------------------------- */

/* Gives up a handle: it is invalid at once, and what it held is released by the next call of the API. For
 * finalizers: cannot fail, returns 0. */
WN_API int32_t wn_release(int32_t handle);
/* Records one application of an op to n values or cells and returns a handle of its value. attrs: NULL for none;
 * line: id of wn_line, or 0. Nothing is computed. Id: WN_SHAPE, WN_DTYPE, WN_DEVICE or WN_VALUE when the inputs do
 * not fit the op.
 *   local id = C.wn_record(C.wn_op_id 'add', 2, binding.handles(2, { a.id, b.id }), nil, 0) */
WN_API int32_t wn_record(int32_t op, int32_t n, const int32_t *in, const struct wn_attrs *attrs, int32_t line);
/* Returns a handle of y with a gradient of the caller's own: r[i] (-1: none) is the gradient of x[i], both (n),
 * recorded as a function of `placeholder`, a value of y's type that stands for dy. */
WN_API int32_t wn_custom(int32_t y, int32_t n, const int32_t *x, int32_t placeholder, const int32_t *r, int32_t line);
/* Lets the program that computes a value first change a buffer by it, once: running_mean or running_var
 * (runtime/op.def), with their attributes. Neither a recomputed copy nor a plan does. The changes of a program come
 * right before its first update, or at its end. WN_VALUE, WN_SHAPE, WN_DEVICE: value, op or buffer does not fit. */
WN_API int32_t wn_effect(int32_t value, int32_t op, int32_t cell, const struct wn_attrs *attrs);
/* Returns the id of a text "file:line", the same for equal texts; 0 for NULL. */
WN_API int32_t wn_line(const char *text);
/* Returns the text of wn_line's id; "" for 0. */
WN_API const char *wn_line_text(int32_t line);
/* Returns a handle of numbers of the host: n = 0 one number of shape (), n = 1 to 8 a vector (n). They are bound when a
 * program runs and are no part of a plan's key. Id: WN_VALUE when a number does not fit the dtype. */
WN_API int32_t wn_const(const double *v, int32_t n, int32_t dtype);
/* Returns a handle of a value that holds a copy of `bytes`, row-major; NULL: its bytes are not set. The meta device
 * does not read them. Counts as WN_KIND_INPUT. Id: WN_OOM when a limit would be passed. */
WN_API int32_t wn_data(const struct wn_type *type, int32_t device, const void *bytes);
/* Returns a handle of a new value on `device`, plain, with the elements of a value or a cell that has them. Id: WN_OOM
 * when a limit would be passed, WN_DEVICE from a device that has no bytes. */
WN_API int32_t wn_move(int32_t handle, int32_t device);
/* Returns a handle of a new cell on `device` with the kind, name and value of a cell, in a layout of wn_weight_layout
 * (0: plain). One that has not begun is begun there with the same bits, and nothing is computed. Gradients stay. Id:
 * WN_UNSUPPORTED where a cell has not begun and its first value is made of more than creation and arithmetic;
 * WN_DEVICE and WN_OOM as wn_move. */
WN_API int32_t wn_cell_move(int32_t cell, int32_t device, int32_t layout);
/* Tells a device that `count` cells of `bytes` together, each padded to WN_GRANULE, are moved to it next and live
 * together, so that it takes them as one piece; 0, 0: that they have come. */
WN_API int32_t wn_cells_coming(int32_t device, int64_t bytes, int64_t count);
/* Returns a handle of a new cell of a kind (PARAMETER, OPTIMIZER, BUFFER or INPUT) with the type and device of the
 * value `init`, which is computed into it when it is first needed. name: NULL for none. */
WN_API int32_t wn_cell(int32_t kind, int32_t init, const char *name);
/* Returns a handle of the cell of a cell's gradient, when that has a value; else -1, and wn_message does not change. */
WN_API int32_t wn_cell_grad(int32_t cell);
/* Returns the version of a cell, which each write raises; -1 for what is no cell, and wn_message does not change. */
WN_API double wn_cell_version(int32_t cell);
/* Returns 1 when a cell needs a gradient, 2 when it has one, 3 for both, 0 for neither; -1 for what is no cell. */
WN_API int32_t wn_cell_state(int32_t cell);
/* Makes a cell need a gradient (on = 1) in what is recorded from now on, or not (0). Status: WN_DTYPE unless it holds
 * floats. */
WN_API int32_t wn_cell_need_grad(int32_t cell, int32_t on);
/* Ends the value of a cell's gradient, if it has one. Its bytes may be used by activations at once. */
WN_API int32_t wn_cell_drop_grad(int32_t cell);
/* Makes a value a result of the next program that reaches it, or that has a backward and computes what it is made of,
 * so that it can be read afterwards; data keeps its bytes (wn_gather). What no state is in and no gradient reaches is
 * made before the backward that reads it, as states are. Status: WN_STALE where the bytes of data are lost. */
WN_API int32_t wn_retain(int32_t value);
/* Names a value, for policies, or a cell. */
WN_API int32_t wn_rename(int32_t handle, const char *name);
/* Gives a handle up with what it holds, at once: the bytes of a held value, whatever else counts them; an open file,
 * of which what was not committed is dropped; a lock. Of a cell and a program the handle alone. Cannot fail but in
 * another thread. */
WN_API int32_t wn_free(int32_t handle);
/* Copies the value of a held value or a cell out, as n plain row-major bytes, which must be all of them. Status:
 * WN_VALUE when it was not computed yet, was freed, or has other than n bytes. */
WN_API int32_t wn_read(int32_t handle, void *bytes, int64_t n);
/* Copies n bytes from byte `at` of a held value or a cell out. */
WN_API int32_t wn_read_part(int32_t handle, int64_t at, void *bytes, int64_t n);
/* Copies n bytes into a cell from its byte `at` on. Of a cell without a value all parts must be written. */
WN_API int32_t wn_write_part(int32_t handle, int64_t at, const void *bytes, int64_t n);
/* Returns a handle of data of n pieces of a held value: `length` elements from each of start[0..n), which count
 * row-major over all of it. They are drawn over the bytes of `data`, a value of wn_data, which is lost by it; one that
 * was retained keeps its bytes, and the new one takes bytes of its own. Id: WN_DTYPE unless the dtypes are equal, or u8
 * becomes i32; WN_SHAPE unless n * length are its elements; WN_STALE where a value was drawn over before. */
WN_API int32_t wn_gather(int32_t data, int32_t value, const int64_t *start, int64_t n, int64_t length);
/* Returns a handle of a hyper block: 8 numbers of an optimizer that are read when a program runs. */
WN_API int32_t wn_hyper(void);
/* Sets number i, from 0, of a hyper block. */
WN_API int32_t wn_hyper_set(int32_t hyper, int32_t i, double v);

/* ---- where recording stands ----------------------------------------------------------------------------------- */

/* Returns the place where recording stands, which stays at this address. A caller may write its `scope`, `region` and
 * `grad`: ids of wn_scope and wn_region_new, 0 for none, and 0 or 1. Functions set all else. */
WN_API struct wn_context *wn_here(void);
/* Seeds random numbers and starts their counter again at 0. */
WN_API int32_t wn_seed(uint64_t seed);
/* Sets the counter that the next random node takes. */
WN_API void wn_counter_set(uint64_t next);
/* Sets that counter back to where the last update of a parameter left it, for a step that ^C ended: the step that is
 * recorded in its place draws the same numbers. Leaves it where no parameter was updated since wn_seed. */
WN_API void wn_counter_back(void);
/* Returns the id of the scope `name` of a type inside another (0: the root); the same for equal arguments. Scopes of
 * one path and different `variant` differ, so that policies may decide differently for modules of one path. */
WN_API int32_t wn_scope(int32_t parent, const char *name, const char *type, int32_t variant);
/* Returns the id of a new region inside another (0: none): its values are recomputed for the backward. */
WN_API int32_t wn_region_new(int32_t parent, const char *name);
/* Sets the device of created values from now on and returns the one before; the id of none that is here changes
 * nothing. */
WN_API int32_t wn_device_set(int32_t device);
/* Returns the layout (base/layout.h) that a device wants of the weight of nn.Linear, (outputs, inputs), or of
 * nn.Conv2d, (outputs, inputs / groups, rows, columns); WN_PLAIN where it has none for that shape, or there is no such
 * device. */
WN_API int32_t wn_weight_layout(int32_t device, const struct wn_type *weight);
/* Records the gradients of a value of one element with respect to wrt[0..n) and fills out[0..n) with handles of
 * them; -1 where it does not depend on one. Status: WN_SHAPE when root has more elements, WN_SPENT when its graph is
 * used up. */
WN_API int32_t wn_grad(int32_t root, int32_t n, const int32_t *wrt, int32_t *out);

/* ---- programs: opened ----------------------------------------------------------------------------------------- */

/* The kinds of programs. */
enum {
    WN_RUN_EVAL,     /* roots become results */
    WN_RUN_BACKWARD, /* gradients of the roots are added to the cells of gradients */
    WN_RUN_STEP,     /* gradients go straight into the updates and end there */
    WN_RUN_UPDATE,   /* updates read the cells of gradients */
    WN_RUN_ASSIGN    /* root i becomes the value of cell i */
};
/* One update of a parameter by an optimizer. */
struct wn_update {
    int32_t op;      /* an optimizer: "sgd", "momentum", "adam", "rmsprop", "lion" */
    int32_t cell[3]; /* the parameter, then the states of the optimizer; -1: none */
    int32_t hyper;   /* the hyper block with its numbers */
};
/* The request that a program is opened with. */
struct wn_request {
    int32_t mode; /* WN_RUN */
    int32_t n_roots, n_updates, n_cells;
    int32_t n_also;                  /* of BACKWARD and STEP with one loss, or joint: so many of the last roots are
                                      * computed beside the losses, and nothing differentiates them */
    const int32_t *roots;            /* (n_roots) values; none for UPDATE */
    const int32_t *cells;            /* (n_cells) of ASSIGN: one for each root; else none */
    const struct wn_update *updates; /* (n_updates) of STEP and UPDATE; else none */
    int32_t joint;                   /* 1: one backward over all roots; 0: root after root */
    int32_t again;                   /* 1: the graph stays for another backward */
    double scale;                    /* d(root)/d(root) */
    double clip;                     /* of STEP: the most that the joint 2-norm of all gradients may be; 0: any */
    int32_t target;                  /* of wn_target_set: the machine that it is planned for; 0: this one */
    int32_t is_fresh;                /* 1: a gradient that is there already is refused */
    int32_t given;                   /* of BACKWARD among ranks: so many of them, the first ones, give gradients, which
                                      * all of them add in their order; of UPDATE: the number of ranks, which all make
                                      * it or none; 0: no rank but this one is asked */
    int32_t is_shared;               /* 1: root i is micro-batch i of this rank of a partial sum that its machine makes
                                      * together; given counts machines then, of `per_node` ranks (wn_dist) */
    int32_t is_idle;                 /* 1: this rank gives none; its losses, which it does not compute, say of which */
    int32_t is_last;                 /* 1: every rank gets the sums; 0: each goes on with its own range of them */
    int64_t policy;                  /* a number of what will decide, part of the key; 0: marks and save */
};
/* Opens a program for what the roots reach, and returns its handle. A program that was met before is planned
 * already; else it takes decisions, marks or a recipe until wn_plan. Id: WN_STALE or WN_SPENT name a value that
 * cannot be computed any more. */
WN_API int32_t wn_open(const struct wn_request *r);
/* Returns 1 when a program is planned, 0 when it is not, or -(status). */
WN_API int32_t wn_is_planned(int32_t program);
/* Names what a program has several of: nodes; residuals; values that stay when it has run; cells that it reads or
 * writes; candidates that were offered to a budget; states that it gathers from ranks; once it is planned,
 * instructions. */
enum {
    WN_COUNT_NODES,
    WN_COUNT_RESIDUALS,
    WN_COUNT_RESULTS,
    WN_COUNT_CELLS,
    WN_COUNT_CANDIDATES,
    WN_COUNT_GATHERS,
    WN_COUNT_INSTRUCTIONS
};
/* Returns how many a program has of `what`, or -(status). */
WN_API int32_t wn_count(int32_t program, int32_t what);

/* ---- programs: decided. All but counts and names fail with WN_VALUE once the program is planned. ---------------- */

/* A residual: a forward value that the backward reads. */
struct wn_residual {
    const char *op, *path, *module, *name; /* its op; path and type of its module; the name of wn_rename, or "" */
    int32_t node;                          /* its number in the program */
    int32_t index;                         /* its number among residuals, from 1 */
    int32_t block;                         /* that it is in, from 1; 0: none, it is data beside the modules */
    int32_t boundary;                      /* 1: the forward of a later block reads it */
    int32_t random;                        /* 1: its op draws random numbers */
    int32_t readers;                       /* nodes that read it */
    int32_t ndim, dtype, scope, line, region;
    int64_t bytes, dim[8];
    double flops, seconds; /* to compute it from its inputs */
};
/* Fills *out with residual i, from 0. May be asked of a planned program. */
WN_API int32_t wn_residual(int32_t program, int32_t i, struct wn_residual *out);
/* Decides about residual i, from 0. Status: WN_UNSUPPORTED when there is no such decision. */
WN_API int32_t wn_decide(int32_t program, int32_t i, int32_t decision);
/* Lets a budget choose an action by itself. Status: WN_UNSUPPORTED when the decision is no action. */
WN_API int32_t wn_allow(int32_t program, int32_t decision);
/* Returns why an action cannot be done with residual i, in words that follow "it"; "" when it can. */
WN_API const char *wn_action_reason(int32_t program, int32_t i, int32_t decision);
/* Returns 1 when what an action gives back may differ from what it took; 0 for the same bits, or no action. */
WN_API int32_t wn_action_lossy(int32_t decision);
/* Puts a forward node into region `unit`, from 1 (0: none), as if it had been recorded inside one. */
WN_API int32_t wn_mark(int32_t program, int32_t node, int32_t unit);
/* Nests region `unit` in region `parent`. Requires 1 <= parent < unit. */
WN_API int32_t wn_mark_parent(int32_t program, int32_t unit, int32_t parent);
/* Offers a plan that a budget may pick, before wn_frontier. Arrays have as many entries as nodes, n. unit: region of
 * each node, from 1; 0: none, -1: none and kept. parent: the region that region i + 1 is in; 0: none. decision: of
 * each node; 0: none. parent and decision may be NULL. unit too: the plan is one of decisions alone, which the planner
 * does not edit. */
WN_API int32_t wn_candidate(int32_t program, const char *name, int32_t n, const int32_t *unit, const int32_t *parent,
                            const int32_t *decision);
/* Told how many plans were judged and about how many will be; returns 1 to stop planning. */
typedef int32_t (*wn_look)(int32_t done, int32_t expected);
/* Makes the frontier of a program: every plan that no other beats in both bytes and seconds, the fastest first.
 * Returns how many there are, or -(status). look: called before each plan that is judged; or NULL. WN_INTERRUPT when
 * it asks to stop, and at wn_interrupt or ^C: the next call begins anew. Runs nothing. */
WN_API int32_t wn_frontier(int32_t program, wn_look look);
/* A plan of the frontier. */
struct wn_point {
    int64_t reserved, peak; /* bytes */
    double seconds;         /* predicted */
    double forward_seconds; /* of them before the first instruction of a backward */
    int32_t recomputed;     /* nodes issued again */
    int32_t instructions;
    int32_t tried;    /* plans judged for the whole frontier */
    const char *name; /* what proposed it: "solved", "sqrt" */
};
/* Fills *out with point i, from 0, of the frontier. Status: WN_VALUE before wn_frontier has finished. */
WN_API int32_t wn_point(int32_t program, int32_t i, struct wn_point *out);
/* Makes wn_plan plan point i, from 0, of the frontier. */
WN_API int32_t wn_choose(int32_t program, int32_t i);

/* One operation of a recipe on a block (plan/recipe/text.c). */
struct wn_recipe_step {
    int32_t what;            /* WN_STEP */
    int32_t block;           /* from 1 */
    int32_t root;            /* of B: from 1; 0: the block's own */
    int32_t keep_at, n_keep; /* keep[keep_at .. keep_at + n_keep) stay after it */
};
/* A recipe. A place is the number of a value of the forward, from 1 in record order. */
struct wn_recipe_given {
    const struct wn_recipe_step *step; /* (n_steps) */
    const int32_t *keep;               /* (n_keep) places */
    const int32_t *action;             /* (n_keep) WN_DECISION with which each is kept; 0: as it is */
    const int32_t *limit;              /* (n_blocks) the last place of each block */
    int32_t n_steps, n_blocks, n_keep;
    int32_t prefetch; /* transfers may hold prefetch / 8 of the bytes that offloading saves, and exchanges of those that
                         they move, 0 to 8; -1: not said */
    int64_t group;    /* consecutive exchanges start together until they are so many bytes; -1: not said */
};
/* Makes wn_plan plan this recipe. Status: WN_ILLEGAL names the operation and the rule that it breaks. */
WN_API int32_t wn_give_recipe(int32_t program, const struct wn_recipe_given *r);

/* ---- programs: planned and run -------------------------------------------------------------------------------- */

/* Plans a program by its recipe, its point of the frontier, or its decisions and marks: lowers, places, simulates
 * and verifies, and keeps the plan for programs with an equal key. */
WN_API int32_t wn_plan(int32_t program);
/* Drops a plan that wn_plan made of this program from what is kept for later programs: it was made to be inspected.
 * is_any: 1: one that was kept before, too, as no program may find it again. */
WN_API int32_t wn_plan_forget(int32_t program, int32_t is_any);
/* Runs a planned program. Status: WN_OOM before anything ran when a limit would be passed; WN_INTERRUPT before its
 * first effect; WN_ANOMALY, see wn_anomaly. */
WN_API int32_t wn_run(int32_t program);
/* Returns a new handle of the result of root i, from 0. The last result of a program with a `clip` is the norm of the
 * gradients, of shape (), before it scaled them. */
WN_API int32_t wn_result(int32_t program, int32_t i);
/* Returns a new handle of cell i, from 0; the gradients that it makes are among them. */
WN_API int32_t wn_program_cell(int32_t program, int32_t i);
/* Returns the name of cell i, of a gradient that of its parameter; "" when there is none. */
WN_API const char *wn_program_cell_name(int32_t program, int32_t i);
#endif
