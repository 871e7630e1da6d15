/* MAX_POOL2D_INDEX, MAX_POOL2D, MAX_POOL2D_DX, AVG_POOL2D, AVG_POOL2D_DX (runtime/ops/pool.c has the formulas), with
 * the CPU's bits.
 *
 * A thread computes V channels of a result. The places of a window, and the windows over a place, are taken row by row,
 * in ascending order: the first of equal maxima wins, and sums are added in this order, those of MAX_POOL2D_DX in f32
 * for f32 and bf16, those of means in double. A derivative gathers: an element of dx looks at the windows over it, so
 * nothing is added by two threads. */
#include "image.cuh"
extern "C" {
#include "../../runtime/base/window.h"
}

/* One application. x: what windows read, or dy; index: (N, oh, ow, C). */
template <class T> struct pool_job {
    struct wn__window w;
    struct wn__images in, out; /* the images that windows read, and those with an element a window */
    const T *x;
    const uint8_t *index;
    T *y;
    uint8_t *places; /* the result of MAX_POOL2D_INDEX */
};

/* ---- windows -------------------------------------------------------------------------------------------------- */

/* The places of a window that are in the image, rows and columns, and how many an average divides by. */
struct window_at {
    int64_t first[2], end[2], places[2];
};

WN_DEVICE_FN struct window_at window_of(const struct wn__window &w, const struct wn__pixel &at)
{
    struct window_at v;
    for (int k = 0; k < 2; k++) v.first[k] = wn__window_span(&w, k, at.at[k], &v.end[k], &v.places[k]);
    return v;
}

/* Returns the first window over row (part 0) or column (part 1) `at` of the image; *end becomes the one behind the
 * last. */
WN_DEVICE_FN int64_t windows_over(const struct wn__window &w, int part, int64_t at, int64_t *end)
{
    const int64_t size = w.in[part], n = w.out[part];
    if (w.flags & WN_POOL_IS_ADAPTIVE) {
        *end = wn__quotient((at + 1) * n + size - 1, size);
        return wn__quotient(at * n, size);
    }
    int64_t padded = at + w.pad[part], before = padded - w.kernel[part];
    *end = wn_min(wn__quotient(padded, w.stride[part]) + 1, n);
    return before < 0 ? 0 : wn__quotient(before, w.stride[part]) + 1;
}

/* Returns the row or column of the image at which a window begins; it may be outside. */
WN_DEVICE_FN int64_t window_origin(const struct wn__window &w, int part, int64_t at)
{
    return at * w.stride[part] - w.pad[part];
}

/* ---- the largest ---------------------------------------------------------------------------------------------- */

/* Finds the largest element of each window: its number, or its place where HAS_PLACES. A NaN is larger than any
 * number. */
template <class T, int V, int HAS_PLACES> WN_DEVICE_FN void find_largest(const pool_job<T> &j, int64_t at)
{
    typedef typename wn__number<T>::type N;
    const struct wn__pixel p = wn__pixel_at(j.out, at);
    const struct window_at v = window_of(j.w, p);
    N best[V];
    wn__pack<uint8_t, V> place;
    const int64_t top = window_origin(j.w, 0, p.at[0]), left = window_origin(j.w, 1, p.at[1]);
    WN_UNROLL
    for (int i = 0; i < V; i++) {
        best[i] = -(N)INFINITY;
        place.at[i] = (uint8_t)((v.first[0] - top) * j.w.kernel[1] + v.first[1] - left);
    }
    for (int64_t r = v.first[0]; r < v.end[0]; r++)
        for (int64_t c = v.first[1]; c < v.end[1]; c++) {
            N x[V];
            wn__get(j.x + wn__element_at(j.in, p.n, r, c, p.channel), x);
            WN_UNROLL
            for (int i = 0; i < V; i++) {
                const bool is_larger = x[i] > best[i] || (x[i] != x[i] && best[i] == best[i]);
                best[i] = is_larger ? x[i] : best[i];
                place.at[i] = is_larger ? (uint8_t)((r - top) * j.w.kernel[1] + c - left) : place.at[i];
            }
        }
    if (HAS_PLACES) *(wn__pack<uint8_t, V> *)(j.places + at) = place;
    else wn__put(j.y + at, best);
}

