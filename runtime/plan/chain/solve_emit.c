/* Makes a schedule from the solver's tables. A corner does not store the move that made it: the move is found again as
 * the one whose value is that of the table. So the tables stay small, and a schedule costs a few searches an
 * operation. */
#include "solve.h"
#include "../../base/status.h"

/* A schedule under way. Invariant: n <= room, the operations that the table counted for the whole schedule. */
struct emitter {
    const struct wn__chain_solution *s;
    struct wn__chain_op *op; /* (n) */
    int32_t n, room;
    int32_t code; /* WN_OK, or the first failure */
};

static void put(struct emitter *e, int32_t what, int32_t block, int32_t option)
{
    if (e->n == e->room) WN_KEEP(e->code, wn__fail(WN_INTERNAL, "chain: more operations than the table counted"));
    else if (e->code == WN_OK) e->op[e->n++] = (struct wn__chain_op){what, block + 1, option};
}

/* Puts F first .. F end - 1, and frees each output but the last when the next one is there. */
static void put_run(struct emitter *e, int32_t first, int32_t end)
{
    for (int32_t i = first; i < end; i++) {
        put(e, WN_STEP_F, i, 0);
        if (i > first) put(e, WN_STEP_FREE, i - 1, 0);
    }
}

/* Finds a move of the part whose value at the corner's bytes is the corner. Returns 0 if there is none. */
static int32_t find_move(const struct wn__chain_solution *s, const struct wn__part *p, const struct wn__corner *corner,
                         struct wn__chain_move *out)
{
    struct wn__chain_moves moves;
    struct wn__corner value;
    wn__chain_moves_start(&moves, s, p->first, p->last, p->variant);
    while (wn__chain_moves_next(&moves, out)) {
        struct wn__step_sum sum = wn__solve_sum(s, out);
        if (wn__step_sum_at(&sum, corner->bytes, &value) && value.time == corner->time && value.ties == corner->ties)
            return 1;
    }
    return 0;
}

/* Puts the schedule of a part with m bytes. The recursion is at most 2 * n deep, as each part of a part is shorter or
 * has its last block pending. */
static void put_part(struct emitter *e, const struct wn__part *p, int64_t m)
{
    if (p->first < 0 || e->code != WN_OK) return;
    const struct wn__step_function *table = &wn__solve_window(e->s, p->first, p->last)->table[p->variant];
    int32_t i = wn__step_function_find(table, m - p->shift);
    struct wn__chain_move move;
    if (i < 0 || !find_move(e->s, p, &table->at[i], &move)) {
        WN_KEEP(e->code, wn__fail(WN_INTERNAL, "chain: no move has the value of the table"));
        return;
    }
    m = table->at[i].bytes;
    if (move.kind == WN__MOVE_C || move.kind == WN__MOVE_D) put_run(e, p->first, move.at);
    if (move.kind == WN__MOVE_D || move.kind == WN__MOVE_E) put(e, WN_STEP_FE, move.at, move.option);
    if (move.kind == WN__MOVE_D) put(e, WN_STEP_FREE, move.at - 1, 0);
    put_part(e, &move.then, m);
    if (move.kind == WN__MOVE_B || move.kind == WN__MOVE_E) put(e, WN_STEP_B, move.at, 0);
    put_part(e, &move.last, m);
}

int32_t wn__chain_schedule(struct wn__chain_solution *s, int64_t budget, struct wn__chain_op **out, int32_t *n)
{
    const struct wn__chain_cost *points;
    int32_t count;
    if (budget < wn__chain_least(s))
        return wn__fail(WN_VALUE, "chain: no schedule fits %lld bytes; the least is %lld", (long long)budget,
                        (long long)wn__chain_least(s));
    WN_TRY(wn__chain_frontier(s, &points, &count));
    struct wn__part whole = {0, s->chain.n - 1, 0, 0};
    const struct wn__step_function *table = &wn__solve_window(s, 0, s->chain.n - 1)->table[0];
    int32_t room = (int32_t)(table->at[wn__step_function_find(table, budget - s->chain.outside)].ties & 0xffffffff);
    struct emitter e = {.s = s, .room = room, .op = wn__alloc(room * (int64_t)sizeof *e.op)};
    if (e.op == NULL) return WN_OOM;
    put_part(&e, &whole, budget - s->chain.outside);
    if (e.code != WN_OK) {
        wn__free(e.op);
        return e.code;
    }
    *out = e.op;
    *n = e.n;
    return WN_OK;
}
