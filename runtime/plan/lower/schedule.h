/* The schedule: the linear list of instructions that a run executes as written, and the place of every byte.
 *
 *   address space   slab 0 | slab 1 | ... | arena                     offload buffers: of the host, the disk, the ranks
 *   slab            gradients of a group of parameters; until a gradient is allocated, its interval is lent to values
 *   arena           [0, height): values and workspaces, one interval each while it lives
 *
 * A schedule never changes once it is made, but for what the executor keeps with it. Programs whose IR and recipe are
 * equal share it.
 * Invariant: allocations that live at the same instruction never overlap in their space (verify.c). */
#ifndef WN_PLAN_LOWER_SCHEDULE_H
#define WN_PLAN_LOWER_SCHEDULE_H
#include "../../../kernels/kernel.h"
#include "../../base/memory_order.h"
#include "../../wane_inspect.h"
#include "../recipe/recipe.h"

enum wn__what {
    WN_DO_RUN,
    WN_DO_FREE,
    WN_DO_READ,     /* reads a 0-d result to the host */
    WN_DO_PACK,     /* makes the packed form that a value is kept in */
    WN_DO_UNPACK,   /* makes a value of its own of a packed form */
    WN_DO_OFFLOAD,  /* starts the transfer of a value to an offload buffer */
    WN_DO_FETCH,    /* starts the transfer of an offloaded value to a value of its own */
    WN_DO_EXCHANGE, /* starts an exchange among ranks: the node of a LINK op */
    WN_DO_WAIT, /* waits until a transfer or exchange has ended. Before that nothing may write its source or touch its
                   target */
    WN_DO_COUNT
};
enum wn__space {
    WN_SPACE_ARENA,
    WN_SPACE_SLAB,
    WN_SPACE_CELL,
    WN_SPACE_BOUND,
    WN_SPACE_RESULT,
    WN_SPACE_HOST, /* the offload buffers; each is placed like an arena of its own */
    WN_SPACE_DISK,
    WN_SPACE_RANKS
};

/* Bytes with one lifetime. Successive values may share one allocation: each overwrites the last. Invariant: first <=
 * last, unless no instruction uses it: then both are -1. */
struct wn__allocation {
    int32_t space, slot;   /* enum wn__space; number of the slab, cell, bound value or result, by space */
    int32_t kind;          /* WN_KIND_ that the ledger counts its bytes under */
    int32_t first, last;   /* the instructions that it lives from and to, both included */
    int32_t pinned;        /* 1: what it holds was there before the program, or outlives it */
    int32_t is_paged;      /* 1: takes part in a transfer, so it starts on a page and owns the rest of its last page */
    int64_t offset, bytes; /* bytes from the start of its space; its size */
};
/* A value: what one issue of a node makes, or what an action makes of it. A node issued twice has two values. */
struct wn__value {
    int32_t node, allocation;
    int32_t action; /* the action that made it of the node's value (action.h); 0: it is the value */
    int32_t back;   /* the action that it came back from; 0: it was computed, or it is a kept form */
    int64_t at;     /* bytes from the start of the allocation, which scalars share */
};
struct wn__instr {
    int32_t what, node, phase, block; /* enum wn__what; node of the IR; WN_PHASE_; block of the recipe */
    int32_t step;                     /* the step of the recipe that asked for it; 0: none */
    int32_t
        out; /* the value that it makes, -1 for effects and WAIT; of READ the value read; of FREE the allocation freed */
    int32_t inplace;   /* number of the input whose allocation the output takes over; -1: none */
    int32_t in_at;     /* values of the inputs: schedule->in[in_at ..); of a WAIT the source, then the target */
    int32_t move;      /* number of the transfer that OFFLOAD, FETCH or EXCHANGE starts, or that WAIT waits for */
    int32_t recompute; /* 1: the node was issued before */
    int32_t cell[3];   /* of effects: allocations of the cells that it writes; -1: none */
    int32_t staged;    /* of an EXCHANGE, the allocation in host memory that it goes through; -1: none */
    int32_t report;    /* of an instruction that reports wrong data, its place among the reports; -1: it reports none */
    int32_t work_slab; /* the slab that its workspace is in; -1: the arena */
    int64_t work_offset, work_bytes; /* bytes of the workspace: from the start of slab or arena; its size */
    wn_kernel_fn kernel;
    const void *made; /* what a library prepared for this application; NULL: nothing */
};

/* Something that the executor keeps with a schedule between runs (run/issue/captured.c). */
struct wn__kept {
    void (*let_go)(struct wn__kept *k);
};

