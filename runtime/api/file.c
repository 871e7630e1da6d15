/* The API of files: tensors to and from a file. All bytes pass through one block on the stack, so that saving a model
 * takes no memory beside it. */
#include "api.h"
#include "../io/convert.h"

/* Bytes that pass at a time.
 * Measured: GB/s to and from, by block: 4 KiB 1.5 and 2.5, 16 KiB 1.8 and 3.4, 64 KiB 2.2 and 4.3, 256 KiB 2.1 and 4.6,
 * 1 MiB 2.2 and 3.3 (128 MiB, a file in memory). */
#define BLOCK 65536

/* Bytes of a matrix that are turned at a time, once they are converted. */
#define STRIP (1 << 20)

static struct wn__file *get_file(int32_t handle)
{
    return wn__handle_get(handle, WN_HANDLE_FILE);
}

/* ---- writing ---------------------------------------------------------------------------------------------------- */

int32_t wn_file_create(const char *path)
{
    struct wn__file *f = NULL;
    WN_TRY_ID(wn__enter());
    WN_TRY_ID(wn__need(path, "writing"));
    int32_t code = wn__file_create(path, &f);
    return wn__handle_of(code, WN_HANDLE_FILE, f);
}

int32_t wn_file_write(int32_t file, const void *bytes, int64_t n)
{
    struct wn__file *f = get_file(file);
    if (f == NULL) return WN_VALUE;
    WN_TRY(wn__check_bytes(bytes, 0, n, "writing"));
    return wn__file_write(f, bytes, n);
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
    WN_TRY_ID(wn__enter());
    WN_TRY_ID(wn__need(path, "reading"));
    int32_t code = wn__file_open(path, &f);
    return wn__handle_of(code, WN_HANDLE_FILE, f);
}

int32_t wn_file_check(const char *path, int32_t is_written)
{
    WN_TRY(wn__need(path, is_written ? "writing" : "reading"));
    return wn__file_check(path, is_written ? "writing" : "reading");
}

double wn_file_size(int32_t file)
{
    return wn__handle_kind(file) == WN_HANDLE_FILE ? (double)get_file(file)->size : -1;
}

int32_t wn_file_read(int32_t file, int64_t at, void *bytes, int64_t n)
{
    const struct wn__file *f = get_file(file);
    if (f == NULL) return WN_VALUE;
    WN_TRY(wn__check_bytes(bytes, at, n, "reading"));
    return wn__file_read(f, at, bytes, n);
}

int32_t wn_element_bytes(const char *kind)
{
    const struct wn__element *e = kind == NULL ? NULL : wn__element_find(kind);
    return e == NULL ? 0 : e->bytes;
}

int32_t wn_element_dtype(const char *kind)
{
    const struct wn__element *e = kind == NULL ? NULL : wn__element_find(kind);
    return e == NULL ? -1 : e->dtype;
}

/* Elements on their way from a file into a value or a cell. */
struct stream {
    const struct wn__file *file;
    const struct wn__element *kind;
    const char *name;      /* of the tensor, for messages */
    int64_t at, count;     /* byte of the first element; number of elements */
    int32_t dtype, swap;   /* that they become; 1: their bytes are in the other order */
    struct wn_node *value; /* that they go into, or NULL; where both are, they are only checked */
    struct wn_cell *cell;
    int64_t first;       /* byte of the cell where they begin */
    int64_t from, taken; /* of a matrix that the file has turned: elements [from, from + taken) are handed on */
};

/* Hands on n bytes of converted elements, from byte `to` on of all of them. */
static int32_t put(const struct stream *s, int64_t to, const void *bytes, int64_t n)
{
    if (s->cell != NULL) return wn__cell_write(s->cell, s->first + to, bytes, n);
    return s->value != NULL ? wn__value_write(s->value, to, bytes, n) : WN_OK;
}

static int32_t refuse_element(const struct stream *s, int64_t i, double value)
{
    return wn__fail(
        WN_VALUE, "reading '%s': '%s', element %lld of %lld (row by row, from 1): %s %.17g, which %s does not hold",
        s->file->path, s->name, (long long)i + 1, (long long)s->count, s->kind->name, value, wn__dtype_name(s->dtype));
}

/* Reads, converts and hands on all elements, block by block. WN_VALUE names the first that the dtype does not hold. */
static int32_t run_stream(const struct stream *s)
{
    char in[8 * WN_CONVERT_MOST], out[8 * WN_CONVERT_MOST];
    const struct wn__conversion c = {s->kind, s->dtype, s->swap};
    int64_t most = WN_CONVERT_MOST, size = wn__dtype_size(s->dtype);
    for (int64_t done = 0; done < s->count; done += most) {
        int64_t n = s->count - done < most ? s->count - done : most;
        double value = 0;
        WN_TRY(wn__file_read(s->file, s->at + done * s->kind->bytes, in, n * s->kind->bytes));
        int64_t bad = wn__convert(&c, in, n, out, &value);
        if (bad >= 0) return refuse_element(s, done + bad, value);
        WN_TRY(put(s, done * size, out, n * size));
    }
    return WN_OK;
}

