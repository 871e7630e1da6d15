/* Elementwise ops of two operands, comparisons, and WHERE, under broadcasting.
 *
 * A kernel is a row loop for every combination of steps 0 and 1; the broadcast iterator (broadcast.c) makes equal
 * shapes and scalar operands one long row. A loop reads an element before it writes it, so out may be an operand of the
 * same shape. bf16 is computed by tiles in the f32 loops. */
#include <stddef.h>
#include <string.h>
#include "../scalar.h"
#include "bf16.h"
#include "elementwise.h"

/* Defines a row loop: out[i] = EXPR of a[i * sa] and b[i * sb], i < n; sa, sb are 0 or 1. */
#define ROW_LOOP(NAME, T, R, EXPR)                                                                                     \
    static void NAME(void *out_, const void *a_, const void *b_, int64_t n, int64_t sa, int64_t sb)                    \
    {                                                                                                                  \
        R *out = out_;                                                                                                 \
        const T *a = a_, *b = b_;                                                                                      \
        if (sa && sb) {                                                                                                \
            _Pragma("omp simd") for (int64_t i = 0; i < n; i++)                                                        \
            {                                                                                                          \
                T x = a[i], y = b[i];                                                                                  \
                out[i] = (R)(EXPR);                                                                                    \
            }                                                                                                          \
        } else if (sa) {                                                                                               \
            T y = b[0];                                                                                                \
            _Pragma("omp simd") for (int64_t i = 0; i < n; i++)                                                        \
            {                                                                                                          \
                T x = a[i];                                                                                            \
                out[i] = (R)(EXPR);                                                                                    \
            }                                                                                                          \
        } else {                                                                                                       \
            T x = a[0];                                                                                                \
            _Pragma("omp simd") for (int64_t i = 0; i < n; i++)                                                        \
            {                                                                                                          \
                T y = b[i * sb];                                                                                       \
                out[i] = (R)(EXPR);                                                                                    \
            }                                                                                                          \
        }                                                                                                              \
    }

