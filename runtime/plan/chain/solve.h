/* The chain solver's windows, moves and tables, shared by solve.c (tables), solve_moves.c (the recurrence) and
 * solve_emit.c (schedules). solve.c explains the recurrence. Blocks count from 0 here; window first .. last contains
 * both. */
#ifndef WN_PLAN_CHAIN_SOLVE_H
#define WN_PLAN_CHAIN_SOLVE_H
#include "../../base/alloc.h"
#include "chain.h"
#include "step_function.h"

/* The variant of a window says what is held of its last block at the start: 0: nothing; v: the saved set of its pending
 * option v - 1. */
enum { WN__SOLVE_PENDING = 8, WN__SOLVE_VARIANTS = 1 + WN__SOLVE_PENDING };

/* One window for all that have the same string of kinds of blocks. Invariant: the windows that its moves lead to have
 * smaller numbers, or are the window itself with another variant. */
struct wn__window {
    int32_t first, last;               /* the first such window of the chain */
    int32_t kind;                      /* of its last block */
    int32_t child, sibling;            /* the trie of strings of kinds: first window with one block more; next such
                                          window of the same prefix; -1: none */
    int64_t least[WN__SOLVE_VARIANTS]; /* least bytes of the variant; WN__STEP_NEVER: there is no such variant */
    struct wn__step_function table[WN__SOLVE_VARIANTS]; /* T(first, last, variant) */
};

/* A chain with its windows. Invariant: points != NULL only if the tables of all windows are made. */
struct wn__chain_solution {
    struct wn__pool pool;
    struct wn__chain_blocks chain; /* of the caller's arrays */
    int32_t *kind;                 /* (n) the first block with the same numbers */
    int32_t *pending;              /* (n, WN__SOLVE_PENDING) options of each block that may be pending; -1: none */
    int64_t *time_before;          /* (n + 1) sum of `time` of the blocks before */
    int64_t *allocated_before;     /* (n + 1) sum of `allocated` of the blocks before */
    int32_t *window_of;            /* (n, n) number of window first .. last, at first * n + last */
    struct wn__window *window;     /* (n_windows) */
    int64_t n_windows, window_room;
    struct wn__chain_cost *points; /* the frontier, by corner of the whole chain's table; NULL: not solved yet */
};

/* The first operations of a schedule of a window:
 *   B  the backward of its only block, which is saved already
 *   E  Fe of the first block with `option`; then the blocks behind it; then B of the first block
 *   C  F up to block at - 1, of which only the output is kept; then the window from `at`; then the window before `at`
 *   D  as C, but with Fe of block `at` by `option`, and without its input, which is computed again before B of `at` */
enum wn__chain_move_kind { WN__MOVE_B, WN__MOVE_E, WN__MOVE_C, WN__MOVE_D };

/* A window that a move leaves to be scheduled. */
struct wn__part {
    int32_t first, last, variant; /* first < 0: there is none */
    int64_t shift;                /* bytes of the whole window's budget that this part may not use */
};

/* A move of a window: what it costs, and the two parts that it leaves, in the order in which they run. */
struct wn__chain_move {
    int32_t kind;       /* enum wn__chain_move_kind */
    int32_t at, option; /* block; its option, -1 of C */
    int64_t least;      /* bytes that the move itself needs */
    int64_t time, ties; /* of its own operations; ties as in struct wn__corner */
    struct wn__part then, last;
};

/* An iterator over all moves of a window. */
struct wn__chain_moves {
    const struct wn__chain_solution *s;
    int32_t first, last, variant; /* the window */
    int32_t option, at, pending;  /* the next E has `option`; the next C or D has `at`, D with variant `pending` */
    int64_t gap;   /* bytes that are live while the window runs forward: d of `last`, and its saved set */
    int64_t reach; /* bytes to run forward from `first` to the input of `at` */
};
/* Starts the iterator at the first move of a window. */
void wn__chain_moves_start(struct wn__chain_moves *w, const struct wn__chain_solution *s, int32_t first, int32_t last,
                           int32_t variant);
/* Fills the next move. Returns 0 when there is none. */
int32_t wn__chain_moves_next(struct wn__chain_moves *w, struct wn__chain_move *out);

/* Returns whether windows that end with block `last` have the variant: a block may have fewer pending options. */
int32_t wn__solve_has(const struct wn__chain_solution *s, int32_t last, int32_t variant);
/* Returns the window that has the string of kinds of blocks first .. last. */
struct wn__window *wn__solve_window(const struct wn__chain_solution *s, int32_t first, int32_t last);
/* Returns a move's time as a sum of step functions. Requires that the tables of its parts are made. */
struct wn__step_sum wn__solve_sum(const struct wn__chain_solution *s, const struct wn__chain_move *m);
#endif
