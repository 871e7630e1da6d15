/* ROW_MEAN, ROW_RSTD, LAYERNORM, LAYERNORM_DX, LAYERNORM_DX_ADD, LAYERNORM_DW: layer norm over the last dim, x: (rows,
 * n), with the CPU's bits in every dtype (runtime/ops/norm.c has the formulas, kernels/cpu/row/norm.c the orders).
 *
 * Sums are in double. 16 threads sum a row (block.cuh). LAYERNORM_DW sums columns: a block adds 32 columns of a part of
 * the rows (row_parts.h), row after row, and a second launch adds the parts in order:
 *
 *     workspace   | part 0: column 0, 1, 2, ... | part 1: column 0, 1, 2, ... | ...     f64 each; none for one part
 *
 * bf16 is computed as f32 in registers and rounded once. Where all else is f32, x, dy, what is added to dx, and the
 * result may each be bf16 (mixed.cuh). A result may lie where dy or x does: the sums of a row are complete in all 16
 * threads before one of them writes, and then each element is read before it is written. */
#include "block.cuh"
#include "mixed.cuh"
extern "C" {
#include "../row_parts.h"
}

/* One application; operands that its op lacks are NULL. */
template <class T> struct norm_job {
    wn__reading<T> dy, x, plus;   /* (rows, n) each */
    const T *mean, *rstd, *w, *b; /* (rows), (rows), (n), (n) */
    wn__writing<T> out;
    int64_t rows, n;
    double eps;      /* of ROW_RSTD */
    int64_t parts;   /* of LAYERNORM_DW */
    double *partial; /* (parts, n) of LAYERNORM_DW; NULL: one part */
};

/* Calls F<T, V> with as many elements a load, V, as divide a row. */
#define BY_WIDTH(F, T, n, ...)                                                                                         \
    do {                                                                                                               \
        if ((n) % wn__wide<T>::N == 0) LAUNCH_BLOCKS((F<T, wn__wide<T>::N>), __VA_ARGS__);                             \
        else LAUNCH_BLOCKS((F<T, 1>), __VA_ARGS__);                                                                    \
    } while (0)

/* ---- statistics ---------------------------------------------------------------------------------- */

template <class T, class N>
static __device__ __forceinline__ void put_statistic(const norm_job<T> &k, int64_t row, N value)
{
    N one[1] = {value};
    k.out.put(row, one);
}

template <class T> static __global__ void row_mean(norm_job<T> k)
{
    typedef typename wn__number<T>::type N;
    const struct wn__lane l = wn__lane_of(k.rows);
    const int64_t at = l.row * k.n;
    double lane = 0;
    for (int64_t i = l.j; l.is_real && i < k.n; i += WN_LANES) lane += (double)k.x.one(at + i);
    double sum = wn__join_lanes(lane);
    if (l.is_real && l.j == 0) put_statistic(k, l.row, (N)(sum / (double)k.n));
}

template <class T> static __global__ void row_rstd(norm_job<T> k)
{
    typedef typename wn__number<T>::type N;
    const struct wn__lane l = wn__lane_of(k.rows);
    const int64_t at = l.row * k.n;
    N mean = l.is_real ? wn__load(k.mean[l.row]) : (N)0;
    double lane = 0;
    for (int64_t i = l.j; l.is_real && i < k.n; i += WN_LANES) {
        N apart = k.x.one(at + i) - mean;
        lane += (double)(apart * apart);
    }
    double square = wn__join_lanes(lane);
    if (l.is_real && l.j == 0) put_statistic(k, l.row, (N)(1.0 / sqrt(square / (double)k.n + k.eps)));
}

/* ---- layernorm ----------------------------------------------------------------------------------- */

template <class T, int V> static __global__ void layernorm(norm_job<T> k)
{
    typedef typename wn__number<T>::type N;
    const struct wn__lane l = wn__lane_of(k.rows);
    if (!l.is_real) return;
    const N mean = wn__load(k.mean[l.row]), rstd = wn__load(k.rstd[l.row]);
    const int64_t at = l.row * k.n;
    for (int64_t i = l.j * V; i < k.n; i += WN_LANES * V) {
        N x[V], w[V], b[V];
        k.x.get(at + i, x);
        wn__get(k.w + i, w);
        wn__get(k.b + i, b);
        WN_UNROLL
        for (int v = 0; v < V; v++) x[v] = wn_layernorm(x[v], mean, rstd, w[v], b[v]);
        k.out.put(at + i, x);
    }
}

/* ---- layernorm_dx -------------------------------------------------------------------------------- */

/* The numbers that all elements of a row share: its mean and rstd, and the means that its gradient subtracts, c1 of
 * dy w and c2 of dy w h, with h = (x - mean) rstd. */
template <class N> struct norm_row {
    N mean, rstd, c1, c2;
};