template <class T, int V> static __global__ void max_places(pool_job<T> j, int64_t n)
{
    int64_t at = wn__thread() * V;
    if (at < n) find_largest<T, V, 1>(j, at);
}

template <class T, int V> static __global__ void max_windows(pool_job<T> j, int64_t n)
{
    int64_t at = wn__thread() * V;
    if (at < n) find_largest<T, V, 0>(j, at);
}

/* Takes the element at the place that an index names in each window; 0 where that is outside of the image. */
template <class T, int V> static __global__ void take_places(pool_job<T> j, int64_t n)
{
    typedef typename wn__number<T>::type N;
    const int64_t at = wn__thread() * V;
    if (at >= n) return;
    const struct wn__pixel p = wn__pixel_at(j.out, at);
    const wn__pack<uint8_t, V> place = *(const wn__pack<uint8_t, V> *)(j.index + at);
    N y[V];
    WN_UNROLL
    for (int i = 0; i < V; i++) {
        const int columns = (int)j.w.kernel[1];
        int64_t r = window_origin(j.w, 0, p.at[0]) + place.at[i] / columns;
        int64_t c = window_origin(j.w, 1, p.at[1]) + place.at[i] % columns;
        const bool is_inside = r >= 0 && r < j.w.in[0] && c >= 0 && c < j.w.in[1];
        y[i] = is_inside ? wn__load(j.x[wn__element_at(j.in, p.n, r, c, p.channel + i)]) : (N)0;
    }
    wn__put(j.y + at, y);
}

/* Sums the dy of the windows that chose each element. */
template <class T, int V> static __global__ void max_dx(pool_job<T> j, int64_t n)
{
    typedef typename wn__number<T>::type N;
    const int64_t at = wn__thread() * V;
    if (at >= n) return;
    const struct wn__pixel p = wn__pixel_at(j.in, at);
    int64_t end[2], first[2];
    for (int k = 0; k < 2; k++) first[k] = windows_over(j.w, k, p.at[k], &end[k]);
    N sum[V] = {};
    for (int64_t r = first[0]; r < end[0]; r++)
        for (int64_t c = first[1]; c < end[1]; c++) {
            const int64_t from = wn__element_at(j.out, p.n, r, c, p.channel);
            const int64_t row = p.at[0] - window_origin(j.w, 0, r), column = p.at[1] - window_origin(j.w, 1, c);
            const wn__pack<uint8_t, V> place = *(const wn__pack<uint8_t, V> *)(j.index + from);
            N dy[V];
            wn__get(j.x + from, dy);
            WN_UNROLL
            for (int i = 0; i < V; i++) sum[i] = place.at[i] == row * j.w.kernel[1] + column ? sum[i] + dy[i] : sum[i];
        }
    wn__put(j.y + at, sum);
}

/* ---- the mean ------------------------------------------------------------------------------------------------- */

template <class T, int V> static __global__ void avg_windows(pool_job<T> j, int64_t n)
{
    typedef typename wn__number<T>::type N;
    const int64_t at = wn__thread() * V;
    if (at >= n) return;
    const struct wn__pixel p = wn__pixel_at(j.out, at);
    const struct window_at v = window_of(j.w, p);
    double sum[V] = {};
    for (int64_t r = v.first[0]; r < v.end[0]; r++)
        for (int64_t c = v.first[1]; c < v.end[1]; c++) {
            N x[V];
            wn__get(j.x + wn__element_at(j.in, p.n, r, c, p.channel), x);
            WN_UNROLL
            for (int i = 0; i < V; i++) sum[i] += (double)x[i];
        }
    N y[V];
    WN_UNROLL
    for (int i = 0; i < V; i++) y[i] = (N)(sum[i] / (double)(v.places[0] * v.places[1]));
    wn__put(j.y + at, y);
}

