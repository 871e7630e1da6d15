/* Describes values, programs and plans: how a value was recorded, what a plan predicts, what a run measured, every
 * instruction and every node; and what the predictions rest on, costs and targets. Nothing here computes a
 * value, and nothing changes a plan that exists. Handles, statuses and ids are those of wane.h. */
#ifndef WANE_INSPECT_H
#define WANE_INSPECT_H
#include "wane.h"

/* ---- values --------------------------------------------------------------------------------------------------- */

/* A value or a cell. */
struct wn_info {
    struct wn_type type;
    int32_t op, device;
    int32_t is_cell, cell_kind; /* 1 for the handle of a cell; WN_KIND of a cell, or of the cell that a value reads */
    int32_t needs_grad;
    int32_t is_cut;      /* 1: it was recorded where gradients are off */
    int32_t held;        /* 1: it has its value now */
    int32_t scope, line; /* where it was recorded */
    int64_t version;     /* of a cell, or of the cell that a value reads */
    int64_t bytes;       /* padded to WN_GRANULE */
    double number;       /* of a constant, or a value without dims that is held */
};
/* Fills *out for a value or a cell. */
WN_API int32_t wn_info(int32_t handle, struct wn_info *out);
/* How a value was recorded. */
struct wn_value_info {
    struct wn_type type;
    struct wn_attrs attrs;
    int32_t op, n_in, line;
    int64_t serial; /* place in record order: above those of its inputs */
    double number;
};
/* Fills *out for a value; for a cell, of the value that reads it. */
WN_API int32_t wn_value_info(int32_t handle, struct wn_value_info *out);
/* Returns a new handle of input i, from 0, of a value. */
WN_API int32_t wn_value_input(int32_t handle, int32_t i);
/* Returns the place in record order of what was recorded last. */
WN_API double wn_serial(void);

/* ---- what a plan predicts ------------------------------------------------------------------------------------- */

/* Predictions of a plan. Bytes are those of the device unless a field says otherwise. */
struct wn_summary {
    int64_t peak, reserved;          /* the most alive at once; the most taken from the device */
    int64_t arena, state;            /* height of the arena; states before the run */
    int64_t kinds[9], peak_kinds[9]; /* by WN_KIND: before the run; at the peak */
    int64_t at[5];                   /* alive before, after_forward, peak_forward, peak_backward, after */
    double seconds, base_seconds;    /* of all; without what is computed again */
    double measured_seconds;         /* the part of `seconds` that the table of costs knew */
    int32_t nodes, instructions, recomputed, residuals, blocks, device;
    int64_t activation_bytes;           /* of all residuals */
    int64_t lent;                       /* of slabs that activations use before the gradients are allocated there */
    int64_t moved;                      /* read and written by all instructions, by the cost rules */
    int32_t packed, lossy;              /* values kept in another form; those of them that lose bits */
    int64_t host, disk, out, in;        /* of the offload buffers in host memory and on disk; transferred out and in */
    double move_seconds, stall_seconds; /* of all transfers; the part that the kernels wait for */
    int64_t wire_out[2], wire_in[2];    /* sent to other ranks and got from them, on this machine and on others */
    double wire_seconds, wait_seconds;  /* of all exchanges among ranks; the part that the kernels wait for */
    double late_seconds;                /* behind the last instruction, until all that it exchanges has come */
    double late_first, late_share;      /* the same of the first of these; what the longest takes of all, 0 to 1 */
    double forward_seconds;             /* before the first instruction of a backward */
};
/* Fills *out for a planned program. */
WN_API int32_t wn_summary(int32_t program, struct wn_summary *out);
/* Returns a plan's recipe as lines of text (plan/recipe/text.c); "" when the program is not planned. */
WN_API const char *wn_recipe(int32_t program);
/* Verifies a plan once more. Status: WN_ILLEGAL names the rule and the instruction. */
WN_API int32_t wn_verify(int32_t program);

/* ---- steps of several run points: program/sequence.h ------------------------------------------------------------- */

/* Names the ways to note the run points of a step: PLANNED, programs are opened as if those before them had run; RUN,
 * they run; UNDONE, they run, and wn_sequence_undo puts back what they wrote. */
enum { WN_SEQUENCE_PLANNED, WN_SEQUENCE_RUN, WN_SEQUENCE_UNDONE };
/* Returns a handle of a sequence of run points, in one of these ways, or -(status). */
WN_API int32_t wn_sequence(int32_t mode);
/* Leaves the sequence under way and enters another; -1: none. */
WN_API int32_t wn_sequence_enter(int32_t sequence);
/* Takes it that a program has run, in a planned sequence: its gradients exist and its states have values. Status:
 * WN_UNSUPPORTED when it reads what an earlier program of the sequence computes. */
WN_API int32_t wn_sequence_add(int32_t program);
/* Begins the planned sequence under way once more, with the gradients that its programs leave, where the step would be
 * another with them. Returns 1 if it did: programs are then added from the first one on; 0 if not; -(status). */
