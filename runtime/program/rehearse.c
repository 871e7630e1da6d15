/* Rehearsals: see rehearse.h. A rehearsal holds a list of cells that it changed, each with the state that is not in
 * force: while the rehearsal is under way that is the cell's own, else the rehearsal's. */
#include "rehearse.h"
#include "../base/alloc.h"

struct wn__rehearsed {     /* A cell of a rehearsal, with the state that is not in force. */
    struct wn_cell *cell;  /* counted */
    struct wn__slab *slab; /* counted; the slab that the cell has not got now, of the cell itself or of the rehearsal */
    int64_t slab_offset;   /* bytes from the start of that slab */
    int32_t allocated;
    int32_t hides; /* 1: its slab must keep its memory, for a real gradient has its bytes there */
    int32_t made;  /* number of the program, from 1, that gives a state its first value; 0: none */
    int32_t at;    /* 1: the gradient exists at the time that look_at has set */
};

/* A gradient that begins or ends to be allocated. */
struct allocation_change {
    int32_t cell, allocated; /* number of the cell in the rehearsal; 1: it is allocated from then on */
    int32_t program;         /* how many programs had run before */
};

struct wn__rehearsal {
    struct wn__rehearsed *cell;
    struct allocation_change *change;
    struct wn_node **result; /* counted */
    int64_t n, capacity, n_changes, change_capacity, n_results, result_capacity;
    int32_t n_programs;
};

static struct wn__rehearsal *now;

struct wn__rehearsal *wn__rehearsal_now(void)
{
    return now;
}

struct wn__rehearsal *wn__rehearsal_new(void)
{
    return wn__alloc(sizeof(struct wn__rehearsal));
}

/* ---- entering and leaving ------------------------------------------------------------------------------------- */

/* Exchanges a cell's state with the one that is not in force. */
static void swap_cell(struct wn__rehearsed *e)
{
    struct wn_cell *c = e->cell;
    struct wn__slab *slab = c->slab;
    int64_t offset = c->slab_offset;
    int32_t allocated = c->allocated;
    if (allocated) slab->allocated--;
    c->slab = e->slab;
    c->slab_offset = e->slab_offset;
    c->allocated = e->allocated;
    if (c->allocated) c->slab->allocated++;
    e->slab = slab;
    e->slab_offset = offset;
    e->allocated = allocated;
}

static void leave(struct wn__rehearsal *r)
{
    for (int64_t i = r->n - 1; i >= 0; i--) {
        if (r->cell[i].hides) r->cell[i].slab->hidden--;
        swap_cell(&r->cell[i]);
        r->cell[i].cell->rehearsed = 0;
    }
}

static void enter(struct wn__rehearsal *r)
{
    for (int64_t i = 0; i < r->n; i++) {
        swap_cell(&r->cell[i]);
        r->cell[i].hides = r->cell[i].allocated;
        if (r->cell[i].hides) r->cell[i].slab->hidden++;
        r->cell[i].cell->rehearsed = (int32_t)i + 1;
    }
}

struct wn__rehearsal *wn__rehearsal_enter(struct wn__rehearsal *r)
{
    struct wn__rehearsal *before = now;
    if (before == r) return before;
    if (before != NULL) leave(before);
    now = r;
    if (r != NULL) enter(r);
    return before;
}

void wn__rehearsal_free(void *rehearsal)
{
    struct wn__rehearsal *r = rehearsal;
    if (now == r) wn__rehearsal_enter(NULL);
    for (int64_t i = 0; i < r->n; i++) {
        wn__slab_unref(r->cell[i].slab);
        wn__cell_unref(r->cell[i].cell);
    }
    for (int64_t i = 0; i < r->n_results; i++) wn__node_unref(r->result[i]);
    wn__free(r->cell);
    wn__free(r->change);
    wn__free(r->result);
    wn__free(r);
}

/* ---- changes ----------------------------------------------------------------------------------------------------- */

/* Notes a cell, as it is, before it is changed for the first time. */
static int32_t note(struct wn_cell *c, struct wn__rehearsed **out)
{
    if (c->rehearsed == 0) {
        WN_TRY(wn__grow(&now->cell, &now->capacity, now->n + 1, sizeof *now->cell));
        struct wn__rehearsed *e = &now->cell[now->n++];
        *e = (struct wn__rehearsed){.cell = c,
                                    .slab = c->slab,
                                    .slab_offset = c->slab_offset,
                                    .allocated = c->allocated,
                                    .hides = c->allocated};
        wn__cell_ref(c);
        if (c->slab != NULL) c->slab->refs++;
        if (e->hides) c->slab->hidden++;
        c->rehearsed = (int32_t)now->n;
    }
    *out = &now->cell[c->rehearsed - 1];
    return WN_OK;
}

