/* Captured graphs: stretches of a schedule whose kernels the device has captured once and starts as one.
 *
 *   instructions   K K K K K | READ | K K K K K K | OFFLOAD | K K K K | first effect: wait | K K K K K K K
 *   segments       [   0    ]        [    1     ]           [   2   ]                      [     3      ]
 *
 * A segment ends where the host looks or the device does more than kernels: at a READ, at a transfer and the wait for
 * it, and before the first change of a state, where the run waits for reports of wrong data. Transfers are therefore
 * never inside a graph.
 *
 * A graph has the addresses and the arguments of its capture. What a run can bind anew is kept out of them: numbers,
 * seeds and counters lie in device memory (wn__scalars_put); addresses are the key of a graph; an offset that was seen
 * to change cuts its instruction out of the segments. A segment is captured when its addresses are met the second
 * time, and MOST_KEYS sets of addresses are kept with the schedule, so that buffers that take turns have a graph each.
 *
 * A capture or a launch that fails leaves the schedule without graphs, with a warning: its kernels are launched one by
 * one then, with the same numbers.
 *
 * The schedule holds the graphs between runs, so that they go with the plan. A set of addresses has a graph for each
 * segment:
 *
 *   schedule -> segment 0 | segment 1 | segment 2      the offsets of the last run
 *               graph     | graph     | graph          of set of addresses 0
 *               graph     | none      | none           of set of addresses 1
 */
#include <string.h>
#include "../../base/alloc.h"
#include "../../base/warning.h"
#include "issue.h"

enum {
    MOST_KEYS = 4,     /* sets of addresses that a schedule keeps graphs for */
    LEAST = 4,         /* kernels of a segment: a graph of fewer starts no faster than they do */
    MOST_CAPTURES = 32 /* sets of addresses that are captured before runs by graphs must have paid for it */
};

int32_t wn__captures_on = 1;

struct segment {
    int32_t from, to; /* instructions; both ends have a kernel, the second one behind the last */
};

/* The graphs of one set of addresses. */
struct key {
    const void **address; /* (n_addresses) */
    void **graph;         /* (most_segments) NULL: not captured */
    int64_t used;         /* number of the last run with these addresses; 0: none */
    int32_t runs;         /* with these addresses */
};

/* The graphs of a schedule, by the addresses of its runs. Invariant: each that is alive is in the list `alive`. */
struct graphs {
    struct wn__kept is; /* the first field, so that a pointer to it is one to the graphs */
    struct graphs *next;
    struct wn__pool pool;
    int32_t device, n_addresses, most_segments, n_segments;
    int32_t is_off;               /* 1: a call failed, or graphs do not pay; the schedule has none any more */
    int64_t runs, captured, hits; /* runs; sets of addresses captured; runs of captured ones */
    struct segment *segment;      /* (n_segments) in the order of the schedule */
    int64_t *offset;              /* (n_offsets) of the last run */
    uint8_t *varies;              /* (n_offsets) 1: it has changed between two runs */
    const void **address;         /* (n_addresses) of the run under way */
    struct key key[MOST_KEYS];
};

static struct graphs *alive;

static struct graphs *of(const struct wn__run *r)
{
    return (struct graphs *)r->schedule->kept;
}

/* ---- segments ------------------------------------------------------------------------------------------------- */

/* Returns whether an instruction takes an offset that has changed between two runs. */
static int32_t is_varying(const struct graphs *g, const struct wn__ir *ir, const struct wn__instr *n)
{
    int32_t slot = n->what == WN_DO_RUN && ir->node[n->node].offset >= 0 ? ir->recorded[n->node].offset : -1;
    return slot >= 0 && g->varies[slot];
}

/* Adds a segment, unless it has few kernels. */
static void add_segment(struct graphs *g, int32_t from, int32_t to, int32_t kernels)
{
    if (kernels >= LEAST) g->segment[g->n_segments++] = (struct segment){from, to};
}