struct wn__schedule {
    struct wn__pool pool;
    int32_t refs, n, n_values, n_allocations, n_in;
    struct wn__instr *instr;           /* (n) in the order of issue */
    struct wn__value *value;           /* (n_values) */
    struct wn__allocation *allocation; /* (n_allocations) */
    int32_t *in;                       /* (n_in) values: inputs of all instructions, one after the other */
    int32_t *result_allocation;        /* (n_results of the IR) -1: the result is a number that is read to the host */
    int32_t scalars;                   /* the allocation of the numbers that the host hands over; -1: none */
    int32_t n_reports;                 /* instructions that report wrong data there */
    int32_t is_settled;                /* 1: more effort would place it no other way */
    int64_t arena;                     /* bytes of the arena */
    int64_t lent;                      /* bytes of slabs that values use before gradients are allocated there */
    int64_t offload_buffer[WN_MEDIUM_COUNT]; /* bytes of the offload buffers */
    int32_t n_moves;                         /* number of transfers */
    struct wn_summary summary;               /* wn__simulate fills this field and the next three */
    int64_t *live;                           /* (n) bytes alive after each instruction */
    double *seconds;                         /* (n) seconds of each instruction; of a WAIT, those that are not hidden */
    uint8_t *again;                          /* (n) 1: the instruction reads a value that was computed again */
    char *recipe;                            /* text of its recipe, if the schedule is in the cache; else NULL */
    int32_t *node_issues;                    /* (n of the IR) how often each node was issued */
    int32_t *node_action;                    /* (n of the IR) the action that the node's value was kept with; 0: none */
    int32_t n_blocks;                        /* number of blocks of the recipe */
    struct wn__kept *kept;                   /* let go with it; NULL: nothing */
};

/* The allocation `scalars`, the only bytes of a program that the host writes, of m numbers, r random nodes and
 * n_reports reports:
 *
 *   number 0 | ... | number m - 1 | random 0 | ... | random r - 1 | report 0 | ... | report n_reports - 1
 *   64 bytes each: a block of     | 16 bytes each:                | 8 bytes each, all bits set: nothing is wrong
 *   an optimizer's numbers fits   | {seed, counter}               | (struct wn_buffers)
 *
 * Random numbers and reports are there on asynchronous devices only. The functions return the offset of one. */
enum { WN_SCALAR_BYTES = 64, WN_RANDOM_BYTES = 16, WN_REPORT_BYTES = 8 };
static inline int64_t wn__scalar_at(int64_t number)
{
    return number * WN_SCALAR_BYTES;
}
static inline int64_t wn__random_at(const struct wn__ir *ir, int64_t random)
{
    return wn__scalar_at(ir->n_scalars) + random * WN_RANDOM_BYTES;
}
static inline int64_t wn__report_at(const struct wn__ir *ir, int64_t report)
{
    return wn__random_at(ir, ir->target->is_asynchronous ? ir->n_random : 0) + report * WN_REPORT_BYTES;
}

static inline int32_t wn__instr_has_kernel(const struct wn__instr *n)
{
    return n->what == WN_DO_RUN || n->what == WN_DO_PACK || n->what == WN_DO_UNPACK;
}

/* Returns the direction of the transfer that an instruction starts, WN_WAY_; -1: it starts none. */
static inline int32_t wn__instr_way(const struct wn__instr *n)
{
    return n->what == WN_DO_OFFLOAD ? WN_WAY_OUT : n->what == WN_DO_FETCH ? WN_WAY_IN : -1;
}
/* Returns whether an instruction issues a node: by a kernel, or by an exchange. */
static inline int32_t wn__instr_is_node(const struct wn__instr *n)
{
    return n->what == WN_DO_RUN || n->what == WN_DO_EXCHANGE;
}
/* Returns whether what an exchange brings may come behind the program: everybody's ranges of a parameter, which the
 * next program that uses it waits for (run/issue/exchange.c). Those that a team exchanges next are waited for here, and
 * what goes through the host. */
static inline int32_t wn__instr_is_late(const struct wn__ir *ir, const struct wn__instr *n)
{
    const struct wn__ir_node *p = &ir->node[n->node];
    return p->op == WN_OP_REFRESH && ir->cell[p->cell[0]].kind == WN_KIND_PARAMETER && ir->target->is_unified_memory &&
           p->attrs.i[WN_RANKS_GROUP] != WN_GROUP_ACROSS;
}
/* Returns whether an instruction makes a value or changes a state, now or until it is waited for. */
static inline int32_t wn__instr_makes(const struct wn__instr *n)
{
    return wn__instr_has_kernel(n) || wn__instr_way(n) >= 0 || n->what == WN_DO_EXCHANGE;
}
/* An exchange of a device whose memory the host does not address goes through host memory: what leaves a value, then
 * the pieces that arrive; of a state the ranges of those who take part, of which the own one leaves. Returns the bytes
 * of the first part, and puts those of both. */