static int32_t set_allocated(struct wn_cell *g, int32_t allocated)
{
    if (g->allocated == allocated) return WN_OK;
    WN_TRY(wn__grow(&now->change, &now->change_capacity, now->n_changes + 1, sizeof *now->change));
    now->change[now->n_changes++] = (struct allocation_change){g->rehearsed - 1, allocated, now->n_programs};
    g->allocated = allocated;
    g->slab->allocated += allocated ? 1 : -1;
    return WN_OK;
}

int32_t wn__rehearse_drop(struct wn_cell *c)
{
    struct wn__rehearsed *e;
    if (c->grad == NULL || !c->grad->allocated) return WN_OK;
    WN_TRY(note(c->grad, &e));
    return set_allocated(c->grad, 0);
}

int32_t wn__rehearsed_value(const struct wn_cell *c)
{
    return c->rehearsed > 0 && now->cell[c->rehearsed - 1].made > 0;
}

/* ---- runs -------------------------------------------------------------------------------------------------------- */

static int32_t reads(const struct wn_program *p, const struct wn_node *n)
{
    return n->local >= 0 && n->local < p->order.count && p->order.nodes[n->local] == n;
}

/* Refuses with WN_UNSUPPORTED a program that reads a result of one before it. */
static int32_t refuse_results(const struct wn_program *p)
{
    for (int64_t i = 0; i < now->n_results; i++) {
        const struct wn_node *n = now->result[i];
        if (n->n_in > 0 && !n->is_held && reads(p, n))
            return wn__fail(WN_UNSUPPORTED,
                            "plan: a run point of the function reads the %s that an earlier one computes and keeps; "
                            "steps of several run points are planned as long as none reads what another left, but "
                            "gradients and states",
                            wn__op_name(n->op));
    }
    return WN_OK;
}

/* Keeps the results that the program would leave, so that later programs can be compared with them. */
static int32_t keep_results(const struct wn_program *p)
{
    int64_t n = p->ir->n_results;
    WN_TRY(wn__grow(&now->result, &now->result_capacity, now->n_results + n, sizeof *now->result));
    for (int32_t i = 0; i < n; i++) {
        if (p->result[i] == NULL) continue;
        wn__node_ref(p->result[i]);
        now->result[now->n_results++] = p->result[i];
    }
    return WN_OK;
}

/* Notes all cells that a run changes first, so that the places of gradients can be bound as a run binds them. */
static int32_t change_cells(struct wn_program *p)
{
    const struct wn__ir *ir = p->ir;
    struct wn__rehearsed *e;
    for (int32_t i = 0; i < ir->n_cells; i++) {
        struct wn_cell *c = p->cell[i];
        if (c->kind != WN_KIND_GRADIENT && wn__cell_has_value(c)) continue;
        WN_TRY(note(c, &e));
        if (c->kind != WN_KIND_GRADIENT && e->made == 0) e->made = now->n_programs + 1;
    }
    WN_TRY(wn__program_bind_slabs(p));
    now->n_programs++;
    for (int32_t i = p->n_named; i < ir->n_cells; i++) WN_TRY(set_allocated(p->cell[i], 1));
    return WN_OK;
}

int32_t wn__rehearse_run(struct wn_program *p)
{
    WN_TRY(refuse_results(p));
    WN_TRY(keep_results(p));
    return change_cells(p);
}

/* ---- what is held beside ----------------------------------------------------------------------------------------- */

struct beside {
    struct wn_program *const *p;
    int32_t n, i; /* how many programs; the one that is looked at */
    int64_t stamp;
    struct wn_beside *out;
};

static void add(struct beside *b, int32_t kind, int64_t bytes, int32_t at_first)
{
    b->out->kinds[kind] += bytes;
    b->out->live += bytes;
    b->out->reserved += bytes;
    if (!at_first) return;
    b->out->first_live += bytes;
    b->out->first_reserved += bytes;
}

/* Returns whether a state has a value when program i runs for the first time. */
static int32_t is_there(const struct wn_cell *c, int32_t i)
{
    if (wn__cell_has_value(c) || c->rehearsed == 0) return 1;
    int32_t made = now->cell[c->rehearsed - 1].made;
    return made > 0 && made <= i;
}

/* Finds which of the noted gradients exist when program i starts. */
static void look_at(int32_t i)
{
    for (int64_t k = 0; now != NULL && k < now->n; k++) now->cell[k].at = now->cell[k].hides;
    for (int64_t k = 0; now != NULL && k < now->n_changes && now->change[k].program <= i; k++)
        now->cell[now->change[k].cell].at = now->change[k].allocated;
}

