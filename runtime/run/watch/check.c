/* The checked run, the poison and the replay check, for specs. None of them trusts a plan.
 *
 * The checked run (wn_debug "check") fills the arena, with a guard above it, with a canary. Before each instruction
 * everything that the program owns is copied aside; a byte that has changed after it, outside the instruction's own
 * output, cells and workspace, is an error that names the instruction. Transfers are waited for where they start, but
 * exchanges are not, since other ranks may start them behind other instructions: what they bring may change until their
 * wait, and what they change elsewhere is found behind the next instruction, or before it. It compares bytes, not
 * intentions, and so costs the whole memory of the program at every instruction; it must never be on outside specs.
 *
 * The poison (wn_debug "poison") fills bytes that were freed, and the arena before the first instruction.
 *
 * The replay check (wn_debug "replay") hashes the values of nodes that are issued more than once and compares, so it
 * can be on in any run. It changes no byte of the program. */
#include <string.h>
#include "../../base/digest.h"
#include "../../plan/recipe/action.h"
#include "watch.h"

#define GUARD (1 << 20)
#define CANARY 0xA5
#define WRITABLE 5  /* places that one instruction may write: its output, three cells, its workspace */
#define POISON 0xFF /* every float of this byte is a NaN */

int32_t wn__check_on, wn__poison_on, wn__replay_on, wn__replay_fault;

int64_t wn__check_guard(void)
{
    return wn__check_on ? GUARD : 0;
}

/* ---- the checked run ------------------------------------------------------------------------------------------ */

struct span {
    char *start; /* address on the device */
    int64_t bytes;
    uint8_t *before, *now; /* (bytes) copies on the host: before the instruction, and now */
};
/* Bytes that an instruction may write. */
struct writable {
    const char *start;
    int64_t bytes;
};
struct check {
    int32_t n;
    struct span *span; /* (n) the arena with its guard, slabs, results, cells */
    int32_t n_under_way, n_writable;
    const struct wn__instr **under_way; /* (n_under_way) starts of exchanges that are not waited for yet */
    struct writable *writable;          /* (n_writable) what may change now */
};

static int32_t add_span(struct wn__run *r, struct check *c, void *start, int64_t bytes)
{
    if (start == NULL || bytes == 0) return WN_OK;
    struct span *s = &c->span[c->n];
    *s = (struct span){start, bytes, wn__pool_get(&r->pool, bytes), wn__pool_get(&r->pool, bytes)};
    if (s->before == NULL || s->now == NULL) return WN_OOM;
    c->n++;
    return WN_OK;
}

static int32_t start_check(struct wn__run *r, void **own)
{
    const struct wn_program *p = r->p;
    const struct wn__ir *ir = p->plan.ir;
    int64_t arena = p->plan.schedule->arena + GUARD;
    if (!r->device->real) return WN_OK;
    struct check *c = *own = wn__pool_get(&r->pool, sizeof *c);
    if (c == NULL) return WN_OOM;
    if (!WN_ARRAY(&r->pool, c->span, ir->n_slabs + ir->n_results + ir->n_cells) ||
        !WN_ARRAY(&r->pool, c->under_way, r->schedule->n_moves) ||
        !WN_ARRAY(&r->pool, c->writable, WRITABLE * ((int64_t)r->schedule->n_moves + 1)))
        return WN_OOM;
    WN_TRY(r->device->fill(r->device, r->arena, CANARY, arena));
    WN_TRY(add_span(r, c, r->arena, arena));
    for (int32_t k = 0; k < ir->n_slabs; k++)
        WN_TRY(add_span(r, c, p->bindings.slab[k]->data, p->bindings.slab[k]->bytes));
    for (int32_t i = 0; i < ir->n_results; i++)
        if (r->result[i] != NULL) WN_TRY(add_span(r, c, r->result[i]->data, r->result[i]->bytes));
    for (int32_t i = 0; i < ir->n_cells; i++)
        if (p->bindings.cell[i]->buffer != NULL)
            WN_TRY(add_span(r, c, p->bindings.cell[i]->buffer->data, p->bindings.cell[i]->buffer->bytes));
    return WN_OK;
}

