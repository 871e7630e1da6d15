/* Philox words in bulk: WN_QUADS calls at once, in the order of the elements. The numbers are those of base/random.h,
 * one call for four elements; only the order of the work differs. A class that has a philox.h computes a quad in each
 * 64-bit lane of its vectors, where a product of 32 bits stays in its lane; the others call base/random.h. */
#ifndef WN_CPU_PHILOX_BULK_H
#define WN_CPU_PHILOX_BULK_H
#include "../../../runtime/base/random.h"
#if defined(__AVX512F__)
#include "../avx512/philox.h"
#elif defined(__AVX2__)
#include "../avx2/philox.h"
#endif

#define WN_QUADS 32

#if defined(WN_WORDS_LANES)
/* Computes one round of a group c: (4, lanes). The upper half of a lane may hold anything. */
static inline __attribute__((always_inline)) void wn__words_round(wn__words c[4], wn__words k0, wn__words k1)
{
    wn__words p0 = wn__words_multiply(c[0], wn__words_set1(WN_PHILOX_M0));
    wn__words p1 = wn__words_multiply(c[2], wn__words_set1(WN_PHILOX_M1));
    c[0] = wn__words_xor3(wn__words_upper(p1), c[1], k0);
    c[1] = p1;
    c[2] = wn__words_xor3(wn__words_upper(p0), c[3], k1);
    c[3] = p0;
}

/* Writes the words of quads [q0, q0 + WN_WORDS_GROUPS WN_WORDS_LANES) to word. */
static inline __attribute__((always_inline)) void wn__draw_groups(uint64_t seed, uint64_t counter, uint64_t q0,
                                                                  uint32_t *word)
{
    wn__words c[WN_WORDS_GROUPS][4], k0 = wn__words_set1(seed), k1 = wn__words_set1(seed >> 32);
    for (int v = 0; v < WN_WORDS_GROUPS; v++) {
        c[v][0] = wn__words_add(wn__words_set1(q0 + (uint64_t)v * WN_WORDS_LANES), wn__words_count());
        c[v][1] = wn__words_upper(c[v][0]);
        c[v][2] = wn__words_set1(counter);
        c[v][3] = wn__words_set1(counter >> 32);
    }
    _Pragma("GCC unroll 10") for (int round = 0; round < WN_PHILOX_ROUNDS; round++)
    {
        for (int v = 0; v < WN_WORDS_GROUPS; v++) wn__words_round(c[v], k0, k1);
        k0 = wn__words_add(k0, wn__words_set1(WN_PHILOX_K0));
        k1 = wn__words_add(k1, wn__words_set1(WN_PHILOX_K1));
    }
    for (int v = 0; v < WN_WORDS_GROUPS; v++) wn__words_store(word + 4 * v * WN_WORDS_LANES, c[v]);
}

/* Writes the words of quads [q0, q0 + WN_QUADS) to word. */
static inline __attribute__((always_inline)) void wn__draw(uint64_t seed, uint64_t counter, uint64_t q0,
                                                           uint32_t word[4 * WN_QUADS])
{
    const int32_t step = WN_WORDS_GROUPS * WN_WORDS_LANES;
    for (int32_t q = 0; q < WN_QUADS; q += step) wn__draw_groups(seed, counter, q0 + (uint64_t)q, word + 4 * q);
}
#else
static inline __attribute__((always_inline)) void wn__draw(uint64_t seed, uint64_t counter, uint64_t q0,
                                                           uint32_t word[4 * WN_QUADS])
{
    for (int32_t q = 0; q < WN_QUADS; q++) wn_philox(seed, counter, q0 + (uint64_t)q, word + 4 * q);
}
#endif
#endif
