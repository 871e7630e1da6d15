/* The f32 tile for AVX-512: 8 x 48, 24 accumulators, one broadcast of A for three fused multiply-adds. While
 * it runs it touches the memory the next strip will be packed from, a line a step. */
#include <stddef.h>
#include "gemm.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define MR 8
#define NR 48
#define ISA __attribute__((target("avx512f,avx512dq,avx512bw,avx512vl,fma")))
#define ISA_INLINE static inline __attribute__((always_inline, target("avx512f,avx512dq,avx512bw,avx512vl,fma")))

/* The lanes of vector v (0..2) that hold one of n columns. */
ISA_INLINE __mmask16 lanes(int64_t n, int32_t v)
{
    int64_t left = n - 16 * v;
    return left >= 16 ? 0xffff : left <= 0 ? 0 : (__mmask16)((1u << left) - 1);
}

ISA_INLINE void store_tile(const struct wn__gemm_tile *t, __m512 acc[MR][3])
{
    __mmask16 mask[3] = {lanes(t->n, 0), lanes(t->n, 1), lanes(t->n, 2)};
    if (t->bias) {
        for (int32_t v = 0; v < 3; v++) {
            __m512 bias = _mm512_maskz_loadu_ps(mask[v], t->bias + 16 * v);
#pragma GCC unroll 8
            for (int32_t i = 0; i < MR; i++) acc[i][v] = _mm512_add_ps(acc[i][v], bias);
        }
    }
    if (t->stream && t->n % 16 == 0) {
#pragma GCC unroll 8
        for (int32_t i = 0; i < MR; i++)
            for (int32_t v = 0; v < 3; v++)
                if (i < t->m && mask[v]) _mm512_stream_ps(t->c + i * t->ldc + 16 * v, acc[i][v]);
        return;
    }
#pragma GCC unroll 8
    for (int32_t i = 0; i < MR; i++)
        for (int32_t v = 0; v < 3; v++)
            if (i < t->m) _mm512_mask_storeu_ps(t->c + i * t->ldc + 16 * v, mask[v], acc[i][v]);
}

ISA static void tile(const struct wn__gemm_tile *t)
{
    __m512 acc[MR][3];
#pragma GCC unroll 8
    for (int32_t i = 0; i < MR; i++)
#pragma GCC unroll 3
        for (int32_t v = 0; v < 3; v++)
            acc[i][v] = t->first || i >= t->m ? _mm512_setzero_ps()
                                              : _mm512_maskz_loadu_ps(lanes(t->n, v), t->c + i * t->ldc + 16 * v);
    const float *a = t->a, *b = t->b;
    int64_t half = (t->kc + 1) / 2;
    for (int32_t part = 0; part < 2; part++) {
        const char *ahead = t->ahead[part];
        for (int64_t k = part ? half : 0; k < (part ? t->kc : half); k++) {
            _mm_prefetch(ahead, _MM_HINT_T1);
            ahead += t->ahead_step;
            __m512 b0 = _mm512_load_ps(b), b1 = _mm512_load_ps(b + 16), b2 = _mm512_load_ps(b + 32);
#pragma GCC unroll 8
            for (int32_t i = 0; i < MR; i++) {
                __m512 x = _mm512_set1_ps(a[i]);
                acc[i][0] = _mm512_fmadd_ps(x, b0, acc[i][0]);
                acc[i][1] = _mm512_fmadd_ps(x, b1, acc[i][1]);
                acc[i][2] = _mm512_fmadd_ps(x, b2, acc[i][2]);
            }
            a += MR;
            b += NR;
        }
    }
    store_tile(t, acc);
}

/* 16 x 16 in registers: pairs, quads, then halves of rows change places. */
ISA_INLINE void transpose(__m512 r[16])
{
    __m512 t[16];
#pragma GCC unroll 8
    for (int32_t i = 0; i < 8; i++) {
        t[2 * i] = _mm512_unpacklo_ps(r[2 * i], r[2 * i + 1]);
        t[2 * i + 1] = _mm512_unpackhi_ps(r[2 * i], r[2 * i + 1]);
    }
#pragma GCC unroll 4
    for (int32_t i = 0; i < 4; i++) {
        __m512d p = _mm512_castps_pd(t[4 * i]), q = _mm512_castps_pd(t[4 * i + 1]);
        __m512d u = _mm512_castps_pd(t[4 * i + 2]), v = _mm512_castps_pd(t[4 * i + 3]);
        r[4 * i] = _mm512_castpd_ps(_mm512_unpacklo_pd(p, u));
        r[4 * i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(p, u));
        r[4 * i + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(q, v));
        r[4 * i + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(q, v));
    }
#pragma GCC unroll 4
    for (int32_t i = 0; i < 4; i++) {
        t[i] = _mm512_shuffle_f32x4(r[i], r[i + 4], 0x88);
        t[i + 4] = _mm512_shuffle_f32x4(r[i], r[i + 4], 0xdd);
        t[i + 8] = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0x88);
        t[i + 12] = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0xdd);
    }
#pragma GCC unroll 4
    for (int32_t i = 0; i < 4; i++) {
        r[i] = _mm512_shuffle_f32x4(t[i], t[i + 8], 0x88);
        r[i + 8] = _mm512_shuffle_f32x4(t[i], t[i + 8], 0xdd);
        r[i + 4] = _mm512_shuffle_f32x4(t[i + 4], t[i + 12], 0x88);
        r[i + 12] = _mm512_shuffle_f32x4(t[i + 4], t[i + 12], 0xdd);
    }
}

ISA static void pack_b_rows(const float *b, int64_t ldb, int64_t n, int64_t kc, float *out)
{
    for (int64_t j = 0; j < NR; j += 16) {
        for (int64_t k = 0; k < kc; k += 16) {
            int64_t steps = kc - k < 16 ? kc - k : 16;
            __mmask16 mask = lanes(steps, 0);
            __m512 r[16];
#pragma GCC unroll 16
            for (int32_t i = 0; i < 16; i++)
                r[i] = j + i < n ? _mm512_maskz_loadu_ps(mask, b + (j + i) * ldb + k) : _mm512_setzero_ps();
            transpose(r);
#pragma GCC unroll 16
            for (int32_t i = 0; i < 16; i++)
                if (i < steps) _mm512_store_ps(out + (k + i) * NR + j, r[i]);
        }
    }
}

ISA static void pack_a_rows(const float *a, int64_t lda, int64_t m, int64_t kc, float *out)
{
    for (int64_t k = 0; k < kc; k += 16) {
        int64_t steps = kc - k < 16 ? kc - k : 16;
        __mmask16 mask = lanes(steps, 0);
        __m512 r[16];
#pragma GCC unroll 16
        for (int32_t i = 0; i < 16; i++)
            r[i] = i < m ? _mm512_maskz_loadu_ps(mask, a + i * lda + k) : _mm512_setzero_ps();
        transpose(r);
#pragma GCC unroll 16
        for (int32_t i = 0; i < 16; i++)
            if (i < steps) _mm256_storeu_ps(out + (k + i) * MR, _mm512_castps512_ps256(r[i]));
    }
}

const struct wn__gemm_kernel *wn__gemm_avx512(void)
{
    static const struct wn__gemm_kernel kernel = {MR, NR, tile, pack_b_rows, pack_a_rows};
    if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512dq") ||
        !__builtin_cpu_supports("avx512bw") || !__builtin_cpu_supports("avx512vl") || !__builtin_cpu_supports("fma"))
        return NULL;
    return &kernel;
}
#else
const struct wn__gemm_kernel *wn__gemm_avx512(void)
{
    return NULL;
}
#endif
