/* Sequences: see sequence.h. A planned one holds a list of cells that it changed, each with the state that is not in
 * force: while the sequence is under way that is the cell's own, else nothing that counts, for the list of changes says
 * what the cell is at each place of the sequence. One that runs holds the state that each cell had before. */
#include "sequence.h"
#include <string.h>
#include "../base/alloc.h"

struct place {             /* Says where a cell's gradient is. */
    struct wn__slab *slab; /* counted; NULL: nowhere yet */
    int64_t offset;        /* bytes from the start of the slab */
    int32_t allocated;
};

/* Names what a step does with a gradient that it computes: it drops it before all programs, or has it beside one. */
enum first { UNUSED, DROPPED, CARRIED };

struct noted {            /* A cell of a sequence. */
    struct wn_cell *cell; /* counted */
    struct place start;   /* when it was noted */
    struct place other;   /* the one that is not in force, of the cell itself or of the sequence */
    int32_t hides;   /* 1: a gradient that exists for real; a planned sequence sees that its slab keeps its memory */
    int32_t made;    /* number of the program, from 1, that gives a state its first value; 0: none */
    int32_t exists;  /* 1: the gradient exists where the sequence is */
    int32_t first;   /* enum first */
    int64_t version; /* of `saved` */
    void *saved;     /* copy of the value that the cell had before it was written; NULL: none */
};

/* A gradient that begins or ends to be allocated. */
struct allocation_change {
    struct place to; /* from then on */
    int32_t cell;    /* number of the cell in the sequence */
    int32_t program; /* how many programs had run before */
};

/* Data that a program of the sequence makes before it runs. */
struct made {
    struct wn_node *node; /* counted */
    int32_t program;      /* its number, from 1 */
};

/* The IR of a program of a planned sequence, for those that are opened in it with the same key. */
struct assembled {
    struct wn__bytes key;    /* but for the policy, of which an IR holds nothing */
    const struct wn__ir *ir; /* counted */
};

struct wn__sequence {
    int32_t mode; /* WN_SEQUENCE_ */
    struct noted *cell;
    struct allocation_change *change;
    struct wn__order result; /* of a planned sequence: what its programs leave; counted */
    struct wn__order done;   /* whose effects the programs of a sequence that is undone have carried out; counted */
    struct made *made;
    struct assembled *assembled;
    int64_t n_made, made_capacity;
    int64_t n, capacity, n_changes, change_capacity, n_assembled, assembled_capacity;
    int64_t number; /* among all sequences, and the times that they began */
    int32_t n_programs;
    int32_t at; /* number of the program, from 0, before which a planned sequence is when it is entered */
};

static struct wn__sequence *now;
static int64_t n_begun;

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
    if (s != NULL) *s = (struct wn__sequence){.mode = mode, .number = ++n_begun, .at = INT32_MAX};
    return s;
}

static int32_t put_node(struct wn__order *l, struct wn_node *n)
{
    WN_TRY(wn__order_push(l, n));
    wn__node_ref(n);
    return WN_OK;
}

/* Forgets data that programs from this one on make. */
static void forget_made(struct wn__sequence *s, int32_t program)
{
    while (s->n_made > 0 && s->made[s->n_made - 1].program >= program) wn__node_unref(s->made[--s->n_made].node);
}

static void release_nodes(struct wn__order *l)
{
    for (int64_t i = 0; i < l->count; i++) wn__node_unref(l->nodes[i]);
    wn__order_release(l);
}

/* ---- entering and leaving ------------------------------------------------------------------------------------- */

/* Sets where a gradient is. */
static void put_place(struct place *p, const struct place *to)
{
    if (to->slab != NULL) to->slab->refs++;
    wn__slab_unref(p->slab);
    *p = *to;
}

/* Exchanges a cell's place with the one that is not in force. */
static void swap_cell(struct noted *e)
{
    struct wn_cell *c = e->cell;
    struct place own = {c->slab, c->slab_offset, c->allocated};
    if (own.allocated) own.slab->allocated--;
    c->slab = e->other.slab;
    c->slab_offset = e->other.offset;
    c->allocated = e->other.allocated;
    if (c->allocated) c->slab->allocated++;
    e->other = own;
}

