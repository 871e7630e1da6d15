/* Copies between device and host, changing the layout on the way: see edge.h. A panel (layout.h) interleaves its rows,
 * so the elements of one row are spread over the whole panel. A slice of a panel, that is some of its columns with all
 * its rows, is contiguous on the device; slices go through a buffer on the host's stack:
 *
 *   host, row-major        row r     [ c0 c1 c2 c3 .. ]          row r+1  [ c0 c1 c2 c3 .. ]
 *   slice of 2 columns     | column c0: rows r, r+1, .., r+w-1 | column c1: rows r, r+1, .., r+w-1 |     at most 64 KiB
 *   device, WN_PANEL48     | c0 | c1 | c2 | c3 | ..                                                      the panel
 *
 * A slice that a put covers only partly is read from the device first. */
#include "edge.h"
#include <string.h>

enum { SLICE = 65536 }; /* bytes of the buffer */

/* A copy of elements [begin, end), counted by rows, of a value in panels, and the panel that the copy has reached.
 * Invariant: 0 <= begin <= end <= wn__numel(t), and row is a multiple of WN_PANEL below the value's rows. */
struct panel_copy {
    struct wn_device *d;
    const struct wn_type *t; /* a matrix in WN_PANEL48 */
    char *device, *host;     /* the value's first byte; where element `begin` is or goes */
    int64_t begin, end;
    int64_t size;       /* bytes of one element */
    int64_t row, width; /* the panel's first row, and its rows */
    int64_t first;      /* index, in elements of the value's memory, of the panel's first element */
    int32_t is_put;     /* 1: from host to device; 0: from device to host */
};

#define COPY(SIZE)                                                                                                     \
    for (int64_t i = 0; i < n; i++) memcpy(to + i * to_step, from + i * from_step, SIZE);                              \
    return

/* Copies n elements of `size` bytes; to_step and from_step are the bytes between the starts of two elements. Elements
 * of 2, 4 and 8 bytes are copied without a call each, as their size is then a constant. */
static void copy_elements(char *to, int64_t to_step, const char *from, int64_t from_step, int64_t n, int64_t size)
{
    switch (size) {
    case 2: COPY(2);
    case 4: COPY(4);
    case 8: COPY(8);
    default: COPY((size_t)size);
    }
}

/* Returns how many elements of columns [column, column + n) of the panel's row i are copied; *from is the first one,
 * counted by rows of the value. */
static int64_t overlap(const struct panel_copy *s, int64_t i, int64_t column, int64_t n, int64_t *from)
{
    int64_t row = (s->row + i) * s->t->dim[1] + column, to = wn_min(row + n, s->end);
    *from = wn_max(row, s->begin);
    return to > *from ? to - *from : 0;
}

/* Returns how many elements of columns [column, column + n) of the panel are copied. */
static int64_t count_elements(const struct panel_copy *s, int64_t column, int64_t n)
{
    int64_t count = 0, from;
    for (int64_t i = 0; i < s->width; i++) count += overlap(s, i, column, n, &from);
    return count;
}

/* Copies between the host and a slice (n, width) row-major, which holds columns [column, column + n) of the panel. */
static void move_elements(const struct panel_copy *s, char *slice, int64_t column, int64_t n)
{
    int64_t apart = s->width * s->size, from;
    for (int64_t i = 0; i < s->width; i++) {
        int64_t count = overlap(s, i, column, n, &from);
        if (count == 0) continue;
        int64_t first = (s->row + i) * s->t->dim[1] + column;
        char *inside = slice + (from - first) * apart + i * s->size, *outside = s->host + (from - s->begin) * s->size;
        if (s->is_put) copy_elements(inside, apart, outside, s->size, count, s->size);
        else copy_elements(outside, s->size, inside, apart, count, s->size);
    }
}

static int32_t move_panel(const struct panel_copy *s)
{
    char slice[SLICE];
    int64_t columns = s->t->dim[1], step = SLICE / (s->width * s->size);
    for (int64_t column = 0; column < columns; column += step) {
        int64_t n = wn_min(columns - column, step), bytes = n * s->width * s->size;
        int64_t count = count_elements(s, column, n);
        char *at = s->device + (s->first + column * s->width) * s->size;
        if (count == 0) continue;
        if (!s->is_put || count < n * s->width) WN_TRY(s->d->get(s->d, slice, at, bytes));
        move_elements(s, slice, column, n);
        if (s->is_put) WN_TRY(s->d->put(s->d, at, slice, bytes));
    }
    return WN_OK;
}

/* Copies bytes [at, at + n) of the value, counted by rows, panel by panel. */
static int32_t move_all(struct panel_copy *s, int64_t at, int64_t n)
{
    int64_t rows = s->t->dim[0], columns = s->t->dim[1];
    s->size = wn__dtype_size(s->t->dtype);
    if (at % s->size != 0 || n % s->size != 0)
        return wn__fail(WN_VALUE, "bytes %lld to %lld of %s cut an element; give whole ones", (long long)at,
                        (long long)(at + n), wn__type_text(s->t));
    s->begin = at / s->size;
    s->end = s->begin + n / s->size;
    if (s->begin == s->end) return WN_OK;
    s->row = s->begin / columns / WN_PANEL * WN_PANEL;
    for (; s->row * columns < s->end; s->row += WN_PANEL) {
        s->first = wn__panel_row(rows, columns, s->row, &s->width);
        WN_TRY(move_panel(s));
    }
    return WN_OK;
}

/* Returns base + at, or NULL for the NULL of a device without bytes. */
static char *offset_by(const void *base, int64_t at)
{
    return base == NULL ? NULL : (char *)(uintptr_t)base + at;
}

int32_t wn__edge_get(struct wn_device *d, const struct wn_type *t, const void *from, int64_t at, void *bytes, int64_t n)
{
    if (t->layout == WN_PLAIN || !d->real) return d->get(d, bytes, offset_by(from, at), n);
    struct panel_copy s = {.d = d, .t = t, .device = (char *)(uintptr_t)from, .host = bytes};
    return move_all(&s, at, n);
}

int32_t wn__edge_put(struct wn_device *d, const struct wn_type *t, void *to, int64_t at, const void *bytes, int64_t n)
{
    if (t->layout == WN_PLAIN || !d->real) return d->put(d, offset_by(to, at), bytes, n);
    struct panel_copy s = {.d = d, .t = t, .device = to, .host = (char *)(uintptr_t)bytes, .is_put = 1};
    return move_all(&s, at, n);
}
