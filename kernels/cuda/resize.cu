/* UPSAMPLE2D, UPSAMPLE2D_DX: images in another size (runtime/ops/resize.c has the formulas, base/resample.h the
 * weights), with the CPU's bits.
 *
 * A thread computes V channels of a result. An element of y is made of the four around its place: first along columns,
 * then along rows. An element of dx gathers the elements of y that it is part of, row by row in ascending order, and
 * adds weight of row times weight of column times dy in double. y is computed in f32 for f32 and bf16, in f64 for
 * f64. */
#include "image.cuh"
extern "C" {
#include "../../runtime/base/resample.h"
#include "../../runtime/base/window.h"
}

/* One application. x: the images (N, H, W, C) that are interpolated, or dx; y: their result, or dy. */
template <class T> struct resize_job {
    struct wn__images x, y;
    const T *from;
    T *to;
    double scale[2];
    int32_t mode, align;
};

/* Returns which rows (part 0) or columns (part 1) make element `at` of y. */
template <class T> WN_DEVICE_FN struct wn__resample resample(const resize_job<T> &j, int part, int64_t at)
{
    return wn__resample_at(at, j.x.size[part], j.y.size[part], j.scale[part], j.mode, j.align);
}

template <class T, int V> static __global__ void upsample(resize_job<T> j, int64_t n)
{
    typedef typename wn__number<T>::type N;
    const int64_t at = wn__thread() * V;
    if (at >= n) return;
    const struct wn__pixel p = wn__pixel_at(j.y, at);
    const struct wn__resample row = resample(j, 0, p.at[0]), column = resample(j, 1, p.at[1]);
    N corner[2][2][V], y[V];
    for (int r = 0; r < 2; r++)
        for (int c = 0; c < 2; c++)
            wn__get(j.from + wn__element_at(j.x, p.n, r ? row.high : row.low, c ? column.high : column.low, p.channel),
                    corner[r][c]);
    const N down = (N)row.weight, across = (N)column.weight;
    WN_UNROLL
    for (int i = 0; i < V; i++) {
        N top = ((N)1 - across) * corner[0][0][i] + across * corner[0][1][i];
        N bottom = ((N)1 - across) * corner[1][0][i] + across * corner[1][1][i];
        y[i] = j.mode == WN_RESAMPLE_NEAREST ? corner[0][0][i] : ((N)1 - down) * top + down * bottom;
    }
    wn__put(j.to + at, y);
}

/* Returns the first row or column of y that is made of row or column `least` of x, or of a later one; the number of
 * them where none is. The first guess may be any number: the loops mend it. */
template <class T> WN_DEVICE_FN int64_t first_made_of(const resize_job<T> &j, int part, int64_t least)
{
    const int64_t end = j.y.size[part];
    const double ratio = (double)(j.x.size[part] - j.align) / (double)(end - j.align);
    const double guess = (double)least / (j.scale[part] != 0 && !j.align ? j.scale[part] : ratio);
    int64_t at = guess >= (double)end ? end : guess > 0 ? (int64_t)guess : 0;
    while (at > 0 && resample(j, part, at - 1).high >= least) at--;
    while (at < end && resample(j, part, at).high < least) at++;
    return at;
}

/* Returns the weight with which an element of y has row or column `at` of x. */
WN_DEVICE_FN double weight_of(const struct wn__resample &r, int64_t at)
{
    return (r.low == at ? 1.0 - r.weight : 0.0) + (r.high == at ? r.weight : 0.0);
}

template <class T, int V> static __global__ void upsample_dx(resize_job<T> j, int64_t n)
{
    typedef typename wn__number<T>::type N;
    const int64_t at = wn__thread() * V;
    if (at >= n) return;
    const struct wn__pixel p = wn__pixel_at(j.x, at);
    const int64_t left = first_made_of(j, 1, p.at[1]);
    double sum[V] = {};
    for (int64_t r = first_made_of(j, 0, p.at[0]); r < j.y.size[0]; r++) {
        const struct wn__resample row = resample(j, 0, r);
        if (row.low > p.at[0]) break;
        for (int64_t c = left; c < j.y.size[1]; c++) {
            const struct wn__resample column = resample(j, 1, c);
            if (column.low > p.at[1]) break;
            const double weight = weight_of(row, p.at[0]) * weight_of(column, p.at[1]);
            N dy[V];
            wn__get(j.from + wn__element_at(j.y, p.n, r, c, p.channel), dy);
            WN_UNROLL
            for (int i = 0; i < V; i++) sum[i] += weight * (double)dy[i];
        }
    }
    N dx[V];
    WN_UNROLL
    for (int i = 0; i < V; i++) dx[i] = (N)sum[i];
    wn__put(j.to + at, dx);
}

template <class T> static int32_t resize(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    const int32_t is_dx = d->op == WN_OP_UPSAMPLE2D_DX;
    const int64_t n = wn__numel(&d->out);
    resize_job<T> j;
    memset(&j, 0, sizeof j);
    j.x = wn__images_of(is_dx ? &d->out : &d->in[0]);
    j.y = wn__images_of(is_dx ? &d->in[0] : &d->out);
    j.from = (const T *)b->in[0];
    j.to = (T *)b->out;
    for (int k = 0; k < 2; k++) j.scale[k] = d->attrs.f[k];
    j.mode = (int32_t)d->attrs.i[WN_RESAMPLE_MODE];
    j.align = (int32_t)d->attrs.i[WN_RESAMPLE_ALIGN];
    if (n == 0) return WN_OK;
    if (is_dx) WN_IMAGE_LAUNCH(upsample_dx, T, j.x.channels, n, stream, j);
    else WN_IMAGE_LAUNCH(upsample, T, j.x.channels, n, stream, j);
    return wn__cuda_launched();
}

wn_kernel_fn wn__cuda_resize_kernel(const struct wn_desc *d)
{
    if (d->in[0].dtype != d->out.dtype) return NULL;
    return wn__kernel_of(d->out.dtype, resize<float>, resize<double>, resize<wn_bf16>);
}
