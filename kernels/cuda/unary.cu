/* NEG .. CLAMP, their derivatives (dy and one residual of the same shape), CAST between all dtypes, ISNAN, ISFINITE
 * and WITHIN.
 *
 * The formulas are those of kernels/scalar.h: f32, bf16 and integers have the CPU's bits; f64 is libm's on the CPU and
 * CUDA's here. One kernel a dtype computes all ops of floats: memory bounds it, and the switch over the op is one jump
 * for 16 bytes; the curved ones of many bf16 are looked up (table.cu). ISNAN and ISFINITE look at bits, so that no
 * option of a compiler can change the answer. */
#include "elementwise.cuh"
#include "map.cuh"

/* Computes y = op(a) for V elements, for ops that are never steps of a fused op: the registers of their formulas would
 * be taken from every kernel with steps. Returns whether op is one of them. */
template <class N, int V> WN_DEVICE_FN bool long_formula(int32_t op, const N (&a)[V], N (&y)[V])
{
    switch (op) {
#define CASE(NAME, FORMULA)                                                                                            \
    case WN_OP_##NAME:                                                                                                 \
        for (int v = 0; v < V; v++) y[v] = FORMULA(a[v]);                                                              \
        return true;
        CASE(SOFTPLUS, wn_softplus)
        CASE(SIN, wn_sin)
        CASE(COS, wn_cos)
        CASE(LOG1P, wn_log1p)
        CASE(EXPM1, wn_expm1)
#undef CASE
    default: return false;
    }
}

/* One op of one or two operands of equal shapes. */
template <class T> struct unary_floats {
    enum { V = wn__wide<T>::N };
    struct wn__step step;
    const T *a, *b; /* b: NULL where the op has one operand */
    T *out;
    template <int M> __device__ __forceinline__ void run(int64_t at) const
    {
        typename wn__number<T>::type x[M], y[M] = {};
        wn__get(a + at, x);
        if (b != NULL) wn__get(b + at, y);
        if (!long_formula(step.op, x, x)) wn__elementwise_pack(step, x, y, x, at);
        wn__put(out + at, x);
    }
};

template <class T> static int32_t float_start(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    struct unary_floats<T> f = {
        wn__step_of(d->op, d->out.dtype, d->attrs.f, NULL), (const T *)b->in[0], NULL, (T *)b->out
    };
    if (d->n_in > 1) f.b = (const T *)b->in[1];
    return wn__map_start(f, wn__numel(&d->out), stream);
}

/* NEG, ABS and SIGN of i32. */
struct unary_whole {
    enum { V = 4 };
    int32_t op;
    const int32_t *a;
    int32_t *out;
    template <int M> __device__ __forceinline__ void run(int64_t at) const
    {
        int32_t x[M];
        wn__get(a + at, x);
        WN_UNROLL
        for (int v = 0; v < M; v++)
            x[v] = op == WN_OP_ABS ? wn_abs(x[v]) : op == WN_OP_SIGN ? wn_sign(x[v]) : wn_neg(x[v]);
        wn__put(out + at, x);
    }
};

static int32_t whole_start(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    struct unary_whole f = {d->op, (const int32_t *)b->in[0], (int32_t *)b->out};
    return wn__map_start(f, wn__numel(&d->out), stream);
}

/* ---- cast ---------------------------------------------------------------------------------------- */

template <class From, class To> struct unary_cast {
    enum { V = 16 / (sizeof(From) > sizeof(To) ? sizeof(From) : sizeof(To)) };
    const From *a;
    To *out;
    template <int M> __device__ __forceinline__ void run(int64_t at) const
    {
        typename wn__number<From>::type x[M];
        wn__pack<To, M> y;
        wn__get(a + at, x);
        WN_UNROLL
        for (int v = 0; v < M; v++) y.at[v] = wn__cast<To>(x[v]);
        *(wn__pack<To, M> *)(out + at) = y;
    }
};

template <class From, class To>
static int32_t cast_start(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    struct unary_cast<From, To> f = {
        (const From *)b->in[0], (To *)b->out
    };
    return wn__map_start(f, wn__numel(&d->out), stream);
}

