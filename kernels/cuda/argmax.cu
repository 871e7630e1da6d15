/* ARGMAX: x: (outer, n, inner) -> (outer, inner), the 0-based index along n of the first maximum; a NaN counts as
 * maximum, the first one. That names one element, so the result is the CPU's whatever the order.
 *
 * inner = 1: a warp has a row, a block where the row is long. Else a block has 32 outputs, lane t output t, and its
 * warp w the elements w, w + 8, w + 16 of each: neighbours read neighbours. */
#include "block.cuh"

enum { WARPS = WN_THREADS / 32, LONG_ROW = 2048 };

template <class T> struct argmax_job {
    const T *x;   /* (outer, n, inner) */
    int32_t *out; /* (outer, inner) */
    struct wn__axis axis;
};

/* An element and its index. */
template <class N> struct candidate {
    N value;
    int32_t at;
};

/* Returns the candidate that wins. */
template <class N> static __device__ __forceinline__ candidate<N> winner(candidate<N> a, candidate<N> b)
{
    bool is_odd_a = a.value != a.value, is_odd_b = b.value != b.value;
    bool is_tie = a.value == b.value || (is_odd_a && is_odd_b);
    bool wins = is_tie ? b.at < a.at : b.value > a.value || (is_odd_b && !is_odd_a);
    return wins ? b : a;
}

/* Returns the winner among the elements begin, begin + by, .. below n, and element 0; element i is at x[i * step]. */
template <class T, class N = typename wn__number<T>::type>
static __device__ __forceinline__ candidate<N> winner_of(const T *x, int64_t step, int64_t n, int begin, int by)
{
    candidate<N> best = {wn__load(x[0]), 0};
    for (int64_t i = begin; i < n; i += by) {
        candidate<N> next = {wn__load(x[i * step]), (int32_t)i};
        best = winner(best, next);
    }
    return best;
}

/* ---- rows ---------------------------------------------------------------------------------------- */

/* Returns the winner of 32 threads to each. */
template <class N> static __device__ __forceinline__ candidate<N> winner_of_warp(candidate<N> best)
{
    for (int w = 16; w > 0; w /= 2) {
        candidate<N> other;
        other.value = (N)__shfl_xor_sync(0xffffffffu, best.value, w);
        other.at = __shfl_xor_sync(0xffffffffu, best.at, w);
        best = winner(best, other);
    }
    return best;
}

template <class T> static __global__ void argmax_rows(argmax_job<T> j)
{
    int64_t row = wn__thread() / 32;
    int lane = (int)threadIdx.x % 32;
    if (row >= j.axis.outer) return; /* the whole warp */
    auto best = winner_of_warp(winner_of(j.x + row * j.axis.n, 1, j.axis.n, lane, 32));
    if (lane == 0) j.out[row] = best.at;
}

template <class T> static __global__ void argmax_long_rows(argmax_job<T> j)
{
    typedef typename wn__number<T>::type N;
    __shared__ candidate<N> of_warp[WARPS];
    const int64_t row = blockIdx.x;
    candidate<N> best = winner_of_warp(winner_of(j.x + row * j.axis.n, 1, j.axis.n, (int)threadIdx.x, WN_THREADS));
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = best;
    __syncthreads();
    if (threadIdx.x != 0) return;
    for (int k = 1; k < WARPS; k++) best = winner(best, of_warp[k]);
    j.out[row] = best.at;
}

/* ---- columns ------------------------------------------------------------------------------------- */

template <class T> static __global__ void argmax_columns(argmax_job<T> j)
{
    typedef typename wn__number<T>::type N;
    __shared__ candidate<N> of_warp[WARPS][32];
    const int64_t inner = j.axis.inner, outputs = j.axis.outer * inner;
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    const int64_t own = (int64_t)blockIdx.x * 32 + lane, output = own < outputs ? own : outputs - 1;
    const T *x = j.x + output / inner * j.axis.n * inner + output % inner;
    candidate<N> best = winner_of(x, inner, j.axis.n, warp, WARPS);
    of_warp[warp][lane] = best;
    __syncthreads();
    if (warp != 0 || own >= outputs) return;
    for (int k = 1; k < WARPS; k++) best = winner(best, of_warp[k][lane]);
    j.out[output] = best.at;
}

/* ---- which kernel -------------------------------------------------------------------------------- */

template <class T> static int32_t argmax(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    const argmax_job<T> j = {(const T *)b->in[0], (int32_t *)b->out, wn__axis_of(&d->in[0], d->attrs.i[0])};
    const int64_t outputs = j.axis.outer * j.axis.inner;
    if (outputs == 0) return WN_OK;
    if (j.axis.inner != 1) LAUNCH_BLOCKS((argmax_columns<T>), wn__blocks(outputs, 32), stream, j);
    else if (j.axis.n > LONG_ROW) LAUNCH_BLOCKS((argmax_long_rows<T>), wn__grid(outputs), stream, j);
    else LAUNCH_BLOCKS((argmax_rows<T>), wn__blocks(outputs, WARPS), stream, j);
    return wn__cuda_launched();
}

wn_kernel_fn wn__cuda_argmax_kernel(const struct wn_desc *d)
{
    if (d->out.dtype != WN_I32) return NULL;
    return wn__kernel_of(d->in[0].dtype, argmax<float>, argmax<double>, argmax<wn_bf16>, argmax<int32_t>,
                         argmax<uint8_t>);
}
