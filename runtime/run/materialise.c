/* First values of what lasts beyond a step: cells, and data that a script retained. A cell takes storage when a program
 * first needs it, data when one with a backward does. All missing values are computed by one program, whose results
 * become the cells' own bytes without a copy, unless somebody else can name the initial value, as the script can name
 * data. Until the program that needed them has run, the values of cells are not final: the initial values stay as they
 * are (their nodes are never marked as held), so a failure gives every byte back and the next try computes the same
 * bits. Data are computed for good, as wane.eval computes them. */
#include <string.h>
#include "../base/alloc.h"
#include "../program/sequence.h"
#include "run.h"

struct first {                /* The cells without a value, the initial values that they are given, and data. */
    struct wn__pool pool;     /* of the arrays */
    struct wn_cell **cell;    /* (n) the cells, which the program counts */
    struct wn__buffer **own;  /* (n) a buffer for a cell that cannot take over its initial value's bytes; else NULL */
    int32_t *from;            /* (n) index in `init` of each cell's initial value */
    struct wn_node **init;    /* (n_init) data, n_data, then the initial values, counted */
    struct wn__buffer **made; /* (n_init) the computed bytes, until a cell takes them over */
    char **bytes;             /* (n_init) address of the computed bytes, once a cell has them */
    char *is_own;             /* (n) 1: the cell needs a buffer of `own` */
    int64_t own_bytes;        /* bytes of the buffers of `own` */
    int64_t counted;          /* stamp of the values whose bytes the program of first values counts; 0: none */
    int32_t n, n_init, n_data;
};

static int32_t is_missing(const struct wn_cell *c)
{
    return c->kind != WN_KIND_GRADIENT && !wn__cell_has_value(c) && !wn__sequence_made(wn__sequence_maker(c));
}

static int32_t is_missing_data(const struct wn_node *n)
{
    return n != NULL && wn__node_is_missing(n) && !wn__sequence_made(wn__sequence_maker_of_data(n));
}

static int32_t is_computed(const struct wn_node *n)
{
    return !n->is_held && n->op != WN_OP_CONST && n->op != WN_OP_CELL;
}

/* Lists a value to compute, unless it carries the stamp, under which it is listed. Returns whether it was. */
static int32_t list_init(struct first *x, struct wn_node *n, int64_t stamp)
{
    if (n->stamp == stamp) return 1;
    n->stamp = stamp;
    n->local = x->n_init;
    wn__node_ref(n);
    x->init[x->n_init++] = n;
    return 0;
}

/* Lists the missing data, then the cells without a value, and which of them cannot take over their initial value's
 * bytes. */
static int32_t list_missing(struct first *x, const struct wn_program *p, int32_t missing)
{
    int64_t stamp = wn__node_stamp();
    if (!WN_ARRAY(&x->pool, x->cell, missing) || !WN_ARRAY(&x->pool, x->own, missing) ||
        !WN_ARRAY(&x->pool, x->from, missing) || !WN_ARRAY(&x->pool, x->init, missing) ||
        !WN_ARRAY(&x->pool, x->made, missing) || !WN_ARRAY(&x->pool, x->bytes, missing) ||
        !WN_ARRAY(&x->pool, x->is_own, missing))
        return WN_OOM;
    for (int32_t i = 0; i < wn__read_count(p); i++)
        if (is_missing_data(wn__read_node(p, i))) list_init(x, wn__read_node(p, i), stamp);
    x->n_data = x->n_init;
    for (int32_t i = 0; i < p->plan.ir->n_cells; i++) {
        struct wn_cell *c = p->bindings.cell[i];
        if (!is_missing(c)) continue;
        if (c->init == NULL) return wn__fail(WN_INTERNAL, "run: a state has neither a value nor a beginning");
        if (c->init->stale) return wn__node_lost(c->init, NULL);
        if (c->init->is_held && c->init->held == NULL && c->init->type.ndim > 0)
            return wn__fail(WN_STALE, "run: the value that %s starts as was freed; make the state again",
                            c->name ? c->name : "a state");
        int32_t known = list_init(x, c->init, stamp);
        x->cell[x->n] = c;
        x->from[x->n++] = c->init->local;
        if (!known && is_computed(c->init) && c->type.ndim > 0) continue;
        x->is_own[x->n - 1] = 1;
        x->own_bytes += wn__padded(wn__bytes(&c->type));
    }
    return WN_OK;
}