static __device__ __forceinline__ float dx_of(const norm_row<float> &r, float dy, float x, float w)
{
    return wn_layernorm_dx_f32(dy * w, x, r.mean, r.rstd, r.c1, r.c2);
}
static __device__ __forceinline__ double dx_of(const norm_row<double> &r, double dy, double x, double w)
{
    return wn_layernorm_dx_f64(dy * w, x, r.mean, r.rstd, r.c1, r.c2);
}

template <class T, class N>
static __device__ __forceinline__ norm_row<N> norm_row_of(const norm_job<T> &k, const struct wn__lane &l)
{
    const int64_t at = l.row * k.n;
    norm_row<N> r = {0, 0, 0, 0};
    double dot = 0, moment = 0;
    if (l.is_real) {
        r.mean = wn__load(k.mean[l.row]);
        r.rstd = wn__load(k.rstd[l.row]);
        for (int64_t i = l.j; i < k.n; i += WN_LANES) {
            N scaled = k.dy.one(at + i) * wn__load(k.w[i]);
            dot += (double)scaled;
            moment += (double)(scaled * (k.x.one(at + i) - r.mean));
        }
    }
    r.c1 = (N)(wn__join_lanes(dot) / (double)k.n);
    r.c2 = (N)(wn__join_lanes(moment) * (double)r.rstd / (double)k.n);
    return r;
}

template <class T, int V> static __global__ void layernorm_dx(norm_job<T> k)
{
    typedef typename wn__number<T>::type N;
    const struct wn__lane l = wn__lane_of(k.rows);
    const norm_row<N> r = norm_row_of<T, N>(k, l);
    if (!l.is_real) return;
    const int64_t at = l.row * k.n;
    for (int64_t i = l.j * V; i < k.n; i += WN_LANES * V) {
        N dy[V], x[V], w[V], plus[V];
        k.dy.get(at + i, dy);
        k.x.get(at + i, x);
        wn__get(k.w + i, w);
        if (k.plus.x != NULL) k.plus.get(at + i, plus);
        WN_UNROLL
        for (int v = 0; v < V; v++) {
            dy[v] = dx_of(r, dy[v], x[v], w[v]);
            if (k.plus.x != NULL) dy[v] += plus[v];
        }
        k.out.put(at + i, dy);
    }
}

/* ---- layernorm_dw -------------------------------------------------------------------------------- */

/* The terms of V columns of x, of elements of X, and dy, of D, with statistics of T. What is loaded waits as it is, so
 * that loads are under way while others are added. */
template <class T, class X, class D, int V> struct dw_terms {
    typedef typename wn__number<T>::type N;
    struct raw {
        wn__pack<X, V> x;
        wn__pack<D, V> dy;
        T mean, rstd;
    };
    const X *x;
    const D *dy;
    const T *mean, *rstd;
    int64_t n;
    __device__ __forceinline__ raw load(int64_t row) const
    {
        const int64_t at = row * n;
        return {*(const wn__pack<X, V> *)(x + at), *(const wn__pack<D, V> *)(dy + at), mean[row], rstd[row]};
    }
    __device__ __forceinline__ void of(const raw &r, double (&to)[1][V]) const
    {
        WN_UNROLL
        for (int v = 0; v < V; v++) {
            N h = (wn__load(r.x.at[v]) - wn__load(r.mean)) * wn__load(r.rstd);
            to[0][v] = (double)(wn__load(r.dy.at[v]) * h);
        }
    }
};

/* Blocks of LAYERNORM_DW that share a multiprocessor at least: more would spill registers, of two types on sm_120. */
template <class T, class X, class D, int V> struct dw_blocks {
    enum { N = V != 2 || sizeof(T) == 8 ? 1 : sizeof(X) == sizeof(D) ? 3 : 2 };
};

/* Block u adds 32 columns of a part of the rows, columns fastest. */
template <class T, class X, class D, int V>
static __global__ void __launch_bounds__(WN_THREADS, (dw_blocks<T, X, D, V>::N)) layernorm_dw(norm_job<T> k)
{
    typedef typename wn__number<T>::type N;
    const int64_t blocks = (k.n + WN_TILE_COLUMNS - 1) / WN_TILE_COLUMNS, part = blockIdx.x / blocks;
    const int64_t first = blockIdx.x % blocks * WN_TILE_COLUMNS, column = first + threadIdx.x;
    const int64_t mine = first + wn__tile_column<V>(), at = mine < k.n ? mine : first;
    const dw_terms<T, X, D, V> terms = {
        .x = (const X *)k.x.x + at, .dy = (const D *)k.dy.x + at, .mean = k.mean, .rstd = k.rstd, .n = k.n};
    double sum = wn__sum_columns<1, V>(k.rows * part / k.parts, k.rows * (part + 1) / k.parts, terms);
    if (threadIdx.x >= WN_TILE_COLUMNS || column >= k.n) return;
    if (k.partial != NULL) k.partial[part * k.n + column] = sum;
    else put_statistic(k, column, (N)sum);
}

