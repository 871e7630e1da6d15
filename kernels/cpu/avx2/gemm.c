/* The f32 kernels for AVX2 and FMA, and the transpose that packs. */
#include "vectors.h"
#include "../gemm/macrokernel.h"

/* Transposes 8 x 8 words: exchanges pairs, then quads, then halves of rows. */
INLINE void transpose8(__m256 r[8])
{
    __m256 t[8], u[8];
#pragma GCC unroll 4
    for (int32_t i = 0; i < 4; i++) {
        t[2 * i] = _mm256_unpacklo_ps(r[2 * i], r[2 * i + 1]);
        t[2 * i + 1] = _mm256_unpackhi_ps(r[2 * i], r[2 * i + 1]);
    }
#pragma GCC unroll 2
    for (int32_t i = 0; i < 2; i++) {
        u[4 * i] = _mm256_shuffle_ps(t[4 * i], t[4 * i + 2], 0x44);
        u[4 * i + 1] = _mm256_shuffle_ps(t[4 * i], t[4 * i + 2], 0xee);
        u[4 * i + 2] = _mm256_shuffle_ps(t[4 * i + 1], t[4 * i + 3], 0x44);
        u[4 * i + 3] = _mm256_shuffle_ps(t[4 * i + 1], t[4 * i + 3], 0xee);
    }
#pragma GCC unroll 4
    for (int32_t i = 0; i < 4; i++) {
        r[i] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x20);
        r[i + 4] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x31);
    }
}

/* Transposes 4 rows of x, n steps along memory, to (n, 4) with rows ldt words apart. */
INLINE void transpose_rows(const float *x, int64_t ldx, int64_t n, float *to, int64_t ldt)
{
    int64_t j = 0;
    for (; j + 8 <= n; j += 8, to += 8 * ldt) {
        __m256 r[4], t[4];
#pragma GCC unroll 4
        for (int32_t q = 0; q < 4; q++) r[q] = _mm256_loadu_ps(x + q * ldx + j);
        t[0] = _mm256_unpacklo_ps(r[0], r[1]);
        t[1] = _mm256_unpackhi_ps(r[0], r[1]);
        t[2] = _mm256_unpacklo_ps(r[2], r[3]);
        t[3] = _mm256_unpackhi_ps(r[2], r[3]);
        r[0] = _mm256_shuffle_ps(t[0], t[2], 0x44);
        r[1] = _mm256_shuffle_ps(t[0], t[2], 0xee);
        r[2] = _mm256_shuffle_ps(t[1], t[3], 0x44);
        r[3] = _mm256_shuffle_ps(t[1], t[3], 0xee);
#pragma GCC unroll 4
        for (int32_t q = 0; q < 4; q++) {
            _mm_storeu_ps(to + q * ldt, _mm256_castps256_ps128(r[q]));
            _mm_storeu_ps(to + (4 + q) * ldt, _mm256_extractf128_ps(r[q], 1));
        }
    }
    for (; j < n; j++, to += ldt)
        for (int32_t q = 0; q < 4; q++) to[q] = x[q * ldx + j];
}

static void transpose(const float *x, int64_t ldx, int64_t m, int64_t n, float *to, int64_t ldt)
{
    int64_t i = 0, columns = n / 8 * 8;
    for (; i + 8 <= m; i += 8) {
        for (int64_t j = 0; j < columns; j += 8) {
            __m256 r[8];
#pragma GCC unroll 8
            for (int32_t q = 0; q < 8; q++) r[q] = _mm256_loadu_ps(x + (i + q) * ldx + j);
            transpose8(r);
#pragma GCC unroll 8
            for (int32_t q = 0; q < 8; q++) _mm256_storeu_ps(to + (j + q) * ldt + i, r[q]);
        }
        for (int64_t j = columns; j < n; j++)
            for (int64_t q = i; q < i + 8; q++) to[j * ldt + q] = x[q * ldx + j];
    }
    if (i + 4 <= m) {
        transpose_rows(x + i * ldx, ldx, n, to + i, ldt);
        i += 4;
    }
    for (; i < m; i++)
        for (int64_t j = 0; j < n; j++) to[j * ldt + i] = x[i * ldx + j];
}

/* 24 KiB: with the rows that are read and those that are prefetched it fits 32 KiB.
 * Measured, dX over panels, time against blocks of 256 KiB: f32, 32 x 1024 x 1024: 0.82x, 32 x 4096 x 4096: 0.75x,
 * 16 x 2048 x 2048: 0.83x; bf16: 0.96-0.99x; half as much: the same (Zen 4). With AVX-512, whose register tile is the
 * whole micro-tile: 1.05x. */
#define PANELS_PACKED 6144

const struct wn__gemm_kernel wn__gemm_avx2 = {.mr = MR,
                                              .nr = NR,
                                              .microkernel = microkernel,
                                              .panels_kernel = panels_kernel,
                                              .transpose = transpose,
                                              .packing_kernel = packing_kernel,
                                              .macrokernel = macrokernel,
                                              .stores_half = 1,
                                              .panels_packed = PANELS_PACKED};