WN_API int32_t wn_sequence_repeat(void);
/* Puts back the states and gradients that the programs of an UNDONE sequence wrote. Status: WN_VALUE while it is under
 * way. */
WN_API int32_t wn_sequence_undo(int32_t sequence);
/* Sets that a sequence is before its program `at`, from 0, as programs opened in it then are; -1: after all of them. */
WN_API int32_t wn_sequence_seek(int32_t sequence, int32_t at);
/* The cost of making the states and the retained data that a program reads and that have no value when it first runs;
 * zeros without any. */
struct wn_first {
    int64_t peak, reserved; /* bytes */
    int64_t beside;         /* bytes that are held for them already */
    int64_t cells;          /* how many there are */
};
/* Bytes that exist beside one program of a step while it runs, because the others own them. */
struct wn_part {
    int64_t live, reserved;
    int64_t first_live, first_reserved; /* the same when the step runs the first time */
    int64_t kinds[9];                   /* of live, by WN_KIND */
    struct wn_first first;              /* of a sequence that is planned, and of one program alone */
    int64_t same; /* number of the first program with the same IR, policy, cells and all the above; else its own */
    int64_t held; /* bytes that its states, gradients, inputs and results take now, and those of none before it */
};
/* Fills out[0..n) for the n programs of the sequence under way, or for one program alone. Status: WN_VALUE for several
 * when none is. */
WN_API int32_t wn_parts(int32_t n, const int32_t *programs, struct wn_part *out);
/* Takes a program's plan back and opens it to another policy, whose number is as in wn_request. Status: WN_VALUE when
 * the program ran. */
WN_API int32_t wn_decide_by(int32_t program, double policy);

/* ---- costs and targets: plan/ir/costs.h
 * ---------------------------------------------------------------------------- */

/* Makes or changes a target and returns its number, or -(status). 'this machine' is 0, the only one whose plans can
 * run.
 *   profile.f32, profile.bytes = 60e12, 3e12
 *   local target = binding.id(C.wn_target_set('h200', profile)) */
WN_API int32_t wn_target_set(const char *name, const struct wn_profile *p);
/* Seconds of a class of applications on a target (plan/ir/rates.h): launch + max(bytes / rate of bytes,
 * FLOP (1 + half / least side) / rate of FLOP). */
struct wn_rate {
    int32_t cuda;  /* 1: of CUDA's kernels, as in wn_profile; 0: of the CPU's */
    double launch; /* seconds */
    double bytes;  /* a second; 0: bytes limit nothing */
    double flops;  /* a second; 0: FLOP limit nothing */
    double half;   /* least side of a product that runs at half of the rate; 0: the rate holds for every shape */
};
/* Puts the rate of a class on a target. Status: WN_VALUE, WN_OOM.
 *   binding.check(C.wn_target_rate(target, 'sum bf16 columns', rate)) */
WN_API int32_t wn_target_rate(int32_t target, const char *class_, const struct wn_rate *rate);
/* Returns the class of the application of instruction i, such as "sum bf16 columns"; "" where it has no kernel. The
 * text is valid until the next call. */
WN_API const char *wn_rate_class_step(int32_t program, int32_t i);
/* Fills *out with the rates that plans for a device of this machine take: those that wn_target_set was given for 'this
 * machine', else assumed ones. Status: WN_DEVICE when there is no such device, or it is not here. */
WN_API int32_t wn_profile_get(int32_t device, struct wn_profile *out);
/* Seconds of exchanges among ranks: start + peer (number of other ranks) + bytes / rate of the slower level. */
struct wn_link_rates {
    double start, peer; /* seconds */
    double bytes[2];    /* bytes a second that a rank exchanges with others of its machine, and of other machines */
};
/* Sets them, for later plans. Status: WN_VALUE for numbers that are none. */
WN_API int32_t wn_link(const struct wn_link_rates *r);
/* Fills *out with them. */
WN_API int32_t wn_link_get(struct wn_link_rates *out);
/* Returns the processor that runs the CPU's kernels, in one line. Costs and tunables hold for it alone. */
WN_API const char *wn_processor(void);
/* Fills *out with tunable number i, from 0 on. Status: WN_VALUE where there is none.
 *   local t = binding.new('struct wn_tunable')
 *   for i = 0, 99 do if C.wn_tunable(i, t) ~= 0 then break end print(binding.text(t.name), t.value) end */
WN_API int32_t wn_tunable(int32_t i, struct wn_tunable *out);
/* Sets tunable number i; later plans have other keys. Status: WN_VALUE for a value outside its limits. */
WN_API int32_t wn_tune(int32_t i, int64_t value);
/* Returns the name of a target; NULL: there is none. */
WN_API const char *wn_target_name(int32_t target);
/* Puts measured seconds, 0 to below WN_COST_SECONDS, into the table of costs, under a key of wn_cost_key_step. key
 * NULL: forgets all. */
WN_API int32_t wn_cost(const char *key, double seconds);
/* Returns the key of what instruction i applies, "linear f32 32x10 <- f32 32x4, f32 10x4, f32 10"; "" when it applies
 * nothing. */
