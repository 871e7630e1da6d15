/* ADD .. MINIMUM, the comparisons EQ .. GE, and WHERE, under broadcasting, with the CPU's bits; POW of f32 and f64 is
 * libm's on the CPU and CUDA's here.
 *
 * A kernel computes all ops of one kind for a dtype: memory bounds it, and the switch over the op is one jump for V
 * elements. Each is built for packs of 16 bytes, and for single elements where rows of broadcast operands are no whole
 * packs. */
#include "broadcast.cuh"
#include "elementwise.cuh"

/* One application; in: a and b, or condition, a and b of WHERE. */
struct binary_call {
    struct wn__step step;
    struct wn__broadcast broadcast; /* over in */
    const void *in[3];
    void *out;
    uint64_t *report;   /* of ADD, SUB and MUL of i32 */
    int32_t is_half[3]; /* 1: the operand is bf16 */
};

/* Loads the operands k and k + 1 of M elements from element `at` of the result on. */
template <class T, int M, int K>
static __device__ __forceinline__ void get_two(const struct binary_call &c, int k, const int64_t (&offset)[K],
                                               typename wn__number<T>::type (&x)[M],
                                               typename wn__number<T>::type (&y)[M])
{
    wn__broadcast_get(c.broadcast, k, (const T *)c.in[k], offset[k], x);
    wn__broadcast_get(c.broadcast, k + 1, (const T *)c.in[k + 1], offset[k + 1], y);
}

/* ADD .. MINIMUM of floats. */
template <class T, int W> struct binary_floats {
    enum { V = W };
    struct binary_call c;
    template <int M> __device__ __forceinline__ void run(int64_t at) const
    {
        typename wn__number<T>::type x[M], y[M];
        int64_t offset[2];
        wn__broadcast_offsets(c.broadcast, at, offset);
        get_two<T>(c, 0, offset, x, y);
        wn__elementwise_pack(c.step, x, y, x, at);
        wn__put((T *)c.out + at, x);
    }
};

/* ADD .. MINIMUM of f32, of which one operand or both are bf16, where casts were taken in (plan/ir/casts.c). */
template <class T, int W> struct binary_mixed {
    enum { V = W };
    struct binary_call c;
    template <int M> __device__ __forceinline__ void run(int64_t at) const
    {
        float of[2][M];
        int64_t offset[2];
        wn__broadcast_offsets(c.broadcast, at, offset);
        WN_UNROLL
        for (int k = 0; k < 2; k++) {
            if (c.is_half[k]) wn__broadcast_get(c.broadcast, k, (const wn_bf16 *)c.in[k], offset[k], of[k]);
            else wn__broadcast_get(c.broadcast, k, (const float *)c.in[k], offset[k], of[k]);
        }
        wn__elementwise_pack(c.step, of[0], of[1], of[0], at);
        wn__put((float *)c.out + at, of[0]);
    }
};

/* Returns op(x, y) of element `at` for the ops that integers have, and tells of one that i32 does not hold. */
template <class T> static __device__ __forceinline__ T whole_of(const struct binary_call &c, T x, T y, int64_t)
{
    return wn__formula_of_any<T>(c.step.op, x, y);
}
template <>
__device__ __forceinline__ int32_t whole_of<int32_t>(const struct binary_call &c, int32_t x, int32_t y, int64_t at)
{
    switch (c.step.op) {
    case WN_OP_ADD: return wn__whole((long long)x + y, c.report, at);
    case WN_OP_SUB: return wn__whole((long long)x - y, c.report, at);
    case WN_OP_MUL: return wn__whole((long long)x * y, c.report, at);
    default: return wn__formula_of_any<int32_t>(c.step.op, x, y);
    }
}

/* The ops that integers have. */
template <class T, int W> struct binary_whole {
    enum { V = W };
    struct binary_call c;
    template <int M> __device__ __forceinline__ void run(int64_t at) const
    {
        T x[M], y[M];
        int64_t offset[2];
        wn__broadcast_offsets(c.broadcast, at, offset);
        get_two<T>(c, 0, offset, x, y);
        WN_UNROLL
        for (int v = 0; v < M; v++) x[v] = whole_of<T>(c, x[v], y[v], at + v);
        wn__put((T *)c.out + at, x);
    }
};

template <class N> static __device__ __forceinline__ uint8_t compare(int32_t op, N x, N y)
{
    switch (op) {
    case WN_OP_EQ: return x == y;
    case WN_OP_NE: return x != y;
    case WN_OP_LT: return x < y;
    case WN_OP_GT: return x > y;
    case WN_OP_LE: return x <= y;
    default: return x >= y;
    }
}

