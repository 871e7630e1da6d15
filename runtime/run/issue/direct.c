/* Launches kernels one by one, at the addresses that the run has: see issue.h. Nothing here allocates. */
#include "../../base/memory_order.h"
#include "issue.h"

/* Returns base + offset. NULL stays NULL: no bytes, or those of the meta device. */
static char *at(void *base, int64_t offset)
{
    return base == NULL ? NULL : (char *)base + offset;
}

char *wn__allocation_address(const struct wn__run *r, const struct wn__allocation *t)
{
    switch (t->space) {
    case WN_SPACE_SLAB: return at(r->p->bindings.slab[t->slot]->data, t->offset);
    case WN_SPACE_CELL: return wn__cell_data(r->p->bindings.cell[t->slot]);
    case WN_SPACE_BOUND: return r->p->bindings.bound[t->slot]->held->data;
    case WN_SPACE_RESULT: return r->result[t->slot]->data;
    default: return at(r->arena, t->offset);
    }
}

char *wn__value_address(const struct wn__run *r, int32_t value)
{
    const struct wn__value *v = &r->schedule->value[value];
    return at(wn__allocation_address(r, &r->schedule->allocation[v->allocation]), v->at);
}

char *wn__work_address(const struct wn__run *r, const struct wn__instr *n)
{
    return at(n->work_slab < 0 ? r->arena : r->p->bindings.slab[n->work_slab]->data, n->work_offset);
}

char *wn__written_address(const struct wn__run *r, const struct wn__instr *n, int32_t k)
{
    int32_t is_whole = (wn__ir_flags(r->ir, n->node) & WN_LINK) != 0; /* everybody's ranges, not the own one */
    return at(wn__allocation_address(r, &r->schedule->allocation[n->cell[k]]),
              is_whole ? 0 : r->ir->cell[r->ir->node[n->node].cell[k]].own_at);
}

/* Fills the addresses of seed, counter and report, for a kernel of an asynchronous device. */
static void point_at_scalars(const struct wn__run *r, const struct wn__instr *n, struct wn_buffers *buffers)
{
    const struct wn__ir *ir = r->ir;
    const struct wn__schedule *s = r->schedule;
    if (s->scalars < 0) return;
    char *scalars = wn__allocation_address(r, &s->allocation[s->scalars]);
    int32_t random = n->what == WN_DO_RUN ? ir->node[n->node].random : -1;
    if (random >= 0) buffers->random = (const uint64_t *)(scalars + wn__random_at(ir, random));
    if (n->report >= 0) buffers->report = (uint64_t *)(scalars + wn__report_at(ir, n->report));
}

/* Returns the address that a kernel is given for a value or a workspace. NULL, of no bytes, is none that memcpy takes,
 * or that a kernel may add 0 to. */
static void *given(void *address)
{
    static _Alignas(256) char none[256];
    return address == NULL ? none : address;
}

int32_t wn__issue(struct wn__run *r, const struct wn__instr *n)
{
    const struct wn__schedule *s = r->schedule;
    const struct wn__ir_node *q = &r->ir->node[n->node];
    const void **in = r->in;
    void *cell[3] = {NULL, NULL, NULL};
    struct wn_buffers buffers = {.in = in, .cell = cell, .made = n->made};
    struct wn__applied room;
    const struct wn_desc *desc = wn__instr_desc(r->ir, s, n, &room);
    for (int32_t k = 0; k < desc->n_in; k++) in[k] = given(wn__value_address(r, s->in[n->in_at + k]));
    for (int32_t k = 0; k < 3; k++)
        if (n->cell[k] >= 0) cell[k] = given(wn__written_address(r, n, k));
    if (n->out >= 0) buffers.out = given(wn__value_address(r, n->out));
    buffers.workspace = given(n->work_bytes > 0 ? wn__work_address(r, n) : NULL);
    if (n->what == WN_DO_RUN && q->random >= 0) {
        buffers.seed = r->p->bindings.random[q->random].seed;
        buffers.counter = r->p->bindings.random[q->random].counter;
    }
    if (r->ir->target->is_asynchronous) point_at_scalars(r, n, &buffers);
    if (n->what == WN_DO_RUN && q->offset >= 0) {
        room.desc = *desc;
        wn__program_attrs(r->p, n->node, &room.desc.attrs);
        desc = &room.desc;
    }
    if (desc->op == WN_OP_ASSIGN && in[0] == cell[0])
        return WN_OK; /* a gradient that was made in its cell is there already */
    return r->device->launch(r->device, n->kernel, wn__in_memory_order(desc, &room.order), &buffers);
}
