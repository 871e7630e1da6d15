/* The micro-kernel for AVX-512: a micro-tile of 8 rows x 1, 2 or 3 vectors of 16 columns, in up to 24 registers. A step
 * of k loads up to three vectors of b and broadcasts one element of a for up to three multiply-adds in each row:
 *
 *            b(k, 0..16)  b(k, 16..32)  b(k, 32..48)         x[0], x[1], x[2]
 *   a(0, k)    acc[0][0]     acc[0][1]     acc[0][2]
 *   ...
 *   a(7, k)    acc[7][0]     acc[7][1]     acc[7][2]         acc[i][v] = a(i, k) x[v] + acc[i][v]
 *
 * b is a packed micro-panel, or is read in place while its micro-panel is packed: those stores cost nothing beside the
 * arithmetic. A step also prefetches one line of the memory that is needed next.
 *
 * gemm.c includes this file for floats, gemm_bf16.c for pairs of bf16, which are words of the same size. Each
 * defines
 *   MULTIPLY_ADD(a, b, c)    a b + c in each of 16 lanes of f32
 *   TILE_FAR_STEPS           steps of k that prefetch lines of one row into the second-level cache
 *   TILE_HALF                defined where a micro-kernel can store its sums as bf16 */
#ifndef WN_CPU_AVX512_MICROKERNEL_H
#define WN_CPU_AVX512_MICROKERNEL_H
#include <immintrin.h>
#include <stddef.h>
#include "../gemm/gemm.h"

#define MR 8
#define NR 48
_Static_assert(WN_GEMM_NR_MAX % NR == 0, "micro-panels of 48 columns hold whole ones of every micro-kernel");
#if defined(TILE_HALF)
#define PANEL_STEPS (WN_PANEL / 2)
#else
#define PANEL_STEPS WN_PANEL
#endif
#define INLINE static inline __attribute__((always_inline))

/* Returns the mask of the lanes of vector v, 0 to 2, that hold one of n columns. */
INLINE __mmask16 lanes(int64_t n, int32_t v)
{
    int64_t left = n - 16 * v;
    return left >= 16 ? 0xffff : left <= 0 ? 0 : (__mmask16)((1u << left) - 1);
}

INLINE void add_bias(const struct wn__gemm_microtile *t, const int32_t vectors, __m512 acc[MR][3])
{
    if (t->bias) {
#pragma GCC unroll 3
        for (int32_t v = 0; v < vectors; v++) {
            __m512 bias = _mm512_maskz_loadu_ps(lanes(t->n, v), t->bias + 16 * v);
#pragma GCC unroll 8
            for (int32_t i = 0; i < MR; i++) acc[i][v] = _mm512_add_ps(acc[i][v], bias);
        }
    }
    if (t->row_bias) {
#pragma GCC unroll 8
        for (int32_t i = 0; i < MR; i++) {
            __m512 bias = _mm512_set1_ps(i < t->m ? t->row_bias[i] : 0.0f);
#pragma GCC unroll 3
            for (int32_t v = 0; v < vectors; v++) acc[i][v] = _mm512_add_ps(acc[i][v], bias);
        }
    }
}

INLINE void store_tile(const struct wn__gemm_microtile *t, const int32_t vectors, const int32_t whole,
                       __m512 acc[MR][3])
{
    float *to = t->out ? t->out : t->c;
    const int64_t ld = t->out ? t->out_ld : t->ldc;
    if (t->bias || t->row_bias) add_bias(t, vectors, acc);
    if (t->stream && t->n % 16 == 0) {
#pragma GCC unroll 8
        for (int32_t i = 0; i < MR; i++)
#pragma GCC unroll 3
            for (int32_t v = 0; v < vectors; v++)
                if (whole || i < t->m) _mm512_stream_ps(to + i * ld + 16 * v, acc[i][v]);
        return;
    }
#pragma GCC unroll 8
    for (int32_t i = 0; i < MR; i++)
#pragma GCC unroll 3
        for (int32_t v = 0; v < vectors; v++)
            if (whole) _mm512_storeu_ps(to + i * ld + 16 * v, acc[i][v]);
            else if (i < t->m) _mm512_mask_storeu_ps(to + i * ld + 16 * v, lanes(t->n, v), acc[i][v]);
}

