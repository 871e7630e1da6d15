/* See edge.h. A panel holds a few rows side by side, so a stretch of one row is spread over the panel: blocks of a
 * panel's columns go through a buffer, whole stretches of memory each, and a block that is only partly written is read
 * before. */
#include "edge.h"
#include <string.h>

enum { BLOCK = 65536 };

/* A stretch of the value's elements, in the order of rows, and the panel at hand. */
struct stretch {
    struct wn_device *d;
    const struct wn_type *t;
    char *device, *host;       /* the value's first byte; the stretch's first byte */
    int64_t begin, end, size;  /* elements; bytes of one */
    int64_t row, width, first; /* the panel: its first row, how many, its first element in memory */
    int32_t is_put;
};

#define COPY(SIZE)                                                                                                     \
    for (int64_t i = 0; i < n; i++) memcpy(to + i * to_step, from + i * from_step, SIZE);                              \
    return

/* n elements, steps of bytes apart; those of known sizes without a call each. */
static void copy_elements(char *to, int64_t to_step, const char *from, int64_t from_step, int64_t n, int64_t size)
{
    switch (size) {
    case 2: COPY(2);
    case 4: COPY(4);
    case 8: COPY(8);
    default: COPY((size_t)size);
    }
}

/* Of row i of the panel, columns [column, column + n): how many elements the stretch has, from element *from on. */
static int64_t overlap(const struct stretch *s, int64_t i, int64_t column, int64_t n, int64_t *from)
{
    int64_t row = (s->row + i) * s->t->dim[1] + column, to = row + n < s->end ? row + n : s->end;
    *from = row > s->begin ? row : s->begin;
    return to > *from ? to - *from : 0;
}

static int64_t count_elements(const struct stretch *s, int64_t column, int64_t n)
{
    int64_t count = 0, from;
    for (int64_t i = 0; i < s->width; i++) count += overlap(s, i, column, n, &from);
    return count;
}

/* Between a block, (n, width) from column `column` on, and the host. */
static void move_elements(const struct stretch *s, char *block, int64_t column, int64_t n)
{
    int64_t apart = s->width * s->size, from;
    for (int64_t i = 0; i < s->width; i++) {
        int64_t count = overlap(s, i, column, n, &from);
        if (count == 0) continue;
        int64_t first = (s->row + i) * s->t->dim[1] + column;
        char *inside = block + (from - first) * apart + i * s->size, *outside = s->host + (from - s->begin) * s->size;
        if (s->is_put) copy_elements(inside, apart, outside, s->size, count, s->size);
        else copy_elements(outside, s->size, inside, apart, count, s->size);
    }
}

static int32_t move_panel(const struct stretch *s)
{
    char block[BLOCK];
    int64_t columns = s->t->dim[1], step = BLOCK / (s->width * s->size);
    for (int64_t column = 0; column < columns; column += step) {
        int64_t n = columns - column < step ? columns - column : step, bytes = n * s->width * s->size;
        int64_t count = count_elements(s, column, n);
        char *at = s->device + (s->first + column * s->width) * s->size;
        if (count == 0) continue;
        if (!s->is_put || count < n * s->width) WN_TRY(s->d->get(s->d, block, at, bytes));
        move_elements(s, block, column, n);
        if (s->is_put) WN_TRY(s->d->put(s->d, at, block, bytes));
    }
    return WN_OK;
}

static int32_t move_all(struct stretch *s, int64_t at, int64_t n)
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

/* NULL, of a device without bytes, stays NULL. */
static char *beside(const void *base, int64_t at)
{
    return base == NULL ? NULL : (char *)(uintptr_t)base + at;
}

int32_t wn__edge_get(struct wn_device *d, const struct wn_type *t, const void *from, int64_t at, void *bytes, int64_t n)
{
    if (t->layout == WN_PLAIN || !d->real) return d->get(d, bytes, beside(from, at), n);
    struct stretch s = {.d = d, .t = t, .device = (char *)(uintptr_t)from, .host = bytes};
    return move_all(&s, at, n);
}

int32_t wn__edge_put(struct wn_device *d, const struct wn_type *t, void *to, int64_t at, const void *bytes, int64_t n)
{
    if (t->layout == WN_PLAIN || !d->real) return d->put(d, beside(to, at), bytes, n);
    struct stretch s = {.d = d, .t = t, .device = to, .host = (char *)(uintptr_t)bytes, .is_put = 1};
    return move_all(&s, at, n);
}