WN_API const char *wn_cost_key_step(int32_t program, int32_t i);
/* Returns the seconds that the rates of the target allow for all applications of a plan. */
WN_API double wn_roofline(int32_t program);

/* ---- what a run measured ----------------------------------------------------------------------------------------- */

/* Makes runs note the seconds of every instruction (on = 1), or not (0). Returns what was set before. */
WN_API int32_t wn_timing(int32_t on);
/* Returns the seconds of instruction i in the last run; -1: not noted. */
WN_API double wn_step_seconds(int32_t program, int32_t i);
/* The measurements of the last run of a program, each as the field of wn_summary with its name. */
struct wn_measured {
    int64_t peak, reserved, peak_kinds[9], at[5];
    int64_t beside;                   /* that the device held beside the program at its peak, and holds after its run */
    int64_t high_water;               /* the highest byte of the arena that was used */
    int64_t replayed, replayed_bytes; /* values compared, with debug "replay" */
    double seconds;
    int64_t host, disk, out, in;
    double move_seconds, stall_seconds;
    int64_t wire_out[2], wire_in[2];
    double wait_seconds;
    int64_t graph_launches; /* launches of captured graphs, each of many kernels; 0: each kernel was launched itself */
};
/* Fills *out. Status: WN_VALUE when the program did not run. */
WN_API int32_t wn_measured(int32_t program, struct wn_measured *out);

/* ---- the instructions of a plan
 * ------------------------------------------------------------------------------------ */

/* One instruction of a schedule. */
struct wn_step {
    const char *what; /* "run", "free", "read", "pack", "unpack", "offload", "fetch", "exchange" or "wait" */
    const char *op, *path;
    const char *link;  /* of a transfer: "to host", "from host", "to disk", "from disk" or "ranks"; else NULL */
    int32_t node;      /* number of the node in the program */
    int32_t value;     /* number of the value that it makes; -1: none */
    int32_t phase;     /* WN_PHASE */
    int32_t inplace;   /* input that it overwrites; -1: none */
    int32_t kind;      /* WN_KIND of its bytes */
    int32_t space;     /* that holds its bytes: WN_SPACE of plan/lower/schedule.h */
    int32_t block;     /* from 1; 0: none */
    int32_t is_free;   /* 1: what is "free" */
    int32_t store;     /* number of the allocation that it makes or frees; -1: none */
    int32_t move;      /* number of the transfer that it starts or waits for; -1: none */
    int32_t counts;    /* 1: its bytes are the device's */
    int64_t offset;    /* of the allocation in its space */
    int64_t bytes;     /* of the allocation */
    int64_t workspace; /* bytes */
    int64_t live;      /* bytes alive after it */
    double seconds;    /* predicted; of a wait, what is not hidden */
    double takes;      /* seconds of a transfer on its link */
    int64_t sent, sent_outside; /* bytes that an exchange sends to other ranks; of those, to other machines */
    double flops;               /* FLOP of what it applies, by the rules of ops; 0: it applies nothing */
    double traffic;             /* bytes that this reads and writes */
};
/* Fills *out with instruction i, from 0. */
WN_API int32_t wn_step(int32_t program, int32_t i, struct wn_step *out);
/* Fills rows, (instructions + 1, 9), with bytes alive by WN_KIND: row 0 before the first instruction, row i + 1 while
 * instruction i runs; what frees, after it. */
WN_API int32_t wn_step_kinds(int32_t program, int64_t *rows);

/* ---- the nodes of a program
 * ------------------------------------------------------------------------------------------ */

/* One node of a program's graph. */
struct wn_node_info {
    const char *op, *path, *module, *name; /* as in wn_residual */
    struct wn_type type;
    int32_t node, n_in;
    int32_t phase; /* WN_PHASE */
    int32_t scope, region, line;
    int32_t block;      /* from 1; 0: none */
    int32_t forward_of; /* of a node of the backward: the forward node that it serves; else -1 */
    int32_t cell_kind;  /* WN_KIND of the cell that it reads or writes; -1: none */
    int32_t decision;   /* WN_DECISION */
    int32_t action;     /* action that its value was kept with; 0: none */
    int32_t is_residual, needs_grad;
    int32_t alias_of; /* node whose bytes its value is; -1: its own */
    int32_t root;     /* number of the root whose backward it is of */
    int32_t issues;   /* how often the plan issues it */
    int32_t leaf;     /* WN_LEAF of plan/ir/ir.h; 0: it is computed */
    int64_t bytes;
    double flops;
    struct wn_attrs attrs;
    int32_t is_held;      /* 1: an earlier program computed it */
    int32_t is_result;    /* 1: its value stays when the program has run */
    const char *computed; /* the ops that its kernel computes, as of wn_step; "": the kernel of another node does */
    double serial;        /* place in record order; 0: Wane made the node, or the program has run */
};
/* Fills *out with node i, from 0. */
WN_API int32_t wn_node(int32_t program, int32_t i, struct wn_node_info *out);
/* Returns the node that is input i of a node, both from 0; -1: there is none. */
WN_API int32_t wn_node_input(int32_t program, int32_t node, int32_t i);
#endif
