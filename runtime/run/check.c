/* The checked run and the replay check: see check.h. The first compares bytes, not intentions, and so costs the
 * whole memory of the program at every instruction; it must never be on outside specs. */
#include "check.h"
#include <string.h>
#include "../base/alloc.h"
#include "../plan/lower/instruction.h"
#include "../plan/recipe/action.h"
#include "../plan/ir/rewrite.h"

#define GUARD (1 << 20)
#define CANARY 0xA5
#define POISON 0xFF /* every float of this byte is a NaN */

int32_t wn__check_on, wn__poison_on, wn__replay_on, wn__replay_fault;

int64_t wn__check_guard(void)
{
    return wn__check_on ? GUARD : 0;
}

static int32_t add_span(struct wn__check *c, void *start, int64_t bytes)
{
    struct wn__check_span *s = &c->span[c->n];
    if (start == NULL || bytes == 0) return WN_OK;
    *s = (struct wn__check_span){start, bytes, wn__alloc(bytes), wn__alloc(bytes)};
    c->n++;
    return s->before != NULL && s->now != NULL ? WN_OK : WN_OOM;
}

int32_t wn__check_start(struct wn__check *c, struct wn_program *p, char *arena, struct wn__buffer **result)
{
    struct wn_device *d = wn__device(p->device);
    const struct wn__ir *ir = p->ir;
    c->p = p;
    c->arena = arena;
    c->result = result;
    c->poison = wn__poison_on && d->real;
    c->on = wn__check_on && d->real;
    WN_TRY(wn__replay_start(c));
    if (c->poison && p->schedule->arena > 0) WN_TRY(d->fill(d, arena, POISON, p->schedule->arena));
    if (!c->on) return WN_OK;
    c->span = wn__alloc((1 + ir->n_slabs + ir->n_results + ir->n_cells) * (int64_t)sizeof *c->span);
    if (c->span == NULL) return WN_OOM;
    WN_TRY(d->fill(d, arena, CANARY, p->schedule->arena + GUARD));
    WN_TRY(add_span(c, arena, p->schedule->arena + GUARD));
    for (int32_t k = 0; k < ir->n_slabs; k++) WN_TRY(add_span(c, p->slab[k]->data, p->slab[k]->bytes));
    for (int32_t r = 0; r < ir->n_results; r++)
        if (result[r] != NULL) WN_TRY(add_span(c, result[r]->data, result[r]->bytes));
    for (int32_t i = 0; i < ir->n_cells; i++)
        if (p->cell[i]->buffer != NULL) WN_TRY(add_span(c, p->cell[i]->buffer->data, p->cell[i]->buffer->bytes));
    return WN_OK;
}

int32_t wn__check_before(struct wn__check *c)
{
    if (!c->on) return WN_OK;
    struct wn_device *d = wn__device(c->p->device);
    WN_TRY(d->sync(d));
    for (int32_t i = 0; i < c->n; i++) WN_TRY(d->get(d, c->span[i].before, c->span[i].start, c->span[i].bytes));
    return WN_OK;
}

static const char *allocation_start(const struct wn__check *c, const struct wn__allocation *t)
{
    switch (t->space) {
    case WN_SPACE_SLAB: return (char *)c->p->slab[t->slot]->data + t->offset;
    case WN_SPACE_CELL: return wn__cell_data(c->p->cell[t->slot]);
    case WN_SPACE_RESULT: return c->result[t->slot]->data;
    case WN_SPACE_BOUND: return NULL;
    default: return c->arena + t->offset;
    }
}

/* Returns whether an instruction may write the byte at `at`: one of its output, cells and workspace, of the value's
 * own bytes and not of the rest of its granule. */
static int32_t may_write(const struct wn__check *c, const struct wn__instr *n, const char *at)
{
    const struct wn__schedule *s = c->p->schedule;
    if (n->what == WN_DO_OFFLOAD) return 0;
    int64_t bytes =
        wn__instr_has_kernel(n) ? wn__instr_bytes(c->p->ir, s, n) : wn__bytes(&c->p->ir->node[n->node].type);
    if (n->out >= 0) {
        const char *start = allocation_start(c, &s->allocation[s->value[n->out].allocation]);
        if (n->what == WN_DO_FETCH) bytes = wn__paged(bytes);
        if (at >= start && at < start + bytes) return 1;
    }
    for (int32_t k = 0; k < 3; k++) {
        if (n->cell[k] < 0) continue;
        const char *start = allocation_start(c, &s->allocation[n->cell[k]]);
        if (at >= start && at < start + bytes) return 1;
    }
    const char *work = (n->work_slab < 0 ? c->arena : (char *)c->p->slab[n->work_slab]->data) + n->work_offset;
    return n->work_bytes > 0 && at >= work && at < work + n->work_bytes;
}

int32_t wn__check_after(struct wn__check *c, const struct wn__instr *n)
{
    if (!c->on) return WN_OK;
    struct wn_device *d = wn__device(c->p->device);
    WN_TRY(d->sync(d));
    for (int32_t i = 0; i < c->n; i++) {
        struct wn__check_span *s = &c->span[i];
        WN_TRY(d->get(d, s->now, s->start, s->bytes));
        if (memcmp(s->before, s->now, (size_t)s->bytes) == 0) continue;
        for (int64_t k = 0; k < s->bytes; k++)
            if (s->before[k] != s->now[k] && !may_write(c, n, s->start + k))
                return wn__fail(WN_ILLEGAL,
                                "checked run: %s (node %d) wrote outside its output and workspace, %lld bytes "
                                "into a span of %lld",
                                wn__op_name(c->p->ir->node[n->node].op), n->node, (long long)k, (long long)s->bytes);
    }
    return WN_OK;
}

