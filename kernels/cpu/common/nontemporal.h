/* Non-temporal stores: outputs larger than the caches are written past them. An ordinary store first reads the line
 * that it writes to: a copy then moves three bytes for two, a fill two for one. A loop that streams computes one block
 * into a buffer that stays in the first-level cache and hands it to wn__stream, so the loops themselves do not change.
 *
 * Whether an output streams is decided by its size alone and changes no bit. A value written over an input does not
 * stream, because its lines were read anyway. A thread that streamed calls wn__stream_end before its part of the work
 * is over. */
#ifndef WN_CPU_NONTEMPORAL_H
#define WN_CPU_NONTEMPORAL_H
#include <stddef.h>
#include <stdint.h>
#include "../backend/tuning.h"

#define WN_STREAM_BLOCK 512 /* elements of a block, of at most 8 bytes each */

/* The buffer in which a block is computed. */
struct wn__stream_block {
    _Alignas(64) char bytes[WN_STREAM_BLOCK * 8];
};

/* Returns whether an output of so many bytes streams; a, b: inputs that it may overwrite, or NULL. */
static inline int32_t wn__streams(int64_t bytes, const void *out, const void *a, const void *b)
{
    return bytes >= wn__tuning.stream_least && out != a && out != b;
}

/* Returns whether the output of a loop that arithmetic bounds streams: on some machines a block and its copy cost such
 * a loop more than memory gains.
 * Measured, 128 MiB, time streamed over stored: AVX2: gelu 1.1 to 1.26, exp 1.27; AVX-512: gelu 1.27, exp 1.51, dropout
 * 1.25 (Zen 4). */
static inline int32_t wn__streams_math(int64_t bytes, const void *out, const void *a, const void *b)
{
    return bytes >= wn__tuning.stream_least_math && out != a && out != b;
}

/* Returns the end of the block that begins at element `at`, at most `end`. Blocks end at multiples of WN_STREAM_BLOCK,
 * so that all but the first begin at a cache line. */
static inline int64_t wn__stream_stop(int64_t at, int64_t end)
{
    int64_t stop = (at / WN_STREAM_BLOCK + 1) * WN_STREAM_BLOCK;
    return stop < end ? stop : end;
}

/* Copies `bytes` bytes past the caches; parts of lines at both ends use ordinary stores. ahead: NULL, or where as many
 * bytes are prefetched meanwhile; is_far: into the second-level cache, for an `ahead` so far behind that the first
 * would lose it. */
void wn__stream_fetching(void *to, const void *from, int64_t bytes, const void *ahead, int32_t is_far);
static inline void wn__stream(void *to, const void *from, int64_t bytes)
{
    wn__stream_fetching(to, from, bytes, NULL, 0);
}

/* Copies contiguous rows of `bytes` bytes to rows `step` bytes apart, and prefetches what follows them in `from`. */
void wn__stream_rows(void *to, int64_t step, const void *from, int64_t rows, int64_t bytes);
void wn__stream_fill(void *to, int32_t byte, int64_t bytes);
/* Makes what was streamed visible before all later stores. */
void wn__stream_end(void);
/* Prefetches the lines of [from, from + bytes). A prefetch of an address that does not exist does no harm. */
static inline void wn__fetch(const void *from, int64_t bytes)
{
    for (int64_t at = 0; at < bytes; at += 64) __builtin_prefetch((const char *)from + at);
}

/* Prefetches the line `bytes` bytes behind an address. */
static inline void wn__fetch_line(const void *from, int64_t bytes)
{
    __builtin_prefetch((const void *)((uintptr_t)from + (uintptr_t)bytes));
}

/* Prefetches that line into the second-level cache, for strides that crowd the first. */
static inline void wn__fetch_far(const void *from, int64_t bytes)
{
    __builtin_prefetch((const void *)((uintptr_t)from + (uintptr_t)bytes), 0, 2);
}

/* Rows that are read side by side later, prefetched in the order of memory: `width` bytes of one row, then of the next.
 * Measured: a transpose reached 90 % of the limit; 70 % with prefetches in the order of use. */
struct wn__prefetch {
    uintptr_t row;       /* address of the row */
    int64_t step, width; /* bytes from row to row; bytes of a row */
    int64_t at;          /* bytes from `row` to the next line */
};
/* Moves to the next line. */
static inline __attribute__((always_inline)) void wn__prefetch_next(struct wn__prefetch *a)
{
    a->at += 64;
    if (a->at >= a->width) a->at = 0, a->row += (uintptr_t)a->step;
}

/* Prefetches the next `lines` lines. */
static inline __attribute__((always_inline)) void wn__prefetch_lines(struct wn__prefetch *a, int64_t lines)
{
    for (int64_t i = 0; i < lines; i++, wn__prefetch_next(a)) wn__fetch_line((const void *)a->row, a->at);
}

