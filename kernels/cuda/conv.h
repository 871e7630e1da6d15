/* Says how CUDA's kernels cut a convolution. The workspace rule and the kernels read the same description.
 *
 * Each of the three is a product of matrices for each group of channels, (rows, terms) x (terms, columns):
 *
 *                  rows                   columns                      terms of a sum, in this order
 *     CONV2D       pixels of y            outputs of the group         (kh, kw, inputs of the group)
 *     CONV2D_DX    pixels of dx           inputs of the group          (kh, kw, outputs of the group)
 *     CONV2D_DW    outputs of the group   (kh, kw, inputs)             pixels of y, in parts
 *
 * The terms of CONV2D_DW are cut into parts, whose sums are joined in order, so that there are blocks for all of a GPU.
 * The number of parts follows from the shapes alone. Products with few columns, as those of depthwise convolutions, are
 * computed directly: an output a thread; so are sums of more than 2^30 terms, since tiles count them as
 * 32 bits. */
#ifndef WN_CUDA_CONV_H
#define WN_CUDA_CONV_H
#include "../../runtime/base/opcode.h"
#include "../../runtime/base/window.h"

enum {
    WN_CONV_TILE = 64,    /* outputs a side of a tile */
    WN_CONV_FEW = 8,      /* columns of a tile at least; products with fewer are computed directly */
    WN_CONV_PARTS = 64,   /* most parts of CONV2D_DW */
    WN_CONV_PIXELS = 512, /* least pixels of a part, where there are several */
    WN_CONV_BLOCKS = 256  /* blocks of all parts that are enough */
};

struct wn__conv {
    struct wn__window w;
    int32_t op, layout; /* layout: of the weight or its gradient */
    int32_t is_direct;
    int32_t is_packed;    /* the weight is first packed to (groups, columns, terms), in the workspace */
    int32_t is_by_places; /* a plain depthwise weight is first packed to (places, O), so that lanes read neighbours */
    int64_t ci, co;       /* inputs and outputs of a group */
    int64_t places;       /* of the kernel */
    int64_t rows, columns, terms, parts;
};

/* Returns the parts of `terms` pixels where one part has `blocks` blocks: a power of two. */
static inline int64_t wn__conv_parts(int64_t terms, int64_t blocks)
{
    int64_t parts = 1;
    while (parts < WN_CONV_PARTS && 2 * parts * WN_CONV_PIXELS <= terms && parts * blocks < WN_CONV_BLOCKS) parts *= 2;
    return parts;
}

static inline int64_t wn__conv_tiles(const struct wn__conv *c)
{
    return wn_round_up(c->rows, WN_CONV_TILE) / WN_CONV_TILE * (wn_round_up(c->columns, WN_CONV_TILE) / WN_CONV_TILE) *
           c->w.groups;
}

static inline struct wn__conv wn__conv_of(const struct wn_desc *d)
{
    struct wn__conv c;
    const int32_t is_dx = d->op == WN_OP_CONV2D_DX, is_dw = d->op == WN_OP_CONV2D_DW;
    const struct wn_type *x = is_dx ? &d->out : &d->in[is_dw], *weight = is_dw ? &d->out : &d->in[1];
    wn__window_conv(&d->attrs, x, weight, is_dx || is_dw ? &d->in[0] : &d->out, &c.w);
    c.op = d->op;
    c.layout = weight->layout;
    c.ci = c.w.c / c.w.groups;
    c.co = c.w.o / c.w.groups;
    c.places = c.w.kernel[0] * c.w.kernel[1];
    const int64_t windows = c.w.n * c.w.out[0] * c.w.out[1], pixels = c.w.n * c.w.in[0] * c.w.in[1];
    c.rows = is_dw ? c.co : is_dx ? pixels : windows;
    c.columns = is_dw ? c.places * c.ci : is_dx ? c.ci : c.co;
    c.terms = is_dw ? windows : c.places * (is_dx ? c.co : c.ci);
    c.is_direct = (is_dw ? c.co : c.columns) < WN_CONV_FEW || c.terms > INT32_MAX / 2;
    c.is_packed = !c.is_direct && !is_dw && (is_dx || c.layout != WN_PLAIN || (c.places > 1 && c.ci > 1));
    c.is_by_places = c.is_direct && !is_dw && c.layout == WN_PLAIN && c.ci == 1 && c.co == 1 && c.places > 1;
    c.parts = 1;
    if (is_dw) {
        int64_t blocks = c.is_direct ? wn_round_up(c.w.o * c.columns, 256) / 256 : wn__conv_tiles(&c);
        c.parts = wn__conv_parts(windows, blocks);
    }
    return c;
}

/* Returns the bytes of the packed weight, or of the sums of the parts: f64 for f64, else f32. */
static inline int64_t wn__conv_workspace(const struct wn_desc *d)
{
    const struct wn__conv c = wn__conv_of(d);
    const int64_t sum = d->out.dtype == WN_F64 ? 8 : 4;
    if (c.parts > 1) return c.parts * wn__numel(&d->out) * sum;
    return c.is_packed || c.is_by_places ? wn__bytes(&d->in[1]) : 0;
}
#endif
