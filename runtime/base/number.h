/* Arithmetic of sizes and indices, that is minimum, maximum and rounding up, and the mark of functions that the CPU's
 * kernels and CUDA compile from one text. */
#ifndef WN_BASE_NUMBER_H
#define WN_BASE_NUMBER_H
#include <stdint.h>

/* WN_FN marks a function of a header that is inlined where it is called, on the host and on a GPU. */
#if defined(__CUDACC__)
#define WN_FN static __host__ __device__ __forceinline__
#else
#define WN_FN static inline __attribute__((always_inline))
#endif

WN_FN int64_t wn_min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

WN_FN int64_t wn_max(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Returns the least multiple of `unit` that is n or more. Requires n >= 0 and unit >= 1. */
WN_FN int64_t wn_round_up(int64_t n, int64_t unit)
{
    return (n + unit - 1) / unit * unit;
}
#endif
