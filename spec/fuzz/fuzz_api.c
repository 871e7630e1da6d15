/* Makes random calls of the C API: each byte of the input chooses a call or an argument. Most arguments make sense,
 * and some are arbitrary. A handle that a call returns joins the handles that later calls draw from. The driver
 * calls neither the functions that reach other processes and signals nor wn_test_mutate, which breaks a plan on
 * purpose. Memory is limited, so that a large shape is refused before it is allocated. Every failure must be a
 * status; the sanitizers find the others. */
#include <stdlib.h>
#include <unistd.h>
#include "bytes.h"
#include "wane.h"
#include "wane_inspect.h"
#include "wane_process.h"
#include "wane_test.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MOST = 48, ARRAY = 12 };
static int32_t handle[MOST], n_handles;
static uint8_t room[1 << 18];

/* Adds a handle to those that later calls draw from, or releases it where there is no room. Returns it. */
static int32_t keep(int32_t id)
{
    if (id >= 0 && n_handles < MOST) handle[n_handles++] = id;
    else if (id >= 0) wn_release(id);
    return id;
}

/* Draws a handle: mostly one that is kept, else any number. */
static int32_t pick(struct bytes *b)
{
    uint8_t v = take(b);
    return n_handles > 0 && v < 245 ? handle[v % n_handles] : take_int(b);
}

/* Draws handles into out: (ARRAY) and returns how many of them a call is told of: 0 to 4, rarely -1. */
static int32_t list(struct bytes *b, int32_t *out)
{
    int32_t n = take(b) % 5;
    for (int32_t i = 0; i < ARRAY; i++) out[i] = i < n ? pick(b) : -1;
    return take(b) < 250 ? n : take_int(b) < 0 ? -1 : 0;
}

/* Draws a type; one of ten has a dim of size 0. */
static void type_of(struct bytes *b, struct wn_type *t)
{
    static const int32_t usual[] = {0, 0, 0, 1, 2, 3, 5};
    memset(t, 0, sizeof *t);
    t->dtype = take(b) < 240 ? usual[take(b) % 7] : take_int(b);
    t->ndim = (int16_t)(take(b) < 240 ? take(b) % 4 : take_int(b));
    t->layout = (int16_t)(take(b) < 230 ? 0 : take_int(b));
    for (int32_t i = 0; i < 8; i++) t->dim[i] = take(b) < 8 ? 16 : take(b) < 250 ? 1 + take(b) % 5 : take_wide(b);
    if (take(b) < 26) t->dim[take(b) % 3] = 0;
}

static void attrs_of(struct bytes *b, struct wn_attrs *a)
{
    memset(a, 0, sizeof *a);
    a->n = take(b) < 245 ? take(b) % 5 : take_int(b);
    a->dtype = (int16_t)(take(b) < 220 ? 0 : take_int(b));
    a->layout = (int16_t)(take(b) < 240 ? 0 : take_int(b));
    for (int32_t i = 0; i < 8; i++) a->i[i] = take_wide(b);
    for (int32_t i = 0; i < 2; i++) a->f[i] = take_double(b);
}

/* ---- calls that make and change values --------------------------------------------------------------------------- */

static void make_data(struct bytes *b)
{
    struct wn_type t;
    type_of(b, &t);
    int64_t all = 1, most = t.layout == 0 ? (int64_t)sizeof room / 8 : 128; /* panels are padded */
    for (int32_t i = 0; i < t.ndim && i < 8 && all <= most; i++)
        all = t.dim[i] < 0 || t.dim[i] > most ? most + 1 : all * t.dim[i];
    keep(wn_data(&t, take(b) < 200 ? 0 : take(b) < 200 ? take(b) % 3 : take_int(b), all <= most ? room : NULL));
}

static void make_const(struct bytes *b)
{
    double v[8];
    for (int32_t i = 0; i < 8; i++) v[i] = take_double(b);
    int32_t n = take(b) < 200 ? 0 : take_int(b);
    keep(wn_const(v, n > 8 ? 9 : n, take(b) < 200 ? 0 : take_int(b)));
}

static void record(struct bytes *b)
{
    struct wn_attrs a;
    int32_t in[ARRAY], n = list(b, in);
    int32_t op = take(b) < 250 ? take(b) % wn_op_count() : take_int(b);
    struct wn_op_info info;
    attrs_of(b, &a);
    if (take(b) < 230 && wn_op_get(op, &info) == 0 && info.least <= ARRAY) n = info.least;
    for (int32_t i = 0; i < n && i < ARRAY; i++)
        if (in[i] < 0) in[i] = pick(b);
    keep(wn_record(op, n, in, take(b) < 230 ? &a : NULL, take_int(b)));
}

