/* Kernels around register tiles (microkernel.h), written once for all vector instructions: one that packs the next
 * micro-panel while it multiplies, and one of many micro-tiles of few steps. */
#ifndef WN_CPU_GEMM_MACROKERNEL_H
#define WN_CPU_GEMM_MACROKERNEL_H
#include "microkernel.h"

/* Computes one step of k: a: (MR), b: (vectors), both packed. */
INLINE void dense_step(const int32_t vectors, const float *a, const float *b, vec acc[MR][REGISTERS])
{
    vec x[REGISTERS];
    load_row(vectors, b, x);
    multiply_packed(vectors, a, x, acc);
}

/* ---- packing kernel: a micro-kernel that packs the next micro-panel ------------------------------ */

/* The rows that a register tile packs: vectors of the next micro-panel from column `at` on. */
struct rows_to_pack {
    const float *from, *prefetch;
    float *to;
    const char *sums; /* of the micro-tile that is computed next: prefetched */
    int64_t bk, n;    /* n: columns of the next micro-panel, from `at` on */
};

/* Packs vector v of a row, and prefetches a line of what is packed later. */
INLINE void pack_vector(const struct rows_to_pack *s, int32_t v)
{
    vec_store(s->to + LANES * v, load_in_place(s->from, s->bk, v, s->n - LANES * v));
#if defined(TILE_PAIRS) /* two rows of 96 bytes, in two lines each */
    const uint16_t *even = (const uint16_t *)(const void *)s->prefetch;
    if (v != 1) prefetch_line(FAR, (const char *)(even + 16 * v));
    if (v != 1) prefetch_line(FAR, (const char *)(even + s->bk + 16 * v));
#else
    if (v % (16 / LANES) == 0) prefetch_line(FAR, (const char *)(s->prefetch + LANES * v));
#endif
}

/* Does one call of a packing kernel for the register tile at column `at`. every: steps of k that pack one row; vectors:
 * number of vectors of b with columns. A register tile packs the vectors of the next micro-panel below its own. */
INLINE void packing_kernel_of(const struct wn__gemm_packing *t, const int32_t every, const int32_t vectors, int64_t at)
{
    vec acc[MR][REGISTERS];
    struct rows_to_pack s = {.from = t->from + at,
                             .prefetch = t->prefetch + at,
                             .to = t->next + at,
                             .sums = (const char *)(t->sums + MR * NR),
                             .bk = t->bk,
                             .n = t->next_n - at};
    const float *a = t->a, *b = t->b + at;
    float *sums = t->sums + at;
#pragma GCC unroll 8
    for (int32_t i = 0; i < MR; i++)
#pragma GCC unroll 3
        for (int32_t v = 0; v < vectors; v++) acc[i][v] = t->first ? vec_zero() : vec_load(sums + i * NR + LANES * v);
    for (int64_t rows = t->rows; rows > 0; rows--, s.from += s.bk, s.prefetch += s.bk, s.to += NR, s.sums += 64) {
#pragma GCC unroll 4
        for (int32_t q = 0; q < every; q++, a += MR, b += NR) {
#pragma GCC unroll 3
            for (int32_t v = 0; v < REGISTERS; v++)
                if (v % every == q) pack_vector(&s, v);
            if (q == every - 1) prefetch_line(NEAR, s.sums);
            dense_step(vectors, a, b, acc);
        }
    }
    for (int64_t k = t->kc - every * t->rows; k > 0; k--, a += MR, b += NR) dense_step(vectors, a, b, acc);
#pragma GCC unroll 8
    for (int32_t i = 0; i < MR; i++)
#pragma GCC unroll 3
        for (int32_t v = 0; v < vectors; v++) vec_store(sums + i * NR + LANES * v, acc[i][v]);
}

#define PACKING_KERNEL(NAME, EVERY, VECTORS)                                                                           \
    static void NAME(const struct wn__gemm_packing *t, int64_t at)                                                     \
    {                                                                                                                  \
        packing_kernel_of(t, EVERY, VECTORS, at);                                                                      \
    }
PACKING_KERNEL(packing_1, 1, 3)
PACKING_KERNEL(packing_2, 2, 3)
PACKING_KERNEL(packing_4, 4, 3)
PACKING_KERNEL(narrow_1, 1, 2)
PACKING_KERNEL(narrow_2, 2, 2)
PACKING_KERNEL(narrow_4, 4, 2)

/* Register tiles of a packing kernel are three vectors wide; where b has columns in two at most, the tile has two. All
 * of them run, because each packs its share of the next micro-panel. */
static void packing_kernel(const struct wn__gemm_packing *t)
{
    static void (*const of[2][3])(const struct wn__gemm_packing *, int64_t) = {{narrow_1, narrow_2, narrow_4},
                                                                               {packing_1, packing_2, packing_4}};
    for (int64_t at = 0; at < NR; at += LANES * REGISTERS) of[t->n - at > 2 * LANES][t->every / 2](t, at);
}