/* Cuts the schedule into segments. */
static void find_segments(struct graphs *g, const struct wn__run *r)
{
    const struct wn__schedule *s = r->schedule;
    int32_t from = 0, to = 0, kernels = 0, has_changed = 0;
    g->n_segments = 0;
    for (int32_t i = 0; i < s->n; i++) {
        const struct wn__instr *n = &s->instr[i];
        int32_t has_kernel = wn__instr_has_kernel(n), changes = has_kernel && wn__ir_changes_state(r->ir, n->node);
        int32_t is_apart = has_kernel ? is_varying(g, r->ir, n) : n->what != WN_DO_FREE;
        if (is_apart || (changes && !has_changed)) {
            add_segment(g, from, to, kernels);
            kernels = 0;
        }
        has_changed |= changes;
        if (!has_kernel || is_apart) continue;
        if (kernels++ == 0) from = i;
        to = i + 1;
    }
    add_segment(g, from, to, kernels);
}

/* ---- what is kept with a schedule ------------------------------------------------------------------------------ */

/* Gives the graphs of a set of addresses back. No launch of one may be under way. */
static void close_graphs(struct graphs *g, struct key *k)
{
    struct wn_device *d = wn__device(g->device);
    for (int32_t i = 0; i < g->most_segments; i++) {
        if (k->graph[i] != NULL) d->graph_close(d, k->graph[i]);
        k->graph[i] = NULL;
    }
}

void wn__captured_trim(int32_t device)
{
    for (struct graphs *g = alive; g != NULL; g = g->next)
        for (int32_t i = 0; i < MOST_KEYS && g->device == device; i++) close_graphs(g, &g->key[i]);
}

static void let_go(struct wn__kept *kept)
{
    struct graphs *g = (struct graphs *)kept, **link = &alive;
    while (*link != g) link = &(*link)->next;
    *link = g->next;
    for (int32_t i = 0; i < MOST_KEYS; i++) close_graphs(g, &g->key[i]);
    wn__pool_release(&g->pool);
    wn__free(g);
}

/* Takes the arrays of g; on failure some of them may be taken. */
static int32_t take_arrays(struct graphs *g, const struct wn__ir *ir, const struct wn__schedule *s)
{
    g->n_addresses = 1 + ir->n_slabs + ir->n_cells + ir->n_bound + ir->n_results;
    g->most_segments = s->n / LEAST + 1;
    if (!WN_ARRAY(&g->pool, g->segment, g->most_segments) || !WN_ARRAY(&g->pool, g->offset, ir->n_offsets) ||
        !WN_ARRAY(&g->pool, g->varies, ir->n_offsets) || !WN_ARRAY(&g->pool, g->address, g->n_addresses))
        return WN_OOM;
    for (int32_t i = 0; i < MOST_KEYS; i++) {
        struct key *k = &g->key[i];
        if (!WN_ARRAY(&g->pool, k->address, g->n_addresses) || !WN_ARRAY(&g->pool, k->graph, g->most_segments))
            return WN_OOM;
    }
    return WN_OK;
}

int32_t wn__captured_take(struct wn__run *r)
{
    if (!wn__captures_on || r->schedule->kept != NULL || r->device->capture_begin == NULL) return WN_OK;
    struct graphs *g = wn__alloc(sizeof *g);
    if (g == NULL) return WN_OOM;
    g->is.let_go = let_go;
    g->device = r->ir->device;
    if (take_arrays(g, r->ir, r->schedule) != WN_OK) {
        wn__pool_release(&g->pool);
        wn__free(g);
        return WN_OOM;
    }
    find_segments(g, r);
    g->next = alive;
    alive = g;
    r->schedule->kept = &g->is;
    return WN_OK;
}

/* ---- the run --------------------------------------------------------------------------------------------------- */

/* Cuts the schedule anew where an offset has changed since the last run. */
static void note_offsets(struct graphs *g, const struct wn__run *r)
{
    const int64_t *offset = r->p->bindings.offset;
    int32_t is_new = 0;
    for (int32_t i = 0; i < r->ir->n_offsets; i++) {
        is_new |= g->runs > 0 && !g->varies[i] && g->offset[i] != offset[i];
        g->varies[i] |= g->runs > 0 && g->offset[i] != offset[i];
        g->offset[i] = offset[i];
    }
    if (!is_new) return;
    for (int32_t i = 0; i < MOST_KEYS; i++) close_graphs(g, &g->key[i]);
    find_segments(g, r);
}

