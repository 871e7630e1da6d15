/* Simulates a schedule of a table of stages: the reference memory model. It takes the schedule operation by operation,
 * refuses an illegal one, and returns its time and its peak bytes. It shares no code with the solver.
 *
 * a_0 is live until the end. Of stage i at most one of a_i (bare) and its saved set (which contains a_i) is held. d_i
 * is live from the end of B i+1 to the end of B i; the seed d_n is live during B n only. `live`: all these bytes before
 * the operation starts.
 *
 *   operation   needs                              bytes during it                        afterwards
 *   F i         a_{i-1}; nothing held of i         live + out + fwd_tmp of the stage      a_i held, the input kept
 *   Fe i o      a_{i-1}; no saved set of i         live + saved + fwd_tmp of option o     the set held (a_i in it)
 *   B i         i is next; its set; a_{i-1}        live [+ d_n, i = n] + d_{i-1}          the set, d_i and a bare
 *                                                  + bwd_tmp of its option + wgrad        a_{i-1}, i > 1, are gone
 *   Free i      something held of i                -                                      gone
 *   Shrink i    the saved set of i                 -                                      only a_i held
 *
 * a_{i-1} may be bare or in a saved set. A schedule is complete with B 1. */
#include "../../runtime/base/alloc.h"
#include "../../runtime/base/status.h"
#include "chain_tables.h"

enum { NOTHING = -2, BARE = -1 }; /* what is held of a stage; 0 and above: the saved set of that option */

/* A simulation. Invariant: live is input_bytes, plus what is held, plus the gradients that are live. */
struct replay {
    const struct chain *c;
    int32_t *held;                 /* (n_stages + 1) by stage: NOTHING, BARE or an option; BARE of the input, 0 */
    int32_t next;                  /* the stage whose B is due; 0: the schedule is complete */
    int64_t live, peak;            /* bytes */
    int64_t time;                  /* so far */
    int32_t at;                    /* number of the operation, from 1 */
    const struct wn__chain_op *op; /* the operation */
};

static const struct chain_stage *stage_of(const struct chain *c, int32_t i)
{
    return &c->stage[i - 1];
}

static const struct chain_option *option_of(const struct chain *c, int32_t i, int32_t option)
{
    return &c->option[stage_of(c, i)->first + option];
}

static int64_t grad_of(const struct chain *c, int32_t i)
{
    return i == 0 ? c->input_grad_bytes : stage_of(c, i)->grad_bytes;
}

static int64_t held_bytes(const struct replay *r, int32_t i)
{
    if (r->held[i] == NOTHING) return 0;
    return r->held[i] == BARE ? stage_of(r->c, i)->out_bytes : option_of(r->c, i, r->held[i])->saved_bytes;
}

static const char *const names[] = {"F", "Fe", "B", "Free", "Shrink"};

static int32_t refuse(const struct replay *r, const char *rule)
{
    return wn__fail(WN_ILLEGAL, "operation %d (%s %d): %s", r->at, names[r->op->what], r->op->stage, rule);
}

/* Makes `what` the only thing held of stage i. */
static void hold(struct replay *r, int32_t i, int32_t what)
{
    r->live -= held_bytes(r, i);
    r->held[i] = what;
    r->live += held_bytes(r, i);
}

/* Counts the time of an operation, and the peak with `extra` bytes above what is live. */
static int32_t run_for(struct replay *r, int64_t extra, int64_t time)
{
    if (__builtin_add_overflow(r->time, time, &r->time) || r->time >= WN__CHAIN_EXACT)
        return refuse(r, "the time adds up to 2^53 or more");
    if (r->live + extra > r->peak) r->peak = r->live + extra;
    return WN_OK;
}

static int32_t forward(struct replay *r, int32_t i)
{
    const struct chain_stage *s = stage_of(r->c, i);
    if (r->held[i - 1] == NOTHING) return refuse(r, "its input is not held");
    if (r->held[i] != NOTHING) return refuse(r, "its output is held already");
    WN_TRY(run_for(r, s->out_bytes + s->fwd_tmp_bytes, s->fwd_time));
    hold(r, i, BARE);
    return WN_OK;
}

