/* Sequences: see sequence.h. A planned one holds a list of cells that it changed, each with the state that is not in
 * force: while the sequence is under way that is the cell's own, else the sequence's. One that runs holds the state
 * that each cell had before. */
#include "sequence.h"
#include "../base/alloc.h"

struct noted {             /* A cell of a sequence, with the state that is not in force, or was before. */
    struct wn_cell *cell;  /* counted */
    struct wn__slab *slab; /* counted; the slab that the cell has not got now, of the cell itself or of the sequence */
    int64_t slab_offset;   /* bytes from the start of that slab */
    int32_t allocated;
    int32_t hides;   /* 1: a gradient that exists for real; a planned sequence sees that its slab keeps its memory */
    int32_t made;    /* number of the program, from 1, that gives a state its first value; 0: none */
    int32_t at;      /* 1: the gradient exists at the time that look_at has set */
    int64_t version; /* of `saved` */
    void *saved;     /* copy of the value that the cell had before it was written; NULL: none */
};

/* A gradient that begins or ends to be allocated. */
struct allocation_change {
    int32_t cell, allocated; /* number of the cell in the sequence; 1: it is allocated from then on */
    int32_t program;         /* how many programs had run before */
};

struct nodes { /* A list of nodes, counted. */
    struct wn_node **node;
    int64_t n, capacity;
};

struct wn__sequence {
    int32_t mode; /* WN_SEQUENCE_ */
    struct noted *cell;
    struct allocation_change *change;
    struct nodes result; /* of a planned sequence: what its programs leave */
    struct nodes done;   /* whose effects the programs of a sequence that is undone have carried out */
    int64_t n, capacity, n_changes, change_capacity;
    int32_t n_programs;
};

static struct wn__sequence *now;

struct wn__sequence *wn__sequence_now(void)
{
    return now;
}

int32_t wn__sequence_is_planned(void)
{
    return now != NULL && now->mode == WN_SEQUENCE_PLANNED;
}

struct wn__sequence *wn__sequence_new(int32_t mode)
{
    struct wn__sequence *s = wn__alloc(sizeof *s);
    if (s != NULL) s->mode = mode;
    return s;
}

static int32_t put_node(struct nodes *l, struct wn_node *n)
{
    WN_TRY(wn__grow(&l->node, &l->capacity, l->n + 1, sizeof(struct wn_node *)));
    wn__node_ref(n);
    l->node[l->n++] = n;
    return WN_OK;
}

static void release_nodes(struct nodes *l)
{
    for (int64_t i = 0; i < l->n; i++) wn__node_unref(l->node[i]);
    wn__free(l->node);
}

/* ---- entering and leaving ------------------------------------------------------------------------------------- */

/* Exchanges a cell's state with the one that is not in force. */
static void swap_cell(struct noted *e)
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

static void leave(struct wn__sequence *s)
{
    for (int64_t i = s->n - 1; i >= 0; i--) {
        s->cell[i].cell->noted = 0;
        if (s->mode != WN_SEQUENCE_PLANNED) continue;
        if (s->cell[i].hides) s->cell[i].slab->hidden--;
        swap_cell(&s->cell[i]);
    }
}

static void enter(struct wn__sequence *s)
{
    for (int64_t i = 0; i < s->n; i++) {
        s->cell[i].cell->noted = (int32_t)i + 1;
        if (s->mode != WN_SEQUENCE_PLANNED) continue;
        swap_cell(&s->cell[i]);
        s->cell[i].hides = s->cell[i].allocated;
        if (s->cell[i].hides) s->cell[i].slab->hidden++;
    }
}

void wn__sequence_enter(struct wn__sequence *s)
{
    if (now == s) return;
    if (now != NULL) leave(now);
    now = s;
    if (s != NULL) enter(s);
}

void wn__sequence_free(void *sequence)
{
    struct wn__sequence *s = sequence;
    if (now == s) wn__sequence_enter(NULL);
    wn__retained_forget(s);
    for (int64_t i = 0; i < s->n; i++) {
        wn__slab_unref(s->cell[i].slab);
        wn__cell_unref(s->cell[i].cell);
        wn__free(s->cell[i].saved);
    }
    release_nodes(&s->result);
    release_nodes(&s->done);
    wn__free(s->cell);
    wn__free(s->change);
    wn__free(s);
}

/* ---- changes ----------------------------------------------------------------------------------------------------- */

/* Notes a cell, as it is, before it is changed for the first time. */
static int32_t note(struct wn_cell *c, struct noted **out)
{
    if (c->noted == 0) {
        WN_TRY(wn__grow(&now->cell, &now->capacity, now->n + 1, sizeof *now->cell));
        struct noted *e = &now->cell[now->n++];
        *e = (struct noted){.cell = c,
                            .slab = c->slab,
                            .slab_offset = c->slab_offset,
                            .allocated = c->allocated,
                            .hides = c->allocated};
        wn__cell_ref(c);
        if (c->slab != NULL) c->slab->refs++;
        if (e->hides && now->mode == WN_SEQUENCE_PLANNED) c->slab->hidden++;
        c->noted = (int32_t)now->n;
    }
    *out = &now->cell[c->noted - 1];
    return WN_OK;
}

