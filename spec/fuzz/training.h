/* Draws how a network is trained and how the training is planned. */
#ifndef WN_FUZZ_TRAINING_H
#define WN_FUZZ_TRAINING_H
#include "look.h"
#include "recipe.h"

/* A training: the fields of struct wn_request that the driver draws, `update` (0 sgd, 1 momentum, 2 adam), `is_updated`
 * (an update takes the gradients that a backward leaves) and `touched` (the states have values before). */
struct training {
    int32_t mode, two_roots, joint, again, update, is_updated, touched;
    double scale, clip;
};
/* How a training differs from the reference, whose bytes it must give unless lossy is set. plan: bytes that the plan is
 * drawn from; NULL: everything is saved. policy: the number that tells its plan from others in the cache. */
struct variant {
    struct bytes *plan;
    int32_t lossy, planned_only;
    int64_t policy;
};

/* ---- requests ---------------------------------------------------------------------------------------------------- */

static int32_t open_update(struct net *w, int32_t kind, struct wn_request *r, struct wn_update *u)
{
    static const char *const ops[] = {"sgd", "momentum", "adam"};
    int32_t n = 0;
    struct wn_info info;
    for (int32_t i = 0; i < w->n_cells; i++) {
        if (wn_info(w->cell[i], &info) != 0 || !info.needs_grad) continue;
        if (r->mode == WN_RUN_UPDATE && (wn_cell_state(w->cell[i]) & 2) == 0) continue;
        u[n++] = (struct wn_update){wn_op_id(ops[kind]),
                                    {w->cell[i], kind > 0 ? w->state[i][0] : -1, kind > 1 ? w->state[i][1] : -1},
                                    w->hyper};
    }
    r->updates = u;
    r->n_updates = n;
    return n;
}

static int32_t open_program(struct net *w, const struct training *t, int64_t policy)
{
    int32_t roots[2] = {w->loss, w->loss}, cells[2] = {w->cell[0], w->cell[3]};
    struct wn_update u[NET_CELLS];
    struct wn_request r = {.mode = t->mode, .n_roots = 1, .roots = roots, .cells = cells, .joint = t->joint};
    r.again = t->again;
    r.scale = t->scale;
    r.clip = t->mode == WN_RUN_STEP ? t->clip : 0;
    r.policy = policy;
    if (t->two_roots && w->n > 1) {
        roots[1] = net_mean(w, w->value[w->n / 2]);
        r.n_roots = 2;
    }
    if (t->mode == WN_RUN_ASSIGN) {
        struct wn_type type;
        for (int32_t i = 0; i < 2; i++) {
            if (!net_type(cells[i], &type)) return -1;
            roots[i] =
                net_cast(w, net_two(w, "mul", cells[i], net_own(w, wn_const(&t->scale, 0, type.dtype))), type.dtype);
        }
        r.n_roots = r.n_cells = 2;
    }
    if (t->mode == WN_RUN_STEP) open_update(w, t->update, &r, u);
    return net_own(w, wn_open(&r));
}

/* Runs an update from the gradients that exist, and adds the states to o. */
static void update_after(struct net *w, const struct training *t, struct outcome *o)
{
    struct wn_update u[NET_CELLS];
    struct wn_request r = {.mode = WN_RUN_UPDATE, .scale = 1};
    if (t->mode != WN_RUN_BACKWARD || !t->is_updated) return;
    if (open_update(w, t->update, &r, u) == 0) return;
    int32_t p = net_own(w, wn_open(&r));
    expect(p >= 0 && wn_plan(p) == 0, "gradients that are there update their states");
    check_plan(p);
    expect(wn_run(p) == 0, "an update runs");
    check_run(p);
    put_state(o, w);
}

/* ---- decisions --------------------------------------------------------------------------------------------------- */

static int32_t draw_decision(struct variant *v)
{
    static const int32_t exact[] = {WN_DECISION_NONE,    WN_DECISION_SAVE,         WN_DECISION_RECOMPUTE,
                                    WN_DECISION_OFFLOAD, WN_DECISION_OFFLOAD_DISK, WN_DECISION_OFFLOAD_HOST,
                                    WN_DECISION_BITS};
    static const int32_t lossy[] = {WN_DECISION_BF16, WN_DECISION_INT8};
    uint8_t n = take(v->plan);
    return v->lossy && n > 128 ? lossy[n % 2] : exact[n % 7];
}

static void draw_words(int32_t p, struct variant *v)
{
    int32_t n = wn_count(p, WN_COUNT_RESIDUALS), all = take(v->plan) < 60 ? draw_decision(v) : -1;
    for (int32_t i = 0; i < n; i++) {
        int32_t decision = all >= 0 ? all : draw_decision(v);
        expect(wn_decide(p, i, decision) == 0, "every word can be said of every residual");
    }
}

