/* ATTENTION and ATTENTION_GRAD: reads the description of a node and chooses tiled or plain (attention.h). */
#include "attention.h"
#include <stddef.h>

static struct wn__attention read_desc(const struct wn_desc *d, const struct wn_buffers *b, int32_t qkv)
{
    const struct wn_type *t = &d->in[qkv];
    struct wn__attention k = {.batch = t->dim[0], .time = t->dim[1], .heads = d->attrs.i[0], .kv_heads = d->attrs.i[1]};
    k.row = t->dim[2];
    k.size = k.row / (k.heads + 2 * k.kv_heads);
    k.out_row = k.heads * k.size;
    k.causal = d->attrs.i[2] != 0;
    k.dtype = d->out.dtype;
    k.p = d->attrs.f[0];
    k.scale = d->attrs.f[1];
    k.seed = b->seed;
    k.counter = b->counter;
    k.qkv = b->in[qkv];
    k.out = b->out;
    return k;
}

static int32_t is_tiled(const struct wn__attention *k)
{
    return k->dtype != WN_F64 && k->size <= WN_ATTENTION_SIZE;
}

static int32_t attention(const struct wn_desc *d, const struct wn_buffers *b, WN_NO_STREAM)
{
    struct wn__attention k = read_desc(d, b, 0);
    if (wn__numel(&d->out) == 0) return WN_OK;
    if (is_tiled(&k)) wn__attention_forward(&k);
    else wn__attention_plain(&k);
    return WN_OK;
}

static int32_t attention_grad(const struct wn_desc *d, const struct wn_buffers *b, WN_NO_STREAM)
{
    struct wn__attention k = read_desc(d, b, 1);
    if (wn__numel(&d->out) == 0) return WN_OK;
    k.dy = b->in[0];
    k.y = b->in[2];
    int32_t beside = k.dtype == WN_BF16;
    k.sums = beside ? b->workspace : b->out;
    k.sums_row = beside ? 2 * k.kv_heads * k.size : k.row;
    k.sums_first = beside ? 0 : k.heads * k.size;
    if (is_tiled(&k)) wn__attention_grad(&k);
    else wn__attention_plain_grad(&k);
    return WN_OK;
}

wn_kernel_fn wn__cpu_attention_kernel(const struct wn_desc *d)
{
    int32_t dtype = d->out.dtype;
    if (!wn__dtype_is_float(dtype)) return NULL;
    for (int32_t i = 0; i < d->n_in; i++)
        if (d->in[i].dtype != dtype) return NULL;
    switch (d->op) {
    case WN_OP_ATTENTION: return attention;
    case WN_OP_ATTENTION_GRAD: return attention_grad;
    default: return NULL;
    }
}
