/* Pieces of a transpose that go from registers to memory, with no place of their own between (shape.c). */
#ifndef WN_CPU_TRANSPOSE_H
#define WN_CPU_TRANSPOSE_H
#include <stdint.h>

#define WN_TURN 16 /* elements of a line, and rows of a piece */

int32_t wn__transpose_is_fast(void); /* whether this processor has registers of a line */

/* A tile of 4-byte elements, n0 and n1 multiples of WN_TURN, rows of out on lines. */
struct wn__tile {
    const uint32_t *in;
    uint32_t *out;
    int64_t in_step, out_step; /* out[i * out_step + j] = in[i + j * in_step] */
    int64_t n0, n1;            /* of i, of j */
    const uint32_t *next;      /* the input of the tile after this one, as large */
    int32_t streams;
};
/* The lines of the next tile are asked for meanwhile, row after row. */
void wn__transpose_tile(const struct wn__tile *t);
#endif
