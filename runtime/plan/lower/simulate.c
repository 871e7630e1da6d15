/* The simulator: predicts what a schedule takes, in bytes by kind and in seconds by the cost rules, instruction by
 * instruction. It is pure: a run is held to its numbers, and the run's own account (run/measure.c) shares no code
 * with it. */
#include <string.h>
#include "../recipe/action.h"
#include "../ir/costs.h"
#include "schedule.h"

struct sim {
    const struct wn__ir *ir;
    const struct wn__schedule *s;
    struct wn_summary *sum;
    int64_t *after;      /* (n) bytes alive after each instruction; NULL: not asked for */
    double *each;        /* (n) seconds of each instruction; NULL: not asked for */
    int64_t *rows;       /* (n + 1) x WN_KIND_COUNT bytes, as wn__simulate_kinds fills; NULL: not asked for */
    uint8_t *alive;      /* (n_allocations) 1: its bytes are in use */
    uint8_t *made_again; /* (n_values) 1: the value was computed again; NULL: nobody asked for seconds */
    int64_t kinds[WN_KIND_COUNT], live;
    int32_t in_backward;
    double seconds, base_seconds, measured;
    double lane[WN_MEDIUM_COUNT][WN_WAY_COUNT]; /* the second at which each link can start its next transfer */
    double ranks_lane;                          /* the same of the link to other ranks */
    double late;                                /* the second at which all has come that is not waited for here */
    double late_first;                          /* the same of the first of it */
    double late_longest, late_takes;            /* seconds of the longest exchange of it, and of all */
    double *ends;                               /* (n_moves) the second at which each transfer has ended */
};

/* Returns the bytes of the cells that hold a value before the program starts, all but gradients that it allocates, and
 * adds them to `kinds`, (WN_KIND_COUNT) or NULL. */
static int64_t state_bytes(const struct wn__ir *ir, int64_t *kinds)
{
    int64_t bytes = 0;
    for (int32_t i = 0; i < ir->n_cells; i++) {
        if (ir->cell[i].kind == WN_KIND_GRADIENT && ir->cell[i].slab >= 0) continue;
        bytes += ir->cell[i].bytes;
        if (kinds != NULL) kinds[ir->cell[i].kind] += ir->cell[i].bytes;
    }
    return bytes;
}

static void move(struct sim *m, int32_t kind, int64_t bytes)
{
    m->kinds[kind] += bytes;
    m->live += bytes;
}

static void note_peak(struct sim *m)
{
    struct wn_summary *sum = m->sum;
    int32_t stage = m->in_backward ? 3 : 2; /* peak_forward, peak_backward */
    if (m->live > sum->at[stage]) sum->at[stage] = m->live;
    if (m->live <= sum->peak) return;
    sum->peak = m->live;
    memcpy(sum->peak_kinds, m->kinds, sizeof sum->peak_kinds);
}

static double bytes_moved(const struct sim *m, const struct wn__instr *n)
{
    struct wn__applied room;
    return wn__op_cost(wn__instr_desc(m->ir, m->s, n, &room)).bytes;
}

static int32_t reads_again(const struct sim *m, const struct wn__instr *n)
{
    if (m->made_again == NULL || n->what != WN_DO_RUN) return 0;
    for (int32_t k = 0; k < m->ir->node[n->node].n_in; k++) {
        int32_t value = m->s->in[n->in_at + k];
        if (value >= 0 && m->made_again[value]) return 1;
    }
    return 0;
}

/* Returns the seconds of an instruction with a kernel. Those of a node were found when its IR was made. */
static double kernel_seconds(const struct sim *m, const struct wn__instr *n, int32_t *is_measured)
{
    struct wn__applied room;
    *is_measured = m->ir->is_measured != NULL && m->ir->is_measured[n->node];
    const double *of = reads_again(m, n) ? m->ir->seconds_again : m->ir->seconds;
    return n->what == WN_DO_RUN ? of[n->node]
                                : wn__desc_seconds(m->ir, wn__instr_desc(m->ir, m->s, n, &room), is_measured);
}

