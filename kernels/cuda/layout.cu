/* RELAYOUT: the elements of a matrix in another layout (runtime/base/layout.h). Weights on CUDA are plain, so this
 * moves what a script or another device has laid out in panels. */
#include "launch.cuh"

/* Moves element (row, column) between plain order and panels. */
template <class W> static __global__ void relay(const W *x, W *y, int64_t rows, int64_t columns, int32_t to_panels)
{
    int64_t plain = wn__thread(), width = 0;
    if (plain >= rows * columns) return;
    int64_t row = wn__panel_row(rows, columns, plain / columns, &width), at = row + plain % columns * width;
    if (to_panels) y[at] = x[plain];
    else y[plain] = x[at];
}

template <class W> static int32_t start(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    int64_t rows = d->out.dim[0], columns = d->out.dim[1];
    LAUNCH((relay<W>), wn__blocks(rows * columns, WN_THREADS), WN_THREADS, 0, stream, (const W *)b->in[0], (W *)b->out,
           rows, columns, (int32_t)(d->out.layout != WN_PLAIN));
    return wn__cuda_launched();
}

static int32_t relayout(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    int64_t bytes = wn__bytes(&d->out);
    if (bytes == 0) return WN_OK;
    if (d->in[0].layout == d->out.layout) {
        (void)cudaMemcpyAsync(b->out, b->in[0], (size_t)bytes, cudaMemcpyDeviceToDevice, (cudaStream_t)stream);
        return wn__cuda_launched();
    }
    switch (wn__dtype_size(d->out.dtype)) {
    case 1: return start<uint8_t>(d, b, stream);
    case 2: return start<uint16_t>(d, b, stream);
    case 4: return start<uint32_t>(d, b, stream);
    default: return start<uint64_t>(d, b, stream);
    }
}

wn_kernel_fn wn__cuda_layout_kernel(const struct wn_desc *d)
{
    return d->in[0].dtype == d->out.dtype ? relayout : NULL;
}
