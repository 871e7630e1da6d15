/* Cells: named, mutable, versioned states. Only effects and writes of the host make a new version; a node reads the
 * version that was current when it was recorded. Storage is taken late, at the first run or write, and the bytes of
 * a gradient are part of the slab of its parameter set. */
#include "../base/alloc.h"
#include "../memory/edge.h"
#include "graph.h"

int32_t wn__cell_new(int32_t kind, const struct wn_type *type, int32_t device, struct wn_cell **out)
{
    static int64_t last_serial;
    struct wn_cell *c = wn__alloc(sizeof *c);
    if (c == NULL) return WN_OOM;
    c->refs = 1;
    c->kind = kind;
    c->type = c->whole = *type;
    c->device = device;
    c->version = 1;
    c->serial = ++last_serial;
    *out = c;
    return WN_OK;
}

/* Gives up the place of a gradient in its slab, with its value. */
static void cell_leave_slab(struct wn_cell *c)
{
    if (c->slab == NULL) return;
    wn__cell_drop_own(c);
    wn__slab_unref(c->slab);
    c->slab = NULL;
}

int64_t wn__cells_arriving;
int32_t (*wn__cell_arrive)(struct wn_cell *c);

void wn__cell_free(struct wn_cell *c)
{
    (void)wn__cell_settle(c); /* a message may still be written there */
    wn__cell_begun(c);
    if (c->grad != NULL) wn__cell_unref(c->grad);
    cell_leave_slab(c);
    wn__buffer_unref(c->buffer);
    wn__free(c);
}

int32_t wn__cell_reader(struct wn_cell *c, struct wn_node **out)
{
    if (c->reader == NULL) {
        struct wn_node *n = wn__leaf_new(WN_OP_CELL, &c->whole, c->device);
        if (n == NULL) return WN_OOM;
        n->cell = c;
        n->version = c->version;
        n->needs_grad = (uint8_t)c->needs_grad;
        n->name = c->name;
        wn__cell_ref(c);
        c->reader = n;
        *out = n;
        return WN_OK;
    }
    wn__node_ref(c->reader);
    *out = c->reader;
    return WN_OK;
}

int32_t wn__cell_has_value(const struct wn_cell *c)
{
    return c->buffer != NULL || c->allocated;
}

int32_t wn__cell_materialise(struct wn_cell *c)
{
    if (c->kind == WN_KIND_GRADIENT || c->buffer != NULL) return WN_OK;
    return wn__buffer_new(c->device, c->kind, wn__bytes(&c->type), &c->buffer);
}

void *wn__cell_data(const struct wn_cell *c)
{
    if (c->buffer != NULL) return c->buffer->data;
    return c->slab != NULL && c->slab->data != NULL ? (char *)c->slab->data + c->slab_offset : NULL;
}

/* Versions are numbers that no cell had before: one that is put back (wn__cell_restored) is never given twice. */
static int64_t last_version = 1;

void wn__cell_changed(struct wn_cell *c)
{
    c->version = ++last_version;
    c->reader = NULL;
}

void wn__cell_restored(struct wn_cell *c, int64_t version)
{
    c->version = version;
    c->reader = NULL;
    c->invalid = 0;
}

/* Lays a cell out in another way. What was recorded of it before is stale. */
static int32_t lay(struct wn_cell *c, int32_t layout)
{
    int64_t bytes = wn__bytes(&c->type);
    char *plain = NULL;
    int32_t code = WN_OK;
    if (c->type.layout == layout) return WN_OK;
    if (c->init != NULL) {
        struct wn_node *init = NULL;
        WN_TRY(wn__record_layout(c->init, layout, c->init->line, &init));
        wn__node_unref(c->init);
        c->init = init;
    }
    if (c->buffer != NULL && wn__device(c->device)->real) {
        plain = wn__alloc(bytes);
        if (plain == NULL) return WN_OOM;
        code = wn__cell_read(c, 0, plain, bytes);
    }
    if (code == WN_OK) {
        c->type.layout = c->whole.layout = layout;
        wn__cell_changed(c);
        if (plain != NULL) code = wn__cell_write(c, 0, plain, bytes);
    }
    wn__free(plain);
    return code;
}

/* Fails with the words of a sharded cell that cannot be anything else. */
static int32_t fail_sharded(const struct wn_cell *c)
{
    return wn__fail(WN_VALUE, "each rank has a range of %s alone, and keeps it; place it before its first value",
                    c->name ? c->name : "a parameter");
}

int32_t wn__cell_slice(struct wn_cell *c, struct wn__cut cut, int32_t rank)
{
    if (c->grad != NULL && c->grad->allocated)
        return wn__fail(WN_VALUE, "%s has a gradient already; call zero_grad() before ranks keep another part of it",
                        c->name ? c->name : "a parameter");
    if (c->is_sharded) return fail_sharded(c);
    if (c->grad != NULL) wn__cell_unref(c->grad); /* the next one may have another type */
    c->grad = NULL;
    /* A range of its bytes is one of its elements only where they lie in their own order. */
    if (cut.ranks > 0 && !c->is_sliced) c->laid = c->type.layout;
    WN_TRY(lay(c, cut.ranks > 0 ? WN_PLAIN : c->is_sliced ? c->laid : c->type.layout));
    c->is_sliced = cut.ranks > 0;
    c->cut_start = cut.start;
    c->own = c->is_sliced ? wn__range_of(&cut, rank, 0) : (struct wn__range){0, 0};
    return WN_OK;
}

