/* The bf16 kernels for AVX-512 with bf16 (gemm/microkernel.h): a word is a pair of steps of k, and one instruction,
 * vdpbf16ps, multiplies 16 pairs and adds both products to a float. The instruction takes denormals for zero, makes
 * none, and rounds to nearest in an order of its own. So the bits differ from those of the portable micro-kernel, and
 * are the same on every run on such a processor. */
#include <string.h>
#define TILE_PAIRS
#define vec_multiply_add(a, b, c) _mm512_dpbf16_ps(c, (__m512bh)(b), (__m512bh)(a)) /* the order of multiply_row */
#include "vectors.h"
#include "../gemm/gemm.h"

/* Adds *a x[v] to the sums of a row, broadcasting *a as each instruction multiplies; the compiler has no such form. A
 * broadcast of its own costs the unit that multiplies some turns, most where a row is one vector. Of two NaNs, the
 * payload of x's becomes that of the product in all kernels of pairs.
 * Measured: micro-tile of 16 columns, kc 144: 150 > 220 GFLOP/s of 234 (Zen 4). */
#define OWN_ROW
INLINE void multiply_row(const int32_t vectors, const float *a, const vec *x, vec *acc)
{
#pragma GCC unroll 3
    for (int32_t v = 0; v < vectors; v++) __asm__("vdpbf16ps %2%{1to16%}, %1, %0" : "+v"(acc[v]) : "v"(x[v]), "m"(*a));
}

/* Returns vector v of a step of a b that is read in place: pairs of two rows, bk bf16 apart, of which n are columns. */
INLINE vec load_in_place(const float *b, int64_t bk, int32_t v, int64_t n)
{
    const uint16_t *even = (const uint16_t *)(const void *)b + 16 * v;
    __m512i low = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(vec_first(n), even));
    __m512i high = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(vec_first(n), even + bk));
    return _mm512_castsi512_ps(_mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
}

/* Stores a whole row of a register tile as bf16: two vectors are a line. */
INLINE void half_row(const int32_t vectors, const int32_t stream, const vec *acc, uint16_t *to)
{
    if (vectors == 2) {
        __m512i line = (__m512i)_mm512_cvtne2ps_pbh(acc[1], acc[0]);
        if (stream) _mm512_stream_si512((__m512i *)(void *)to, line);
        else _mm512_storeu_si512(to, line);
        return;
    }
#pragma GCC unroll 3
    for (int32_t v = 0; v < vectors; v++)
        if (stream) _mm256_stream_si256((__m256i *)(void *)(to + LANES * v), vec_round(acc[v]));
        else half_store(to + LANES * v, vec_round(acc[v]));
}

#include "../gemm/macrokernel.h"
#include "transpose16.h"

struct zipped {
    __m512i low, high; /* pairs 0 to 15, pairs 16 to 31 */
};

/* Returns the 32 pairs (even[i], odd[i]), zeros for i >= n; an odd of NULL is zeros. */
INLINE struct zipped zip(const uint16_t *even, const uint16_t *odd, int64_t n)
{
    const __m512i order = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8, 39, 7, 38, 6,
                                           37, 5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
    const __m512i later = _mm512_add_epi16(order, _mm512_set1_epi16(16));
    __m512i x = _mm512_maskz_loadu_epi16(first_halves(n), even);
    __m512i y = odd ? _mm512_maskz_loadu_epi16(first_halves(n), odd) : _mm512_setzero_si512();
    return (struct zipped){_mm512_permutex2var_epi16(x, order, y), _mm512_permutex2var_epi16(x, later, y)};
}

/* Packs one micro-panel of 16, 32 or 48 of an x whose steps of k are xk apart: step s is rows 2 s and 2 s + 1,
 * zipped. */
INLINE void pack_zipped(const uint16_t *x, int64_t xk, int64_t rows, int64_t k, int64_t width, float *to)
{
    for (int64_t at = 0; at < k; at += 2, x += 2 * xk, to += width) {
        const uint16_t *odd = at + 1 < k ? x + xk : NULL;
        struct zipped z = zip(x, odd, rows);
        _mm512_storeu_si512(to, z.low);
        if (width > 16) _mm512_storeu_si512(to + 16, z.high);
        if (width > 32) _mm512_storeu_si512(to + 32, zip(x + 32, odd ? odd + 32 : NULL, rows - 32).low);
    }
}

