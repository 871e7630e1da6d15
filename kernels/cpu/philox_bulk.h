/* Philox words in bulk: WN_QUADS calls at once, in the order of the elements. The numbers are those of base/random.h,
 * one call for four elements; only the order of the work differs. */
#ifndef WN_CPU_PHILOX_BULK_H
#define WN_CPU_PHILOX_BULK_H
#include "../../runtime/base/random.h"

#define WN_QUADS 32

/* Writes the words of quads [q0, q0 + quads) to word: (4 quads); quads is a constant, at most WN_QUADS. */
static inline __attribute__((always_inline)) void wn__draw_quads(uint64_t seed, uint64_t counter, uint64_t q0,
                                                                 const int32_t quads, uint32_t *word)
{
    uint32_t w0[WN_QUADS], w1[WN_QUADS], w2[WN_QUADS], w3[WN_QUADS];
    /* No simd pragma: with one the compiler keeps w in memory, and the loop runs at half the speed. */
    for (int32_t q = 0; q < quads; q++) {
        uint32_t w[4];
        wn_philox(seed, counter, q0 + (uint64_t)q, w);
        w0[q] = w[0];
        w1[q] = w[1];
        w2[q] = w[2];
        w3[q] = w[3];
    }
    for (int32_t q = 0; q < quads; q++) {
        word[4 * q] = w0[q];
        word[4 * q + 1] = w1[q];
        word[4 * q + 2] = w2[q];
        word[4 * q + 3] = w3[q];
    }
}

static inline __attribute__((always_inline)) void wn__draw(uint64_t seed, uint64_t counter, uint64_t q0,
                                                           uint32_t word[4 * WN_QUADS])
{
    wn__draw_quads(seed, counter, q0, WN_QUADS, word);
}
#endif
