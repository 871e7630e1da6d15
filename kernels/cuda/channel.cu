/* CHANNEL_MEAN, CHANNEL_RSTD, BATCH_NORM, BATCH_NORM_SUMS, BATCH_NORM_DX, and with elementwise ops BATCH_NORM_MAP,
 * RELU_NORM_SUMS, RELU_NORM_DX: norms over the channels of images, of a batch or of groups (runtime/ops/channel.c and
 * fused_image.c have the formulas), with the CPU's bits.
 *
 * Sums are in double. An image is a slice of pixels x channels of group norm; all images together are the one slice of
 * batch norm. A block adds 32 channels of a part of the pixels of a slice (row_parts.h), pixel after pixel. A second
 * launch adds the parts of a channel in order, and then, for groups, the channels of a group in order:
 *
 *     workspace   | part 0: slice 0: channel 0, 1, .. | slice 1: .. | part 1: .. | ..       f64; once more for a second
 *                                                                                           sum of the same pixels
 *
 * BATCH_NORM_DX first computes the two means that it subtracts, of each statistic, to the workspace. Terms and results
 * of f32 and bf16 are computed in f32, and of f64 in f64. A norm is rounded before a step of BATCH_NORM_MAP or a ReLU
 * reads it, so the fused ops have the bits of separate ones. A result may lie where an operand of its bytes lies: a
 * thread reads what it needs of the elements that it writes before it writes them. */
#include "block.cuh"
#include "elementwise.cuh"
#include "image.cuh"
extern "C" {
#include "../row_parts.h"
}

/* One application; operands that its op lacks are NULL. */
template <class T> struct channel_job {
    const T *dy, *x, *mean, *rstd, *w, *b, *sums; /* b of a backward op: dy counts where the norm is above 0 */
    T *out;
    int64_t slices, rows, channels; /* x: (slices, rows, channels) */
    int64_t shared;                 /* channels of a statistic: of a group, or 1 */
    int64_t parts;                  /* of the rows of a slice */
    double count, eps;              /* elements that a statistic is the mean of */
    double *partial;
};

/* Returns the gradient of a ReLU over a norm y, which is not rounded yet. */
template <class T, class N> WN_DEVICE_FN N behind_relu(N dy, N y)
{
    return wn_relu_grad(dy, wn__load(wn__store<T>(y)));
}

/* Returns the statistic of a channel of a slice. */
template <class T> WN_DEVICE_FN int64_t statistic_of(const channel_job<T> &k, int64_t slice, int64_t channel)
{
    return k.shared == 1 ? slice * k.channels + channel
                         : slice * wn__quotient(k.channels, k.shared) + wn__quotient(channel, k.shared);
}

/* The work of a block: 32 channels, from `first` on, of rows [begin, end) of a slice. */
struct channel_block {
    int64_t part, slice, first, begin, end;
};

template <class T> WN_DEVICE_FN struct channel_block channel_block_of(const channel_job<T> &k)
{
    const int64_t across = (k.channels + WN_TILE_COLUMNS - 1) / WN_TILE_COLUMNS, unit = blockIdx.x / across;
    struct channel_block u;
    u.first = blockIdx.x % across * WN_TILE_COLUMNS;
    u.slice = unit % k.slices;
    u.part = unit / k.slices;
    u.begin = k.rows * u.part / k.parts;
    u.end = k.rows * (u.part + 1) / k.parts;
    return u;
}

template <class T> static unsigned channel_blocks(const channel_job<T> &k)
{
    return wn__grid((k.channels + WN_TILE_COLUMNS - 1) / WN_TILE_COLUMNS * k.slices * k.parts);
}

/* ---- statistics ----------------------------------------------------------------------------------------------- */

/* The terms of V channels: x, or the squares of x - mean where IS_SQUARE. */
template <class T, int V, int IS_SQUARE> struct statistic_terms {
    typedef typename wn__number<T>::type N;
    typedef wn__pack<T, V> raw;
    const T *x; /* the first row */
    int64_t channels;
    N mean[V];
    __device__ __forceinline__ raw load(int64_t row) const
    {
        return *(const raw *)(x + row * channels);
    }
    __device__ __forceinline__ void of(const raw &r, double (&to)[1][V]) const
    {
        WN_UNROLL
        for (int v = 0; v < V; v++) {
            N apart = wn__load(r.at[v]) - mean[v];
            to[0][v] = (double)(IS_SQUARE ? apart * apart : apart);
        }
    }
};

