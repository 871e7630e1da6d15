/* The API of programs: opens them, takes decisions about them, plans them, runs them, and runs them again. A
 * program is opened once and belongs to its handle; decisions and marks are taken only until it is planned. Nothing
 * is decided here. */
#include <string.h>
#include "api.h"
#include "../link/link.h"
#include "../plan/recipe/action.h"

/* ---- wane.grad: differentiation without a run ------------------------------------------------------------ */

/* Differentiates root with respect to wrt, (n), and fills out, (n), with handles of the gradients; -1 where root
 * does not depend on a value. What is emitted are ordinary values from then on. */
static int32_t grad_nodes(struct wn_node *root, int32_t n, struct wn_node **wrt, int32_t *out)
{
    struct wn__grads grads = {0};
    struct wn__pass pass = {.forward = {.from = &root, .n_from = 1}, .roots = &root, .n_roots = 1, .scale = 1};
    pass.wrt = wrt;
    pass.n_wrt = n;
    int32_t code = wn__grad_pass(&pass, &grads);
    for (int64_t i = 0; i < grads.count; i++) {
        grads.nodes[i]->phase = WN_PHASE_FORWARD;
        grads.nodes[i]->forward_of = NULL;
    }
    for (int32_t i = 0; i < n && code == WN_OK; i++) {
        out[i] = -1;
        if (wrt[i]->grad == NULL) continue;
        wn__node_ref(wrt[i]->grad);
        out[i] = wn__handle_of(WN_OK, WN_HANDLE_VALUE, wrt[i]->grad);
        if (out[i] >= 0) continue;
        for (code = WN_OOM; i >= 0; i--) wn__handle_release(out[i]);
        break;
    }
    wn__grads_release(&grads);
    return code;
}

int32_t wn_grad(int32_t root, int32_t n, const int32_t *wrt, int32_t *out)
{
    struct wn_node *r, **nodes;
    int32_t got = 0;
    WN_TRY(wn__enter());
    WN_TRY(wn__check_array(wrt, n, 1 << 24, "grad"));
    WN_TRY(wn__check_array(out, n, 1 << 24, "grad: results"));
    WN_TRY(wn__handle_value(root, &r));
    nodes = wn__alloc((n + 1) * (int64_t)sizeof *nodes);
    int32_t code = nodes == NULL ? WN_OOM : WN_OK;
    for (; got < n && code == WN_OK; got += code == WN_OK) code = wn__handle_value(wrt[got], &nodes[got]);
    if (code == WN_OK && r->spent) code = wn__fail(WN_SPENT, "grad: the root's graph was used up by its backward");
    if (code == WN_OK && wn__numel(&r->type) != 1)
        code = wn__fail(WN_SHAPE, "grad: the root has shape %s; it must be one number, so reduce it with :sum()",
                        wn__shape_text(&r->type));
    if (code == WN_OK) code = grad_nodes(r, n, nodes, out);
    for (int32_t i = 0; i < got; i++) wn__node_unref(nodes[i]);
    wn__free(nodes);
    wn__node_unref(r);
    return code;
}

/* ---- open, decide, plan, run --------------------------------------------------------------------------------- */

static int32_t resolve_update(const struct wn_update *u, struct wn__update *out)
{
    out->op = u->op;
    out->hyper = wn__handle_get(u->hyper, WN_HANDLE_HYPER);
    if (out->hyper == NULL) return WN_VALUE;
    out->hyper->refs++;
    for (int32_t k = 0; k < 3; k++) {
        if (u->cell[k] < 0) continue;
        out->cell[k] = wn__get_cell(u->cell[k]);
        if (out->cell[k] == NULL) return WN_VALUE;
        wn__cell_ref(out->cell[k]);
    }
    return WN_OK;
}