/* Takes the buffers of `own` for cells of a kind, which the device may put together: parameters outlive an optimizer,
 * so its states are another piece. */
static int32_t take_own(struct first *x, int32_t device, int32_t kind)
{
    int64_t bytes = 0, count = 0;
    int32_t code = WN_OK;
    for (int32_t i = 0; i < x->n; i++) {
        if (!x->is_own[i] || x->cell[i]->kind != kind) continue;
        bytes += wn__padded(wn__bytes(&x->cell[i]->type));
        count++;
    }
    wn__device(device)->hint(wn__device(device), bytes, count);
    for (int32_t i = 0; i < x->n && code == WN_OK; i++)
        if (x->is_own[i] && x->cell[i]->kind == kind)
            code = wn__buffer_new(device, kind, wn__bytes(&x->cell[i]->type), &x->own[i]);
    wn__device(device)->hint(wn__device(device), 0, 0);
    return code;
}

/* ---- computing initial values --------------------------------------------------------------------------- */

/* Lists the initial values that a program must compute, and their numbers in x->init. Returns how many there are. */
static int32_t list_roots(const struct first *x, struct wn_node **root, int32_t *number)
{
    int32_t n = 0;
    for (int32_t i = 0; i < x->n_init; i++) {
        if (!is_computed(x->init[i]) && x->init[i]->op != WN_OP_CELL) continue;
        root[n] = x->init[i];
        number[n++] = i;
    }
    return n;
}

static int32_t plan_inits(struct wn_node *const *root, int32_t n, struct wn_program **out)
{
    WN_TRY(wn__program_new(n, 0, out));
    struct wn__request *r = &(*out)->request;
    r->mode = WN_RUN_EVAL;
    r->scale = 1;
    r->ranks.size = r->ranks.team = 1; /* this rank makes them by itself */
    for (; r->n_roots < n; r->n_roots++) {
        r->root[r->n_roots] = root[r->n_roots];
        wn__node_ref(root[r->n_roots]);
    }
    int32_t code = wn__program_open(*out);
    if (code == WN_OK && wn__ir_gathers((*out)->plan.ir) > 0)
        code = wn__fail(WN_UNSUPPORTED, "run: a state begins with a value that is made of states which ranks have in "
                                        "ranges; compute it before, with wane.eval");
    if (code == WN_OK) code = wn__plan_make(&(*out)->plan);
    if (code != WN_OK) wn__program_free(*out);
    return code;
}

static int32_t look_at_inits(struct first *x, struct wn_node *const *root, int32_t n, struct wn_summary *out)
{
    struct wn_program *p;
    WN_TRY(plan_inits(root, n, &p));
    *out = p->plan.schedule->summary;
    x->counted = wn__node_stamp();
    for (int32_t i = 0; i < p->plan.ir->n_bound; i++)
        if (p->bindings.bound[i] != NULL) p->bindings.bound[i]->stamp = x->counted;
    wn__plan_forget(&p->plan, 0); /* nothing has run it */
    wn__program_free(p);
    return WN_OK;
}

/* Returns the kind of the first cell that an initial value is for: that one takes over its bytes. */
static int32_t kind_of(const struct first *x, int32_t init)
{
    for (int32_t i = 0; i < x->n; i++)
        if (x->from[i] == init) return x->cell[i]->kind;
    return WN_KIND_RESULT;
}

/* Computes the initial values of `root` by a program, and fills x->made with their buffers. number: (n) index of
 * each. */
