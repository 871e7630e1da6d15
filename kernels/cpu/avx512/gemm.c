/* The f32 kernels for AVX-512, and the transpose that packs. */
#include "vectors.h"
#include "../gemm/macrokernel.h"
#include "transpose16.h"

static void transpose(const float *x, int64_t ldx, int64_t m, int64_t n, float *to, int64_t ldt)
{
    const uint16_t *halves = (const uint16_t *)(const void *)x;
    if (m == MR && ldt == MR) transpose_8_words(halves, 2 * ldx, MR, 2 * n, to);
    else transpose_words(halves, 2 * ldx, m, 2 * n, to, ldt);
}

const struct wn__gemm_kernel wn__gemm_avx512 = {.mr = MR,
                                                .nr = NR,
                                                .microkernel = microkernel,
                                                .panels_kernel = panels_kernel,
                                                .transpose = transpose,
                                                .packing_kernel = packing_kernel,
                                                .macrokernel = macrokernel,
                                                .stores_half = 1};
