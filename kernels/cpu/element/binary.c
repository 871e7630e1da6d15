/* Elementwise ops of two operands, comparisons, and WHERE, under broadcasting: a row loop for every combination of
 * steps 0 and 1. A loop reads an element before it writes it, so out may be an operand of the same shape. */
#include <stddef.h>
#include <string.h>
#include "../../scalar.h"
#include "elementwise.h"
#include "whole.h"

/* Computes out[i] = EXPR of x = X and y = Y, i < n. */
#define LOOP(T, R, X, Y, EXPR)                                                                                         \
    _Pragma("omp simd") for (int64_t i = 0; i < n; i++)                                                                \
    {                                                                                                                  \
        T x = (X), y = (Y);                                                                                            \
        out[i] = (R)(EXPR);                                                                                            \
    }

#define ROW_LOOP_OF(NAME)                                                                                              \
    static void NAME(__attribute__((unused)) const struct wn__elementwise *e, const struct wn__operands *o, int64_t n, \
                     __attribute__((unused)) int64_t at)

/* Defines a row loop: out[i] = EXPR of x = a[i * step[0]] and y = b[i * step[1]]. */
#define ROW_LOOP(NAME, T, R, EXPR)                                                                                     \
    ROW_LOOP_OF(NAME)                                                                                                  \
    {                                                                                                                  \
        R *out = o->out;                                                                                               \
        const T *a = o->in[0], *b = o->in[1], x0 = a[0], y0 = b[0];                                                    \
        if (o->step[0] && o->step[1]) LOOP(T, R, a[i], b[i], EXPR)                                                     \
        else if (o->step[0]) LOOP(T, R, a[i], y0, EXPR)                                                                \
        else if (o->step[1]) LOOP(T, R, x0, b[i], EXPR)                                                                \
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
    ROW_LOOP_OF(pow_##S)                                                                                               \
    {                                                                                                                  \
        const int32_t is_number = o->step[0] && !o->step[1];                                                           \
        const T y = ((const T *)o->in[1])[0];                                                                          \
        const struct wn__operands square = {.out = o->out, .in = {o->in[0], o->in[0]}, .step = {1, 1}};                \
        if (is_number && y == (T)2) mul_##S(e, &square, n, at);                                                        \
        else if (is_number && y == (T)1) memmove(o->out, o->in[0], (size_t)n * sizeof(T));                             \
        else general_pow_##S(e, o, n, at);                                                                             \
    }

POW(f32, float)
POW(f64, double)

/* Defines the loop of i32 of an op whose results 32 bits may not hold: tells of those in e->whole. Operands are not
 * written before. */
#define WHOLE(NAME, OP)                                                                                                \
    ROW_LOOP_OF(whole_##NAME)                                                                                          \
    {                                                                                                                  \
        const int32_t *a = o->in[0], *b = o->in[1];                                                                    \
        const int64_t sa = o->step[0], sb = o->step[1];                                                                \
        int32_t outside = 0;                                                                                           \
        _Pragma("omp simd reduction(| : outside)") for (int64_t i = 0; i < n; i++) outside |=                          \
            !wn__whole_fits((int64_t)a[i * sa] OP b[i * sb]);                                                          \
        for (int64_t i = 0; outside && i < n; i++) {                                                                   \
            int64_t value = (int64_t)a[i * sa] OP b[i * sb];                                                           \
            if (!wn__whole_fits(value)) wn__whole_tell(e->whole, at + i, value);                                       \
        }                                                                                                              \
        NAME##_i32(e, o, n, at);                                                                                       \
    }

WHOLE(add, +)
WHOLE(sub, -)
WHOLE(mul, *)

#define WHOLE_ROW(NAME, name) [WN_OP_##NAME] = {WN_F32_F64(name), [WN_I32] = whole_##name, [WN_U8] = name##_u8}
#define NUMBER_ROW(NAME, name) [WN_OP_##NAME] = {WN_F32_F64(name), [WN_I32] = name##_i32, [WN_U8] = name##_u8}

static const wn__row_loop loops[WN_OP_COUNT][WN_DTYPE_COUNT] = {WHOLE_ROW(ADD, add),
                                                                WHOLE_ROW(SUB, sub),
                                                                WHOLE_ROW(MUL, mul),
                                                                NUMBER_ROW(MAXIMUM, maximum),
                                                                NUMBER_ROW(MINIMUM, minimum),
                                                                NUMBER_ROW(EQ, eq),
                                                                NUMBER_ROW(NE, ne),
                                                                NUMBER_ROW(LT, lt),
                                                                NUMBER_ROW(GT, gt),
                                                                NUMBER_ROW(LE, le),
                                                                NUMBER_ROW(GE, ge),
                                                                [WN_OP_DIV] = {WN_F32_F64(div)},
                                                                [WN_OP_POW] = {WN_F32_F64(pow)}};

wn__row_loop wn__cpu_binary_loop(int32_t op, int32_t dtype)
{
    return loops[op][dtype];
}

static int32_t binary(const struct wn_desc *d, const struct wn_buffers *b, WN_NO_STREAM)
{
    struct wn__elementwise e;
    struct wn__whole whole = WN_WHOLE_NONE;
    wn__elementwise_of(d->op, d->in[0].dtype, d->attrs.f, NULL, &e);
    e.size = wn__dtype_size(d->out.dtype);
    e.whole = &whole;
    wn__elementwise_whole(d, b, &e, d->op == WN_OP_POW ? WN_CPU_GRAIN / 16 : WN_CPU_GRAIN);
    return wn__whole_check(&whole, d);
}

/* ---- where --------------------------------------------------------------------------------------- */

/* Defines the row loop of WHERE, out = condition ? a : b, for a type of as many bytes as the elements. */
#define WHERE(S, T)                                                                                                    \
    ROW_LOOP_OF(where_##S)                                                                                             \
    {                                                                                                                  \
        const uint8_t *c = o->in[0];                                                                                   \
        const T *a = o->in[1], *b = o->in[2], x0 = a[0], y0 = b[0];                                                    \
        const int64_t sc = o->step[0], sa = o->step[1], sb = o->step[2];                                               \
        T *out = o->out;                                                                                               \
        if (sc && sa && sb) LOOP(T, T, a[i], b[i], c[i] ? x : y)                                                       \
        else if (sc && sa) LOOP(T, T, a[i], y0, c[i] ? x : y)                                                          \
        else if (sc && sb) LOOP(T, T, x0, b[i], c[i] ? x : y)                                                          \
        else if (sc) LOOP(T, T, x0, y0, c[i] ? x : y)                                                                  \
        else if (c[0]) LOOP(T, T, a[i * sa], y0, 1 ? x : y)                                                            \
        else LOOP(T, T, x0, b[i * sb], 0 ? x : y)                                                                      \
    }

WHERE(1, uint8_t)
WHERE(2, uint16_t)
WHERE(4, uint32_t)
WHERE(8, uint64_t)

static int32_t where(const struct wn_desc *d, const struct wn_buffers *b, WN_NO_STREAM)
{
    struct wn__elementwise e = {.size = wn__dtype_size(d->out.dtype)};
    e.loop = e.size == 1 ? where_1 : e.size == 2 ? where_2 : e.size == 4 ? where_4 : where_8;
    wn__elementwise_whole(d, b, &e, WN_CPU_GRAIN);
    return WN_OK;
}

wn_kernel_fn wn__cpu_binary_kernel(const struct wn_desc *d)
{
    const int32_t in = d->in[0].dtype, out = d->out.dtype;
    if (d->op == WN_OP_WHERE) return in == WN_U8 && d->in[1].dtype == out && d->in[2].dtype == out ? where : NULL;
    if (d->in[1].dtype != in || !loops[d->op][in == WN_BF16 ? WN_F32 : in]) return NULL;
    int32_t compares = d->op >= WN_OP_EQ && d->op <= WN_OP_GE;
    return out == (compares ? WN_U8 : in) ? binary : NULL;
}
