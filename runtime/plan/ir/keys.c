/* Writes the fields of an IR, its marks and a target as bytes by which plans are found: those of some classes of the
 * table ir.def, in its order. */
#include <stddef.h>
#include <string.h>
#include "marks.h"

/* A selection of classes, and the bytes that it is written to. */
struct writer {
    struct wn__bytes *b;
    const struct wn__ir *ir;
    int32_t classes;
};

#define ROW(class, write, name)                                                                                        \
    if (w->classes & WN_FIELD_##class) { WRITE_##write(p, name); }
#define WRITE_NONE(p, name)
#define WRITE_BESIDE(p, name)
#define WRITE_INT(p, name) wn__bytes_int(w->b, (p)->name)
#define WRITE_SLOT(p, name) wn__bytes_int(w->b, (p)->name + 1) /* -1 would take nine bytes */
#define WRITE_SLOTS(p, name)                                                                                           \
    for (int32_t k = 0; k < 3; k++) WRITE_SLOT(p, name[k])
#define WRITE_TYPE(p, name) wn__bytes_type(w->b, &(p)->name)
#define WRITE_ATTRS(p, name) wn__bytes_attrs(w->b, &(p)->name)
#define WRITE_TEXT(p, name) wn__bytes_put(w->b, (p)->name, sizeof(p)->name)
#define WRITE_INPUTS(p, name) put_inputs(w, p)
#define WRITE_LIST(p, write, name, count)                                                                              \
    for (int32_t i = 0; (p)->name != NULL && i < w->ir->count; i++) write(p, name[i])
#define WRITE_REGIONS(p, name) WRITE_LIST(p, WRITE_INT, name, n_regions)
#define WRITE_EACH(p, name) WRITE_LIST(p, WRITE_INT, name, n)
#define WRITE_EACH_SLOT(p, name) WRITE_LIST(p, WRITE_SLOT, name, n)
#define WRITE_ROWS(p, name, count, put)                                                                                \
    for (int32_t i = 0; i < (p)->count; i++) put(w, &(p)->name[i])
#define WRITE_NODES(p, name) WRITE_ROWS(p, name, n, put_node)
#define WRITE_CELLS(p, name) WRITE_ROWS(p, name, n_cells, put_cell)
#define WRITE_SLABS(p, name) WRITE_ROWS(p, name, n_slabs, put_slab)
#define WRITE_PROPOSALS(p, name) put_proposals(w, (p)->name)

static void put_inputs(const struct writer *w, const struct wn__ir_node *p)
{
    wn__bytes_int(w->b, p->n_in);
    for (int32_t k = 0; k < p->n_in; k++) wn__bytes_int(w->b, p - w->ir->node - w->ir->in[p->in_at + k]);
}

static void put_node(const struct writer *w, const struct wn__ir_node *p)
{
#define NODE(class, write, type, name) ROW(class, write, name)
#include "ir.def"
}

static void put_cell(const struct writer *w, const struct wn__ir_cell *p)
{
#define CELL(class, write, type, name) ROW(class, write, name)
#include "ir.def"
}

static void put_slab(const struct writer *w, const struct wn__ir_slab *p)
{
#define SLAB(class, write, type, name) ROW(class, write, name)
#include "ir.def"
}

static void put_ir(const struct writer *w, const struct wn__ir *p)
{
#define IR(class, write, type, name) ROW(class, write, name)
#include "ir.def"
}

static void put_proposals(const struct writer *w, const struct wn__marks *first);

static void put_marks(const struct writer *w, const struct wn__marks *p)
{
#define MARKS(class, write, type, name) ROW(class, write, name)
#include "ir.def"
}

static void put_proposals(const struct writer *w, const struct wn__marks *first)
{
    for (const struct wn__marks *m = first; m != NULL; m = m->next) {
        struct wn__bytes b = {0};
        put_marks(&(struct writer){&b, w->ir, w->classes}, m);
        uint64_t hash = wn__bytes_hash(b.data, b.count);
        wn__bytes_put(w->b, &hash, sizeof hash);
        WN_KEEP(w->b->code, b.code);
        wn__free(b.data);
    }
}

void wn__ir_encode(struct wn__bytes *b, const struct wn__ir *ir, const struct wn__marks *marks, int32_t classes)
{
    const struct writer w = {b, ir, classes};
    put_ir(&w, ir);
    if (marks != NULL) put_marks(&w, marks);
}

/* The rows of a target, whose struct is declared where kernels see it: the two have the same fields. */
typedef void (*wn__target_function)(void);
struct target_rows {
#define TARGET(class, write, type, name) type name;
#include "ir.def"
};
#define TARGET(class, write, type, name)                                                                               \
    _Static_assert(offsetof(struct wn__target, name) == offsetof(struct target_rows, name), "a row of "                \
                                                                                            "ir.def: " #name);
#include "ir.def"
_Static_assert(sizeof(struct wn__target) == sizeof(struct target_rows), "every field of a target has a row in ir.def");

void wn__target_encode(struct wn__bytes *b, const struct wn__target *p)
{
    const struct writer to = {b, NULL, WN_FIELD_PLAN}, *w = &to;
#define TARGET(class, write, type, name) ROW(class, write, name)
#include "ir.def"
}

int32_t wn__bytes_keep(struct wn__bytes *b, struct wn__pool *pool, uint8_t **out, int64_t *n)
{
    *n = b->count;
    *out = b->code == WN_OK ? wn__pool_get(pool, b->count + 1) : NULL;
    if (*out != NULL && b->count > 0) memcpy(*out, b->data, (size_t)b->count);
    wn__free(b->data);
    return b->code == WN_OK && *out == NULL ? WN_OOM : b->code;
}