/* ---- what is computed again ---------------------------------------------------------------------------------- */

/* Marks values that a lossy action gives back, and all that are computed from them: their bits may differ from those
 * before. */
static void find_inexact(struct wn__check *c)
{
    const struct wn__schedule *s = c->p->schedule;
    for (int32_t i = 0; i < s->n; i++) {
        const struct wn__instr *n = &s->instr[i];
        if (n->out < 0 || (!wn__instr_has_kernel(n) && wn__instr_way(n) < 0)) continue;
        int32_t n_in = n->what == WN_DO_RUN ? c->p->ir->node[n->node].n_in : 1;
        c->inexact[n->out] = n->what == WN_DO_UNPACK && wn__action_is_lossy(s->value[n->out].back);
        for (int32_t k = 0; k < n_in; k++) c->inexact[n->out] |= c->inexact[s->in[n->in_at + k]];
    }
}

int32_t wn__replay_start(struct wn__check *c)
{
    const struct wn__ir *ir = c->p->ir;
    const struct wn__schedule *s = c->p->schedule;
    int64_t most = 0;
    c->replay = wn__replay_on && wn__device(c->p->device)->real;
    if (!c->replay) return WN_OK;
    for (int32_t i = 0; i < ir->n; i++)
        if (s->node_issues[i] > 1 && wn__bytes(&ir->node[i].type) > most) most = wn__bytes(&ir->node[i].type);
    c->first = wn__alloc((ir->n + 1) * (int64_t)sizeof *c->first);
    c->issued = wn__alloc(ir->n + 1);
    c->room = wn__alloc(most + 1);
    c->inexact = wn__alloc(s->n_values + 1);
    if (c->first == NULL || c->issued == NULL || c->room == NULL || c->inexact == NULL) return WN_OOM;
    find_inexact(c);
    return WN_OK;
}

static int32_t replay_differs(const struct wn__check *c, const struct wn__instr *n)
{
    const struct wn__ir_node *q = &c->p->ir->node[n->node];
    const char *path = wn__scope_get(q->scope)->path;
    int32_t line = wn__program_line(c->p, n->node);
    return wn__fail(
        WN_ILLEGAL,
        "replay check: %s%s%s%s%s, computed again for the backward (copy %d of %d), has other bits than the "
        "value that was dropped%s%s",
        wn__ir_op_text(c->p->ir, n->node), path[0] ? " of '" : "", path, path[0] ? "'" : "", q->name ? q->name : "",
        c->issued[n->node], c->p->schedule->node_issues[n->node], line ? "; recorded at " : "", wn__line_text(line));
}

int32_t wn__replay_after(struct wn__check *c, const struct wn__instr *n)
{
    const struct wn__schedule *s = c->p->schedule;
    if (!c->replay || n->what != WN_DO_RUN || n->out < 0 || s->node_issues[n->node] < 2) return WN_OK;
    const struct wn__allocation *t = &s->allocation[s->value[n->out].allocation];
    if (t->space == WN_SPACE_BOUND || c->inexact[n->out]) return WN_OK;
    struct wn_device *d = wn__device(c->p->device);
    char *at = (char *)allocation_start(c, t) + s->value[n->out].at;
    int64_t bytes = wn__bytes(&c->p->ir->node[n->node].type);
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    WN_TRY(d->sync(d));
    WN_TRY(d->get(d, c->room, at, bytes));
    if (c->issued[n->node] > 0 && ++c->met == wn__replay_fault && bytes > 0) {
        c->room[bytes / 2] ^= 1;
        wn__replay_fault = 0;
        WN_TRY(d->put(d, at, c->room, bytes));
    }
    for (int64_t i = 0; i < bytes; i++) hash = (hash ^ c->room[i]) * UINT64_C(0x100000001b3);
    if (c->issued[n->node] < UINT8_MAX) c->issued[n->node]++;
    if (c->issued[n->node] == 1) {
        c->first[n->node] = hash;
        return WN_OK;
    }
    c->p->measured.replayed++;
    c->p->measured.replayed_bytes += bytes;
    return hash == c->first[n->node] ? WN_OK : replay_differs(c, n);
}

int32_t wn__check_free(struct wn__check *c, char *start, int64_t bytes)
{
    struct wn_device *d = wn__device(c->p->device);
    return c->poison ? d->fill(d, start, POISON, bytes) : WN_OK;
}

int64_t wn__check_stop(struct wn__check *c)
{
    int64_t top = 0;
    if (c->on && c->n > 0 && c->span[0].start == c->arena && c->span[0].now != NULL) {
        struct wn_device *d = wn__device(c->p->device);
        struct wn__check_span *s = &c->span[0];
        if (d->get(d, s->now, s->start, s->bytes) == WN_OK)
            for (top = s->bytes; top > 0 && s->now[top - 1] == CANARY;) top--;
    }
    for (int32_t i = 0; i < c->n; i++) {
        wn__free(c->span[i].before);
        wn__free(c->span[i].now);
    }
    wn__free(c->span);
    c->span = NULL;
    wn__free(c->first);
    wn__free(c->issued);
    wn__free(c->room);
    wn__free(c->inexact);
    return top;
}
