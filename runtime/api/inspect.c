/* The API of inspection (wane_inspect.h): predictions of a plan, measurements of a run, instructions, nodes, costs,
 * targets; and the edits of a schedule (wane_test.h) with which specs see the verifier refuse it. */
#include <stddef.h>
#include <string.h>
#include "../base/digest.h"
#include "../plan/recipe/action.h"
#include "../plan/ir/costs.h"
#include "../plan/ir/rates.h"
#include "api.h"

int32_t wn_summary(int32_t program, struct wn_summary *out)
{
    const struct wn__plan *p = wn__get_planned(program);
    if (p == NULL) return WN_VALUE;
    WN_TRY(wn__need(out, "summary"));
    *out = p->schedule->summary;
    return WN_OK;
}

int32_t wn_measured(int32_t program, struct wn_measured *out)
{
    const struct wn_program *p = wn__get_program(program);
    if (p == NULL) return WN_VALUE;
    WN_TRY(wn__need(out, "measured"));
    if (!p->run.ran) return wn__fail(WN_VALUE, "measured: the program did not run");
    *out = p->run.measured;
    return WN_OK;
}

double wn_step_seconds(int32_t program, int32_t i)
{
    const struct wn_program *p = wn__get_program(program);
    return p == NULL || p->run.step_seconds == NULL || i < 0 || i >= p->plan.schedule->n ? -1 : p->run.step_seconds[i];
}

double wn_roofline(int32_t program)
{
    const struct wn__plan *p = wn__get_planned(program);
    struct wn__applied room;
    double seconds = 0;
    for (int32_t i = 0; p != NULL && i < p->schedule->n; i++)
        if (wn__instr_has_kernel(&p->schedule->instr[i]))
            seconds += wn__desc_roofline(p->ir, wn__instr_desc(p->ir, p->schedule, &p->schedule->instr[i], &room));
    return seconds;
}

const char *wn_cost_key_step(int32_t program, int32_t i)
{
    const struct wn__plan *p = wn__get_planned(program);
    struct wn__applied room;
    if (p == NULL || i < 0 || i >= p->schedule->n || !wn__instr_has_kernel(&p->schedule->instr[i])) return "";
    const struct wn_desc *d = wn__instr_desc(p->ir, p->schedule, &p->schedule->instr[i], &room);
    return p->schedule->again[i] ? wn__cost_key_again(p->ir, d) : wn__cost_key(p->ir, d);
}

const char *wn_rate_class_step(int32_t program, int32_t i)
{
    const struct wn__plan *p = wn__get_planned(program);
    struct wn__applied room;
    if (p == NULL || i < 0 || i >= p->schedule->n || !wn__instr_has_kernel(&p->schedule->instr[i])) return "";
    return wn__rate_class(wn__instr_desc(p->ir, p->schedule, &p->schedule->instr[i], &room));
}

int32_t wn_target_rate(int32_t target, const char *class_, const struct wn_rate *rate)
{
    WN_TRY(wn__thread_check());
    WN_TRY(wn__need(class_, "rate: its class"));
    WN_TRY(wn__need(rate, "rate: its numbers"));
    return wn__class_put(target, wn__device_target(rate->cuda != 0)->name, class_, rate);
}

int32_t wn_target_set(const char *name, const struct wn_profile *p)
{
    WN_TRY_ID(wn__thread_check());
    WN_TRY_ID(wn__need(name, "target: its name"));
    WN_TRY_ID(wn__need(p, "target: its rates"));
    struct wn__target t = *wn__device_target(p->cuda != 0);
    t.rates = *p;
    int32_t machine = wn__machine_put(name, &t);
    if (machine == 0) wn__device_rates(t.name, &t.rates);
    return machine;
}

int32_t wn_link(const struct wn_link_rates *r)
{
    WN_TRY(wn__thread_check());
    WN_TRY(wn__need(r, "link: its rates"));
    return wn__link_rates(r);
}

int32_t wn_link_get(struct wn_link_rates *out)
{
    WN_TRY(wn__need(out, "link"));
    *out = *wn__link_rates_now();
    return WN_OK;
}