/* Returns whether an instruction assigns a gradient that was made in its cell: such an assignment moves nothing. */
static int32_t is_there(const struct sim *m, const struct wn__instr *n)
{
    return n->what == WN_DO_RUN && m->ir->node[n->node].op == WN_OP_ASSIGN &&
           m->s->value[m->s->in[n->in_at]].allocation == n->cell[0];
}

static void make_alive(struct sim *m, int32_t allocation)
{
    const struct wn__allocation *t = &m->s->allocation[allocation];
    if (m->alive[allocation]) return;
    m->alive[allocation] = 1;
    if (wn__allocation_counts(m->ir, t)) move(m, t->kind, t->bytes);
}

static void note_row(const struct sim *m, int32_t row)
{
    if (m->rows != NULL) memcpy(m->rows + (int64_t)row * WN_KIND_COUNT, m->kinds, sizeof m->kinds);
}

/* Returns sum + more; INT64_MAX where that is 9e18 or larger, for values of the meta device may have any size. */
static int64_t add_within(int64_t sum, double more)
{
    return (double)sum + more < 9e18 ? sum + (int64_t)more : INT64_MAX;
}

/* Adds up an instruction with a kernel: its seconds, its bytes, and the peak while it runs. */
static void run_instr(struct sim *m, int32_t i)
{
    const struct wn__instr *n = &m->s->instr[i];
    int32_t there = is_there(m, n), is_measured;
    double seconds = there ? 0 : kernel_seconds(m, n, &is_measured);
    m->seconds += seconds;
    m->measured += !there && is_measured ? seconds : 0;
    m->base_seconds += n->recompute || n->what != WN_DO_RUN || there ? 0 : m->ir->seconds[n->node];
    if (m->made_again != NULL) {
        m->s->again[i] = (uint8_t)reads_again(m, n);
        if (n->recompute && n->out >= 0) m->made_again[n->out] = 1;
    }
    m->sum->recomputed += n->recompute;
    m->sum->packed += n->what == WN_DO_PACK;
    m->sum->lossy += n->what == WN_DO_PACK && wn__action_is_lossy(m->s->value[n->out].action);
    if (!there) m->sum->moved = add_within(m->sum->moved, bytes_moved(m, n));
    move(m, WN_KIND_WORKSPACE, n->work_bytes);
    if (n->out >= 0) make_alive(m, m->s->value[n->out].allocation);
    /* An assignment by a copy allocates its gradient here; one made in its cell has its bytes since its value. */
    for (int32_t k = 0; k < 3; k++)
        if (n->cell[k] >= 0) make_alive(m, n->cell[k]);
    note_peak(m);
    note_row(m, i + 1);
    move(m, WN_KIND_WORKSPACE, -n->work_bytes);
}

int32_t wn__allocation_counts(const struct wn__ir *ir, const struct wn__allocation *t)
{
    return t->space < WN_SPACE_HOST || (t->space == WN_SPACE_HOST && ir->target->is_unified_memory);
}

/* Starts a transfer. A link is a resource beside the kernels: each direction of each place does one transfer after
 * the other. */
static void start_move(struct sim *m, int32_t i)
{
    const struct wn__instr *n = &m->s->instr[i];
    int32_t way = wn__instr_way(n), from = m->s->in[n->in_at];
    const struct wn__value *kept = &m->s->value[way == WN_WAY_OUT ? n->out : from];
    int32_t place = wn__action_medium(kept->action);
    int64_t bytes = m->s->allocation[kept->allocation].bytes;
    double takes = wn__move_seconds(m->ir, place, way, bytes), *lane = &m->lane[place][way];
    *lane = (*lane > m->seconds ? *lane : m->seconds) + takes;
    m->ends[n->move] = *lane;
    m->sum->move_seconds += takes;
    m->seconds += wn__move_share(m->ir, bytes);
    *(way == WN_WAY_OUT ? &m->sum->out : &m->sum->in) += bytes;
    make_alive(m, m->s->value[n->out].allocation);
    note_peak(m);
    note_row(m, i + 1);
}

/* Tells whether another exchange comes right before one: the link is started once for both. */
static int32_t goes_on(const struct sim *m, int32_t i)
{
    while (--i > 0 && m->s->instr[i].what == WN_DO_FREE) continue;
    return i >= 0 && m->s->instr[i].what == WN_DO_EXCHANGE;
}

