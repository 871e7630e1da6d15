/* The API of moving: values and states to another device. Bytes pass through one block of the host, so moving a model
 * takes no memory beside it. */
#include "../memory/edge.h"
#include "api.h"

#define BLOCK 1048576 /* bytes that pass at a time */

/* Copies the elements of a value or a cell into `to`, which has its type, plain. */
static int32_t copy_elements(int32_t from, struct wn_node *to)
{
    struct wn_device *d = wn__device(to->device);
    int64_t bytes = wn__bytes(&to->type);
    if (to->type.ndim == 0) {
        char number[8];
        WN_TRY(wn_read_part(from, 0, number, bytes));
        to->number = wn__number_get(to->type.dtype, number);
        return WN_OK;
    }
    int64_t most = bytes < BLOCK ? bytes : BLOCK;
    if (bytes == 0) return WN_OK;
    char *block = wn__alloc(most);
    int32_t code = block == NULL ? WN_OOM : WN_OK;
    for (int64_t at = 0; at < bytes && code == WN_OK; at += most) {
        int64_t n = bytes - at < most ? bytes - at : most;
        code = wn_read_part(from, at, block, n);
        if (code == WN_OK) code = wn__edge_put(d, &to->type, to->held->data, at, block, n);
    }
    wn__free(block);
    return code;
}

static int32_t check_real(const struct wn_info *info)
{
    const struct wn_device *from = info->device == WN_NO_DEVICE ? NULL : wn__device(info->device);
    if (from == NULL || from->real) return WN_OK;
    return wn__fail(WN_DEVICE, "to: %s lies on %s, which has shapes and costs but no bytes", wn__type_text(&info->type),
                    from->name);
}

int32_t wn_move(int32_t handle, int32_t device)
{
    struct wn_info info;
    int32_t code = wn__enter();
    if (code == WN_OK) code = wn_info(handle, &info);
    if (code == WN_OK) code = wn__check_device(device, "to");
    if (code == WN_OK) code = check_real(&info);
    if (code != WN_OK) return -code;
    info.type.layout = WN_PLAIN;
    int32_t id = wn_data(&info.type, device, NULL);
    if (id < 0) return id;
    code = copy_elements(handle, wn__handle_get(id, WN_HANDLE_VALUE));
    if (code == WN_OK) return id;
    wn_free(id);
    return -code;
}

/* Fills *out with the first value of a cell, recorded on the device of `to` in its layout. */
static int32_t begin_again(const struct wn_cell *c, const struct wn_cell *to, struct wn_node **out)
{
    struct wn_node *plain = NULL;
    WN_TRY(wn__record_elsewhere(c->init, to->device, &plain));
    if (plain == NULL)
        return wn__fail(WN_UNSUPPORTED, "to: the first value of %s cannot be begun on %s; run it first",
                        c->name != NULL ? c->name : "a state", wn__device(to->device)->name);
    int32_t code = wn__record_layout(plain, to->type.layout, plain->line, out);
    wn__node_unref(plain);
    return code;
}

/* Copies the bytes of a cell into one of the same dims. A device without bytes only counts them. */
static int32_t copy_cell(const struct wn_cell *from, struct wn_cell *to)
{
    int64_t bytes = wn__device(to->device)->real ? wn__bytes(&to->type) : 0, most = bytes < BLOCK ? bytes : BLOCK;
    WN_TRY(wn__cell_materialise(to));
    char *block = wn__alloc(most > 0 ? most : 1);
    int32_t code = block == NULL ? WN_OOM : WN_OK;
    for (int64_t at = 0; at < bytes && code == WN_OK; at += most) {
        int64_t n = bytes - at < most ? bytes - at : most;
        code = wn__cell_read(from, at, block, n);
        if (code == WN_OK) code = wn__cell_write(to, at, block, n);
    }
    wn__free(block);
    if (code == WN_OK) wn__cell_written(to);
    return code;
}

int32_t wn_cell_move(int32_t cell, int32_t device, int32_t layout)
{
    struct wn_info info;
    struct wn_cell *to = NULL;
    int32_t code = wn__enter();
    const struct wn_cell *c = code == WN_OK ? wn__handle_get(cell, WN_HANDLE_CELL) : NULL;
    if (code == WN_OK && c == NULL) code = WN_VALUE;
    if (code == WN_OK) code = wn__check_device(device, "to");
    if (code == WN_OK) code = wn_info(cell, &info);
    if (code == WN_OK && (layout < 0 || layout > INT16_MAX))
        code = wn__fail(WN_VALUE, "to: layout %d given; expected one of wn_weight_layout", layout);
    info.type.layout = (int16_t)layout;
    if (code == WN_OK && layout != WN_PLAIN && !wn__layout_fits(layout, &info.type))
        code = wn__fail(WN_VALUE, "to: %s does not lie in layout %d", wn__type_text(&info.type), layout);
    if (code == WN_OK) code = wn__cell_new(c->kind, &info.type, device, &to);
    if (code == WN_OK) {
        to->name = c->name;
        to->needs_grad = c->needs_grad;
        if (c->init != NULL && c->buffer == NULL) code = begin_again(c, to, &to->init);
        else if (code == WN_OK) code = check_real(&info);
        if (code == WN_OK && to->init == NULL) code = copy_cell(c, to);
    }
    int32_t id = code == WN_OK ? wn__handle_new(WN_HANDLE_CELL, to) : -code;
    if (id < 0) wn__cell_unref(to);
    return id;
}

int32_t wn_cells_coming(int32_t device, int64_t bytes, int64_t count)
{
    WN_TRY(wn__enter());
    WN_TRY(wn__check_device(device, "to"));
    if (bytes < 0 || count < 0)
        return wn__fail(WN_VALUE, "to: %lld cells of %lld bytes are coming; expected 0 or more", (long long)count,
                        (long long)bytes);
    wn__device_hint(device, bytes, count);
    return WN_OK;
}