#define NUMBER_LOOPS(S, T)                                                                                             \
    ROW_LOOP(add_##S, T, T, wn_add_##S(x, y))                                                                          \
    ROW_LOOP(sub_##S, T, T, wn_sub_##S(x, y))                                                                          \
    ROW_LOOP(mul_##S, T, T, wn_mul_##S(x, y))                                                                          \
    ROW_LOOP(maximum_##S, T, T, wn_maximum_##S(x, y))                                                                  \
    ROW_LOOP(minimum_##S, T, T, wn_minimum_##S(x, y))                                                                  \
    ROW_LOOP(eq_##S, T, uint8_t, x == y)                                                                               \
    ROW_LOOP(ne_##S, T, uint8_t, x != y)                                                                               \
    ROW_LOOP(lt_##S, T, uint8_t, x < y)                                                                                \
    ROW_LOOP(gt_##S, T, uint8_t, x > y)                                                                                \
    ROW_LOOP(le_##S, T, uint8_t, x <= y)                                                                               \
    ROW_LOOP(ge_##S, T, uint8_t, x >= y)

NUMBER_LOOPS(f32, float)
NUMBER_LOOPS(f64, double)
NUMBER_LOOPS(i32, int32_t)
NUMBER_LOOPS(u8, uint8_t)
ROW_LOOP(div_f32, float, float, wn_div_f32(x, y))
ROW_LOOP(div_f64, double, double, wn_div_f64(x, y))
ROW_LOOP(general_pow_f32, float, float, wn_pow_f32(x, y))
ROW_LOOP(general_pow_f64, double, double, wn_pow_f64(x, y))

/* Powers 2 and 1, of squares and their gradients, have loops of their own, because most powers are those and libm's
 * loop does not vectorise. The bits are the same: scalar.h squares by a product, and libm gives x for the power 1. */
#define POW(S, T)                                                                                                      \
    static void pow_##S(void *out, const void *a, const void *b, int64_t n, int64_t sa, int64_t sb)                    \
    {                                                                                                                  \
        T y = ((const T *)b)[0];                                                                                       \
        if (sa && !sb && y == (T)2) mul_##S(out, a, a, n, 1, 1);                                                       \
        else if (sa && !sb && y == (T)1) memmove(out, a, (size_t)n * sizeof(T));                                       \
        else general_pow_##S(out, a, b, n, sa, sb);                                                                    \
    }

POW(f32, float)
POW(f64, double)

#define NUMBER_ROW(NAME, name)                                                                                         \
    [WN_OP_##NAME] = {[WN_F32] = name##_f32, [WN_F64] = name##_f64, [WN_I32] = name##_i32, [WN_U8] = name##_u8},
#define FLOAT_ROW(NAME, name) [WN_OP_##NAME] = {[WN_F32] = name##_f32, [WN_F64] = name##_f64},

static const wn__row_loop loops[WN_OP_COUNT][WN_DTYPE_COUNT] = {
    NUMBER_ROW(ADD, add) NUMBER_ROW(SUB, sub) NUMBER_ROW(MUL, mul) NUMBER_ROW(MAXIMUM, maximum)
        NUMBER_ROW(MINIMUM, minimum) NUMBER_ROW(EQ, eq) NUMBER_ROW(NE, ne) NUMBER_ROW(LT, lt) NUMBER_ROW(GT, gt)
            NUMBER_ROW(LE, le) NUMBER_ROW(GE, ge) FLOAT_ROW(DIV, div) FLOAT_ROW(POW, pow)};

wn__row_loop wn__cpu_binary_loop(int32_t op, int32_t dtype)
{
    return loops[op][dtype];
}

/* One op of two operands. */
struct binary {
    struct wn__broadcast broadcast; /* over a and b */
    wn__row_loop loop;
    const char *a, *b;
    char *out;
    int64_t in_size, out_size; /* bytes of an element */
    int32_t streams;           /* out is stored non-temporally */
};

static void binary_row(void *ctx, int64_t at, int64_t n, const int64_t *offset)
{
    const struct binary *k = ctx;
    const char *a = k->a + offset[0] * k->in_size, *b = k->b + offset[1] * k->in_size;
    int64_t sa = wn__broadcast_inner(&k->broadcast, 0), sb = wn__broadcast_inner(&k->broadcast, 1);
    if (!k->streams) {
        k->loop(k->out + at * k->out_size, a, b, n, sa, sb);
        return;
    }
    struct wn__stream_block block;
    for (int64_t i = 0, stop; i < n; i = stop) {
        stop = wn__stream_stop(at + i, at + n) - at;
        const char *ai = a + i * sa * k->in_size, *bi = b + i * sb * k->in_size;
        if (sa) wn__prefetch_stream(ai, (stop - i) * k->in_size);
        if (sb) wn__prefetch_stream(bi, (stop - i) * k->in_size);
        k->loop(block.bytes, ai, bi, stop - i, sa, sb);
        wn__stream(k->out + (at + i) * k->out_size, block.bytes, (stop - i) * k->out_size);
    }
}

/* Computes a row of bf16, tile by tile, in the f32 loop. */
static void halves_row(void *ctx, int64_t at, int64_t n, const int64_t *offset)
{
    const struct binary *k = ctx;
    const uint16_t *a = (const uint16_t *)k->a + offset[0], *b = (const uint16_t *)k->b + offset[1];
    int64_t sa = wn__broadcast_inner(&k->broadcast, 0), sb = wn__broadcast_inner(&k->broadcast, 1);
    float wide_a[WN_TILE], wide_b[WN_TILE], wide[WN_TILE];
    for (int64_t i = 0; i < n; i += WN_TILE) {
        int64_t m = n - i < WN_TILE ? n - i : WN_TILE;
        wn__widen(wide_a, a + i * sa, sa ? m : 1);
        wn__widen(wide_b, b + i * sb, sb ? m : 1);
        if (k->out_size == 1) k->loop(k->out + at + i, wide_a, wide_b, m, sa, sb);
        else {
            k->loop(wide, wide_a, wide_b, m, sa, sb);
            wn__round((uint16_t *)k->out + at + i, wide, m);
        }
    }
}

static void binary_part(int64_t begin, int64_t end, void *ctx)
{
    const struct binary *k = ctx;
    wn__broadcast_range(&k->broadcast, begin, end, binary_row, ctx);
    if (k->streams) wn__stream_end();
}

static void halves_part(int64_t begin, int64_t end, void *ctx)
{
    wn__broadcast_range(&((struct binary *)ctx)->broadcast, begin, end, halves_row, ctx);
}

static wn__row_loop loop_of(const struct wn_desc *d)
{
    return loops[d->op][d->in[0].dtype == WN_BF16 ? WN_F32 : d->in[0].dtype];
}

static int32_t binary(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    (void)stream;
    const struct wn_type *in[2] = {&d->in[0], &d->in[1]};
    struct binary k = {.loop = loop_of(d), .a = b->in[0], .b = b->in[1], .out = b->out};
    int64_t grain = d->op == WN_OP_POW ? WN_CPU_GRAIN / 16 : WN_CPU_GRAIN;
    k.in_size = wn__dtype_size(d->in[0].dtype);
    k.out_size = wn__dtype_size(d->out.dtype);
    k.streams = wn__streams(wn__bytes(&d->out), k.out, k.a, k.b);
    wn__broadcast_make(&k.broadcast, &d->out, 2, in);
    wn__parallel_for(k.broadcast.numel, grain, d->in[0].dtype == WN_BF16 ? halves_part : binary_part, &k);
    return WN_OK;
}

/* ---- where --------------------------------------------------------------------------------------- */

/* out = condition ? a : b. */
struct where {
    struct wn__broadcast broadcast; /* over condition, a and b */
    const uint8_t *condition;
    const void *a, *b;
    void *out;
    int32_t streams; /* out is stored non-temporally */
};

/* Defines the row loop of WHERE. Steps that are constants at each call let the compiler vectorise. */
#define WHERE(S, T)                                                                                                    \
    static inline __attribute__((always_inline)) void where_loop_##S(                                                  \
        const uint8_t *condition, const T *a, const T *b, T *out, int64_t n, int64_t sc, int64_t sa, int64_t sb)       \
    {                                                                                                                  \
        _Pragma("omp simd") for (int64_t i = 0; i < n; i++)                                                            \
        {                                                                                                              \
            T x = a[i * sa], y = b[i * sb];                                                                            \
            out[i] = condition[i * sc] ? x : y;                                                                        \
        }                                                                                                              \
    }                                                                                                                  \
    static void where_steps_##S(const uint8_t *condition, const T *a, const T *b, T *out, int64_t n, int64_t sc,       \
                                int64_t sa, int64_t sb)                                                                \
    {                                                                                                                  \
        if (sc && sa && sb) where_loop_##S(condition, a, b, out, n, 1, 1, 1);                                          \
        else if (sc && sa) where_loop_##S(condition, a, b, out, n, 1, 1, 0);                                           \
        else if (sc && sb) where_loop_##S(condition, a, b, out, n, 1, 0, 1);                                           \
        else if (sc) where_loop_##S(condition, a, b, out, n, 1, 0, 0);                                                 \
        else where_loop_##S(condition, a, b, out, n, 0, sa, sb);                                                       \
    }                                                                                                                  \
    static void where_row_##S(void *ctx, int64_t at, int64_t n, const int64_t *offset)                                 \
    {                                                                                                                  \
        const struct where *k = ctx;                                                                                   \
        const uint8_t *condition = k->condition + offset[0];                                                           \
        const T *a = (const T *)k->a + offset[1], *b = (const T *)k->b + offset[2];                                    \
        int64_t sc = wn__broadcast_inner(&k->broadcast, 0), sa = wn__broadcast_inner(&k->broadcast, 1);                \
        int64_t sb = wn__broadcast_inner(&k->broadcast, 2);                                                            \
        T *out = (T *)k->out + at;                                                                                     \
        if (!k->streams) {                                                                                             \
            where_steps_##S(condition, a, b, out, n, sc, sa, sb);                                                      \
            return;                                                                                                    \
        }                                                                                                              \
        T block[WN_STREAM_BLOCK];                                                                                      \
        for (int64_t i = 0, stop; i < n; i = stop) {                                                                   \
            stop = wn__stream_stop(at + i, at + n) - at;                                                               \
            if (sa) wn__prefetch_stream(a + i, (stop - i) * (int64_t)sizeof(T));                                       \
            if (sb) wn__prefetch_stream(b + i, (stop - i) * (int64_t)sizeof(T));                                       \
            where_steps_##S(condition + i * sc, a + i * sa, b + i * sb, block, stop - i, sc, sa, sb);                  \
            wn__stream(out + i, block, (stop - i) * (int64_t)sizeof(T));                                               \
        }                                                                                                              \
    }                                                                                                                  \
    static void where_part_##S(int64_t begin, int64_t end, void *ctx)                                                  \
    {                                                                                                                  \
        const struct where *k = ctx;                                                                                   \
        wn__broadcast_range(&k->broadcast, begin, end, where_row_##S, ctx);                                            \
        if (k->streams) wn__stream_end();                                                                              \
    }

WHERE(f32, float)
WHERE(f64, double)
WHERE(bf16, uint16_t)
WHERE(i32, int32_t)
WHERE(u8, uint8_t)

static const wn__parallel_body where_parts[WN_DTYPE_COUNT] = {[WN_F32] = where_part_f32,
                                                              [WN_F64] = where_part_f64,
                                                              [WN_BF16] = where_part_bf16,
                                                              [WN_I32] = where_part_i32,
                                                              [WN_U8] = where_part_u8};

static int32_t where(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    (void)stream;
    const struct wn_type *in[3] = {&d->in[0], &d->in[1], &d->in[2]};
    struct where k = {.condition = b->in[0], .a = b->in[1], .b = b->in[2], .out = b->out};
    k.streams = wn__streams(wn__bytes(&d->out), b->out, b->in[1], b->in[2]);
    wn__broadcast_make(&k.broadcast, &d->out, 3, in);
    wn__parallel_for(k.broadcast.numel, WN_CPU_GRAIN, where_parts[d->out.dtype], &k);
    return WN_OK;
}

wn_kernel_fn wn__cpu_binary_kernel(const struct wn_desc *d)
{
    if (d->op == WN_OP_WHERE) {
        int32_t t = d->out.dtype;
        return where_parts[t] && d->in[0].dtype == WN_U8 && d->in[1].dtype == t && d->in[2].dtype == t ? where : NULL;
    }
    if (d->in[0].dtype != d->in[1].dtype || !loop_of(d)) return NULL;
    int32_t compares = d->op >= WN_OP_EQ && d->op <= WN_OP_GE;
    return d->out.dtype == (compares ? WN_U8 : d->in[0].dtype) ? binary : NULL;
}
