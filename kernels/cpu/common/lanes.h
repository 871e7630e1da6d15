/* Vectors as wide as the registers of a class, for loops whose numbers so far must stay in registers from one row to
 * the next: compilers leave arrays of lanes in memory. The operators of C work on them lane by lane, so bits do not
 * depend on the width.
 *
 *     wn__f32, wn__f64      WN_F32_LANES and WN_F64_LANES numbers
 *     wn__few               WN_F64_LANES numbers in f32: as many as fill a vector once they are in double
 *     wn__i32, wn__i64      integers beside them; a comparison gives all bits or none */
#ifndef WN_CPU_LANES_H
#define WN_CPU_LANES_H
#include <math.h>
#include <stdint.h>
#include <string.h>
#if defined(__AVX__)
#include <immintrin.h>
#endif
#include "types.h"

#if defined(__AVX512F__)
#define WN_VECTOR_BYTES 64
#elif defined(__AVX__)
#define WN_VECTOR_BYTES 32
#else
#define WN_VECTOR_BYTES 16
#endif
enum { WN_F32_LANES = WN_VECTOR_BYTES / 4, WN_F64_LANES = WN_VECTOR_BYTES / 8 };

#define WN_VECTOR(bytes) __attribute__((vector_size(bytes)))
typedef float wn__f32 WN_VECTOR(WN_VECTOR_BYTES);
typedef double wn__f64 WN_VECTOR(WN_VECTOR_BYTES);
typedef float wn__few WN_VECTOR(WN_VECTOR_BYTES / 2);
typedef int32_t wn__i32 WN_VECTOR(WN_VECTOR_BYTES);
typedef int64_t wn__i64 WN_VECTOR(WN_VECTOR_BYTES);
typedef uint32_t wn__bits WN_VECTOR(WN_VECTOR_BYTES);
typedef uint32_t wn__bits_few WN_VECTOR(WN_VECTOR_BYTES / 2);
typedef uint16_t wn__halves WN_VECTOR(WN_VECTOR_BYTES / 2);
typedef uint16_t wn__halves_few WN_VECTOR(WN_VECTOR_BYTES / 4);
typedef uint8_t wn__bytes_f32 WN_VECTOR(WN_VECTOR_BYTES / 4);
typedef uint8_t wn__bytes_f64 WN_VECTOR(WN_VECTOR_BYTES / 8);

/* Of a type TYPE (types.h): VEC is the vector of its numbers, which has WIDTH lanes, FEW that of as many as a vector of
 * doubles has, and PLACES that of the integers beside VEC. */
typedef wn__f32 wn__vec_f32, wn__vec_bf16;
typedef wn__f64 wn__vec_f64, wn__few_f64;
typedef wn__few wn__few_f32, wn__few_bf16;
typedef wn__i32 wn__places_f32, wn__places_bf16;
typedef wn__i64 wn__places_f64;
#define VEC FN(wn__vec)
#define WIDTH ((int64_t)(sizeof(VEC) / sizeof(N)))
#define FEW FN(wn__few)
#define PLACES FN(wn__places)

#define WN_LANES_FN static inline __attribute__((always_inline)) void

/* Reads and writes of a part of a vector are functions, since inlined they would be most of the code of a kernel. */
#define WN_LANES_PART static __attribute__((noinline, unused))

/* Defines READ, which reads n elements from any address into lanes V, LANES at most, and zeros into the others.
 * FULL(v, from) reads them all. */
#define WN_LANES_READ(READ, V, T, LANES, FULL)                                                                         \
    WN_LANES_PART V READ##_part(const T *from, int64_t n)                                                              \
    {                                                                                                                  \
        T some[LANES] = {0};                                                                                           \
        V v;                                                                                                           \
        for (int64_t j = 0; j < n; j++) some[j] = from[j];                                                             \
        FULL(&v, some);                                                                                                \
        return v;                                                                                                      \
    }                                                                                                                  \
    WN_LANES_FN READ(V *v, const T *from, int64_t n)                                                                   \
    {                                                                                                                  \
        if (n >= LANES) FULL(v, from);                                                                                 \
        else *v = READ##_part(from, n);                                                                                \
    }

/* Defines WRITE, which writes the first n lanes to any address, rounded by FULL(to, v). */
#define WN_LANES_WRITE(WRITE, V, T, LANES, FULL)                                                                       \
    WN_LANES_PART void WRITE##_part(T *to, V v, int64_t n)                                                             \
    {                                                                                                                  \
        T some[LANES];                                                                                                 \
        FULL(some, &v);                                                                                                \
        for (int64_t j = 0; j < n; j++) to[j] = some[j];                                                               \
    }                                                                                                                  \
    WN_LANES_FN WRITE(T *to, const V *v, int64_t n)                                                                    \
    {                                                                                                                  \
        if (n >= LANES) FULL(to, v);                                                                                   \
        else WRITE##_part(to, *v, n);                                                                                  \
    }

