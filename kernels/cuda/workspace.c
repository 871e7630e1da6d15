/* The bytes of scratch that each kernel of CUDA needs: one case an op, beside the reason. The number follows from the
 * description and the target alone, and a plan reserves it before anything runs. Ops without a case need none. The file
 * is compiled into the runtime, which plans, and read by the kernels, which divide alike. */
#include "cuda.h"
#include "cudnn.h"
#include "sort.h"
#include "table.h"
#include "../../runtime/base/opcode.h"
#include "../reduction.h"

/* Returns the bytes of two numbers a row of scores, (2, B, H, T), f64 for f64, else f32: the log of its sum of powers,
 * and its sum of dy y. */
static int64_t attention_grad(const struct wn_desc *d)
{
    int64_t rows = d->out.dim[0] * d->attrs.i[0] * d->out.dim[1];
    return 2 * rows * (int64_t)(d->out.dtype == WN_F64 ? sizeof(double) : sizeof(float));
}

/* Returns the bytes of the results of the pieces of a reduction. */
static int64_t reduce(const struct wn_desc *d)
{
    struct wn__reduction p = wn__reduction_of(d, &d->in[0]);
    int64_t pieces = wn__reduction_pieces(&p);
    return pieces > 1 ? pieces * p.outputs * (int64_t)sizeof(double) : 0;
}

/* Returns the bytes of the sums of the parts of the rows, f64. */
static int64_t layernorm_dw(const struct wn_desc *d)
{
    int64_t width = d->out.dim[0], parts = wn__parts_of(wn__numel(&d->in[1]) / width);
    return parts > 1 ? parts * width * (int64_t)sizeof(double) : 0;
}

/* Returns the bytes of the number of indices of each row of the table, i32. */
static int64_t embedding_grad(const struct wn_desc *d)
{
    return d->out.dim[0] * (int64_t)sizeof(int32_t);
}

/* Returns the bytes of f32 sums for bf16, which are rounded once at the end. */
static int64_t gather_grad(const struct wn_desc *d)
{
    return d->out.dtype == WN_BF16 ? wn__numel(&d->out) * (int64_t)sizeof(float) : 0;
}

/* Returns the bytes of the sums of the parts of each channel, `planes` of them, f64; 0 of no images. x: the image. */
static int64_t channel_sums(const struct wn_desc *d, const struct wn_type *x, int64_t planes)
{
    if (wn__numel(&d->out) == 0) return 0;
    int64_t slices = d->attrs.i[0] > 0 ? x->dim[0] : 1, pixels = wn__numel(x) / x->dim[1];
    return planes * wn__parts_of(pixels / slices) * slices * x->dim[1] * (int64_t)sizeof(double);
}

/* Returns the bytes of two means of each statistic, f64 for f64, else f32. */
static int64_t batch_norm_dx(const struct wn_desc *d)
{
    return 2 * wn__numel(&d->in[2]) * (int64_t)(d->out.dtype == WN_F64 ? sizeof(double) : sizeof(float));
}

/* Returns the bytes that own kernels take, or that cuDNN may, whichever are more: it may decline. */
static int64_t convolution(const struct wn__target *t, const struct wn_desc *d)
{
    int64_t own = wn__conv_workspace(d);
    return wn__cudnn_takes(t, d) ? wn_max(own, wn__cudnn_packed(d) + WN_CUDNN_SCRATCH) : own;
}

int64_t wn__cuda_workspace(const struct wn__target *t, const struct wn_desc *d)
{
    switch (d->op) {
    case WN_OP_SUM:
    case WN_OP_MEAN:
    case WN_OP_MAX:
    case WN_OP_MIN: return reduce(d);
    case WN_OP_GELU:
    case WN_OP_SILU:
    case WN_OP_TANH:
    case WN_OP_SIGMOID:
    case WN_OP_GELU_GRAD:
    case WN_OP_SILU_GRAD: return wn__table_bytes(d);
    case WN_OP_ARGSORT: return wn__sort_of(d).bytes;
    case WN_OP_LAYERNORM_DW: return layernorm_dw(d);
    case WN_OP_EMBEDDING_GRAD: return embedding_grad(d);
    case WN_OP_GATHER_GRAD: return gather_grad(d);
    case WN_OP_ATTENTION_GRAD: return attention_grad(d);
    case WN_OP_CONV2D:
    case WN_OP_CONV2D_MAP:
    case WN_OP_CONV2D_DX:
    case WN_OP_CONV2D_DW: return convolution(t, d);
    case WN_OP_CHANNEL_MEAN:
    case WN_OP_CHANNEL_RSTD: return channel_sums(d, &d->in[0], 1);
    case WN_OP_BATCH_NORM_SUMS:
    case WN_OP_RELU_NORM_SUMS: return channel_sums(d, &d->in[1], 2);
    case WN_OP_BATCH_NORM_DX:
    case WN_OP_RELU_NORM_DX: return batch_norm_dx(d);
    default: return 0;
    }
}