static void leave(struct wn__sequence *s)
{
    for (int64_t i = s->n - 1; i >= 0; i--) {
        s->cell[i].cell->noted = 0;
        if (s->mode != WN_SEQUENCE_PLANNED) continue;
        if (s->cell[i].hides) s->cell[i].other.slab->hidden--;
        swap_cell(&s->cell[i]);
    }
}

/* Finds which of the noted gradients exist where the sequence is. */
static void look(struct wn__sequence *s)
{
    for (int64_t i = 0; i < s->n; i++) s->cell[i].exists = s->cell[i].start.allocated;
    for (int64_t k = 0; k < s->n_changes && s->change[k].program <= s->at; k++)
        s->cell[s->change[k].cell].exists = s->change[k].to.allocated;
}

static void enter(struct wn__sequence *s)
{
    int32_t is_planned = s->mode == WN_SEQUENCE_PLANNED;
    look(s);
    for (int64_t i = 0; i < s->n; i++) {
        s->cell[i].cell->noted = (int32_t)i + 1;
        if (is_planned) put_place(&s->cell[i].other, &s->cell[i].start);
    }
    for (int64_t k = 0; is_planned && k < s->n_changes && s->change[k].program <= s->at; k++)
        put_place(&s->cell[s->change[k].cell].other, &s->change[k].to);
    for (int64_t i = 0; is_planned && i < s->n; i++) {
        swap_cell(&s->cell[i]);
        s->cell[i].hides = s->cell[i].other.allocated;
        if (s->cell[i].hides) s->cell[i].other.slab->hidden++;
    }
}

void wn__sequence_enter(struct wn__sequence *s)
{
    if (now == s) return;
    if (now != NULL) leave(now);
    now = s;
    if (s != NULL) enter(s);
}

void wn__sequence_look(int32_t at)
{
    if (now == NULL) return;
    now->at = at;
    look(now);
}

void wn__sequence_seek(struct wn__sequence *s, int32_t at)
{
    struct wn__sequence *before = now;
    if (before == s) wn__sequence_enter(NULL);
    s->at = at < 0 ? INT32_MAX : at;
    if (before == s) wn__sequence_enter(s);
}

void wn__sequence_free(void *sequence)
{
    struct wn__sequence *s = sequence;
    if (now == s) wn__sequence_enter(NULL);
    wn__retained_forget(s);
    for (int64_t i = 0; i < s->n; i++) {
        wn__slab_unref(s->cell[i].start.slab);
        wn__slab_unref(s->cell[i].other.slab);
        wn__cell_unref(s->cell[i].cell);
        wn__free(s->cell[i].saved);
    }
    for (int64_t k = 0; k < s->n_changes; k++) wn__slab_unref(s->change[k].to.slab);
    for (int64_t k = 0; k < s->n_assembled; k++) {
        wn__ir_unref(s->assembled[k].ir);
        wn__free(s->assembled[k].key.data);
    }
    wn__free(s->assembled);
    forget_made(s, 0);
    wn__free(s->made);
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
        const struct place own = {c->slab, c->slab_offset, c->allocated};
        *e = (struct noted){.cell = c, .hides = c->allocated};
        wn__cell_ref(c);
        put_place(&e->start, &own);
        put_place(&e->other, &own);
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
    struct allocation_change *change = &now->change[now->n_changes++];
    *change = (struct allocation_change){.cell = g->noted - 1, .program = now->n_programs};
    put_place(&change->to, &(struct place){g->slab, g->slab_offset, allocated});
    if (now->mode != WN_SEQUENCE_PLANNED) return WN_OK;
    g->allocated = allocated;
    g->slab->allocated += allocated ? 1 : -1;
    return WN_OK;
}

int32_t wn__sequence_drop(struct wn_cell *c)
{
    struct noted *e;
    if (now->n_programs == 0) c->cleared = now->number;
    if (c->grad == NULL || !c->grad->allocated) return WN_OK;
    WN_TRY(note(c->grad, &e));
    if (now->mode == WN_SEQUENCE_UNDONE) WN_TRY(save(e));
    WN_TRY(set_allocated(c->grad, 0));
    if (now->mode != WN_SEQUENCE_PLANNED) wn__cell_drop_gradient(c);
    return WN_OK;
}