/* Copies the value of a noted cell, as it was before the sequence wrote to it for the first time. */
static int32_t save(struct noted *e)
{
    struct wn_cell *c = e->cell;
    int64_t bytes = wn__bytes(&c->type);
    if (e->saved != NULL || !wn__cell_has_value(c) || (c->kind == WN_KIND_GRADIENT && !e->hides)) return WN_OK;
    e->saved = wn__alloc(bytes > 0 ? bytes : 1);
    if (e->saved == NULL) return WN_OOM;
    e->version = c->version;
    return wn__device(c->device)->real ? wn__cell_read(c, 0, e->saved, bytes) : WN_OK;
}

/* Notes that a gradient begins or ends to exist now; of a planned sequence it is so at once. */
static int32_t set_allocated(struct wn_cell *g, int32_t allocated)
{
    if (g->allocated == allocated) return WN_OK;
    WN_TRY(wn__grow(&now->change, &now->change_capacity, now->n_changes + 1, sizeof *now->change));
    now->change[now->n_changes++] = (struct allocation_change){g->noted - 1, allocated, now->n_programs};
    if (now->mode != WN_SEQUENCE_PLANNED) return WN_OK;
    g->allocated = allocated;
    g->slab->allocated += allocated ? 1 : -1;
    return WN_OK;
}

int32_t wn__sequence_drop(struct wn_cell *c)
{
    struct noted *e;
    if (c->grad == NULL || !c->grad->allocated) return WN_OK;
    WN_TRY(note(c->grad, &e));
    if (now->mode == WN_SEQUENCE_UNDONE) WN_TRY(save(e));
    WN_TRY(set_allocated(c->grad, 0));
    if (now->mode != WN_SEQUENCE_PLANNED) wn__cell_drop_gradient(c);
    return WN_OK;
}

int32_t wn__sequence_made(const struct wn_cell *c)
{
    return wn__sequence_is_planned() && c->noted > 0 && now->cell[c->noted - 1].made > 0;
}

/* ---- runs -------------------------------------------------------------------------------------------------------- */

static int32_t reads(const struct wn_program *p, const struct wn_node *n)
{
    return n->local >= 0 && n->local < p->order.count && p->order.nodes[n->local] == n;
}