/* Prefetches the next `lines` lines into the second-level cache, which keeps a few wide rows whole, and has more lines
 * on their way at once.
 * Measured, of reductions down 4096 columns, against the first-level cache: 0.55 to 0.6 of the time (Zen 4). */
static inline __attribute__((always_inline)) void wn__prefetch_lines_far(struct wn__prefetch *a, int64_t lines)
{
    for (int64_t i = 0; i < lines; i++, wn__prefetch_next(a)) wn__fetch_far((const void *)a->row, a->at);
}

/* Distance of prefetches of a stream, in bytes. They are needed because the processor's own prefetcher loses its place
 * between blocks.
 * Measured: relu_grad 60 -> 90 % of the limit, relu 80 -> 95 %. */
#define WN_FETCH_NEAR 4096 /* bytes ahead of their use that the first-level cache keeps lines */
/* Prefetches the lines of `bytes` bytes, `ahead` bytes behind an address; into the second-level cache where that is
 * farther than WN_FETCH_NEAR.
 * Measured, rows of 16 KiB: softmax_grad 0.77 of the time, layernorm_dx 0.86 (Zen 4). */
static inline __attribute__((always_inline)) void wn__fetch_behind(const void *from, int64_t ahead, int64_t bytes)
{
    for (int64_t at = 0; at < bytes; at += 64) {
        if (ahead > WN_FETCH_NEAR) wn__fetch_far(from, ahead + at);
        else wn__fetch_line(from, ahead + at);
    }
}

/* Prefetches what a loop over blocks reads wn__tuning.block_ahead bytes later; nothing where that is 0, since on some
 * processors the lines of a whole block at once wait for each other, and the loop for them.
 * Measured, operands of 128 MiB, time without: Zen 4: 0.8x (add, relu), 0.6x (relu_grad); Zen 5: 1.2-1.5x. */
static inline void wn__prefetch_stream(const void *from, int64_t bytes)
{
    if (wn__tuning.block_ahead > 0) wn__fetch_behind(from, wn__tuning.block_ahead, bytes);
}

/* Returns the distance of prefetches that fetch the next row: row_bytes, at least stream_ahead. A loop that goes
 * over rows of two arrays twice prefetches the next row of one array on the first pass and of the other on the second,
 * so that memory is busy in both. */
static inline int64_t wn__next_row(int64_t row_bytes)
{
    return row_bytes > wn__tuning.stream_ahead ? row_bytes : wn__tuning.stream_ahead;
}

/* Computes OUT[i] = EXPR for i in [BEGIN, END), streamed where STREAMS; EXPR may use i. READ: NULL, or an array of type
 * T whose lines AHEAD bytes behind element i are prefetched while streamed lines are written. */
#define WN_STREAM_LOOP(T, STREAMS, OUT, BEGIN, END, READ, AHEAD, EXPR)                                                 \
    do {                                                                                                               \
        T block_[WN_STREAM_BLOCK];                                                                                     \
        const T *read_ = (READ);                                                                                       \
        int64_t ahead_ = (AHEAD);                                                                                      \
        for (int64_t at_ = (BEGIN), stop_; at_ < (END); at_ = stop_) {                                                 \
            stop_ = wn__stream_stop(at_, (END));                                                                       \
            T *to_ = (STREAMS) ? block_ : (OUT) + at_;                                                                 \
            _Pragma("omp simd") for (int64_t i = at_; i < stop_; i++) to_[i - at_] = (EXPR);                           \
            int64_t bytes_ = (stop_ - at_) * (int64_t)sizeof(T);                                                       \
            const char *next_ = (const char *)((uintptr_t)read_ + (uintptr_t)at_ * sizeof(T) + (uintptr_t)ahead_);     \
            if (STREAMS)                                                                                               \
                wn__stream_fetching((OUT) + at_, block_, bytes_, read_ ? next_ : NULL, ahead_ > WN_FETCH_NEAR);        \
        }                                                                                                              \
    } while (0)

/* Copies bytes, streamed where `streams`. A streamed copy prefetches, line by line, what is read stream_ahead bytes
 * later: of `from`, then of `next`, which is copied next (or NULL).
 * Measured: embedding reached 93 % of its limit; 74 % with a whole row prefetched at once. */
static inline void wn__stream_or_copy(int32_t streams, void *to, const void *from, int64_t bytes, const void *next)
{
    int64_t own = bytes > wn__tuning.stream_ahead ? bytes - wn__tuning.stream_ahead : 0;
    if (!streams) {
        __builtin_memcpy(to, from, (size_t)bytes);
        return;
    }
    if (own > 0) wn__stream_fetching(to, from, own, (const char *)from + wn__tuning.stream_ahead, 0);
    wn__stream_fetching((char *)to + own, (const char *)from + own, bytes - own, next, 0);
}
#endif
