/* Elementwise ops of two operands, comparisons, and WHERE, under broadcasting.
 *
 * A kernel is a row loop for every combination of steps 0 and 1; the broadcast iterator (common/broadcast.c) makes
 * equal shapes and scalar operands one long row. A loop reads an element before it writes it, so out may be an operand
 * of the same shape. bf16 is computed by tiles in the f32 loops. */
#include <stddef.h>
#include <string.h>
#include "../../scalar.h"
#include "../common/bf16.h"
#include "elementwise.h"
#include "whole.h"

/* Computes out[i] = EXPR of x = X and y = Y, i < n. */
#define LOOP(T, R, X, Y, EXPR)                                                                                         \
    _Pragma("omp simd") for (int64_t i = 0; i < n; i++)                                                                \
    {                                                                                                                  \
        T x = (X), y = (Y);                                                                                            \
        out[i] = (R)(EXPR);                                                                                            \
    }

/* Defines a row loop: out[i] = EXPR of x = a[i * sa] and y = b[i * sb], i < n, n > 0; sa, sb are 0 or 1. */
#define ROW_LOOP(NAME, T, R, EXPR)                                                                                     \
    static void NAME(void *out_, const void *a_, const void *b_, int64_t n, int64_t sa, int64_t sb)                    \
    {                                                                                                                  \
        R *out = out_;                                                                                                 \
        const T *a = a_, *b = b_, x0 = a[0], y0 = b[0];                                                                \
        if (sa && sb) LOOP(T, R, a[i], b[i], EXPR)                                                                     \
        else if (sa) LOOP(T, R, a[i], y0, EXPR)                                                                        \
        else if (sb) LOOP(T, R, x0, b[i], EXPR)                                                                        \
        else LOOP(T, R, x0, y0, EXPR)                                                                                  \
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
    struct wn__whole *whole;   /* of ADD, SUB and MUL of i32, else NULL */
    int32_t op;
};

/* Defines whether a OP b fits in 32 bits for all of n elements. */
#define FITS(NAME, OP)                                                                                                 \
    static int32_t NAME##_fits(const int32_t *a, const int32_t *b, int64_t n, int64_t sa, int64_t sb)                  \
    {                                                                                                                  \
        int32_t outside = 0;                                                                                           \
        _Pragma("omp simd reduction(| : outside)") for (int64_t i = 0; i < n; i++)                                     \
        {                                                                                                              \
            int64_t value = (int64_t)a[i * sa] OP b[i * sb];                                                           \
            outside |= value != (int32_t)value;                                                                        \
        }                                                                                                              \
        return !outside;                                                                                               \
    }

FITS(add, +)
FITS(sub, -)
FITS(mul, *)

/* Tells of the elements of a row, from element `at` of out on, that 32 bits do not hold. Operands are not written. */
static void check_row(const struct binary *k, int64_t at, int64_t n, const int64_t *offset)
{
    const int32_t *a = (const int32_t *)(const void *)k->a + offset[0],
                  *b = (const int32_t *)(const void *)k->b + offset[1];
    int64_t sa = wn__broadcast_inner(&k->broadcast, 0), sb = wn__broadcast_inner(&k->broadcast, 1);
    int32_t is_add = k->op == WN_OP_ADD, is_sub = k->op == WN_OP_SUB;
    if ((is_add ? add_fits : is_sub ? sub_fits : mul_fits)(a, b, n, sa, sb)) return;
    for (int64_t i = 0; i < n; i++) {
        int64_t x = a[i * sa], y = b[i * sb], value = is_add ? x + y : is_sub ? x - y : x * y;
        if (!wn__whole_fits(value)) wn__whole_tell(k->whole, at + i, value);
    }
}

