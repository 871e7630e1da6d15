/* The kernels of a tile of attention for AVX-512 (attention/microtile.h). */
#include "vectors.h"
#include "../attention/attention.h"
#include "../element/philox_bulk.h"

#define vec_sub(a, b) _mm512_sub_ps(a, b)
#define vec_mul(a, b) _mm512_mul_ps(a, b)
#define vec_max(a, b) _mm512_max_ps(a, b)
typedef __mmask16 vec_kept;
#define vec_kept_of(bits) ((vec_kept)(bits))
#define vec_drop(kept, x) _mm512_maskz_mov_ps(kept, x)

#define TOGETHER 4 /* rows at once. Measured: 4.5 cycles for 16 weights; one row 5.8, eight rows 4.4 (Zen 5) */
#define EACH _Pragma("GCC unroll 4") for (int32_t i = 0; i < TOGETHER; i++)

/* Computes x = 2^x with the bits of wn_exp2_below_f32: scalef takes the floor itself, and rounds once, as the second of
 * the two multiplications of wn_exp2_below_f32 does. reduce_ps would take the floor and the difference at once, and
 * round the difference down. */
INLINE void exp2_below(vec x[TOGETHER])
{
    vec r[TOGETHER], p[TOGETHER];
    EACH r[i] = _mm512_sub_ps(x[i], _mm512_roundscale_ps(x[i], _MM_FROUND_TO_NEG_INF));
    EACH p[i] = _mm512_fmadd_ps(_mm512_set1_ps(WN_EXP2_5), r[i], _mm512_set1_ps(WN_EXP2_4));
    EACH p[i] = _mm512_fmadd_ps(p[i], r[i], _mm512_set1_ps(WN_EXP2_3));
    EACH p[i] = _mm512_fmadd_ps(p[i], r[i], _mm512_set1_ps(WN_EXP2_2));
    EACH p[i] = _mm512_fmadd_ps(p[i], r[i], _mm512_set1_ps(WN_EXP2_1));
    EACH p[i] = _mm512_fmadd_ps(p[i], r[i], _mm512_set1_ps(1.0f));
    EACH x[i] = _mm512_scalef_ps(p[i], x[i]);
}

#define GROUPS 6 /* Measured: 10.6 cycles for 16 weights; four 12.5, eight 11.1 (Zen 5) */
#define quads_load(from, half) _mm512_loadu_si512((from) + 8 * (half))

INLINE void quads_keep(wn__words low, wn__words high, uint32_t last, int32_t c, uint16_t *kept)
{
    (void)c; /* 0 */
    const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    *kept = _mm512_cmple_epu32_mask(_mm512_permutex2var_epi32(low, even, high), _mm512_set1_epi32((int32_t)last));
}

#include "../attention/microtile.h"

const struct wn__attention_kernel wn__attention_avx512 = {multiply, softmax, draw, 0};