static void make_cell(struct bytes *b)
{
    int32_t c = keep(wn_cell(take(b) < 230 ? (take(b) % 2) * 2 : take_int(b), pick(b), take(b) < 200 ? "w" : NULL));
    if (c >= 0 && take(b) < 200) wn_cell_need_grad(c, 1);
}

static void change(struct bytes *b)
{
    int64_t n = take(b) < 200 ? take(b) : take_wide(b), at = take_wide(b), length = take_wide(b);
    int64_t starts[ARRAY];
    for (int32_t i = 0; i < ARRAY; i++) starts[i] = take_wide(b);
    int32_t h = pick(b), i = take_int(b);
    struct wn_info info;
    if (n > (int64_t)sizeof room) n = -n;
    switch (take(b) % 14) {
    case 0: wn_cell_need_grad(h, i); break;
    case 1: wn_cell_drop_grad(h); break;
    case 2: wn_retain(h); break;
    case 3: wn_rename(h, take(b) < 128 ? "name" : NULL); break;
    case 4: wn_free(h); break;
    case 5: wn_read_part(h, at, room, n); break;
    case 6: wn_write_part(h, at, room, n); break;
    case 7: wn_gather(h, pick(b), starts, n > ARRAY ? ARRAY : n, length); break;
    case 8: wn_hyper_set(h, i, take_double(b)); break;
    case 9: keep(wn_cell_grad(h)); break;
    case 10: keep(wn_value_input(h, i)); break;
    case 11:
        if (wn_info(h, &info) == 0 && info.bytes <= (int64_t)sizeof room) wn_write_part(h, 0, room, n);
        break;
    case 12: keep(wn_hyper()); break;
    default: wn_rename(h, "other"); break;
    }
}

/* ---- programs ---------------------------------------------------------------------------------------------------- */

static void open_program(struct bytes *b)
{
    int32_t roots[ARRAY], cells[ARRAY];
    struct wn_update u[3];
    struct wn_request r = {.roots = roots, .cells = cells, .updates = u, .scale = 1};
    r.n_roots = list(b, roots);
    list(b, cells);
    r.mode = take(b) < 245 ? take(b) % 5 : take_int(b);
    if (r.mode == WN_RUN_UPDATE) r.n_roots = 0;
    r.n_cells = r.mode == WN_RUN_ASSIGN ? r.n_roots : 0;
    r.n_updates = r.mode == WN_RUN_STEP || r.mode == WN_RUN_UPDATE ? 1 + take(b) % 3 : 0;
    for (int32_t i = 0; i < 3; i++) {
        static const char *const ops[] = {"sgd", "momentum", "adam", "add", "assign"};
        int32_t n = take(b) % 5;
        u[i] = (struct wn_update){wn_op_id(ops[n]), {pick(b), n > 0 ? pick(b) : -1, n > 1 ? pick(b) : -1}, pick(b)};
        if (take(b) > 240) u[i].op = take_int(b);
    }
    r.joint = take(b) & 1;
    r.again = take(b) & 1;
    if (take(b) > 240) r.scale = take_double(b);
    if (take(b) > 220) r.clip = take_double(b);
    if (take(b) > 240) r.target = take_int(b);
    if (take(b) > 245) r.mode = take_int(b);
    r.policy = take(b) % 4;
    keep(wn_open(&r));
}

static void give_recipe(struct bytes *b, int32_t p)
{
    struct wn_recipe_step step[ARRAY];
    int32_t words[ARRAY], limit[ARRAY], keeps[ARRAY];
    for (int32_t i = 0; i < ARRAY; i++) {
        step[i] = (struct wn_recipe_step){take_int(b), take_int(b), take_int(b), take_int(b), take_int(b)};
        words[i] = take(b) % 12;
        limit[i] = i + 1 + take(b) % 3;
        keeps[i] = take_int(b);
    }
    struct wn_recipe_given g = {step,  keeps,       words,      limit, take(b) % ARRAY, take(b) % ARRAY,
                                ARRAY, take_int(b), take_int(b)};
    wn_give_recipe(p, &g);
}

static void candidate(struct bytes *b)
{
    int32_t unit[256], parent[256], decision[256], p = pick(b), n = wn_count(p, WN_COUNT_NODES);
    if (n < 0 || n > 256) n = take(b);
    for (int32_t i = 0; i < 256; i++) {
        unit[i] = take(b) < 240 ? take(b) % 4 - 1 : take_int(b);
        parent[i] = take(b) < 240 ? 0 : take_int(b);
        decision[i] = take(b) < 240 ? take(b) % 3 : take_int(b);
    }
    wn_candidate(p, take(b) < 250 ? "c" : NULL, n, take(b) < 250 ? unit : NULL, take(b) < 128 ? parent : NULL,
                 take(b) < 128 ? decision : NULL);
}

