/* The bytes of scratch that each kernel of the CPU needs: one case an op, beside the reason.
 *
 * The number follows from the description alone, and a plan reserves it before anything runs. A kernel and its case
 * divide rows alike because both call the functions of row_block.h and row_parts.h. Ops without a case need none;
 * products pack into buffers of fixed size on the stack of each thread (gemm/gemm.h). */
#include "../../../runtime/base/resample.h"
#include "../image/channel.h"
#include "../common/cpu.h"
#include "../conv/winograd.h"
#include "../gemm/gemm.h"
#include "../index/sort.h"
#include "../../row_parts.h"
#include "row_block.h"

/* Returns the bytes of ops that compute bf16 on f32 copies of whole rows: the padded bytes of a copy of each bf16
 * input, then of a copy of a bf16 result. A copy holds one row block where the op has row blocks, else the whole value.
 * 0 where nothing is bf16. */
static int64_t f32_copies(const struct wn_desc *d)
{
    struct wn__row_block s = wn__row_block_of(d);
    int64_t bytes = wn__row_block_copy_bytes(&s, &d->out, 0);
    for (int32_t i = 0; i < d->n_in; i++)
        bytes += wn__row_block_copy_bytes(&s, &d->in[i], wn__row_block_is_shared(&s, i));
    return bytes;
}

/* Returns the bytes of the f32 copies, then of (parts, D) partial sums of WN_PART_BYTES each where the rows have
 * parts. */
static int64_t layernorm_dw(const struct wn_desc *d)
{
    int64_t parts = wn__parts_of(wn__numel(&d->in[2])), bytes = f32_copies(d);
    return parts > 1 ? bytes + parts * wn__numel(&d->out) * WN_PART_BYTES : bytes;
}

/* Returns the bytes of the partial results of the parts: for argmax a value and an i32 index each. */
static int64_t reduce(const struct wn_desc *d)
{
    int64_t parts = wn__reduce_parts(d), each = WN_PART_BYTES + (d->op == WN_OP_ARGMAX ? (int64_t)sizeof(int32_t) : 0);
    return parts > 1 ? parts * wn__numel(&d->out) * each : 0;
}

/* Returns the bytes of lists of positions, i32, so that each row of the table is written once: where the list of each
 * row starts (V + 1), then positions in ids (numel(ids)). */
static int64_t embedding_grad(const struct wn_desc *d)
{
    return (wn__numel(&d->in[1]) + d->out.dim[0] + 1) * (int64_t)sizeof(int32_t);
}

/* Returns the bytes of f32 sums for bf16: the gradients of keys and values, (B, T, 2 K hd), are summed in f32 and
 * rounded once at the end. */
static int64_t attention_grad(const struct wn_desc *d)
{
    if (d->out.dtype != WN_BF16) return 0;
    int64_t heads = d->attrs.i[0], kv_heads = d->attrs.i[1];
    return d->out.dim[0] * d->out.dim[1] * (d->out.dim[2] / (heads + 2 * kv_heads) * 2 * kv_heads) *
           (int64_t)sizeof(float);
}

/* Returns the bytes of op(b): (k, n), packed once for all threads. Cells that are plain: (micro-panels, k,
 * WN_GEMM_NR_MAX) f32, the last micro-panel padded. Cells in panels: groups of columns as wide as a micro-tile, with
 * nothing between them. */
static int64_t product_update(const struct wn_desc *d)
{
    int64_t n = d->out.dim[d->out.ndim - 1], k = d->in[0].dim[d->attrs.i[0] ? 0 : 1];
    int64_t micropanels = (n + WN_GEMM_NR_MAX - 1) / WN_GEMM_NR_MAX;
    int64_t columns = d->out.layout == WN_PANEL48 ? n : micropanels * WN_GEMM_NR_MAX;
    return columns * k * (int64_t)sizeof(float);
}

/* Returns the bytes of the transformed weight of a convolution by Winograd's method, 0 for others: blocks of patches
 * are on the stack of each thread (conv/conv.h). */
static int64_t convolution(const struct wn_desc *d)
{
    if (d->op == WN_OP_CONV2D_DW) return 0;
    const int32_t is_dx = d->op == WN_OP_CONV2D_DX, op = d->op == WN_OP_CONV2D_MAP ? WN_OP_CONV2D : d->op;
    struct wn__window w;
    wn__window_conv(&d->attrs, is_dx ? &d->out : &d->in[0], &d->in[1], is_dx ? &d->in[0] : &d->out, &w);
    return wn__conv_is_winograd(op, d->out.dtype, &w) ? wn__conv_winograd_bytes(&w) : 0;
}

/* Returns the bytes of the sums over the pixels of each part of each slab, in double. */
static int64_t channel_sums(const struct wn_desc *d)
{
    struct wn__channel_cut c = wn__channel_cut_of(d);
    return wn__channel_sums(&c) * (int64_t)sizeof(double);
}

/* Returns the bytes that say how each row and each column of y is made: y has the result's size, or that of dy. */
static int64_t resample(const struct wn_desc *d)
{
    const struct wn_type *y = d->op == WN_OP_UPSAMPLE2D ? &d->out : &d->in[0];
    return (y->dim[2] + y->dim[3]) * (int64_t)sizeof(struct wn__resample);
}

/* Returns the bytes of the positions of every line in the order of the digits so far, i32. */
static int64_t argsort(const struct wn_desc *d)
{
    return d->in[0].dim[d->attrs.i[0]] > WN_SORT_SHORT ? wn__numel(&d->out) * (int64_t)sizeof(int32_t) : 0;
}

int64_t wn__cpu_workspace(const struct wn_desc *d)
{
    switch (d->op) {
    case WN_OP_SOFTMAX:
    case WN_OP_SOFTMAX_GRAD:
    case WN_OP_LOG_SOFTMAX:
    case WN_OP_LOG_SOFTMAX_GRAD:
    case WN_OP_ROW_MEAN:
    case WN_OP_ROW_RSTD:
    case WN_OP_LAYERNORM:
    case WN_OP_LAYERNORM_DX:
    case WN_OP_GATHER_GRAD:
    case WN_OP_EXTREME_GRAD: return f32_copies(d);
    case WN_OP_LAYERNORM_DW: return layernorm_dw(d);
    case WN_OP_SUM:
    case WN_OP_MEAN:
    case WN_OP_MAX:
    case WN_OP_MIN:
    case WN_OP_ARGMAX: return reduce(d);
    case WN_OP_EMBEDDING_GRAD: return embedding_grad(d);
    case WN_OP_ARGSORT: return argsort(d);
    case WN_OP_CHANNEL_MEAN:
    case WN_OP_CHANNEL_RSTD:
    case WN_OP_BATCH_NORM_SUMS:
    case WN_OP_RELU_NORM_SUMS: return channel_sums(d);
    case WN_OP_UPSAMPLE2D:
    case WN_OP_UPSAMPLE2D_DX: return resample(d);
    case WN_OP_ATTENTION_GRAD: return attention_grad(d);
    case WN_OP_PRODUCT_UPDATE: return product_update(d);
    case WN_OP_CONV2D:
    case WN_OP_CONV2D_MAP:
    case WN_OP_CONV2D_DX:
    case WN_OP_CONV2D_DW: return convolution(d);
    default: return 0;
    }
}
