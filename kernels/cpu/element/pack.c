/* PACK_INT8, UNPACK_INT8, PACK_SIGN, UNPACK_SIGN: packed forms of whole values (runtime/ops/pack.c has the layouts and
 * sources, kernels/scalar.h the formulas).
 *
 * Threads share whole groups and whole bytes, and the bytes of a group depend on its own elements alone. int8 is
 * computed by tiles of one group in f32, into which other dtypes are converted, so one loop encodes and one decodes.
 * Unpacked values are large and stream (common/nontemporal.h). */
#include <stddef.h>
#include <string.h>
#include "../common/bf16.h"
#include "../common/cpu.h"
#if defined(__AVX2__)
#include <immintrin.h>
#endif

#define GROUP WN_INT8_GROUP
#define BYTES_AT_ONCE (WN_STREAM_BLOCK / 8)

/* One packing or unpacking of n elements. */
struct packing {
    int64_t n;
    int32_t dtype, streams; /* of the value; whether out is stored non-temporally */
    const void *in;
    void *out;
};

/* ---- int8 ---------------------------------------------------------------------------------------- */
/* Returns the number of groups of n elements. The packed form is (groups) f32 scales, then (n) codes. */
static int64_t n_groups(int64_t n)
{
    return (n + GROUP - 1) / GROUP;
}

/* Encodes one group x: (n); returns its scale. Magnitudes are compared as whole numbers, so that a NaN is above
 * everything. */
static float encode(const float *restrict x, int64_t n, int8_t *restrict code)
{
    int32_t most = 0;
#pragma omp simd reduction(max : most)
    for (int64_t i = 0; i < n; i++) {
        int32_t bits = wn_to_bits(x[i]) & 0x7fffffff;
        most = bits > most ? bits : most;
    }
    float scale = wn_int8_scale(wn_from_bits(most)), inverse = 1.0f / scale;
    if (!(scale > 0.0f)) {
        memset(code, 0, (size_t)n);
        return scale;
    }
#pragma omp simd
    for (int64_t i = 0; i < n; i++) code[i] = wn_int8_code(x[i], inverse);
    return scale;
}

static void decode(const int8_t *restrict code, float scale, int64_t n, float *restrict x)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) x[i] = (float)code[i] * scale;
}

static void narrow_f64(const double *restrict from, int64_t n, float *restrict to)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) to[i] = (float)from[i];
}

static void widen_f64(const float *restrict from, int64_t n, double *restrict to)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) to[i] = (double)from[i];
}

static void pack_int8_part(int64_t begin, int64_t end, void *ctx)
{
    const struct packing *k = ctx;
    float *scale = k->out, tile[GROUP];
    int8_t *code = (int8_t *)(scale + n_groups(k->n));
    for (int64_t g = begin; g < end; g++) {
        int64_t at = g * GROUP, n = k->n - at < GROUP ? k->n - at : GROUP;
        const float *x = tile;
        if (k->dtype == WN_F32) x = (const float *)k->in + at;
        else if (k->dtype == WN_BF16) wn__widen(tile, (const uint16_t *)k->in + at, n);
        else narrow_f64((const double *)k->in + at, n, tile);
        wn__prefetch_stream((const char *)k->in + at * wn__dtype_size(k->dtype), n * wn__dtype_size(k->dtype));
        scale[g] = encode(x, n, code + at);
    }
}

static void unpack_int8_part(int64_t begin, int64_t end, void *ctx)
{
    const struct packing *k = ctx;
    const float *scale = k->in;
    const int8_t *code = (const int8_t *)(scale + n_groups(k->n));
    int64_t size = wn__dtype_size(k->dtype);
    float tile[GROUP];
    struct wn__stream_block block;
    for (int64_t g = begin; g < end; g++) {
        int64_t at = g * GROUP, n = k->n - at < GROUP ? k->n - at : GROUP;
        char *out = (char *)k->out + at * size, *to = k->streams ? block.bytes : out;
        decode(code + at, scale[g], n, k->dtype == WN_F32 ? (float *)to : tile);
        if (k->dtype == WN_BF16) wn__round((uint16_t *)to, tile, n);
        else if (k->dtype == WN_F64) widen_f64(tile, n, (double *)to);
        if (k->streams) wn__stream(out, block.bytes, n * size);
    }
    if (k->streams) wn__stream_end();
}