/* Packs micro-panels of 8 of an x whose steps of k are xk apart, four at a time, so that a cache line is read once. */
INLINE void pack_zipped_8(const uint16_t *x, int64_t xk, int64_t rows, int64_t k, float *to)
{
    int64_t micropanel = (k + 1) / 2 * 8; /* words */
    for (int64_t i = 0; i < rows; i += 32, to += 4 * micropanel) {
        const uint16_t *even = x + i;
        float *out = to;
        for (int64_t at = 0; at < k; at += 2, even += 2 * xk, out += 8) {
            struct zipped z = zip(even, at + 1 < k ? even + xk : NULL, rows - i);
            _mm256_storeu_si256((__m256i *)out, _mm512_castsi512_si256(z.low));
            if (rows - i > 8) _mm256_storeu_si256((__m256i *)(out + micropanel), _mm512_extracti64x4_epi64(z.low, 1));
            if (rows - i > 16) _mm256_storeu_si256((__m256i *)(out + 2 * micropanel), _mm512_castsi512_si256(z.high));
            if (rows - i > 24)
                _mm256_storeu_si256((__m256i *)(out + 3 * micropanel), _mm512_extracti64x4_epi64(z.high, 1));
        }
    }
}

static void pack(const struct wn__gemm_rows *x, float *to)
{
    const uint16_t *from = x->x;
    const int64_t width = x->width, k = x->k;
    if (x->xk != 1 && width == 8) {
        pack_zipped_8(from, x->xk, x->rows, k, to);
        return;
    }
    for (int64_t i = 0; i < x->rows; i += width, from += width * x->xi, to += (k + 1) / 2 * width) {
        const int64_t n = x->rows - i < width ? x->rows - i : width;
        if (x->xk == 1 && n < width && width > MR) memset(to, 0, (size_t)((k + 1) / 2 * width) * sizeof *to);
        if (x->xk == 1 && width == MR) transpose_8_words(from, x->xi, n, k, to);
        else if (x->xk == 1) transpose_words(from, x->xi, n, k, to, width);
        else pack_zipped(from, x->xk, n, k, width, to);
    }
}

/* ---- a micro-kernel that reads a panel of b in place --------------------------------------------- */

/* Computes a micro-tile. Three lines hold two rows of 48 columns; permutations of two lines each make the pairs. */
INLINE void panel_of(const struct wn__gemm_microtile *t, const int32_t whole)
{
    __m512 acc[MR][3];
    const __m512i outer = _mm512_set_epi16(63, 15, 62, 14, 61, 13, 60, 12, 59, 11, 58, 10, 57, 9, 56, 8, 55, 7, 54, 6,
                                           53, 5, 52, 4, 51, 3, 50, 2, 49, 1, 48, 0);
    const __m512i inner = _mm512_set_epi16(47, 31, 46, 30, 45, 29, 44, 28, 43, 27, 42, 26, 41, 25, 40, 24, 39, 23, 38,
                                           22, 37, 21, 36, 20, 35, 19, 34, 18, 33, 17, 32, 16);
    const float *a = t->a, *b = t->b;
    const char *prefetch = t->aux.line;
    load_tile(t, 3, whole, acc);
    for (int64_t k = t->kc; k > 0; k--, a += MR, b += WN_PANEL, prefetch += 64) {
        __m512i z0 = _mm512_loadu_si512(b), z1 = _mm512_loadu_si512(b + 16), z2 = _mm512_loadu_si512(b + 32);
        __m512 x[3] = {(__m512)_mm512_permutex2var_epi16(z0, outer, z1),
                       (__m512)_mm512_permutex2var_epi16(z0, inner, z2),
                       (__m512)_mm512_permutex2var_epi16(z1, outer, z2)};
        prefetch_line(NEAR, prefetch);
        const float *row[MR];
#pragma GCC unroll 8
        for (int32_t i = 0; i < MR; i++) row[i] = a + i;
        multiply_step(3, row, 0, x, acc);
    }
    if (t->half) store_half(t, 3, whole, acc);
    else store_tile(t, 3, whole, acc);
}

static void panel(const struct wn__gemm_microtile *t)
{
    if (t->m == MR) panel_of(t, 1);
    else panel_of(t, 0);
}

const struct wn__gemm_bf16_kernel wn__gemm_bf16_avx512 = {
    {MR, NR, microkernel, panels_kernel, NULL, packing_kernel, macrokernel, 1, 0}, pack, panel};