/* ---- macro-kernel: many micro-tiles of few steps ------------------------------------------------- */

/* Ways in which a macro-kernel stores c. */
enum { STORED, STREAMED, HALVES };

/* Stores a row of a register tile to c. */
INLINE void macrokernel_row(const int32_t vectors, const int32_t how, const vec *acc, char *c)
{
#if defined(TILE_PAIRS)
    half_row(vectors, how == STREAMED, acc, (uint16_t *)(void *)c);
#else
#if defined(TILE_HALF)
    if (how == HALVES) {
        half_row(vectors, 0, acc, (uint16_t *)(void *)c);
        return;
    }
#endif
#pragma GCC unroll 3
    for (int32_t v = 0; v < vectors; v++)
        if (how == STREAMED) vec_stream((float *)(void *)c + LANES * v, acc[v]);
        else vec_store((float *)(void *)c + LANES * v, acc[v]);
#endif
}

/* Returns the bytes of an element of c. */
INLINE int64_t c_size(const int32_t how)
{
#if defined(TILE_PAIRS)
    (void)how;
    return 2;
#else
    return how == HALVES ? 2 : 4;
#endif
}

/* The place of a register tile of a macro-kernel in a, b and c. */
struct tile_place {
    const float *a, *b;
    char *c;
    const char *next; /* c of the register tile that is computed after this one */
};

/* Computes one register tile; `width`: words of a row of b. */
INLINE void macrokernel_tile(const struct wn__gemm_macrotile *t, const int32_t vectors, const int32_t how,
                             const int64_t width, struct tile_place s)
{
    const int64_t size = c_size(how), row = t->ldc * size;
    vec acc[MR][REGISTERS];
#pragma GCC unroll 8
    for (int32_t i = 0; i < MR; i++) {
#pragma GCC unroll 3
        for (int32_t v = 0; v < vectors; v++) acc[i][v] = vec_zero();
#pragma GCC unroll 3
        for (int32_t at = 0; at < vectors * LANES * size; at += 64)
            if (how != STREAMED) __builtin_prefetch(s.next + i * row + at, 1);
    }
    for (int64_t k = t->kc; k > 0; k--, s.a += MR, s.b += width) dense_step(vectors, s.a, s.b, acc);
#pragma GCC unroll 8
    for (int32_t i = 0; i < MR; i++) macrokernel_row(vectors, how, acc[i], s.c + i * row);
}

/* Computes all micro-tiles in one call, so that with few steps of k the next one starts while the lines of this one are
 * being written. `columns`: of a micro-tile, in register tiles of `vectors` vectors. */
INLINE void macrokernel_of(const struct wn__gemm_macrotile *given, const int32_t vectors, const int32_t columns,
                           const int32_t how)
{
    const struct wn__gemm_macrotile t = *given;
    const int64_t size = c_size(how), step = t.c_step * size;
    const int32_t wide = vectors * LANES;
    struct tile_place s = {t.a, t.b, t.c, NULL};
    for (int64_t i = 0; i < t.tiles; i++, s.a += t.a_step, s.b += t.b_step, s.c += step) {
#pragma GCC unroll 4
        for (int32_t at = 0; at < columns; at += wide) {
            struct tile_place one = {s.a, s.b + at, s.c + at * size, s.c + (at + wide) * size};
            if (at + wide == columns) one.next = i + 1 < t.tiles ? s.c + step : t.then;
            macrokernel_tile(&t, vectors, how, columns, one);
        }
    }
}

#define MACROKERNEL(NAME, COLUMNS, HOW)                                                                                \
    static void NAME(const struct wn__gemm_macrotile *t)                                                               \
    {                                                                                                                  \
        macrokernel_of(t, COLUMNS % (LANES * REGISTERS) == 0 ? REGISTERS : 2, COLUMNS, HOW);                           \
    }
MACROKERNEL(macrokernel_48, 48, STORED)
MACROKERNEL(stream_48, 48, STREAMED)
#if defined(TILE_PAIRS)
MACROKERNEL(macrokernel_32, 32, STORED)
MACROKERNEL(stream_32, 32, STREAMED)
#elif defined(TILE_HALF)
MACROKERNEL(halves_48, 48, HALVES)
#endif

static void macrokernel(const struct wn__gemm_macrotile *t)
{
#if defined(TILE_PAIRS)
    if (t->n == 32) {
        (t->stream ? stream_32 : macrokernel_32)(t);
        return;
    }
#elif defined(TILE_HALF)
    if (t->half) {
        halves_48(t);
        return;
    }
#endif
    (t->stream ? stream_48 : macrokernel_48)(t);
}
#endif
