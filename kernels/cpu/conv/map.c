/* CONV2D_MAP: a convolution, then an elementwise op over its result, in place. The op's loop is that of its own kernel,
 * so an element has the bits of the two nodes. */
#include <stddef.h>
#include "conv.h"

/* The elementwise op over the result of a convolution. */
struct map {
    struct wn__elementwise step;
    char *out;
    const char *in; /* the second operand; NULL: there is none */
    int64_t size;   /* bytes of an element */
};

static void map_range(int64_t begin, int64_t end, void *ctx)
{
    const struct map *m = ctx;
    char *out = m->out + begin * m->size;
    struct wn__operands o = {out, out, m->in == NULL ? NULL : m->in + begin * m->size, 1, 1};
    wn__elementwise_run(&m->step, &o, end - begin, begin);
}

static struct wn_desc conv_of(const struct wn_desc *d)
{
    struct wn_desc c = *d;
    c.op = WN_OP_CONV2D;
    c.n_in = (int32_t)d->attrs.i[WN_CONV_MAP_INPUTS];
    return c;
}

static int32_t conv_map(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    const struct wn_desc c = conv_of(d);
    struct map m = {.out = b->out, .size = wn__dtype_size(d->out.dtype)};
    WN_TRY(wn__cpu_conv_kernel(&c)(&c, b, stream));
    wn__elementwise_of((int32_t)d->attrs.i[WN_CONV_MAP_OP], d->out.dtype, d->attrs.f, b, &m.step);
    if (d->n_in > c.n_in) m.in = b->in[c.n_in];
    wn__parallel_for(wn__numel(&d->out), WN_CPU_GRAIN, map_range, &m);
    return WN_OK;
}

wn_kernel_fn wn__cpu_conv_map_kernel(const struct wn_desc *d)
{
    const struct wn_desc c = conv_of(d);
    struct wn__elementwise step;
    if (!wn__elementwise_of((int32_t)d->attrs.i[WN_CONV_MAP_OP], d->out.dtype, d->attrs.f, NULL, &step)) return NULL;
    return wn__cpu_conv_kernel(&c) ? conv_map : NULL;
}