template <class T, int V, int IS_SQUARE>
static __global__ void __launch_bounds__(WN_THREADS, sizeof(T) < 8 ? 3 : 2) sum_channels(channel_job<T> k)
{
    const struct channel_block u = channel_block_of(k);
    const int64_t column = u.first + wn__tile_column<V>(), mine = column < k.channels ? column : u.first;
    statistic_terms<T, V, IS_SQUARE> terms = {k.x + u.slice * k.rows * k.channels + mine, k.channels, {0}};
    WN_UNROLL
    for (int v = 0; IS_SQUARE && v < V; v++) terms.mean[v] = wn__load(k.mean[statistic_of(k, u.slice, mine + v)]);
    const double sum = wn__sum_columns<1, V>(u.begin, u.end, terms);
    if (threadIdx.x < WN_TILE_COLUMNS && u.first + threadIdx.x < k.channels)
        k.partial[(u.part * k.slices + u.slice) * k.channels + u.first + threadIdx.x] = sum;
}

/* Returns the sum of the parts of a channel; plane: 0 of the first sums of the workspace, 1 of the second. */
template <class T> WN_DEVICE_FN double join_parts(const channel_job<T> &k, int plane, int64_t slice, int64_t channel)
{
    const int64_t step = k.slices * k.channels;
    const double *from = k.partial + plane * k.parts * step + slice * k.channels + channel;
    double sum = from[0];
    for (int64_t c = 1; c < k.parts; c++) sum += from[c * step];
    return sum;
}

template <class T, int IS_SQUARE> static __global__ void join_statistics(channel_job<T> k)
{
    typedef typename wn__number<T>::type N;
    const int64_t of_slice = k.channels / k.shared, at = wn__thread(), first = at % of_slice * k.shared;
    if (at >= k.slices * of_slice) return;
    double sum = join_parts(k, 0, at / of_slice, first);
    for (int64_t c = 1; c < k.shared; c++) sum += join_parts(k, 0, at / of_slice, first + c);
    const double mean = sum / k.count;
    k.out[at] = wn__store<T>((N)(IS_SQUARE ? 1.0 / sqrt(mean + k.eps) : mean));
}

/* ---- batch_norm_sums, relu_norm_sums -------------------------------------------------------------------------- */

/* The terms of V channels: dy h and dy, h = (x - mean) rstd. */
template <class T, int V, int IS_RELU> struct pair_terms {
    typedef typename wn__number<T>::type N;
    struct raw {
        wn__pack<T, V> x, dy;
    };
    const T *x, *dy; /* the first row */
    int64_t channels;
    N mean[V], rstd[V], w[V], b[V];
    __device__ __forceinline__ raw load(int64_t row) const
    {
        const int64_t at = row * channels;
        return {*(const wn__pack<T, V> *)(x + at), *(const wn__pack<T, V> *)(dy + at)};
    }
    __device__ __forceinline__ void of(const raw &r, double (&to)[2][V]) const
    {
        WN_UNROLL
        for (int v = 0; v < V; v++) {
            const N x = wn__load(r.x.at[v]);
            N dy = wn__load(r.dy.at[v]);
            if (IS_RELU) dy = behind_relu<T>(dy, wn_layernorm(x, mean[v], rstd[v], w[v], b[v]));
            to[0][v] = (double)(dy * ((x - mean[v]) * rstd[v]));
            to[1][v] = (double)dy;
        }
    }
};

/* Adds both sums of 32 channels at once: warp 0 has the first, warp 1 the second. */
template <class T, int V, int IS_RELU>
static __global__ void __launch_bounds__(WN_THREADS, sizeof(T) < 8 ? 3 : 2) sum_pairs(channel_job<T> k)
{
    const struct channel_block u = channel_block_of(k);
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    const int64_t column = u.first + wn__tile_column<V>(), mine = column < k.channels ? column : u.first;
    const int64_t origin = u.slice * k.rows * k.channels + mine;
    pair_terms<T, V, IS_RELU> terms = {
        .x = k.x + origin, .dy = k.dy + origin, .channels = k.channels, .mean = {0}, .rstd = {0}, .w = {0}, .b = {0}};
    WN_UNROLL
    for (int v = 0; v < V; v++) {
        const int64_t stat = statistic_of(k, u.slice, mine + v);
        terms.mean[v] = wn__load(k.mean[stat]);
        terms.rstd[v] = wn__load(k.rstd[stat]);
        if (IS_RELU) terms.w[v] = wn__load(k.w[mine + v]);
        if (IS_RELU) terms.b[v] = wn__load(k.b[mine + v]);
    }
    const double sum = wn__sum_columns<2, V>(u.begin, u.end, terms);
    const int64_t plane = k.parts * k.slices * k.channels;
    if (warp < 2 && u.first + lane < k.channels)
        k.partial[warp * plane + (u.part * k.slices + u.slice) * k.channels + u.first + lane] = sum;
}

