/* The API of moving: values and states to another device. Bytes pass through one block of the host, so moving a model
 * takes no memory beside it. */
#include "api.h"

#define BLOCK 1048576 /* bytes that pass at a time */

/* Copies `bytes` of a value or a cell, all of them, into `value`, or into `cell` where that is NULL. */
static int32_t copy_bytes(int32_t from, int64_t bytes, struct wn_node *value, struct wn_cell *cell)
{
    int64_t most = wn_min(bytes, BLOCK);
    char *block = wn__alloc(most);
    int32_t code = block == NULL ? WN_OOM : WN_OK;
    for (int64_t at = 0; at < bytes && code == WN_OK; at += most) {
        int64_t n = wn_min(bytes - at, most);
        code = wn_read_part(from, at, block, n);
        if (code == WN_OK && value != NULL) code = wn__value_write(value, at, block, n);
        else if (code == WN_OK) code = wn__cell_write(cell, at, block, n);
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
    WN_TRY_ID(wn__enter());
    WN_TRY_ID(wn_info(handle, &info));
    WN_TRY_ID(wn__check_device(device, "to"));
    WN_TRY_ID(check_real(&info));
    info.type.layout = WN_PLAIN;
    int32_t id = wn_data(&info.type, device, NULL);
    if (id < 0) return id;
    int32_t code = copy_bytes(handle, wn__bytes(&info.type), wn__handle_get(id, WN_HANDLE_VALUE), NULL);
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

/* Gives a new cell the name and the value of `from`, whose handle is `cell`. A device without bytes only counts. */
static int32_t fill_cell(int32_t cell, const struct wn_info *info, struct wn_cell *to)
{
    const struct wn_cell *from = wn__get_cell(cell);
    to->name = from->name;
    to->needs_grad = from->needs_grad;
    if (from->init != NULL && from->buffer == NULL) return begin_again(from, to, &to->init);
    WN_TRY(check_real(info));
    WN_TRY(wn__cell_materialise(to));
    WN_TRY(copy_bytes(cell, wn__device(to->device)->real ? wn__bytes(&to->type) : 0, NULL, to));
    wn__cell_written(to);
    return WN_OK;
}

int32_t wn_cell_move(int32_t cell, int32_t device, int32_t layout)
{
    struct wn_info info;
    struct wn_cell *to = NULL;
    WN_TRY_ID(wn__enter());
    const struct wn_cell *c = wn__get_cell(cell);
    if (c == NULL) return -WN_VALUE;
    WN_TRY_ID(wn__check_device(device, "to"));
    WN_TRY_ID(wn_info(cell, &info));
    if (layout < 0 || layout > INT16_MAX)
        return -wn__fail(WN_VALUE, "to: layout %d given; expected one of wn_weight_layout", layout);
    info.type.layout = (int16_t)layout;
    if (layout != WN_PLAIN && !wn__layout_fits(layout, &info.type))
        return -wn__fail(WN_VALUE, "to: %s does not lie in layout %d", wn__type_text(&info.type), layout);
    int32_t code = wn__cell_new(c->kind, &info.type, device, &to);
    if (code == WN_OK) code = fill_cell(cell, &info, to);
    return wn__handle_of(code, WN_HANDLE_CELL, to);
}

int32_t wn_cells_coming(int32_t device, int64_t bytes, int64_t count)
{
    WN_TRY(wn__enter());
    WN_TRY(wn__check_device(device, "to"));
    if (bytes < 0 || count < 0)
        return wn__fail(WN_VALUE, "to: %lld cells of %lld bytes are coming; expected 0 or more", (long long)count,
                        (long long)bytes);
    wn__device(device)->hint(wn__device(device), bytes, count);
    return WN_OK;
}