int32_t wn_profile_get(int32_t device, struct wn_profile *out)
{
    WN_TRY(wn__check_device(device, "profile"));
    WN_TRY(wn__need(out, "profile"));
    *out = wn__device(device)->target.rates;
    return WN_OK;
}

const char *wn_processor(void)
{
    return wn__device_processor(wn__device(0));
}

int32_t wn_tunable(int32_t i, struct wn_tunable *out)
{
    WN_TRY(wn__need(out, "tunable"));
    if (!wn__device_tunable(wn__device(0), i, out)) return wn__fail(WN_VALUE, "tunable: there is no number %d", i);
    return WN_OK;
}

int32_t wn_tune(int32_t i, int64_t value)
{
    WN_TRY(wn__thread_check());
    WN_TRY(wn__device_tune(wn__device(0), i, value));
    wn__machine_here(&wn__device(0)->target);
    return WN_OK;
}

const char *wn_target_name(int32_t target)
{
    return wn__machine_name(target);
}

int32_t wn_cost(const char *key, double seconds)
{
    WN_TRY(wn__thread_check());
    if (key != NULL) return wn__cost_put(key, seconds);
    wn__costs_clear();
    return WN_OK;
}

int32_t wn_timing(int32_t on)
{
    int32_t before = wn__timing_on;
    wn__timing_on = on != 0;
    return before;
}

/* Fills the link of an instruction that starts a transfer, and its seconds there. */
static void tell_move(const struct wn__plan *p, const struct wn__instr *n, struct wn_step *out)
{
    static const char *const links[WN_MEDIUM_COUNT][WN_WAY_COUNT] = {{"to host", "from host"},
                                                                     {"to disk", "from disk"}};
    int32_t way = wn__instr_way(n);
    if (n->what == WN_DO_EXCHANGE) {
        struct wn__wire wire;
        wn__exchange_wire(p->ir, n->node, &wire);
        out->link = "ranks";
        out->takes = wn__exchange_seconds(p->ir, &wire);
        out->sent_outside = wire.out[WN_LEVEL_OUTSIDE];
        out->sent = wire.out[WN_LEVEL_INSIDE] + out->sent_outside;
    }
    if (way < 0) return;
    const struct wn__value *far = &p->schedule->value[way == WN_WAY_OUT ? n->out : p->schedule->in[n->in_at]];
    int32_t place = wn__action_medium(far->action);
    out->link = links[place][way];
    out->takes = wn__move_seconds(p->ir, place, way, p->schedule->allocation[far->allocation].bytes);
}

int32_t wn_step(int32_t program, int32_t i, struct wn_step *out)
{
    static const char *const words[] = {"run",     "free",  "read",     "pack", "unpack",
                                        "offload", "fetch", "exchange", "wait"};
    const struct wn__plan *p = wn__get_planned(program);
    if (p == NULL) return WN_VALUE;
    WN_TRY(wn__need(out, "step"));
    if (i < 0 || i >= p->schedule->n) return wn__fail(WN_VALUE, "step %d of %d", i, p->schedule->n);
    const struct wn__schedule *s = p->schedule;
    const struct wn__instr *n = &s->instr[i];
    const struct wn__ir_node *q = &p->ir->node[n->node];
    int32_t allocation = n->what == WN_DO_FREE ? n->out : n->out >= 0 ? s->value[n->out].allocation : n->cell[0];
    struct wn__applied room;
    struct wn_cost cost = {0};
    if (wn__instr_has_kernel(n)) cost = wn__op_cost(wn__instr_desc(p->ir, s, n, &room));
    *out = (struct wn_step){.what = words[n->what],
                            .op = wn__ir_op_text(p->ir, n->node),
                            .path = wn__scope_get(q->scope)->path,
                            .node = n->node,
                            .value = n->what == WN_DO_FREE ? -1 : n->out,
                            .phase = n->phase,
                            .inplace = n->inplace,
                            .block = n->block + 1,
                            .is_free = n->what == WN_DO_FREE,
                            .store = allocation,
                            .move = !wn__instr_has_kernel(n) && (wn__instr_makes(n) || n->what == WN_DO_WAIT) ? n->move
                                                                                                              : -1,
                            .counts = 1,
                            .seconds = s->seconds[i],
                            .workspace = n->work_bytes,
                            .live = s->live[i],
                            .flops = cost.flops,
                            .traffic = cost.bytes};
    tell_move(p, n, out);
    if (allocation < 0) return WN_OK;
    out->counts = wn__allocation_counts(p->ir, &s->allocation[allocation]);
    out->kind = s->allocation[allocation].kind;
    out->space = s->allocation[allocation].space;
    out->offset = s->allocation[allocation].offset;
    out->bytes = s->allocation[allocation].bytes;
    return WN_OK;
}