int32_t wn__sequence_maker(const struct wn_cell *c)
{
    return now == NULL || c->noted == 0 ? 0 : now->cell[c->noted - 1].made;
}

int32_t wn__sequence_maker_of_data(const struct wn_node *n)
{
    for (int64_t i = 0; now != NULL && n->lasts && i < now->n_made; i++)
        if (now->made[i].node == n) return now->made[i].program;
    return 0;
}

int32_t wn__sequence_made(int32_t maker)
{
    return wn__sequence_is_planned() && maker > 0 && maker <= now->at;
}

int32_t wn__sequence_makes(int32_t maker)
{
    return maker > 0 && maker > now->at;
}

int32_t wn__sequence_exists(const struct wn_cell *g)
{
    return now != NULL && g->noted > 0 ? now->cell[g->noted - 1].exists : g->allocated;
}

int32_t wn__sequence_has_memory(const struct wn__slab *s)
{
    int32_t is_noted = 0;
    for (int64_t k = 0; now != NULL && k < now->n_changes; k++) {
        if (now->cell[now->change[k].cell].cell->slab != s) continue;
        if (now->change[k].program <= now->at) return 1;
        is_noted = 1;
    }
    return s->data != NULL || !is_noted;
}

/* ---- runs -------------------------------------------------------------------------------------------------------- */

static int32_t reads(const struct wn__bindings *b, const struct wn_node *n)
{
    return n->local >= 0 && n->local < b->order.count && b->order.nodes[n->local] == n;
}

