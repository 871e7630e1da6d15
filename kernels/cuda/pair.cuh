/* Two bf16 in a word of 32 bits: the first element of the two is its lower half. */
#ifndef WN_CUDA_PAIR_CUH
#define WN_CUDA_PAIR_CUH
#include "scalar.cuh"

enum { WN_PAIR_LOWEST = (int)0xff80ff80u }; /* -infinity twice */

WN_DEVICE_FN float wn__pair_low(uint32_t w)
{
    return wn_from_bits((int32_t)(w << 16));
}
WN_DEVICE_FN float wn__pair_high(uint32_t w)
{
    return wn_from_bits((int32_t)(w & 0xffff0000u));
}

/* Returns the maximum of each half of two words, NaN where one of the two is NaN. One instruction from sm_80 on, where
 * wn_maximum of both halves takes 14. */
WN_DEVICE_FN uint32_t wn__pair_max(uint32_t a, uint32_t b)
{
#if defined(WN_SIMULATED) || (defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800)
    const float low = wn_maximum(wn__pair_low(a), wn__pair_low(b)),
                high = wn_maximum(wn__pair_high(a), wn__pair_high(b));
    return wn__store<wn_bf16>(low).bits | (uint32_t)wn__store<wn_bf16>(high).bits << 16;
#else
    uint32_t best;
    asm("max.NaN.bf16x2 %0, %1, %2;" : "=r"(best) : "r"(a), "r"(b));
    return best;
#endif
}

/* Returns the maxima of the elements with even and with odd numbers of 8 elements and of `best`. */
WN_DEVICE_FN uint32_t wn__pair_max8(uint4 v, uint32_t best)
{
    return wn__pair_max(wn__pair_max(wn__pair_max(v.x, v.y), wn__pair_max(v.z, v.w)), best);
}
#endif