/* Sums the shares of dy that the windows over each element give it. */
template <class T, int V> static __global__ void avg_dx(pool_job<T> j, int64_t n)
{
    typedef typename wn__number<T>::type N;
    const int64_t at = wn__thread() * V;
    if (at >= n) return;
    const struct wn__pixel p = wn__pixel_at(j.in, at);
    int64_t end[2], first[2];
    for (int k = 0; k < 2; k++) first[k] = windows_over(j.w, k, p.at[k], &end[k]);
    double sum[V] = {};
    for (int64_t r = first[0]; r < end[0]; r++)
        for (int64_t c = first[1]; c < end[1]; c++) {
            int64_t ignored, rows, columns;
            (void)wn__window_span(&j.w, 0, r, &ignored, &rows);
            (void)wn__window_span(&j.w, 1, c, &ignored, &columns);
            const double share = 1.0 / (double)(rows * columns);
            N dy[V];
            wn__get(j.x + wn__element_at(j.out, p.n, r, c, p.channel), dy);
            WN_UNROLL
            for (int i = 0; i < V; i++) sum[i] += share * (double)dy[i];
        }
    N dx[V];
    WN_UNROLL
    for (int i = 0; i < V; i++) dx[i] = (N)sum[i];
    wn__put(j.y + at, dx);
}

/* ---- which kernel --------------------------------------------------------------------------------------------- */

template <class T> static pool_job<T> job_of(const struct wn_desc *d, const struct wn_buffers *b)
{
    const int32_t is_dx = d->op == WN_OP_MAX_POOL2D_DX || d->op == WN_OP_AVG_POOL2D_DX;
    const struct wn_type *x = is_dx ? &d->out : &d->in[0], *y = is_dx ? &d->in[0] : &d->out;
    pool_job<T> j;
    memset(&j, 0, sizeof j);
    wn__window_pool(&d->attrs, x, y, &j.w);
    j.in = wn__images_of(x);
    j.out = wn__images_of(y);
    j.x = (const T *)b->in[0];
    j.index = d->n_in > 1 ? (const uint8_t *)b->in[1] : NULL;
    j.y = (T *)b->out;
    j.places = (uint8_t *)b->out;
    return j;
}

template <class T> static int32_t pool(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    const pool_job<T> j = job_of<T>(d, b);
    const int64_t n = wn__numel(&d->out), channels = j.in.channels;
    if (n == 0) return WN_OK;
    switch (d->op) {
    case WN_OP_MAX_POOL2D_INDEX: WN_IMAGE_LAUNCH(max_places, T, channels, n, stream, j); break;
    case WN_OP_MAX_POOL2D:
        if (j.index != NULL) WN_IMAGE_LAUNCH(take_places, T, channels, n, stream, j);
        else WN_IMAGE_LAUNCH(max_windows, T, channels, n, stream, j);
        break;
    case WN_OP_MAX_POOL2D_DX: WN_IMAGE_LAUNCH(max_dx, T, channels, n, stream, j); break;
    case WN_OP_AVG_POOL2D: WN_IMAGE_LAUNCH(avg_windows, T, channels, n, stream, j); break;
    default: WN_IMAGE_LAUNCH(avg_dx, T, channels, n, stream, j); break;
    }
    return wn__cuda_launched();
}

wn_kernel_fn wn__cuda_pool_kernel(const struct wn_desc *d)
{
    if (d->in[0].dtype != d->out.dtype && d->op != WN_OP_MAX_POOL2D_INDEX) return NULL;
    return wn__kernel_of(d->in[0].dtype, pool<float>, pool<double>, pool<wn_bf16>);
}
