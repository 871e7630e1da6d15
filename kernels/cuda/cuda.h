/* Shared by the kernel files of CUDA: one lookup a family. Each returns the kernel of an application, or NULL where its
 * family has none for the op with these dtypes.
 *
 * Every kernel file has one skeleton: a head that says which ops it computes, with which bits; the kernels; one
 * function (description, buffers, stream) each that starts them; and at the end the lookup that dispatch.cu calls.
 *
 * The bits of a result depend on the description and the data alone, never on the number of multiprocessors: grids
 * follow from shapes, and no float is added by an atomic. */
#ifndef WN_CUDA_H
#define WN_CUDA_H
#include "../kernel.h"

wn_kernel_fn wn__cuda_creation_kernel(const struct wn_desc *d);       /* FULL .. RANDINT (creation.cu) */
wn_kernel_fn wn__cuda_binary_kernel(const struct wn_desc *d);         /* ADD .. WHERE (binary.cu) */
wn_kernel_fn wn__cuda_unary_kernel(const struct wn_desc *d);          /* NEG .. SQRT_GRAD (unary.cu) */
wn_kernel_fn wn__cuda_table_kernel(const struct wn_desc *d);          /* GELU .. SILU_GRAD of many bf16 (table.cu) */
wn_kernel_fn wn__cuda_finite_kernel(const struct wn_desc *d);         /* ISNAN, ISFINITE (unary.cu) */
wn_kernel_fn wn__cuda_fused_kernel(const struct wn_desc *d);          /* ELEMENTWISE (fused.cu) */
wn_kernel_fn wn__cuda_dropout_kernel(const struct wn_desc *d);        /* DROPOUT (dropout.cu) */
wn_kernel_fn wn__cuda_matmul_kernel(const struct wn_desc *d);         /* MATMUL .. LINEAR_MAP (gemm.cu) */
wn_kernel_fn wn__cuda_product_update_kernel(const struct wn_desc *d); /* PRODUCT_UPDATE (product_update.cu) */
wn_kernel_fn wn__cuda_update_kernel(const struct wn_desc *d);         /* ASSIGN .. ADAM (update.cu) */
wn_kernel_fn wn__cuda_reduce_kernel(const struct wn_desc *d);         /* SUM .. EXTREME_GRAD (reduce.cu) */
wn_kernel_fn wn__cuda_argmax_kernel(const struct wn_desc *d);         /* ARGMAX (argmax.cu) */
wn_kernel_fn wn__cuda_softmax_kernel(const struct wn_desc *d);        /* SOFTMAX .. LOG_SOFTMAX_GRAD (softmax.cu) */
wn_kernel_fn wn__cuda_loss_kernel(const struct wn_desc *d);           /* ROW_STATS .. ROW_COUNT (loss.cu) */
wn_kernel_fn wn__cuda_norm_kernel(const struct wn_desc *d);           /* ROW_MEAN .. LAYERNORM_DX_ADD (norm.cu) */
wn_kernel_fn wn__cuda_shape_kernel(const struct wn_desc *d);          /* RESHAPE .. CAT, EXPAND (shape.cu) */
wn_kernel_fn wn__cuda_layout_kernel(const struct wn_desc *d);         /* RELAYOUT (layout.cu) */
wn_kernel_fn wn__cuda_gather_kernel(const struct wn_desc *d);         /* EMBEDDING .. GATHER_GRAD (gather.cu) */
wn_kernel_fn wn__cuda_scan_kernel(const struct wn_desc *d);           /* CUMSUM, ARGSORT (scan.cu) */
wn_kernel_fn wn__cuda_sort_kernel(const struct wn_desc *d);           /* ARGSORT of long lines (sort.cu) */
wn_kernel_fn wn__cuda_recurrent_kernel(const struct wn_desc *d);      /* LSTM_CELL .. GRU_CELL_GRAD (recurrent.cu) */
wn_kernel_fn wn__cuda_pack_kernel(const struct wn_desc *d);           /* PACK_INT8 .. UNPACK_SIGN (pack.cu) */
wn_kernel_fn wn__cuda_attention_kernel(const struct wn_desc *d);      /* ATTENTION(_GRAD) (attention.cu) */

wn_kernel_fn wn__cuda_conv_kernel(const struct wn_desc *d);    /* CONV2D .. CONV2D_MAP (conv.cu) */
wn_kernel_fn wn__cuda_pool_kernel(const struct wn_desc *d);    /* MAX_POOL2D_INDEX .. AVG_POOL2D_DX (pool.cu) */
wn_kernel_fn wn__cuda_channel_kernel(const struct wn_desc *d); /* CHANNEL_MEAN .. RELU_NORM_DX (channel.cu) */
wn_kernel_fn wn__cuda_resize_kernel(const struct wn_desc *d);  /* UPSAMPLE2D, UPSAMPLE2D_DX (resize.cu) */

/* Returns the kernel of any application; NULL where there is none (dispatch.cu). */
wn_kernel_fn wn__cuda_kernel(const struct wn_desc *d);

/* Returns the bytes of scratch that the kernel of an application needs (workspace.c). */
int64_t wn__cuda_workspace(const struct wn__target *t, const struct wn_desc *d);
#endif
