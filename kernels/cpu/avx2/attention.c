/* The kernels of a tile of attention for AVX2 and FMA (attention/microtile.h). */
#include "vectors.h"
#include "../attention/attention.h"
#include "../element/philox_bulk.h"

#define vec_sub(a, b) _mm256_sub_ps(a, b)
#define vec_mul(a, b) _mm256_mul_ps(a, b)
#define vec_max(a, b) _mm256_max_ps(a, b)
typedef __m256 vec_kept;
#define vec_drop(kept, x) _mm256_and_ps(kept, x)

INLINE vec_kept vec_kept_of(uint32_t bits)
{
    const __m256i bit = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    const __m256i all = _mm256_set1_epi32((int32_t)bits);
    return _mm256_castsi256_ps(_mm256_cmpeq_epi32(_mm256_and_si256(all, bit), bit));
}

#define TOGETHER 4 /* rows at once */
#define EACH _Pragma("GCC unroll 4") for (int32_t i = 0; i < TOGETHER; i++)

/* Returns p 2^n, rounded once, for integers n from -150 to 0. */
INLINE vec scale(vec p, vec n)
{
    const vec round = _mm256_set1_ps(12582912.0f); /* 1.5 x 2^23: an integer added to it is in its low bits */
    const __m256i bias = _mm256_set1_epi32(127);
    __m256i e = _mm256_sub_epi32(_mm256_castps_si256(_mm256_add_ps(n, round)), _mm256_castps_si256(round));
    __m256i half = _mm256_srai_epi32(e, 1), rest = _mm256_sub_epi32(e, half);
    p = _mm256_mul_ps(p, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(half, bias), 23)));
    return _mm256_mul_ps(p, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(rest, bias), 23)));
}

/* Computes x = 2^x with the bits of wn_exp2_below_f32. Where all results are normal numbers, 2^n is one: the bits of
 * n + 127, shifted to the exponent, and a NaN stays one. */
INLINE void exp2_below(vec x[TOGETHER])
{
    vec n[TOGETHER], r[TOGETHER], p[TOGETHER];
    const vec least = _mm256_min_ps(_mm256_min_ps(x[0], x[1]), _mm256_min_ps(x[2], x[3]));
    const int32_t tiny = _mm256_movemask_ps(_mm256_cmp_ps(least, _mm256_set1_ps(-126.0f), _CMP_LT_OQ));
    if (tiny) EACH x[i] = _mm256_max_ps(_mm256_set1_ps(-150.0f), x[i]);
    EACH n[i] = _mm256_floor_ps(x[i]);
    EACH r[i] = _mm256_sub_ps(x[i], n[i]);
    EACH p[i] = _mm256_fmadd_ps(_mm256_set1_ps(WN_EXP2_5), r[i], _mm256_set1_ps(WN_EXP2_4));
    EACH p[i] = _mm256_fmadd_ps(p[i], r[i], _mm256_set1_ps(WN_EXP2_3));
    EACH p[i] = _mm256_fmadd_ps(p[i], r[i], _mm256_set1_ps(WN_EXP2_2));
    EACH p[i] = _mm256_fmadd_ps(p[i], r[i], _mm256_set1_ps(WN_EXP2_1));
    EACH p[i] = _mm256_fmadd_ps(p[i], r[i], _mm256_set1_ps(1.0f));
    if (tiny) {
        EACH x[i] = scale(p[i], n[i]);
        return;
    }
    EACH n[i] = _mm256_add_ps(n[i], _mm256_set1_ps(12582912.0f + 127));
    EACH x[i] = _mm256_mul_ps(p[i], _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(n[i]), 23)));
}

#define GROUPS 6 /* Measured: 1.57 cycles a weight; two 1.91, four 1.83, eight 1.87 (Zen 4) */

/* Half 0 has calls 0, 1, 4 and 5 of 8, half 1 the others: in the order in which quads_keep joins their words. */
INLINE wn__words quads_load(const uint64_t *from, int32_t half)
{
    const __m256i a = _mm256_loadu_si256((const __m256i *)from), b = _mm256_loadu_si256((const __m256i *)from + 1);
    return half ? _mm256_permute2x128_si256(a, b, 0x31) : _mm256_permute2x128_si256(a, b, 0x20);
}

INLINE void quads_keep(wn__words low, wn__words high, uint32_t last, int32_t c, uint16_t *kept)
{
    const vec words = _mm256_shuffle_ps(_mm256_castsi256_ps(low), _mm256_castsi256_ps(high), 0x88);
    const __m256i word = _mm256_castps_si256(words), most = _mm256_set1_epi32((int32_t)last);
    const __m256 keep = _mm256_castsi256_ps(_mm256_cmpeq_epi32(_mm256_min_epu32(word, most), word));
    ((uint8_t *)kept)[c / 8] = (uint8_t)_mm256_movemask_ps(keep);
}

#include "../attention/microtile.h"

const struct wn__attention_kernel wn__attention_avx2 = {multiply, softmax, draw, 1};
