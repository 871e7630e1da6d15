/* Finds the kernel of an application: the op names the family, the family picks by dtype. */
#include "launch.cuh"

typedef wn_kernel_fn (*family_lookup)(const struct wn_desc *d);

/* Returns the lookup of a family of op.def, one whose ops are all in one file. */
static family_lookup of_family(const char *family)
{
    static const struct {
        const char *family;
        family_lookup lookup;
    } rows[] = {
        {"creation", wn__cuda_creation_kernel},   {"binary", wn__cuda_binary_kernel},
        {"unary", wn__cuda_unary_kernel},         {"finite", wn__cuda_finite_kernel},
        {"matmul", wn__cuda_matmul_kernel},       {"reduce", wn__cuda_reduce_kernel},
        {"shape", wn__cuda_shape_kernel},         {"layout", wn__cuda_layout_kernel},
        {"gather", wn__cuda_gather_kernel},       {"softmax", wn__cuda_softmax_kernel},
        {"norm", wn__cuda_norm_kernel},           {"dropout", wn__cuda_dropout_kernel},
        {"attention", wn__cuda_attention_kernel}, {"pack", wn__cuda_pack_kernel},
        {"update", wn__cuda_update_kernel},       {"conv", wn__cuda_conv_kernel},
        {"pool", wn__cuda_pool_kernel},           {"channel", wn__cuda_channel_kernel},
        {"resize", wn__cuda_resize_kernel},       {"scan", wn__cuda_scan_kernel},
        {"recurrent", wn__cuda_recurrent_kernel}, {"loss", wn__cuda_loss_kernel},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (strcmp(rows[i].family, family) == 0) return rows[i].lookup;
    return NULL;
}

wn_kernel_fn wn__cuda_kernel(const struct wn_desc *d)
{
    static const char *const family[] = {
#define OP(NAME, name, lo, hi, family, flags, operands, autocast, positions) #family,
#include "../../runtime/op.def"
#undef OP
    };
    if (d->op < 0 || d->op >= WN_OP_COUNT) return NULL;
    switch (d->op) {
    case WN_OP_ARGMAX: return wn__cuda_argmax_kernel(d);
    case WN_OP_EXPAND: return wn__cuda_shape_kernel(d);
    case WN_OP_ELEMENTWISE: return wn__cuda_fused_kernel(d);
    case WN_OP_MATMUL_MAP:
    case WN_OP_LINEAR_MAP: return wn__cuda_matmul_kernel(d);
    case WN_OP_CONV2D_MAP: return wn__cuda_conv_kernel(d);
    case WN_OP_BATCH_NORM_MAP:
    case WN_OP_RELU_NORM_SUMS:
    case WN_OP_RELU_NORM_DX: return wn__cuda_channel_kernel(d);
    case WN_OP_LAYERNORM_DX_ADD: return wn__cuda_norm_kernel(d);
    case WN_OP_PRODUCT_UPDATE: return wn__cuda_product_update_kernel(d);
    default: break;
    }
    family_lookup lookup = of_family(family[d->op]);
    return lookup == NULL ? NULL : lookup(d);
}