/* A part of a matrix: its rows from `row` on, its columns from `column` on, row by row in `bytes`. */
struct strip {
    int64_t row, column, rows, columns;
    char *bytes;
};

/* Fills a strip from the file, which has the matrix turned, with `height` elements a row. */
static int32_t read_strip(const struct stream *s, int64_t height, const struct strip *t)
{
    char in[8 * WN_CONVERT_MOST], out[8 * WN_CONVERT_MOST];
    const struct wn__conversion c = {s->kind, s->dtype, s->swap};
    int64_t size = wn__dtype_size(s->dtype);
    for (int64_t j = 0; j < t->columns; j++) {
        double value = 0;
        int64_t i = (t->column + j) * height + t->row;
        WN_TRY(wn__file_read(s->file, s->at + i * s->kind->bytes, in, t->rows * s->kind->bytes));
        int64_t bad = wn__convert(&c, in, t->rows, out, &value);
        if (bad >= 0) return refuse_element(s, i + bad, value);
        for (int64_t r = 0; r < t->rows; r++)
            memcpy(t->bytes + (r * t->columns + j) * size, out + r * size, (size_t)size);
    }
    return WN_OK;
}

/* Hands on those of n elements of a matrix, from element i on, that are taken of it. */
static int32_t put_taken(const struct stream *s, int64_t i, int64_t n, const char *bytes)
{
    int64_t size = wn__dtype_size(s->dtype), begin = i > s->from ? i : s->from;
    int64_t end = wn_min(i + n, s->from + s->taken);
    return begin < end ? put(s, (begin - s->from) * size, bytes + (begin - i) * size, (end - begin) * size) : WN_OK;
}

/* Hands on a strip of a matrix of `width` columns. */
static int32_t put_strip(const struct stream *s, int64_t width, const struct strip *t)
{
    int64_t row = t->columns * wn__dtype_size(s->dtype);
    if (t->columns == width) return put_taken(s, t->row * width, t->rows * width, t->bytes);
    for (int64_t r = 0; r < t->rows; r++)
        WN_TRY(put_taken(s, (t->row + r) * width + t->column, t->columns, t->bytes + r * row));
    return WN_OK;
}

/* Reads, converts, turns and hands on the elements that are taken of a matrix of `width` columns, which the file has
 * turned, strip by strip of the rows that have some. room: STRIP bytes. */
static int32_t run_turned(const struct stream *s, int64_t width, char *room)
{
    int64_t most = STRIP / wn__dtype_size(s->dtype), height = s->count / width;
    int64_t columns = wn_min(width, most), rows = wn_min(most / columns, WN_CONVERT_MOST);
    int64_t end = (s->from + s->taken + width - 1) / width;
    struct strip t = {.bytes = room};
    for (t.row = s->from / width; t.row < end; t.row += rows)
        for (t.column = 0; t.column < width; t.column += columns) {
            t.rows = wn_min(rows, end - t.row);
            t.columns = wn_min(columns, width - t.column);
            WN_TRY(read_strip(s, height, &t));
            WN_TRY(put_strip(s, width, &t));
        }
    return WN_OK;
}

/* Fills *out with `count` elements of a piece that become elements of the dtype. Fails where they cannot; reads none of
 * them. */
static int32_t open_stream(const struct wn_file_piece *p, int32_t dtype, int64_t count, struct stream *out)
{
    const struct wn__file *f = get_file(p->file);
    if (f == NULL) return WN_VALUE;
    WN_TRY(wn__need(p->kind, "reading: the kind of elements"));
    WN_TRY(wn__need(p->name, "reading: the name of a tensor"));
    const struct wn__element *kind = wn__element_find(p->kind);
    if (kind == NULL || wn__convert_way(kind, dtype) == WN_CONVERT_NOT)
        return wn__fail(WN_DTYPE, "reading '%s': '%s' is %s, which does not become %s", f->path, p->name, p->kind,
                        wn__dtype_name(dtype));
    *out = (struct stream){
        .file = f, .kind = kind, .name = p->name, .at = p->at, .count = count, .dtype = dtype, .swap = p->swap};
    int64_t bytes;
    WN_TRY(wn__mul(out->count, kind->bytes, &bytes));
    if (p->at < 0 || p->at > f->size - bytes)
        return wn__fail(WN_IO, "reading '%s': %lld bytes at byte %lld do not lie in its %lld", f->path,
                        (long long)bytes, (long long)p->at, (long long)f->size);
    return WN_OK;
}

