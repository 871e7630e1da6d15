/* One elementwise op that is known only when a kernel runs, over numbers in registers: a step of ELEMENTWISE
 * (fused.cu), and the epilogue of a product (gemm.cu). The formulas are those that the kernel of the op itself calls,
 * so an element has the same bits however it is computed.
 *
 *     host    struct wn__step s = wn__step_of(op, dtype, d->attrs.f, b->random);
 *     kernel  y = wn__elementwise(s, a, b, element);          one element
 *             wn__elementwise_pack(s, a, b, y, element);      V elements in a row: one switch, a Philox call for four
 *
 * Operands are numbers of the dtype: a float or a double. Of bf16 each is a float that was rounded to bf16 before (a
 * step's result, a product), and the result must be rounded by wn__store<wn_bf16> before anything reads it. */
#ifndef WN_CUDA_ELEMENTWISE_CUH
#define WN_CUDA_ELEMENTWISE_CUH
#include "scalar.cuh"

/* An elementwise op and its numbers, as a kernel is given them by value. */
struct wn__step {
    int32_t op;             /* WN_OP_* that wn__elementwise_operands knows */
    double low, high;       /* bounds of CLAMP and CLAMP_GRAD */
    double scale;           /* DROPOUT: factor of a kept element, exact in the dtype */
    uint64_t threshold;     /* DROPOUT: an element is kept where its word is less */
    const uint64_t *random; /* DROPOUT: {seed, counter} in the device's memory, else never read */
};

/* Returns a step. dtype: of its operands and result; f: attrs.f of the node; random: of struct wn_buffers, NULL where
 * no step is a DROPOUT. */
static inline struct wn__step wn__step_of(int32_t op, int32_t dtype, const double f[2], const uint64_t *random)
{
    struct wn__step s = {.op = op, .low = f[0], .high = f[1], .scale = 0, .threshold = 0, .random = random};
    if (op != WN_OP_DROPOUT) return s;
    double p = f[0] > 0 ? f[0] : 0;
    s.scale = dtype == WN_F64 ? wn_dropout_scale_f64(p) : (double)wn_dropout_scale_f32(p);
    s.threshold = wn_dropout_threshold(p);
    return s;
}

/* Returns op(a, b) for the ops that integers have too. */
template <class N> WN_DEVICE_FN N wn__formula_of_any(int32_t op, N a, N b)
{
    switch (op) {
    case WN_OP_ADD: return wn_add(a, b);
    case WN_OP_SUB: return wn_sub(a, b);
    case WN_OP_MUL: return wn_mul(a, b);
    case WN_OP_MAXIMUM: return wn_maximum(a, b);
    case WN_OP_MINIMUM: return wn_minimum(a, b);
    default: return a;
    }
}

/* Calls DO(NAME) for each elementwise op of floats with one operand, with dy and a residual, and of broadcast operands
 * but those that integers have too. */
#define WN_EACH_UNARY_FIRST(DO)                                                                                        \
    DO(NEG) DO(ABS) DO(EXP) DO(LOG) DO(SQRT) DO(RSQRT) DO(RELU) DO(GELU) DO(SILU) DO(TANH) DO(SIGMOID) DO(CLAMP)
#define WN_EACH_UNARY(DO) WN_EACH_UNARY_FIRST(DO) DO(FLOOR) DO(ROUND) DO(SIGN)
#define WN_EACH_GRAD(DO)                                                                                               \
    DO(ABS_GRAD) DO(RELU_GRAD) DO(GELU_GRAD) DO(SILU_GRAD) DO(TANH_GRAD) DO(SIGMOID_GRAD) DO(CLAMP_GRAD) DO(SQRT_GRAD)
#define WN_EACH_BINARY(DO) DO(ADD) DO(SUB) DO(MUL) DO(MAXIMUM) DO(MINIMUM) DO(DIV) DO(POW)

/* Returns op(a) or op(a, b) for N a float or a double; b counts only where the op has two operands. A kernel template
 * of one op calls it with a constant op. */
