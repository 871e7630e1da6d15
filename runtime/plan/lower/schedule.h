/* The schedule: the linear list of instructions a run executes as written, with every byte's place. Immutable
 * once made; shared by every key whose IR and recipe agree. Also the doors of the rooms that make it. */
#ifndef WN_PLAN_LOWER_SCHEDULE_H
#define WN_PLAN_LOWER_SCHEDULE_H
#include "../../../kernels/kernel.h"
#include "../recipe/recipe.h"

enum wn__what {
    WN_DO_RUN,
    WN_DO_FREE,
    WN_DO_READ,    /* a 0-d result to the host */
    WN_DO_PACK,    /* a value to the IR it is kept in */
    WN_DO_UNPACK,  /* and back, as a copy of its own */
    WN_DO_OFFLOAD, /* starts moving a value to a depot */
    WN_DO_FETCH,   /* starts moving it back, as a copy of its own */
    WN_DO_WAIT,    /* until a move has ended: nothing may write what moves out or touch what moves in before */
    WN_DO_COUNT
};
enum wn__space {
    WN_SPACE_ARENA,
    WN_SPACE_SLAB,
    WN_SPACE_CELL,
    WN_SPACE_GIVEN,
    WN_SPACE_RESULT,
    WN_SPACE_HOST, /* the depots of offloaded values: placed like the arena, each by itself */
    WN_SPACE_DISK
};

/* A stretch of bytes with one lifetime. Successive values may live in one allocation: each overwrites the last. */
struct wn__allocation {
    int32_t space, slot; /* SLAB: slab; CELL, GIVEN, RESULT: slot; ARENA: - */
    int32_t kind;        /* WN_KIND_ it is accounted under */
    int32_t first, last; /* instructions between which it is taken; leaves: whole program */
    int32_t pinned;      /* holds something that outlives the program, or was there before it */
    int32_t is_paged;    /* moved out or in: it starts on a page, and the rest of its last page is its own */
    int64_t offset, bytes;
};
/* One issue of a node: its value in an allocation, or what an action made of it. Two copies of a node are two values. */
struct wn__copy {
    int32_t node, allocation;
    int32_t away; /* action that made it (action.h); 0: the value itself, */
    int32_t back; /* or what came back from this action; 0: computed */
    int64_t at;   /* offset in the allocation: scalars share one */
};
struct wn__instr {
    int32_t what, node, phase, block;
    int32_t out;     /* copy made, or -1 for an effect or a WAIT; READ: copy read; FREE: allocation freed */
    int32_t inplace; /* input whose allocation the output takes over, or -1 */
    int32_t in_at;   /* copies of the inputs, schedule->in[in_at ..); WAIT: where it moves from, and where to */
    int32_t move;    /* OFFLOAD, FETCH: its number; WAIT: of which */
    int32_t recompute;
    int32_t cell[3];   /* effects: allocations of the cells written, or -1 */
    int32_t work_slab; /* where its workspace lies: a slab, or -1 for the arena */
    int64_t work_offset, work_bytes;
    wn_kernel_fn kernel;
    struct wn_made *made; /* what a library computes it with, or NULL */
};

struct wn__schedule {
    struct wn__pool pool;
    int32_t refs, n, n_copies, n_allocations, n_in;
    struct wn__instr *instr;
    struct wn__copy *copy;
    struct wn__allocation *allocation;
    int32_t *in;
    int32_t *result_allocation;    /* (n_results) of the IR; -1: 0-d, read to the host */
    int32_t scalars;               /* allocation of the host's numbers, or -1 */
    int64_t arena;                 /* height */
    int64_t lent;                  /* bytes of gradient slabs that activations use */
    int64_t depot[WN_PLACE_COUNT]; /* heights */
    int32_t n_moves;
    struct wn_summary summary;
    int64_t *live;   /* (n) after each instruction, as simulated */
    double *seconds; /* (n) of each, as the summary adds them; of a WAIT, what is not hidden */
    uint8_t *again;  /* (n) whether it reads a value that was computed again */
    char *recipe;    /* as text, of a schedule that stands in the cache; else NULL */
    uint8_t *key2;
    int64_t key2_bytes;
    int32_t *node_copies; /* (ir->n) how often each was issued */
    int32_t *node_away;   /* (ir->n) action that took it away; 0: none */
    int32_t n_blocks;
};

