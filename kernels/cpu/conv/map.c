/* CONV2D_MAP: a convolution with an epilogue over each block of its result, once it is complete. */
#include <stddef.h>
#include "conv.h"

static struct wn_desc conv_of(const struct wn_desc *d)
{
    struct wn_desc c = *d;
    c.op = WN_OP_CONV2D;
    c.n_in = wn__conv_map_get(&d->attrs).conv;
    return c;
}

static int32_t conv_map(const struct wn_desc *d, const struct wn_buffers *b, WN_NO_STREAM)
{
    const struct wn_desc c = conv_of(d);
    struct wn__conv_epilogue e;
    wn__conv_epilogue_of(d, b, &e);
    return wn__conv_run(&c, b, &e);
}

wn_kernel_fn wn__cpu_conv_map_kernel(const struct wn_desc *d)
{
    const struct wn_desc c = conv_of(d);
    struct wn__conv_epilogue e;
    return wn__conv_epilogue_of(d, NULL, &e) && wn__cpu_conv_kernel(&c) ? conv_map : NULL;
}