static void put_writable(struct check *c, const char *start, int64_t bytes)
{
    c->writable[c->n_writable++] = (struct writable){start, bytes};
}

/* Lists what an instruction may write: its output, cells and workspace, of the value's own bytes and not of the rest of
 * its granule. */
static void list_writable(const struct wn__run *r, struct check *c, const struct wn__instr *n)
{
    const struct wn__schedule *s = r->schedule;
    const struct wn__ir *ir = r->ir;
    if (n->what == WN_DO_OFFLOAD) return;
    int64_t bytes = wn__instr_way(n) < 0 ? wn__instr_bytes(ir, s, n) : wn__bytes(&ir->node[n->node].type);
    const struct wn__allocation *out = n->out >= 0 ? &s->allocation[s->value[n->out].allocation] : NULL;
    if (out != NULL) put_writable(c, wn__allocation_address(r, out), n->what == WN_DO_FETCH ? wn__paged(bytes) : bytes);
    for (int32_t k = 0; k < 3; k++)
        if (n->cell[k] >= 0) put_writable(c, wn__written_address(r, n, k), bytes);
    if (n->work_bytes > 0) put_writable(c, wn__work_address(r, n), n->work_bytes);
}

/* Returns how many bytes from `at` on may change; 0: none. */
static int64_t writable_from(const struct check *c, const char *at)
{
    for (int32_t k = 0; k < c->n_writable; k++)
        if (at >= c->writable[k].start && at < c->writable[k].start + c->writable[k].bytes)
            return c->writable[k].start + c->writable[k].bytes - at;
    return 0;
}

/* Returns the first byte of a span that has changed and may not; the bytes of the span: there is none. */
static int64_t find_stray(const struct check *c, const struct span *s)
{
    int64_t k = 0;
    if (memcmp(s->before, s->now, (size_t)s->bytes) == 0) return s->bytes;
    while (k < s->bytes) {
        int64_t more = s->before[k] == s->now[k] ? 1 : writable_from(c, s->start + k);
        if (more == 0) return k;
        k += more;
    }
    return s->bytes;
}

/* Compares with the copies, which are those of now from then on. n: the instruction that has run since; NULL: none has.
 * WN_ILLEGAL: it wrote where it may not, or an exchange did. */
static int32_t compare(struct wn__run *r, struct check *c, const struct wn__instr *n)
{
    c->n_writable = 0;
    if (n != NULL) list_writable(r, c, n);
    for (int32_t k = 0; k < c->n_under_way; k++) list_writable(r, c, c->under_way[k]);
    WN_TRY(r->device->sync(r->device));
    for (int32_t i = 0; i < c->n; i++) {
        struct span *s = &c->span[i];
        WN_TRY(r->device->get(r->device, s->now, s->start, s->bytes));
        int64_t stray = find_stray(c, s);
        int32_t node = n != NULL ? n->node : c->under_way[0]->node;
        if (stray < s->bytes)
            return wn__fail(WN_ILLEGAL,
                            "checked run: %s (node %d) wrote outside its output and workspace, %lld bytes into a span "
                            "of %lld",
                            wn__op_name(r->ir->node[node].op), node, (long long)stray, (long long)s->bytes);
        uint8_t *before = s->before;
        s->before = s->now;
        s->now = before;
    }
    return WN_OK;
}

static int32_t is_exchange_wait(const struct wn__run *r, const struct wn__instr *n)
{
    return n->what == WN_DO_WAIT && (wn__ir_flags(r->ir, n->node) & WN_LINK) != 0;
}

/* Copies aside what the program owns, before an instruction. Where exchanges are under way, compares it with the copies
 * before, unless freed bytes are poisoned in between. */
