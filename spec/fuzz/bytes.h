/* Draws numbers from a stream of bytes; behind its end every byte is 0. Shared by the drivers. */
#ifndef WN_FUZZ_BYTES_H
#define WN_FUZZ_BYTES_H
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct bytes {
    const uint8_t *at, *end;
};

/* Returns the next byte. */
static inline uint8_t take(struct bytes *b)
{
    return b->at < b->end ? *b->at++ : 0;
}

static inline void take_raw(struct bytes *b, void *to, size_t n)
{
    for (size_t i = 0; i < n; i++) ((uint8_t *)to)[i] = take(b);
}

/* Returns a whole number: mostly 0 to 6, else one that many calls must refuse. */
static inline int64_t take_wide(struct bytes *b)
{
    static const int64_t odd[] = {-1,        -2,        INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, INT64_MAX - 255,
                                  1LL << 32, 1LL << 40, 1LL << 62, 1000,      65536,     8,         9};
    uint8_t v = take(b);
    int64_t raw;
    if (v < 200) return v % 7;
    if (v < 250) return odd[v % (sizeof odd / sizeof odd[0])];
    take_raw(b, &raw, sizeof raw);
    return raw;
}

static inline int32_t take_int(struct bytes *b)
{
    int64_t v = take_wide(b);
    return v > INT32_MAX ? INT32_MAX : v < INT32_MIN ? INT32_MIN : (int32_t)v;
}

static inline double take_double(struct bytes *b)
{
    static const double odd[] = {0, 1, -1, 0.5, 2, 1e300, -1e300, 3e9, -3e9, 1e-300};
    uint8_t v = take(b);
    double raw;
    if (v < 220) return odd[v % 10];
    if (v < 230) return __builtin_nan("");
    if (v < 240) return __builtin_inf();
    take_raw(b, &raw, sizeof raw);
    return raw;
}
#endif