int32_t wn_file_data(const struct wn_file_piece *piece, const struct wn_type *type, int32_t device)
{
    struct stream s;
    WN_TRY_ID(wn__check_type(type, "tensor"));
    WN_TRY_ID(wn__need(piece, "reading"));
    WN_TRY_ID(open_stream(piece, type->dtype, wn__numel(type), &s));
    int32_t id = wn_data(type, device, NULL);
    if (id < 0) return id;
    s.value = wn__handle_get(id, WN_HANDLE_VALUE);
    int32_t code = run_stream(&s);
    if (code == WN_OK) return id;
    wn_free(id);
    return -code;
}

/* Returns the number of elements that the file has of a piece: those of its matrix, where a range of that is taken. */
static int64_t elements_of(const struct wn_file_piece *p)
{
    return p->rows > 0 ? p->rows * p->columns : p->count;
}

/* Checks that the matrix of a piece, if it has one, is one, and that the piece is a part of it. */
static int32_t check_matrix(const struct wn_file_piece *p)
{
    int64_t all = p->count;
    if (p->columns < 0 || (p->columns > 0 && p->rows == 0 && p->count % p->columns != 0))
        return wn__fail(WN_VALUE, "load: '%s' has %lld elements, no matrix of %lld columns", p->name,
                        (long long)p->count, (long long)p->columns);
    if (p->rows == 0 && p->from == 0) return WN_OK;
    if (p->rows > 0 && p->columns > 0) WN_TRY(wn__mul(p->rows, p->columns, &all));
    if (p->rows > 0 && p->columns > 0 && p->from >= 0 && p->from <= all - p->count) return WN_OK;
    return wn__fail(WN_VALUE, "load: '%s' is elements from %lld on of a matrix of %lld rows and %lld columns, no %lld",
                    p->name, (long long)p->from, (long long)p->rows, (long long)p->columns, (long long)p->count);
}

/* Checks that piece i begins where the piece before ended, or at the first element of its cell, and that the last piece
 * of a cell ends with it. */
static int32_t check_order(int32_t n, const struct wn_file_piece *pieces, int32_t i)
{
    const struct wn_file_piece *p = &pieces[i];
    int64_t all = wn__numel(&wn__get_cell(p->cell)->type), start = 0;
    int32_t is_last = i + 1 == n || pieces[i + 1].cell != p->cell;
    if (i > 0 && pieces[i - 1].cell == p->cell) start = pieces[i - 1].first + pieces[i - 1].count;
    if (p->count < 0 || p->first != start || p->count > all - start || (is_last && p->count != all - start))
        return wn__fail(WN_VALUE, "load: '%s' has %lld elements from element %lld of %lld; %lld is next", p->name,
                        (long long)p->count, (long long)p->first, (long long)all, (long long)start);
    return check_matrix(p);
}

/* Checks everything that can be wrong with piece i; reads its elements where the dtype may not hold one. */
static int32_t check_piece(int32_t n, const struct wn_file_piece *pieces, int32_t i)
{
    struct stream s;
    const struct wn_file_piece *p = &pieces[i];
    const struct wn_cell *c = wn__get_cell(p->cell);
    if (c == NULL) return WN_VALUE;
    if (c->kind == WN_KIND_GRADIENT) return wn__fail(WN_VALUE, "load: gradients are not loaded");
    if (!wn__device(c->device)->real)
        return wn__fail(WN_DEVICE, "load: %s is on %s, which has shapes and no bytes; make the model on cpu",
                        c->name ? c->name : "a state", wn__device(c->device)->name);
    WN_TRY(wn__need(p->name, "reading: the name of a tensor"));
    WN_TRY(check_order(n, pieces, i));
    WN_TRY(open_stream(p, c->type.dtype, elements_of(p), &s));
    return wn__convert_way(s.kind, s.dtype) == WN_CONVERT_CHECKED ? run_stream(&s) : WN_OK;
}

/* room: STRIP bytes where the file has the piece turned. */
static int32_t load_piece(const struct wn_file_piece *p, char *room)
{
    struct stream s;
    struct wn_cell *c = wn__get_cell(p->cell);
    WN_TRY(open_stream(p, c->type.dtype, elements_of(p), &s));
    s.from = p->from;
    s.taken = p->count;
    s.cell = c;
    s.first = p->first * wn__dtype_size(s.dtype);
    return p->columns > 0 ? run_turned(&s, p->columns, room) : run_stream(&s);
}

/* Takes storage for the cells of one device and one kind. They live as long as their model or their optimizer, so the
 * device may put them together. */
