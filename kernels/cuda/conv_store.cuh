/* Stores of convolutions, for conv.cu, conv_gemm.cu and conv_mma.cu: they add the bias to whole sums, which are rounded
 * once, and find the element of an output. The norm and each step of CONV2D_MAP are applied to the rounded value
 * before, and their result is rounded, so elements have the bits of the separate nodes. */
#ifndef WN_CUDA_CONV_STORE_CUH
#define WN_CUDA_CONV_STORE_CUH
#include "conv.cuh"

/* Rounds V numbers to elements of T. */
template <class T, int V> WN_DEVICE_FN void wn__conv_round(typename wn__number<T>::type (&y)[V])
{
    WN_UNROLL
    for (int v = 0; v < V; v++) y[v] = wn__load(wn__store<T>(y[v]));
}

/* Applies the batch norm of CONV2D_MAP to V rounded outputs from channel o on. */
template <class T, int V>
WN_DEVICE_FN void wn__conv_norm(const struct wn__conv_job &j, int64_t o, typename wn__number<T>::type (&y)[V])
{
    const T *mean = (const T *)j.norm[0] + o, *rstd = (const T *)j.norm[1] + o;
    const T *weight = (const T *)j.norm[2] + o, *bias = (const T *)j.norm[3] + o;
    WN_UNROLL
    for (int v = 0; v < V; v++) {
        y[v] = wn_layernorm(y[v], wn__load(mean[v]), wn__load(rstd[v]), wn__load(weight[v]), wn__load(bias[v]));
    }
}

/* Applies step s of CONV2D_MAP to V rounded outputs. */
template <class T, int V>
WN_DEVICE_FN void wn__conv_step(const struct wn__conv_job &j, int32_t s, int64_t element,
                                typename wn__number<T>::type (&y)[V])
{
    typedef typename wn__number<T>::type N;
    N a[V], b[V];
    const bool is_first = j.operand[s][0] != 0, is_second = j.operand[s][1] != 0;
    WN_UNROLL
    for (int v = 0; v < V; v++) b[v] = y[v];
    if (is_first || is_second) wn__get((const T *)j.image + element, b);
    WN_UNROLL
    for (int v = 0; v < V; v++) {
        a[v] = is_first ? b[v] : y[v];
        b[v] = is_second ? b[v] : y[v];
    }
    wn__elementwise_pack<N, V>(j.step[s], a, b, y, element);
}

/* Makes outputs, not yet rounded, of V whole sums in a row of the result: adds the bias and, with IS_MAP, applies what
 * CONV2D_MAP has over the convolution. That takes registers, so kernels of tiles are compiled with it and without.
 * element, o: place and channel of the first. V is 1, or divides the columns. */
template <class T, int V, bool IS_MAP>
WN_DEVICE_FN void wn__conv_finish(const struct wn__conv_job &j, int64_t element, int64_t o,
                                  typename wn__number<T>::type (&sum)[V])
{
    if (j.bias != NULL) {
        typename wn__number<T>::type bias[V];
        wn__get((const T *)j.bias + o, bias);
        WN_UNROLL
        for (int v = 0; v < V; v++) sum[v] = sum[v] + bias[v];
    }
    if (!IS_MAP) return;
    if (j.norm[0] != NULL) {
        wn__conv_round<T, V>(sum);
        wn__conv_norm<T, V>(j, o, sum);
    }
    WN_ROLLED
    for (int32_t s = 0; s < j.steps; s++) {
        wn__conv_round<T, V>(sum);
        wn__conv_step<T, V>(j, s, element, sum);
    }
}

/* Returns whether something is over a convolution. */
static inline bool wn__conv_is_map(const struct wn__conv_job &j)
{
    return j.norm[0] != NULL || j.steps > 0;
}

/* Rounds and stores V outputs of CONV2D, CONV2D_DX or CONV2D_MAP; element, o, V and IS_MAP as above. */
template <class T, int V, bool IS_MAP>
WN_DEVICE_FN void wn__conv_put(const struct wn__conv_job &j, int64_t element, int64_t o,
                               typename wn__number<T>::type (&sum)[V])
{
    wn__conv_finish<T, V, IS_MAP>(j, element, o, sum);
    wn__put((T *)j.out + element, sum);
}

/* Stores an output of CONV2D_DW, or the sum of a part. o, column: its row and column in the product of all groups. */
template <class T>
WN_DEVICE_FN void wn__conv_put_weight(const struct wn__conv_job &j, int64_t part, int64_t o, int64_t column,
                                      typename wn__number<T>::type sum)
{
    typedef typename wn__number<T>::type N;
    if (j.sums != NULL) {
        ((N *)j.sums)[(part * j.c.w.o + o) * j.c.columns + column] = sum;
        return;
    }
    const int64_t place = wn__quotient(column, j.c.ci);
    ((T *)j.out)[wn__conv_weight_at(j.c, o, column - place * j.c.ci, place)] = wn__store<T>(sum);
}

/* Return the kernels of products by tiles: of numbers (conv_gemm.cu), and of bf16 by tensor cores, false where the
 * shape is not for them (conv_mma.cu). */
template <class T> int32_t wn__conv_gemm(const struct wn__conv_job &j, void *stream);
bool wn__conv_mma(const struct wn__conv_job &j, void *stream, int32_t *status);
#endif
