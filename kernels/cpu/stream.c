/* The copies of stream.h: whole lines by non-temporal stores where the processor has them (every x86-64), else the
 * ordinary way. 16 bytes a store fill a line's buffer as fast as 64 do: memory bounds both. */
#include "stream.h"
#include <string.h>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#define LINE 64

/* Bytes from `to` to the next line, at most `bytes`. */
static int64_t to_line(const void *to, int64_t bytes)
{
    int64_t left = (int64_t)(-(uintptr_t)to & (LINE - 1));
    return left < bytes ? left : bytes;
}

#if defined(__SSE2__)
void wn__stream(void *to, const void *from, int64_t bytes)
{
    char *out = to;
    const char *in = from;
    int64_t head = to_line(to, bytes), at = head;
    if (head > 0) memcpy(out, in, (size_t)head);
    for (; at + LINE <= bytes; at += LINE) {
        const __m128i *line = (const __m128i *)(const void *)(in + at);
        __m128i a = _mm_loadu_si128(line), b = _mm_loadu_si128(line + 1);
        __m128i c = _mm_loadu_si128(line + 2), d = _mm_loadu_si128(line + 3);
        __m128i *place = (__m128i *)(void *)(out + at);
        _mm_stream_si128(place, a);
        _mm_stream_si128(place + 1, b);
        _mm_stream_si128(place + 2, c);
        _mm_stream_si128(place + 3, d);
    }
    if (at < bytes) memcpy(out + at, in + at, (size_t)(bytes - at));
}

void wn__stream_fill(void *to, int32_t byte, int64_t bytes)
{
    char *out = to;
    int64_t head = to_line(to, bytes), at = head;
    __m128i value = _mm_set1_epi8((char)byte);
    if (head > 0) memset(out, byte, (size_t)head);
    for (; at + LINE <= bytes; at += LINE)
        for (int32_t k = 0; k < 4; k++) _mm_stream_si128((__m128i *)(void *)(out + at) + k, value);
    if (at < bytes) memset(out + at, byte, (size_t)(bytes - at));
}

void wn__stream_end(void)
{
    _mm_sfence();
}
#else
void wn__stream(void *to, const void *from, int64_t bytes)
{
    memcpy(to, from, (size_t)bytes);
}

void wn__stream_fill(void *to, int32_t byte, int64_t bytes)
{
    memset(to, byte, (size_t)bytes);
}

void wn__stream_end(void)
{
}
#endif
