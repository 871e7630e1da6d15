/* RELAYOUT: each panel is a matrix that a PERMUTE (shape.c) transposes; the last panel, if it is narrower, is done by
 * itself. */
#include <stddef.h>
#include <string.h>
#include "cpu.h"

/* Transposes n panels of `rows` rows from row `first` on: (n, rows, columns) to (n, columns, rows), or the inverse. */
static int32_t transpose_panels(const struct wn_desc *d, const struct wn_buffers *b, int64_t first, int64_t n,
                                int64_t rows)
{
    int64_t columns = d->out.dim[1], at = first * columns * wn__dtype_size(d->out.dtype);
    int32_t to_panels = d->out.layout != WN_PLAIN;
    struct wn_type plain = {.dtype = d->out.dtype, .ndim = 3, .dim = {n, rows, columns}};
    struct wn_type panels = {.dtype = d->out.dtype, .ndim = 3, .dim = {n, columns, rows}};
    struct wn_desc transpose = {.op = WN_OP_PERMUTE, .n_in = 1, .attrs = {.n = 3, .i = {0, 2, 1}}};
    transpose.in = to_panels ? &plain : &panels;
    transpose.out = to_panels ? panels : plain;
    const void *in = (const char *)b->in[0] + at;
    struct wn_buffers part = {.out = (char *)b->out + at, .in = &in};
    return n * rows > 0 ? wn__cpu_shape_kernel(&transpose)(&transpose, &part, NULL) : WN_OK;
}

static int32_t relayout(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    (void)stream;
    if (d->in[0].layout == d->out.layout) {
        memcpy(b->out, b->in[0], (size_t)wn__bytes(&d->out));
        return WN_OK;
    }
    int64_t rows = d->out.dim[0], whole = rows / WN_PANEL;
    WN_TRY(transpose_panels(d, b, 0, whole, WN_PANEL));
    return transpose_panels(d, b, whole * WN_PANEL, 1, rows - whole * WN_PANEL);
}

wn_kernel_fn wn__cpu_layout_kernel(const struct wn_desc *d)
{
    return d->in[0].dtype == d->out.dtype ? relayout : NULL;
}
