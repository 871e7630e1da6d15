/* The API of files and of data that comes in: tensors to and from a file, pieces of a data set into a batch. All bytes
 * go through one block on the stack, so saving a model takes no memory beside it, and there is nothing to account for. */
#include "api.h"

/* 128 MiB to and from a file in memory, GB/s: blocks of 4 KiB 1.5 and 2.5, 16 KiB 1.8 and 3.4, 64 KiB 2.2 and 4.3,
 * 256 KiB 2.1 and 4.6, 1 MiB 2.2 and 3.3. */
#define BLOCK 65536

static struct wn__file *get_file(int32_t handle)
{
    return wn__handle_get(handle, WN_HANDLE_FILE);
}

static int32_t file_handle(int32_t code, struct wn__file *f)
{
    if (code != WN_OK) return -code;
    int32_t id = wn__handle_new(WN_HANDLE_FILE, f);
    if (id < 0) wn__file_free(f);
    return id;
}

/* ---- writing ---------------------------------------------------------------------------------------------------- */

int32_t wn_file_create(const char *path)
{
    struct wn__file *f = NULL;
    int32_t code = wn__enter();
    if (code == WN_OK) code = wn__file_create(path, &f);
    return file_handle(code, f);
}

int32_t wn_file_write(int32_t file, const void *bytes, int64_t n)
{
    struct wn__file *f = get_file(file);
    return f == NULL ? WN_VALUE : wn__file_write(f, bytes, n);
}

int32_t wn_file_save(int32_t file, int32_t handle)
{
    char block[BLOCK];
    struct wn_info info;
    struct wn__file *f = get_file(file);
    if (f == NULL) return WN_VALUE;
    WN_TRY(wn_info(handle, &info));
    int64_t bytes = wn__bytes(&info.type);
    for (int64_t at = 0; at < bytes; at += BLOCK) {
        int64_t n = bytes - at < BLOCK ? bytes - at : BLOCK;
        WN_TRY(wn_read_part(handle, at, block, n));
        WN_TRY(wn__file_write(f, block, n));
    }
    return WN_OK;
}

int32_t wn_file_commit(int32_t file)
{
    struct wn__file *f = get_file(file);
    return f == NULL ? WN_VALUE : wn__file_commit(f);
}

/* ---- reading ---------------------------------------------------------------------------------------------------- */

int32_t wn_file_open(const char *path)
{
    struct wn__file *f = NULL;
    int32_t code = wn__enter();
    if (code == WN_OK) code = wn__file_open(path, &f);
    return file_handle(code, f);
}

int32_t wn_file_check(const char *path, int32_t is_written)
{
    return wn__file_check(path, is_written ? "writing" : "reading");
}

double wn_file_size(int32_t file)
{
    return wn__handle_kind(file) == WN_HANDLE_FILE ? (double)get_file(file)->size : -1;
}

int32_t wn_file_read(int32_t file, int64_t at, void *bytes, int64_t n)
{
    const struct wn__file *f = get_file(file);
    return f == NULL ? WN_VALUE : wn__file_read(f, at, bytes, n);
}

/* Turns the bytes of each element around. */
static void turn(char *bytes, int64_t n, int32_t size)
{
    for (int64_t at = 0; at + size <= n; at += size)
        for (int32_t i = 0; i < size / 2; i++) {
            char t = bytes[at + i];
            bytes[at + i] = bytes[at + size - 1 - i];
            bytes[at + size - 1 - i] = t;
        }
}

static int32_t fill_data(const struct wn__file *f, int64_t at, struct wn_node *n, int32_t swap)
{
    char block[BLOCK];
    struct wn_device *d = wn__device(n->device);
    int64_t bytes = wn__bytes(&n->type);
    for (int64_t done = 0; done < bytes; done += BLOCK) {
        int64_t m = bytes - done < BLOCK ? bytes - done : BLOCK;
        WN_TRY(wn__file_read(f, at + done, block, m));
        if (swap > 1) turn(block, m, swap);
        if (n->type.ndim == 0) n->number = wn__number_get(n->type.dtype, block);
        else WN_TRY(d->put(d, (char *)n->held->data + done, block, m));
    }
    return WN_OK;
}

int32_t wn_file_data(int32_t file, int64_t at, const struct wn_type *type, int32_t device, int32_t swap)
{
    const struct wn__file *f = get_file(file);
    if (f == NULL) return -WN_VALUE;
    if (swap < 0 || (swap > 1 && swap != wn__dtype_size(type->dtype)))
        return -wn__fail(WN_VALUE, "reading '%s': elements of %d bytes to turn around, those of %s have %d", f->path,
                         swap, wn__dtype_name(type->dtype), (int)wn__dtype_size(type->dtype));
    int32_t id = wn_data(type, device, NULL);
    if (id < 0) return id;
    int32_t code = fill_data(f, at, wn__handle_get(id, WN_HANDLE_VALUE), swap);
    if (code == WN_OK) return id;
    wn_free(id);
    return -code;
}

static int32_t load_cell(const struct wn__file *f, int64_t at, struct wn_cell *c)
{
    char block[BLOCK];
    int64_t bytes = wn__bytes(&c->type);
    for (int64_t done = 0; done < bytes; done += BLOCK) {
        int64_t n = bytes - done < BLOCK ? bytes - done : BLOCK;
        WN_TRY(wn__file_read(f, at + done, block, n));
        WN_TRY(wn__cell_write(c, done, block, n));
    }
    return WN_OK;
}

static struct wn_cell *cell_of(int32_t handle)
{
    return wn__handle_get(handle, WN_HANDLE_CELL);
}