static void binary_row(void *ctx, int64_t at, int64_t n, const int64_t *offset)
{
    const struct binary *k = ctx;
    const char *a = k->a + offset[0] * k->in_size, *b = k->b + offset[1] * k->in_size;
    int64_t sa = wn__broadcast_inner(&k->broadcast, 0), sb = wn__broadcast_inner(&k->broadcast, 1);
    if (k->whole != NULL) check_row(k, at, n, offset);
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

static int32_t binary(const struct wn_desc *d, const struct wn_buffers *b, WN_NO_STREAM)
{
    const struct wn_type *in[2] = {&d->in[0], &d->in[1]};
    struct binary k = {.loop = loop_of(d), .a = b->in[0], .b = b->in[1], .out = b->out, .op = d->op};
    struct wn__whole whole = WN_WHOLE_NONE;
    if (d->out.dtype == WN_I32 && d->op <= WN_OP_MUL) k.whole = &whole;
    int64_t grain = d->op == WN_OP_POW ? WN_CPU_GRAIN / 16 : WN_CPU_GRAIN;
    k.in_size = wn__dtype_size(d->in[0].dtype);
    k.out_size = wn__dtype_size(d->out.dtype);
    k.streams = d->op == WN_OP_POW ? wn__streams_math(wn__bytes(&d->out), k.out, k.a, k.b)
                                   : wn__streams(wn__bytes(&d->out), k.out, k.a, k.b);
    wn__broadcast_make(&k.broadcast, &d->out, 2, in);
    wn__parallel_for(k.broadcast.numel, grain, d->in[0].dtype == WN_BF16 ? halves_part : binary_part, &k);
    return wn__whole_check(&whole, d);
}

/* ---- where --------------------------------------------------------------------------------------- */

/* The operands of a row, from its first element on, and their steps, 0 or 1. */
struct choice {
    const uint8_t *condition;
    const void *a, *b;
    int64_t sc, sa, sb;
};

/* out = condition ? a : b. */
struct where {
    struct wn__broadcast broadcast; /* over condition, a and b */
    const uint8_t *condition;
    const char *a, *b;
    char *out;
    void (*loop)(const struct choice *c, int64_t n, void *out);
    int64_t size;    /* bytes of an element */
    int32_t streams; /* out is stored non-temporally */
};

#define CHOOSE(T, C, X, Y)                                                                                             \
    _Pragma("omp simd") for (int64_t i = 0; i < n; i++)                                                                \
    {                                                                                                                  \
        T x = (X), y = (Y);                                                                                            \
        out[i] = (C) ? x : y;                                                                                          \
    }

/* Defines the row loop of WHERE for a type of as many bytes as the elements, n > 0. */
#define WHERE(S, T)                                                                                                    \
    static void where_##S(const struct choice *k, int64_t n, void *out_)                                               \
    {                                                                                                                  \
        const uint8_t *c = k->condition;                                                                               \
        const T *a = k->a, *b = k->b, x0 = a[0], y0 = b[0];                                                            \
        T *out = out_;                                                                                                 \
        if (k->sc && k->sa && k->sb) CHOOSE(T, c[i], a[i], b[i])                                                       \
        else if (k->sc && k->sa) CHOOSE(T, c[i], a[i], y0)                                                             \
        else if (k->sc && k->sb) CHOOSE(T, c[i], x0, b[i])                                                             \
        else if (k->sc) CHOOSE(T, c[i], x0, y0)                                                                        \
        else if (c[0]) CHOOSE(T, 1, a[i * k->sa], y0)                                                                  \
        else CHOOSE(T, 0, x0, b[i * k->sb])                                                                            \
    }

WHERE(8, uint8_t)
WHERE(16, uint16_t)
WHERE(32, uint32_t)
WHERE(64, uint64_t)

static void where_row(void *ctx, int64_t at, int64_t n, const int64_t *offset)
{
    const struct where *k = ctx;
    const char *a = k->a + offset[1] * k->size, *b = k->b + offset[2] * k->size;
    struct choice c = {.condition = k->condition + offset[0], .a = a, .b = b};
    c.sc = wn__broadcast_inner(&k->broadcast, 0);
    c.sa = wn__broadcast_inner(&k->broadcast, 1);
    c.sb = wn__broadcast_inner(&k->broadcast, 2);
    char *out = k->out + at * k->size;
    if (!k->streams) {
        k->loop(&c, n, out);
        return;
    }
    struct wn__stream_block block;
    for (int64_t i = 0, stop; i < n; i = stop) {
        stop = wn__stream_stop(at + i, at + n) - at;
        c.condition = k->condition + offset[0] + i * c.sc;
        c.a = a + i * c.sa * k->size;
        c.b = b + i * c.sb * k->size;
        if (c.sa) wn__prefetch_stream(c.a, (stop - i) * k->size);
        if (c.sb) wn__prefetch_stream(c.b, (stop - i) * k->size);
        k->loop(&c, stop - i, block.bytes);
        wn__stream(out + i * k->size, block.bytes, (stop - i) * k->size);
    }
}

static void where_part(int64_t begin, int64_t end, void *ctx)
{
    const struct where *k = ctx;
    wn__broadcast_range(&k->broadcast, begin, end, where_row, ctx);
    if (k->streams) wn__stream_end();
}

static int32_t where(const struct wn_desc *d, const struct wn_buffers *b, WN_NO_STREAM)
{
    const struct wn_type *in[3] = {&d->in[0], &d->in[1], &d->in[2]};
    struct where k = {.condition = b->in[0], .a = b->in[1], .b = b->in[2], .out = b->out};
    k.size = wn__dtype_size(d->out.dtype);
    k.loop = k.size == 1 ? where_8 : k.size == 2 ? where_16 : k.size == 4 ? where_32 : where_64;
    k.streams = wn__streams(wn__bytes(&d->out), b->out, b->in[1], b->in[2]);
    wn__broadcast_make(&k.broadcast, &d->out, 3, in);
    wn__parallel_for(k.broadcast.numel, WN_CPU_GRAIN, where_part, &k);
    return WN_OK;
}

wn_kernel_fn wn__cpu_binary_kernel(const struct wn_desc *d)
{
    if (d->op == WN_OP_WHERE) {
        int32_t t = d->out.dtype;
        return d->in[0].dtype == WN_U8 && d->in[1].dtype == t && d->in[2].dtype == t ? where : NULL;
    }
    if (d->in[0].dtype != d->in[1].dtype || !loop_of(d)) return NULL;
    int32_t compares = d->op >= WN_OP_EQ && d->op <= WN_OP_GE;
    return d->out.dtype == (compares ? WN_U8 : d->in[0].dtype) ? binary : NULL;
}