/* Refuses with WN_UNSUPPORTED a program that reads a result of one before it. */
static int32_t refuse_results(const struct wn__bindings *b)
{
    for (int64_t i = 0; i < now->result.count; i++) {
        const struct wn_node *n = now->result.nodes[i];
        if (n->n_in > 0 && !n->is_held && reads(b, n))
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
    for (int32_t i = 0; i < p->plan.ir->n_results; i++)
        if (p->bindings.result[i] != NULL) WN_TRY(put_node(&now->result, p->bindings.result[i]));
    return WN_OK;
}

enum { KEY_HEAD = sizeof(int64_t) }; /* bytes of a key that are the policy's number (open.c) */

const struct wn__ir *wn__sequence_ir(const struct wn__bytes *key)
{
    for (int64_t k = 0; wn__sequence_is_planned() && k < now->n_assembled; k++) {
        const struct wn__bytes *own = &now->assembled[k].key;
        if (own->count == key->count - KEY_HEAD && memcmp(own->data, key->data + KEY_HEAD, (size_t)own->count) == 0)
            return wn__ir_ref(now->assembled[k].ir);
    }
    return NULL;
}

/* Keeps the IR of a program for wn__sequence_ir. */
static int32_t keep_ir(const struct wn__plan *p)
{
    for (int64_t k = 0; k < now->n_assembled; k++)
        if (now->assembled[k].ir == p->ir) return WN_OK;
    WN_TRY(wn__grow(&now->assembled, &now->assembled_capacity, now->n_assembled + 1, sizeof *now->assembled));
    struct assembled *a = &now->assembled[now->n_assembled];
    *a = (struct assembled){.ir = p->ir};
    wn__bytes_put(&a->key, p->key.data + KEY_HEAD, p->key.count - KEY_HEAD);
    if (a->key.code != WN_OK) return a->key.code;
    wn__ir_ref(p->ir);
    now->n_assembled++;
    return WN_OK;
}

/* Notes the data that the program makes before it runs. */
static int32_t note_made(const struct wn_program *p)
{
    for (int32_t i = 0; i < wn__read_count(p); i++) {
        struct wn_node *n = wn__read_node(p, i);
        if (n == NULL || !wn__node_is_missing(n) || wn__sequence_maker_of_data(n) > 0) continue;
        WN_TRY(wn__grow(&now->made, &now->made_capacity, now->n_made + 1, sizeof *now->made));
        now->made[now->n_made++] = (struct made){n, now->n_programs + 1};
        wn__node_ref(n);
    }
    return WN_OK;
}

int32_t wn__sequence_add(struct wn_program *p)
{
    const struct wn__bindings *b = &p->bindings;
    const struct wn__ir *ir = p->plan.ir;
    struct noted *e;
    if (now == NULL) return WN_OK;
    if (now->mode == WN_SEQUENCE_PLANNED) {
        WN_TRY(refuse_results(b));
        WN_TRY(keep_results(p));
        WN_TRY(keep_ir(&p->plan));
    }
    WN_TRY(note_made(p));
    /* Cells are noted first, so that a planned sequence can bind the places of gradients as a run binds them. */
    for (int32_t i = 0; i < ir->n_cells; i++) {
        struct wn_cell *c = b->cell[i];
        int32_t has_value = c->kind != WN_KIND_GRADIENT && wn__cell_has_value(c);
        if (has_value && now->mode != WN_SEQUENCE_UNDONE) continue;
        WN_TRY(note(c, &e));
        if (c->kind != WN_KIND_GRADIENT && !has_value && e->made == 0) e->made = now->n_programs + 1;
    }
    if (now->mode == WN_SEQUENCE_PLANNED) WN_TRY(wn__program_bind_slabs(p));
    now->n_programs++;
    for (int32_t i = b->n_named; i < ir->n_cells; i++) { /* the gradients */
        e = &now->cell[b->cell[i]->noted - 1];
        if (e->first == UNUSED) e->first = b->cell[ir->cell[i].gradient_of]->cleared == now->number ? DROPPED : CARRIED;
        WN_TRY(set_allocated(b->cell[i], 1));
    }
    return WN_OK;
}

void wn__sequence_take_back(void)
{
    if (now == NULL) return;
    for (int64_t i = 0; i < now->n; i++)
        if (now->cell[i].made == now->n_programs) now->cell[i].made = 0;
    forget_made(now, now->n_programs);
    while (now->n_changes > 0 && now->change[now->n_changes - 1].program == now->n_programs)
        wn__slab_unref(now->change[--now->n_changes].to.slab);
    now->n_programs--;
}

int32_t wn__sequence_repeat(void)
{
    int32_t is_other = 0;
    for (int64_t i = 0; i < now->n; i++)
        is_other |= now->cell[i].first == CARRIED && now->cell[i].cell->allocated != now->cell[i].start.allocated;
    if (!is_other) return 0;
    for (int64_t i = 0; i < now->n; i++) {
        struct noted *e = &now->cell[i];
        put_place(&e->start, &(struct place){e->cell->slab, e->cell->slab_offset, e->cell->allocated});
        e->made = 0;
        e->first = UNUSED;
    }
    while (now->n_changes > 0) wn__slab_unref(now->change[--now->n_changes].to.slab);
    forget_made(now, 0);
    now->n_programs = 0;
    now->number = ++n_begun;
    look(now);
    return 1;
}

int32_t wn__sequence_save(const struct wn_program *p)
{
    const struct wn__bindings *b = &p->bindings;
    if (now == NULL || now->mode != WN_SEQUENCE_UNDONE) return WN_OK;
    for (int32_t k = 0; k < 3 * p->plan.ir->n_effects; k++) {
        const struct wn_cell *c = wn__effect_cell(p, k);
        if (c != NULL && c->noted > 0) WN_TRY(save(&now->cell[c->noted - 1]));
    }
    for (int32_t i = 0; i < b->n_forward_effects; i++)
        WN_TRY(put_node(&now->done, b->order.nodes[b->forward_effect[i].node]));
    return WN_OK;
}

/* Gives up the place that an undone program gave to a gradient, so that the next one is planned as it was. The slab
 * stays at hand for it. */
static void forget_place(const struct noted *e)
{
    struct wn_cell *c = e->cell;
    if (e->other.slab != NULL || c->slab == NULL) return;
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
    for (int64_t i = 0; i < s->done.count; i++) s->done.nodes[i]->effects_done = 0;
    return code;
}