/* Writes the result: (2, slices, channels). */
template <class T> static __global__ void join_pairs(channel_job<T> k)
{
    typedef typename wn__number<T>::type N;
    const int64_t at = wn__thread(), plane = k.slices * k.channels, in_plane = at % plane;
    if (at >= 2 * plane) return;
    const double sum = join_parts(k, (int)(at / plane), in_plane / k.channels, in_plane % k.channels);
    k.out[at] = wn__store<T>((N)sum);
}

/* ---- elementwise ---------------------------------------------------------------------------------------------- */

/* Loads the numbers of a statistic for V channels of a slice, from `channel` on. */
template <class T, class F, int V>
WN_DEVICE_FN void statistic_get(const channel_job<T> &k, const F *from, int64_t slice, int64_t channel,
                                typename wn__number<F>::type (&to)[V])
{
    if (k.shared == 1) {
        wn__get(from + slice * k.channels + channel, to);
        return;
    }
    WN_UNROLL
    for (int i = 0; i < V; i++) to[i] = wn__load(from[statistic_of(k, slice, channel + i)]);
}

/* Computes the norm of V elements from `at` on. */
template <class T, int V>
WN_DEVICE_FN void norm_get(const channel_job<T> &k, int64_t at, typename wn__number<T>::type (&x)[V])
{
    const int64_t row = wn__quotient(at, k.channels), channel = at - row * k.channels;
    const int64_t slice = k.slices == 1 ? 0 : wn__quotient(row, k.rows);
    typename wn__number<T>::type mean[V], rstd[V], w[V], b[V];
    wn__get(k.x + at, x);
    wn__get(k.w + channel, w);
    wn__get(k.b + channel, b);
    statistic_get(k, k.mean, slice, channel, mean);
    statistic_get(k, k.rstd, slice, channel, rstd);
    WN_UNROLL
    for (int i = 0; i < V; i++) x[i] = wn_layernorm(x[i], mean[i], rstd[i], w[i], b[i]);
}

template <class T, int V> static __global__ void batch_norm(channel_job<T> k, int64_t n)
{
    const int64_t at = wn__thread() * V;
    typename wn__number<T>::type y[V];
    if (at >= n) return;
    norm_get(k, at, y);
    wn__put(k.out + at, y);
}

/* A BATCH_NORM_MAP. Operand 0 of a step is the value so far, operands 1 and 2 are images. */
template <class T> struct channel_map {
    channel_job<T> norm;
    struct wn__step step[WN_NORM_STEPS];
    int32_t operand[WN_NORM_STEPS][2];
    int32_t n; /* steps */
    const T *image[2];
};

/* Loads an operand of a step, V elements from `at` on; y: the value so far. */
template <class T, int V, class N>
WN_DEVICE_FN void operand_get(const channel_map<T> &m, int32_t operand, int64_t at, const N (&y)[V], N (&to)[V])
{
    if (operand > 0) {
        wn__get((operand == 1 ? m.image[0] : m.image[1]) + at, to);
        return;
    }
    WN_UNROLL
    for (int v = 0; v < V; v++) to[v] = y[v];
}

template <class T, int V> static __global__ void batch_norm_map(channel_map<T> m, int64_t n)
{
    const int64_t at = wn__thread() * V;
    typename wn__number<T>::type y[V], a[V], b[V];
    if (at >= n) return;
    norm_get(m.norm, at, y);
    WN_ROLLED
    for (int32_t s = 0; s < m.n; s++) {
        WN_UNROLL
        for (int v = 0; v < V; v++) y[v] = wn__load(wn__store<T>(y[v]));
        operand_get(m, m.operand[s][0], at, y, a);
        operand_get(m, m.operand[s][1], at, y, b);
        wn__elementwise_pack(m.step[s], a, b, y, at);
    }
    wn__put(m.norm.out + at, y);
}