#if defined(TILE_HALF)
INLINE void store_half(const struct wn__gemm_microtile *t, const int32_t vectors, const int32_t whole,
                       __m512 acc[MR][3])
{
    if (t->half_bias) {
#pragma GCC unroll 3
        for (int32_t v = 0; v < vectors; v++) {
            __m512i bits = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(lanes(t->n, v), t->half_bias + 16 * v));
            __m512 bias = _mm512_castsi512_ps(_mm512_slli_epi32(bits, 16));
#pragma GCC unroll 8
            for (int32_t i = 0; i < MR; i++) acc[i][v] = _mm512_add_ps(acc[i][v], bias);
        }
    }
#pragma GCC unroll 8
    for (int32_t i = 0; i < MR; i++) {
        uint16_t *to = t->half + i * t->half_ld;
        if (!whole && i >= t->m) break;
        if (vectors == 2 && whole && t->stream) {
            _mm512_stream_si512((__m512i *)to, (__m512i)_mm512_cvtne2ps_pbh(acc[i][1], acc[i][0]));
            continue;
        }
#pragma GCC unroll 3
        for (int32_t v = 0; v < vectors; v++) {
            __m256i h = (__m256i)_mm512_cvtneps_pbh(acc[i][v]);
            if (whole) _mm256_storeu_si256((__m256i *)(to + 16 * v), h);
            else _mm256_mask_storeu_epi16(to + 16 * v, lanes(t->n, v), h);
        }
    }
}
#endif

INLINE void load_tile(const struct wn__gemm_microtile *t, const int32_t vectors, const int32_t whole, __m512 acc[MR][3])
{
#pragma GCC unroll 8
    for (int32_t i = 0; i < MR; i++)
#pragma GCC unroll 3
        for (int32_t v = 0; v < vectors; v++) acc[i][v] = _mm512_setzero_ps();
    if (t->first) return;
#pragma GCC unroll 8
    for (int32_t i = 0; i < MR; i++)
#pragma GCC unroll 3
        for (int32_t v = 0; v < vectors; v++) {
            const float *c = t->c + i * t->ldc + 16 * v;
            if (whole) acc[i][v] = _mm512_loadu_ps(c);
            else if (i < t->m) acc[i][v] = _mm512_maskz_loadu_ps(lanes(t->n, v), c);
        }
}

/* Prefetches the lines that the micro-tile will write, while it computes: they may be in another core's cache, or in
 * memory. */
INLINE void prefetch_out(const struct wn__gemm_microtile *t, const int32_t vectors, const int32_t whole)
{
#pragma GCC unroll 8
    for (int32_t i = 0; i < MR; i++)
#pragma GCC unroll 3
        for (int32_t v = 0; v < vectors; v++)
            if (whole || i < t->m) __builtin_prefetch(t->out + i * t->out_ld + 16 * v, 1);
}

/* Returns vector v of a step of a b that is read in place; lanes outside mask are zero. */
INLINE __m512 load_in_place(const float *b, int64_t bk, int32_t v, __mmask16 mask)
{
#if defined(TILE_HALF) /* a step is two rows: bk words from step to step, bk bf16 from row to row */
    const uint16_t *even = (const uint16_t *)(const void *)b + 16 * v;
    __m512i low = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, even));
    __m512i high = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, even + bk));
    return _mm512_castsi512_ps(_mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
#else
    (void)bk;
    return _mm512_maskz_loadu_ps(mask, b + 16 * v);
#endif
}

/* Computes one step of k: element `at` of each row of a, b packed. */
INLINE void step_of(const int32_t vectors, const float *const row[MR], int64_t at, const float *b, __m512 acc[MR][3])
{
    __m512 x[3];
#pragma GCC unroll 3
    for (int32_t v = 0; v < vectors; v++) x[v] = _mm512_load_ps(b + 16 * v);
#pragma GCC unroll 8
    for (int32_t i = 0; i < MR; i++) {
        __m512 y = _mm512_set1_ps(row[i][at]);
        __asm__("" : "+v"(y)); /* one load; without this each multiply-add broadcasts again */
#pragma GCC unroll 3
        for (int32_t v = 0; v < vectors; v++) acc[i][v] = MULTIPLY_ADD(y, x[v], acc[i][v]);
    }
}

