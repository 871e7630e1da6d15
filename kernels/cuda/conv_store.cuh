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
    typename wn__number<T>::type mean[V], rstd[V], weight[V], bias[V];
    wn__get((const T *)j.norm[0] + o, mean);
    wn__get((const T *)j.norm[1] + o, rstd);
    wn__get((const T *)j.norm[2] + o, weight);
    wn__get((const T *)j.norm[3] + o, bias);
    WN_UNROLL
    for (int v = 0; v < V; v++) y[v] = wn_layernorm(y[v], mean[v], rstd[v], weight[v], bias[v]);
}

/* Makes outputs, not yet rounded, of V whole sums in a row of the result: adds the bias and applies what CONV2D_MAP has
 * over the convolution. element, o: place and channel of the first. V is 1, or divides the columns. */
template <class T, int V>
WN_DEVICE_FN void wn__conv_finish(const struct wn__conv_job &j, int64_t element, int64_t o,
                                  typename wn__number<T>::type (&sum)[V])
{
    typedef typename wn__number<T>::type N;
    N image[V];
    WN_UNROLL
    for (int v = 0; v < V; v++) image[v] = (N)0;
    if (j.bias != NULL) {
        wn__get((const T *)j.bias + o, image);
        WN_UNROLL
        for (int v = 0; v < V; v++) sum[v] = sum[v] + image[v];
    }
    if (j.norm[0] != NULL) {
        wn__conv_round<T, V>(sum);
        wn__conv_norm<T, V>(j, o, sum);
    }
    if (j.image != NULL) wn__get((const T *)j.image + element, image);
    WN_ROLLED
    for (int32_t s = 0; s < j.steps; s++) {
        N a[V], b[V];
        wn__conv_round<T, V>(sum);
        WN_UNROLL
        for (int v = 0; v < V; v++) {
            a[v] = j.operand[s][0] ? image[v] : sum[v];
            b[v] = j.operand[s][1] ? image[v] : sum[v];
        }
        wn__elementwise_pack<N, V>(j.step[s], a, b, sum, element);
    }
}

/* Rounds and stores V outputs of CONV2D, CONV2D_DX or CONV2D_MAP; element, o and V as above. */
template <class T, int V>
WN_DEVICE_FN void wn__conv_put(const struct wn__conv_job &j, int64_t element, int64_t o,
                               typename wn__number<T>::type (&sum)[V])
{
    wn__conv_finish<T, V>(j, element, o, sum);
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