/* Marks the cells and values that program i has itself, so that only others are added. */
static void mark_own(struct beside *b)
{
    const struct wn_program *p = b->p[b->i];
    for (int32_t k = 0; k < p->ir->n_cells; k++) p->cell[k]->stamp = b->stamp;
    for (int32_t k = 0; k < p->ir->n_bound; k++)
        if (p->bound[k] != NULL) p->bound[k]->stamp = b->stamp;
}

static void add_gradient(struct beside *b, const struct wn_cell *g)
{
    int32_t exists = g->rehearsed > 0 ? now->cell[g->rehearsed - 1].at : g->allocated;
    int64_t bytes = wn__padded(wn__bytes(&g->type));
    if (now == NULL || !exists) return;
    b->out->kinds[WN_KIND_GRADIENT] += bytes;
    b->out->live += bytes;
    b->out->first_live += bytes;
}

static void add_cells(struct beside *b, const struct wn_program *p)
{
    for (int32_t k = 0; k < p->ir->n_cells; k++) {
        struct wn_cell *c = p->cell[k];
        if (c->stamp == b->stamp) continue;
        c->stamp = b->stamp;
        if (c->kind == WN_KIND_GRADIENT) add_gradient(b, c);
        else add(b, c->kind, wn__padded(wn__bytes(&c->type)), is_there(c, b->i));
    }
}

static void add_values(struct beside *b, const struct wn_program *p, int32_t has_run)
{
    for (int32_t k = 0; k < p->ir->n_bound; k++) {
        struct wn_node *n = p->bound[k];
        if (n == NULL || n->held == NULL || n->stamp == b->stamp) continue;
        n->stamp = b->stamp;
        add(b, WN_KIND_INPUT, n->held->bytes, 1);
    }
    for (int32_t k = 0; has_run && k < p->ir->n_results; k++) {
        const struct wn_node *n = p->result[k];
        if (n != NULL && n->type.ndim > 0) add(b, WN_KIND_RESULT, wn__padded(wn__bytes(&n->type)), 1);
    }
}

int64_t wn__slab_share(const struct wn_program *p, const struct wn__slab *s)
{
    int64_t bytes = 0;
    for (int32_t k = 0; k < p->ir->n_cells; k++) {
        if (p->cell[k]->kind != WN_KIND_GRADIENT || p->cell[k]->slab != s) continue;
        if (p->ir->cell[k].slab >= 0 || p->ir->cell[k].shares > 0) return s->bytes;
        bytes += wn__padded(wn__bytes(&p->cell[k]->type));
    }
    return bytes;
}

/* Returns whether a slab has memory when program i starts for the first time. */
static int32_t has_memory(const struct wn__slab *s, int32_t i)
{
    int32_t is_noted = 0;
    for (int64_t k = 0; now != NULL && k < now->n_changes; k++) {
        if (now->cell[now->change[k].cell].cell->slab != s) continue;
        if (now->change[k].program <= i) return 1;
        is_noted = 1;
    }
    return s->data != NULL || !is_noted;
}

static void add_slabs(struct beside *b)
{
    int64_t stamp = wn__node_stamp();
    for (int32_t j = 0; j < b->n; j++)
        for (int32_t k = 0; k < b->p[j]->ir->n_cells; k++) {
            const struct wn_cell *c = b->p[j]->cell[k];
            if (c->kind != WN_KIND_GRADIENT || c->slab == NULL || c->slab->stamp == stamp) continue;
            c->slab->stamp = stamp;
            int64_t rest = c->slab->bytes - wn__slab_share(b->p[b->i], c->slab);
            b->out->reserved += rest;
            if (has_memory(c->slab, b->i)) b->out->first_reserved += rest;
        }
}

int32_t wn__beside(struct wn_program *const *p, int32_t n, struct wn_beside *out)
{
    for (int32_t i = 1; i < n; i++)
        if (p[i]->device != p[0]->device)
            return wn__fail(WN_UNSUPPORTED, "plan: run points on %s and on %s in one step; plan one device at a time",
                            wn__device(p[0]->device)->name, wn__device(p[i]->device)->name);
    for (int32_t i = 0; i < n; i++) {
        struct beside b = {.p = p, .n = n, .i = i, .stamp = wn__node_stamp(), .out = &out[i]};
        out[i] = (struct wn_beside){0};
        look_at(i);
        mark_own(&b);
        for (int32_t j = 0; j < n; j++) {
            if (j == i) continue;
            add_cells(&b, p[j]);
            add_values(&b, p[j], j < i);
        }
        add_slabs(&b);
    }
    return WN_OK;
}