/* Turns the handles of a request into pointers. The request was checked, so its counts and its mode fit each other. */
static int32_t resolve(const struct wn_request *r, struct wn__request *out)
{
    out->mode = r->mode;
    out->target = r->target;
    out->joint = r->joint;
    out->again = r->again;
    out->is_fresh = r->is_fresh;
    out->scale = r->scale;
    out->clip = r->clip;
    out->policy = r->policy;
    out->ranks = (struct wn__ranks){.size = wn__link_get()->size,
                                    .rank = wn__link_get()->rank,
                                    .team = wn__link_get()->per_node,
                                    .given = r->given,
                                    .is_shared = r->is_shared,
                                    .is_idle = r->is_idle,
                                    .is_last = r->is_last};
    for (int32_t i = 0; i < r->n_roots; i++) {
        WN_TRY(wn__handle_value(r->roots[i], &out->root[i]));
        out->n_roots++;
        if (r->n_cells == 0) continue;
        out->assigned[i] = wn__get_cell(r->cells[i]);
        if (out->assigned[i] == NULL) return WN_VALUE;
        wn__cell_ref(out->assigned[i]);
    }
    out->n_also = r->n_also;
    for (int32_t i = 0; i < r->n_updates; i++) WN_TRY(resolve_update(&r->updates[i], &out->update[out->n_updates++]));
    return WN_OK;
}

int32_t wn_open(const struct wn_request *r)
{
    struct wn_program *p;
    WN_TRY_ID(wn__enter());
    WN_TRY_ID(wn__check_request(r));
    WN_TRY_ID(wn__program_new(r->n_roots, r->n_updates, &p));
    int32_t code = resolve(r, &p->request);
    if (code == WN_OK) code = wn__program_open(p);
    return wn__handle_of(code, WN_HANDLE_PROGRAM, p);
}

int32_t wn_is_planned(int32_t program)
{
    const struct wn__plan *p = wn__get_plan(program);
    return p == NULL ? -WN_VALUE : p->schedule != NULL;
}

struct wn__plan *wn__get_planned(int32_t handle)
{
    struct wn__plan *p = wn__get_plan(handle);
    if (p == NULL || p->schedule != NULL) return p;
    wn__fail(WN_VALUE, "this program is not planned yet");
    return NULL;
}

int32_t wn_count(int32_t program, int32_t what)
{
    const struct wn__plan *p = what == WN_COUNT_INSTRUCTIONS ? wn__get_planned(program) : wn__get_plan(program);
    int32_t n = 0;
    if (p == NULL) return -WN_VALUE;
    switch (what) {
    case WN_COUNT_NODES: return p->ir->n;
    case WN_COUNT_RESIDUALS: return p->ir->n_residuals;
    case WN_COUNT_RESULTS: return p->ir->n_results;
    case WN_COUNT_CELLS: return p->ir->n_cells;
    case WN_COUNT_GATHERS: return wn__ir_gathers(p->ir);
    case WN_COUNT_INSTRUCTIONS: return p->schedule->n;
    case WN_COUNT_CANDIDATES:
        for (const struct wn__marks *m = p->marks->proposal; m != NULL; m = m->next) n++;
        return n;
    default: return -wn__fail(WN_VALUE, "count: a program has nothing of number %d", what);
    }
}

/* Returns residual i and its plan; NULL, with a message, when there is none. */
static const struct wn__ir_node *get_residual(int32_t program, int32_t i, struct wn__plan **out)
{
    struct wn__plan *p = wn__get_plan(program);
    if (p == NULL) return NULL;
    *out = p;
    if (i >= 0 && i < p->ir->n_residuals) return &p->ir->node[p->ir->residual[i]];
    wn__fail(WN_VALUE, "residual %d asked for, there are %d", i, p->ir->n_residuals);
    return NULL;
}

int32_t wn_residual(int32_t program, int32_t i, struct wn_residual *out)
{
    struct wn__plan *p;
    const struct wn__ir_node *q = get_residual(program, i, &p);
    if (q == NULL) return WN_VALUE;
    WN_TRY(wn__need(out, "residual"));
    int32_t node = p->ir->residual[i];
    struct wn_desc d = wn__ir_desc_of(p->ir, &p->ir->node[node]);
    const struct wn__scope *scope = wn__scope_get(q->scope);
    *out = (struct wn_residual){.op = wn__op_name(p->ir->recorded[node].op),
                                .path = scope->path,
                                .module = scope->type,
                                .name = q->name ? q->name : "",
                                .node = node,
                                .index = i + 1,
                                .block = q->block + 1,
                                .boundary = q->is_boundary,
                                .random = q->random >= 0,
                                .readers = q->n_readers,
                                .ndim = q->type.ndim,
                                .dtype = q->type.dtype,
                                .scope = q->scope,
                                .line = wn__program_line(wn__get_program(program), node),
                                .region = q->region,
                                .bytes = q->bytes,
                                .flops = wn__op_cost(&d).flops,
                                .seconds = p->ir->seconds[node]};
    memcpy(out->dim, q->type.dim, sizeof out->dim);
    return WN_OK;
}