/* Starts an exchange among ranks, which does one after the other too. Inside a machine its copies take memory from the
 * kernels beside it. */
static void start_exchange(struct sim *m, int32_t i)
{
    const struct wn__instr *n = &m->s->instr[i];
    struct wn__wire wire;
    wn__exchange_wire(m->ir, n->node, &wire);
    double takes = m->ir->seconds[n->node] - (goes_on(m, i) ? wn__exchange_start_seconds() : 0);
    m->ranks_lane = (m->ranks_lane > m->seconds ? m->ranks_lane : m->seconds) + takes;
    m->ends[n->move] = m->ranks_lane;
    m->sum->wire_seconds += takes;
    double share = wn__move_share(m->ir, wire.out[WN_LEVEL_INSIDE] + wire.in[WN_LEVEL_INSIDE]);
    m->seconds += share;
    m->base_seconds += share;
    for (int32_t level = 0; level < WN_LEVEL_COUNT; level++) {
        m->sum->wire_out[level] += wire.out[level];
        m->sum->wire_in[level] += wire.in[level];
    }
    if (n->out >= 0) make_alive(m, m->s->value[n->out].allocation);
    note_peak(m);
    note_row(m, i + 1);
}

static void wait_move(struct sim *m, const struct wn__instr *n)
{
    double stall = m->ends[n->move] - m->seconds;
    if (wn__instr_is_late(m->ir, n)) {
        double end = m->ends[n->move], takes = m->ir->seconds[n->node];
        if (m->late == 0 || end < m->late_first) m->late_first = end;
        if (end > m->late) m->late = end;
        if (takes > m->late_longest) m->late_longest = takes;
        m->late_takes += takes;
        return;
    }
    int32_t is_exchange = (wn__ir_flags(m->ir, n->node) & WN_LINK) != 0;
    if (stall < 0) stall = 0;
    m->seconds += stall;
    m->base_seconds += is_exchange ? stall : 0;
    *(is_exchange ? &m->sum->wait_seconds : &m->sum->stall_seconds) += stall;
}

static void free_allocation(struct sim *m, int32_t allocation)
{
    const struct wn__allocation *t = &m->s->allocation[allocation];
    m->alive[allocation] = 0;
    if (wn__allocation_counts(m->ir, t)) move(m, t->kind, -t->bytes);
}

/* Counts the bytes that are alive before the first instruction. */
static void start(struct sim *m)
{
    struct wn_summary *sum = m->sum;
    state_bytes(m->ir, m->kinds);
    for (int32_t k = 0; k < WN_KIND_COUNT; k++) m->live += m->kinds[k];
    sum->state = m->live;
    for (int32_t t = 0; t < m->s->n_allocations; t++) {
        const struct wn__allocation *st = &m->s->allocation[t];
        if (st->space == WN_SPACE_BOUND || t == m->s->scalars) make_alive(m, t);
        if (st->space == WN_SPACE_CELL) m->alive[t] = 1; /* its bytes are among the states already */
    }
    memcpy(sum->kinds, m->kinds, sizeof sum->kinds);
    sum->at[0] = m->live;
    note_peak(m);
    note_row(m, 0);
}