template <class T> static __global__ void join_dw(norm_job<T> k)
{
    typedef typename wn__number<T>::type N;
    int64_t column = wn__thread();
    if (column >= k.n) return;
    double sum = k.partial[column];
    for (int64_t c = 1; c < k.parts; c++) sum += k.partial[c * k.n + column];
    put_statistic(k, column, (N)sum);
}

/* ---- which kernel -------------------------------------------------------------------------------- */

/* Returns where the mean is among the inputs; of ROW_MEAN and ROW_RSTD, where it would be. */
static int32_t mean_of(const struct wn_desc *d)
{
    return d->op == WN_OP_LAYERNORM_DX || d->op == WN_OP_LAYERNORM_DW || d->op == WN_OP_LAYERNORM_DX_ADD ? 2 : 1;
}

template <class T> static norm_job<T> job_of(const struct wn_desc *d, const struct wn_buffers *b)
{
    const int32_t mean = mean_of(d), is_backward = mean - 1;
    const struct wn_type *x = &d->in[is_backward];
    const T *in[6] = {NULL};
    for (int32_t i = 0; i < d->n_in; i++) in[i] = (const T *)b->in[i];
    norm_job<T> k;
    k.dy = wn__reading_of<T>(d, b, is_backward ? 0 : -1);
    k.x = wn__reading_of<T>(d, b, is_backward);
    k.plus = wn__reading_of<T>(d, b, is_backward ? 5 : -1);
    k.mean = in[mean];
    k.rstd = in[mean + 1];
    k.w = in[mean + 2];
    k.b = in[4];
    k.out = wn__writing_of<T>(d, b);
    k.rows = 1;
    k.n = x->dim[x->ndim - 1];
    for (int32_t i = 0; i < x->ndim - 1; i++) k.rows *= x->dim[i];
    k.eps = d->attrs.f[0];
    k.parts = wn__parts_of(k.rows);
    k.partial = k.parts > 1 ? (double *)b->workspace : NULL;
    return k;
}

template <class T, class X, class D> static int32_t start_dw(const norm_job<T> &k, void *stream)
{
    const unsigned blocks = wn__grid((k.n + WN_TILE_COLUMNS - 1) / WN_TILE_COLUMNS * k.parts);
    if (k.n % 2 == 0) LAUNCH_BLOCKS((layernorm_dw<T, X, D, 2>), blocks, stream, k);
    else LAUNCH_BLOCKS((layernorm_dw<T, X, D, 1>), blocks, stream, k);
    if (k.partial != NULL) LAUNCH_EACH((join_dw<T>), k.n, stream, k);
    return wn__cuda_launched();
}

/* Starts LAYERNORM_DW by the types of x and dy. */
template <class T> static int32_t start_dw_of(const norm_job<T> &k, void *stream)
{
    if constexpr (sizeof(T) != 4) return start_dw<T, T, T>(k, stream);
    else if (k.x.is_half && k.dy.is_half) return start_dw<T, wn_bf16, wn_bf16>(k, stream);
    else if (k.x.is_half) return start_dw<T, wn_bf16, T>(k, stream);
    else if (k.dy.is_half) return start_dw<T, T, wn_bf16>(k, stream);
    else return start_dw<T, T, T>(k, stream);
}

template <class T> static int32_t norm(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    norm_job<T> k = job_of<T>(d, b);
    const unsigned blocks = wn__row_blocks(k.rows);
    if (d->op == WN_OP_LAYERNORM_DW) return start_dw_of(k, stream);
    if (k.rows == 0) return WN_OK;
    switch (d->op) {
    case WN_OP_ROW_MEAN: LAUNCH_BLOCKS((row_mean<T>), blocks, stream, k); break;
    case WN_OP_ROW_RSTD: LAUNCH_BLOCKS((row_rstd<T>), blocks, stream, k); break;
    case WN_OP_LAYERNORM: BY_WIDTH(layernorm, T, k.n, blocks, stream, k); break;
    default: BY_WIDTH(layernorm_dx, T, k.n, blocks, stream, k); break;
    }
    return wn__cuda_launched();
}

wn_kernel_fn wn__cuda_norm_kernel(const struct wn_desc *d)
{
    const int32_t has_statistic = d->op != WN_OP_ROW_MEAN && d->op != WN_OP_ROW_RSTD;
    const int32_t dtype = has_statistic ? d->in[mean_of(d)].dtype : d->out.dtype;
    for (int32_t i = 0; i < d->n_in; i++)
        if (d->in[i].dtype != dtype && !(dtype == WN_F32 && d->in[i].dtype == WN_BF16)) return NULL;
    return wn__kernel_of(dtype, norm<float>, norm<double>,
                         d->op == WN_OP_LAYERNORM_DX_ADD ? (wn_kernel_fn)NULL : norm<wn_bf16>);
}