static int32_t check_before(struct wn__run *r, void *own, const struct wn__instr *n)
{
    struct check *c = own;
    if (!wn__instr_makes(n) && !is_exchange_wait(r, n)) return WN_OK;
    if (c->n_under_way > 0 && !wn__poison_on) return compare(r, c, NULL);
    WN_TRY(r->device->sync(r->device));
    for (int32_t i = 0; i < c->n; i++)
        WN_TRY(r->device->get(r->device, c->span[i].before, c->span[i].start, c->span[i].bytes));
    return WN_OK;
}

/* Compares behind an instruction, when a transfer has ended. An exchange is compared at its wait. */
static int32_t check_after(struct wn__run *r, void *own, const struct wn__instr *n)
{
    struct check *c = own;
    if (n->what == WN_DO_EXCHANGE) c->under_way[c->n_under_way++] = n;
    if (is_exchange_wait(r, n)) {
        WN_TRY(compare(r, c, NULL));
        int32_t k = 0;
        while (c->under_way[k]->move != n->move) k++;
        c->under_way[k] = c->under_way[--c->n_under_way];
    }
    if (!wn__instr_makes(n) || n->what == WN_DO_EXCHANGE) return WN_OK;
    if (wn__instr_way(n) >= 0) WN_TRY(wn__transfer_wait(r, n));
    return compare(r, c, n);
}

/* Measures the highest byte of the arena that was touched, + 1. */
static void stop_check(struct wn__run *r, void *own)
{
    struct check *c = own;
    struct span *s = c->span;
    int64_t top = 0;
    if (c->n > 0 && s->start == r->arena && r->device->get(r->device, s->now, s->start, s->bytes) == WN_OK)
        for (top = s->bytes; top > 0 && s->now[top - 1] == CANARY;) top--;
    r->p->run.measured.high_water = top;
}

const struct wn__watch wn__watch_check = {.is_on = &wn__check_on,
                                          .is_apart = 1,
                                          .start = start_check,
                                          .at[WN_MOMENT_BEFORE] = check_before,
                                          .at[WN_MOMENT_AFTER] = check_after,
                                          .stop = stop_check};

/* ---- the poison ----------------------------------------------------------------------------------------------- */

static int32_t start_poison(struct wn__run *r, void **own)
{
    if (!r->device->real) return WN_OK;
    *own = r;
    int64_t bytes = r->schedule->arena;
    return bytes > 0 ? r->device->fill(r->device, r->arena, POISON, bytes) : WN_OK;
}

static int32_t poison_freed(struct wn__run *r, void *own, const struct wn__instr *n)
{
    (void)own;
    const struct wn__allocation *t = &r->schedule->allocation[n->out];
    return t->space >= WN_SPACE_HOST ? WN_OK
                                     : r->device->fill(r->device, wn__allocation_address(r, t), POISON, t->bytes);
}

const struct wn__watch wn__watch_poison = {
    .is_on = &wn__poison_on, .is_apart = 1, .start = start_poison, .at[WN_MOMENT_FREED] = poison_freed};

/* ---- what is computed again ---------------------------------------------------------------------------------- */

struct replay {
    int32_t met;             /* values computed again so far */
    uint64_t *first;         /* (ir->n) hash of each node's first value */
    uint8_t *issued, *value; /* (ir->n) how often the node has run; room for the largest value that is compared */
    uint8_t *inexact;        /* (n_values of the schedule) 1: made of what a lossy action gave back, so not compared */
};

/* Marks values that a lossy action gives back, and all that are computed from them: their bits may differ from those
 * before. */
