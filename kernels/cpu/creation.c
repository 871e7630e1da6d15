/* FULL, ARANGE, EYE, UNIFORM, NORMAL, RANDINT: values computed from attributes alone.
 *
 * A random number is a function of (seed, counter, element), so a value computed again, in any order and by any number
 * of threads, is the same. Random formulas are computed in double and rounded once to the dtype; bf16 is the f32 value,
 * rounded. */
#include <math.h>
#include <stddef.h>
#include <string.h>
#include "../../runtime/base/random.h"
#include "../scalar.h"
#include "cpu.h"
#include "philox_bulk.h"

/* One creation: elements from `origin` on. */
struct creation {
    void *out; /* address of element `origin` */
    int64_t origin;
    double f0, f1;          /* attrs.f: runtime/ops/creation.c */
    int64_t columns;        /* of EYE */
    uint64_t seed, counter; /* of random values */
    int32_t streams;        /* out is stored non-temporally */
};

/* Writes the four numbers of a quad, uniform in [0, 1), to z. */
static void unit_quad(const uint32_t w[4], double z[4])
{
    for (int32_t j = 0; j < 4; j++) z[j] = wn_unit(w[j]);
}

#define RANDOM(NAME, T, QUAD, EXPR)                                                                                    \
    static void NAME(int64_t begin, int64_t end, void *ctx)                                                            \
    {                                                                                                                  \
        const struct creation *k = ctx;                                                                                \
        T *out = k->out;                                                                                               \
        double f0 = k->f0, f1 = k->f1, z[4];                                                                           \
        uint32_t w[4];                                                                                                 \
        for (int64_t i = begin; i < end;) {                                                                            \
            wn_philox(k->seed, k->counter, (uint64_t)i >> 2, w);                                                       \
            QUAD(w, z);                                                                                                \
            for (int64_t j = i & 3; j < 4 && i < end; j++, i++) out[i - k->origin] = EXPR;                             \
        }                                                                                                              \
    }

