/* DROPOUT, which is its own gradient, with the CPU's bits: y[e] = word(seed, counter, e) < floor((1 - p) 2^32) ?
 * x[e] / (1 - p) : 0, with threshold and scale of kernels/scalar.h. A thread draws the Philox words of whole quads. */
#include "elementwise.cuh"
#include "map.cuh"

template <class T> struct dropout_elements {
    enum { V = sizeof(T) == 2 ? 8 : 4 };
    struct wn__step step;
    const T *x;
    T *out;
    template <int M> __device__ __forceinline__ void run(int64_t at) const
    {
        typename wn__number<T>::type v[M];
        wn__get(x + at, v);
        wn__dropout_pack(step, v, v, at);
        wn__put(out + at, v);
    }
};

template <class T> static int32_t dropout_start(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    struct dropout_elements<T> f = {
        wn__step_of(d->op, d->out.dtype, d->attrs.f, b->random), (const T *)b->in[0], (T *)b->out
    };
    return wn__map_start(f, wn__numel(&d->out), stream);
}

wn_kernel_fn wn__cuda_dropout_kernel(const struct wn_desc *d)
{
    if (d->in[0].dtype != d->out.dtype) return NULL;
    return wn__kernel_of(d->out.dtype, dropout_start<float>, dropout_start<double>, dropout_start<wn_bf16>);
}
