/* Copies between device and host, changing the layout on the way: see edge.h. On the host the value is a matrix of
 * rows; on the device a group of rows is one stretch of memory, in which the rows are interleaved: a panel of a weight,
 * or the channels of an image with channels last. A slice of a group, that is some of its columns with all its rows, is
 * contiguous on the device; slices go through a buffer on the host's stack:
 *
 *   host, row-major        row r     [ c0 c1 c2 c3 .. ]          row r+1  [ c0 c1 c2 c3 .. ]
 *   slice of 2 columns     | column c0: rows r, r+1, .., r+w-1 | column c1: rows r, r+1, .., r+w-1 |     at most 64 KiB
 *   device, WN_PANEL48     | c0 | c1 | c2 | c3 | ..                                                      the panel
 *
 * In WN_CONV48 the columns have another order on the device than on the host: runs of inputs for one place of the
 * kernel, which are kh kw columns apart on the host. A slice that a put covers only partly is read from the device
 * first. */
#include "edge.h"
#include <string.h>
#include "../base/memory_order.h"
#include "../base/type.h"

enum { SLICE = 65536 }; /* bytes of the buffer */

/* A copy of elements [begin, end), counted by rows of the host, and the group of rows that the copy has reached.
 * Invariant: 0 <= begin <= end <= wn__numel(t). */
struct copy {
    struct wn_device *d;
    const struct wn_type *t;
    char *device, *host; /* the value's first byte; where element `begin` is or goes */
    int64_t begin, end;
    int64_t size;       /* bytes of one element */
    int64_t columns;    /* of a row */
    int64_t run, apart; /* columns that follow each other on the device, and how far apart they are on the host */
    int64_t row, width; /* the group's first row, and its rows: (columns, width) on the device */
    int64_t first;      /* index, in elements of the value's memory, of the group's first element */
    int32_t is_put;     /* 1: from host to device; 0: from device to host */
};

/* A part of a group: rows [row, row + rows) of columns [column, column + columns). It is contiguous on the device,
 * because either rows is all of them or columns is 1. */
struct slice {
    int64_t row, rows, column, columns;
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

/* Returns the column of the host in which column `at` of the device is. */
static int64_t host_column(const struct copy *s, int64_t at)
{
    return at % s->run * s->apart + at / s->run;
}

/* Returns how many of n columns of row i from the device's column `column` on, all of one run, are copied; *skip
 * becomes the number of those before, *first the first one's element, counted by rows of the host. */
static int64_t overlap(const struct copy *s, int64_t i, int64_t column, int64_t n, int64_t *skip, int64_t *first)
{
    int64_t at = (s->row + i) * s->columns + host_column(s, column);
    int64_t from = s->begin > at ? (s->begin - at + s->apart - 1) / s->apart : 0;
    int64_t to = s->end > at ? (s->end - at + s->apart - 1) / s->apart : 0;
    *skip = from;
    *first = at + from * s->apart;
    return wn_max(wn_min(to, n) - from, 0);
}

/* Copies what is asked for of a slice between the host and `bytes`, (columns, rows) row-major; NULL: counts it alone.
 * Returns the elements. */
static int64_t move_elements(const struct copy *s, const struct slice *p, char *bytes)
{
    int64_t step = p->rows * s->size, count = 0, skip, first, n;
    for (int64_t column = p->column; column < p->column + p->columns; column += n) {
        n = wn_min(p->column + p->columns - column, s->run - column % s->run);
        for (int64_t i = 0; i < p->rows; i++) {
            int64_t copied = overlap(s, p->row + i, column, n, &skip, &first);
            count += copied;
            if (copied == 0 || bytes == NULL) continue;
            char *inside = bytes + (column - p->column + skip) * step + i * s->size;
            char *outside = s->host + (first - s->begin) * s->size;
            if (s->is_put) copy_elements(inside, step, outside, s->apart * s->size, copied, s->size);
            else copy_elements(outside, s->apart * s->size, inside, step, copied, s->size);
        }
    }
    return count;
}

static int32_t move_slice(const struct copy *s, const struct slice *p)
{
    char bytes[SLICE];
    int64_t n = p->rows * p->columns, count = move_elements(s, p, NULL);
    char *at = s->device + (s->first + p->column * s->width + p->row) * s->size;
    if (count == 0) return WN_OK;
    if (!s->is_put || count < n) WN_TRY(s->d->get(s->d, bytes, at, n * s->size));
    move_elements(s, p, bytes);
    return s->is_put ? s->d->put(s->d, at, bytes, n * s->size) : WN_OK;
}

static int32_t move_group(const struct copy *s)
{
    int64_t rows = wn_min(s->width, SLICE / s->size), columns = rows < s->width ? 1 : SLICE / (rows * s->size);
    for (int64_t column = 0; column < s->columns; column += columns)
        for (int64_t row = 0; row < s->width; row += rows) {
            struct slice p = {row, wn_min(rows, s->width - row), column, wn_min(columns, s->columns - column)};
            WN_TRY(move_slice(s, &p));
        }
    return WN_OK;
}

/* Sets the group of rows in which element `at`, counted by rows, is. */
static void find_group(struct copy *s, int64_t at)
{
    const struct wn_type *t = s->t;
    if (t->layout == WN_NHWC) {
        s->width = t->dim[1];
        s->row = at / s->columns / s->width * s->width;
        s->first = s->row * s->columns;
        return;
    }
    s->row = at / s->columns / WN_PANEL * WN_PANEL;
    s->first = wn__panel_row(t->dim[0], s->columns, s->row, &s->width);
}

/* Copies bytes [at, at + n) of the value, counted by rows, group by group. */
static int32_t move_all(struct copy *s, int64_t at, int64_t n)
{
    const struct wn_type *t = s->t;
    s->size = wn__dtype_size(t->dtype);
    if (at % s->size != 0 || n % s->size != 0)
        return wn__fail(WN_VALUE, "bytes %lld to %lld of %s cut an element; give whole ones", (long long)at,
                        (long long)(at + n), wn__type_text(t));
    s->begin = at / s->size;
    s->end = s->begin + n / s->size;
    s->columns = t->layout == WN_NHWC ? t->dim[2] * t->dim[3] : wn__panel_columns(t);
    s->run = t->layout == WN_CONV48 ? t->dim[1] : s->columns;
    s->apart = t->layout == WN_CONV48 ? t->dim[2] * t->dim[3] : 1;
    for (int64_t next = s->begin; next < s->end; next = (s->row + s->width) * s->columns) {
        find_group(s, next);
        WN_TRY(move_group(s));
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
    struct copy s = {.d = d, .t = t, .device = (char *)(uintptr_t)from, .host = bytes};
    return move_all(&s, at, n);
}

int32_t wn__edge_put(struct wn_device *d, const struct wn_type *t, void *to, int64_t at, const void *bytes, int64_t n)
{
    if (t->layout == WN_PLAIN || !d->real) return d->put(d, offset_by(to, at), bytes, n);
    struct copy s = {.d = d, .t = t, .device = to, .host = (char *)(uintptr_t)bytes, .is_put = 1};
    return move_all(&s, at, n);
}
