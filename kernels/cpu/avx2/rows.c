/* Short rows, 4 or 8 at once (row/rows.h), as avx512/rows.c has them: the lanes of all rows are joined together by
 * shuffles that bring the same lane of all rows into one register, in the order of common/cpu.h and row/minmax.h. */
#include "../row/rows.h"
#include <immintrin.h>
#include "../common/nontemporal.h"
#include "../common/types.h"

/* ---- sums: 4 rows, 16 lanes in double ------------------------------------------------------------ */

/* Returns the first n of 4 elements, zeros behind them. */
INLINE __m128 first_of(const float *x, int64_t n)
{
    __m128i lanes = _mm_set1_epi32(n > 4 ? 4 : (int32_t)n);
    return _mm_maskload_ps(x, _mm_cmpgt_epi32(lanes, _mm_setr_epi32(0, 1, 2, 3)));
}

/* Writes the 16 lanes of a row, 4 to a register. Lanes begin at 0 and are never -0, so zeros behind the end of the row
 * change none. */
INLINE void lanes_of(const float *x, int64_t n, __m256d lane[4])
{
    int64_t i = 0;
    for (int q = 0; q < 4; q++) lane[q] = _mm256_setzero_pd();
    for (; i + 16 <= n; i += 16) {
        wn__fetch_line(x + i, wn__tuning.stream_ahead);
        for (int q = 0; q < 4; q++) lane[q] = _mm256_add_pd(lane[q], _mm256_cvtps_pd(_mm_loadu_ps(x + i + 4 * q)));
    }
    if (i == n) return;
    for (int q = 0; q < 4; q++)
        lane[q] = _mm256_add_pd(lane[q], _mm256_cvtps_pd(first_of(x + i + 4 * q, n - i - 4 * q)));
}

/* Returns, for 4 rows, sum + lane 0 + .. + lane 3 of a register of each, added in this order. */
INLINE __m256d add_lanes(__m256d sum, __m256d a, __m256d b, __m256d c, __m256d d)
{
    __m256d low0 = _mm256_unpacklo_pd(a, b), high0 = _mm256_unpackhi_pd(a, b);
    __m256d low1 = _mm256_unpacklo_pd(c, d), high1 = _mm256_unpackhi_pd(c, d);
    sum = _mm256_add_pd(sum, _mm256_permute2f128_pd(low0, low1, 0x20));
    sum = _mm256_add_pd(sum, _mm256_permute2f128_pd(high0, high1, 0x20));
    sum = _mm256_add_pd(sum, _mm256_permute2f128_pd(low0, low1, 0x31));
    return _mm256_add_pd(sum, _mm256_permute2f128_pd(high0, high1, 0x31));
}

static int64_t short_sum(const float *x, int64_t rows, int64_t n, double scale, float *out)
{
    int64_t r = 0;
    for (; r + 4 <= rows; r += 4) {
        __m256d row[4][4], sum = _mm256_setzero_pd();
        for (int k = 0; k < 4; k++) lanes_of(x + (r + k) * n, n, row[k]);
        for (int q = 0; q < 4; q++) sum = add_lanes(sum, row[0][q], row[1][q], row[2][q], row[3][q]);
        _mm_storeu_ps(out + r, _mm256_cvtpd_ps(_mm256_mul_pd(sum, _mm256_set1_pd(scale))));
    }
    return r;
}

/* ---- greatest and least: 8 rows, 16 lanes -------------------------------------------------------- */

/* Returns the maximum of two lanes, else the minimum: a where it is over b, else b. */
INLINE __m256 over(const int32_t is_max, __m256 a, __m256 b)
{
    return is_max ? _mm256_max_ps(a, b) : _mm256_min_ps(a, b);
}

/* Returns 8 lanes of the whole groups of 16 elements of a row, lanes j and j + 8 joined; sets bits of *odd where an
 * element is NaN. */
INLINE __m256 extreme_lanes(const int32_t is_max, const float *x, int64_t whole, __m256 *odd)
{
    __m256 low = _mm256_set1_ps(x[0]), high = low;
    for (int64_t i = 0; i < whole; i += 16) {
        __m256 a = _mm256_loadu_ps(x + i), b = _mm256_loadu_ps(x + i + 8);
        wn__fetch_line(x + i, wn__tuning.stream_ahead);
        low = over(is_max, a, low);
        high = over(is_max, b, high);
        *odd = _mm256_or_ps(*odd, _mm256_or_ps(_mm256_cmp_ps(a, a, _CMP_UNORD_Q), _mm256_cmp_ps(b, b, _CMP_UNORD_Q)));
    }
    return over(is_max, high, low);
}

/* Joins the 8 lanes of 8 rows by halves: two rows in a register, then four. */
INLINE __m256 joined(const int32_t is_max, const __m256 *row)
{
    __m256 two[4], four[2];
    for (int k = 0; k < 4; k++)
        two[k] = over(is_max, _mm256_permute2f128_ps(row[k], row[k + 4], 0x31),
                      _mm256_permute2f128_ps(row[k], row[k + 4], 0x20));
    for (int k = 0; k < 2; k++)
        four[k] = over(is_max, _mm256_shuffle_ps(two[2 * k], two[2 * k + 1], 0xee),
                       _mm256_shuffle_ps(two[2 * k], two[2 * k + 1], 0x44));
    return over(is_max, _mm256_shuffle_ps(four[0], four[1], 0xdd), _mm256_shuffle_ps(four[0], four[1], 0x88));
}

#define ROWS 8
#define PLACE(k) (k)
#define VEC __m256
#define STORE _mm256_storeu_ps
#define ODD __m256
#define NO_ODD _mm256_setzero_ps()
#define IS_ODD(odd) _mm256_movemask_ps(odd)
#include "../row/rows_extreme.inc"

const struct wn__rows_kernel wn__rows_avx2 = {short_sum, short_extremes};
