/* RELAYOUT: the elements of a value in another layout (runtime/base/layout.h); one side is plain. Bytes are the CPU's.
 *
 * An image is a matrix (channels, pixels) for each of its N, which a PERMUTE (shape.cu) transposes. Weights on CUDA are
 * plain, so panels are what a script or another device has made. */
#include "launch.cuh"

/* A weight in panels: column `at` of its plain rows, (inputs, places), is column at % places * inputs + at / places of
 * a panel. places: 1 of a matrix, the size of the kernel of a convolution. */
struct panels {
    int64_t rows, columns, places;
    int32_t is_back; /* 1: to plain order */
};

/* Moves an element a thread, in the order of the plain side. */
template <class W> static __global__ void move_panels(struct panels p, const W *x, W *y)
{
    int64_t plain = wn__thread(), width = 0;
    if (plain >= p.rows * p.columns) return;
    int64_t row = plain / p.columns, column = plain % p.columns;
    int64_t in_panel = column % p.places * (p.columns / p.places) + column / p.places;
    int64_t first = wn__panel_row(p.rows, p.columns, row, &width), at = first + in_panel * width;
    if (p.is_back) y[plain] = x[at];
    else y[at] = x[plain];
}

template <class W> static int32_t start_panels(const struct panels *p, const struct wn_buffers *b, void *stream)
{
    LAUNCH_EACH((move_panels<W>), p->rows * p->columns, stream, *p, (const W *)b->in[0], (W *)b->out);
    return wn__cuda_launched();
}

static int32_t relay_panels(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    const struct wn_type *t = &d->out;
    struct panels p = {t->dim[0], t->dim[1], 1, t->layout == WN_PLAIN};
    if (t->ndim == 4) p.places = t->dim[2] * t->dim[3];
    p.columns *= p.places;
    switch (wn__dtype_size(t->dtype)) {
    case 1: return start_panels<uint8_t>(&p, b, stream);
    case 2: return start_panels<uint16_t>(&p, b, stream);
    case 4: return start_panels<uint32_t>(&p, b, stream);
    default: return start_panels<uint64_t>(&p, b, stream);
    }
}

/* Transposes (N, C, H W) to (N, H W, C), or the other way round. */
static int32_t relay_image(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    const int64_t channels = d->out.dim[1], pixels = d->out.dim[2] * d->out.dim[3];
    const int32_t is_back = d->out.layout == WN_PLAIN;
    struct wn_type x;
    struct wn_desc permute;
    memset(&x, 0, sizeof x);
    x.dtype = d->out.dtype;
    x.ndim = 3;
    x.dim[0] = d->out.dim[0];
    x.dim[1] = is_back ? pixels : channels;
    x.dim[2] = is_back ? channels : pixels;
    memset(&permute, 0, sizeof permute);
    permute.op = WN_OP_PERMUTE;
    permute.n_in = 1;
    permute.in = &x;
    permute.out = x;
    permute.out.dim[1] = x.dim[2];
    permute.out.dim[2] = x.dim[1];
    permute.attrs.n = 3;
    permute.attrs.i[1] = 2;
    permute.attrs.i[2] = 1;
    return wn__cuda_shape_kernel(&permute)(&permute, b, stream);
}

static int32_t relayout(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    int64_t bytes = wn__bytes(&d->out);
    if (bytes == 0) return WN_OK;
    if (d->in[0].layout == d->out.layout) {
        (void)cudaMemcpyAsync(b->out, b->in[0], (size_t)bytes, cudaMemcpyDeviceToDevice, (cudaStream_t)stream);
        return wn__cuda_launched();
    }
    int32_t is_image = d->in[0].layout == WN_NHWC || d->out.layout == WN_NHWC;
    return is_image ? relay_image(d, b, stream) : relay_panels(d, b, stream);
}

wn_kernel_fn wn__cuda_layout_kernel(const struct wn_desc *d)
{
    int32_t has_plain = d->in[0].layout == WN_PLAIN || d->out.layout == WN_PLAIN || d->in[0].layout == d->out.layout;
    return d->in[0].dtype == d->out.dtype && has_plain ? relayout : NULL;
}
