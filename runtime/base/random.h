/* Random bits are addressed, not streamed: Philox4x32-10 (Salmon et al., SC 2011).
 * key = seed; counter = {q lo, q hi, n lo, n hi} with q = element / 4 and n the number the node took when it
 * was recorded; an element's word is element % 4. The element is the logical row-major index.
 * Header-only, so that every device compiles the same text. */
#ifndef WN_BASE_RANDOM_H
#define WN_BASE_RANDOM_H
#include <stdint.h>

static inline void wn_philox(uint64_t seed, uint64_t n, uint64_t q, uint32_t out[4])
{
    uint32_t c0 = (uint32_t)q, c1 = (uint32_t)(q >> 32), c2 = (uint32_t)n, c3 = (uint32_t)(n >> 32);
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        uint32_t h0 = (uint32_t)(p0 >> 32), l0 = (uint32_t)p0, h1 = (uint32_t)(p1 >> 32), l1 = (uint32_t)p1;
        c0 = h1 ^ c1 ^ k0;
        c1 = l1;
        c2 = h0 ^ c3 ^ k1;
        c3 = l0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

static inline uint32_t wn_philox_word(uint64_t seed, uint64_t n, uint64_t element)
{
    uint32_t w[4];
    wn_philox(seed, n, element >> 2, w);
    return w[element & 3];
}

/* [0, 1) with 24 bits: exact in f32. */
static inline double wn_unit(uint32_t word)
{
    return (double)(word >> 8) * (1.0 / 16777216.0);
}
#endif
