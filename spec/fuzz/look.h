/* Checks the properties that hold for every plan and every run, and reads all that the API tells about them. */
#ifndef WN_FUZZ_LOOK_H
#define WN_FUZZ_LOOK_H
#include "outcome.h"

static void look_at_steps(int32_t p, const struct wn_summary *s)
{
    static int64_t rows[(1 << 14) * 9];
    struct wn_step step;
    int32_t n = wn_count(p, WN_COUNT_INSTRUCTIONS);
    int64_t most = 0;
    expect(n == s->instructions, "as many steps as the summary says");
    for (int32_t i = 0; i < n; i++) {
        expect(wn_step(p, i, &step) == 0, "every step can be looked at");
        expect(step.live >= 0 && step.live <= s->peak, "no step is above the peak");
        wn_cost_key_step(p, i);
        wn_step_seconds(p, i);
    }
    if (n >= 1 << 14) return;
    expect(wn_step_kinds(p, rows) == 0, "kinds by step");
    for (int32_t i = 0; i <= n; i++) {
        int64_t sum = 0;
        for (int32_t k = 0; k < 9; k++) {
            expect(rows[9 * i + k] >= 0, "no kind is below 0");
            sum += rows[9 * i + k];
        }
        most = sum > most ? sum : most;
    }
    if (most != s->peak) fprintf(stderr, "fuzz_train: %lld, peak %lld\n", (long long)most, (long long)s->peak);
    expect(most == s->peak, "the peak is that of some step");
}

static void look_at_graph(int32_t p)
{
    struct wn_node_info node;
    struct wn_residual residual;
    for (int32_t i = 0; i < wn_count(p, WN_COUNT_NODES); i++) {
        expect(wn_node(p, i, &node) == 0, "every node can be looked at");
        for (int32_t k = 0; k < node.n_in; k++) wn_node_input(p, i, k);
    }
    for (int32_t i = 0; i < wn_count(p, WN_COUNT_RESIDUALS); i++) {
        expect(wn_residual(p, i, &residual) == 0, "every residual can be looked at");
        for (int32_t k = 0; k < WN_DECISION_COUNT; k++) wn_action_reason(p, i, k);
    }
    for (int32_t i = 0; i < wn_count(p, WN_COUNT_CELLS); i++) wn_program_cell_name(p, i);
    expect(wn_roofline(p) >= 0, "a roofline is not negative");
}

/* Prints the recipe, the nodes and the instructions of a planned program when WANE_FUZZ_SAY is in the environment. */
static void say(int32_t p)
{
    struct wn_step step;
    struct wn_node_info node;
    if (getenv("WANE_FUZZ_SAY") == NULL) return;
    fprintf(stderr, "---- program %d\n%s", p, wn_recipe(p));
    for (int32_t i = 0; i < wn_count(p, WN_COUNT_NODES); i++) {
        if (wn_node(p, i, &node) != 0) continue;
        fprintf(stderr, "node %d %s phase %d dtype %d layout %d (", i, node.op, node.phase, node.type.dtype,
                node.type.layout);
        for (int32_t k = 0; k < node.type.ndim; k++) fprintf(stderr, "%lld ", (long long)node.type.dim[k]);
        fprintf(stderr, ") of");
        for (int32_t k = 0; k < node.n_in; k++) fprintf(stderr, " %d", wn_node_input(p, i, k));
        fprintf(stderr, " unit %d%s\n", node.region, node.is_residual ? " residual" : "");
    }
    for (int32_t i = 0; wn_step(p, i, &step) == 0; i++)
        fprintf(stderr, "%d %s %s node %d value %d phase %d inplace %d\n", i, step.what, step.op, step.node, step.value,
                step.phase, step.inplace);
}

/* Fails unless the verifier passes and the numbers of the plan agree with each other. */
static void check_plan(int32_t p)
{
    say(p);
    struct wn_summary s;
    struct wn_part part;
    expect(wn_verify(p) == 0, "the verifier passes what was planned");
    expect(wn_summary(p, &s) == 0 && wn_parts(1, &p, &part) == 0, "a plan has a summary");
    expect(s.peak >= 0 && s.reserved >= 0 && s.arena >= 0, "no byte count is below 0");
    look_at_steps(p, &s);
    look_at_graph(p);
}

/* Fails unless the run took the predicted bytes and executed the instructions of the schedule in order. */
static void check_run(int32_t p)
{
    struct wn_summary s;
    struct wn_measured m;
    expect(wn_summary(p, &s) == 0 && wn_measured(p, &m) == 0, "a run has numbers");
    expect(s.peak == m.peak, "the peak is as predicted");
    expect(s.reserved == m.reserved, "the bytes reserved are as predicted");
    expect(memcmp(s.peak_kinds, m.peak_kinds, sizeof s.peak_kinds) == 0, "the peak of every kind is as predicted");
    expect(memcmp(s.at, m.at, sizeof s.at) == 0, "every instant is as predicted");
    if (s.host != m.host || s.disk != m.disk || s.out != m.out || s.in != m.in)
        fprintf(stderr, "fuzz_train: host %lld %lld, disk %lld %lld, out %lld %lld, in %lld %lld\n", (long long)s.host,
                (long long)m.host, (long long)s.disk, (long long)m.disk, (long long)s.out, (long long)m.out,
                (long long)s.in, (long long)m.in);
    expect(s.host == m.host && s.disk == m.disk && s.out == m.out && s.in == m.in, "what moves is as predicted");
    for (int32_t i = 0; i < s.instructions; i++) expect(wn_trace(p, i) == i, "what ran is the schedule");
    expect(wn_trace(p, s.instructions) == -1, "nothing else ran");
}
#endif