static void decide(struct bytes *b)
{
    int32_t p = pick(b), i = take_int(b), decision = take(b) < 200 ? take(b) % 10 : take_int(b);
    switch (take(b) % 9) {
    case 0: wn_decide(p, i, decision); break;
    case 8: candidate(b); break;
    case 1: wn_allow(p, decision); break;
    case 2: wn_action_reason(p, i, decision); break;
    case 3: wn_mark(p, i, take_int(b)); break;
    case 4: wn_mark_parent(p, i, decision); break;
    case 5: wn_frontier(p, NULL); break;
    case 6: wn_choose(p, i); break;
    default: give_recipe(b, p); break;
    }
}

static void look(struct bytes *b)
{
    static const char *const fields[] = {"swap", "repeat", "inplace", "input", "offset", "drop", "move", "cell"};
    union {
        struct wn_summary summary;
        struct wn_measured measured;
        struct wn_step step;
        struct wn_node_info node;
        struct wn_residual residual;
        struct wn_point point;
        struct wn_value_info value_info;
        struct wn_info info;
        struct wn_memory memory;
    } out;
    int32_t h = pick(b), i = take_int(b);
    wn_summary(h, &out.summary);
    wn_measured(h, &out.measured);
    wn_step(h, i, &out.step);
    wn_node(h, i, &out.node);
    wn_residual(h, i, &out.residual);
    wn_point(h, i, &out.point);
    wn_value_info(h, &out.value_info);
    wn_info(h, &out.info);
    wn_memory_get(i, &out.memory);
    wn_node_input(h, i, take_int(b));
    wn_trace(h, i);
    wn_recipe(h);
    wn_cost_key_step(h, i);
    wn_action_lossy(i);
    wn_line_text(i);
    wn_program_cell_name(h, i);
    wn_verify_edited(h, i, fields[take(b) % 8], take_wide(b));
    struct wn_type weight = {.layout = take(b) % 5, .dtype = take(b) % 8, .ndim = take(b) % 9};
    for (int32_t d = 0; d < 8; d++) weight.dim[d] = take_wide(b);
    wn_weight_layout(i, &weight);
    keep(wn_result(h, i));
    keep(wn_program_cell(h, i));
    wn_status_name(i);
    wn_kind_name(i);
    wn_target_name(i);
    wn_signal_name(i);
}

/* Calls functions that only read, with any handle and any number; their results are not used. */
static void ask(struct bytes *b)
{
    static const char *const options[] = {"poison",       "check",         "replay",   "trace",
                                          "fail_write",   "unnamed_files", "rewrite",  "replay_fault",
                                          "fail_offload", "disk_full",     "no_locks", "no such"};
    union {
        struct wn_oom oom;
        struct wn_anomaly anomaly;
        struct wn_op_info op;
        int64_t rows[4];
    } out;
    int32_t h = pick(b), i = take_int(b);
    double out_seconds, in_seconds;
    wn_oom_last(&out.oom);
    wn_anomaly_last(&out.anomaly);
    wn_op_get(i, &out.op);
    wn_is_planned(h), wn_count(h, take(b) % 8), wn_roofline(h), wn_step_seconds(h, i);
    wn_cell_version(h), wn_cell_state(h), wn_read(h, room, take_wide(b) > 64 ? 16 : take_wide(b));
    wn_serial(), wn_notice(), wn_kernels(), wn_version(), wn_device_name(i);
    wn_debug_get(options[take(b) % 12]);
    wn_line_text(take(b) < 100 ? wn_line("fuzz:1") : i);
    wn_warning();
    uint64_t state = 1;
    wn_digest(&state, room, take(b));
    wn_json_cost((const char *)room, take(b));
    wn_element_bytes("F32"), wn_element_dtype(take(b) < 128 ? "BF16" : "no such");
    if (take(b) > 253) wn_probe(i, i, take(b) < 128 ? 1 << 20 : take_wide(b) % (1 << 21), &out_seconds, &in_seconds);
}

/* Plans or runs a step of several run points, and undoes it. */
static void sequence(struct bytes *b)
{
    struct wn_part part[ARRAY];
    int32_t programs[ARRAY], n = list(b, programs);
    switch (take(b) % 9) {
    case 0: wn_sequence_enter(keep(wn_sequence(take(b) % 4))); break;
    case 1: wn_sequence_enter(pick(b)); break;
    case 2: wn_sequence_enter(-1); break;
    case 3: wn_sequence_add(pick(b)); break;
    case 4: wn_decide_by(pick(b), take(b) % 4); break;
    case 5: wn_sequence_undo(pick(b)); break;
    case 6: wn_sequence_seek(pick(b), take(b) % 4 - 1); break;
    case 7: wn_sequence_repeat(); break;
    default: wn_parts(n, programs, part); break;
    }
}

