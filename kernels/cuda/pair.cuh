/* 16 bytes of elements as four words, and two bf16 as one word: how kernels that memory bounds load, convert and store
 * elements by few instructions. The low half of a word is the first of its two bf16. */
#ifndef WN_CUDA_PAIR_CUH
#define WN_CUDA_PAIR_CUH
#include "mma.cuh"

enum { WN_PAIR_LOWEST = (int)0xff80ff80u }; /* -infinity twice */

/* Return the numbers of a pair. */
WN_DEVICE_FN float wn__pair_low(uint32_t pair)
{
    return wn_from_bits((int32_t)(pair << 16));
}
WN_DEVICE_FN float wn__pair_high(uint32_t pair)
{
    return wn_from_bits((int32_t)(pair & 0xffff0000u));
}

/* Returns two numbers, each rounded to bf16. */
WN_DEVICE_FN uint32_t wn__pair_of(float low, float high)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
    return wn__store<wn_bf16>(low).bits | (uint32_t)wn__store<wn_bf16>(high).bits << 16;
#else
    return wn__bf16_pair(low, high);
#endif
}

/* Returns the greater of each two numbers, NaN where one is NaN: by one instruction, where wn_maximum of a pair takes
 * 7. */
WN_DEVICE_FN uint32_t wn__pair_max(uint32_t a, uint32_t b)
{
#if defined(WN_SIMULATED) || (defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800)
    return wn__pair_of(wn_maximum(wn__pair_low(a), wn__pair_low(b)), wn_maximum(wn__pair_high(a), wn__pair_high(b)));
#else
    uint32_t most;
    asm("max.NaN.bf16x2 %0, %1, %2;" : "=r"(most) : "r"(a), "r"(b));
    return most;
#endif
}

/* Returns the maxima of the elements with even and with odd numbers of 8 elements and of `best`. */
WN_DEVICE_FN uint32_t wn__pair_max8(uint4 v, uint32_t best)
{
    return wn__pair_max(wn__pair_max(wn__pair_max(v.x, v.y), wn__pair_max(v.z, v.w)), best);
}

/* Convert 16 bytes to numbers: 8 of bf16, 4 of f32. */
WN_DEVICE_FN void wn__unpack16(const uint4 &from, float (&to)[8])
{
    const uint32_t word[4] = {from.x, from.y, from.z, from.w};
    WN_UNROLL
    for (int k = 0; k < 4; k++) {
        to[2 * k] = wn__pair_low(word[k]);
        to[2 * k + 1] = wn__pair_high(word[k]);
    }
}
WN_DEVICE_FN void wn__unpack16(const uint4 &from, float (&to)[4])
{
    memcpy(to, &from, sizeof to);
}

/* Store numbers as 16 bytes of elements: 8 as bf16, 4 as f32. */
WN_DEVICE_FN void wn__store16(void *global, const float (&from)[8])
{
    uint32_t word[4];
    WN_UNROLL
    for (int k = 0; k < 4; k++) word[k] = wn__pair_of(from[2 * k], from[2 * k + 1]);
    wn__store16(global, word);
}
WN_DEVICE_FN void wn__store16(void *global, const float (&from)[4])
{
    uint32_t word[4];
    memcpy(word, from, sizeof word);
    wn__store16(global, word);
}
#endif
