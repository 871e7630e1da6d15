/* Elementwise ops of one input, their derivatives (dy and one residual of the same shape), and CAST. The formulas are
 * those of kernels/scalar.h. Each loop reads an element before it writes it, so an op may run in place. bf16 is
 * computed by tiles in the f32 loops. */
#include <stddef.h>
#include <string.h>
#include "../../scalar.h"
#include "../common/bf16.h"
#include "elementwise.h"

/* Computes elements [begin, end): all at once, or block by block where out streams. */
static void unary_part(int64_t begin, int64_t end, void *ctx)
{
    const struct wn__unary *k = ctx;
    if (!k->streams) {
        k->loop(begin, end, ctx);
        return;
    }
    struct wn__stream_block block;
    struct wn__unary part = *k;
    part.out = block.bytes;
    for (int64_t at = begin, stop; at < end; at = stop) {
        stop = wn__stream_stop(at, end);
        part.a = (const char *)k->a + at * k->in_size;
        if (k->b) part.b = (const char *)k->b + at * k->in_size;
        wn__prefetch_stream(part.a, (stop - at) * k->in_size);
        if (k->b) wn__prefetch_stream(part.b, (stop - at) * k->in_size);
        k->loop(0, stop - at, &part);
        wn__stream((char *)k->out + at * k->out_size, block.bytes, (stop - at) * k->out_size);
    }
    wn__stream_end();
}

int32_t wn__cpu_is_math(int32_t op)
{
    switch (op) {
    case WN_OP_EXP:
    case WN_OP_LOG:
    case WN_OP_GELU:
    case WN_OP_SILU:
    case WN_OP_TANH:
    case WN_OP_SIGMOID:
    case WN_OP_SOFTPLUS:
    case WN_OP_SIN:
    case WN_OP_COS:
    case WN_OP_LOG1P:
    case WN_OP_EXPM1:
    case WN_OP_GELU_GRAD:
    case WN_OP_SILU_GRAD:
    case WN_OP_POW: return 1;
    default: return 0;
    }
}

/* Runs k->loop over all elements, in threads. */
static void run_loop(const struct wn_desc *d, struct wn__unary *k, int64_t grain)
{
    const int64_t bytes = wn__bytes(&d->out);
    k->in_size = wn__dtype_size(d->in[0].dtype);
    k->out_size = wn__dtype_size(d->out.dtype);
    k->streams =
        wn__cpu_is_math(d->op) ? wn__streams_math(bytes, k->out, k->a, k->b) : wn__streams(bytes, k->out, k->a, k->b);
    wn__parallel_for(wn__numel(&d->out), grain, unary_part, k);
}

#define LOOP(NAME, T, EXPR)                                                                                            \
    static void NAME(int64_t begin, int64_t end, void *ctx)                                                            \
    {                                                                                                                  \
        const struct wn__unary *k = ctx;                                                                               \
        const T *a = k->a, *b = k->b;                                                                                  \
        T *out = k->out, low = (T)k->low, high = (T)k->high;                                                           \
        (void)b, (void)low, (void)high;                                                                                \
        _Pragma("omp simd") for (int64_t i = begin; i < end; i++) out[i] = (EXPR);                                     \
    }

