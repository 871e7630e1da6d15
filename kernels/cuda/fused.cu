/* ELEMENTWISE: up to 6 elementwise steps over up to 4 broadcast operands, with the bits of the separate ops: bf16 is
 * rounded after each step.
 *
 * A thread computes a pack of 16 bytes. Its operands and the results of its steps wait in shared memory, a pack each:
 *
 *     slot      0 .. n_in - 1   n_in .. n_in + n - 2
 *               inputs          results of the steps but the last      each (WN_THREADS) packs
 *
 * A step names its operands by slot, which registers could not be found by. No thread reads another's packs, so nothing
 * waits. All inputs are loaded before the result is stored, so the op may run in place. */
#include "broadcast.cuh"
#include "elementwise.cuh"
extern "C" {
#include "../../runtime/base/type.h"
}

/* One fused elementwise op. */
struct fused_call {
    struct wn__step step[WN_FUSED_STEPS];
    int32_t slot[WN_FUSED_STEPS][2]; /* of the operands of a step; the second is -1 where it has one */
    int32_t n;                       /* steps */
    struct wn__broadcast broadcast;  /* over in */
    const void *in[WN_FUSED_INPUTS];
    void *out;
};

/* A pack of W elements in shared memory, of which M are used. */
template <class T, int W> static __device__ __forceinline__ T *slot_at(wn__pack<T, W> *slots, int32_t slot)
{
    return slots[slot * WN_THREADS + threadIdx.x].at;
}

/* Loads M elements of every input, from element `at` of the result on, into the thread's slots. */
template <class T, int W, int M>
static __device__ __forceinline__ void fused_load(const struct fused_call &c, wn__pack<T, W> *slots, int64_t at)
{
    int64_t offset[WN_FUSED_INPUTS];
    wn__pack<T, M> p[WN_FUSED_INPUTS];
    wn__broadcast_offsets(c.broadcast, at, offset);
    WN_UNROLL
    for (int k = 0; k < WN_FUSED_INPUTS; k++)
        if (k < c.broadcast.n_operands) p[k] = wn__broadcast_pack<T, M>(c.broadcast, k, (const T *)c.in[k], offset[k]);
    WN_UNROLL
    for (int k = 0; k < WN_FUSED_INPUTS; k++)
        if (k < c.broadcast.n_operands) *(wn__pack<T, M> *)slot_at(slots, k) = p[k];
}

/* Computes elements [at, at + M). */
template <class T, int W, int M>
static __device__ __forceinline__ void fused_run(const struct fused_call &c, wn__pack<T, W> *slots, int64_t at)
{
    typename wn__number<T>::type x[M], y[M] = {};
    fused_load<T, W, M>(c, slots, at);
    for (int32_t s = 0; s < c.n; s++) {
        wn__get(slot_at(slots, c.slot[s][0]), x);
        if (c.slot[s][1] >= 0) wn__get(slot_at(slots, c.slot[s][1]), y);
        wn__elementwise_pack(c.step[s], x, y, x, at);
        wn__put(s == c.n - 1 ? (T *)c.out + at : slot_at(slots, c.broadcast.n_operands + s), x);
    }
}

template <class T, int W> static __global__ void fused(struct fused_call c)
{
    typedef wn__pack<T, W> pack;
    DYN_SHARED(pack, slots);
    int64_t at = wn__thread() * W;
    if (at + W <= c.broadcast.numel) fused_run<T, W, W>(c, slots, at);
    else
        for (; at < c.broadcast.numel; at++) fused_run<T, W, 1>(c, slots, at);
}

template <class T, int W> static int32_t fused_launch(const struct fused_call &c, void *stream)
{
    size_t shared = sizeof(wn__pack<T, W>) * WN_THREADS * (size_t)(c.broadcast.n_operands + c.n - 1);
    LAUNCH((fused<T, W>), wn__blocks(c.broadcast.numel, (int64_t)WN_THREADS * W), WN_THREADS, shared,
           (cudaStream_t)stream, c);
    return wn__cuda_launched();
}

template <class T> static int32_t fused_start(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    struct wn__fused steps = wn__fused_get(&d->attrs, 0);
    struct fused_call c;
    memset(&c, 0, sizeof c);
    c.n = steps.n;
    c.out = b->out;
    c.broadcast = wn__broadcast_of(d);
    if (c.broadcast.numel == 0) return WN_OK;
    for (int32_t i = 0; i < d->n_in; i++) c.in[i] = b->in[i];
    for (int32_t s = 0; s < c.n; s++) {
        const wn__fused::wn__fused_step *step = &steps.step[s];
        c.step[s] = wn__step_of(step->op, d->out.dtype, d->attrs.f, b->random);
        for (int32_t j = 0; j < 2; j++) {
            int32_t v = step->operand[j];
            c.slot[s][j] = v < WN_FUSED_INPUTS ? v : d->n_in + v - WN_FUSED_INPUTS;
        }
        if (wn__elementwise_operands(step->op) == 1) c.slot[s][1] = -1;
    }
    if (wn__broadcast_packs(&c.broadcast, wn__wide<T>::N)) return fused_launch<T, wn__wide<T>::N>(c, stream);
    return fused_launch<T, 1>(c, stream);
}

/* Returns whether a step takes its operands: ops outside binary.cu take no broadcast one, as on the CPU, so that both
 * run the same nodes. */
static int32_t fused_fits(const struct wn_desc *d, const wn__fused::wn__fused_step *s)
{
    int32_t n = wn__elementwise_operands(s->op);
    if (s->op >= WN_OP_ADD && s->op <= WN_OP_MINIMUM) return 1;
    for (int32_t j = 0; j < n; j++)
        if (s->operand[j] < WN_FUSED_INPUTS && !wn__type_equal(&d->in[s->operand[j]], &d->out)) return 0;
    return n > 0;
}

wn_kernel_fn wn__cuda_fused_kernel(const struct wn_desc *d)
{
    struct wn__fused c = wn__fused_get(&d->attrs, 0);
    if (!wn__has_one_dtype(d)) return NULL;
    for (int32_t s = 0; s < c.n; s++)
        if (!fused_fits(d, &c.step[s])) return NULL;
    return wn__kernel_of(d->out.dtype, fused_start<float>, fused_start<double>, fused_start<wn_bf16>);
}