static int32_t run_inits(struct first *x, struct wn_node *const *root, const int32_t *number, int32_t n)
{
    struct wn_program *p;
    struct wn__run r;
    int32_t *kind;
    WN_TRY(plan_inits(root, n, &p));
    const struct wn__ir *ir = p->plan.ir;
    if (!WN_ARRAY(&p->pool, kind, ir->n_results)) {
        wn__program_free(p);
        return WN_OOM;
    }
    for (int32_t i = 0; i < n; i++)
        if (ir->node[ir->root_node[i]].result >= 0) kind[ir->node[ir->root_node[i]].result] = kind_of(x, number[i]);
    int32_t code = wn__acquire(p, kind, &r);
    if (code == WN_OK) code = wn__execute(&r);
    for (int32_t i = 0; code == WN_OK && i < n; i++) {
        int32_t result = ir->node[ir->root_node[i]].result;
        if (result < 0 || number[i] < x->n_data) continue;
        x->made[number[i]] = r.result[result];
        r.result[result] = NULL;
    }
    if (code == WN_OK) wn__commit(&r);
    wn__acquired_release(&r);
    wn__program_free(p);
    return code;
}

/* Computes the initial values. planned: not NULL: fills what the program would take instead, and runs nothing. */
static int32_t compute(struct first *x, struct wn_summary *planned)
{
    struct wn_node **root;
    int32_t *number;
    if (!WN_ARRAY(&x->pool, root, x->n_init) || !WN_ARRAY(&x->pool, number, x->n_init)) return WN_OOM;
    int32_t n = list_roots(x, root, number);
    if (n == 0) return WN_OK;
    return planned == NULL ? run_inits(x, root, number, n) : look_at_inits(x, root, n, planned);
}

/* ---- giving the cells their bytes --------------------------------------------------------------------------- */

static int32_t put_number(const struct wn_cell *c, void *to, const struct wn_node *from)
{
    struct wn_device *d = wn__device(c->device);
    double element;
    wn__number_put(c->type.dtype, from->number, &element);
    return d->put(d, to, &element, wn__dtype_size(c->type.dtype));
}

/* Fills the buffer of cell i with its initial value. */
static int32_t fill_own(const struct first *x, int32_t i)
{
    const struct wn_node *init = x->init[x->from[i]];
    struct wn_device *d = wn__device(x->cell[i]->device);
    char *to = x->own[i]->data;
    if (init->held == NULL && init->op == WN_OP_CELL) WN_TRY(wn__cell_settle(init->cell));
    char *from = init->held != NULL       ? (char *)init->held->data
                 : init->op == WN_OP_CELL ? wn__cell_data(init->cell)
                                          : x->bytes[x->from[i]];
    return x->cell[i]->type.ndim > 0 || from != NULL ? d->copy(d, to, from, wn__bytes(&x->cell[i]->type))
                                                     : put_number(x->cell[i], to, init);
}

static void give(struct wn__run *r, struct wn_cell *c, struct wn__buffer *b)
{
    c->buffer = b;
    r->fresh.cell[r->fresh.n++] = c;
}

/* Gives every cell its bytes. A cell that the initial value of another one reads has its value by now. */
static int32_t give_all(struct first *x, struct wn__run *r)
{
    for (int32_t i = 0; i < x->n; i++) {
        struct wn__buffer *b = x->made[x->from[i]];
        if (x->own[i] != NULL || b == NULL) continue;
        x->bytes[x->from[i]] = b->data;
        if (!is_missing(x->cell[i])) continue;
        wn__ledger_move(b->device, b->kind, -b->bytes);
        b->kind = x->cell[i]->kind;
        wn__ledger_move(b->device, b->kind, b->bytes);
        x->made[x->from[i]] = NULL;
        give(r, x->cell[i], b);
    }
    for (int32_t i = 0; i < x->n; i++) {
        if (x->own[i] == NULL || !is_missing(x->cell[i])) continue;
        WN_TRY(fill_own(x, i));
        give(r, x->cell[i], x->own[i]);
        x->own[i] = NULL;
    }
    return WN_OK;
}

int64_t wn__program_missing(const struct wn_program *p)
{
    int64_t bytes = 0;
    for (int32_t i = 0; i < p->plan.ir->n_cells; i++)
        if (is_missing(p->bindings.cell[i])) bytes += wn__padded(wn__bytes(&p->bindings.cell[i]->type));
    for (int32_t i = 0; i < p->plan.ir->n_bound; i++)
        if (is_missing_data(p->bindings.bound[i])) bytes += wn__bound_bytes(p->bindings.bound[i]);
    return bytes;
}

