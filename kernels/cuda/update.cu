/* Effects: ASSIGN, ACCUMULATE, the optimizers, RUNNING_MEAN, RUNNING_VAR (runtime/ops/update.c has the formulas), with
 * the CPU's bits.
 *
 * A thread steps the elements of 16 bytes. Constants are made of the optimizer's numbers once a block, by one thread,
 * in shared memory. bf16 is computed as f32, and every cell is rounded once a step. Cells of f32 take a gradient of
 * bf16 too, where a cast was taken in (plan/ir/casts.c). */
#include "update.cuh"

static int32_t assign(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    int64_t bytes = wn__bytes(&d->in[0]);
    if (bytes == 0) return WN_OK;
    if (cudaMemcpyAsync(b->cell[0], b->in[0], (size_t)bytes, cudaMemcpyDeviceToDevice, (cudaStream_t)stream) !=
        cudaSuccess)
        return wn__cuda_launched();
    return WN_OK;
}

/* Steps elements [at, at + V). G: the elements of the gradient. */
template <int OP, class T, int V, class G, class N>
static __device__ __forceinline__ void step(const wn__update_job<T> &u, const wn__constants<N> &c, const G *grad,
                                            int64_t at)
{
    N g[V];
    wn__get(grad + at, g);
    wn__update_pack<OP>(u, c, at, g);
}

template <int OP, class T, class G>
static __global__ void update_elements(wn__update_job<T> u, const G *grad, int64_t n)
{
    const int V = wn__wide<T>::N;
    __shared__ wn__constants<typename wn__number<T>::type> c;
    wn__constants_fill<OP>(&c, u.hyper);
    int64_t at = wn__thread() * V;
    if (at + V <= n) step<OP, T, V>(u, c, grad, at);
    else
        for (; at < n; at++) step<OP, T, 1>(u, c, grad, at);
}

template <int OP, class T, class G = T>
static int32_t start(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    const int64_t n = wn__numel(&d->in[0]);
    const wn__update_job<T> u = wn__update_job_of<OP, T>(b, d->n_in > 1 ? b->in[1] : NULL);
    if (n == 0) return WN_OK;
    LAUNCH_BLOCKS((update_elements<OP, T, G>), wn__blocks(n, (int64_t)WN_THREADS * wn__wide<T>::N), stream, u,
                  (const G *)b->in[0], n);
    return wn__cuda_launched();
}

/* Returns the kernel of an op by the dtypes of the gradient and of the cells; NULL for one that no float is. */
template <int OP> static wn_kernel_fn of_float(int32_t dtype, int32_t cells)
{
    if (dtype == WN_BF16 && cells == WN_F32) return start<OP, float, wn_bf16>;
    return wn__kernel_of(dtype, start<OP, float>, start<OP, double>, start<OP, wn_bf16>);
}

/* A statistic of n channels that a buffer follows: RUNNING_MEAN or RUNNING_VAR. */
template <class T> struct following {
    const T *value;
    T *cell;
    int64_t n;
    double momentum, eps, share; /* share: n / (n - 1) of the batch */
};

template <class T, int IS_VAR> static __global__ void follow(following<T> f)
{
    typedef typename wn__number<T>::type N;
    int64_t i = wn__thread();
    if (i >= f.n) return;
    double c = (double)wn__load(f.cell[i]), v = (double)wn__load(f.value[i]);
    c = IS_VAR ? wn_running_var(c, v, f.momentum, f.eps, f.share) : wn_running_mean(c, v, f.momentum);
    f.cell[i] = wn__store<T>((N)c);
}

template <class T, int IS_VAR>
static int32_t start_follow(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    double n = (double)d->attrs.i[0];
    int64_t rows = wn__running_rows(&d->attrs, &d->in[0]);
    following<T> f = {.value = (const T *)b->in[0],
                      .cell = (T *)b->cell[0],
                      .n = wn__numel(&d->in[0]) / rows,
                      .momentum = d->attrs.f[0],
                      .eps = d->attrs.f[1],
                      .share = n / (n - 1)};
    for (int64_t k = 0; k < rows; k++) {
        f.value = (const T *)b->in[0] + wn__running_row(&d->attrs, k) * f.n;
        LAUNCH_EACH((follow<T, IS_VAR>), f.n, stream, f);
    }
    return wn__cuda_launched();
}

template <int IS_VAR> static wn_kernel_fn follow_of(int32_t dtype)
{
    return wn__kernel_of(dtype, start_follow<float, IS_VAR>, start_follow<double, IS_VAR>,
                         start_follow<wn_bf16, IS_VAR>);
}

template <class T, class P> static __global__ void add_piece(T *cell, const P *piece, int64_t n, int is_new)
{
    int64_t i = wn__thread();
    if (i < n) cell[i] = wn__store<T>(is_new ? wn__load(piece[i]) : wn_add(wn__load(cell[i]), wn__load(piece[i])));
}

/* Adds piece after piece to a sum, or to the own range of a cell, as ACCUMULATE adds each of them; pieces of bf16 to
 * one of f32, as if each had been cast before. Pieces of an odd length are not aligned: a thread adds one element. */
template <class T, class P> static int32_t sum_pieces(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    const int32_t is_cell = d->op == WN_OP_ORDERED_SUM;
    const int64_t n = d->in[0].dim[1];
    T *sum = is_cell ? (T *)b->cell[0] : (T *)b->out;
    int is_new = is_cell ? d->attrs.f[0] == 1 : d->n_in == 1;
    if (!is_cell && d->n_in > 1 && b->in[1] != b->out)
        (void)cudaMemcpyAsync(b->out, b->in[1], (size_t)wn__bytes(&d->out), cudaMemcpyDeviceToDevice,
                              (cudaStream_t)stream);
    for (int64_t k = 0; k < d->in[0].dim[0] && n > 0; k++, is_new = 0)
        LAUNCH_EACH((add_piece<T, P>), n, stream, sum, (const P *)b->in[0] + k * n, n, is_new);
    return wn__cuda_launched();
}

static wn_kernel_fn sum_pieces_of(const struct wn_desc *d)
{
    if (d->out.dtype != d->in[0].dtype) return sum_pieces<float, wn_bf16>;
    return wn__kernel_of(d->out.dtype, sum_pieces<float, float>, sum_pieces<double, double>,
                         sum_pieces<wn_bf16, wn_bf16>);
}

wn_kernel_fn wn__cuda_update_kernel(const struct wn_desc *d)
{
    int32_t dtype = d->in[0].dtype;
    switch (d->op) {
    case WN_OP_ASSIGN: return assign;
    case WN_OP_ACCUMULATE:
        return dtype == WN_I32 ? start<WN_OP_ACCUMULATE, int32_t> : of_float<WN_OP_ACCUMULATE>(dtype, d->out.dtype);
#define OF_FLOAT(NAME, name, n)                                                                                        \
    case WN_OP_##NAME: return of_float<WN_OP_##NAME>(dtype, d->out.dtype);
        WN_OPTIMIZERS(OF_FLOAT)
#undef OF_FLOAT
    case WN_OP_ORDERED_SUM:
    case WN_OP_PARTIAL_SUM: return sum_pieces_of(d);
    case WN_OP_RUNNING_MEAN: return follow_of<0>(dtype);
    case WN_OP_RUNNING_VAR: return follow_of<1>(dtype);
    default: return NULL;
    }
}
