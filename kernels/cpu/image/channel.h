/* Norms over the channels of images in memory order (N, H, W, C), shared by channel.c, channel_norm.c and the workspace
 * rule: how an image is cut.
 *
 * An image is (pixels, channels) row-major. A slab is what one statistic is the mean over: all pixels for batch norm,
 * those of one image for group norm, whose statistics are then of the channels of a group. Sums over the pixels of a
 * slab have parts (row_parts.h). */
#ifndef WN_CPU_CHANNEL_H
#define WN_CPU_CHANNEL_H
#include <stdint.h>
#include "../../../runtime/base/opcode.h"
#include "../../kernel.h"
#include "../../row_parts.h"

/* Invariants: pixels are slabs * rows; channels are groups * each; groups = channels for batch norm. */
struct wn__channel_cut {
    int64_t slabs, rows, parts; /* rows: the pixels of a slab */
    int64_t channels, groups, each;
    int64_t sums; /* a channel of a slab has: 2 for BATCH_NORM_SUMS and RELU_NORM_SUMS, else 1 */
};

static inline struct wn__channel_cut wn__channel_cut_of(const struct wn_desc *d)
{
    int32_t has_sums = d->op == WN_OP_BATCH_NORM_SUMS || d->op == WN_OP_RELU_NORM_SUMS;
    int32_t is_backward = has_sums || d->op == WN_OP_BATCH_NORM_DX || d->op == WN_OP_RELU_NORM_DX;
    const struct wn_type *x = &d->in[is_backward];
    int64_t groups = d->attrs.i[d->op == WN_OP_BATCH_NORM_MAP ? WN_NORM_MAP_GROUPS : 0];
    struct wn__channel_cut c = {.channels = x->dim[1], .sums = has_sums ? 2 : 1};
    c.slabs = groups > 0 ? x->dim[0] : 1;
    c.rows = x->dim[2] * x->dim[3] * (groups > 0 ? 1 : x->dim[0]);
    c.groups = groups > 0 ? groups : c.channels;
    c.each = c.channels / c.groups;
    c.parts = wn__parts_of(c.rows);
    return c;
}

/* Returns the doubles of the sums of all parts, (slabs, parts, sums, channels). */
static inline int64_t wn__channel_sums(const struct wn__channel_cut *c)
{
    return c->slabs * c->parts * c->sums * c->channels;
}

/* Returns the kernel of BATCH_NORM, BATCH_NORM_DX, BATCH_NORM_MAP or RELU_NORM_DX (channel_norm.c); NULL where there is
 * none. */
wn_kernel_fn wn__cpu_batch_norm_kernel(const struct wn_desc *d);

/* The norm up to which a ReLU over it has the value 0: in bf16, half of the least number above 0 is rounded to 0. */
#define WN_RELU_LIMIT_f32 0.0f
#define WN_RELU_LIMIT_f64 0.0
#define WN_RELU_LIMIT_bf16 0x1p-134f
#endif