int32_t wn__program_missing_data(const struct wn_program *p)
{
    int32_t missing = 0;
    for (int32_t i = 0; i < wn__read_count(p); i++) missing += is_missing_data(wn__read_node(p, i));
    return missing;
}

static int32_t count_missing(const struct wn_program *p)
{
    int32_t missing = 0;
    for (int32_t i = 0; i < p->plan.ir->n_cells; i++) missing += is_missing(p->bindings.cell[i]);
    return missing + wn__program_missing_data(p);
}

static void release(struct first *x)
{
    for (int32_t i = 0; i < x->n; i++) wn__buffer_unref(x->own[i]);
    for (int32_t i = 0; i < x->n_init; i++) {
        wn__buffer_unref(x->made[i]);
        wn__node_unref(x->init[i]);
    }
    wn__pool_release(&x->pool);
}

int32_t wn__run_materialise(struct wn__run *r)
{
    struct first x = {0};
    int32_t missing = count_missing(r->p);
    if (missing == 0) return WN_OK;
    if (!WN_ARRAY(&r->pool, r->fresh.cell, missing)) return WN_OOM;
    int32_t code = list_missing(&x, r->p, missing);
    for (int32_t kind = 0; kind < WN_KIND_COUNT && code == WN_OK; kind++) code = take_own(&x, r->ir->device, kind);
    if (code == WN_OK) code = compute(&x, NULL);
    if (code == WN_OK) code = give_all(&x, r);
    release(&x);
    return code;
}

/* ---- asking what it would take ---------------------------------------------------------------------------- */

struct held {
    int64_t live, reserved;
};

/* Returns the bytes of what the program reads or adds to and that is there already: it is held while the rest is made.
 * counted: stamp of the values to leave out. */
static struct held held_bytes(const struct wn_program *p, int64_t counted)
{
    int64_t stamp = wn__node_stamp();
    struct held sum = {0, 0};
    for (int32_t i = 0; i < p->plan.ir->n_bound; i++) {
        const struct wn_node *n = p->bindings.bound[i];
        if (n != NULL && !is_missing_data(n) && n->stamp != counted) sum.live += wn__bound_bytes(n);
    }
    sum.reserved = sum.live;
    for (int32_t i = 0; i < p->plan.ir->n_cells; i++) {
        const struct wn_cell *c = p->bindings.cell[i];
        int64_t bytes = wn__padded(wn__bytes(&c->type));
        if (c->kind != WN_KIND_GRADIENT) {
            sum.live += is_missing(c) ? 0 : bytes;
            sum.reserved += is_missing(c) ? 0 : bytes;
            continue;
        }
        sum.live += c->allocated ? bytes : 0;
        if (c->slab == NULL || c->slab->allocated == 0 || c->slab->stamp == stamp) continue;
        c->slab->stamp = stamp;
        sum.reserved += wn__slab_share(p, c->slab);
    }
    return sum;
}

int32_t wn__program_first(const struct wn_program *p, struct wn_first *out)
{
    struct first x = {0};
    struct wn_summary sum = {0};
    memset(out, 0, sizeof *out);
    out->cells = count_missing(p);
    if (out->cells == 0) return WN_OK;
    int32_t code = list_missing(&x, p, (int32_t)out->cells);
    if (code == WN_OK) code = compute(&x, &sum);
    for (int32_t i = 0; i < x.n_init; i++)
        if (x.init[i]->held != NULL) out->beside += x.init[i]->held->bytes;
    struct held held = held_bytes(p, x.counted);
    out->peak = sum.peak + held.live + x.own_bytes + out->beside;
    out->reserved = sum.reserved + held.reserved + x.own_bytes + out->beside;
    release(&x);
    return code;
}

void wn__run_end_first(struct wn__run *r, int32_t how)
{
    for (int32_t i = 0; i < r->fresh.n; i++) {
        struct wn_cell *c = r->fresh.cell[i];
        int32_t keep = how == WN_FIRST_COMMIT || (how == WN_FIRST_COMMIT_WRITTEN && !c->invalid);
        c->invalid = 0;
        if (keep) {
            wn__cell_begun(c);
        } else {
            wn__buffer_unref(c->buffer);
            c->buffer = NULL;
        }
    }
    r->fresh.n = 0;
}
