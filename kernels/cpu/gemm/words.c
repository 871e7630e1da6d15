/* The kernels of bf16 products on this processor: those for pairs of bf16, where it multiplies pairs, else the f32
 * micro-kernel of the class over words that packing converts. */
#include <stddef.h>
#include "gemm.h"
#include "../backend/class.h"
#include "../micro.h"

/* Packs as `pack` of struct wn__gemm_bf16_kernel does; a word is one bf16 as a float. */
static void pack_plain(const uint16_t *x, int64_t xi, int64_t xk, int64_t rows, int64_t k, int64_t width, float *to)
{
    for (int64_t row = 0; row < rows; row += width, x += width * xi)
        for (int64_t s = 0; s < k; s++, to += width)
            for (int64_t i = 0; i < width; i++) to[i] = row + i < rows ? wn_from_bf16(x[i * xi + s * xk]) : 0;
}

struct wn__gemm_bf16_kernel wn__gemm_bf16_here(void)
{
    if (wn__micro.gemm_bf16 != NULL && wn__cpu_has_avx512_bf16()) return *wn__micro.gemm_bf16;
    const struct wn__gemm_kernel *f32 = wn__micro.gemm;
    return (struct wn__gemm_bf16_kernel){f32->mr, f32->nr, 1, f32->microkernel, pack_plain, NULL, NULL, NULL, NULL};
}
