/* The API of values and cells: recording, leaves, reading and writing. Nothing here computes: a value gets its
 * bytes from a program, a cell from a program or from the caller. */
#include <string.h>
#include "api.h"
#include "../memory/edge.h"
#include "../program/sequence.h"

int32_t wn__value_write(struct wn_node *v, int64_t at, const void *bytes, int64_t n)
{
    struct wn_device *d = wn__device(v->device);
    if (v->type.ndim > 0) return wn__edge_put(d, &v->type, v->held->data, at, bytes, n);
    v->number = wn__number_get(v->type.dtype, bytes);
    return WN_OK;
}

int32_t wn_release(int32_t handle)
{
    wn__handle_release(handle);
    return WN_OK;
}

int32_t wn_record(int32_t op, int32_t n, const int32_t *in, const struct wn_attrs *attrs, int32_t line)
{
    struct wn_node *small[8], **nodes = small, *out = NULL;
    int32_t got = 0, code = WN_OK;
    WN_TRY_ID(wn__enter());
    WN_TRY_ID(wn__check_array(in, n, 1024, "record: inputs"));
    WN_TRY_ID(wn__check_attrs(op, attrs));
    if (n > 8) nodes = wn__alloc(n * (int64_t)sizeof *nodes);
    if (nodes == NULL) return -WN_OOM;
    for (; got < n && code == WN_OK; got += code == WN_OK) code = wn__handle_value(in[got], &nodes[got]);
    for (int32_t i = 0; i < n && code == WN_OK; i++) {
        int32_t layout = wn__wanted_layout(op, n, nodes, attrs, i);
        if (nodes[i]->type.layout == layout) continue;
        struct wn_node *as_it_lies = nodes[i];
        code = wn__record_layout(as_it_lies, layout, line, &nodes[i]);
        wn__node_unref(as_it_lies);
        if (code != WN_OK) nodes[i] = NULL;
    }
    if (code == WN_OK) code = wn__record(op, n, nodes, attrs, line, &out);
    if (code == WN_OK && (wn__op_flags(op) & WN_EFFECT))
        code = wn__fail(WN_VALUE, "record: %s is no value: a program does it, see wn_open", wn__op_name(op));
    for (int32_t i = 0; i < got; i++) wn__node_unref(nodes[i]);
    if (nodes != small) wn__free(nodes);
    return wn__handle_of(code, WN_HANDLE_VALUE, out);
}

int32_t wn_custom(int32_t y, int32_t n, const int32_t *x, int32_t placeholder, const int32_t *r, int32_t line)
{
    int32_t code = WN_OK;
    WN_TRY_ID(wn__enter());
    WN_TRY_ID(wn__check_array(x, n, 512, "custom: tensors"));
    WN_TRY_ID(wn__check_array(r, n, 512, "custom: gradients"));
    struct wn_node **all = wn__alloc((2 * n + 2) * (int64_t)sizeof *all), *out = NULL;
    if (all == NULL) return -WN_OOM;
    for (int32_t i = 0; i < 2 * n + 2; i++) all[i] = NULL;
    for (int32_t i = 0; i < 2 * n + 2 && code == WN_OK; i++) {
        int32_t handle = i < n ? x[i] : i < 2 * n ? r[i - n] : i == 2 * n ? y : placeholder;
        if (handle >= 0 || i < n || i >= 2 * n) code = wn__handle_value(handle, &all[i]);
    }
    const struct wn__custom c = {.y = all[2 * n], .n = n, .x = all, .placeholder = all[2 * n + 1], .r = all + n};
    if (code == WN_OK) code = wn__record_custom(&c, line, &out);
    for (int32_t i = 0; i < 2 * n + 2; i++) wn__node_unref(all[i]);
    wn__free(all);
    return wn__handle_of(code, WN_HANDLE_VALUE, out);
}