#define FLOAT_LOOPS(S, T)                                                                                              \
    LOOP(neg_##S, T, wn_neg_##S(a[i]))                                                                                 \
    LOOP(abs_##S, T, wn_abs_##S(a[i]))                                                                                 \
    LOOP(exp_##S, T, wn_exp_##S(a[i]))                                                                                 \
    LOOP(log_##S, T, wn_log_##S(a[i]))                                                                                 \
    LOOP(sqrt_##S, T, wn_sqrt_##S(a[i]))                                                                               \
    LOOP(rsqrt_##S, T, wn_rsqrt_##S(a[i]))                                                                             \
    LOOP(relu_##S, T, wn_relu_##S(a[i]))                                                                               \
    LOOP(gelu_##S, T, wn_gelu_##S(a[i]))                                                                               \
    LOOP(silu_##S, T, wn_silu_##S(a[i]))                                                                               \
    LOOP(tanh_##S, T, wn_tanh_##S(a[i]))                                                                               \
    LOOP(sigmoid_##S, T, wn_sigmoid_##S(a[i]))                                                                         \
    LOOP(softplus_##S, T, wn_softplus_##S(a[i]))                                                                       \
    LOOP(sin_##S, T, wn_sin_##S(a[i]))                                                                                 \
    LOOP(cos_##S, T, wn_cos_##S(a[i]))                                                                                 \
    LOOP(log1p_##S, T, wn_log1p_##S(a[i]))                                                                             \
    LOOP(expm1_##S, T, wn_expm1_##S(a[i]))                                                                             \
    LOOP(clamp_##S, T, wn_clamp_##S(a[i], low, high))

#define STEP_LOOPS(S, T)                                                                                               \
    LOOP(floor_##S, T, wn_floor_##S(a[i]))                                                                             \
    LOOP(round_##S, T, wn_round_##S(a[i]))                                                                             \
    LOOP(sign_##S, T, wn_sign_##S(a[i]))

#define SLOPE_LOOPS(S, T)                                                                                              \
    LOOP(abs_grad_##S, T, wn_abs_grad_##S(a[i], b[i]))                                                                 \
    LOOP(relu_grad_##S, T, wn_relu_grad_##S(a[i], b[i]))                                                               \
    LOOP(gelu_grad_##S, T, wn_gelu_grad_##S(a[i], b[i]))                                                               \
    LOOP(silu_grad_##S, T, wn_silu_grad_##S(a[i], b[i]))                                                               \
    LOOP(tanh_grad_##S, T, wn_tanh_grad_##S(a[i], b[i]))                                                               \
    LOOP(sigmoid_grad_##S, T, wn_sigmoid_grad_##S(a[i], b[i]))                                                         \
    LOOP(clamp_grad_##S, T, wn_clamp_grad_##S(a[i], b[i], low, high))                                                  \
    LOOP(sqrt_grad_##S, T, wn_sqrt_grad_##S(a[i], b[i]))

FLOAT_LOOPS(f32, float)
FLOAT_LOOPS(f64, double)
STEP_LOOPS(f32, float)
STEP_LOOPS(f64, double)
SLOPE_LOOPS(f32, float)
SLOPE_LOOPS(f64, double)
LOOP(neg_i32, int32_t, wn_neg_i32(a[i]))
LOOP(abs_i32, int32_t, wn_abs_i32(a[i]))
LOOP(sign_i32, int32_t, wn_sign_i32(a[i]))

#define FLOAT_ROW(NAME, name) [WN_OP_##NAME] = {[WN_F32] = name##_f32, [WN_F64] = name##_f64},
#define SIGNED_ROW(NAME, name) [WN_OP_##NAME] = {[WN_F32] = name##_f32, [WN_F64] = name##_f64, [WN_I32] = name##_i32},

static const wn__parallel_body loops[WN_OP_COUNT][WN_DTYPE_COUNT] = {
    SIGNED_ROW(NEG, neg) SIGNED_ROW(ABS, abs) FLOAT_ROW(EXP, exp) FLOAT_ROW(LOG, log) FLOAT_ROW(SQRT, sqrt)
        FLOAT_ROW(RSQRT, rsqrt) FLOAT_ROW(RELU, relu) FLOAT_ROW(GELU, gelu) FLOAT_ROW(SILU, silu) FLOAT_ROW(TANH, tanh)
            FLOAT_ROW(SIGMOID, sigmoid) FLOAT_ROW(SOFTPLUS, softplus) FLOAT_ROW(SIN, sin) FLOAT_ROW(COS, cos)
                FLOAT_ROW(LOG1P, log1p) FLOAT_ROW(EXPM1, expm1) FLOAT_ROW(FLOOR, floor) FLOAT_ROW(ROUND, round)
                    SIGNED_ROW(SIGN, sign) FLOAT_ROW(CLAMP, clamp) FLOAT_ROW(ABS_GRAD, abs_grad)
                        FLOAT_ROW(RELU_GRAD, relu_grad) FLOAT_ROW(GELU_GRAD, gelu_grad) FLOAT_ROW(SILU_GRAD, silu_grad)
                            FLOAT_ROW(TANH_GRAD, tanh_grad) FLOAT_ROW(SIGMOID_GRAD, sigmoid_grad)
                                FLOAT_ROW(CLAMP_GRAD, clamp_grad) FLOAT_ROW(SQRT_GRAD, sqrt_grad)};

wn__parallel_body wn__cpu_unary_loop(int32_t op, int32_t dtype)
{
    return loops[op][dtype];
}

/* One op in bf16. */
struct halves {
    struct wn__unary k;
    struct wn__elementwise step;
};

static void halves_part(int64_t begin, int64_t end, void *ctx)
{
    const struct halves *h = ctx;
    const uint16_t *a = h->k.a, *b = h->k.b;
    const struct wn__operands o = {
        .out = (uint16_t *)h->k.out + begin, .a = a + begin, .b = b ? b + begin : NULL, .sa = 1, .sb = 1};
    wn__elementwise_run(&h->step, &o, end - begin, begin);
}

static int32_t unary(const struct wn_desc *d, const struct wn_buffers *b, WN_NO_STREAM)
{
    struct wn__unary k = {.a = b->in[0], .out = b->out, .low = d->attrs.f[0], .high = d->attrs.f[1]};
    if (d->n_in > 1) k.b = b->in[1];
    k.loop = loops[d->op][d->out.dtype];
    struct halves h = {.k = k};
    if (d->out.dtype == WN_BF16) wn__elementwise_of(d->op, WN_BF16, d->attrs.f, NULL, &h.step);
    if (d->out.dtype == WN_BF16) wn__parallel_for(wn__numel(&d->out), WN_CPU_GRAIN_MATH, halves_part, &h);
    else run_loop(d, &k, WN_CPU_GRAIN_MATH);
    return WN_OK;
}

/* ---- cast ---------------------------------------------------------------------------------------- */
/* A cast to integers rounds toward zero; floats out of range become the nearest integer of the dtype, integers wrap. A
 * cast to bf16 rounds the f32 value. */

/* Convert without branches, so that loops vectorise, with the results of scalar.h. */
static inline __attribute__((always_inline)) int32_t f32_to_i32(float x)
{
    float above = x >= -2147483648.0f ? x : -2147483648.0f, inside = above <= 2147483520.0f ? above : 2147483520.0f;
    int32_t whole = x >= 2147483648.0f ? 2147483647 : (int32_t)inside;
    return x == x ? whole : 0;
}

static inline __attribute__((always_inline)) uint8_t f32_to_u8(float x)
{
    float above = x > 0.0f ? x : 0.0f;
    return (uint8_t)(int32_t)(above < 255.0f ? above : 255.0f);
}

/* Defines the loop of a cast. TAKE converts an element to a number. */
#define CAST(NAME, FROM, TO, TAKE, EXPR)                                                                               \
    static void NAME(int64_t begin, int64_t end, void *ctx)                                                            \
    {                                                                                                                  \
        const struct wn__unary *k = ctx;                                                                               \
        const FROM *a = k->a;                                                                                          \
        TO *out = k->out;                                                                                              \
        _Pragma("omp simd") for (int64_t i = begin; i < end; i++)                                                      \
        {                                                                                                              \
            __typeof__(TAKE(a[i])) x = TAKE(a[i]);                                                                     \
            out[i] = (EXPR);                                                                                           \
        }                                                                                                              \
    }

#define CASTS_FROM(S, T, TAKE, TO_I32, TO_U8)                                                                          \
    CAST(cast_##S##_f32, T, float, TAKE, (float)x)                                                                     \
    CAST(cast_##S##_f64, T, double, TAKE, (double)x)                                                                   \
    CAST(cast_##S##_bf16, T, uint16_t, TAKE, wn_to_bf16((float)x))                                                     \
    CAST(cast_##S##_i32, T, int32_t, TAKE, TO_I32(x))                                                                  \
    CAST(cast_##S##_u8, T, uint8_t, TAKE, TO_U8(x))

CASTS_FROM(f32, float, WN_SAME, f32_to_i32, f32_to_u8)
CASTS_FROM(f64, double, WN_SAME, wn_to_i32, wn_to_u8)
CASTS_FROM(bf16, uint16_t, wn_from_bf16, wn_to_i32, wn_to_u8)
CASTS_FROM(i32, int32_t, WN_SAME, (int32_t), (uint8_t))
CASTS_FROM(u8, uint8_t, WN_SAME, (int32_t), (uint8_t))

#define CAST_ROW(FROM, s)                                                                                              \
    [FROM] = {[WN_F32] = cast_##s##_f32,                                                                               \
              [WN_F64] = cast_##s##_f64,                                                                               \
              [WN_BF16] = cast_##s##_bf16,                                                                             \
              [WN_I32] = cast_##s##_i32,                                                                               \
              [WN_U8] = cast_##s##_u8},

static const wn__parallel_body casts[WN_DTYPE_COUNT][WN_DTYPE_COUNT] = {
    CAST_ROW(WN_F32, f32) CAST_ROW(WN_F64, f64) CAST_ROW(WN_BF16, bf16) CAST_ROW(WN_I32, i32) CAST_ROW(WN_U8, u8)};

static int32_t cast(const struct wn_desc *d, const struct wn_buffers *b, WN_NO_STREAM)
{
    struct wn__unary k = {.a = b->in[0], .out = b->out, .loop = casts[d->in[0].dtype][d->out.dtype]};
    run_loop(d, &k, WN_CPU_GRAIN);
    return WN_OK;
}

wn_kernel_fn wn__cpu_unary_kernel(const struct wn_desc *d)
{
    if (d->op == WN_OP_CAST) return casts[d->in[0].dtype][d->out.dtype] ? cast : NULL;
    for (int32_t i = 0; i < d->n_in; i++)
        if (d->in[i].dtype != d->out.dtype) return NULL;
    return loops[d->op][d->out.dtype == WN_BF16 ? WN_F32 : d->out.dtype] ? unary : NULL;
}
