/* First values: a cell takes storage when a program first needs it. All missing ones are computed by one
 * program, whose results become the cells' own bytes without a copy. */
#include <string.h>
#include "../base/alloc.h"
#include "run.h"

static int32_t copy_between(struct wn_cell *c, const struct wn_node *from)
{
    struct wn_device *d = wn__device(c->device);
    char block[65536];
    int64_t bytes = wn__bytes(&c->type);
    for (int64_t at = 0; at < bytes; at += (int64_t)sizeof block) {
        int64_t n = bytes - at < (int64_t)sizeof block ? bytes - at : (int64_t)sizeof block;
        if (!d->real) break;
        WN_TRY(d->get(d, block, (char *)from->held->data + at, n));
        WN_TRY(d->put(d, (char *)c->buffer->data + at, block, n));
    }
    return WN_OK;
}

static int32_t put_number(struct wn_cell *c, const struct wn_node *from)
{
    struct wn_device *d = wn__device(c->device);
    float f32 = (float)from->number;
    int32_t i32 = (int32_t)from->number;
    uint8_t u8 = (uint8_t)from->number;
    const void *host = c->type.dtype == WN_F32   ? (const void *)&f32
                       : c->type.dtype == WN_I32 ? (const void *)&i32
                       : c->type.dtype == WN_U8  ? (const void *)&u8
                                                 : (const void *)&from->number;
    return d->put(d, c->buffer->data, host, wn__dtype_size(c->type.dtype));
}

/* A value nobody else can name gives its bytes to the cell; otherwise they are copied. */
static int32_t adopt(struct wn_cell *c, int32_t sole)
{
    struct wn_node *from = c->init;
    if (from->held != NULL && sole) {
        wn__ledger_move(c->device, from->held->kind, -from->held->bytes);
        wn__ledger_move(c->device, c->kind, from->held->bytes);
        c->buffer = from->held;
        c->buffer->kind = c->kind;
        from->held = NULL;
    } else {
        WN_TRY(wn__cell_materialise(c));
        int32_t code = from->held != NULL ? copy_between(c, from) : put_number(c, from);
        if (code != WN_OK) {
            wn__buffer_unref(c->buffer);
            c->buffer = NULL;
            return code;
        }
    }
    c->init = NULL;
    wn__node_unref(from);
    return WN_OK;
}

static int32_t compute(struct wn_node **init, int32_t n)
{
    int32_t *handles = wn__alloc((n + 1) * (int64_t)sizeof *handles), made = 0, code = WN_OK;
    struct wn_program *p = NULL;
    if (handles == NULL) return WN_OOM;
    for (; made < n && code == WN_OK; made++) {
        wn__node_ref(init[made]);
        handles[made] = wn__handle_new(WN_HANDLE_VALUE, init[made]);
        if (handles[made] < 0) {
            wn__node_unref(init[made]);
            code = WN_OOM;
            break;
        }
    }
    struct wn_request r = {.mode = WN_RUN_EVAL, .n_roots = n, .roots = handles, .scale = 1};
    if (code == WN_OK) code = wn__program_open(&r, &p);
    if (code == WN_OK) code = wn__program_plan(p);
    if (code == WN_OK) code = wn__program_run(p, 0);
    if (p != NULL) wn__program_free(p);
    for (int32_t i = 0; i < made; i++) wn__handle_release(handles[i]);
    wn__handle_drain();
    wn__free(handles);
    return code;
}

int32_t wn__program_materialise(struct wn_program *p)
{
    const struct wn__form *f = p->form;
    int32_t n = 0, code = WN_OK, missing = 0;
    for (int32_t i = 0; i < f->n_cells; i++)
        missing += p->cell[i]->kind != WN_KIND_GRADIENT && !wn__cell_has_value(p->cell[i]);
    if (missing == 0) return WN_OK;
    struct wn_node **init = wn__alloc((missing + 1) * (int64_t)sizeof *init);
    if (init == NULL) return WN_OOM;
    for (int32_t i = 0; i < f->n_cells; i++) {
        struct wn_cell *c = p->cell[i];
        if (c->kind == WN_KIND_GRADIENT || wn__cell_has_value(c)) continue;
        if (c->init == NULL) {
            code = wn__fail(WN_INTERNAL, "run: a state has neither a value nor a beginning");
            break;
        }
        int32_t known = c->init->is_held || c->init->op == WN_OP_CONST;
        for (int32_t k = 0; k < n; k++) known |= init[k] == c->init;
        if (!known) init[n++] = c->init;
    }
    if (code == WN_OK && n > 0) code = compute(init, n);
    for (int32_t i = 0; i < f->n_cells && code == WN_OK; i++) {
        struct wn_cell *c = p->cell[i];
        if (c->kind == WN_KIND_GRADIENT || wn__cell_has_value(c)) continue;
        code = adopt(c, c->init->refs == 1);
    }
    wn__free(init);
    return code;
}
