/* CUDA as a target: what a plan for a GPU needs to know. There are no kernels here yet, so such plans are made and
 * looked at, on any machine, and not run. */
#include <stddef.h>
#include "../kernel.h"
#include "../../runtime/base/opcode.h"

/* Returns the bytes of one f64 a row, the log-probability of its label, until all are summed in order. */
static int64_t cross_entropy(const struct wn_desc *d)
{
    return wn__numel(&d->in[1]) * (int64_t)sizeof(double);
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

static int64_t workspace(const struct wn__target *t, const struct wn_desc *d)
{
    (void)t;
    return d->op == WN_OP_CROSS_ENTROPY ? cross_entropy(d) : d->op == WN_OP_ATTENTION_GRAD ? attention_grad(d) : 0;
}

const struct wn__backend wn__backend_cuda = {
    .target = {.name = "cuda", .weight_layout = WN_PLAIN, .workspace = workspace},
};
