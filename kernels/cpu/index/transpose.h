/* Transposes of 4-byte elements from registers straight to memory (shape.c). */
#ifndef WN_CPU_TRANSPOSE_H
#define WN_CPU_TRANSPOSE_H
#include <stdint.h>

#define WN_TRANSPOSE_SIDE 16 /* elements of a cache line, and rows of a piece */

/* A tile of 4-byte elements; n0 and n1 are multiples of WN_TRANSPOSE_SIDE, and rows of out begin at cache lines. */
struct wn__tile {
    const uint32_t *in;
    uint32_t *out;
    int64_t in_step, out_step; /* out[i * out_step + j] = in[i + j * in_step] */
    int64_t n0, n1;            /* i < n0, j < n1 */
    const uint32_t *next;      /* the input of the tile after this one, of the same size: prefetched row by row */
    int32_t streams;           /* out is stored non-temporally */
};
/* Transposes a tile; a register of AVX-512 holds a cache line. */
void wn__transpose_avx512(const struct wn__tile *t);
#endif
