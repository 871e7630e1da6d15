/* PACK_INT8, UNPACK_INT8, PACK_SIGN, UNPACK_SIGN: packed forms of whole values (runtime/ops/pack.c has the layouts and
 * sources, kernels/scalar.h the formulas), with the CPU's bytes.
 *
 * A block of 256 threads packs a group of int8, an element a thread; the largest magnitude of the group is a maximum of
 * whole numbers, so its order does not count. A thread packs the signs of a byte. */
#include "scalar.cuh"

enum { GROUP = WN_INT8_GROUP, WARPS = GROUP / 32 };

/* A value whose elements are packed one after the other: rows of `columns`, `ld` elements apart. */
template <class T> struct packed_rows {
    T *x;
    int64_t columns, ld;

    __device__ __forceinline__ T &at(int64_t i) const
    {
        if (ld == columns) return x[i];
        const int64_t row = i >> 32 == 0 && columns >> 32 == 0 ? (uint32_t)i / (uint32_t)columns : i / columns;
        return x[i + row * (ld - columns)];
    }
};

template <class T> static packed_rows<T> rows_of(T *x, const struct wn_type *t)
{
    const int64_t columns = t->ndim > 0 ? t->dim[t->ndim - 1] : 1;
    const packed_rows<T> rows = {x, columns, t->ndim > 0 ? wn__row_pitch(t) : 1};
    return rows;
}

/* ---- int8: (groups) f32 scales, then (n) codes ------------------------------------------------------------------- */

static int64_t groups_of(int64_t n)
{
    return (n + GROUP - 1) / GROUP;
}

/* Returns the largest of the magnitudes of a block, whose bits are compared as whole numbers. */
static __device__ __forceinline__ float top_of_block(float x)
{
    __shared__ int32_t most_of[WARPS];
    int32_t most = wn_to_bits(x) & 0x7fffffff;
    for (int w = 16; w > 0; w /= 2) {
        int32_t other = __shfl_xor_sync(0xffffffffu, most, w);
        most = other > most ? other : most;
    }
    if (threadIdx.x % 32 == 0) most_of[threadIdx.x / 32] = most;
    __syncthreads();
    for (int w = 0; w < WARPS; w++) most = most_of[w] > most ? most_of[w] : most;
    return wn_from_bits(most);
}

template <class T>
static __global__ void __launch_bounds__(GROUP) encode(packed_rows<const T> x, float *scales, int64_t n)
{
    int8_t *code = (int8_t *)(scales + gridDim.x);
    int64_t at = (int64_t)blockIdx.x * GROUP + threadIdx.x;
    float value = at < n ? (float)wn__load(x.at(at)) : 0.0f;
    float scale = wn_int8_scale(top_of_block(value)), inverse = 1.0f / scale;
    if (threadIdx.x == 0) scales[blockIdx.x] = scale;
    if (at < n) code[at] = scale > 0.0f ? wn_int8_code(value, inverse) : (int8_t)0;
}

template <class T> static __global__ void decode(const float *scales, int64_t groups, packed_rows<T> x, int64_t n)
{
    const int8_t *code = (const int8_t *)(scales + groups);
    int64_t at = wn__thread();
    if (at < n) x.at(at) = wn__cast<T>((float)code[at] * scales[at / GROUP]);
}

template <class T> static int32_t pack_int8(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    int64_t n = wn__numel(&d->in[0]);
    if (n == 0) return WN_OK;
    LAUNCH((encode<T>), wn__grid(groups_of(n)), GROUP, 0, stream, rows_of((const T *)b->in[0], &d->in[0]),
           (float *)b->out, n);
    return wn__cuda_launched();
}

template <class T> static int32_t unpack_int8(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    int64_t n = wn__numel(&d->out);
    if (n == 0) return WN_OK;
    LAUNCH_EACH((decode<T>), n, stream, (const float *)b->in[0], groups_of(n), rows_of((T *)b->out, &d->out), n);
    return wn__cuda_launched();
}

/* ---- signs: the sign of element 8 b + j is bit j of byte b ------------------------------------------------------- */

template <class T> static __global__ void sign_bytes(packed_rows<const T> x, uint8_t *out, int64_t n)
{
    int64_t at = wn__thread() * 8;
    if (at >= n) return;
    unsigned bits = 0;
    for (int j = 0; j < 8 && at + j < n; j++) bits |= (unsigned)!(wn__load(x.at(at + j)) <= 0) << j;
    out[at / 8] = (uint8_t)bits;
}

template <class T> static __global__ void ones(const uint8_t *bits, packed_rows<T> x, int64_t n)
{
    typedef typename wn__number<T>::type N;
    int64_t at = wn__thread();
    if (at < n) x.at(at) = wn__store<T>((bits[at / 8] >> at % 8) & 1 ? (N)1 : (N)0);
}

template <class T> static int32_t pack_sign(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    int64_t n = wn__numel(&d->in[0]);
    if (n == 0) return WN_OK;
    LAUNCH_BLOCKS((sign_bytes<T>), wn__blocks(n, WN_THREADS * 8), stream, rows_of((const T *)b->in[0], &d->in[0]),
                  (uint8_t *)b->out, n);
    return wn__cuda_launched();
}

template <class T> static int32_t unpack_sign(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    int64_t n = wn__numel(&d->out);
    if (n == 0) return WN_OK;
    LAUNCH_EACH((ones<T>), n, stream, (const uint8_t *)b->in[0], rows_of((T *)b->out, &d->out), n);
    return wn__cuda_launched();
}

/* Returns the kernel of an op for values of T. */
template <class T> static wn_kernel_fn kernel_of(int32_t op)
{
    switch (op) {
    case WN_OP_PACK_INT8: return pack_int8<T>;
    case WN_OP_UNPACK_INT8: return unpack_int8<T>;
    case WN_OP_PACK_SIGN: return pack_sign<T>;
    case WN_OP_UNPACK_SIGN: return unpack_sign<T>;
    default: return NULL;
    }
}

wn_kernel_fn wn__cuda_pack_kernel(const struct wn_desc *d)
{
    int32_t packs = d->op == WN_OP_PACK_INT8 || d->op == WN_OP_PACK_SIGN;
    return wn__kernel_of(packs ? d->in[0].dtype : d->out.dtype, kernel_of<float>(d->op), kernel_of<double>(d->op),
                         kernel_of<wn_bf16>(d->op));
}