/* EQ .. GE. */
template <class T, int W> struct binary_compare {
    enum { V = W };
    struct binary_call c;
    template <int M> __device__ __forceinline__ void run(int64_t at) const
    {
        typename wn__number<T>::type x[M], y[M];
        uint8_t is[M];
        int64_t offset[2];
        wn__broadcast_offsets(c.broadcast, at, offset);
        get_two<T>(c, 0, offset, x, y);
        WN_UNROLL
        for (int v = 0; v < M; v++) is[v] = compare(c.step.op, x[v], y[v]);
        wn__put((uint8_t *)c.out + at, is);
    }
};

/* WHERE of elements with the bits of U. */
template <class U, int W> struct binary_where {
    enum { V = W };
    struct binary_call c;
    template <int M> __device__ __forceinline__ void run(int64_t at) const
    {
        uint8_t condition[M];
        U x[M], y[M];
        int64_t offset[3];
        wn__broadcast_offsets(c.broadcast, at, offset);
        wn__broadcast_get(c.broadcast, 0, (const uint8_t *)c.in[0], offset[0], condition);
        get_two<U>(c, 1, offset, x, y);
        WN_UNROLL
        for (int v = 0; v < M; v++) x[v] = condition[v] ? x[v] : y[v];
        wn__put((U *)c.out + at, x);
    }
};

/* Starts the kernel F of elements of T. */
template <template <class, int> class F, class T>
static int32_t start(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    struct binary_call c = {.step =
                                wn__step_of(d->op, d->out.dtype == WN_F32 ? WN_F32 : d->in[0].dtype, d->attrs.f, NULL),
                            .broadcast = wn__broadcast_of(d),
                            .in = {},
                            .out = b->out,
                            .report = b->report,
                            .is_half = {}};
    for (int32_t i = 0; i < d->n_in; i++) c.in[i] = b->in[i], c.is_half[i] = d->in[i].dtype == WN_BF16;
    if (wn__broadcast_packs(&c.broadcast, wn__wide<T>::N))
        return wn__map_start(F<T, wn__wide<T>::N>{c}, c.broadcast.numel, stream);
    return wn__map_start(F<T, 1>{c}, c.broadcast.numel, stream);
}

static wn_kernel_fn compare_kernel(int32_t dtype)
{
    return wn__kernel_of(dtype, start<binary_compare, float>, start<binary_compare, double>,
                         start<binary_compare, wn_bf16>, start<binary_compare, int32_t>,
                         start<binary_compare, uint8_t>);
}

static wn_kernel_fn arithmetic_kernel(int32_t op, int32_t dtype)
{
    int32_t of_floats = op == WN_OP_DIV || op == WN_OP_POW;
    return wn__kernel_of(dtype, start<binary_floats, float>, start<binary_floats, double>,
                         start<binary_floats, wn_bf16>, of_floats ? NULL : start<binary_whole, int32_t>,
                         of_floats ? NULL : start<binary_whole, uint8_t>);
}

static wn_kernel_fn where_kernel(const struct wn_desc *d)
{
    int32_t t = d->out.dtype;
    if (d->in[0].dtype != WN_U8 || d->in[1].dtype != t || d->in[2].dtype != t) return NULL;
    switch (t) {
    case WN_F32:
    case WN_I32: return start<binary_where, uint32_t>;
    case WN_F64: return start<binary_where, uint64_t>;
    case WN_BF16: return start<binary_where, uint16_t>;
    case WN_U8: return start<binary_where, uint8_t>;
    default: return NULL;
    }
}

wn_kernel_fn wn__cuda_binary_kernel(const struct wn_desc *d)
{
    if (d->op == WN_OP_WHERE) return where_kernel(d);
    int32_t compares = d->op >= WN_OP_EQ && d->op <= WN_OP_GE, is_half = 0;
    for (int32_t i = 0; i < 2; i++) is_half |= d->in[i].dtype == WN_BF16;
    if (!compares && is_half && d->out.dtype == WN_F32) return start<binary_mixed, float>;
    if (d->in[0].dtype != d->in[1].dtype || d->out.dtype != (compares ? WN_U8 : d->in[0].dtype)) return NULL;
    return compares ? compare_kernel(d->in[0].dtype) : arithmetic_kernel(d->op, d->in[0].dtype);
}
