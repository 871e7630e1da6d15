/* What this machine can do, measured beside every bench row that is compared with it: fp32 and bf16 multiply-adds
 * out of registers, and bytes read and written from memory. Built by the bench itself, on the machine it runs on. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <omp.h>
#if defined(__AVX512BF16__)
#include <immintrin.h>
#endif

typedef float lanes __attribute__((vector_size(64)));

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* GFLOP/s of `threads` threads over about 0.2 s. */
double probe_gflops(int threads)
{
    const int64_t rounds = 4000000;
    double sum = 0, start = now();
#pragma omp parallel num_threads(threads) reduction(+ : sum)
    {
        lanes acc[16], a, b;
        for (int l = 0; l < 16; l++) a[l] = 1.0f + 1e-7f * (float)l, b[l] = 1e-9f;
        for (int i = 0; i < 16; i++) acc[i] = b;
        for (int64_t r = 0; r < rounds; r++)
            for (int i = 0; i < 16; i++) acc[i] = acc[i] * a + b;
        for (int i = 0; i < 16; i++) sum += (double)acc[i][0];
    }
    double seconds = now() - start;
    return sum == 0.5 ? 0 : 2.0 * 16 * 16 * (double)rounds * threads / seconds * 1e-9;
}

/* The same of bf16 products added to f32; 0 where the processor has no instruction for them. */
double probe_gflops_bf16(int threads)
{
#if defined(__AVX512BF16__)
    const int64_t rounds = 4000000;
    double sum = 0, start = now();
#pragma omp parallel num_threads(threads) reduction(+ : sum)
    {
        __m512 acc[16];
        __m512bh a = (__m512bh)_mm512_set1_epi32(0x3f803f80), b = (__m512bh)_mm512_set1_epi32(0x30803080);
        for (int i = 0; i < 16; i++) acc[i] = _mm512_setzero_ps();
        for (int64_t r = 0; r < rounds; r++)
            for (int i = 0; i < 16; i++) acc[i] = _mm512_dpbf16_ps(acc[i], a, b);
        for (int i = 0; i < 16; i++) sum += (double)_mm512_reduce_add_ps(acc[i]);
    }
    double seconds = now() - start;
    return sum == 0.5 ? 0 : 2.0 * 32 * 16 * (double)rounds * threads / seconds * 1e-9;
#else
    (void)threads;
    return 0;
#endif
}

/* GB/s of reading `bytes` (well above the caches) with `threads` threads; best of five passes. */
double probe_read(int threads, int64_t bytes)
{
    int64_t n = bytes / 64;
    lanes *data = aligned_alloc(1 << 21, (size_t)bytes);
    double best = 0, sum = 0;
    if (data == NULL) return 0;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t i = 0; i < n; i++) data[i] = (lanes){0} + 1.0f;
    for (int pass = 0; pass < 5; pass++) {
        double start = now();
#pragma omp parallel num_threads(threads) reduction(+ : sum)
        {
            lanes s[4] = {{0}};
#pragma omp for schedule(static)
            for (int64_t i = 0; i < n / 4; i++)
                for (int k = 0; k < 4; k++) s[k] += data[4 * i + k];
            sum += (double)(s[0][0] + s[1][0] + s[2][0] + s[3][0]);
        }
        double rate = (double)bytes / (now() - start) * 1e-9;
        if (rate > best) best = rate;
    }
    free(data);
    return sum == 0.5 ? 0 : best;
}