/* Writes every address that kernels of a run are given, or that those follow from, to g->address. */
static void note_addresses(struct graphs *g, const struct wn__run *r)
{
    const struct wn__ir *ir = r->ir;
    const struct wn__bindings *b = &r->p->bindings;
    const void **to = g->address;
    *to++ = r->arena;
    for (int32_t i = 0; i < ir->n_slabs; i++) *to++ = b->slab[i]->data;
    for (int32_t i = 0; i < ir->n_cells; i++) *to++ = wn__cell_data(b->cell[i]);
    for (int32_t i = 0; i < ir->n_bound; i++) *to++ = b->bound[i] == NULL ? NULL : b->bound[i]->held->data;
    for (int32_t i = 0; i < ir->n_results; i++) *to++ = r->result[i] == NULL ? NULL : r->result[i]->data;
}

/* Returns the number of the set of addresses of a run: one that was met, or the one that was not met for longest,
 * without its graphs. */
static int32_t find_key(struct graphs *g)
{
    int64_t bytes = g->n_addresses * (int64_t)sizeof *g->address;
    int32_t oldest = 0;
    for (int32_t i = 0; i < MOST_KEYS; i++) {
        if (g->key[i].runs > 0 && memcmp(g->key[i].address, g->address, (size_t)bytes) == 0) return i;
        if (g->key[i].used < g->key[oldest].used) oldest = i;
    }
    struct key *k = &g->key[oldest];
    close_graphs(g, k);
    memcpy(k->address, g->address, (size_t)bytes);
    k->runs = 0;
    return oldest;
}

void wn__captured_start(struct wn__run *r)
{
    struct graphs *g = of(r);
    if (g == NULL || !wn__captures_on) return;
    if (g->captured >= MOST_CAPTURES && g->hits < 4 * g->captured) g->is_off = 1;
    for (int32_t i = 0; g->is_off && i < MOST_KEYS; i++) close_graphs(g, &g->key[i]);
    if (g->is_off) return;
    note_offsets(g, r);
    note_addresses(g, r);
    r->issue = wn__issue_captured;
    r->captured.key = find_key(g);
    struct key *k = &g->key[r->captured.key];
    k->used = ++g->runs;
    k->runs++;
    g->captured += k->runs == 2;
    g->hits += k->runs > 2;
}

/* Captures the kernels of a segment. */
static int32_t capture(struct wn__run *r, const struct segment *s, void **out)
{
    struct wn_device *d = r->device;
    int32_t code = WN_OK;
    WN_TRY(d->capture_begin(d));
    for (int32_t i = s->from; i < s->to && code == WN_OK; i++) {
        const struct wn__instr *n = &r->schedule->instr[i];
        if (wn__instr_has_kernel(n)) code = wn__issue(r, n);
    }
    if (code == WN_OK) return d->capture_end(d, out);
    (void)d->capture_end(d, NULL);
    return code;
}

/* Leaves the schedule without graphs, whose launches may be under way: the next run closes them. */
static void give_up(struct wn__run *r)
{
    static int32_t is_told;
    of(r)->is_off = 1;
    r->issue = wn__issue;
    if (!is_told) wn__warn("no graph of this step, its kernels are started one by one: %s", wn__message());
    is_told = 1;
}

int32_t wn__issue_captured(struct wn__run *r, const struct wn__instr *n)
{
    struct wn__captured *c = &r->captured;
    const struct graphs *g = of(r);
    if (r->at < c->started) return WN_OK;
    while (c->segment < g->n_segments && g->segment[c->segment].from < r->at) c->segment++;
    if (c->segment == g->n_segments || g->segment[c->segment].from > r->at) return wn__issue(r, n);
    const struct segment *s = &g->segment[c->segment];
    const struct key *k = &g->key[c->key];
    void **graph = &k->graph[c->segment];
    if (*graph == NULL && k->runs < 2) return wn__issue(r, n);
    int32_t code = *graph != NULL ? WN_OK : capture(r, s, graph);
    if (code == WN_OK) code = r->device->graph_launch(r->device, *graph);
    if (code != WN_OK) {
        if (r->device->lost != NULL) return code;
        give_up(r);
        return wn__issue(r, n);
    }
    c->started = s->to;
    r->p->run.measured.graph_launches++;
    return WN_OK;
}
