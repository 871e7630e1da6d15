/* FULL, ARANGE, EYE, UNIFORM, NORMAL, RANDINT: values computed from attributes alone.
 *
 * A random number is a function of (seed, counter, element), so a value computed again, in any order and by any number
 * of threads, is the same. Random formulas are computed in double and rounded once to the dtype; bf16 is the f32 value,
 * rounded. */
#include <math.h>
#include <stddef.h>
#include <string.h>
#include "../../../runtime/base/random.h"
#include "../../scalar.h"
#include "../../../runtime/base/memory_order.h"
#include "../../../runtime/base/number.h"
#include "elementwise.h"
#include "philox_bulk.h"

#define CHUNK (4 * WN_QUADS) /* words that are drawn at once; columns of a panel that are computed at once */

/* Defines a loop: out[i] = EXPR for i < n; EXPR may use f0, f1 (runtime/ops/creation.c), at and word[i], which
 * of_words finds where an operand would be. */
#define MAKER(NAME, T, EXPR)                                                                                           \
    static void NAME(const struct wn__elementwise *e, const struct wn__operands *o, int64_t n, int64_t at)             \
    {                                                                                                                  \
        T *restrict out = o->out;                                                                                      \
        const uint32_t *restrict word = o->in[WN_OPERANDS - 1];                                                        \
        const double f0 = e->f[0], f1 = e->f[1];                                                                       \
        (void)f0, (void)f1, (void)at, (void)word;                                                                      \
        _Pragma("omp simd") for (int64_t i = 0; i < n; i++) out[i] = EXPR;                                             \
    }