/* ---- signs --------------------------------------------------------------------------------------- */
/* The sign of element 8 b + j is bit j of byte b. */

#if defined(__AVX2__)
/* Return the signs of eight elements: the comparisons of a vector are the bits of a byte.
 * Measured, 128 MiB of f32 by 2 threads: 8.4 -> 3.2 ms against bytes of 0 and 1 that a product gathers (Zen 4). */
static inline uint8_t eight_f32(const float *x)
{
    return (uint8_t)_mm256_movemask_ps(_mm256_cmp_ps(_mm256_loadu_ps(x), _mm256_setzero_ps(), _CMP_NLE_UQ));
}

static inline uint8_t eight_f64(const double *x)
{
    int low = _mm256_movemask_pd(_mm256_cmp_pd(_mm256_loadu_pd(x), _mm256_setzero_pd(), _CMP_NLE_UQ));
    int high = _mm256_movemask_pd(_mm256_cmp_pd(_mm256_loadu_pd(x + 4), _mm256_setzero_pd(), _CMP_NLE_UQ));
    return (uint8_t)(low | high << 4);
}

static inline uint8_t eight_bf16(const uint16_t *x)
{
    __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)x));
    __m256 y = _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
    return (uint8_t)_mm256_movemask_ps(_mm256_cmp_ps(y, _mm256_setzero_ps(), _CMP_NLE_UQ));
}
#else
/* Returns eight bytes that are 0 or 1 as the bits of one: the product brings byte i to bit 56 + i, and no two of its
 * terms overlap. */
static inline uint8_t bits_of_bytes(const uint8_t *is_positive)
{
    uint64_t eight = 0;
    for (int j = 0; j < 8; j++) eight |= (uint64_t)is_positive[j] << (8 * j);
    return (uint8_t)((eight * 0x0102040810204080u) >> 56);
}

#define EIGHT(S, T, TAKE)                                                                                              \
    static inline uint8_t eight_##S(const T *x)                                                                        \
    {                                                                                                                  \
        uint8_t is_positive[8];                                                                                        \
        for (int j = 0; j < 8; j++) is_positive[j] = !(TAKE(x[j]) <= 0);                                               \
        return bits_of_bytes(is_positive);                                                                             \
    }

EIGHT(f32, float, WN_SAME)
EIGHT(f64, double, WN_SAME)
EIGHT(bf16, uint16_t, wn_from_bf16)
#endif

#define SIGNS(S, T)                                                                                                    \
    /* Packs n elements to (n + 7) / 8 bytes, and prefetches line by line what follows. */                             \
    static void signs_of_##S(const void *x_, int64_t n, uint8_t *restrict out)                                         \
    {                                                                                                                  \
        const T *x = x_;                                                                                               \
        T last[8] = {0};                                                                                               \
        const int64_t line = 8 / (int64_t)sizeof(T); /* bytes of out to a line of x */                                 \
        int64_t bytes = n / 8, b = 0;                                                                                  \
        for (; b + line <= bytes; b += line) {                                                                         \
            wn__fetch_line(x + 8 * b, wn__tuning.stream_ahead);                                                        \
            for (int64_t i = b; i < b + line; i++) out[i] = eight_##S(x + 8 * i);                                      \
        }                                                                                                              \
        for (; b < bytes; b++) out[b] = eight_##S(x + 8 * b);                                                          \
        if (n % 8 == 0) return;                                                                                        \
        memcpy(last, x + 8 * b, (size_t)(n % 8) * sizeof(T));                                                          \
        out[b] = eight_##S(last);                                                                                      \
    }

