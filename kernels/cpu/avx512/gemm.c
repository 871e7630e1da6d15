/* The f32 kernels for AVX-512, and the transpose that packs. */
#include "vectors.h"
#include "../gemm/macrokernel.h"
#include "transpose16.h"

/* Packs 8 rows of x, n steps along memory, as a micro-panel of a: to (n, 8). */
INLINE void transpose_rows(const float *x, int64_t ldx, int64_t n, float *to)
{
    for (int64_t j = 0; j < n; j += 16) {
        __mmask16 mask = vec_first(n - j);
        __m512 r[MR];
#pragma GCC unroll 8
        for (int32_t q = 0; q < MR; q++) r[q] = _mm512_maskz_loadu_ps(mask, x + q * ldx + j);
        transpose8(r);
        store_transposed8(r, n - j, to + j * MR);
    }
}

static void transpose(const float *x, int64_t ldx, int64_t m, int64_t n, float *to, int64_t ldt)
{
    if (m == MR && ldt == MR) {
        transpose_rows(x, ldx, n, to);
        return;
    }
    for (int64_t i = 0; i < m; i += 16) {
        int64_t rows = m - i < 16 ? m - i : 16;
        __mmask16 row_mask = vec_first(rows);
        for (int64_t j = 0; j < n; j += 16) {
            int64_t columns = n - j < 16 ? n - j : 16;
            __mmask16 mask = vec_first(columns);
            __m512 r[16];
#pragma GCC unroll 16
            for (int32_t q = 0; q < 16; q++)
                r[q] = q < rows ? _mm512_maskz_loadu_ps(mask, x + (i + q) * ldx + j) : _mm512_setzero_ps();
            transpose16(r);
#pragma GCC unroll 16
            for (int32_t q = 0; q < 16; q++)
                if (q < columns) _mm512_mask_storeu_ps(to + (j + q) * ldt + i, row_mask, r[q]);
        }
    }
}

const struct wn__gemm_kernel wn__gemm_avx512 = {.mr = MR,
                                                .nr = NR,
                                                .microkernel = microkernel,
                                                .panels_kernel = panels_kernel,
                                                .transpose = transpose,
                                                .packing_kernel = packing_kernel,
                                                .macrokernel = macrokernel,
                                                .stores_half = 1};
