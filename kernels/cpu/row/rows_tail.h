/* The tails of short rows, for the classes of x86-64 that reduce many rows at once (avx2/rows.c, avx512/rows.c). */
#ifndef WN_CPU_ROWS_TAIL_H
#define WN_CPU_ROWS_TAIL_H
#include <immintrin.h>
#include <stdint.h>

/* Adds the n elements behind the whole groups to the extreme of a row; returns whether one is NaN. */
static inline __attribute__((always_inline)) int32_t wn__extreme_add_tail(const int32_t is_max, const float *x,
                                                                          int64_t n, float *out)
{
    int32_t odd = 0;
    __m128 best = _mm_set_ss(*out);
    for (int64_t i = 0; i < n; i++) {
        __m128 v = _mm_set_ss(x[i]);
        best = is_max ? _mm_max_ss(v, best) : _mm_min_ss(v, best);
        odd |= x[i] != x[i];
    }
    *out = _mm_cvtss_f32(best);
    return odd;
}
#endif
