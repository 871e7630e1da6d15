/* What the files of the chain solver share: the tables, and the one place where the recurrence is written down.
 * Windows and blocks count from 0 here, a window holding both its ends. See solve.c for what it all means. */
#ifndef WN_PLAN_CHAIN_SOLVE_H
#define WN_PLAN_CHAIN_SOLVE_H
#include "../../base/alloc.h"
#include "chain.h"
#include "step_function.h"

/* How the last block of a window stands at its start: 0 not run, else saved by one of its pending options. */
enum { WN__SOLVE_PENDING = 8, WN__SOLVE_VARIANTS = 1 + WN__SOLVE_PENDING };

/* One of all windows that are the same but for where they lie. */
struct wn__window {
    int32_t first, last;               /* where it was met first */
    int32_t kind;                      /* of its last block */
    int32_t child, sibling;            /* windows one block longer: the trie of strings of kinds; -1: none */
    int64_t least[WN__SOLVE_VARIANTS]; /* bytes; WN__STEP_NEVER: no such variant */
    int64_t slack[WN__SOLVE_VARIANTS];
    struct wn__step_function table[WN__SOLVE_VARIANTS];
};

struct wn__chain_solution {
    struct wn__pool pool;
    struct wn__chain_blocks chain; /* copies */
    int32_t *kind;                 /* (n) equal for blocks that are equal in every number */
    int32_t *pending;              /* (n, WN__SOLVE_PENDING) options; -1: none */
    int64_t *time_before;          /* (n + 1) sums of time, of born, over the blocks before */
    int64_t *born_before;
    int32_t *window_of; /* (n, n) first, last -> window */
    struct wn__window *window;
    int64_t n_windows, window_room;
    struct wn_chain_cost *points; /* the frontier, when solved; as many as the table of the whole has corners */
};

/* What is done first in a window:
 *   B  the last block, saved already: its backward
 *   E  keep: save the first block with `option`; what follows; its backward
 *   C  run to block `at` and keep its input only; from there on; then what is before, from the start
 *   D  as C, but save `at` with `option` on the way and let its input go: that is made again before B `at` */
enum wn__chain_move_kind { WN__MOVE_B, WN__MOVE_E, WN__MOVE_C, WN__MOVE_D };

struct wn__part {
    int32_t first, last, variant; /* first < 0: there is none */
    int64_t shift;                /* of the bytes are not for it */
};

struct wn__chain_move {
    int32_t kind, at, option;
    int64_t least, time, ties;
    struct wn__part then, last; /* done in this order */
};

/* All moves of a window: start, then next until it returns 0. */
struct wn__chain_moves {
    const struct wn__chain_solution *s;
    int32_t first, last, variant;
    int32_t option, at, pending; /* what comes next */
    int64_t gap, reach;
};
void wn__chain_moves_start(struct wn__chain_moves *w, const struct wn__chain_solution *s, int32_t first, int32_t last,
                           int32_t variant);
int32_t wn__chain_moves_next(struct wn__chain_moves *w, struct wn__chain_move *out);

/* A variant of a window that is there: a block may have fewer pending options. */
int32_t wn__solve_has(const struct wn__chain_solution *s, int32_t last, int32_t variant);
struct wn__window *wn__solve_window(const struct wn__chain_solution *s, int32_t first, int32_t last);
/* A move as a sum of step functions; only when the tables of its parts are filled. */
struct wn__step_sum wn__solve_sum(const struct wn__chain_solution *s, const struct wn__chain_move *m);
#endif
