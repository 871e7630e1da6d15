/* The f32 kernels for NEON, and the transpose that packs. */
#include "vectors.h"
#include "../gemm/macrokernel.h"

/* Transposes 4 x 4 words: exchanges pairs, then halves of rows. */
INLINE void transpose4(vec r[4])
{
    float64x2_t p = vreinterpretq_f64_f32(vtrn1q_f32(r[0], r[1])), q = vreinterpretq_f64_f32(vtrn2q_f32(r[0], r[1]));
    float64x2_t u = vreinterpretq_f64_f32(vtrn1q_f32(r[2], r[3])), v = vreinterpretq_f64_f32(vtrn2q_f32(r[2], r[3]));
    r[0] = vreinterpretq_f32_f64(vtrn1q_f64(p, u));
    r[1] = vreinterpretq_f32_f64(vtrn1q_f64(q, v));
    r[2] = vreinterpretq_f32_f64(vtrn2q_f64(p, u));
    r[3] = vreinterpretq_f32_f64(vtrn2q_f64(q, v));
}

/* Transposes `rows` rows of x, a multiple of 4 up to MR, n steps along memory, to (n, rows) with rows ldt words
 * apart. */
INLINE void transpose_rows(const float *x, int64_t ldx, const int32_t rows, int64_t n, float *to, int64_t ldt)
{
    int64_t j = 0;
    for (; j + 4 <= n; j += 4, to += 4 * ldt)
#pragma GCC unroll 2
        for (int32_t i = 0; i < rows; i += 4) {
            vec r[4];
#pragma GCC unroll 4
            for (int32_t q = 0; q < 4; q++) r[q] = vld1q_f32(x + (i + q) * ldx + j);
            transpose4(r);
#pragma GCC unroll 4
            for (int32_t q = 0; q < 4; q++) vst1q_f32(to + q * ldt + i, r[q]);
        }
    for (; j < n; j++, to += ldt)
        for (int32_t i = 0; i < rows; i++) to[i] = x[i * ldx + j];
}

static void transpose(const float *x, int64_t ldx, int64_t m, int64_t n, float *to, int64_t ldt)
{
    int64_t i = 0;
    for (; i + MR <= m; i += MR) transpose_rows(x + i * ldx, ldx, MR, n, to + i, ldt);
    if (i + 4 <= m) {
        transpose_rows(x + i * ldx, ldx, 4, n, to + i, ldt);
        i += 4;
    }
    for (; i < m; i++)
        for (int64_t j = 0; j < n; j++) to[j * ldt + i] = x[i * ldx + j];
}

const struct wn__gemm_kernel wn__gemm_neon = {.mr = MR,
                                              .nr = NR,
                                              .microkernel = microkernel,
                                              .panels_kernel = panels_kernel,
                                              .transpose = transpose,
                                              .packing_kernel = packing_kernel,
                                              .macrokernel = macrokernel};