static void draw_units(int32_t p, struct variant *v)
{
    int32_t n = wn_count(p, WN_COUNT_NODES), unit = 0;
    for (int32_t i = 0; i < n; i++) {
        uint8_t how = take(v->plan);
        if (how > 200 && unit < n) {
            unit++;
            if (unit > 1 && how > 225) expect(wn_mark_parent(p, unit, 1 + how % (unit - 1)) == 0, "units nest");
        }
        if (how > 20) expect(wn_mark(p, i, unit) == 0, "every node can be marked");
    }
    if (take(v->plan) & 1) draw_words(p, v);
}

static void draw_candidate(int32_t p, struct variant *v)
{
    static int32_t unit[4096], decision[4096];
    int32_t n = wn_count(p, WN_COUNT_NODES), at = -1;
    if (n > 4096) return;
    for (int32_t i = 0; i < n; i++) {
        uint8_t how = take(v->plan);
        if (how > 200 && at < n) at++;
        unit[i] = at;
        decision[i] = how % 3;
    }
    expect(wn_candidate(p, "drawn", n, unit, NULL, take(v->plan) & 1 ? decision : NULL) == 0, "a candidate is taken");
    expect(wn_count(p, WN_COUNT_CANDIDATES) == 1, "a candidate is counted");
}

/* Draws a point of the frontier and chooses it. Returns 0, or the status of the call that failed. */
static int32_t draw_point(int32_t p, struct variant *v, struct wn_point *out)
{
    int32_t n;
    static const int32_t words[] = {WN_DECISION_OFFLOAD, WN_DECISION_OFFLOAD_HOST, WN_DECISION_BITS, WN_DECISION_BF16,
                                    WN_DECISION_INT8};
    for (int32_t k = 0; k < (v->lossy ? 5 : 3); k++)
        if (take(v->plan) & 1) expect(wn_allow(p, words[k]) == 0, "an action is allowed");
    if (take(v->plan) & 1) draw_units(p, v);
    if (take(v->plan) & 1) draw_candidate(p, v);
    n = wn_frontier(p, NULL);
    if (n < 0) return refused(n);
    for (int32_t i = 0; i < n; i++) {
        struct wn_point before = *out;
        expect(wn_point(p, i, out) == 0, "every point can be looked at");
        expect(i == 0 || (out->seconds >= before.seconds && out->reserved <= before.reserved), "points are in order");
    }
    int32_t i = take(v->plan) % n;
    expect(wn_point(p, i, out) == 0 && wn_choose(p, i) == 0, "every point can be chosen");
    return 0;
}

/* Gives program p the recipe of another plan of the same request, unchanged or with changed numbers. Returns the
 * text of an unchanged recipe, else NULL. */
static const char *draw_recipe(struct net *w, const struct training *t, int32_t p, struct variant *v)
{
    static char text[1 << 18];
    static struct recipe r;
    struct variant other = {v->plan, v->lossy, 0, v->policy + 1};
    if (t->mode == WN_RUN_ASSIGN || t->two_roots) return NULL; /* opening it again records new roots */
    int32_t q = open_program(w, t, other.policy);
    if (q < 0) return NULL;
    if (take(v->plan) & 1) draw_words(q, &other);
    else draw_units(q, &other);
    expect(wn_plan(q) == 0, "a plan is made for its recipe");
    const char *said = wn_recipe(q);
    if (strlen(said) >= sizeof text) return NULL;
    strcpy(text, said);
    expect(recipe_read(&r, text), "a recipe reads as its text says");
    int32_t changed = take(v->plan) < 128 && recipe_change(&r, v->plan);
    int32_t code = wn_give_recipe(p, &r.given);
    if (code != 0) refused(code);
    expect(code == 0 || changed, "a recipe of this request is taken");
    if (code == 0 && changed && v->lossy == 0) v->lossy = recipe_is_lossy(&r);
    return changed ? NULL : text;
}

static void plan_drawn(struct net *w, const struct training *t, int32_t p, struct variant *v)
{
    struct wn_point point = {0};
    struct wn_summary s;
    const char *text = NULL;
    int32_t chosen = 0;
    switch (take(v->plan) % 6) {
    case 0: break;
    case 1: draw_words(p, v); break;
    case 2: draw_units(p, v); break;
    case 3: /* the frontier of a large graph takes seconds under the sanitizers */
        chosen = wn_count(p, WN_COUNT_NODES) < 100 && draw_point(p, v, &point) == 0;
        break;
    case 4: text = draw_recipe(w, t, p, v); break;
    default: draw_words(p, v); break;
    }
    int32_t code = wn_plan(p);
    if (code != 0) refused(code);
    expect(code == 0, "what was decided can be planned");
    expect(wn_summary(p, &s) == 0, "a plan has a summary");
    if (chosen) {
        expect(s.reserved == point.reserved && s.peak == point.peak, "the plan chosen takes the bytes of its point");
        expect(s.instructions == point.instructions && s.recomputed == point.recomputed, "it is the plan chosen");
    }
    if (text != NULL) expect(strcmp(text, wn_recipe(p)) == 0, "a recipe given back is the recipe planned");
}
#endif