int32_t wn_effect(int32_t value, int32_t op, int32_t cell, const struct wn_attrs *attrs)
{
    struct wn_node *v = NULL;
    WN_TRY(wn__enter());
    WN_TRY(wn__need(attrs, "effect"));
    WN_TRY(wn__check_attrs(op, attrs));
    struct wn_cell *c = wn__get_cell(cell);
    if (c == NULL) return WN_VALUE;
    WN_TRY(wn__handle_value(value, &v));
    int32_t code = wn__node_affect(v, op, c, attrs);
    wn__node_unref(v);
    return code;
}

int32_t wn_const(const double *v, int32_t n, int32_t dtype)
{
    struct wn_node *out = NULL;
    WN_TRY_ID(wn__thread_check());
    WN_TRY_ID(wn__check_array(v, n, 8, "const"));
    WN_TRY_ID(wn__need(v, "const"));
    for (int32_t i = 0; i < (n > 0 ? n : 1); i++) WN_TRY_ID(wn__check_number(v[i], dtype, "const"));
    int32_t code = wn__record_const(v, n, dtype, &out);
    return wn__handle_of(code, WN_HANDLE_VALUE, out);
}

int32_t wn_data(const struct wn_type *type, int32_t device, const void *bytes)
{
    int32_t code = WN_OK;
    WN_TRY_ID(wn__enter());
    WN_TRY_ID(wn__check_type(type, "tensor"));
    WN_TRY_ID(wn__check_device(device, "tensor"));
    struct wn_node *n = wn__leaf_new(WN_OP_DATA, type, device);
    if (n == NULL) return -WN_OOM;
    n->is_held = 1;
    if (type->ndim > 0) code = wn__buffer_new(device, WN_KIND_INPUT, wn__bytes(type), &n->held);
    if (code == WN_OK && bytes != NULL) code = wn__value_write(n, 0, bytes, wn__bytes(type));
    return wn__handle_of(code, WN_HANDLE_VALUE, n);
}

int32_t wn_cell(int32_t kind, int32_t init, const char *name)
{
    struct wn_node *from;
    struct wn_cell *c = NULL;
    WN_TRY_ID(wn__enter());
    WN_TRY_ID(wn__handle_value(init, &from));
    int32_t device = from->device == WN_NO_DEVICE ? wn__here.device : from->device;
    int32_t code = wn__check_cell(kind, from);
    if (code == WN_OK) code = wn__cell_new(kind, &from->type, device, &c);
    if (code == WN_OK && name != NULL) {
        c->name = wn__intern(name);
        if (c->name == NULL) code = WN_OOM;
    }
    if (c != NULL) c->init = from;
    else wn__node_unref(from);
    return wn__handle_of(code, WN_HANDLE_CELL, c);
}

int32_t wn_cell_grad(int32_t cell)
{
    if (wn__enter() != WN_OK || wn__handle_kind(cell) != WN_HANDLE_CELL) return -1;
    struct wn_cell *c = wn__get_cell(cell);
    if (c->grad == NULL || !c->grad->allocated) return -1;
    wn__cell_ref(c->grad);
    int32_t id = wn__handle_of(WN_OK, WN_HANDLE_CELL, c->grad);
    return id < 0 ? -1 : id;
}

double wn_cell_version(int32_t cell)
{
    return wn__handle_kind(cell) == WN_HANDLE_CELL ? (double)wn__get_cell(cell)->version : -1;
}

int32_t wn_cell_state(int32_t cell)
{
    if (wn__handle_kind(cell) != WN_HANDLE_CELL) return -1;
    const struct wn_cell *c = wn__get_cell(cell);
    return (c->needs_grad != 0) + 2 * (c->grad != NULL && c->grad->allocated);
}

int32_t wn_cell_need_grad(int32_t cell, int32_t on)
{
    struct wn_cell *c = wn__get_cell(cell);
    if (c == NULL) return WN_VALUE;
    if (on && !wn__dtype_is_float(c->type.dtype))
        return wn__fail(WN_DTYPE, "requires_grad: %s has no gradient; only floats do", wn__type_text(&c->type));
    on = on != 0;
    if (c->needs_grad != on) c->reader = NULL; /* nodes recorded before keep the old answer */
    c->needs_grad = on;
    return WN_OK;
}