static int32_t forward_saving(struct replay *r, int32_t i)
{
    if (r->op->option < 0 || r->op->option >= stage_of(r->c, i)->n_options)
        return refuse(r, "the stage has no such option");
    const struct chain_option *o = option_of(r->c, i, r->op->option);
    if (r->held[i - 1] == NOTHING) return refuse(r, "its input is not held");
    if (r->held[i] >= 0) return refuse(r, "its saved set is held already");
    WN_TRY(run_for(r, o->saved_bytes + o->fwd_tmp_bytes, o->fwd_time));
    hold(r, i, r->op->option);
    return WN_OK;
}

static int32_t backward(struct replay *r, int32_t i)
{
    const struct chain *c = r->c;
    if (i != r->next) return refuse(r, "it is not this stage's turn to go backward");
    if (r->held[i] < 0) return refuse(r, "its saved set is not held");
    if (r->held[i - 1] == NOTHING) return refuse(r, "its input is not held");
    const struct chain_option *o = option_of(c, i, r->held[i]);
    int64_t allocated = stage_of(c, i)->wgrad_bytes, seed = i == c->n_stages ? grad_of(c, i) : 0;
    WN_TRY(run_for(r, seed + grad_of(c, i - 1) + o->bwd_tmp_bytes + allocated, o->bwd_time));
    hold(r, i, NOTHING);
    if (i > 1 && r->held[i - 1] == BARE) hold(r, i - 1, NOTHING);
    r->live += grad_of(c, i - 1) + allocated - (grad_of(c, i) - seed);
    r->next = i - 1;
    return WN_OK;
}

static int32_t free_held(struct replay *r, int32_t i)
{
    if (r->held[i] == NOTHING) return refuse(r, "nothing of the stage is held");
    hold(r, i, NOTHING);
    return WN_OK;
}

static int32_t shrink(struct replay *r, int32_t i)
{
    if (r->held[i] < 0) return refuse(r, "its saved set is not held");
    hold(r, i, BARE);
    return WN_OK;
}

static int32_t replay_one(struct replay *r)
{
    int32_t i = r->op->stage;
    if (r->op->what < WN__CHAIN_F || r->op->what > WN__CHAIN_SHRINK)
        return wn__fail(WN_VALUE, "operation %d: there is no operation %d", r->at, r->op->what);
    if (i < 1 || i > r->c->n_stages) return refuse(r, "there is no such stage");
    switch (r->op->what) {
    case WN__CHAIN_F: return forward(r, i);
    case WN__CHAIN_FE: return forward_saving(r, i);
    case WN__CHAIN_B: return backward(r, i);
    case WN__CHAIN_FREE: return free_held(r, i);
    default: return shrink(r, i);
    }
}

int32_t chain_replay(const struct chain *c, int32_t n, const struct wn__chain_op *op, struct wn__chain_cost *out)
{
    struct replay r = {.c = c, .next = c->n_stages, .live = c->input_bytes, .peak = c->input_bytes};
    int32_t code = WN_OK;
    r.held = wn__alloc((c->n_stages + 1) * (int64_t)sizeof *r.held);
    if (r.held == NULL) return WN_OOM;
    r.held[0] = BARE;
    for (int32_t i = 1; i <= c->n_stages; i++) r.held[i] = NOTHING;
    for (int32_t k = 0; k < n && code == WN_OK; k++) {
        r.at = k + 1;
        r.op = &op[k];
        code = replay_one(&r);
    }
    wn__free(r.held);
    if (code == WN_OK && r.next > 0)
        code = wn__fail(WN_ILLEGAL, "the schedule ends after %d operations, before B %d", n, r.next);
    if (code == WN_OK) *out = (struct wn__chain_cost){r.peak, r.time};
    return code;
}
