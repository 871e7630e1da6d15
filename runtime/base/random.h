/* Random bits by address: Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC
 * 2011). There is no stream and no state, so computing a value again draws the same bits.
 *
 *   key     = {seed low, seed high}                          32 bits each
 *   counter = {q low, q high, n low, n high}                 q = element / 4
 *   bits of an element = word element % 4 of the output      four words of 32 bits
 *
 * n is the number that the node took when it was recorded, `element` the logical row-major index, whatever the layout.
 * The file is a header alone, so that every device compiles the same text. */
#ifndef WN_BASE_RANDOM_H
#define WN_BASE_RANDOM_H
#include <stdint.h>
#include "number.h"

/* The constants of the paper: the multipliers, the steps of the key, the number of rounds. */
#define WN_PHILOX_M0 0xD2511F53u
#define WN_PHILOX_M1 0xCD9E8D57u
#define WN_PHILOX_K0 0x9E3779B9u
#define WN_PHILOX_K1 0xBB67AE85u
#define WN_PHILOX_ROUNDS 10

/* Computes the four words of counter (q, n) under the key `seed`. Every word is held in the low half of 64 bits, and
 * the upper half may hold anything: in a vector, words then stay in their lanes between products.
 * Measured: 0.75 -> 0.39 ns a word (AVX-512), 1.9 -> 2.1 ns a word (AVX2), against words of 32 bits. The CPU's kernels
 * draw many at once (kernels/cpu/element/philox_bulk.h). */
WN_FN void wn_philox(uint64_t seed, uint64_t n, uint64_t q, uint32_t out[4])
{
    const uint64_t low = 0xffffffffu;
    uint64_t c0 = q, c1 = q >> 32, c2 = n, c3 = n >> 32, k0 = seed, k1 = seed >> 32;
    for (int round = 0; round < WN_PHILOX_ROUNDS; round++) {
        uint64_t p0 = WN_PHILOX_M0 * (c0 & low), p1 = WN_PHILOX_M1 * (c2 & low);
        c0 = (p1 >> 32) ^ c1 ^ k0;
        c1 = p1;
        c2 = (p0 >> 32) ^ c3 ^ k1;
        c3 = p0;
        k0 += WN_PHILOX_K0;
        k1 += WN_PHILOX_K1;
    }
    out[0] = (uint32_t)c0;
    out[1] = (uint32_t)c1;
    out[2] = (uint32_t)c2;
    out[3] = (uint32_t)c3;
}

/* Returns the 32 random bits of one element of the node that took number n. */
WN_FN uint32_t wn_philox_word(uint64_t seed, uint64_t n, uint64_t element)
{
    uint32_t w[4];
    wn_philox(seed, n, element >> 2, w);
    return w[element & 3];
}

/* Returns floor(word / 2^8) / 2^24: a number of [0, 1) that is exact in f32. */
WN_FN double wn_unit(uint32_t word)
{
    return (double)(word >> 8) * (1.0 / 16777216.0);
}
#endif