/* Returns the plan of a program that takes decisions still; NULL, with a message, when there is none, or it is planned
 * already. */
static struct wn__plan *get_open(int32_t handle)
{
    struct wn__plan *p = wn__get_plan(handle);
    if (p != NULL && p->schedule != NULL) wn__fail(WN_VALUE, "decide: this program is planned already");
    return p != NULL && p->schedule == NULL ? p : NULL;
}

int32_t wn_decide(int32_t program, int32_t i, int32_t decision)
{
    struct wn__plan *p;
    if (get_open(program) == NULL || get_residual(program, i, &p) == NULL) return WN_VALUE;
    if (decision < WN_DECISION_NONE || (decision > WN_DECISION_RECOMPUTE && wn__action_name(decision) == NULL))
        return wn__fail(WN_UNSUPPORTED, "policy: decision %d is not in this version", decision);
    p->marks->decision[p->ir->residual[i]] = (int8_t)decision;
    return WN_OK;
}

int32_t wn_allow(int32_t program, int32_t decision)
{
    struct wn__plan *p = get_open(program);
    if (p == NULL) return WN_VALUE;
    if (wn__action_name(decision) == NULL)
        return wn__fail(WN_UNSUPPORTED, "budget: decision %d is no action of this version", decision);
    p->marks->allowed |= 1 << wn__action_resolved(p->ir, decision);
    return WN_OK;
}

const char *wn_action_reason(int32_t program, int32_t i, int32_t decision)
{
    struct wn__plan *p;
    const struct wn__ir_node *q = get_residual(program, i, &p);
    const char *why = q == NULL ? NULL : wn__action_refusal(p->ir, p->ir->residual[i], decision);
    return why == NULL ? "" : why;
}

int32_t wn_action_lossy(int32_t decision)
{
    return wn__action_is_lossy(decision);
}

int32_t wn_mark(int32_t program, int32_t node, int32_t unit)
{
    struct wn__plan *p = get_open(program);
    if (p == NULL) return WN_VALUE;
    if (node < 0 || node >= p->ir->n) return wn__fail(WN_VALUE, "mark: node %d of %d", node, p->ir->n);
    if (unit < 0 || unit > p->ir->n)
        return wn__fail(WN_VALUE, "mark: unit %d given, expected 0 (none) to %d", unit, p->ir->n);
    p->marks->unit[node] = unit;
    return WN_OK;
}

int32_t wn_mark_parent(int32_t program, int32_t unit, int32_t parent)
{
    struct wn__plan *p = get_open(program);
    if (p == NULL) return WN_VALUE;
    if (unit < 1 || unit > p->ir->n || parent < 1 || parent >= unit)
        return wn__fail(WN_VALUE, "mark: unit %d cannot lie in unit %d", unit, parent);
    p->marks->unit_parent[unit - 1] = parent;
    return WN_OK;
}

static int32_t check_candidate(const struct wn__ir *ir, const int32_t *unit, const int32_t *parent,
                               const int32_t *decision)
{
    for (int32_t i = 0; i < ir->n; i++) {
        if (unit != NULL && (unit[i] < -1 || unit[i] > ir->n))
            return wn__fail(WN_VALUE, "candidate: node %d in unit %d", i, unit[i]);
        if (parent != NULL && (parent[i] < 0 || parent[i] > i))
            return wn__fail(WN_VALUE, "candidate: unit %d cannot lie in unit %d", i + 1, parent[i]);
        if (decision != NULL && (decision[i] < WN_DECISION_NONE || decision[i] > WN_DECISION_RECOMPUTE))
            return wn__fail(WN_VALUE, "candidate: decision %d of node %d", decision[i], i);
    }
    return WN_OK;
}

