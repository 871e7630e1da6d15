/* A pass over n elements that lie in a row: a thread computes V of them at once, so that its loads and stores move up
 * to 16 bytes; the thread at the end computes the rest one by one. What a thread computes is a struct of its operands:
 *
 *     struct negate {
 *         enum { V = 4 };
 *         const float *x;
 *         float *y;
 *         template <int N> __device__ void run(int64_t at) const    computes elements [at, at + N), N = V or 1
 *         {
 *             float v[N];
 *             wn__get(x + at, v);
 *             for (int i = 0; i < N; i++) v[i] = -v[i];
 *             wn__put(y + at, v);
 *         }
 *     };
 *     return wn__map_start(negate{x, y}, n, stream);
 *
 * A thread loads all its operands before it stores, so a result may lie where an operand of the same type lies. Such
 * structs have external linkage: each needs a name that no other file uses. */
#ifndef WN_CUDA_MAP_CUH
#define WN_CUDA_MAP_CUH
#include "scalar.cuh"

/* Loads V elements as numbers. x must be a multiple of their bytes. */
template <class T, int V> WN_DEVICE_FN void wn__get(const T *x, typename wn__number<T>::type (&to)[V])
{
    wn__pack<T, V> p = *(const wn__pack<T, V> *)x;
    WN_UNROLL
    for (int v = 0; v < V; v++) to[v] = wn__load(p.at[v]);
}

/* Rounds V numbers to elements and stores them. y must be a multiple of their bytes. */
template <class T, int V> WN_DEVICE_FN void wn__put(T *y, const typename wn__number<T>::type (&from)[V])
{
    wn__pack<T, V> p;
    WN_UNROLL
    for (int v = 0; v < V; v++) p.at[v] = wn__store<T>(from[v]);
    *(wn__pack<T, V> *)y = p;
}

template <class F> static __global__ void wn__map(F f, int64_t n)
{
    int64_t at = wn__thread() * F::V;
    if (at + F::V <= n) f.template run<F::V>(at);
    else
        for (; at < n; at++) f.template run<1>(at);
}

/* Starts the pass over n elements. Returns the status of the launch. */
template <class F> static int32_t wn__map_start(const F &f, int64_t n, void *stream)
{
    if (n == 0) return WN_OK;
    LAUNCH_BLOCKS((wn__map<F>), wn__blocks(n, (int64_t)WN_THREADS * F::V), stream, f, n);
    return wn__cuda_launched();
}
#endif
