/* See tuning.h. Presets: an output streams where it is larger than the third-level cache, which then holds no line of
 * it when it is read; a virtual machine may count a cache that it shares with others, so at most STREAM_MOST. A block
 * of a product leaves half of the second-level cache to what passes through it.
 * Measured: two ops in a row, the first one streams: 16 MiB: 1.35x time, 32 MiB: 1x, 64 MiB: 0.92x (third-level cache
 * of 32 MiB). */
#include "tuning.h"
#include <stddef.h>
#include <string.h>
#include "class.h"
#include "processor.h"

#define MIB ((int64_t)1 << 20)
#define STREAM_FEWEST (4 * MIB)
#define STREAM_MOST (64 * MIB)
#define BLOCK_FEWEST (64 << 10)
#define BLOCK_MOST (256 << 10) /* buffers on the stack hold no more */

struct wn__tuning wn__tuning = {
    .stream_least = 32 * MIB,
    .stream_least_math = 32 * MIB,
    .stream_ahead = 4096,
    .block_ahead = 4096,
    .thread_grain = WN_THREAD_GRAIN,
    .product_block = BLOCK_MOST,
    .product_stream = 4 * MIB,
    .product_ahead = 640, /* 1024: 1.0-1.03x time */
};
static struct wn__tuning preset;

/* The rows of all tunables that are a field of wn__tuning. */
static const struct row {
    const char *name;
    size_t offset;
    int64_t least, most;
    int32_t is_bits;
} rows[] = {
    {"stream_least", offsetof(struct wn__tuning, stream_least), 1, (int64_t)1 << 40, 0},
    {"stream_least_math", offsetof(struct wn__tuning, stream_least_math), 1, (int64_t)1 << 40, 0},
    {"stream_ahead", offsetof(struct wn__tuning, stream_ahead), 0, MIB, 0},
    {"block_ahead", offsetof(struct wn__tuning, block_ahead), 0, MIB, 0},
    {"thread_grain", offsetof(struct wn__tuning, thread_grain), 256, (int64_t)1 << 40, 0},
    {"product_block", offsetof(struct wn__tuning, product_block), BLOCK_FEWEST, BLOCK_MOST, 0},
    {"product_stream", offsetof(struct wn__tuning, product_stream), 1, (int64_t)1 << 40, 0},
    {"product_ahead", offsetof(struct wn__tuning, product_ahead), 0, 4096, 0},
    {"bf16_widened", offsetof(struct wn__tuning, bf16_widened), 0, 1, 1},
};
enum { ROWS = sizeof rows / sizeof rows[0] };

static int64_t *field(struct wn__tuning *t, int32_t i)
{
    return (int64_t *)(void *)((char *)t + rows[i].offset);
}

void wn__tuning_start(void)
{
    int64_t second = wn__processor()->cache[1], third = wn__processor()->cache[2],
            least = third > 0 ? third : wn__tuning.stream_least;
    least = least < STREAM_FEWEST ? STREAM_FEWEST : least > STREAM_MOST ? STREAM_MOST : least;
#ifdef WN_STREAM_PRESET /* the build with sanitizers sets a small number, so that specs use both kinds of stores */
    least = WN_STREAM_PRESET;
#endif
    wn__tuning.stream_least = wn__tuning.stream_least_math = least;
    if (second > 0 && second / 2 < BLOCK_MOST)
        wn__tuning.product_block = second / 2 < BLOCK_FEWEST ? BLOCK_FEWEST : second / 2;
    preset = wn__tuning;
}

/* Returns whether the class of this process multiplies pairs of bf16. */
static int32_t has_pairs(void)
{
    return strcmp(wn__cpu_class()->name, "avx512") == 0 && wn__cpu_has_avx512_bf16();
}

int32_t wn__cpu_tunable(int32_t i, struct wn_tunable *out)
{
    if (i < 0 || i >= ROWS) return 0;
    const int32_t is_widened = rows[i].offset == offsetof(struct wn__tuning, bf16_widened);
    *out = (struct wn_tunable){.name = rows[i].name,
                               .value = *field(&wn__tuning, i),
                               .preset = *field(&preset, i),
                               .least = rows[i].least,
                               .most = is_widened && !has_pairs() ? 0 : rows[i].most,
                               .is_bits = rows[i].is_bits};
    return 1;
}

int32_t wn__cpu_tune(int32_t i, int64_t value)
{
    struct wn_tunable row;
    if (!wn__cpu_tunable(i, &row)) return wn__fail(WN_VALUE, "tune: there is no tunable %d", i);
    if (value < row.least || value > row.most)
        return wn__fail(WN_VALUE, "tune: %s must be from %lld to %lld, got %lld", row.name, (long long)row.least,
                        (long long)row.most, (long long)value);
    *field(&wn__tuning, i) = value;
    return WN_OK;
}