int32_t wn_candidate(int32_t program, const char *name, int32_t n, const int32_t *unit, const int32_t *parent,
                     const int32_t *decision)
{
    struct wn__plan *p = wn__get_plan(program);
    if (p == NULL) return WN_VALUE;
    const struct wn__ir *ir = p->ir;
    if (name == NULL || n != ir->n)
        return wn__fail(WN_VALUE, "candidate: expected a name and numbers for %d nodes, got %d", ir->n, n);
    if (p->frontier != NULL) return wn__fail(WN_VALUE, "candidate: the list of plans was made already");
    WN_TRY(check_candidate(ir, unit, parent, decision));
    return wn__marks_propose(p->marks, name, n, unit, parent, decision);
}

int32_t wn_frontier(int32_t program, wn_look look)
{
    struct wn__plan *p = wn__get_plan(program);
    if (p == NULL) return -WN_VALUE;
    if (p->frontier == NULL) WN_TRY_ID(wn__frontier_make(p->ir, p->marks, look, &p->frontier));
    return p->frontier->n;
}

static struct wn__frontier_point *get_point(const struct wn__plan *p, int32_t i)
{
    if (p == NULL) return NULL;
    if (p->frontier != NULL && i >= 0 && i < p->frontier->n) return &p->frontier->point[i];
    wn__fail(WN_VALUE, "point %d of the frontier asked for, there are %d", i, p->frontier ? p->frontier->n : 0);
    return NULL;
}

int32_t wn_point(int32_t program, int32_t i, struct wn_point *out)
{
    const struct wn__plan *p = wn__get_plan(program);
    const struct wn__frontier_point *q = get_point(p, i);
    if (q == NULL) return WN_VALUE;
    WN_TRY(wn__need(out, "point"));
    *out = q->shown;
    out->tried = p->frontier->tried;
    out->name = q->name;
    return WN_OK;
}

int32_t wn_choose(int32_t program, int32_t i)
{
    struct wn__plan *p = get_open(program);
    if (get_point(p, i) == NULL) return WN_VALUE;
    p->chosen = i + 1;
    return WN_OK;
}

int32_t wn_give_recipe(int32_t program, const struct wn_recipe_given *given)
{
    struct wn__plan *p = get_open(program);
    struct wn__recipe r;
    if (p == NULL) return WN_VALUE;
    WN_TRY(wn__check_recipe(given));
    int32_t code = wn__recipe_read(p->ir, given, &r);
    wn__recipe_release(code == WN_OK ? &p->by_recipe : &r);
    if (code == WN_OK) p->by_recipe = r;
    return code;
}

int32_t wn_plan(int32_t program)
{
    struct wn__plan *p = wn__get_plan(program);
    return p == NULL ? WN_VALUE : wn__plan_make(p);
}

int32_t wn_plan_forget(int32_t program, int32_t is_any)
{
    struct wn__plan *p = wn__get_plan(program);
    if (p == NULL) return WN_VALUE;
    wn__plan_forget(p, is_any);
    return WN_OK;
}

int32_t wn_run(int32_t program)
{
    struct wn_program *p = wn__get_program(program);
    WN_TRY(wn__enter());
    return p == NULL ? WN_VALUE : wn__program_run(p);
}

int32_t wn_result(int32_t program, int32_t i)
{
    struct wn_program *p = wn__get_program(program);
    if (p == NULL) return -WN_VALUE;
    if (i < 0 || i >= p->plan.ir->n_results) return -wn__fail(WN_VALUE, "result %d of %d", i, p->plan.ir->n_results);
    wn__node_ref(p->bindings.result[i]);
    return wn__handle_of(WN_OK, WN_HANDLE_VALUE, p->bindings.result[i]);
}

int32_t wn_program_cell(int32_t program, int32_t i)
{
    struct wn_program *p = wn__get_program(program);
    if (p == NULL) return -WN_VALUE;
    if (p->bindings.cell == NULL || i < 0 || i >= p->plan.ir->n_cells)
        return -wn__fail(WN_VALUE, "program: there is no cell %d", i);
    wn__cell_ref(p->bindings.cell[i]);
    return wn__handle_of(WN_OK, WN_HANDLE_CELL, p->bindings.cell[i]);
}

const char *wn_program_cell_name(int32_t program, int32_t i)
{
    struct wn_program *p = wn__get_program(program);
    if (p == NULL || p->bindings.cell == NULL || i < 0 || i >= p->plan.ir->n_cells) return "";
    int32_t of = p->plan.ir->cell[i].gradient_of;
    const char *name = p->bindings.cell[of >= 0 ? of : i]->name;
    return name == NULL ? "" : name;
}
