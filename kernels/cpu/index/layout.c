/* RELAYOUT: a PERMUTE (shape.c) of what an image or the panels of a weight are in memory. The last panel of a weight,
 * if it is narrower, is done by itself. One side is plain.
 *
 *     image           (N, C, H W)                <->  (N, H W, C)
 *     panels, matrix  (panels, width, columns)   <->  (panels, columns, width)
 *     panels, conv    (panels, width, I, kh kw)  <->  (panels, kh kw, I, width) */
#include <stddef.h>
#include <string.h>
#include "../common/cpu.h"

/* Reverses the last `n` - 1 of the n dims of a dense block, which begins at element `at`. is_back: `dim` are those of
 * the result. */
static int32_t reverse(const struct wn_desc *d, const struct wn_buffers *b, int64_t at, int32_t n, const int64_t *dim,
                       int32_t is_back)
{
    struct wn_type plain = {.dtype = d->out.dtype, .ndim = (int16_t)n}, other = plain;
    struct wn_desc permute = {.op = WN_OP_PERMUTE, .n_in = 1, .attrs = {.n = n}};
    at *= wn__dtype_size(d->out.dtype);
    for (int32_t k = 0; k < n; k++) {
        permute.attrs.i[k] = k == 0 ? 0 : n - k;
        plain.dim[k] = dim[k];
        other.dim[k] = dim[permute.attrs.i[k]];
    }
    permute.in = is_back ? &other : &plain;
    permute.out = is_back ? plain : other;
    const void *in = (const char *)b->in[0] + at;
    struct wn_buffers part = {.out = (char *)b->out + at, .in = &in};
    return wn__numel(&plain) > 0 ? wn__cpu_shape_kernel(&permute)(&permute, &part, NULL) : WN_OK;
}

/* Reverses the dims of n panels of `rows` rows from row `first` on. */
static int32_t reverse_panels(const struct wn_desc *d, const struct wn_buffers *b, int64_t first, int64_t n,
                              int64_t rows)
{
    int32_t is_conv = d->out.ndim == 4, is_back = d->out.layout == WN_PLAIN;
    int64_t places = is_conv ? d->out.dim[2] * d->out.dim[3] : 1;
    int64_t dim[4] = {n, rows, d->out.dim[1], places};
    return reverse(d, b, first * d->out.dim[1] * places, is_conv ? 4 : 3, dim, is_back);
}

static int32_t relayout(const struct wn_desc *d, const struct wn_buffers *b, WN_NO_STREAM)
{
    const struct wn_type *t = &d->out;
    if (d->in[0].layout == t->layout) {
        memcpy(b->out, b->in[0], (size_t)wn__bytes(t));
        return WN_OK;
    }
    if (d->in[0].layout == WN_NHWC || t->layout == WN_NHWC) {
        int64_t dim[3] = {t->dim[0], t->dim[1], t->dim[2] * t->dim[3]};
        return reverse(d, b, 0, 3, dim, t->layout == WN_PLAIN);
    }
    int64_t rows = t->dim[0], whole = rows / WN_PANEL;
    WN_TRY(reverse_panels(d, b, 0, whole, WN_PANEL));
    return reverse_panels(d, b, whole * WN_PANEL, 1, rows - whole * WN_PANEL);
}

wn_kernel_fn wn__cpu_layout_kernel(const struct wn_desc *d)
{
    int32_t has_plain = d->in[0].layout == WN_PLAIN || d->out.layout == WN_PLAIN || d->in[0].layout == d->out.layout;
    return d->in[0].dtype == d->out.dtype && has_plain ? relayout : NULL;
}
