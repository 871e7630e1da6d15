/* The broadcast iterator on the device: tells a thread where the operands of its elements are.
 *
 * The host merges the dims that are contiguous in every operand, as kernels/cpu/common/broadcast.c does, so equal
 * shapes are one row, and a scalar operand a row of step 0. Kernels take the iterator by value. A thread computes V
 * elements in a row of the result at once; wn__broadcast_packs says whether they lie in one row of the iterator. */
#ifndef WN_CUDA_BROADCAST_CUH
#define WN_CUDA_BROADCAST_CUH
#include "map.cuh"

/* Returns the iterator over the inputs of an application, aligned at the last dim. Requires n_in <= WN_BROADCAST_MAX.
 * */
static inline struct wn__broadcast wn__broadcast_of(const struct wn_desc *d)
{
    const struct wn_type *in[WN_BROADCAST_MAX];
    struct wn__broadcast w;
    memset(&w, 0, sizeof w);
    for (int32_t k = 0; k < d->n_in; k++) in[k] = &d->in[k];
    wn__broadcast_make(&w, &d->out, d->n_in, in);
    return w;
}

/* Returns whether the V elements of each thread lie in one row, at addresses that are multiples of V elements in every
 * operand that is not broadcast along the row. */
static inline int32_t wn__broadcast_packs(const struct wn__broadcast *w, int64_t v)
{
    return w->ndim == 1 || w->dim[w->ndim - 1] % v == 0;
}

/* Writes the offset of element `at` of the result in each of K operands to offset: (K), in elements. */
template <int K>
WN_DEVICE_FN void wn__broadcast_offsets(const struct wn__broadcast &w, int64_t at, int64_t (&offset)[K])
{
    WN_UNROLL
    for (int k = 0; k < K; k++) offset[k] = 0;
    const bool is_small = w.numel < INT64_C(0x80000000); /* elements are divided as 32 bits */
    int64_t rest = at;
    for (int32_t i = w.ndim - 1; i >= 0; i--) {
        int64_t index = rest;
        if (i > 0) {
            int64_t next = is_small ? (int64_t)((uint32_t)rest / (uint32_t)w.dim[i]) : rest / w.dim[i];
            index = rest - next * w.dim[i];
            rest = next;
        }
        WN_UNROLL
        for (int k = 0; k < K; k++) offset[k] += index * w.step[k][i];
    }
}

/* Returns V elements of operand k from `offset` on: V in a row, or one for all where the row broadcasts it. */
template <class T, int V>
WN_DEVICE_FN wn__pack<T, V> wn__broadcast_pack(const struct wn__broadcast &w, int k, const T *x, int64_t offset)
{
    wn__pack<T, V> p;
    bool in_a_row = V == 1 || w.step[k][w.ndim - 1] != 0;
    if (in_a_row) p = *(const wn__pack<T, V> *)(x + offset);
    else {
        WN_UNROLL
        for (int v = 0; v < V; v++) p.at[v] = x[offset];
    }
    return p;
}

/* Loads the V elements of operand k that wn__broadcast_pack returns as numbers. */
template <class T, int V>
WN_DEVICE_FN void wn__broadcast_get(const struct wn__broadcast &w, int k, const T *x, int64_t offset,
                                    typename wn__number<T>::type (&to)[V])
{
    wn__pack<T, V> p = wn__broadcast_pack<T, V>(w, k, x, offset);
    WN_UNROLL
    for (int v = 0; v < V; v++) to[v] = wn__load(p.at[v]);
}
#endif