int32_t wn__cell_shard(struct wn_cell *c, int32_t is_tried)
{
    struct wn_device *d = wn__device(c->device);
    const struct wn_type type = wn__cell_own_type(c);
    int32_t code = WN_OK;
    if (c->is_sharded) return WN_OK;
    WN_TRY(wn__cell_settle(c));
    c->is_tried = is_tried && c->buffer != NULL;
    if (c->buffer != NULL && !is_tried) {
        struct wn__buffer *b = NULL;
        WN_TRY(wn__buffer_new(c->device, c->kind, wn__bytes(&type), &b));
        if (wn__bytes(&type) > 0 && d->real)
            code = d->copy(d, b->data, (char *)c->buffer->data + c->own.first * wn__dtype_size(type.dtype),
                           wn__bytes(&type));
        if (code != WN_OK) {
            wn__buffer_unref(b);
            return code;
        }
        wn__buffer_unref(c->buffer);
        c->buffer = b;
    }
    if (c->init != NULL) {
        struct wn_node *range = NULL;
        WN_TRY(wn__record_range(c->init, c->own, &range));
        c->unsharded = c->init;
        c->init = range;
    }
    c->type = type;
    c->is_sharded = 1;
    c->reader = NULL;
    return WN_OK;
}

int32_t wn__cell_unshard(struct wn_cell *c)
{
    if (!c->is_sharded) return WN_OK;
    if (!c->is_tried && (c->buffer != NULL || c->unsharded == NULL)) return fail_sharded(c);
    wn__node_unref(c->init);
    c->init = c->unsharded;
    c->unsharded = NULL;
    c->type = c->whole;
    c->is_sharded = c->is_tried = 0;
    c->reader = NULL;
    return WN_OK;
}

void wn__cell_begun(struct wn_cell *c)
{
    wn__node_unref(c->init);
    wn__node_unref(c->unsharded);
    c->init = c->unsharded = NULL;
}

struct wn_type wn__cell_own_type(const struct wn_cell *c)
{
    return c->is_sliced ? (struct wn_type){.dtype = c->type.dtype, .ndim = 1, .dim = {c->own.count}} : c->type;
}

int32_t wn__cell_gradient(struct wn_cell *c, struct wn_cell **out)
{
    if (c->grad == NULL) {
        const struct wn_type type = wn__cell_own_type(c);
        WN_TRY(wn__cell_new(WN_KIND_GRADIENT, &type, c->device, &c->grad));
        c->grad->name = c->name;
    }
    *out = c->grad;
    return WN_OK;
}

void wn__cell_allocate(struct wn_cell *grad)
{
    if (grad->allocated) return;
    grad->allocated = 1;
    grad->slab->allocated++;
    wn__ledger_move(grad->device, grad->kind, wn__padded(wn__bytes(&grad->type)));
}

void wn__cell_drop_own(struct wn_cell *grad)
{
    if (!grad->allocated) return;
    grad->allocated = grad->invalid = 0;
    grad->slab->allocated--;
    wn__ledger_move(grad->device, grad->kind, -wn__padded(wn__bytes(&grad->type)));
    wn__cell_changed(grad);
}

void wn__cell_drop_gradient(struct wn_cell *c)
{
    if (c->grad != NULL) wn__cell_drop_own(c->grad);
}

static int32_t cell_check(const struct wn_cell *c, const char *what, int64_t at, int64_t n)
{
    int64_t all = wn__bytes(&c->type);
    if (at < 0 || n < 0 || at > all - n)
        return wn__fail(WN_VALUE, "%s: %lld bytes from byte %lld given for %s, which takes %lld", what, (long long)n,
                        (long long)at, wn__type_text(&c->type), (long long)all);
    return WN_OK;
}

/* Refuses a gradient that exists in a planned step alone, and so has no bytes. */
static int32_t check_planned(const struct wn_cell *c, const char *what)
{
    if (c->kind != WN_KIND_GRADIENT || c->noted == 0 || !wn__device(c->device)->real) return WN_OK;
    if (wn__cell_data(c) != NULL) return WN_OK;
    return wn__fail(WN_VALUE, "%s: this gradient has no value while a step is planned, for nothing runs", what);
}

int32_t wn__cell_read(const struct wn_cell *c, int64_t at, void *bytes, int64_t n)
{
    struct wn_device *d = wn__device(c->device);
    WN_TRY(cell_check(c, "read", at, n));
    if (c->invalid)
        return wn__fail(WN_STALE, "read: %s was left half updated by a failed run; load it again",
                        c->name ? c->name : "the state");
    if (!wn__cell_has_value(c))
        return wn__fail(WN_VALUE, "read: %s has no value yet; run a program that needs it first",
                        c->name ? c->name : "the state");
    WN_TRY(check_planned(c, "read"));
    WN_TRY(wn__cell_settle((struct wn_cell *)(uintptr_t)c));
    WN_TRY(d->sync(d));
    return wn__edge_get(d, &c->type, wn__cell_data(c), at, bytes, n);
}

int32_t wn__cell_write(struct wn_cell *c, int64_t at, const void *bytes, int64_t n)
{
    struct wn_device *d = wn__device(c->device);
    WN_TRY(cell_check(c, "write", at, n));
    if (c->kind == WN_KIND_GRADIENT && !c->allocated)
        return wn__fail(WN_VALUE, "write: this gradient does not exist yet; run a backward first");
    WN_TRY(check_planned(c, "write"));
    WN_TRY(wn__cell_settle(c));
    WN_TRY(wn__cell_materialise(c));
    return wn__edge_put(d, &c->type, wn__cell_data(c), at, bytes, n);
}

void wn__cell_written(struct wn_cell *c)
{
    wn__cell_begun(c);
    c->invalid = 0;
    wn__cell_changed(c);
}

void wn__cell_unwritten(struct wn_cell *c)
{
    if (c->kind == WN_KIND_GRADIENT) return;
    if (c->init == NULL) {
        c->invalid = 1;
        return;
    }
    wn__buffer_unref(c->buffer);
    c->buffer = NULL;
}