/* Unpacks whole bytes of eight elements each. */
#define ONES(S, T, ONE)                                                                                                \
    static void ones_of_##S(const uint8_t *restrict bits, int64_t n_bytes, void *x_)                                   \
    {                                                                                                                  \
        T *restrict x = x_;                                                                                            \
        for (int64_t b = 0; b < n_bytes; b++)                                                                          \
            _Pragma("omp simd") for (int j = 0; j < 8; j++) x[8 * b + j] = (bits[b] >> j) & 1 ? (ONE) : (T)0;          \
    }

SIGNS(f32, float)
SIGNS(f64, double)
SIGNS(bf16, uint16_t)
ONES(f32, float, 1.0f)
ONES(f64, double, 1.0)
ONES(bf16, uint16_t, (uint16_t)0x3f80)

/* The loops of a dtype. */
static const struct {
    void (*signs_of)(const void *x, int64_t n, uint8_t *out);
    void (*ones_of)(const uint8_t *bits, int64_t n_bytes, void *x);
} signs[WN_DTYPE_COUNT] = {[WN_F32] = {signs_of_f32, ones_of_f32},
                           [WN_F64] = {signs_of_f64, ones_of_f64},
                           [WN_BF16] = {signs_of_bf16, ones_of_bf16}};

/* Computes bytes [begin, end). */
static void pack_sign_part(int64_t begin, int64_t end, void *ctx)
{
    const struct packing *k = ctx;
    int64_t last = 8 * end < k->n ? 8 * end : k->n;
    const char *x = (const char *)k->in + 8 * begin * wn__dtype_size(k->dtype);
    signs[k->dtype].signs_of(x, last - 8 * begin, (uint8_t *)k->out + begin);
}

static void unpack_sign_part(int64_t begin, int64_t end, void *ctx)
{
    const struct packing *k = ctx;
    int64_t size = wn__dtype_size(k->dtype);
    struct wn__stream_block block;
    for (int64_t b = begin; b < end; b += BYTES_AT_ONCE) {
        int64_t stop = end - b < BYTES_AT_ONCE ? end : b + BYTES_AT_ONCE, last = 8 * stop < k->n ? 8 * stop : k->n;
        char *out = (char *)k->out + 8 * b * size;
        int32_t is_whole = last == 8 * stop && !k->streams; /* 0: by way of the block */
        signs[k->dtype].ones_of((const uint8_t *)k->in + b, stop - b, is_whole ? out : block.bytes);
        if (k->streams) wn__stream(out, block.bytes, (last - 8 * b) * size);
        else if (!is_whole) memcpy(out, block.bytes, (size_t)((last - 8 * b) * size));
    }
    if (k->streams) wn__stream_end();
}

/* ---- kernels ------------------------------------------------------------------------------------- */

static int32_t run(const struct wn_desc *d, const struct wn_buffers *b, WN_NO_STREAM)
{
    const int32_t is_packing = d->op == WN_OP_PACK_INT8 || d->op == WN_OP_PACK_SIGN;
    const int32_t is_int8 = d->op == WN_OP_PACK_INT8 || d->op == WN_OP_UNPACK_INT8;
    const wn__parallel_body parts[2][2] = {{unpack_sign_part, unpack_int8_part}, {pack_sign_part, pack_int8_part}};
    const struct wn_type *value = is_packing ? &d->in[0] : &d->out;
    const int64_t unit = is_int8 ? GROUP : 8; /* elements that a thread does not share */
    struct packing k = {.n = wn__numel(value), .dtype = value->dtype, .in = b->in[0], .out = b->out};
    k.streams = !is_packing && wn__streams(wn__bytes(value), b->out, b->in[0], NULL);
    wn__parallel_for((k.n + unit - 1) / unit, WN_CPU_GRAIN / unit, parts[is_packing][is_int8], &k);
    return WN_OK;
}

wn_kernel_fn wn__cpu_pack_kernel(const struct wn_desc *d)
{
    const int32_t is_packing = d->op == WN_OP_PACK_INT8 || d->op == WN_OP_PACK_SIGN;
    return wn__dtype_is_float(is_packing ? d->in[0].dtype : d->out.dtype) ? run : NULL;
}