/* Computes a micro-tile. All arguments but t are constants at each call. vectors: of columns; copy: b is read in place
 * and packed; near: prefetches go to the first-level cache; whole: m = MR and n = 16 vectors; packed: whole, and a is
 * packed, so that one pointer walks its rows (eight pointers do not fit the registers). */
INLINE void microkernel_of(const struct wn__gemm_microtile *t, const int32_t vectors, const int32_t copy,
                           const int32_t near, const int32_t whole, const int32_t packed)
{
    __m512 acc[MR][3];
    __mmask16 mask[3] = {lanes(t->n, 0), lanes(t->n, 1), lanes(t->n, 2)};
    const float *row[MR]; /* rows beyond m repeat the last one and are not stored */
#pragma GCC unroll 8
    for (int32_t i = 0; i < MR; i++) row[i] = packed ? t->a + i : t->a + (whole || i < t->m ? i : t->m - 1) * t->ai;
    load_tile(t, vectors, whole, acc);
    if (t->out && !t->stream) prefetch_out(t, vectors, whole);
    const float *b = t->b;
    float *to = t->copy;
    const char *prefetch_row = t->prefetch;
    /* Locals, because the compiler cannot know that storing the copy leaves *t alone. */
    const int64_t kc = t->kc, ak = packed ? MR : t->ak, bk = t->bk, prefetch_step = t->prefetch_step;
    const int64_t group = near ? WN_GEMM_NEAR_STEPS : TILE_FAR_STEPS;
    int64_t at = 0;
    for (int64_t k0 = 0; k0 < kc; k0 += group, prefetch_row += t->prefetch_row) {
        const char *prefetch = prefetch_row;
        for (int64_t k = kc - k0 < group ? kc - k0 : group; k > 0; k--, at += ak, b += bk) {
            if (near) _mm_prefetch(prefetch, _MM_HINT_T0);
            else _mm_prefetch(prefetch, _MM_HINT_T1);
            prefetch += prefetch_step;
            __m512 x[3];
#pragma GCC unroll 3
            for (int32_t v = 0; v < vectors; v++) {
                x[v] = copy ? load_in_place(b, bk, v, whole ? 0xffff : mask[v]) : _mm512_load_ps(b + 16 * v);
                if (copy) _mm512_store_ps(to + 16 * v, x[v]);
            }
            if (copy) to += NR;
#pragma GCC unroll 8
            for (int32_t i = 0; i < MR; i++) {
                __m512 y = _mm512_set1_ps(row[i][at]);
                __asm__("" : "+v"(y)); /* one load; without this each multiply-add broadcasts again */
#pragma GCC unroll 3
                for (int32_t v = 0; v < vectors; v++) acc[i][v] = MULTIPLY_ADD(y, x[v], acc[i][v]);
            }
        }
    }
#if defined(TILE_HALF)
    if (t->half) {
        store_half(t, vectors, whole, acc);
        return;
    }
#endif
    store_tile(t, vectors, whole, acc);
}

/* Computes a whole micro-tile of an a that has k along memory. Each of 8 steps prefetches a line of one of the 8 rows,
 * so every line is prefetched twice; the reads follow WN_GEMM_PREFETCH_WORDS words behind. */
INLINE void prefetching_of(const struct wn__gemm_microtile *t, const int32_t vectors)
{
    __m512 acc[MR][3];
    const float *row[MR];
#pragma GCC unroll 8
    for (int32_t i = 0; i < MR; i++) row[i] = t->a + i * t->ai;
    load_tile(t, vectors, 1, acc);
    const char *prefetch = t->prefetch;
    const float *b = t->b;
    const int64_t bk = t->bk, prefetch_row = t->prefetch_row, turn = t->kc - t->prefetch_turn;
    int64_t k = 0, left = t->kc;
    for (; left >= 8; left -= 8, prefetch += 32) {
        if (left == turn) prefetch = t->prefetch_then;
#pragma GCC unroll 8
        for (int32_t q = 0; q < 8; q++, k++, b += bk) {
            _mm_prefetch(prefetch + q * prefetch_row, _MM_HINT_T0);
            step_of(vectors, row, k, b, acc);
        }
    }
    for (; left > 0; left--, k++, b += bk) step_of(vectors, row, k, b, acc);
    store_tile(t, vectors, 1, acc);
}