#define TO_BF16(x) wn_to_bf16((float)(x))
#define MAKERS(S, T, TO)                                                                                               \
    MAKER(full_##S, T, TO(f0))                                                                                         \
    MAKER(arange_##S, T, TO(f0 + (double)(at + i) * f1))                                                               \
    MAKER(eye_##S, T, TO((double)((at + i) / (int64_t)f0 == (at + i) % (int64_t)f0)))                                  \
    MAKER(randint_##S, T, TO(floor(f0 + (f1 - f0) * wn_unit(word[i]))))

MAKERS(f32, float, (float))
MAKERS(f64, double, (double))
MAKERS(bf16, uint16_t, TO_BF16)
MAKERS(i32, int32_t, wn_to_i32)
MAKERS(u8, uint8_t, wn_to_u8)

/* Defines the loop of UNIFORM for a dtype that f32 numbers round to. From 0 to a bound that is an f32 all steps are
 * exact but the last rounding, so the product of f32 has the bits.
 * Measured: 0.22 -> 0.06 ns an element (Zen 4, AVX-512 and AVX2). */
#define UNIFORM(S, T, TO)                                                                                              \
    MAKER(uniform_between_##S, T, TO((float)(f0 + (f1 - f0) * wn_unit(word[i]))))                                      \
    MAKER(uniform_below_##S, T, TO((float)f0 + (float)f1 * ((float)(word[i] >> 8) * (1.0f / 16777216.0f))))            \
    static void uniform_##S(const struct wn__elementwise *e, const struct wn__operands *o, int64_t n, int64_t at)      \
    {                                                                                                                  \
        int32_t below = e->f[0] == 0 && e->f[1] == (double)(float)e->f[1];                                             \
        (below ? uniform_below_##S : uniform_between_##S)(e, o, n, at);                                                \
    }

UNIFORM(f32, float, (float))
UNIFORM(bf16, uint16_t, wn_to_bf16)
MAKER(uniform_f64, double, f0 + (f1 - f0) * wn_unit(word[i]))

/* Returns the first or the second normal number of a pair of words. */
static double one_normal(const uint32_t pair[2], int32_t second)
{
    double z[2];
    wn_box_muller(pair[0], pair[1], z);
    return z[second];
}

/* Defines the loop of NORMAL. Two elements are a pair of words, which is loaded as one lane of 64 bits; the pairs that
 * [at, at + n) cuts are computed apart. No simd pragma: with one the compiler keeps pairs in memory.
 * Measured, ns an element: 1.1 -> 0.98 (AVX-512), 1.7 -> 1.4 (AVX2), Zen 4; words of 32 bits had to be widened. */
#define NORMAL(S, T, TO)                                                                                               \
    static void normal_##S(const struct wn__elementwise *e, const struct wn__operands *o, int64_t n, int64_t at)       \
    {                                                                                                                  \
        double f0 = e->f[0], f1 = e->f[1];                                                                             \
        int64_t odd = at & 1, pairs = (n - odd) / 2;                                                                   \
        const uint32_t *word = o->in[WN_OPERANDS - 1];                                                                 \
        T *out = o->out;                                                                                               \
        if (odd) out[0] = TO(f0 + f1 * one_normal(word - 1, 1));                                                       \
        normal_pairs_##S(f0, f1, word + odd, pairs, out + odd);                                                        \
        if (odd + 2 * pairs < n) out[n - 1] = TO(f0 + f1 * one_normal(word + n - 1, 0));                               \
    }
#define NORMAL_PAIRS(S, T, TO)                                                                                         \
    static void normal_pairs_##S(double f0, double f1, const uint32_t *restrict word, int64_t pairs, T *restrict out)  \
    {                                                                                                                  \
        for (int64_t i = 0; i < pairs; i++) {                                                                          \
            uint64_t pair;                                                                                             \
            double z[2];                                                                                               \
            memcpy(&pair, word + 2 * i, sizeof pair);                                                                  \
            wn_box_muller((uint32_t)pair, (uint32_t)(pair >> 32), z);                                                  \
            out[2 * i] = TO(f0 + f1 * z[0]);                                                                           \
            out[2 * i + 1] = TO(f0 + f1 * z[1]);                                                                       \
        }                                                                                                              \
    }                                                                                                                  \
    NORMAL(S, T, TO)

NORMAL_PAIRS(f32, float, (float))
NORMAL_PAIRS(f64, double, (double))
NORMAL_PAIRS(bf16, uint16_t, TO_BF16)

static const wn__row_loop makers[WN_OP_COUNT][WN_DTYPE_COUNT] = {
    [WN_OP_FULL] = {WN_TYPES(full)},        [WN_OP_ARANGE] = {WN_TYPES(arange)},
    [WN_OP_EYE] = {WN_TYPES(eye)},          [WN_OP_RANDINT] = {WN_TYPES(randint)},
    [WN_OP_UNIFORM] = {WN_FLOATS(uniform)}, [WN_OP_NORMAL] = {WN_FLOATS(normal)}};

static int32_t draws(int32_t op)
{
    return op == WN_OP_UNIFORM || op == WN_OP_NORMAL || op == WN_OP_RANDINT;
}

void wn__elementwise_draw(const struct wn__elementwise *e, const struct wn__operands *o, int64_t n, int64_t at,
                          int64_t size, wn__row_loop of_words)
{
    uint32_t word[4 * CHUNK];
    /* Measured: dropout of f64, 4 * CHUNK: 1.07x time; all others, 2 * CHUNK: 1.02-1.04x. */
    const int64_t most = o->in[0] != NULL && size == 8 ? 2 * CHUNK : 4 * CHUNK;
    for (int64_t i = 0, m; i < n; i += m) {
        const int64_t first = (at + i) / 4 * 4, skipped = at + i - first;
        m = wn_min(n - i, most - skipped);
        for (int64_t k = 0; k < skipped + m; k += CHUNK)
            wn__draw(e->seed, e->counter, (uint64_t)(first + k) / 4, word + k);
        struct wn__operands part = {.out = (char *)o->out + i * size, .in = {[WN_OPERANDS - 1] = word + skipped}};
        if (o->in[0] != NULL) part.in[0] = (const char *)o->in[0] + i * size;
        of_words(e, &part, m, at + i);
    }
}

static void draw(const struct wn__elementwise *e, const struct wn__operands *o, int64_t n, int64_t at)
{
    wn__elementwise_draw(e, o, n, e->first + at, e->size, e->of_words);
}

/* Returns the loop of an application, over any row. */
static struct wn__elementwise maker_of(const struct wn_desc *d, const struct wn_buffers *b)
{
    const wn__row_loop loop = makers[d->op][d->out.dtype];
    struct wn__elementwise e = {.loop = draws(d->op) ? draw : loop, .of_words = loop, .is_math = draws(d->op)};
    e.size = wn__dtype_size(d->out.dtype);
    e.f[0] = d->op == WN_OP_EYE ? (double)d->out.dim[d->out.ndim - 1] : d->attrs.f[0];
    e.f[1] = d->attrs.f[1];
    e.seed = b->seed;
    e.counter = b->counter;
    e.first = wn__created_first(d);
    return e;
}

/* ---- in panels ----------------------------------------------------------------------------------- */

struct panels {
    const struct wn_type *type;
    const struct wn__elementwise *maker;
    char *out;
};

/* Defines the loop that puts n columns of row-major rows, from column `at` on, into their columns of a panel. */
#define TRANSPOSE(S, T)                                                                                                \
    static void transpose_##S(const struct wn_type *t, const void *from, int64_t rows, int64_t at, int64_t n,          \
                              void *panel)                                                                             \
    {                                                                                                                  \
        for (int64_t j = 0; j < n; j++) {                                                                              \
            T *to = (T *)panel + wn__panel_column(t, at + j) * rows;                                                   \
            for (int64_t i = 0; i < rows; i++) to[i] = ((const T *)from)[i * CHUNK + j];                               \
        }                                                                                                              \
    }

TRANSPOSE(8, uint64_t)
TRANSPOSE(4, uint32_t)
TRANSPOSE(2, uint16_t)

/* Computes panels [begin, end); each element has the number of the same element of a plain value. */
static void make_panels(int64_t begin, int64_t end, void *ctx)
{
    const struct panels *p = ctx;
    const struct wn_type *t = p->type;
    int64_t rows = t->dim[0], columns = wn__panel_columns(t), size = p->maker->size, width;
    char block[WN_PANEL * CHUNK * sizeof(double)] __attribute__((aligned(64)));
    for (int64_t panel = begin; panel < end; panel++) {
        char *out = p->out + wn__panel_row(rows, columns, panel * WN_PANEL, &width) * size;
        for (int64_t column = 0; column < columns; column += CHUNK) {
            int64_t n = columns - column < CHUNK ? columns - column : CHUNK;
            for (int64_t i = 0; i < width; i++) {
                const struct wn__operands o = {.out = block + i * CHUNK * size};
                p->maker->loop(p->maker, &o, n, (panel * WN_PANEL + i) * columns + column);
            }
            (size == 8 ? transpose_8 : size == 4 ? transpose_4 : transpose_2)(t, block, width, column, n, out);
        }
    }
}

static int32_t creation(const struct wn_desc *d, const struct wn_buffers *b, WN_NO_STREAM)
{
    const struct wn__elementwise e = maker_of(d, b);
    if (d->out.layout != WN_PLAIN && d->op != WN_OP_FULL) {
        struct panels p = {&d->out, &e, b->out};
        wn__parallel_for((d->out.dim[0] + WN_PANEL - 1) / WN_PANEL, 1, make_panels, &p);
    } else wn__elementwise_whole(d, b, &e, d->op == WN_OP_NORMAL ? WN_CPU_GRAIN / 16 : WN_CPU_GRAIN_MATH);
    return WN_OK;
}

wn_kernel_fn wn__cpu_creation_kernel(const struct wn_desc *d)
{
    return makers[d->op][d->out.dtype] ? creation : NULL;
}