/* Refuses with WN_UNSUPPORTED a program that reads a result of one before it. */
static int32_t refuse_results(const struct wn_program *p)
{
    for (int64_t i = 0; i < now->result.n; i++) {
        const struct wn_node *n = now->result.node[i];
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
    for (int32_t i = 0; i < p->ir->n_results; i++)
        if (p->result[i] != NULL) WN_TRY(put_node(&now->result, p->result[i]));
    return WN_OK;
}

int32_t wn__sequence_add(struct wn_program *p)
{
    struct noted *e;
    if (now == NULL) return WN_OK;
    if (now->mode == WN_SEQUENCE_PLANNED) {
        WN_TRY(refuse_results(p));
        WN_TRY(keep_results(p));
    }
    /* Cells are noted first, so that a planned sequence can bind the places of gradients as a run binds them. */
    for (int32_t i = 0; i < p->ir->n_cells; i++) {
        struct wn_cell *c = p->cell[i];
        int32_t has_value = c->kind != WN_KIND_GRADIENT && wn__cell_has_value(c);
        if (has_value && now->mode != WN_SEQUENCE_UNDONE) continue;
        WN_TRY(note(c, &e));
        if (c->kind != WN_KIND_GRADIENT && !has_value && e->made == 0) e->made = now->n_programs + 1;
    }
    if (now->mode == WN_SEQUENCE_PLANNED) WN_TRY(wn__program_bind_slabs(p));
    now->n_programs++;
    for (int32_t i = p->n_named; i < p->ir->n_cells; i++) WN_TRY(set_allocated(p->cell[i], 1));
    return WN_OK;
}

int32_t wn__sequence_save(const struct wn_program *p)
{
    const struct wn__ir *ir = p->ir;
    if (now == NULL || now->mode != WN_SEQUENCE_UNDONE) return WN_OK;
    for (int32_t i = ir->n - ir->n_effects; i < ir->n; i++)
        for (int32_t k = 0; k < 3; k++) {
            const struct wn_cell *c = ir->node[i].cell[k] < 0 ? NULL : p->cell[ir->node[i].cell[k]];
            if (c != NULL && c->noted > 0) WN_TRY(save(&now->cell[c->noted - 1]));
        }
    for (int32_t i = 0; i < p->n_forward_effects; i++)
        WN_TRY(put_node(&now->done, p->order.nodes[p->forward_effect[i].node]));
    return WN_OK;
}

/* Gives up the place that an undone program gave to a gradient, so that the next one is planned as it was. The slab
 * stays at hand for it. */
static void forget_place(const struct noted *e)
{
    struct wn_cell *c = e->cell;
    if (e->slab != NULL || c->slab == NULL) return;
    wn__slab_spare(c->slab);
    c->slab = NULL;
    c->slab_offset = 0;
}

/* Puts a cell back: the value that it had, under the version that it had; a gradient that did not exist ends. */
static int32_t undo_cell(struct noted *e)
{
    struct wn_cell *c = e->cell;
    if (e->saved == NULL) {
        if (c->kind == WN_KIND_GRADIENT && !e->hides) wn__cell_drop_own(c);
        forget_place(e);
        return WN_OK;
    }
    if (c->kind == WN_KIND_GRADIENT) {
        WN_TRY(wn__slab_fill(c->slab));
        wn__cell_allocate(c);
    }
    if (wn__device(c->device)->real) WN_TRY(wn__cell_write(c, 0, e->saved, wn__bytes(&c->type)));
    wn__cell_restored(c, e->version);
    wn__free(e->saved);
    e->saved = NULL;
    return WN_OK;
}

int32_t wn__sequence_undo(struct wn__sequence *s)
{
    int32_t code = WN_OK;
    for (int64_t i = 0; i < s->n; i++) {
        int32_t own = undo_cell(&s->cell[i]);
        if (code == WN_OK) code = own;
    }
    for (int64_t i = 0; i < s->done.n; i++) s->done.node[i]->effects_done = 0;
    return code;
}

/* ---- what is held beside ----------------------------------------------------------------------------------------- */

struct beside {
    struct wn_program *const *p;
    int32_t n, i; /* how many programs; the one that is looked at */
    int64_t stamp;
    struct wn_beside *out;
};

/* Adds bytes that are there when the step runs, at_first: the first time too. A sequence that runs is that time. */
static void add(struct beside *b, int32_t kind, int64_t bytes, int32_t at_first)
{
    if (!at_first && now->mode != WN_SEQUENCE_PLANNED) return;
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
    int32_t made = c->noted > 0 ? now->cell[c->noted - 1].made : 0;
    return made == 0 || made <= i;
}

/* Finds which of the noted gradients exist when program i starts. */
static void look_at(int32_t i)
{
    for (int64_t k = 0; k < now->n; k++) now->cell[k].at = now->cell[k].hides;
    for (int64_t k = 0; k < now->n_changes && now->change[k].program <= i; k++)
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
    int32_t exists = g->noted > 0 ? now->cell[g->noted - 1].at : g->allocated;
    int64_t bytes = wn__padded(wn__bytes(&g->type));
    if (!exists) return;
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
        struct wn_node *n = p->result[k];
        if (n == NULL || n->stamp == b->stamp) continue;
        n->stamp = b->stamp;
        if (n->type.ndim > 0) add(b, WN_KIND_RESULT, wn__padded(wn__bytes(&n->type)), 1);
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
    for (int64_t k = 0; k < now->n_changes; k++) {
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
    if (now == NULL) return wn__fail(WN_VALUE, "beside: no sequence is under way; enter the one of these programs");
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

/* ---- what is held now -------------------------------------------------------------------------------------------- */

/* Adds the bytes of a value once, however many nodes share its buffer. */
static void add_value(const struct wn_node *n, int32_t kind, int64_t stamp, int64_t *kinds)
{
    if (n == NULL || n->held == NULL || n->held->stamp == stamp) return;
    n->held->stamp = stamp;
    kinds[kind] += n->held->bytes;
}

int32_t wn__held_now(struct wn_program *const *p, int32_t n, int64_t *kinds)
{
    int64_t stamp = wn__node_stamp();
    for (int32_t k = 0; k < WN_KIND_COUNT; k++) kinds[k] = 0;
    for (int32_t j = 0; j < n; j++) {
        for (int32_t k = 0; k < p[j]->ir->n_cells; k++) {
            struct wn_cell *c = p[j]->cell[k];
            if (c->stamp == stamp || !wn__cell_has_value(c)) continue;
            c->stamp = stamp;
            kinds[c->kind] += wn__padded(wn__bytes(&c->type));
        }
        for (int32_t k = 0; k < p[j]->ir->n_results; k++) add_value(p[j]->result[k], WN_KIND_RESULT, stamp, kinds);
        for (int32_t k = 0; k < p[j]->ir->n_bound; k++) add_value(p[j]->bound[k], WN_KIND_INPUT, stamp, kinds);
    }
    return WN_OK;
}
