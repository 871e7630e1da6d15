/* Stores of convolutions, for conv.cu, conv_gemm.cu and conv_mma.cu: they add the bias to whole sums, which are rounded
 * once, and find the element of an output. The op of CONV2D_MAP is applied to the rounded output, and its result is
 * rounded, so elements have the bits of the two nodes. */
#ifndef WN_CUDA_CONV_STORE_CUH
#define WN_CUDA_CONV_STORE_CUH
#include "conv.cuh"

/* Makes outputs, not yet rounded, of V whole sums in a row of the result: adds the bias and applies the op of
 * CONV2D_MAP. element, o: place and channel of the first. V is 1, or divides the columns. */
template <class T, int V>
WN_DEVICE_FN void wn__conv_finish(const struct wn__conv_job &j, int64_t element, int64_t o,
                                  typename wn__number<T>::type (&sum)[V])
{
    typedef typename wn__number<T>::type N;
    N with[V];
    WN_UNROLL
    for (int v = 0; v < V; v++) with[v] = (N)0;
    if (j.bias != NULL) {
        wn__get((const T *)j.bias + o, with);
        WN_UNROLL
        for (int v = 0; v < V; v++) sum[v] = sum[v] + with[v];
    }
    if (!j.has_step) return;
    if (j.other != NULL) wn__get((const T *)j.other + element, with);
    WN_UNROLL
    for (int v = 0; v < V; v++) sum[v] = wn__load(wn__store<T>(sum[v]));
    wn__elementwise_pack<N, V>(j.step, sum, with, sum, element);
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