#define WN_LANES_COPY(to, from) memcpy(to, from, WN_VECTOR_BYTES)
#define WN_LANES_COPY_FEW(to, from) memcpy(to, from, WN_VECTOR_BYTES / 2)
/* Read H, convert each lane to U by CONVERT. */
#define WN_LANES_WIDEN(NAME, V, T, H, U, CONVERT)                                                                      \
    WN_LANES_FN NAME(V *v, const T *from)                                                                              \
    {                                                                                                                  \
        H narrow;                                                                                                      \
        memcpy(&narrow, from, sizeof narrow);                                                                          \
        *v = (V)(__builtin_convertvector(narrow, U) CONVERT);                                                          \
    }
WN_LANES_WIDEN(wn__widen_lanes, wn__f32, uint16_t, wn__halves, wn__bits, << 16)
WN_LANES_WIDEN(wn__widen_lanes_few, wn__few, uint16_t, wn__halves_few, wn__bits_few, << 16)

WN_LANES_FN wn__round_lanes(uint16_t *to, const wn__f32 *v)
{
    const wn__bits bits = (wn__bits)*v, rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    const wn__bits is_nan = (wn__bits)(*v != *v), quiet = (bits >> 16) | 0x40u;
    const wn__halves half = __builtin_convertvector((quiet & is_nan) | (rounded & ~is_nan), wn__halves);
    memcpy(to, &half, sizeof half);
}

WN_LANES_FN wn__round_lanes_few(uint16_t *to, const wn__few *v)
{
    const wn__bits_few bits = (wn__bits_few)*v, rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    const wn__bits_few is_nan = (wn__bits_few)(*v != *v), quiet = (bits >> 16) | 0x40u;
    const wn__halves_few half = __builtin_convertvector((quiet & is_nan) | (rounded & ~is_nan), wn__halves_few);
    memcpy(to, &half, sizeof half);
}

/* wn__read_S and wn__write_S: of as many elements as fill a vector of numbers (bf16: in f32). */
WN_LANES_READ(wn__read_f32, wn__f32, float, WN_F32_LANES, WN_LANES_COPY)
WN_LANES_READ(wn__read_f64, wn__f64, double, WN_F64_LANES, WN_LANES_COPY)
WN_LANES_READ(wn__read_bf16, wn__f32, uint16_t, WN_F32_LANES, wn__widen_lanes)
WN_LANES_WRITE(wn__write_f32, wn__f32, float, WN_F32_LANES, WN_LANES_COPY)
WN_LANES_WRITE(wn__write_f64, wn__f64, double, WN_F64_LANES, WN_LANES_COPY)
WN_LANES_WRITE(wn__write_bf16, wn__f32, uint16_t, WN_F32_LANES, wn__round_lanes)
/* wn__read_few_S and wn__write_few_S: of as many as fill a vector of doubles. */
WN_LANES_READ(wn__read_few_f32, wn__few, float, WN_F64_LANES, WN_LANES_COPY_FEW)
WN_LANES_READ(wn__read_few_f64, wn__f64, double, WN_F64_LANES, WN_LANES_COPY)
WN_LANES_READ(wn__read_few_bf16, wn__few, uint16_t, WN_F64_LANES, wn__widen_lanes_few)
WN_LANES_WRITE(wn__write_few_f32, wn__few, float, WN_F64_LANES, WN_LANES_COPY_FEW)
WN_LANES_WRITE(wn__write_few_f64, wn__f64, double, WN_F64_LANES, WN_LANES_COPY)
WN_LANES_WRITE(wn__write_few_bf16, wn__few, uint16_t, WN_F64_LANES, wn__round_lanes_few)
/* Bytes beside numbers, wn__read_places_S and wn__write_places_S. Of conversions to four times the width compilers make
 * two steps, so they are written by hand where there is an instruction. */
WN_LANES_FN wn__widen_i32(wn__i32 *v, const uint8_t *from)
{
    wn__bytes_f32 bytes;
    memcpy(&bytes, from, sizeof bytes);
#if defined(__AVX512F__)
    *v = (wn__i32)_mm512_cvtepu8_epi32((__m128i)bytes);
#elif defined(__AVX2__)
    *v = (wn__i32)_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)from));
#else
    *v = __builtin_convertvector(__builtin_convertvector(bytes, wn__halves), wn__i32);