static inline int32_t wn__instr_has_kernel(const struct wn__instr *n)
{
    return n->what == WN_DO_RUN || n->what == WN_DO_PACK || n->what == WN_DO_UNPACK;
}

/* What an instruction moves, and which way; -1: nothing. */
static inline int32_t wn__instr_way(const struct wn__instr *n)
{
    return n->what == WN_DO_OFFLOAD ? WN_WAY_OUT : n->what == WN_DO_FETCH ? WN_WAY_IN : -1;
}
/* The bytes of its space that are an allocation's alone. */
static inline int64_t wn__allocation_span(const struct wn__allocation *t)
{
    return t->is_paged ? wn__paged(t->bytes) : t->bytes;
}
/* Whether an allocation's bytes are the device's: those of a disk never are, those of the host where it is the device. */
int32_t wn__allocation_counts(const struct wn__ir *f, const struct wn__allocation *t);

/* lower.c: IR + recipe -> instructions without places. */
int32_t wn__lower(const struct wn__ir *f, const struct wn__recipe *r, struct wn__schedule **out);
/* place.c: offsets for every allocation of the arena, borrowing unborn gradients' intervals, and the heights. BOUND: places
 * nothing, and fills the heights with the most bytes alive at once. FULLY tries the most orders of placing, ROUGHLY fewer,
 * HASTILY fewest. */
enum wn__place_effort { WN__PLACE_BOUND, WN__PLACE_HASTILY, WN__PLACE_ROUGHLY, WN__PLACE_FULLY };
extern int64_t wn__placed_boxes; /* ever, each time one was placed: specs count work by it */
int32_t wn__place(const struct wn__ir *f, struct wn__schedule *s, enum wn__place_effort effort);
/* verify.c: every rule of legality; WN_ILLEGAL names the rule and the instruction. */
int32_t wn__verify(const struct wn__ir *f, const struct wn__schedule *s);
/* simulate.c: fills the summary; calls no device. */
int32_t wn__simulate(const struct wn__ir *f, struct wn__schedule *s);
/* Binds the kernels of a schedule that will run, which may take more workspace than ops ask for. */
typedef int32_t (*wn__bind_kernels)(const struct wn__ir *f, struct wn__schedule *s);
/* compile.c: lowers a recipe, binds kernels (NULL: it will not run), places and simulates the schedule. On failure *out is
 * NULL. Release it with wn__schedule_unref. */
int32_t wn__compile(const struct wn__ir *f, const struct wn__recipe *r, wn__bind_kernels bind,
                    enum wn__place_effort effort, struct wn__schedule **out);
/* Returns the bytes that a schedule with these heights reserves: states, slabs, arena, and inputs and results held. */
int64_t wn__reserved(const struct wn__ir *f, const struct wn__schedule *s);
/* Adds up the bytes by kind instead. Row 0: before the first instruction; row i + 1: while instruction i runs,
 * its workspace among them (what frees: after it). */
int32_t wn__simulate_kinds(const struct wn__ir *f, const struct wn__schedule *s,
                           int64_t *rows /* (n + 1) x WN_KIND_COUNT */);
void wn__schedule_unref(struct wn__schedule *s);

/* What a cell of the IR takes while the program runs, whoever asks: the state's share of live bytes. */
int64_t wn__state_bytes(const struct wn__ir *f, int64_t *kinds /* (WN_KIND_COUNT) or NULL */);
#endif
