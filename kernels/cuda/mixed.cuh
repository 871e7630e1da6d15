/* Values that a kernel of T reads or writes. Those of f32 may be bf16 instead, where a cast was taken in
 * (plan/ir/casts.c): they are widened as they are loaded and rounded as they are stored, by one branch that all threads
 * take alike. Others are what T says. */
#ifndef WN_CUDA_MIXED_CUH
#define WN_CUDA_MIXED_CUH
#include "map.cuh"

template <class T> struct wn__reading {
    typedef typename wn__number<T>::type N;
    const void *x;
    int32_t is_half;

    /* Loads V elements from element `at` on, which lies on their bytes. */
    template <int V> __device__ __forceinline__ void get(int64_t at, N (&to)[V]) const
    {
        wn__get((const T *)x + at, to);
    }
    __device__ __forceinline__ N one(int64_t at) const
    {
        return wn__load(((const T *)x)[at]);
    }
};
template <> template <int V> __device__ __forceinline__ void wn__reading<float>::get(int64_t at, float (&to)[V]) const
{
    if (is_half) wn__get((const wn_bf16 *)x + at, to);
    else wn__get((const float *)x + at, to);
}
template <> __device__ __forceinline__ float wn__reading<float>::one(int64_t at) const
{
    return is_half ? wn__load(((const wn_bf16 *)x)[at]) : ((const float *)x)[at];
}

template <class T> struct wn__writing {
    typedef typename wn__number<T>::type N;
    void *x;
    int32_t is_half;

    /* Rounds V numbers and stores them from element `at` on, which lies on their bytes. */
    template <int V> __device__ __forceinline__ void put(int64_t at, const N (&from)[V]) const
    {
        wn__put((T *)x + at, from);
    }
};
template <>
template <int V>
__device__ __forceinline__ void wn__writing<float>::put(int64_t at, const float (&from)[V]) const
{
    if (is_half) wn__put((wn_bf16 *)x + at, from);
    else wn__put((float *)x + at, from);
}

/* Returns how input i of an application of T is read; where there is none, a value that is not read. */
template <class T>
static inline wn__reading<T> wn__reading_of(const struct wn_desc *d, const struct wn_buffers *b, int32_t i)
{
    const bool is_there = i >= 0 && i < d->n_in;
    return {is_there ? b->in[i] : NULL, is_there && d->in[i].dtype == WN_BF16};
}

/* Returns how the result is written. */
template <class T> static inline wn__writing<T> wn__writing_of(const struct wn_desc *d, const struct wn_buffers *b)
{
    return {b->out, d->out.dtype == WN_BF16};
}
#endif
