/* Trains random networks in random ways under random plans, and checks five properties of each training:
 *
 *   bits       a plan whose actions keep every bit gives the bytes that saving everything gives
 *   bytes      the predicted bytes are the measured ones: peak, reserved, of every kind, at every instant, moved
 *   obedience  the verifier passes; the instructions that ran are those of the schedule; the plan of a chosen point has
 *              the numbers of that point; the plan of a recipe has that recipe
 *   faults     a call that fails says why, and the same training afterwards gives the same bytes
 *   release    once every handle is released, in any order, no byte is live
 *
 * A property that does not hold aborts the driver. The first half of the input describes the network, the second
 * half the training and the plan. Behind the end of each half follow pseudo-random bytes, so a short input is a
 * whole network too. */
#include <string.h>
#include "training.h"
#include "wane_process.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { STATES = 3 * NET_CELLS };
static struct outcome wanted, got;

/* ---- one training ------------------------------------------------------------------------------------------------ */

/* Computes a value of the network by a program of its own, beside the one that trains. */
static void run_beside(struct net *w, struct bytes *b)
{
    int32_t root = w->n > 0 ? w->value[take(b) % w->n] : -1;
    struct wn_request r = {.mode = WN_RUN_EVAL, .n_roots = 1, .roots = &root, .scale = 1};
    int32_t p = wn_open(&r);
    if (p < 0) refused(p);
    expect(p >= 0 && wn_plan(p) == 0 && wn_run(p) == 0, "a value of the network is computed beside it");
    check_plan(p);
    check_run(p);
    if (take(b) & 1) wn_release(p);
    else net_own(w, p);
}

/* Runs program p and puts its results and the states into o. Returns 0, or the status of the call that failed. */
static int32_t run_program(struct net *w, const struct training *t, int32_t p, struct outcome *o)
{
    int32_t code = wn_run(p);
    if (code != 0) return refused(code);
    check_run(p);
    clear(o);
    put_results(o, p);
    put_state(o, w);
    update_after(w, t, o);
    return 0;
}

/* Returns whether run_beside may run a program between plan and run. That program makes the states that it reads, so
 * they must have been made already. */
static int32_t may_run_beside(const struct training *t)
{
    return t->touched;
}

/* Opens, plans and runs one training; a variant without a plan saves everything. Returns 0, or the status of the
 * call that failed. */
static int32_t train(struct net *w, const struct training *t, struct variant *v, struct outcome *o)
{
    if (v->plan != NULL && may_run_beside(t) && take(v->plan) > 200) run_beside(w, v->plan);
    int32_t p = open_program(w, t, v->policy);
    if (p < 0) return refused(p < -1 ? p : -4);
    if (v->plan != NULL) {
        plan_drawn(w, t, p, v);
        if (may_run_beside(t) && take(v->plan) > 200) run_beside(w, v->plan);
    } else {
        for (int32_t i = 0; i < wn_count(p, WN_COUNT_RESIDUALS); i++) wn_decide(p, i, WN_DECISION_SAVE);
        int32_t code = wn_plan(p);
        if (code != 0) return refused(code);
    }
    check_plan(p);
    return v->planned_only ? 0 : run_program(w, t, p, o);
}

/* ---- faults ------------------------------------------------------------------------------------------------------ */

/* The bytes of every state of a network: n[k] bytes of state k. */
struct snapshot {
    uint8_t bytes[STATES][16 * 16 * 8];
    int64_t n[STATES];
};

static int32_t state_of(const struct net *w, int32_t k)
{
    return k % 3 == 0 ? w->cell[k / 3] : w->state[k / 3][k % 3 - 1];
}

/* Makes the first value of every state and copies its bytes. */
static void take_snapshot(struct net *w, struct snapshot *s)
{
    int32_t roots[STATES], n = 3 * w->n_cells;
    for (int32_t k = 0; k < n; k++) roots[k] = net_mean(w, state_of(w, k));
    struct wn_request r = {.mode = WN_RUN_EVAL, .n_roots = n, .roots = roots, .scale = 1};
    int32_t p = net_own(w, wn_open(&r));
    expect(p >= 0 && wn_plan(p) == 0 && wn_run(p) == 0, "states are made");
    for (int32_t k = 0; k < n && w->device != META; k++) {
        struct wn_info info;
        expect(wn_info(state_of(w, k), &info) == 0, "a state is known");
        s->n[k] = net_bytes(&info.type);
        expect(wn_read(state_of(w, k), s->bytes[k], s->n[k]) == 0, "a state is read");
    }
}

static int32_t is_unchanged(const struct net *w, const struct snapshot *s)
{
    static uint8_t now[16 * 16 * 8];
    for (int32_t k = 0; k < 3 * w->n_cells && w->device != META; k++)
        if (wn_read(state_of(w, k), now, s->n[k]) != 0 || memcmp(now, s->bytes[k], (size_t)s->n[k]) != 0) return 0;
    return 1;
}