static int32_t take_cells(int32_t n, const struct wn_file_piece *pieces, int32_t device, int32_t kind)
{
    int64_t bytes = 0, count = 0;
    int32_t code = WN_OK;
    for (int32_t i = 0; i < n; i++) {
        const struct wn_cell *c = wn__get_cell(pieces[i].cell);
        if (pieces[i].first > 0 || c->device != device || c->kind != kind || wn__cell_has_value(c)) continue;
        bytes += wn__padded(wn__bytes(&c->type));
        count++;
    }
    if (count == 0) return WN_OK;
    wn__device(device)->hint(wn__device(device), bytes, count);
    for (int32_t i = 0; i < n && code == WN_OK; i++) {
        struct wn_cell *c = wn__get_cell(pieces[i].cell);
        if (c->device == device && c->kind == kind) code = wn__cell_materialise(c);
    }
    wn__device(device)->hint(wn__device(device), 0, 0);
    return code;
}

/* Checks all pieces, then takes storage for their cells. Sets *taken to 1 where some may have got it. */
static int32_t take_storage(int32_t n, const struct wn_file_piece *pieces, int32_t *taken)
{
    for (int32_t i = 0; i < n; i++) WN_TRY(check_piece(n, pieces, i));
    *taken = 1;
    for (int32_t device = 0; device < wn__device_count(); device++)
        for (int32_t kind = 0; kind < WN_KIND_COUNT; kind++) WN_TRY(take_cells(n, pieces, device, kind));
    return WN_OK;
}

/* Gives *out the room in which matrices are turned; NULL where the file has none turned. */
static int32_t take_room(int32_t n, const struct wn_file_piece *pieces, char **out)
{
    int32_t is_needed = 0;
    for (int32_t i = 0; i < n; i++) is_needed |= pieces[i].columns > 0;
    *out = is_needed ? wn__alloc(STRIP) : NULL;
    return is_needed && *out == NULL ? wn__fail(WN_OOM, "load: out of memory") : WN_OK;
}

int32_t wn_file_load(int32_t n, const struct wn_file_piece *pieces)
{
    char *room;
    int32_t taken = 0;
    WN_TRY(wn__check_array(pieces, n, 1 << 24, "load: pieces"));
    WN_TRY(take_room(n, pieces, &room));
    int32_t code = take_storage(n, pieces, &taken), has_begun = code == WN_OK;
    for (int32_t i = 0; i < n && code == WN_OK; i++) code = load_piece(&pieces[i], room);
    wn__free(room);
    for (int32_t i = 0; taken && i < n; i++) {
        struct wn_cell *c = wn__get_cell(pieces[i].cell);
        if (pieces[i].first > 0) continue;
        if (code == WN_OK) wn__cell_written(c);
        else if (has_begun || c->init != NULL) wn__cell_unwritten(c);
    }
    return code;
}

/* ---- locks ------------------------------------------------------------------------------------------------------ */

int32_t wn_lock(const char *path, int32_t *is_kept)
{
    struct wn__lock *k = NULL;
    WN_TRY_ID(wn__enter());
    WN_TRY_ID(wn__need(path, "lock"));
    WN_TRY_ID(wn__need(is_kept, "lock"));
    WN_TRY_ID(wn__lock_take(path, &k));
    *is_kept = k->is_kept;
    return wn__handle_of(WN_OK, WN_HANDLE_LOCK, k);
}

/* ---- JSON ----------------------------------------------------------------------------------------------------- */

/* Upper bounds of bytes that LuaJIT takes for a list or object, for an entry of one, for a string beside its
 * letters, and for an escape. Measured: 85 to 250, 40 to 95, 60 to 95 and 34 bytes (headers of 16 MiB). */
enum { BYTES_OF_CONTAINER = 256, BYTES_OF_ENTRY = 96, BYTES_OF_STRING = 96, BYTES_OF_ESCAPE = 48 };

double wn_json_cost(const char *text, int64_t n)
{
    if (text == NULL || n < 0) return 0;
    int64_t containers = 0, entries = 0, strings = 0, escapes = 0;
    int32_t is_string = 0;
    for (int64_t i = 0; i < n; i++) {
        char c = text[i];
        if (c == '"') {
            strings += is_string;
            is_string = !is_string;
        } else if (is_string && c == '\\') {
            escapes++;
            i++;
        } else if (!is_string) {
            containers += c == '[' || c == '{';
            entries += c == ',';
        }
    }
    return (double)containers * BYTES_OF_CONTAINER + (double)entries * BYTES_OF_ENTRY +
           (double)strings * BYTES_OF_STRING + (double)escapes * BYTES_OF_ESCAPE;
}
