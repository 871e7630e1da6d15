/* Elements of each dtype in CUDA's kernels: how they lie in memory, what they compute as, and which kernel of a
 * template an application gets.
 *
 *     template <class T> static __global__ void negate(const T *x, T *y, int64_t n)
 *     {
 *         int64_t i = wn__thread();
 *         if (i < n) y[i] = wn__store<T>(-wn__load(x[i]));
 *     }
 */
#ifndef WN_CUDA_ELEMENT_CUH
#define WN_CUDA_ELEMENT_CUH
#include "launch.cuh"

/* A bf16 in memory: the upper half of an f32. Kernels compute on it as f32 and round once. */
struct wn_bf16 {
    uint16_t bits;
};

/* wn__number<T>::type is what an element of T computes as. */
template <class T> struct wn__number {
    typedef T type;
};
template <> struct wn__number<wn_bf16> {
    typedef float type;
};

/* Return the number of an element. */
template <class T> static __device__ __forceinline__ T wn__load(T x)
{
    return x;
}
static __device__ __forceinline__ float wn__load(wn_bf16 x)
{
    return wn_from_bf16(x.bits);
}

template <class T> struct wn__rounded {
    static __device__ __forceinline__ T of(T x)
    {
        return x;
    }
};
template <> struct wn__rounded<wn_bf16> {
    static __device__ __forceinline__ wn_bf16 of(float x)
    {
        wn_bf16 half;
        half.bits = wn_to_bf16(x);
        return half;
    }
};
/* Returns the element of a number, rounded once to T. */
template <class T> static __device__ __forceinline__ T wn__store(typename wn__number<T>::type x)
{
    return wn__rounded<T>::of(x);
}

/* Returns the kernel of a dtype among those given; NULL: there is none. */
static inline wn_kernel_fn wn__kernel_of(int32_t dtype, wn_kernel_fn f32, wn_kernel_fn f64, wn_kernel_fn bf16,
                                         wn_kernel_fn i32 = NULL, wn_kernel_fn u8 = NULL)
{
    switch (dtype) {
    case WN_F32: return f32;
    case WN_F64: return f64;
    case WN_BF16: return bf16;
    case WN_I32: return i32;
    case WN_U8: return u8;
    default: return NULL;
    }
}

/* Returns whether all inputs have the dtype of the result. */
static inline bool wn__has_one_dtype(const struct wn_desc *d)
{
    for (int32_t i = 0; i < d->n_in; i++)
        if (d->in[i].dtype != d->out.dtype) return false;
    return true;
}

/* N elements that are loaded and stored at once, at an address that is a multiple of their bytes. */
template <class T, int N> struct __align__(sizeof(T) * N) wn__pack
{
    T at[N];
};
/* Elements of T in 16 bytes, the most that one load moves. */
template <class T> struct wn__wide {
    enum { N = 16 / sizeof(T) };
};
#endif