static void find_inexact(struct replay *c, const struct wn_program *p)
{
    const struct wn__schedule *s = p->plan.schedule;
    for (int32_t i = 0; i < s->n; i++) {
        const struct wn__instr *n = &s->instr[i];
        if (n->out < 0 || !wn__instr_makes(n)) continue;
        int32_t n_in = wn__instr_n_in(p->plan.ir, n);
        c->inexact[n->out] = n->what == WN_DO_UNPACK && wn__action_is_lossy(s->value[n->out].back);
        for (int32_t k = 0; k < n_in; k++) c->inexact[n->out] |= c->inexact[s->in[n->in_at + k]];
    }
}

static int32_t start_replay(struct wn__run *r, void **own)
{
    const struct wn__ir *ir = r->ir;
    const struct wn__schedule *s = r->schedule;
    int64_t most = 0;
    if (!r->device->real) return WN_OK;
    struct replay *c = *own = wn__pool_get(&r->pool, sizeof *c);
    if (c == NULL) return WN_OOM;
    for (int32_t i = 0; i < ir->n; i++)
        if (s->node_issues[i] > 1 && wn__bytes(&ir->node[i].type) > most) most = wn__bytes(&ir->node[i].type);
    if (!WN_ARRAY(&r->pool, c->first, ir->n) || !WN_ARRAY(&r->pool, c->issued, ir->n) ||
        !WN_ARRAY(&r->pool, c->value, most) || !WN_ARRAY(&r->pool, c->inexact, s->n_values))
        return WN_OOM;
    find_inexact(c, r->p);
    return WN_OK;
}

static int32_t replay_differs(const struct wn_program *p, const struct wn__instr *n, int32_t issued)
{
    const struct wn__ir_node *q = &p->plan.ir->node[n->node];
    const char *path = wn__scope_get(q->scope)->path;
    int32_t line = wn__program_line(p, n->node);
    return wn__fail(
        WN_ILLEGAL,
        "replay check: %s%s%s%s%s, computed again for the backward (copy %d of %d), has other bits than the "
        "value that was dropped%s%s",
        wn__ir_op_text(p->plan.ir, n->node), path[0] ? " of '" : "", path, path[0] ? "'" : "", q->name ? q->name : "",
        issued, p->plan.schedule->node_issues[n->node], line ? "; recorded at " : "", wn__line_text(line));
}

/* Hashes the value that instruction n made, and compares it with the node's first value. */
static int32_t replay(struct wn__run *r, void *own, const struct wn__instr *n)
{
    struct replay *c = own;
    const struct wn__schedule *s = r->schedule;
    if (n->what != WN_DO_RUN || n->out < 0 || s->node_issues[n->node] < 2) return WN_OK;
    if (s->allocation[s->value[n->out].allocation].space == WN_SPACE_BOUND || c->inexact[n->out]) return WN_OK;
    struct wn_device *d = r->device;
    char *at = wn__value_address(r, n->out);
    int64_t bytes = wn__bytes(&r->ir->node[n->node].type);
    WN_TRY(d->sync(d));
    WN_TRY(d->get(d, c->value, at, bytes));
    if (c->issued[n->node] > 0 && ++c->met == wn__replay_fault && bytes > 0) {
        c->value[bytes / 2] ^= 1;
        wn__replay_fault = 0;
        WN_TRY(d->put(d, at, c->value, bytes));
    }
    wn__rows_clear(&r->ir->node[n->node].type, c->value, 0, bytes);
    uint64_t hash = wn__digest(WN_DIGEST_START, c->value, bytes);
    if (c->issued[n->node] < UINT8_MAX) c->issued[n->node]++;
    if (c->issued[n->node] == 1) {
        c->first[n->node] = hash;
        return WN_OK;
    }
    r->p->run.measured.replayed++;
    r->p->run.measured.replayed_bytes += bytes;
    return hash == c->first[n->node] ? WN_OK : replay_differs(r->p, n, c->issued[n->node]);
}

const struct wn__watch wn__watch_replay = {
    .is_on = &wn__replay_on, .is_apart = 1, .start = start_replay, .at[WN_MOMENT_AFTER] = replay};