/* Computes a whole micro-tile over `panels` panels of a, each (rows, PANEL_STEPS) dense, so that one pointer walks a
 * panel. */
INLINE void panels_kernel_of(const struct wn__gemm_microtile *t, const int32_t vectors, int64_t panels, int64_t apart)
{
    __m512 acc[MR][3];
    load_tile(t, vectors, 1, acc);
    const float *b = t->b, *panel = t->a;
    const char *prefetch = t->prefetch;
    const int64_t bk = t->bk;
    for (; panels > 0; panels--, panel += apart, prefetch += 4 * apart)
        for (int64_t k = 0; k < PANEL_STEPS; k += 8) {
            const float *row[MR];
#pragma GCC unroll 8
            for (int32_t i = 0; i < MR; i++) row[i] = panel + i * PANEL_STEPS + k;
#pragma GCC unroll 8
            for (int32_t q = 0; q < 8; q++, b += bk) { /* two steps read one line and prefetch one */
                if (q % 2 == 0) _mm_prefetch(prefetch + 32 * (k + q), _MM_HINT_T0);
                step_of(vectors, row, q, b, acc);
            }
        }
    store_tile(t, vectors, 1, acc);
}

#define TILE(NAME, VECTORS, COPY, NEAR)                                                                                \
    static void NAME(const struct wn__gemm_microtile *t)                                                               \
    {                                                                                                                  \
        int32_t whole = t->m == MR && t->n == 16 * VECTORS;                                                            \
        if (whole && t->ai == 1 && t->ak == MR) microkernel_of(t, VECTORS, COPY, NEAR, 1, 1);                          \
        else if (whole) microkernel_of(t, VECTORS, COPY, NEAR, 1, 0);                                                  \
        else microkernel_of(t, VECTORS, COPY, NEAR, 0, 0);                                                             \
    }
TILE(far_1, 1, 0, 0)
TILE(far_2, 2, 0, 0)
TILE(far_3, 3, 0, 0)
TILE(near_1, 1, 0, 1)
TILE(near_2, 2, 0, 1)
TILE(near_3, 3, 0, 1)
TILE(copy_1, 1, 1, 0)
TILE(copy_2, 2, 1, 0)
TILE(copy_3, 3, 1, 0)

#define PREFETCHING_KERNEL(NAME, VECTORS)                                                                              \
    static void NAME(const struct wn__gemm_microtile *t)                                                               \
    {                                                                                                                  \
        prefetching_of(t, VECTORS);                                                                                    \
    }
PREFETCHING_KERNEL(prefetching_1, 1)
PREFETCHING_KERNEL(prefetching_2, 2)
PREFETCHING_KERNEL(prefetching_3, 3)

#define PANELS_KERNEL(NAME, VECTORS)                                                                                   \
    static void NAME(const struct wn__gemm_microtile *t, int64_t panels, int64_t apart)                                \
    {                                                                                                                  \
        panels_kernel_of(t, VECTORS, panels, apart);                                                                   \
    }
PANELS_KERNEL(panels_kernel_1, 1)
PANELS_KERNEL(panels_kernel_2, 2)
PANELS_KERNEL(panels_kernel_3, 3)

static inline void panels_kernel(const struct wn__gemm_microtile *t, int64_t panels, int64_t apart)
{
    static void (*const of[3])(const struct wn__gemm_microtile *, int64_t, int64_t) = {panels_kernel_1, panels_kernel_2,
                                                                                       panels_kernel_3};
    of[t->n / 16 - 1](t, panels, apart);
}

static void microkernel(const struct wn__gemm_microtile *t)
{
    static void (*const prefetching[3])(const struct wn__gemm_microtile *) = {prefetching_1, prefetching_2,
                                                                              prefetching_3};
    static void (*const of[3][3])(const struct wn__gemm_microtile *) = {
        {far_1, far_2, far_3}, {near_1, near_2, near_3}, {copy_1, copy_2, copy_3}};
    if (t->prefetch_then && t->m == MR && t->n % 16 == 0) prefetching[t->n / 16 - 1](t);
    else of[t->copy ? 2 : t->prefetch_near ? 1 : 0][(t->n - 1) / 16](t);
}

