/* Transposes of 4-byte elements by pieces of 16 x 16, for AVX-512: loads 16 lines, transposes them in registers and
 * stores 16 lines, so no line is written in parts and none is read back. Other processors use the transpose of
 * index/shape.c. */
#include "../index/transpose.h"
#include "../common/nontemporal.h"
#include "vectors.h"
#include "transpose16.h"

/* Transposes the piece at (i, j) of a tile. */
INLINE void transpose_piece(const struct wn__tile *t, int64_t i, int64_t j)
{
    const uint32_t *in = t->in + i + j * t->in_step;
    float *out = (float *)(void *)(t->out + i * t->out_step + j);
    __m512 r[WN_TRANSPOSE_SIDE];
    for (int k = 0; k < WN_TRANSPOSE_SIDE; k++) r[k] = _mm512_loadu_ps(in + k * t->in_step);
    transpose16(r);
    for (int k = 0; k < WN_TRANSPOSE_SIDE; k++)
        if (t->streams) _mm512_stream_ps(out + k * t->out_step, r[k]);
        else _mm512_store_ps(out + k * t->out_step, r[k]);
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