int64_t wn__staged_bytes(const struct wn__ir *ir, int32_t node, int64_t *both);
/* Returns the bytes of its space that an allocation keeps others out of: whole pages if it is paged. */
static inline int64_t wn__allocation_span(const struct wn__allocation *t)
{
    return t->is_paged ? wn__paged(t->bytes) : t->bytes;
}
/* Returns whether an allocation takes memory of the device: one of an offload buffer does only where that is host
 * memory and the device's memory is the host's. */
int32_t wn__allocation_counts(const struct wn__ir *ir, const struct wn__allocation *t);

/* Makes the schedule of a recipe: its instructions in order, without places and costs. Release it with
 * wn__schedule_unref. */
int32_t wn__lower(const struct wn__ir *ir, const struct wn__recipe *r, struct wn__schedule **out);
/* Gives an offset to every allocation of arena and offload buffers, which may be bytes of a slab until a gradient is
 * allocated there, and fills the heights. WN__PLACE_BOUND places nothing and fills the heights with the most bytes
 * alive at once; HASTILY tries the fewest orders of placing, FULLY the most. */
enum wn__place_effort { WN__PLACE_BOUND, WN__PLACE_HASTILY, WN__PLACE_ROUGHLY, WN__PLACE_FULLY };
extern int64_t wn__placed_boxes; /* boxes placed since the process began: specs measure work by it */
int32_t wn__place(const struct wn__ir *ir, struct wn__schedule *s, enum wn__place_effort effort);
/* Checks every rule of legality, and trusts nothing that made the schedule. WN_ILLEGAL names rule and instruction. */
int32_t wn__verify(const struct wn__ir *ir, const struct wn__schedule *s);
/* Fills summary, live, seconds and again. Calls no device. */
int32_t wn__simulate(const struct wn__ir *ir, struct wn__schedule *s);
/* Binds the kernels of a schedule that will run, which may take more workspace than ops ask for. */
typedef int32_t (*wn__bind_kernels)(const struct wn__ir *ir, struct wn__schedule *s);
/* Lowers a recipe, binds kernels (NULL: it will not run), places and simulates the schedule. On failure *out is
 * NULL. Release it with wn__schedule_unref. */
int32_t wn__compile(const struct wn__ir *ir, const struct wn__recipe *r, wn__bind_kernels bind,
                    enum wn__place_effort effort, struct wn__schedule **out);
/* Returns the bytes that a schedule with these heights reserves: states, slabs, arena, and inputs and results held. */
int64_t wn__reserved(const struct wn__ir *ir, const struct wn__schedule *s);
/* Fills bytes by kind. Row 0: before the first instruction; row i + 1: while instruction i runs, with its workspace,
 * or after it if it is a FREE. */
int32_t wn__simulate_kinds(const struct wn__ir *ir, const struct wn__schedule *s,
                           int64_t *rows /* (n + 1) x WN_KIND_COUNT */);
void wn__schedule_unref(struct wn__schedule *s);

/* ---- instruction.c: descriptions for kernels, of instructions and of the values that they make ---- */
/* Returns the bytes that a value takes of its space: whole pages of an offload buffer, else whole granules. */
int64_t wn__value_bytes(const struct wn__ir *ir, const struct wn__value *c);
/* Room for the description of an application that is not a node's own. */
struct wn__applied {
    struct wn_desc desc;
    struct wn_type in;
    struct wn__memory_order order;
};
/* Returns a description of what an instruction with a kernel applies. It points into `room`, which the caller keeps. */
const struct wn_desc *wn__instr_desc(const struct wn__ir *ir, const struct wn__schedule *s, const struct wn__instr *n,
                                     struct wn__applied *room);
/* Returns that description as the kernel gets it (base/memory_order.h). */
const struct wn_desc *wn__instr_kernel_desc(const struct wn__ir *ir, const struct wn__schedule *s,
                                            const struct wn__instr *n, struct wn__applied *room);
/* Returns how many values an instruction names as its inputs; a FREE and a READ name none. */
int32_t wn__instr_n_in(const struct wn__ir *ir, const struct wn__instr *n);
/* Returns the bytes that an instruction makes which issues a node, packs or unpacks, not rounded. */
int64_t wn__instr_bytes(const struct wn__ir *ir, const struct wn__schedule *s, const struct wn__instr *n);
#endif