template <class N> WN_DEVICE_FN N wn__formula(int32_t op, N a, N b, N low, N high)
{
    switch (op) {
    case WN_OP_DIV: return wn_div(a, b);
    case WN_OP_POW: return wn_pow(a, b);
    case WN_OP_NEG: return wn_neg(a);
    case WN_OP_ABS: return wn_abs(a);
    case WN_OP_EXP: return wn_exp(a);
    case WN_OP_LOG: return wn_log(a);
    case WN_OP_SQRT: return wn_sqrt(a);
    case WN_OP_RSQRT: return wn_rsqrt(a);
    case WN_OP_RELU: return wn_relu(a);
    case WN_OP_GELU: return wn_gelu(a);
    case WN_OP_SILU: return wn_silu(a);
    case WN_OP_TANH: return wn_tanh(a);
    case WN_OP_SIGMOID: return wn_sigmoid(a);
    case WN_OP_FLOOR: return wn_floor(a);
    case WN_OP_ROUND: return wn_round(a);
    case WN_OP_SIGN: return wn_sign(a);
    case WN_OP_CLAMP: return wn_clamp(a, low, high);
    case WN_OP_ABS_GRAD: return wn_abs_grad(a, b);
    case WN_OP_RELU_GRAD: return wn_relu_grad(a, b);
    case WN_OP_GELU_GRAD: return wn_gelu_grad(a, b);
    case WN_OP_SILU_GRAD: return wn_silu_grad(a, b);
    case WN_OP_TANH_GRAD: return wn_tanh_grad(a, b);
    case WN_OP_SIGMOID_GRAD: return wn_sigmoid_grad(a, b);
    case WN_OP_CLAMP_GRAD: return wn_clamp_grad(a, b, low, high);
    case WN_OP_SQRT_GRAD: return wn_sqrt_grad(a, b);
    default: return wn__formula_of_any(op, a, b);
    }
}

/* Writes the Philox words of elements [element, element + V), V = 1, 2, 4 or 8, to word. Requires element % V == 0, so
 * that V <= 4 elements are of one quad. random: {seed, counter} in the device's memory; NULL for a dropout of
 * probability 0, which draws no numbers and keeps every element whatever its word. */
template <int V> WN_DEVICE_FN void wn__words(const uint64_t *random, int64_t element, uint32_t (&word)[V])
{
    uint64_t seed = random == NULL ? 0 : random[0], counter = random == NULL ? 0 : random[1];
    WN_UNROLL
    for (int q = 0; q < (V + 3) / 4; q++) {
        uint32_t w[4];
        wn_philox(seed, counter, ((uint64_t)element >> 2) + (uint64_t)q, w);
        WN_UNROLL
        for (int v = 0; v < 4 && v < V; v++) {
            if (V >= 4) word[4 * q + v] = w[v];
            if (V == 2) word[v] = (element & 2) ? w[2 + (v & 1)] : w[v & 1];
            if (V == 1) word[v] = (element & 2) ? ((element & 1) ? w[3] : w[2]) : ((element & 1) ? w[1] : w[0]);
        }
    }
}

/* Computes y = DROPOUT(a) for V elements in a row, y: (V), a: (V), of which the first is `element` in the row-major
 * order of the whole value. y may be a. Requires V = 1, 2, 4 or 8, and element % V == 0. */
template <class N, int V>
WN_DEVICE_FN void wn__dropout_pack(const struct wn__step &s, const N (&a)[V], N (&y)[V], int64_t element)
{
    const N scale = (N)s.scale;
    uint32_t word[V];
    wn__words<V>(s.random, element, word);
    WN_UNROLL
    for (int v = 0; v < V; v++) y[v] = word[v] < s.threshold ? a[v] * scale : (N)0;
}

/* Computes y = op(a, b) for V elements in a row, y: (V), a: (V), b: (V), of which the first is `element` in the
 * row-major order of the whole value; it counts for DROPOUT alone. b counts only where the op has two operands. y may
 * be a or b. Requires V = 1, 2, 4 or 8, and element % V == 0. */
template <class N, int V>
WN_DEVICE_FN void wn__elementwise_pack(const struct wn__step &s, const N (&a)[V], const N (&b)[V], N (&y)[V],
                                       int64_t element)
{
    const N low = (N)s.low, high = (N)s.high;
    switch (s.op) {
#define WN_CASE(NAME)                                                                                                  \
    case WN_OP_##NAME:                                                                                                 \
        WN_UNROLL                                                                                                      \
        for (int v = 0; v < V; v++) y[v] = wn__formula<N>(WN_OP_##NAME, a[v], b[v], low, high);                        \
        break;
        WN_EACH_BINARY(WN_CASE)
        WN_EACH_UNARY(WN_CASE)
        WN_EACH_GRAD(WN_CASE)
#undef WN_CASE
    case WN_OP_DROPOUT: wn__dropout_pack(s, a, y, element); break;
    default: break;
    }
}

/* Returns op(a, b) for element `element` of the whole value; b counts only where the op has two operands. */
template <class N> WN_DEVICE_FN N wn__elementwise(const struct wn__step &s, N a, N b, int64_t element)
{
    N in_a[1] = {a}, in_b[1] = {b}, y[1] = {a};
    wn__elementwise_pack<N, 1>(s, in_a, in_b, y, element);
    return y[0];
}
#endif