template <class From> static wn_kernel_fn cast_from(int32_t to)
{
    return wn__kernel_of(to, cast_start<From, float>, cast_start<From, double>, cast_start<From, wn_bf16>,
                         cast_start<From, int32_t>, cast_start<From, uint8_t>);
}

/* ---- isnan, isfinite ----------------------------------------------------------------------------- */

/* ISNAN or ISFINITE of floats with the bits of U. An exponent of all ones is an infinity or, with a fraction, a NaN. */
template <class U> struct unary_exponents {
    enum { V = 16 / sizeof(U) };
    const U *x;
    uint8_t *out;
    U exponent;        /* the bits of an infinity */
    int32_t wants_nan; /* 1: ISNAN, 0: ISFINITE */
    template <int M> __device__ __forceinline__ void run(int64_t at) const
    {
        wn__pack<U, M> p = *(const wn__pack<U, M> *)(x + at);
        uint8_t y[M];
        WN_UNROLL
        for (int v = 0; v < M; v++) {
            U rest = p.at[v] & (U)((U) ~(U)0 >> 1);
            y[v] = wants_nan ? rest > exponent : rest < exponent;
        }
        wn__put(out + at, y);
    }
};

template <class U> static int32_t look(const struct wn_desc *d, const struct wn_buffers *b, U exponent, void *stream)
{
    struct unary_exponents<U> f = {
        (const U *)b->in[0], (uint8_t *)b->out, exponent, d->op == WN_OP_ISNAN
    };
    return wn__map_start(f, wn__numel(&d->in[0]), stream);
}

static int32_t finite_start(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    switch (d->in[0].dtype) {
    case WN_F64: return look<uint64_t>(d, b, UINT64_C(0x7ff0000000000000), stream);
    case WN_BF16: return look<uint16_t>(d, b, UINT16_C(0x7f80), stream);
    default: return look<uint32_t>(d, b, UINT32_C(0x7f800000), stream);
    }
}

/* WITHIN: elements as they are; tells of those that are not between two numbers. */
template <class T> struct unary_within {
    enum { V = wn__wide<T>::N };
    const T *x;
    T *out;
    double least, most;
    uint64_t *report;
    template <int M> __device__ __forceinline__ void run(int64_t at) const
    {
        typename wn__number<T>::type y[M];
        wn__get(x + at, y);
        for (int v = 0; v < M; v++)
            if (!(y[v] >= least && y[v] <= most)) wn__report(report, at + v, __float_as_int((float)y[v]));
        wn__put(out + at, y);
    }
};

template <class T> static int32_t within_start(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    struct unary_within<T> f = {
        .x = (const T *)b->in[0], .out = (T *)b->out, .least = d->attrs.f[0], .most = d->attrs.f[1], .report = b->report
    };
    return wn__map_start(f, wn__numel(&d->in[0]), stream);
}

/* ---- lookups ------------------------------------------------------------------------------------- */

wn_kernel_fn wn__cuda_unary_kernel(const struct wn_desc *d)
{
    const int32_t from = d->in[0].dtype, to = d->out.dtype;
    if (d->op == WN_OP_CAST)
        return wn__kernel_of(from, cast_from<float>(to), cast_from<double>(to), cast_from<wn_bf16>(to),
                             cast_from<int32_t>(to), cast_from<uint8_t>(to));
    if (!wn__has_one_dtype(d)) return NULL;
    if (wn_kernel_fn by_table = wn__cuda_table_kernel(d)) return by_table;
    return wn__kernel_of(to, float_start<float>, float_start<double>, float_start<wn_bf16>,
                         d->op == WN_OP_NEG || d->op == WN_OP_ABS || d->op == WN_OP_SIGN ? whole_start : NULL);
}

wn_kernel_fn wn__cuda_finite_kernel(const struct wn_desc *d)
{
    const int32_t dtype = d->in[0].dtype;
    if (d->op == WN_OP_WITHIN)
        return wn__kernel_of(dtype, within_start<float>, within_start<double>, within_start<wn_bf16>);
    return wn__kernel_of(dtype, finite_start, finite_start, finite_start);
}
