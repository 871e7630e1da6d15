/* Effects: ASSIGN, ACCUMULATE, SGD, MOMENTUM, ADAM, RMSPROP, RMSPROP_MOMENTUM, RMSPROP_CENTERED, LION,
 * RUNNING_MEAN, RUNNING_VAR (runtime/ops/update.c has the formulas), with the CPU's bits.
 *
 * A thread steps the elements of 16 bytes. Scalars are made of the optimizer's numbers once a block, by one thread, in
 * shared memory. bf16 is computed as f32, and every cell is rounded once a step. */
#include "map.cuh"
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

/* One update of n elements. */
template <class T> struct job {
    const T *grad;
    T *cell[3];
    const void *hyper;
    int32_t is_f64; /* the numbers of hyper are */
    int64_t n;
};

/* Steps elements [at, at + V). */
template <int OP, class T, int V>
static __device__ __forceinline__ void step(const job<T> &j, const wn__rule<typename wn__number<T>::type> &r,
                                            int64_t at)
{
    typedef typename wn__number<T>::type N;
    const int cells = wn__rule_cells(OP);
    N grad[V], old[cells][V];
    wn__get(j.grad + at, grad);
    WN_UNROLL
    for (int c = 0; c < cells; c++) wn__get(j.cell[c] + at, old[c]);
    WN_UNROLL
    for (int v = 0; v < V; v++) {
        N cell[3];
        WN_UNROLL
        for (int c = 0; c < cells; c++) cell[c] = old[c][v];
        wn__rule_step<OP>(r, grad[v], cell);
        WN_UNROLL
        for (int c = 0; c < cells; c++) old[c][v] = cell[c];
    }
    WN_UNROLL
    for (int c = 0; c < cells; c++) wn__put(j.cell[c] + at, old[c]);
}

template <int OP, class T> static __global__ void update_elements(job<T> j)
{
    typedef typename wn__number<T>::type N;
    const int V = wn__wide<T>::N;
    __shared__ wn__rule<N> rule;
    if constexpr (OP != WN_OP_ACCUMULATE)
        if (threadIdx.x == 0) wn__rule_fill<OP>(&rule, j.hyper, j.is_f64);
    __syncthreads();
    int64_t at = wn__thread() * V;
    if (at + V <= j.n) step<OP, T, V>(j, rule, at);
    else
        for (; at < j.n; at++) step<OP, T, 1>(j, rule, at);
}

template <int OP, class T> static int32_t start(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    job<T> j = {(const T *)b->in[0], {NULL, NULL, NULL}, NULL, 0, wn__numel(&d->in[0])};
    if (j.n == 0) return WN_OK;
    for (int c = 0; c < wn__rule_cells(OP); c++) j.cell[c] = (T *)b->cell[c];
    if (d->n_in > 1) {
        j.hyper = b->in[1];
        j.is_f64 = d->in[1].dtype == WN_F64;
    }
    LAUNCH((update_elements<OP, T>), wn__blocks(j.n, (int64_t)WN_THREADS * wn__wide<T>::N), WN_THREADS, 0, stream, j);
    return wn__cuda_launched();
}

/* Returns the kernel of an op by dtype; NULL for one that no float is. */
template <int OP> static wn_kernel_fn of_float(int32_t dtype)
{
    switch (dtype) {
    case WN_F32: return start<OP, float>;
    case WN_F64: return start<OP, double>;
    case WN_BF16: return start<OP, wn_bf16>;
    default: return NULL;
    }
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
    following<T> f = {(const T *)b->in[0], (T *)b->cell[0], wn__numel(&d->in[0]),
                      d->attrs.f[0],       d->attrs.f[1],   n / (n - 1)};
    LAUNCH((follow<T, IS_VAR>), wn__blocks(f.n, WN_THREADS), WN_THREADS, 0, stream, f);
    return wn__cuda_launched();
}

template <int IS_VAR> static wn_kernel_fn follow_of(int32_t dtype)
{
    switch (dtype) {
    case WN_F32: return start_follow<float, IS_VAR>;
    case WN_F64: return start_follow<double, IS_VAR>;
    case WN_BF16: return start_follow<wn_bf16, IS_VAR>;
    default: return NULL;
    }
}

wn_kernel_fn wn__cuda_update_kernel(const struct wn_desc *d)
{
    int32_t dtype = d->in[0].dtype;
    if (d->n_in > 1 && d->in[1].dtype != WN_F64 && d->in[1].dtype != WN_F32) return NULL;
    switch (d->op) {
    case WN_OP_ASSIGN: return assign;
    case WN_OP_ACCUMULATE:
        return dtype == WN_I32 ? start<WN_OP_ACCUMULATE, int32_t> : of_float<WN_OP_ACCUMULATE>(dtype);
    case WN_OP_SGD: return of_float<WN_OP_SGD>(dtype);
    case WN_OP_MOMENTUM: return of_float<WN_OP_MOMENTUM>(dtype);
    case WN_OP_ADAM: return of_float<WN_OP_ADAM>(dtype);
    case WN_OP_RMSPROP: return of_float<WN_OP_RMSPROP>(dtype);
    case WN_OP_RMSPROP_MOMENTUM: return of_float<WN_OP_RMSPROP_MOMENTUM>(dtype);
    case WN_OP_RMSPROP_CENTERED: return of_float<WN_OP_RMSPROP_CENTERED>(dtype);
    case WN_OP_LION: return of_float<WN_OP_LION>(dtype);
    case WN_OP_RUNNING_MEAN: return follow_of<0>(dtype);
    case WN_OP_RUNNING_VAR: return follow_of<1>(dtype);
    default: return NULL;
    }
}