#define MAKERS(S, T, TO)                                                                                               \
    static void full_##S(int64_t begin, int64_t end, void *ctx)                                                        \
    {                                                                                                                  \
        const struct creation *k = ctx;                                                                                \
        T *out = k->out, value = TO(k->f0);                                                                            \
        WN_STREAM_LOOP(T, k->streams, out, begin, end, NULL, 0, value);                                                \
        if (k->streams) wn__stream_end();                                                                              \
    }                                                                                                                  \
    static void arange_##S(int64_t begin, int64_t end, void *ctx)                                                      \
    {                                                                                                                  \
        const struct creation *k = ctx;                                                                                \
        T *out = k->out;                                                                                               \
        WN_STREAM_LOOP(T, k->streams, out, begin, end, NULL, 0, TO(k->f0 + (double)i * k->f1));                        \
        if (k->streams) wn__stream_end();                                                                              \
    }                                                                                                                  \
    static void eye_##S(int64_t begin, int64_t end, void *ctx)                                                         \
    {                                                                                                                  \
        const struct creation *k = ctx;                                                                                \
        T *out = k->out;                                                                                               \
        for (int64_t i = begin; i < end; i++) out[i] = TO((double)(i / k->columns == i % k->columns));                 \
    }                                                                                                                  \
    RANDOM(randint_##S, T, unit_quad, TO(floor(f0 + (f1 - f0) * z[j])))

#define TO_BF16(x) wn_to_bf16((float)(x))

MAKERS(f32, float, (float))
MAKERS(f64, double, (double))
MAKERS(bf16, uint16_t, TO_BF16)
MAKERS(i32, int32_t, wn_to_i32)
MAKERS(u8, uint8_t, wn_to_u8)

/* Writes the normal numbers [first, last) of words to z, and the other one of a pair.
 * No simd pragma: with one the compiler keeps pairs in memory, and the loop takes four times as long.
 * Measured: 11 -> 1.0 ns an element of f32 against libm, a quad at a time (Zen 5, AVX-512). */
static inline __attribute__((always_inline)) void normals(const uint32_t *word, int64_t first, int64_t last, double *z)
{
    for (int64_t i = first / 2; i < (last + 1) / 2; i++) {
        double pair[2];
        wn_box_muller(word[2 * i], word[2 * i + 1], pair);
        z[2 * i] = pair[0];
        z[2 * i + 1] = pair[1];
    }
}

/* Defines UNIFORM or NORMAL in bulk, which compute the initial values of most models: out[i] = EXPR of word[i], or of
 * the z[i] that PREPARE made. */
#define BULK(NAME, T, PREPARE, EXPR)                                                                                   \
    static void NAME(int64_t begin, int64_t end, void *ctx)                                                            \
    {                                                                                                                  \
        const struct creation *k = ctx;                                                                                \
        T *out = k->out;                                                                                               \
        double f0 = k->f0, f1 = k->f1;                                                                                 \
        for (int64_t block = begin / (4 * WN_QUADS); block * 4 * WN_QUADS < end; block++) {                            \
            uint32_t word[4 * WN_QUADS];                                                                               \
            wn__draw(k->seed, k->counter, (uint64_t)block *WN_QUADS, word);                                            \
            int64_t at = block * 4 * WN_QUADS, first = begin > at ? begin - at : 0;                                    \
            int64_t last = end - at < 4 * WN_QUADS ? end - at : 4 * WN_QUADS;                                          \
            T own[4 * WN_QUADS], *to = out + at + first - k->origin;                                                   \
            PREPARE                                                                                                    \
            for (int64_t i = first; i < last; i++) own[i] = EXPR;                                                      \
            if (k->streams) wn__stream(to, own + first, (last - first) * (int64_t)sizeof(T));                          \
            else memcpy(to, own + first, (size_t)(last - first) * sizeof(T));                                          \
        }                                                                                                              \
        if (k->streams) wn__stream_end();                                                                              \
    }

#define NORMALS                                                                                                        \
    double z[4 * WN_QUADS];                                                                                            \
    normals(word, first, last, z);

BULK(uniform_f32, float, , (float)(f0 + (f1 - f0) * wn_unit(word[i])))
BULK(uniform_bf16, uint16_t, , TO_BF16(f0 + (f1 - f0) * wn_unit(word[i])))
RANDOM(uniform_f64, double, unit_quad, f0 + (f1 - f0) * z[j])
BULK(normal_f32, float, NORMALS, (float)(f0 + f1 * z[i]))
BULK(normal_f64, double, NORMALS, f0 + f1 * z[i])
BULK(normal_bf16, uint16_t, NORMALS, TO_BF16(f0 + f1 * z[i]))

#define FLOAT_ROW(NAME, name) [WN_OP_##NAME] = {[WN_F32] = name##_f32, [WN_F64] = name##_f64, [WN_BF16] = name##_bf16},
#define ANY_ROW(NAME, name)                                                                                            \
    [WN_OP_##NAME] = {[WN_F32] = name##_f32,                                                                           \
                      [WN_F64] = name##_f64,                                                                           \
                      [WN_BF16] = name##_bf16,                                                                         \
                      [WN_I32] = name##_i32,                                                                           \
                      [WN_U8] = name##_u8},

static const wn__parallel_body makers[WN_OP_COUNT][WN_DTYPE_COUNT] = {ANY_ROW(FULL, full) ANY_ROW(
    ARANGE, arange) ANY_ROW(EYE, eye) ANY_ROW(RANDINT, randint) FLOAT_ROW(UNIFORM, uniform) FLOAT_ROW(NORMAL, normal)};

/* ---- in panels ----------------------------------------------------------------------------------- */

#define CHUNK 64 /* columns of a panel that are computed at once, row after row, then transposed */

struct panels {
    const struct wn_desc *d;
    struct creation own;
};

#define TRANSPOSE(S, T)                                                                                                \
    static void transpose_##S(const void *from, int64_t rows, int64_t n, void *to)                                     \
    {                                                                                                                  \
        for (int64_t j = 0; j < n; j++)                                                                                \
            for (int64_t i = 0; i < rows; i++) ((T *)to)[j * rows + i] = ((const T *)from)[i * CHUNK + j];             \
    }

TRANSPOSE(8, uint64_t)
TRANSPOSE(4, uint32_t)
TRANSPOSE(2, uint16_t)

/* Computes panels [begin, end); each element has the number of the same element of a plain value. */
static void make_panels(int64_t begin, int64_t end, void *ctx)
{
    const struct panels *p = ctx;
    int64_t rows = p->d->out.dim[0], columns = p->d->out.dim[1], size = wn__dtype_size(p->d->out.dtype), width;
    char block[WN_PANEL * CHUNK * sizeof(double)] __attribute__((aligned(64)));
    for (int64_t panel = begin; panel < end; panel++) {
        char *out = (char *)p->own.out + wn__panel_row(rows, columns, panel * WN_PANEL, &width) * size;
        for (int64_t column = 0; column < columns; column += CHUNK) {
            int64_t n = columns - column < CHUNK ? columns - column : CHUNK;
            for (int64_t i = 0; i < width; i++) {
                struct creation k = p->own;
                k.origin = (panel * WN_PANEL + i) * columns + column;
                k.out = block + i * CHUNK * size;
                makers[p->d->op][p->d->out.dtype](k.origin, k.origin + n, &k);
            }
            (size == 8   ? transpose_8
             : size == 4 ? transpose_4
                         : transpose_2)(block, width, n, out + column * width * size);
        }
    }
}

static int32_t creation(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    (void)stream;
    struct creation k = {b->out, 0, d->attrs.f[0], d->attrs.f[1], 1, b->seed, b->counter, 0};
    if (d->out.layout != WN_PLAIN && d->op != WN_OP_FULL) {
        struct panels p = {d, k};
        wn__parallel_for((d->out.dim[0] + WN_PANEL - 1) / WN_PANEL, 1, make_panels, &p);
        return WN_OK;
    }
    k.streams = wn__streams(wn__bytes(&d->out), b->out, NULL, NULL);
    if (d->op == WN_OP_EYE) k.columns = d->out.dim[d->out.ndim - 1];
    int64_t grain = d->op == WN_OP_NORMAL ? WN_CPU_GRAIN / 16 : WN_CPU_GRAIN_MATH;
    wn__parallel_for(wn__numel(&d->out), grain, makers[d->op][d->out.dtype], &k);
    return WN_OK;
}

wn_kernel_fn wn__cpu_creation_kernel(const struct wn_desc *d)
{
    return makers[d->op][d->out.dtype] ? creation : NULL;
}