/* ---- packing kernel: a micro-kernel that packs the next micro-panel ------------------------------ */

/* Computes one step of k: a: (8), b: (16 vectors), both packed. */
INLINE void dense_step(const int32_t vectors, const float *a, const float *b, __m512 acc[MR][3])
{
    __m512 x[3];
#pragma GCC unroll 3
    for (int32_t v = 0; v < vectors; v++) x[v] = _mm512_load_ps(b + 16 * v);
#pragma GCC unroll 8
    for (int32_t i = 0; i < MR; i++) {
        __m512 y = _mm512_set1_ps(a[i]);
        __asm__("" : "+v"(y)); /* one load; without this each multiply-add broadcasts again */
#pragma GCC unroll 3
        for (int32_t v = 0; v < vectors; v++) acc[i][v] = MULTIPLY_ADD(y, x[v], acc[i][v]);
    }
}

/* Packs vector v of a row of the next micro-panel, and prefetches a line of what is packed later. */
INLINE void packing_kernel_copy(const float *from, int64_t bk, __mmask16 mask, float *to, const float *prefetch,
                                int32_t v)
{
    _mm512_store_ps(to + 16 * v, load_in_place(from, bk, v, mask));
#if defined(TILE_HALF) /* two rows of 96 bytes, in two lines each */
    const uint16_t *even = (const uint16_t *)(const void *)prefetch;
    if (v != 1) _mm_prefetch((const char *)(even + 16 * v), _MM_HINT_T1);
    if (v != 1) _mm_prefetch((const char *)(even + bk + 16 * v), _MM_HINT_T1);
#else
    _mm_prefetch((const char *)(prefetch + 16 * v), _MM_HINT_T1);
#endif
}

/* Does one call of a packing kernel. every: steps of k that pack one row; vectors: number of vectors of b with
 * columns. */
INLINE void packing_kernel_of(const struct wn__gemm_packing *t, const int32_t every, const int32_t vectors)
{
    __m512 acc[MR][3];
    const __mmask16 mask[3] = {lanes(t->next_n, 0), lanes(t->next_n, 1), lanes(t->next_n, 2)};
    const float *a = t->a, *b = t->b, *from = t->from, *prefetch = t->prefetch;
    float *to = t->next;
    const char *sums = (const char *)(t->sums + MR * NR);
    const int64_t bk = t->bk;
#pragma GCC unroll 8
    for (int32_t i = 0; i < MR; i++)
#pragma GCC unroll 3
        for (int32_t v = 0; v < vectors; v++)
            acc[i][v] = t->first ? _mm512_setzero_ps() : _mm512_load_ps(t->sums + i * NR + 16 * v);
    for (int64_t rows = t->rows; rows > 0; rows--, from += bk, prefetch += bk, to += NR, sums += 64) {
#pragma GCC unroll 4
        for (int32_t q = 0; q < every; q++, a += MR, b += NR) {
#pragma GCC unroll 3
            for (int32_t v = 0; v < 3; v++)
                if (v % every == q) packing_kernel_copy(from, bk, mask[v], to, prefetch, v);
            if (q == every - 1) _mm_prefetch(sums, _MM_HINT_T0);
            dense_step(vectors, a, b, acc);
        }
    }
    for (int64_t k = t->kc - every * t->rows; k > 0; k--, a += MR, b += NR) dense_step(vectors, a, b, acc);
#pragma GCC unroll 8
    for (int32_t i = 0; i < MR; i++)
#pragma GCC unroll 3
        for (int32_t v = 0; v < vectors; v++) _mm512_store_ps(t->sums + i * NR + 16 * v, acc[i][v]);
}

#define PACKING_KERNEL(NAME, EVERY, VECTORS)                                                                           \
    static void NAME(const struct wn__gemm_packing *t)                                                                 \
    {                                                                                                                  \
        packing_kernel_of(t, EVERY, VECTORS);                                                                          \
    }
PACKING_KERNEL(packing_kernel_1, 1, 3)
PACKING_KERNEL(packing_kernel_2, 2, 3)
PACKING_KERNEL(packing_kernel_4, 4, 3)
PACKING_KERNEL(narrow_1, 1, 2)
PACKING_KERNEL(narrow_2, 2, 2)
PACKING_KERNEL(narrow_4, 4, 2)

