/* Transposes of 4-byte elements by pieces of 16 x 16, for AVX-512: loads 16 lines, transposes them in registers and
 * stores 16 lines, so no line is written in parts and none is read back. Other processors use the transpose of
 * index/shape.c. */
#include "../index/transpose.h"
#include <immintrin.h>
#include "../common/nontemporal.h"

/* Transposes four rows of four 4 x 4 blocks: quarter l of of[c] becomes column 4 l + c of rows 4 g to 4 g + 3. */
static inline __attribute__((always_inline)) void transpose_quarters(const __m512i *row, __m512i *of)
{
    __m512i low0 = _mm512_unpacklo_epi32(row[0], row[1]), high0 = _mm512_unpackhi_epi32(row[0], row[1]);
    __m512i low1 = _mm512_unpacklo_epi32(row[2], row[3]), high1 = _mm512_unpackhi_epi32(row[2], row[3]);
    of[0] = _mm512_unpacklo_epi64(low0, low1);
    of[1] = _mm512_unpackhi_epi64(low0, low1);
    of[2] = _mm512_unpacklo_epi64(high0, high1);
    of[3] = _mm512_unpackhi_epi64(high0, high1);
}

/* Transposes the piece at (i, j) of a tile. */
static inline __attribute__((always_inline)) void transpose_piece(const struct wn__tile *t, int64_t i, int64_t j)
{
    const uint32_t *in = t->in + i + j * t->in_step;
    uint32_t *out = t->out + i * t->out_step + j;
    __m512i row[4], of[4][4], to[WN_TRANSPOSE_SIDE];
    for (int g = 0; g < 4; g++) {
        for (int k = 0; k < 4; k++) row[k] = _mm512_loadu_si512(in + (4 * g + k) * t->in_step);
        transpose_quarters(row, of[g]);
    }
    for (int c = 0; c < 4; c++) { /* joins the quarters of a column from the four groups of rows */
        __m512i even0 = _mm512_shuffle_i32x4(of[0][c], of[1][c], 0x88);
        __m512i even1 = _mm512_shuffle_i32x4(of[2][c], of[3][c], 0x88);
        __m512i odd0 = _mm512_shuffle_i32x4(of[0][c], of[1][c], 0xdd);
        __m512i odd1 = _mm512_shuffle_i32x4(of[2][c], of[3][c], 0xdd);
        to[c] = _mm512_shuffle_i32x4(even0, even1, 0x88);
        to[4 + c] = _mm512_shuffle_i32x4(odd0, odd1, 0x88);
        to[8 + c] = _mm512_shuffle_i32x4(even0, even1, 0xdd);
        to[12 + c] = _mm512_shuffle_i32x4(odd0, odd1, 0xdd);
    }
    for (int k = 0; k < WN_TRANSPOSE_SIDE; k++)
        if (t->streams) _mm512_stream_si512((void *)(out + k * t->out_step), to[k]);
        else _mm512_store_si512((void *)(out + k * t->out_step), to[k]);
}

void wn__transpose_avx512(const struct wn__tile *t)
{
    struct wn__prefetch next = {(uintptr_t)t->next, t->in_step * 4, t->n0 * 4, 0};
    for (int64_t i = 0; i < t->n0; i += WN_TRANSPOSE_SIDE)
        for (int64_t j = 0; j < t->n1; j += WN_TRANSPOSE_SIDE) {
            wn__prefetch_lines(&next, WN_TRANSPOSE_SIDE);
            transpose_piece(t, i, j);
        }
}