/* Returns the two means of a statistic, as f32 for f32 and bf16: (2, statistics), of dy w and of dy w h. */
template <class T> WN_DEVICE_FN typename wn__number<T>::type *means_of(const channel_job<T> &k)
{
    return (typename wn__number<T>::type *)k.partial;
}

/* Computes the means of dy w and of dy w h over what each statistic is made of, from the sums of its channels. */
template <class T> static __global__ void mean_pairs(channel_job<T> k)
{
    typedef typename wn__number<T>::type N;
    const int64_t of_slice = k.channels / k.shared, at = wn__thread(), stats = k.slices * of_slice;
    if (at >= stats) return;
    const int64_t first = at % of_slice * k.shared, origin = at / of_slice * k.channels;
    double sum[2] = {0, 0}; /* of dy h w, and of dy w */
    for (int64_t c = first; c < first + k.shared; c++)
        for (int plane = 0; plane < 2; plane++)
            sum[plane] +=
                (double)wn__load(k.w[c]) * (double)wn__load(k.sums[plane * k.slices * k.channels + origin + c]);
    means_of(k)[at] = (N)(sum[1] / k.count);
    means_of(k)[stats + at] = (N)(sum[0] / k.count);
}

WN_DEVICE_FN float dx_of(float dy, float x, float mean, float rstd, const float (&c)[2])
{
    return wn_layernorm_dx_f32(dy, x, mean, rstd, c[0], c[1]);
}
WN_DEVICE_FN double dx_of(double dy, double x, double mean, double rstd, const double (&c)[2])
{
    return wn_layernorm_dx_f64(dy, x, mean, rstd, c[0], c[1]);
}

template <class T, int V> static __global__ void batch_norm_dx(channel_job<T> k, int64_t n)
{
    typedef typename wn__number<T>::type N;
    const int64_t at = wn__thread() * V, row = wn__quotient(at, k.channels), channel = at - row * k.channels;
    if (at >= n) return;
    const int64_t slice = k.slices == 1 ? 0 : wn__quotient(row, k.rows);
    const N *means = means_of(k);
    N dy[V], x[V], mean[V], rstd[V], w[V], b[V], c1[V], c2[V];
    wn__get(k.dy + at, dy);
    wn__get(k.x + at, x);
    wn__get(k.w + channel, w);
    statistic_get(k, k.mean, slice, channel, mean);
    statistic_get(k, k.rstd, slice, channel, rstd);
    statistic_get(k, means, slice, channel, c1);
    statistic_get(k, means + k.slices * wn__quotient(k.channels, k.shared), slice, channel, c2);
    if (k.b != NULL) {
        wn__get(k.b + channel, b);
        WN_UNROLL
        for (int i = 0; i < V; i++) dy[i] = behind_relu<T>(dy[i], wn_layernorm(x[i], mean[i], rstd[i], w[i], b[i]));
    }
    WN_UNROLL
    for (int i = 0; i < V; i++) {
        const N c[2] = {c1[i], c2[i]};
        dy[i] = dx_of(dy[i] * w[i], x[i], mean[i], rstd[i], c);
    }
    wn__put(k.out + at, dy);
}

/* ---- which kernel --------------------------------------------------------------------------------------------- */

template <class T> static channel_job<T> job_of(const struct wn_desc *d, const struct wn_buffers *b)
{
    const int32_t has_sums = d->op == WN_OP_BATCH_NORM_DX || d->op == WN_OP_RELU_NORM_DX;
    const int32_t backward = has_sums || d->op == WN_OP_BATCH_NORM_SUMS || d->op == WN_OP_RELU_NORM_SUMS;
    const int64_t groups = d->attrs.i[d->op == WN_OP_BATCH_NORM_MAP ? WN_NORM_MAP_GROUPS : 0];
    const struct wn_type *x = &d->in[backward];
    const T *in[WN_NORM_INPUTS + 2] = {NULL};
    for (int32_t i = 0; i < d->n_in; i++) in[i] = (const T *)b->in[i];
    channel_job<T> k;
    memset(&k, 0, sizeof k);
    k.dy = backward ? in[0] : NULL;
    k.x = in[backward];
    k.mean = in[backward + 1];
    k.rstd = in[backward + 2];
    k.w = in[backward + 3];
    k.sums = has_sums ? in[5] : NULL;
    k.b = in[4 + backward + has_sums];
    k.out = (T *)b->out;
    k.slices = groups > 0 ? x->dim[0] : 1;
    k.channels = x->dim[1];
    k.rows = wn__numel(x) / k.channels / k.slices;
    k.shared = groups > 0 ? k.channels / groups : 1;
    k.parts = wn__parts_of(k.rows);
    k.count = (double)(k.rows * k.shared);
    k.eps = d->attrs.f[0];
    k.partial = (double *)b->workspace;
    return k;
}