/* Storage of all, or of none. *taken: how many of them (from the first) may have been given some. */
static int32_t take_storage(const struct wn__file *f, int32_t n, const int32_t *cells, const int64_t *at,
                            int32_t *taken)
{
    for (int32_t i = 0; i < n; i++) {
        const struct wn_cell *c = cell_of(cells[i]);
        if (c == NULL) return WN_VALUE;
        if (c->kind == WN_KIND_GRADIENT) return wn__fail(WN_VALUE, "load: gradients are not loaded");
        if (!wn__device(c->device)->real)
            return wn__fail(WN_DEVICE, "load: %s is on %s, which has shapes and no bytes; make the model on cpu",
                            c->name ? c->name : "a state", wn__device(c->device)->name);
        if (at[i] < 0 || at[i] > f->size - wn__bytes(&c->type))
            return wn__fail(WN_IO, "reading '%s': %lld bytes at byte %lld do not lie in its %lld", f->path,
                            (long long)wn__bytes(&c->type), (long long)at[i], (long long)f->size);
    }
    for (; *taken < n; ++*taken) WN_TRY(wn__cell_materialise(cell_of(cells[*taken])));
    return WN_OK;
}

int32_t wn_file_load(int32_t file, int32_t n, const int32_t *cells, const int64_t *at)
{
    const struct wn__file *f = get_file(file);
    int32_t taken = 0;
    if (f == NULL) return WN_VALUE;
    int32_t code = take_storage(f, n, cells, at, &taken), has_begun = code == WN_OK;
    for (int32_t i = 0; i < n && code == WN_OK; i++) code = load_cell(f, at[i], cell_of(cells[i]));
    for (int32_t i = 0; i < taken; i++) {
        struct wn_cell *c = cell_of(cells[i]);
        if (code == WN_OK) wn__cell_written(c);
        else if (has_begun || c->init != NULL) wn__cell_unwritten(c);
    }
    return code;
}

/* ---- batches ------------------------------------------------------------------------------------------------------ */

/* n bytes at the end of 4 n bytes, made into integers: each is read before its place is written. */
static void widen(unsigned char *bytes, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        int32_t v = bytes[3 * n + i];
        __builtin_memcpy(bytes + 4 * i, &v, sizeof v);
    }
}

static int32_t gather_piece(struct wn_cell *c, int64_t to, int32_t value, int64_t from, int64_t length, int64_t size)
{
    unsigned char block[BLOCK];
    int64_t own = wn__dtype_size(c->type.dtype), most = BLOCK / own;
    for (int64_t done = 0; done < length; done += most) {
        int64_t n = length - done < most ? length - done : most;
        WN_TRY(wn_read_part(value, (from + done) * size, block + n * (own - size), n * size));
        if (own != size) widen(block, n);
        WN_TRY(wn__cell_write(c, (to + done) * own, block, n * own));
    }
    return WN_OK;
}

int32_t wn_gather(int32_t cell, int32_t value, const int64_t *start, int64_t n, int64_t length)
{
    struct wn_info info;
    int32_t code = WN_OK;
    struct wn_cell *c = cell_of(cell);
    if (c == NULL) return WN_VALUE;
    WN_TRY(wn_info(value, &info));
    int64_t all = wn__numel(&info.type), size = wn__dtype_size(info.type.dtype), given;
    if (!info.held) return wn__fail(WN_VALUE, "gather: %s holds nothing yet; run it first", wn__type_text(&info.type));
    if (c->type.dtype != info.type.dtype && !(c->type.dtype == WN_I32 && info.type.dtype == WN_U8))
        return wn__fail(WN_DTYPE, "gather: %s into %s; the dtypes must be equal, or bytes go into i32",
                        wn__type_text(&info.type), wn__type_text(&c->type));
    if (n < 0 || length < 0 || wn__mul(n, length, &given) != WN_OK || given != wn__numel(&c->type))
        return wn__fail(WN_SHAPE, "gather: %lld pieces of %lld do not make %s", (long long)n, (long long)length,
                        wn__type_text(&c->type));
    for (int64_t i = 0; i < n; i++)
        if (start[i] < 0 || start[i] > all - length)
            return wn__fail(WN_VALUE, "gather: elements %lld to %lld of %s", (long long)start[i],
                            (long long)(start[i] + length), wn__type_text(&info.type));
    for (int64_t i = 0; i < n && code == WN_OK; i++) code = gather_piece(c, i * length, value, start[i], length, size);
    if (code == WN_OK) wn__cell_written(c);
    else wn__cell_unwritten(c);
    return code;
}

/* ---- locks ------------------------------------------------------------------------------------------------------ */

int32_t wn_lock(const char *path, int32_t *is_kept)
{
    struct wn__lock *k = NULL;
    int32_t code = wn__enter();
    if (code == WN_OK) code = wn__lock_take(path, &k);
    if (code != WN_OK) return -code;
    *is_kept = k->is_kept;
    int32_t id = wn__handle_new(WN_HANDLE_LOCK, k);
    if (id < 0) wn__lock_free(k);
    return id;
}

int32_t wn_lock_close(int32_t lock)
{
    if (wn__handle_kind(lock) != WN_HANDLE_LOCK) return WN_OK;
    wn__lock_release(wn__handle_get(lock, WN_HANDLE_LOCK));
    wn__handle_release(lock);
    return WN_OK;
}

int32_t wn_file_close(int32_t file)
{
    if (wn__handle_kind(file) != WN_HANDLE_FILE) return WN_OK;
    wn__file_shut(get_file(file));
    wn__handle_release(file);
    return WN_OK;
}
