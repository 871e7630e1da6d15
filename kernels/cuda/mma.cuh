/* Tensor cores, asynchronous copies and quick conversions of sm_80 and later, and prefetches: one function an
 * instruction of PTX. Every lane of a warp calls it. On the simulated device the functions of the same names are those
 * of spec/cudasim/tensor.h.
 *
 * A warp holds matrices in registers. With g = lane / 4 and t = lane % 4, by the PTX manual ("Matrix Fragments for
 * mma.m16n8k16"):
 *
 *   d[i]   element (g + 8 (i / 2), 2 t + i % 2) of D, (16, 8) f32
 *   a[r]   elements (g + 8 (r % 2), 2 t + 8 (r / 2)) and the next in the row of A, (16, 16) bf16; the low half is the
 *          first
 *   b[r]   elements (2 t + 8 r, g) and the next in the column of B, (16, 8) bf16
 *
 * Code for older GPUs traps, but for copies, which end at once there, and wn__prefetch: wn__has_tensor_cores says on
 * the host whether the device runs the others. */
#ifndef WN_CUDA_MMA_CUH
#define WN_CUDA_MMA_CUH
#include "scalar.cuh"

#ifdef WN_SIMULATED
#include "tensor.h"

WN_DEVICE_FN void wn__store16(void *global, const uint32_t (&word)[4])
{
    *(uint4 *)global = make_uint4(word[0], word[1], word[2], word[3]);
}
static inline int32_t wn__has_tensor_cores(void)
{
    return 1;
}
WN_DEVICE_FN uint32_t wn__bf16_pair(float low, float high)
{
    return wn__store<wn_bf16>(low).bits | (uint32_t)wn__store<wn_bf16>(high).bits << 16;
}
WN_DEVICE_FN float wn__power_of_two(float x)
{
    return exp2f(x);
}
#else
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
#define WN_PTX(...) __trap()
#define WN_PTX_VALUE(...) __trap()
#else
#define WN_PTX(...) asm volatile(__VA_ARGS__)
#define WN_PTX_VALUE(...) asm(__VA_ARGS__) /* of operands in registers alone: the compiler may move it */
#endif

/* Returns whether the device of the calling thread is sm_80 or later. */
static inline int32_t wn__has_tensor_cores(void)
{
    int device = 0, major = 0;
    if (cudaGetDevice(&device) != cudaSuccess) return 0;
    return cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess && major >= 8;
}

/* Adds the product of A and B to D. Sums are f32; the order of the 16 products of an element is the GPU's own. */
WN_DEVICE_FN void wn__mma_bf16_16816(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
{
    WN_PTX("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
           "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
           : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
           : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* Rounds two numbers to bf16, to nearest even, and returns them as one word. */
WN_DEVICE_FN uint32_t wn__bf16_pair(float low, float high)
{
    uint32_t pair = 0;
    WN_PTX_VALUE("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

/* Returns 2^x within 2^-22 of it, and 0 where that is below the normal numbers. */
WN_DEVICE_FN float wn__power_of_two(float x)
{
    float power = 0;
    WN_PTX_VALUE("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
    return power;
}

/* Returns the address of a byte of shared memory within its own space. */
WN_DEVICE_FN uint32_t wn__shared_address(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

/* Loads four matrices of 8 x 8 elements of 16 bits: r[m] becomes elements (g, 2 t) and (g, 2 t + 1) of matrix m. row:
 * in shared memory, a multiple of 16 bytes; lane l gives row l % 8 of matrix l / 8. */
WN_DEVICE_FN void wn__ldmatrix_x4(uint32_t (&r)[4], const void *row)
{
    WN_PTX("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
           : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
           : "r"(wn__shared_address(row))
           : "memory");
}
/* Loads them transposed: r[m] becomes elements (2 t, g) and (2 t + 1, g) of matrix m. */
WN_DEVICE_FN void wn__ldmatrix_x4_trans(uint32_t (&r)[4], const void *row)
{
    WN_PTX("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
           : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
           : "r"(wn__shared_address(row))
           : "memory");
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
WN_DEVICE_FN void wn__cp_async16(void *shared, const void *global)
{
    *(uint4 *)shared = *(const uint4 *)global;
}
WN_DEVICE_FN void wn__cp_async4(void *shared, const void *global)
{
    *(uint32_t *)shared = *(const uint32_t *)global;
}
WN_DEVICE_FN void wn__cp_async16_or_zeros(void *shared, const void *global, bool is_real)
{
    *(uint4 *)shared = is_real ? *(const uint4 *)global : make_uint4(0, 0, 0, 0);
}
WN_DEVICE_FN void wn__cp_async_commit(void)
{
}
template <int N> WN_DEVICE_FN void wn__cp_async_wait(void)
{
}
#else
/* Begins a copy of 16 bytes from global to shared memory; both addresses are multiples of 16. */
WN_DEVICE_FN void wn__cp_async16(void *shared, const void *global)
{
    WN_PTX("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(wn__shared_address(shared)), "l"(global) : "memory");
}
/* Begins a copy of 4 bytes; both addresses are multiples of 4. */
WN_DEVICE_FN void wn__cp_async4(void *shared, const void *global)
{
    WN_PTX("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(wn__shared_address(shared)), "l"(global) : "memory");
}
/* Begins one of 16 bytes, or one of zeros where is_real is false: nothing is read then. */
WN_DEVICE_FN void wn__cp_async16_or_zeros(void *shared, const void *global, bool is_real)
{
    WN_PTX("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(wn__shared_address(shared)), "l"(global),
           "r"(is_real ? 16 : 0)
           : "memory");
}
/* Makes one group of the copies that the thread has begun since its last commit. */
WN_DEVICE_FN void wn__cp_async_commit(void)
{
    WN_PTX("cp.async.commit_group;" ::: "memory");
}
/* Waits until at most N groups of the calling thread are under way. Other threads see the bytes after a barrier. */
template <int N> WN_DEVICE_FN void wn__cp_async_wait(void)
{
    WN_PTX("cp.async.wait_group %0;" ::"n"(N) : "memory");
}
#endif
#undef WN_PTX
#undef WN_PTX_VALUE

/* Asks for the line of an element of global memory, which a later load then finds in the L2 cache. */
WN_DEVICE_FN void wn__prefetch(const void *global)
{
    asm volatile("prefetch.global.L2 [%0];" ::"l"(__cvta_generic_to_global(global)));
}

/* Stores 16 bytes to global memory, on 16 bytes, at once: nvcc stores a struct of them in up to 8 parts. */
WN_DEVICE_FN void wn__store16(void *global, const uint32_t (&word)[4])
{
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(global)), "r"(word[0]),
                 "r"(word[1]), "r"(word[2]), "r"(word[3])
                 : "memory");
}
#endif
#endif