static void packing_kernel(const struct wn__gemm_packing *t)
{
    static void (*const of[2][3])(const struct wn__gemm_packing *) = {
        {narrow_1, narrow_2, narrow_4}, {packing_kernel_1, packing_kernel_2, packing_kernel_4}};
    of[t->n > 32][t->every / 2](t);
}

/* ---- macro-kernel: many micro-tiles of few steps ------------------------------------------------- */

#if defined(TILE_HALF)
#define C_SIZE 2 /* bytes of an element of c */
#else
#define C_SIZE 4
#endif

/* Stores a row of a micro-tile to c. */
INLINE void macrokernel_row(const int32_t vectors, const int32_t stream, const __m512 *acc, char *c)
{
#if defined(TILE_HALF)
    if (vectors == 2) {
        __m512i line = (__m512i)_mm512_cvtne2ps_pbh(acc[1], acc[0]);
        if (stream) _mm512_stream_si512((__m512i *)(void *)c, line);
        else _mm512_storeu_si512(c, line);
        return;
    }
#pragma GCC unroll 3
    for (int32_t v = 0; v < vectors; v++) {
        __m256i half = (__m256i)_mm512_cvtneps_pbh(acc[v]);
        if (stream) _mm256_stream_si256((__m256i *)(void *)(c + 32 * v), half);
        else _mm256_storeu_si256((__m256i *)(void *)(c + 32 * v), half);
    }
#else
#pragma GCC unroll 3
    for (int32_t v = 0; v < vectors; v++)
        if (stream) _mm512_stream_ps((void *)(c + 64 * v), acc[v]);
        else _mm512_storeu_ps(c + 64 * v, acc[v]);
#endif
}

/* Computes all micro-tiles in one call, so that with few steps of k the next one starts while the lines of this one are
 * being written. */
INLINE void macrokernel_of(const struct wn__gemm_macrotile *given, const int32_t vectors, const int32_t stream)
{
    const struct wn__gemm_macrotile t = *given;
    const int64_t row = t.ldc * C_SIZE, step = t.c_step * C_SIZE;
    const float *from_a = t.a, *from_b = t.b;
    char *c = t.c;
    for (int64_t s = 0; s < t.tiles; s++, from_a += t.a_step, from_b += t.b_step, c += step) {
        __m512 acc[MR][3];
        const float *a = from_a, *b = from_b;
        const char *next = s + 1 < t.tiles ? c + step : t.then;
#pragma GCC unroll 8
        for (int32_t i = 0; i < MR; i++) {
#pragma GCC unroll 3
            for (int32_t v = 0; v < vectors; v++) acc[i][v] = _mm512_setzero_ps();
#pragma GCC unroll 3
            for (int32_t v = 0; v < vectors * C_SIZE / 4; v++)
                if (!stream) __builtin_prefetch(next + i * row + 64 * v, 1);
        }
        for (int64_t k = t.kc; k > 0; k--, a += MR, b += 16 * vectors) dense_step(vectors, a, b, acc);
#pragma GCC unroll 8
        for (int32_t i = 0; i < MR; i++) macrokernel_row(vectors, stream, acc[i], c + i * row);
    }
}

#define MACROKERNEL(NAME, VECTORS, STREAM)                                                                             \
    static void NAME(const struct wn__gemm_macrotile *t)                                                               \
    {                                                                                                                  \
        macrokernel_of(t, VECTORS, STREAM);                                                                            \
    }
MACROKERNEL(macrokernel_3, 3, 0)
MACROKERNEL(stream_3, 3, 1)
#if defined(TILE_HALF)
MACROKERNEL(macrokernel_2, 2, 0)
MACROKERNEL(stream_2, 2, 1)
#endif

static void macrokernel(const struct wn__gemm_macrotile *t)
{
#if defined(TILE_HALF)
    if (t->n == 32) {
        (t->stream ? stream_2 : macrokernel_2)(t);
        return;
    }
#endif
    (t->stream ? stream_3 : macrokernel_3)(t);
}

#include "transpose16.h"
#endif