template <class T, int IS_SQUARE> static int32_t start_statistics(const channel_job<T> &k, void *stream)
{
    if (k.channels % 2 == 0) LAUNCH_BLOCKS((sum_channels<T, 2, IS_SQUARE>), channel_blocks(k), stream, k);
    else LAUNCH_BLOCKS((sum_channels<T, 1, IS_SQUARE>), channel_blocks(k), stream, k);
    LAUNCH_EACH((join_statistics<T, IS_SQUARE>), k.slices * k.channels / k.shared, stream, k);
    return wn__cuda_launched();
}

template <class T> static int32_t start_sums(const channel_job<T> &k, void *stream)
{
    const unsigned blocks = channel_blocks(k);
    if (k.channels % 2 == 0 && k.b != NULL) LAUNCH_BLOCKS((sum_pairs<T, 2, 1>), blocks, stream, k);
    else if (k.channels % 2 == 0) LAUNCH_BLOCKS((sum_pairs<T, 2, 0>), blocks, stream, k);
    else if (k.b != NULL) LAUNCH_BLOCKS((sum_pairs<T, 1, 1>), blocks, stream, k);
    else LAUNCH_BLOCKS((sum_pairs<T, 1, 0>), blocks, stream, k);
    LAUNCH_EACH((join_pairs<T>), 2 * k.slices * k.channels, stream, k);
    return wn__cuda_launched();
}

template <class T> static int32_t start_dx(const channel_job<T> &k, int64_t n, void *stream)
{
    LAUNCH_EACH((mean_pairs<T>), k.slices * k.channels / k.shared, stream, k);
    WN_IMAGE_LAUNCH(batch_norm_dx, T, k.channels, n, stream, k);
    return wn__cuda_launched();
}

template <class T> static int32_t start_map(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    const struct wn__fused steps = wn__fused_get(&d->attrs, 0);
    const int64_t n = wn__numel(&d->out);
    channel_map<T> m;
    memset(&m, 0, sizeof m);
    m.norm = job_of<T>(d, b);
    m.n = steps.n;
    for (int32_t s = 0; s < m.n; s++) {
        m.step[s] = wn__step_of(steps.step[s].op, d->out.dtype, d->attrs.f, NULL);
        for (int32_t j = 0; j < 2; j++) m.operand[s][j] = steps.step[s].operand[j];
    }
    for (int32_t i = WN_NORM_INPUTS; i < d->n_in; i++) m.image[i - WN_NORM_INPUTS] = (const T *)b->in[i];
    WN_IMAGE_LAUNCH(batch_norm_map, T, m.norm.channels, n, stream, m);
    return wn__cuda_launched();
}

template <class T> static int32_t channel(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    const int64_t n = wn__numel(&d->out);
    if (n == 0) return WN_OK; /* a group norm of no images has no slices, which job_of divides by */
    const channel_job<T> k = job_of<T>(d, b);
    switch (d->op) {
    case WN_OP_CHANNEL_MEAN: return start_statistics<T, 0>(k, stream);
    case WN_OP_CHANNEL_RSTD: return start_statistics<T, 1>(k, stream);
    case WN_OP_BATCH_NORM_SUMS:
    case WN_OP_RELU_NORM_SUMS: return start_sums(k, stream);
    case WN_OP_BATCH_NORM_DX:
    case WN_OP_RELU_NORM_DX: return start_dx(k, n, stream);
    case WN_OP_BATCH_NORM_MAP: return start_map<T>(d, b, stream);
    default: WN_IMAGE_LAUNCH(batch_norm, T, k.channels, n, stream, k); return wn__cuda_launched();
    }
}

wn_kernel_fn wn__cuda_channel_kernel(const struct wn_desc *d)
{
    if (!wn__has_one_dtype(d)) return NULL;
    return wn__kernel_of(d->out.dtype, channel<float>, channel<double>, channel<wn_bf16>);
}