/* Writes the bytes of a snapshot into the states, and drops the gradients. */
static void put_back(struct net *w, const struct snapshot *s)
{
    for (int32_t k = 0; k < 3 * w->n_cells && w->device != META; k++)
        expect(wn_write_part(state_of(w, k), 0, s->bytes[k], s->n[k]) == 0, "a state is written after a failure");
    for (int32_t k = 0; k < w->n_cells; k++)
        if (wn_cell_state(w->cell[k]) & 2) wn_cell_drop_grad(w->cell[k]);
}

enum {
    FAIL_ALLOC,
    FAIL_OFFLOAD,
    FAIL_FETCH,
    FAIL_DISK,
    FAIL_INTERRUPT,
    FAIL_LIMIT,
    FAIL_DISK_LIMIT,
    FAIL_ANOMALY,
    FAULTS
};

static void disarm(void)
{
    static const char *const options[] = {"fail_alloc", "fail_offload", "fail_fetch", "disk_full"};
    for (int32_t i = 0; i < 4; i++) wn_debug(options[i], 0);
    wn_interrupt(0);
    wn_anomaly(0);
    for (int32_t d = 0; wn_device_name(d) != NULL; d++) {
        if (wn_device_absent(d) != NULL) continue;
        wn_memory_limit(d, 0, d == 1 ? 0 : 256 << 20);
        wn_memory_limit(d, 1, 64 << 20);
    }
}

/* Sets off a fault; n chooses the call that meets it, or the size of the limit. */
static void arm(const struct net *w, int32_t fault, int32_t n)
{
    struct wn_memory m;
    switch (fault) {
    case FAIL_ALLOC: wn_debug("fail_alloc", 1 + n); break;
    case FAIL_OFFLOAD: wn_debug("fail_offload", 1 + n % 8); break;
    case FAIL_FETCH: wn_debug("fail_fetch", 1 + n % 8); break;
    case FAIL_DISK: wn_debug("disk_full", 1); break;
    case FAIL_INTERRUPT: wn_interrupt(1); break;
    case FAIL_ANOMALY: wn_anomaly(1); break;
    case FAIL_DISK_LIMIT: wn_memory_limit(w->device, 1, 4096 * (1 + n % 32)); break;
    default: wn_memory_get(w->device, &m); wn_memory_limit(w->device, 0, m.reserved + 64 * n);
    }
}

/* Lets a fault meet the run alone. A run that was refused must leave every state unchanged, and the same program
 * must run afterwards. */
static void fault_in_run(struct net *w, const struct training *t, struct variant *v, const struct snapshot *s)
{
    int32_t p = open_program(w, t, v->policy);
    expect(p >= 0, "a network opens twice");
    plan_drawn(w, t, p, v);
    int32_t fault = take(v->plan) % FAULTS, n = take(v->plan) + 256 * (take(v->plan) % 4);
    arm(w, fault, n);
    int32_t code = wn_run(p);
    disarm();
    if (code != 0) {
        refused(code);
        int32_t is_early = fault == FAIL_INTERRUPT || fault == FAIL_LIMIT || fault == FAIL_DISK_LIMIT;
        if (is_early) expect(is_unchanged(w, s), "a run that was refused changed no state");
        if (!is_unchanged(w, s)) put_back(w, s);
        code = wn_run(p);
        if (code != 0) refused(code);
        expect(code == 0 || !is_early, "a run that was refused can be run");
    }
    if (code != 0) return;
    check_run(p);
    clear(&got);
    put_results(&got, p);
    put_state(&got, w);
    update_after(w, t, &got);
    if (!v->lossy && w->device != META) compare(&wanted, &got, "bits after a run that failed");
}

/* Lets allocations of host memory fail while the network is recorded, opened and planned. */
static void fault_before(struct net *w, const struct training *t, struct variant *v, struct bytes net)
{
    arm(w, FAIL_ALLOC, take(v->plan) + 256 * (take(v->plan) % 16));
    net_record(w, net);
    int32_t p = w->loss < 0 ? -1 : open_program(w, t, v->policy);
    if (p >= 0 && (take(v->plan) & 1)) {
        int32_t n = wn_count(p, WN_COUNT_RESIDUALS);
        for (int32_t i = 0; i < n; i++) wn_decide(p, i, draw_decision(v));
        if (take(v->plan) & 1) wn_frontier(p, NULL);
        if (wn_frontier(p, NULL) > 0) wn_choose(p, 0);
    }
    if (p >= 0 && wn_plan(p) == 0) expect(wn_verify(p) == 0 || wn_debug_get("fail_alloc") == 0, "a plan that was made");
    disarm();
}

static void train_after_fault(struct bytes world, const struct training *t, struct variant *v)
{
    static struct snapshot s;
    struct net w;
    net_world(&w, &world);
    struct bytes net = world;
    take_snapshot(&w, &s);
    if (take(v->plan) & 1) {
        fault_before(&w, t, v, net);
        expect(is_unchanged(&w, &s), "planning changed no state");
    } else if (net_record(&w, net) >= 0) {
        fault_in_run(&w, t, v, &s);
    }
    put_back(&w, &s);
    struct variant after = {v->plan, v->lossy, 0, v->policy + 2};
    expect(net_record(&w, net) >= 0, "a network is recorded after a failure");
    int32_t code = train(&w, t, &after, &got);
    expect(code == 0, "a network is trained after a failure");
    if (!after.lossy && w.device != META) compare(&wanted, &got, "bits after a failure");
    net_close(&w, v->plan);
}