int32_t wn_step_kinds(int32_t program, int64_t *rows)
{
    const struct wn__plan *p = wn__get_planned(program);
    if (p == NULL) return WN_VALUE;
    WN_TRY(wn__need(rows, "step_kinds"));
    return wn__simulate_kinds(p->ir, p->schedule, rows);
}

int32_t wn_trace(int32_t program, int32_t i)
{
    const struct wn_program *p = wn__get_program(program);
    return p == NULL || p->run.trace == NULL || i < 0 || i >= p->run.n_trace ? -1 : p->run.trace[i];
}

/* Returns the place in record order of a node of the IR; 0: it was not recorded. Requires that order_node[] ascends. */
static int64_t serial_of(const struct wn_program *p, int32_t node)
{
    int64_t low = 0, high = p->bindings.order.count - 1;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (p->plan.ir->order_node[middle] < node) low = middle + 1;
        else high = middle;
    }
    return high >= 0 && p->plan.ir->order_node[low] == node ? p->bindings.order.nodes[low]->seq : 0;
}

int32_t wn_node(int32_t program, int32_t i, struct wn_node_info *out)
{
    const struct wn_program *p = wn__get_program(program);
    if (p == NULL) return WN_VALUE;
    WN_TRY(wn__need(out, "node"));
    const struct wn__ir *ir = p->plan.ir;
    if (i < 0 || i >= ir->n) return wn__fail(WN_VALUE, "node %d of %d", i, ir->n);
    const struct wn__ir_node *q = &ir->node[i], *said = &ir->recorded[i];
    const struct wn__scope *scope = wn__scope_get(q->scope);
    struct wn_desc d = wn__ir_desc_of(ir, said);
    *out = (struct wn_node_info){.op = wn__op_name(said->op),
                                 .path = scope->path,
                                 .module = scope->type,
                                 .name = q->name ? q->name : "",
                                 .type = said->type,
                                 .node = i,
                                 .n_in = said->n_in,
                                 .phase = q->phase,
                                 .scope = q->scope,
                                 .region = q->region,
                                 .line = wn__program_line(p, i),
                                 .block = q->block + 1,
                                 .forward_of = q->forward_of,
                                 .cell_kind = -1,
                                 .is_residual = q->is_residual,
                                 .needs_grad = q->needs_grad,
                                 .alias_of = wn__ir_is_alias(ir, i) ? ir->in[said->in_at] : -1,
                                 .root = q->root,
                                 .issues = p->plan.schedule ? p->plan.schedule->node_issues[i] : 0,
                                 .action = p->plan.schedule ? p->plan.schedule->node_action[i] : 0,
                                 .decision = p->plan.marks->decision[i],
                                 .leaf = q->leaf,
                                 .bytes = q->bytes,
                                 .flops = q->leaf == WN_LEAF_NONE ? wn__op_cost(&d).flops : 0,
                                 .attrs = said->attrs,
                                 .is_held = q->leaf == WN_LEAF_HELD || q->leaf == WN_LEAF_SCALAR || q->bound,
                                 .is_result = q->result >= 0,
                                 .computed = q->absorbed_by >= 0 ? "" : wn__ir_op_text(ir, i),
                                 .serial = (double)serial_of(p, i)};
    wn__program_attrs(p, i, &out->attrs);
    if (q->leaf == WN_LEAF_CELL) out->cell_kind = ir->cell[q->slot].kind;
    if (wn__op_flags(q->op) & WN_EFFECT) out->cell_kind = ir->cell[q->cell[0]].kind;
    return WN_OK;
}

