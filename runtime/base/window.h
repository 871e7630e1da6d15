/* Windows over images: the numbers of a convolution or a pooling, read from a description. Rules (runtime/ops/) and
 * kernels share them.
 *
 * An image value is x: (N, C, H, W). Attributes hold two numbers in one, `rows << 32 | columns`. Output (oh, ow) reads
 * the input at rows oh * stride - pad + kh * dilation, 0 <= kh < kernel, and at columns likewise; what is outside of
 * the image counts as 0 in a convolution, and not at all in a pooling.
 *
 *     input, one row, pad 1, kernel 3, stride 2:        p 0 1 2 3 4 p
 *                                                       [---]           output 0
 *                                                           [---]       output 1
 *                                                               [---]   output 2
 */
#ifndef WN_BASE_WINDOW_H
#define WN_BASE_WINDOW_H
#include <string.h>
#include "number.h"
#include "desc.h"

enum { WN_WINDOW_MOST = (1 << 20) - 1 }; /* the largest of the numbers below, so that none of their sums overflows */

/* Numbers the attributes of a convolution and of a pooling; each is a pair, but for groups and flags. */
enum {
    WN_CONV_STRIDE = 0,
    WN_CONV_PAD = 1,
    WN_CONV_DILATION = 2,
    WN_CONV_GROUPS = 3,
    WN_CONV_SIZE = 4, /* of the result: H and W of CONV2D_DX, kh and kw of CONV2D_DW */
    WN_POOL_KERNEL = 0,
    WN_POOL_STRIDE = 1,
    WN_POOL_PAD = 2,
    WN_POOL_FLAGS = 3, /* bits of enum wn_pool_flag */
    WN_POOL_SIZE = 4   /* H and W of the result of a derivative */
};
enum wn_pool_flag {
    WN_POOL_CEIL = 1,       /* the last window may reach beyond the padded image */
    WN_POOL_COUNTS_PAD = 2, /* an average divides by the places of the window in the padded image */
    WN_POOL_IS_ADAPTIVE = 4 /* kernel is the size of the result: window i of n is [i H / n, ceil((i + 1) H / n)) */
};

/* The numbers of one application; index 0 is rows, 1 is columns. in: of the image that windows read, (n, c, in); out:
 * of the image with an element a window, (n, o, out). groups: input channels [g c / groups, (g + 1) c / groups) make
 * output channels [g o / groups, (g + 1) o / groups) of a convolution; 1 of a pooling, where o = c. */
struct wn__window {
    int64_t n, c, o, groups;
    int64_t in[2], out[2], kernel[2], stride[2], pad[2], dilation[2];
    int32_t flags;
};

/* Returns rows << 32 | columns, and one of the two again; part: 0 or 1. */
WN_FN int64_t wn__pair(int64_t rows, int64_t columns)
{
    return rows << 32 | columns;
}
WN_FN int64_t wn__pair_get(int64_t pair, int32_t part)
{
    return part == 0 ? pair >> 32 : pair & 0xffffffff;
}

/* Reads the pairs of a convolution's attributes; sizes are not known yet. */
WN_FN void wn__window_conv_attrs(const struct wn_attrs *a, struct wn__window *w)
{
    memset(w, 0, sizeof *w);
    w->groups = a->i[WN_CONV_GROUPS];
    for (int32_t k = 0; k < 2; k++) {
        w->stride[k] = wn__pair_get(a->i[WN_CONV_STRIDE], k);
        w->pad[k] = wn__pair_get(a->i[WN_CONV_PAD], k);
        w->dilation[k] = wn__pair_get(a->i[WN_CONV_DILATION], k);
    }
}

/* Fills *w with the window of a convolution. x: (N, C, H, W), weight: (O, C / groups, kh, kw), y: (N, O, oh, ow), of
 * which the application has two as inputs and one as its result. */
WN_FN void wn__window_conv(const struct wn_attrs *a, const struct wn_type *x, const struct wn_type *weight,
                           const struct wn_type *y, struct wn__window *w)
{
    wn__window_conv_attrs(a, w);
    w->n = x->dim[0];
    w->c = x->dim[1];
    w->o = weight->dim[0];
    for (int32_t k = 0; k < 2; k++) {
        w->in[k] = x->dim[2 + k];
        w->kernel[k] = weight->dim[2 + k];
        w->out[k] = y->dim[2 + k];
    }
}

/* Reads the pairs and flags of a pooling's attributes; sizes are not known yet. */
WN_FN void wn__window_pool_attrs(const struct wn_attrs *a, struct wn__window *w)
{
    memset(w, 0, sizeof *w);
    w->groups = 1;
    w->flags = (int32_t)a->i[WN_POOL_FLAGS];
    for (int32_t k = 0; k < 2; k++) {
        w->dilation[k] = 1;
        w->kernel[k] = wn__pair_get(a->i[WN_POOL_KERNEL], k);
        w->stride[k] = w->flags & WN_POOL_IS_ADAPTIVE ? 1 : wn__pair_get(a->i[WN_POOL_STRIDE], k);
        w->pad[k] = wn__pair_get(a->i[WN_POOL_PAD], k);
    }
}

/* Fills *w with the window of a pooling. x: (N, C, H, W), what windows read; y: (N, C, oh, ow). */
WN_FN void wn__window_pool(const struct wn_attrs *a, const struct wn_type *x, const struct wn_type *y,
                           struct wn__window *w)
{
    wn__window_pool_attrs(a, w);
    w->n = x->dim[0];
    w->c = w->o = x->dim[1];
    for (int32_t k = 0; k < 2; k++) {
        w->in[k] = x->dim[2 + k];
        w->out[k] = y->dim[2 + k];
    }
}

/* Returns the first row (part 0) or column (part 1) of the image that pooling window `at` covers; *end becomes the one
 * behind its last. *places becomes how many places an average divides by along this dim. */
WN_FN int64_t wn__window_span(const struct wn__window *w, int32_t part, int64_t at, int64_t *end, int64_t *places)
{
    int64_t size = w->in[part], n = w->out[part];
    if (w->flags & WN_POOL_IS_ADAPTIVE) {
        int64_t first = at * size / n;
        *end = ((at + 1) * size + n - 1) / n;
        *places = *end - first;
        return first;
    }
    int64_t first = at * w->stride[part] - w->pad[part], last = wn_min(first + w->kernel[part], size + w->pad[part]);
    int64_t covered = wn_max(first, 0);
    *end = wn_min(last, size);
    *places = w->flags & WN_POOL_COUNTS_PAD ? last - first : *end - covered;
    return covered;
}
#endif