/* ---- the driver -------------------------------------------------------------------------------------------------- */

static void draw_training(struct bytes *b, struct training *t)
{
    static const int32_t modes[] = {WN_RUN_BACKWARD, WN_RUN_STEP, WN_RUN_BACKWARD,
                                    WN_RUN_STEP,     WN_RUN_EVAL, WN_RUN_ASSIGN};
    uint8_t how = take(b);
    *t = (struct training){.mode = modes[take(b) % 6], .scale = take(b) > 200 ? 0.5 : 1};
    t->two_roots = how > 200;
    t->joint = how & 1;
    t->again = how >> 1 & 1;
    t->update = take(b) % 3;
    t->is_updated = take(b) % 8 >= 6;
    t->clip = take(b) > 200 ? 0.01 : 0;
    t->touched = take(b) & 1; /* states get their first values before the training */
}

static void begin(void)
{
    wn_start();
    disarm();
    wn_debug("trace", 1);
    wn_debug("move_delay", 0);
}

/* Fails unless no byte of any device is live. */
static void settle(const char *what)
{
    struct wn_memory m;
    wn_free(-1);
    for (int32_t d = 0; wn_device_name(d) != NULL; d++) {
        if (wn_device_absent(d) != NULL) continue;
        expect(wn_memory_trim(d) == 0 && wn_memory_get(d, &m) == 0, "memory is counted");
        for (int32_t k = 0; k < 9; k++) {
            if (m.kinds[k] != 0)
                fprintf(stderr, "fuzz_train: %lld bytes of %s\n", (long long)m.kinds[k], wn_kind_name(k));
            expect(m.kinds[k] == 0, what);
        }
        if (m.live != 0 || m.reserved != 0 || m.disk != 0 || m.away != 0)
            fprintf(stderr, "fuzz_train: live %lld of %lld, disk %lld, away %lld\n", (long long)m.live,
                    (long long)m.reserved, (long long)m.disk, (long long)m.away);
        expect(m.live == 0 && m.reserved == 0 && m.disk == 0 && m.away == 0, what);
    }
}

/* Draws the switches of a training; `on` 0 resets them. "check" reads every byte around every instruction and takes
 * most of the time, so it is rare and kept to few rows. */
static void draw_switches(struct bytes *b, int32_t on, int64_t rows)
{
    wn_debug("poison", on && take(b) > 160);
    wn_debug("replay", on && take(b) > 160);
    wn_debug("check", on && take(b) > 230 && rows < 16);
    wn_debug("rewrite", on ? take(b) < 220 : 1);
}

/* Makes a network from its bytes and records it. Returns its loss, or -1. */
static int32_t make_net(struct net *w, struct bytes world, const struct training *t)
{
    static struct snapshot s;
    net_world(w, &world);
    w->retains = !t->touched; /* a retained value is a result of the first program that reaches it */
    if (t->touched) take_snapshot(w, &s);
    return net_record(w, world);
}

enum { DRAWS = 4096 };

/* Returns DRAWS bytes in `room`: the n bytes of `data`, then pseudo-random bytes that follow from them. */
static struct bytes go_on(uint8_t *room, const uint8_t *data, size_t n)
{
    uint64_t state = 0xcbf29ce484222325;
    wn_digest(&state, data, (int64_t)n);
    for (size_t i = 0; i < DRAWS; i++) {
        state = state * 6364136223846793005 + 1442695040888963407;
        room[i] = i < n ? data[i] : (uint8_t)(state >> 33);
    }
    return (struct bytes){room, room + DRAWS};
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t first[DRAWS], second[DRAWS];
    struct bytes world = go_on(first, data, size / 2), plan = go_on(second, data + size / 2, size - size / 2);
    struct training t;
    struct variant reference = {.policy = 1}, v = {.plan = &plan, .policy = 2};
    struct net w;
    begin();
    draw_training(&plan, &t);
    v.lossy = take(&plan) > 220;
    int32_t code = make_net(&w, world, &t) < 0 ? -1 : train(&w, &t, &reference, &wanted);
    net_close(&w, &plan);
    settle("live bytes after everything was released");
    if (code == 0) {
        draw_switches(&plan, 1, w.rows);
        if (t.touched && (take(&plan) & 1)) {
            train_after_fault(world, &t, &v);
        } else {
            expect(make_net(&w, world, &t) >= 0, "a network is recorded twice");
            expect(train(&w, &t, &v, &got) == 0, "a network that trains, trains under another plan");
            if (!v.lossy && w.device != META) compare(&wanted, &got, "bits of another plan");
            net_close(&w, &plan);
        }
        settle("live bytes after everything was released");
    }
    draw_switches(&plan, 0, 0);
    wn_debug("forget_plans", 1);
    return 0;
}
