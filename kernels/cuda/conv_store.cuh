/* Stores of convolutions, for conv_gemm.cu and conv_mma.cu: they add the bias to whole sums, which are rounded once,
 * and find the element of an output. */
#ifndef WN_CUDA_CONV_STORE_CUH
#define WN_CUDA_CONV_STORE_CUH
#include "conv.cuh"

/* Adds the bias to V whole sums in a row of the result; o: the channel of the first. V is 1, or divides the columns. */
template <class T, int V>
WN_DEVICE_FN void wn__conv_add_bias(const struct wn__conv_job &j, int64_t o, typename wn__number<T>::type (&sum)[V])
{
    typename wn__number<T>::type bias[V];
    if (j.bias == NULL) return;
    wn__get((const T *)j.bias + o, bias);
    WN_UNROLL
    for (int v = 0; v < V; v++) sum[v] = sum[v] + bias[v];
}

/* Rounds and stores V outputs of CONV2D or CONV2D_DX, from `element` on; o and V as above. */
template <class T, int V>
WN_DEVICE_FN void wn__conv_put(const struct wn__conv_job &j, int64_t element, int64_t o,
                               typename wn__number<T>::type (&sum)[V])
{
    wn__conv_add_bias<T, V>(j, o, sum);
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