int32_t wn_cell_drop_grad(int32_t cell)
{
    struct wn_cell *c = wn__get_cell(cell);
    if (c == NULL) return WN_VALUE;
    if (wn__sequence_now() != NULL) return wn__sequence_drop(c);
    wn__cell_drop_gradient(c);
    return WN_OK;
}

static struct wn_node *get_node(int32_t handle)
{
    return wn__handle_get(handle, WN_HANDLE_VALUE);
}

int32_t wn_retain(int32_t value)
{
    if (wn__handle_kind(value) == WN_HANDLE_CELL) return WN_OK; /* a state is kept anyway */
    struct wn_node *n = get_node(value);
    if (n == NULL) return WN_VALUE;
    if (n->op == WN_OP_DATA && n->stale) return wn__node_lost(n, NULL);
    int32_t is_pending = !n->is_held && !wn__node_is_leaf(n);
    n->retain = n->op == WN_OP_DATA || is_pending;
    return is_pending ? wn__retained_add(n, wn__sequence_is_planned() ? wn__sequence_now() : NULL) : WN_OK;
}

int32_t wn_rename(int32_t handle, const char *name)
{
    int32_t is_cell = wn__handle_kind(handle) == WN_HANDLE_CELL;
    struct wn_cell *c = is_cell ? wn__get_cell(handle) : NULL;
    struct wn_node *n = is_cell ? c->reader : get_node(handle);
    if (c == NULL && n == NULL) return WN_VALUE;
    WN_TRY(wn__need(name, "rename"));
    const char *word = wn__intern(name);
    if (word == NULL) return WN_OOM;
    if (c != NULL) c->name = word;
    if (n != NULL) n->name = word;
    return WN_OK;
}

int32_t wn_free(int32_t handle)
{
    WN_TRY(wn__thread_check());
    if (wn__handle_kind(handle) == WN_HANDLE_VALUE) {
        struct wn_node *n = get_node(handle);
        if (n->held != NULL) {
            wn__buffer_unref(n->held);
            n->held = NULL;
        }
    }
    wn__handle_release(handle);
    wn__handle_drain();
    return WN_OK;
}

static void cell_info(const struct wn_cell *c, struct wn_info *out)
{
    *out = (struct wn_info){.type = c->whole,
                            .op = WN_OP_CELL,
                            .device = c->device,
                            .is_cell = 1,
                            .cell_kind = c->kind,
                            .needs_grad = c->needs_grad,
                            .held = wn__cell_has_value(c),
                            .version = c->version,
                            .bytes = wn__padded(wn__bytes(&c->type))};
}

int32_t wn_info(int32_t handle, struct wn_info *out)
{
    WN_TRY(wn__need(out, "info"));
    if (wn__handle_kind(handle) == WN_HANDLE_CELL) {
        cell_info(wn__get_cell(handle), out);
        return WN_OK;
    }
    const struct wn_node *n = get_node(handle);
    if (n == NULL) return WN_VALUE;
    *out = (struct wn_info){.type = n->type,
                            .op = n->op,
                            .device = n->device,
                            .needs_grad = n->needs_grad,
                            .is_cut = n->is_cut,
                            .held = n->is_held,
                            .scope = n->scope,
                            .line = n->line,
                            .version = n->version,
                            .bytes = wn__padded(wn__bytes(&n->type)),
                            .number = n->number};
    if (n->op == WN_OP_CELL) {
        cell_info(n->cell, out);
        out->is_cell = 0;
    }
    return WN_OK;
}

double wn_serial(void)
{
    return (double)wn__node_last();
}

int32_t wn_value_info(int32_t handle, struct wn_value_info *out)
{
    struct wn_node *n;
    WN_TRY(wn__need(out, "look"));
    WN_TRY(wn__handle_value(handle, &n));
    *out = (struct wn_value_info){.type = n->type,
                                  .attrs = n->attrs,
                                  .op = n->op,
                                  .n_in = n->n_in,
                                  .line = n->line,
                                  .serial = n->seq,
                                  .number = n->number};
    wn__node_unref(n);
    return WN_OK;
}