/* Adds up the whole schedule and fills m->sum, but for the fields that need no schedule. */
static int32_t walk(struct sim *m)
{
    const struct wn__schedule *s = m->s;
    memset(m->sum, 0, sizeof *m->sum);
    m->alive = wn__alloc(s->n_allocations + 1);
    m->ends = wn__alloc((s->n_moves + 1) * (int64_t)sizeof *m->ends);
    if (m->alive == NULL || m->ends == NULL) {
        wn__free(m->alive);
        wn__free(m->ends);
        return WN_OOM;
    }
    start(m);
    for (int32_t i = 0; i < s->n; i++) {
        const struct wn__instr *n = &s->instr[i];
        if (n->phase != WN_PHASE_FORWARD && !m->in_backward) {
            m->in_backward = 1;
            m->sum->at[1] = m->live; /* after_forward: the bytes alive right before the first backward instruction */
            m->sum->forward_seconds = m->seconds;
        }
        double before = m->seconds;
        if (wn__instr_has_kernel(n)) run_instr(m, i);
        else if (wn__instr_way(n) >= 0) start_move(m, i);
        else if (n->what == WN_DO_EXCHANGE) start_exchange(m, i);
        else if (n->what == WN_DO_WAIT) wait_move(m, n);
        else if (n->what == WN_DO_FREE) free_allocation(m, n->out);
        if (!wn__instr_makes(n)) note_row(m, i + 1);
        if (m->after != NULL) m->after[i] = m->live;
        if (m->each != NULL) m->each[i] = m->seconds - before;
    }
    if (!m->in_backward) m->sum->at[1] = m->live;
    if (!m->in_backward) m->sum->forward_seconds = m->seconds;
    m->sum->late_seconds = m->late > m->seconds ? m->late - m->seconds : 0;
    m->sum->late_first = m->late_first > m->seconds ? m->late_first - m->seconds : 0;
    if (m->late_takes > 0) m->sum->late_share = m->late_longest / m->late_takes;
    if (s->scalars >= 0) move(m, WN_KIND_WORKSPACE, -s->allocation[s->scalars].bytes);
    m->sum->at[4] = m->live;
    wn__free(m->alive);
    wn__free(m->ends);
    return WN_OK;
}

int64_t wn__reserved(const struct wn__ir *ir, const struct wn__schedule *s)
{
    int64_t bytes = state_bytes(ir, NULL) + s->arena;
    if (ir->target->is_unified_memory) bytes += s->offload_buffer[WN_MEDIUM_HOST];
    for (int32_t k = 0; k < ir->n_slabs; k++) bytes += ir->slab[k].bytes;
    for (int32_t i = 0; i < ir->n_cells; i++) bytes -= ir->cell[i].shares ? ir->cell[i].bytes : 0;
    for (int32_t t = 0; t < s->n_allocations; t++)
        if (s->allocation[t].space == WN_SPACE_BOUND || s->allocation[t].space == WN_SPACE_RESULT)
            bytes += s->allocation[t].bytes;
    return bytes;
}

static int64_t residual_bytes(const struct wn__ir *ir)
{
    int64_t bytes = 0;
    for (int32_t i = 0; i < ir->n_residuals; i++) bytes += ir->node[ir->residual[i]].bytes;
    return bytes;
}

int32_t wn__simulate(const struct wn__ir *ir, struct wn__schedule *s)
{
    struct wn_summary *sum = &s->summary;
    if (!WN_ARRAY(&s->pool, s->live, s->n) || !WN_ARRAY(&s->pool, s->seconds, s->n) ||
        !WN_ARRAY(&s->pool, s->again, s->n))
        return WN_OOM;
    uint8_t *made_again = wn__alloc(s->n_values + 1);
    if (made_again == NULL) return WN_OOM;
    struct sim m = {.ir = ir, .s = s, .sum = sum, .after = s->live, .each = s->seconds, .made_again = made_again};
    int32_t code = walk(&m);
    wn__free(made_again);
    if (code != WN_OK) return code;
    sum->reserved = wn__reserved(ir, s);
    sum->arena = s->arena;
    sum->host = s->offload_buffer[WN_MEDIUM_HOST] + s->offload_buffer[WN_MEDIUM_RANKS];
    sum->disk = s->offload_buffer[WN_MEDIUM_DISK];
    sum->seconds = m.seconds;
    sum->base_seconds = m.base_seconds;
    sum->measured_seconds = m.measured;
    sum->nodes = ir->n;
    sum->instructions = s->n;
    sum->residuals = ir->n_residuals;
    sum->blocks = s->n_blocks;
    sum->device = ir->device;
    sum->activation_bytes = residual_bytes(ir);
    sum->lent = s->lent;
    return WN_OK;
}

int32_t wn__simulate_kinds(const struct wn__ir *ir, const struct wn__schedule *s, int64_t *rows)
{
    struct wn_summary sum;
    struct sim m = {.ir = ir, .s = s, .sum = &sum, .rows = rows};
    return walk(&m);
}