int32_t wn_node_input(int32_t program, int32_t node, int32_t i)
{
    const struct wn__plan *p = wn__get_plan(program);
    if (p == NULL || node < 0 || node >= p->ir->n || i < 0 || i >= p->ir->recorded[node].n_in) return -1;
    return p->ir->in[p->ir->recorded[node].in_at + i];
}

const char *wn_recipe(int32_t program)
{
    const struct wn__plan *p = wn__get_planned(program);
    return p == NULL ? "" : p->schedule->recipe;
}

int32_t wn_verify(int32_t program)
{
    const struct wn__plan *p = wn__get_planned(program);
    return p == NULL ? WN_VALUE : wn__verify(p->ir, p->schedule);
}

void wn_digest(uint64_t *state, const void *bytes, int64_t n)
{
    if (state != NULL && bytes != NULL) *state = wn__digest(*state, bytes, n);
}

int32_t wn_test_mutate(int32_t program, int32_t step, const char *field, int64_t value)
{
    const struct wn__plan *p = wn__get_planned(program);
    if (p == NULL) return WN_VALUE;
    WN_TRY(wn__need(field, "mutate"));
    struct wn__schedule *s = p->schedule;
    if (step < 0 || step >= s->n) return wn__fail(WN_VALUE, "mutate: step %d of %d", step, s->n);
    struct wn__instr *n = &s->instr[step], *with = value >= 0 && value < s->n ? &s->instr[value] : n, t = *n;
    int32_t allocation = n->what == WN_DO_FREE ? n->out : n->out >= 0 ? s->value[n->out].allocation : -1;
    if (strcmp(field, "swap") == 0) {
        *n = *with;
        *with = t;
    } else if (strcmp(field, "repeat") == 0) {
        *n = *with;
    } else if (strcmp(field, "inplace") == 0) {
        n->inplace = (int32_t)value;
    } else if (strcmp(field, "input") == 0 && wn__instr_makes(n) && p->ir->node[n->node].n_in > 0) {
        s->in[n->in_at] = (int32_t)value;
    } else if (strcmp(field, "offset") == 0 && allocation >= 0) {
        s->allocation[allocation].offset = value;
    } else if (strcmp(field, "drop") == 0) {
        memmove(n, n + 1, (size_t)(s->n - step - 1) * sizeof *n);
        s->n--;
    } else if (strcmp(field, "move") == 0) {
        n->move = (int32_t)value;
    } else if (strcmp(field, "cell") == 0) {
        n->cell[0] = (int32_t)value;
    } else {
        return wn__fail(WN_VALUE, "mutate: no field '%s' at this step", field);
    }
    return WN_OK;
}

/* Edits the schedule itself, so that the verifier reads what it always reads, and copies the old one back. */
int32_t wn_verify_edited(int32_t program, int32_t step, const char *field, int64_t value)
{
    const struct wn__plan *p = wn__get_planned(program);
    if (p == NULL) return WN_VALUE;
    struct wn__schedule *s = p->schedule;
    struct wn__pool scratch = {0};
    size_t instr = (size_t)s->n * sizeof *s->instr, in = (size_t)s->n_in * sizeof *s->in;
    size_t allocation = (size_t)s->n_allocations * sizeof *s->allocation;
    struct wn__instr *old_instr;
    struct wn__allocation *old_allocation;
    int32_t *old_in, code = WN_OOM;
    if (WN_ARRAY(&scratch, old_instr, s->n) && WN_ARRAY(&scratch, old_in, s->n_in) &&
        WN_ARRAY(&scratch, old_allocation, s->n_allocations)) {
        memcpy(old_instr, s->instr, instr);
        memcpy(old_in, s->in, in);
        memcpy(old_allocation, s->allocation, allocation);
        code = wn_test_mutate(program, step, field, value);
        if (code == WN_OK) code = wn__verify(p->ir, s);
        memcpy(s->instr, old_instr, instr);
        memcpy(s->in, old_in, in);
        memcpy(s->allocation, old_allocation, allocation);
    }
    wn__pool_release(&scratch);
    return code;
}