static void run(struct bytes *b)
{
    int32_t p = pick(b);
    if (wn_plan(p) == 0) wn_verify(p);
    if (wn_run(p) == 0 && take(b) < 100) wn_run(p);
    keep(wn_result(p, 0));
}

static void differentiate(struct bytes *b)
{
    int32_t wrt[ARRAY], out[ARRAY], r[ARRAY], n = list(b, wrt);
    list(b, r);
    if (take(b) < 128) {
        keep(wn_custom(pick(b), n, wrt, pick(b), r, 0));
        return;
    }
    if (wn_grad(pick(b), n, wrt, out) != 0) return;
    for (int32_t i = 0; i < n; i++)
        if (out[i] >= 0) keep(out[i]);
}

/* Sets one of the switches that change every later call; end() resets them. */
static void turn(struct bytes *b)
{
    static const char *const options[] = {"poison",  "check",        "replay",       "trace",
                                          "rewrite", "replay_fault", "fail_offload", "disk_full"};
    int32_t i = take_int(b);
    switch (take(b) % 6) {
    case 0: wn_debug(options[take(b) % 8], take(b) % 3); break;
    case 1: wn_interrupt(take(b) & 1); break;
    case 2: wn_anomaly(i); break;
    case 3: wn_device_set(take(b) < 200 ? take(b) % 4 : i); break;
    case 4: wn_timing(take(b) & 1); break;
    default: wn_counter_set((uint64_t)take_wide(b)); break;
    }
}

static void set(struct bytes *b)
{
    struct wn_profile p = {0, take_double(b), 1e9, 1e9, 1e9, 0, {1e9, 1e9}, {1e9, 1e9}};
    int32_t i = take_int(b);
    switch (take(b) % 13) {
    case 0: wn_here()->scope = (take(b) < 128 ? wn_scope(i, "m", "Module", take(b) % 3) : i); break;
    case 1: wn_here()->region = (take(b) < 128 ? wn_region_new(i, "r") : i); break;
    case 2: wn_here()->grad = i; break;
    case 3: wn_target_set("fuzzed", &p); break;
    case 4: wn_cost("key", take_double(b)); break;
    case 5: wn_memory_reset_peak(i); break;
    case 6: wn_memory_trim(i); break;
    case 7: wn_debug("fail_alloc", take(b)); break;
    case 8: wn_debug("fail_fetch", take(b) % 4); break;
    case 9: wn_seed((uint64_t)take_wide(b)); break;
    default: turn(b); break;
    }
}

static void begin(void)
{
    wn_start();
    wn_memory_limit(0, 0, 64 << 20);
    wn_memory_limit(1, 0, 1LL << 40);
    wn_memory_limit(0, 1, 16 << 20);
}

static void end(void)
{
    wn_sequence_enter(-1);
    wn_debug("fail_alloc", 0);
    wn_debug("fail_fetch", 0);
    static const char *const options[] = {"poison",       "check",        "replay",   "trace",
                                          "replay_fault", "fail_offload", "disk_full"};
    for (int32_t i = 0; i < 7; i++) wn_debug(options[i], 0);
    wn_debug("rewrite", 1);
    wn_interrupt(0), wn_anomaly(0), wn_device_set(0), wn_timing(0), wn_counter_set(0);
    wn_here()->scope = wn_here()->region = 0;
    wn_here()->grad = 1;
    for (int32_t i = 0; i < n_handles; i++) wn_release(handle[i]);
    n_handles = 0;
    wn_debug("forget_plans", 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct bytes b = {data, data + size};
    begin();
    for (int32_t calls = 0; b.at < b.end && calls < 200; calls++) {
        switch (take(&b) % 16) {
        case 0:
        case 1: make_data(&b); break;
        case 2: make_const(&b); break;
        case 3:
        case 4:
        case 5:
        case 6: record(&b); break;
        case 7:
        case 8: make_cell(&b); break;
        case 9: change(&b); break;
        case 10: open_program(&b); break;
        case 11: decide(&b); break;
        case 12:
            if (take(&b) < 150) look(&b);
            else ask(&b);
            break;
        case 13:
            if (take(&b) < 150) differentiate(&b);
            else sequence(&b);
            break;
        case 14: set(&b); break;
        default: run(&b); break;
        }
    }
    end();
    return 0;
}
