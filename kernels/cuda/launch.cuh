/* The door between CUDA's kernels and the compiler: the one header that tells nvcc from the simulated device of
 * spec/cudasim/, which runs the same files on a CPU.
 *
 * Every file of kernels includes this header first. WN_SIMULATED is defined where a plain C++ compiler builds for the
 * simulated device; sim.h then stands in for CUDA's own headers. */
#ifndef WN_CUDA_LAUNCH_CUH
#define WN_CUDA_LAUNCH_CUH
#ifdef WN_SIMULATED
#include "sim.h"
#else
#include <cuda_runtime.h>
/* Names the block's dynamic shared memory, an array of T aligned to 16 bytes. */
#define DYN_SHARED(T, name)                                                                                            \
    extern __shared__ __align__(16) unsigned char wn__dynamic_shared[];                                                \
    T *name = (T *)wn__dynamic_shared
/* Starts a kernel on a stream. grid, block: blocks, and threads of each; shared: bytes of dynamic shared memory. */
#define LAUNCH(kernel, grid, block, shared, stream, ...)                                                               \
    kernel<<<grid, block, shared, (cudaStream_t)(stream)>>>(__VA_ARGS__)
#endif
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
extern "C" {
#include "cuda.h"
#include "../broadcast.h"
#include "../scalar.h"
#include "../sums.h"
#include "../../runtime/base/opcode.h"
#include "../../runtime/base/random.h"
}

/* Threads of a block of kernels that treat every element alike. */
enum { WN_THREADS = 256 };

/* Returns a number of blocks as dimension x of a grid. More than a grid has, 2^31 - 1, become 0, which CUDA refuses. */
static inline unsigned wn__grid(int64_t blocks)
{
    return blocks > INT32_MAX ? 0 : (unsigned)blocks;
}

/* Returns the blocks that n pieces of work need, `each` to a block: at least 1, so that a launch is valid. The number
 * follows from the shape alone. */
static inline unsigned wn__blocks(int64_t n, int64_t each)
{
    return wn__grid(n < 1 ? 1 : (n + each - 1) / each);
}

/* Starts a kernel on blocks of WN_THREADS, and one thread of it for each of n pieces of work. */
#define LAUNCH_BLOCKS(kernel, grid, stream, ...) LAUNCH(kernel, grid, WN_THREADS, 0, stream, __VA_ARGS__)
#define LAUNCH_EACH(kernel, n, stream, ...) LAUNCH_BLOCKS(kernel, wn__blocks(n, WN_THREADS), stream, __VA_ARGS__)

/* Returns the bytes of dynamic shared memory that a block may have on this GPU: 64 KiB on sm_75, 99 to 227 KiB later. A
 * kernel that asks gives the same bits whatever the answer is. */
int32_t wn__shared_most(void);

/* Lets a kernel be launched with more than 48 KiB of dynamic shared memory, up to `bytes`; at most 64 KiB on sm_75, 99
 * KiB on every other GPU, or wn__shared_most. wn__cuda_launched tells of an error. */
template <class F> static inline void wn__allow_shared(F *kernel, size_t bytes)
{
    (void)cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
}

/* Returns the number of the calling thread among all threads of the grid's dimension x. */
static __device__ __forceinline__ int64_t wn__thread(void)
{
    return (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
}

/* Returns the status of the launches since the last call: WN_OK, WN_OOM, or WN_DEVICE with CUDA's words. Every function
 * of a kernel file ends with it. */
int32_t wn__cuda_launched(void);

/* Tells of an index outside its table: keeps the least `element << 32 | value` that any thread tells. */
static __device__ __forceinline__ void wn__report(uint64_t *report, int64_t element, int32_t value)
{
    atomicMin((unsigned long long *)report, (unsigned long long)element << 32 | (uint32_t)value);
}

/* Returns a result of i32 that was computed in 64 bits, and tells of one that 32 bits do not hold. */
static __device__ __forceinline__ int32_t wn__whole(long long value, uint64_t *report, int64_t element)
{
    if (value != (int32_t)value) wn__report(report, element, __float_as_int((float)value));
    return (int32_t)value;
}
#endif
