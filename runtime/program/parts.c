/* Adds up the bytes that the programs of one step hold beside each of them - states, gradients, inputs and results of
 * the others - by the history of the sequence under way (sequence.h), and finds the programs that are alike. */
#include <stddef.h>
#include <string.h>
#include "sequence.h"

struct beside {
    int32_t i; /* number of the program that is looked at */
    int64_t stamp;
    struct wn_part *out;
};

/* Adds bytes that are there when the step runs, at_first: the first time too. A sequence that runs is that time. */
static void add(struct beside *b, int32_t kind, int64_t bytes, int32_t at_first)
{
    if (!at_first && !wn__sequence_is_planned()) return;
    b->out->kinds[kind] += bytes;
    b->out->live += bytes;
    b->out->reserved += bytes;
    if (!at_first) return;
    b->out->first_live += bytes;
    b->out->first_reserved += bytes;
}

/* Marks the cells and values that program i has itself, so that only others are added. */
static void mark_own(const struct beside *b, const struct wn_program *p)
{
    for (int32_t k = 0; k < p->plan.ir->n_cells; k++) p->bindings.cell[k]->stamp = b->stamp;
    for (int32_t k = 0; k < p->plan.ir->n_bound; k++)
        if (p->bindings.bound[k] != NULL) p->bindings.bound[k]->stamp = b->stamp;
}

static void add_gradient(struct beside *b, const struct wn_cell *g)
{
    int64_t bytes = wn__padded(wn__bytes(&g->type));
    if (!wn__sequence_exists(g)) return;
    b->out->kinds[WN_KIND_GRADIENT] += bytes;
    b->out->live += bytes;
    b->out->first_live += bytes;
}

/* Adds the data that a state begins as, which is there until a later program has made the state. */
static void add_beginning(struct beside *b, struct wn_node *init)
{
    if (init == NULL || init->held == NULL || init->stamp == b->stamp) return;
    init->stamp = b->stamp;
    b->out->first_live += init->held->bytes;
    b->out->first_reserved += init->held->bytes;
}

static void add_cells(struct beside *b, const struct wn_program *p)
{
    for (int32_t k = 0; k < p->plan.ir->n_cells; k++) {
        struct wn_cell *c = p->bindings.cell[k];
        if (c->stamp == b->stamp) continue;
        c->stamp = b->stamp;
        if (c->kind == WN_KIND_GRADIENT) add_gradient(b, c);
        else add(b, c->kind, wn__padded(wn__bytes(&c->type)), !wn__sequence_makes(wn__sequence_maker(c)));
        if (wn__sequence_makes(wn__sequence_maker(c))) add_beginning(b, c->init);
    }
}

static void add_values(struct beside *b, const struct wn_program *p, int32_t has_run)
{
    for (int32_t k = 0; k < p->plan.ir->n_bound; k++) {
        struct wn_node *n = p->bindings.bound[k];
        if (n == NULL || n->stamp == b->stamp) continue;
        n->stamp = b->stamp;
        add(b, WN_KIND_INPUT, wn__bound_bytes(n), !wn__sequence_makes(wn__sequence_maker_of_data(n)));
    }
    for (int32_t k = 0; has_run && k < p->plan.ir->n_results; k++) {
        struct wn_node *n = p->bindings.result[k];
        if (n == NULL || n->stamp == b->stamp) continue;
        n->stamp = b->stamp;
        if (n->type.ndim > 0) add(b, WN_KIND_RESULT, wn__padded(wn__bytes(&n->type)), 1);
    }
}

int64_t wn__slab_share(const struct wn_program *p, const struct wn__slab *s)
{
    int64_t bytes = 0;
    for (int32_t k = 0; k < p->plan.ir->n_cells; k++) {
        const struct wn_cell *c = p->bindings.cell[k];
        const struct wn__ir_cell *q = &p->plan.ir->cell[k];
        if (c->kind != WN_KIND_GRADIENT || c->slab != s) continue;
        if (q->slab >= 0 || q->shares > 0) return s->bytes;
        bytes += wn__padded(wn__bytes(&c->type));
    }
    return bytes;
}

