/* Marks the functions that the CPU's kernels and CUDA's compile from one text. */
#ifndef WN_BASE_FUNCTION_H
#define WN_BASE_FUNCTION_H

/* WN_FN marks a function of a header that is inlined where it is called, on the host and on a GPU. */
#if defined(__CUDACC__)
#define WN_FN static __host__ __device__ __forceinline__
#else
#define WN_FN static inline __attribute__((always_inline))
#endif
#endif