int32_t wn_value_input(int32_t handle, int32_t i)
{
    const struct wn_node *n = get_node(handle);
    if (n == NULL) return -WN_VALUE;
    if (i < 0 || i >= n->n_in) return -wn__fail(WN_VALUE, "look: input %d of %d", i, n->n_in);
    wn__node_ref(n->in[i]);
    return wn__handle_of(WN_OK, WN_HANDLE_VALUE, n->in[i]);
}

/* Writes the bytes of numbers of the host, which have none until they are read. */
static int32_t read_number(const struct wn_node *n, void *bytes)
{
    struct wn_device *d = n->device >= 0 ? wn__device(n->device) : NULL;
    if (d != NULL && !d->real) return d->get(d, bytes, NULL, wn__bytes(&n->type));
    wn__node_numbers_put(n, bytes);
    return WN_OK;
}

int32_t wn_read_part(int32_t handle, int64_t at, void *bytes, int64_t n)
{
    WN_TRY(wn__enter());
    WN_TRY(wn__check_bytes(bytes, at, n, "read"));
    if (wn__handle_kind(handle) == WN_HANDLE_CELL) return wn__cell_read(wn__get_cell(handle), at, bytes, n);
    const struct wn_node *node = get_node(handle);
    if (node == NULL) return WN_VALUE;
    if (node->op == WN_OP_CELL) return wn__cell_read(node->cell, at, bytes, n);
    int64_t all = wn__bytes(&node->type);
    int32_t is_number = node->op == WN_OP_CONST || (node->is_held && node->type.ndim == 0);
    if (at > all - n || (is_number && n != all))
        return wn__fail(WN_VALUE, "read: bytes %lld to %lld asked for, %s takes %lld", (long long)at,
                        (long long)(at + n), wn__type_text(&node->type), (long long)all);
    if (is_number) return read_number(node, bytes);
    if (node->is_held && node->held == NULL) return wn__node_lost(node, NULL);
    if (node->held == NULL) return wn__fail(WN_VALUE, "read: this value was not computed; run it first");
    struct wn_device *d = wn__device(node->device);
    WN_TRY(d->sync(d));
    return wn__edge_get(d, &node->type, node->held->data, at, bytes, n);
}

int32_t wn_write_part(int32_t handle, int64_t at, const void *bytes, int64_t n)
{
    WN_TRY(wn__enter());
    WN_TRY(wn__check_bytes(bytes, at, n, "write"));
    struct wn_cell *c = wn__get_cell(handle);
    if (c == NULL) return WN_VALUE;
    WN_TRY(wn__cell_write(c, at, bytes, n));
    wn__cell_written(c);
    return WN_OK;
}

int32_t wn_read(int32_t handle, void *bytes, int64_t n)
{
    struct wn_info info;
    WN_TRY(wn_info(handle, &info));
    if (n == wn__bytes(&info.type)) return wn_read_part(handle, 0, bytes, n);
    return wn__fail(WN_VALUE, "read: %lld bytes given, %s takes %lld", (long long)n, wn__type_text(&info.type),
                    (long long)wn__bytes(&info.type));
}

int32_t wn_hyper(void)
{
    WN_TRY_ID(wn__thread_check());
    struct wn__hyper *h = wn__alloc(sizeof *h);
    if (h != NULL) h->refs = 1;
    return wn__handle_of(h == NULL ? WN_OOM : WN_OK, WN_HANDLE_HYPER, h);
}

int32_t wn_hyper_set(int32_t hyper, int32_t i, double v)
{
    struct wn__hyper *h = wn__handle_get(hyper, WN_HANDLE_HYPER);
    if (h == NULL) return WN_VALUE;
    if (i < 0 || i >= 8) return wn__fail(WN_VALUE, "hyper: place %d given, there are 8", i);
    h->v[i] = v;
    return WN_OK;
}