static void add_slabs(const struct beside *b, struct wn_program *const *p, int32_t n)
{
    int64_t stamp = wn__node_stamp();
    for (int32_t j = 0; j < n; j++)
        for (int32_t k = 0; k < p[j]->plan.ir->n_cells; k++) {
            const struct wn_cell *c = p[j]->bindings.cell[k];
            if (c->kind != WN_KIND_GRADIENT || c->slab == NULL || c->slab->stamp == stamp) continue;
            c->slab->stamp = stamp;
            int64_t rest = c->slab->bytes - wn__slab_share(p[b->i], c->slab);
            b->out->reserved += rest;
            if (wn__sequence_has_memory(c->slab)) b->out->first_reserved += rest;
        }
}

/* Adds the bytes of a value once, however many nodes share its buffer. */
static void add_held(const struct wn_node *n, int64_t stamp, int64_t *bytes)
{
    if (n == NULL || n->held == NULL || n->held->stamp == stamp) return;
    n->held->stamp = stamp;
    *bytes += n->held->bytes;
}

/* Returns the bytes that the program's states, gradients, results and inputs take now, but for those with the stamp. */
static int64_t held_now(const struct wn_program *p, int64_t stamp)
{
    int64_t bytes = 0;
    for (int32_t k = 0; k < p->plan.ir->n_cells; k++) {
        struct wn_cell *c = p->bindings.cell[k];
        if (c->stamp == stamp || !wn__cell_has_value(c)) continue;
        c->stamp = stamp;
        bytes += wn__padded(wn__bytes(&c->type));
    }
    for (int32_t k = 0; k < p->plan.ir->n_results; k++) add_held(p->bindings.result[k], stamp, &bytes);
    for (int32_t k = 0; k < p->plan.ir->n_bound; k++) add_held(p->bindings.bound[k], stamp, &bytes);
    return bytes;
}

int32_t wn__parts_check(struct wn_program *const *p, int32_t n)
{
    if (n > 1 && wn__sequence_now() == NULL)
        return wn__fail(WN_VALUE, "parts: no sequence is under way; enter the one of these programs");
    for (int32_t i = 1; i < n; i++)
        if (p[i]->request.device != p[0]->request.device)
            return wn__fail(WN_UNSUPPORTED, "plan: run points on %s and on %s in one step; plan one device at a time",
                            wn__device(p[0]->request.device)->name, wn__device(p[i]->request.device)->name);
    return WN_OK;
}

void wn__part(struct wn_program *const *p, int32_t n, int32_t i, struct wn_part *out)
{
    struct beside b = {.i = i, .stamp = wn__node_stamp(), .out = out};
    *out = (struct wn_part){.same = i};
    wn__sequence_look(i);
    mark_own(&b, p[i]);
    for (int32_t j = 0; j < n; j++) {
        if (j == i) continue;
        add_cells(&b, p[j]);
        add_values(&b, p[j], j < i);
    }
    add_slabs(&b, p, n);
}

/* Returns whether two programs have one IR, the same policy and the same cells. */
static int32_t are_alike(const struct wn_program *a, const struct wn_program *b)
{
    int32_t is_alike = a->plan.ir == b->plan.ir && a->request.policy == b->request.policy;
    for (int32_t k = 0; is_alike && k < a->plan.ir->n_cells; k++) is_alike = a->bindings.cell[k] == b->bindings.cell[k];
    return is_alike;
}

void wn__parts_end(struct wn_program *const *p, int32_t n, struct wn_part *out)
{
    for (int32_t i = 0; i < n; i++)
        for (int32_t j = 0; j < i && out[i].same == i; j++)
            if (are_alike(p[i], p[j]) && memcmp(&out[i], &out[j], offsetof(struct wn_part, same)) == 0)
                out[i].same = out[j].same;
    int64_t stamp = wn__node_stamp();
    for (int32_t i = 0; i < n; i++) out[i].held = held_now(p[i], stamp);
}