#endif
}
WN_LANES_FN wn__widen_i64(wn__i64 *v, const uint8_t *from)
{
    wn__bytes_f64 bytes;
    memcpy(&bytes, from, sizeof bytes);
    const wn__halves_few halves = __builtin_convertvector(bytes, wn__halves_few);
    *v = __builtin_convertvector(__builtin_convertvector(halves, wn__bits_few), wn__i64);
}
WN_LANES_FN wn__narrow_i32(uint8_t *to, const wn__i32 *v)
{
    const wn__bytes_f32 bytes = __builtin_convertvector(__builtin_convertvector(*v, wn__halves), wn__bytes_f32);
    memcpy(to, &bytes, sizeof bytes);
}
WN_LANES_FN wn__narrow_i64(uint8_t *to, const wn__i64 *v)
{
    const wn__bits_few bits = __builtin_convertvector(*v, wn__bits_few);
    const wn__halves_few halves = __builtin_convertvector(bits, wn__halves_few);
    const wn__bytes_f64 bytes = __builtin_convertvector(halves, wn__bytes_f64);
    memcpy(to, &bytes, sizeof bytes);
}
WN_LANES_READ(wn__read_places_f32, wn__i32, uint8_t, WN_F32_LANES, wn__widen_i32)
WN_LANES_READ(wn__read_places_f64, wn__i64, uint8_t, WN_F64_LANES, wn__widen_i64)
WN_LANES_WRITE(wn__write_places_f32, wn__i32, uint8_t, WN_F32_LANES, wn__narrow_i32)
WN_LANES_WRITE(wn__write_places_f64, wn__i64, uint8_t, WN_F64_LANES, wn__narrow_i64)
#define wn__read_places_bf16 wn__read_places_f32
#define wn__write_places_bf16 wn__write_places_f32

/* Returns a b + c, rounded once where the target has an instruction for that, else twice. */
static inline float wn__multiply_add(float a, float b, float c)
{
#if defined(FP_FAST_FMAF)
    return fmaf(a, b, c);
#else
    return a * b + c;
#endif
}

/* wn__fma_few_S: *to = a b + *to, rounded once, of as many lanes as a vector of doubles has. A class without such an
 * instruction computes lane by lane. */
WN_LANES_FN wn__fma_few_f32(wn__few *to, const wn__few *a, const wn__few *b)
{
#if defined(__AVX512F__)
    *to = (wn__few)_mm256_fmadd_ps((__m256)*a, (__m256)*b, (__m256)*to);
#elif defined(__FMA__)
    *to = (wn__few)_mm_fmadd_ps((__m128)*a, (__m128)*b, (__m128)*to);
#else
    for (int j = 0; j < WN_F64_LANES; j++) (*to)[j] = __builtin_fmaf((*a)[j], (*b)[j], (*to)[j]);
#endif
}
WN_LANES_FN wn__fma_few_f64(wn__f64 *to, const wn__f64 *a, const wn__f64 *b)
{
#if defined(__AVX512F__)
    *to = (wn__f64)_mm512_fmadd_pd((__m512d)*a, (__m512d)*b, (__m512d)*to);
#elif defined(__FMA__)
    *to = (wn__f64)_mm256_fmadd_pd((__m256d)*a, (__m256d)*b, (__m256d)*to);
#else
    for (int j = 0; j < WN_F64_LANES; j++) (*to)[j] = __builtin_fma((*a)[j], (*b)[j], (*to)[j]);
#endif
}

/* wn__double_S and wn__single_S: convert as many lanes as a vector of doubles has. Compilers convert halves of such
 * vectors, but for the instruction that does all.
 * Measured: mean of 2 x 2: 0.6 of the time (gcc 12). */
WN_LANES_FN wn__double_f32(wn__f64 *to, const wn__few *from)
{
#if defined(__AVX512F__)
    *to = (wn__f64)_mm512_cvtps_pd((__m256)*from);
#elif defined(__AVX__)
    *to = (wn__f64)_mm256_cvtps_pd((__m128)*from);
#else
    *to = __builtin_convertvector(*from, wn__f64);
#endif
}
WN_LANES_FN wn__single_f32(wn__few *to, const wn__f64 *from)
{
#if defined(__AVX512F__)
    *to = (wn__few)_mm512_cvtpd_ps((__m512d)*from);
#elif defined(__AVX__)
    *to = (wn__few)_mm256_cvtpd_ps((__m256d)*from);
#else
    *to = __builtin_convertvector(*from, wn__few);
#endif
}
WN_LANES_FN wn__double_f64(wn__f64 *to, const wn__f64 *from)
{
    *to = *from;
}
WN_LANES_FN wn__single_f64(wn__f64 *to, const wn__f64 *from)
{
    *to = *from;
}
#define wn__double_bf16 wn__double_f32
#define wn__single_bf16 wn__single_f32

/* Returns the lanes of `a` where `is` has all bits, else those of `b`. I: the integers beside V. */
#define WN_PICK(V, I, is, a, b) ((V)(((I)(a) & (is)) | ((I)(b) & ~(is))))
#endif
