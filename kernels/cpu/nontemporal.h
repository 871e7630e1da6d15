/* Outputs larger than the caches, written past them. An ordinary store first reads the line it writes to: a copy then
 * moves three bytes for two, a fill two for one. A loop that streams computes a block into a buffer that stays in the
 * nearest cache and hands it to wn__stream, so the loops themselves know nothing of it.
 *
 * What streams is decided by size alone and changes no bit. A value written over an input does not stream: its
 * lines were read anyway. Whoever streamed calls wn__stream_end before its part of the work is over. */
#ifndef WN_CPU_NONTEMPORAL_H
#define WN_CPU_NONTEMPORAL_H
#include <stddef.h>
#include <stdint.h>

/* Bytes of an output that is gone from the caches before it is read. Beside a third cache of 32 MiB, a chain of ops
 * whose first one streams took 1.35 times as long with values of 16 MiB, the same with 32, 0.92 of it with 64. The
 * sanitizers' build sets a small one, so that the specs meet both ways. */
#ifndef WN_STREAM_LEAST
#define WN_STREAM_LEAST ((int64_t)32 << 20)
#endif
#define WN_STREAM_BLOCK 512 /* elements of a block, <= 8 bytes each */

/* A block's place to be computed in. */
struct wn__stream_block {
    _Alignas(64) char bytes[WN_STREAM_BLOCK * 8];
};

/* Whether an output of so many bytes streams; a and b: inputs that it may lie upon (or NULL). */
static inline int32_t wn__streams(int64_t bytes, const void *out, const void *a, const void *b)
{
    return bytes >= WN_STREAM_LEAST && out != a && out != b;
}

/* The end of the block that element `at` begins, of elements up to `end`: blocks end at multiples of their size, so
 * that all but the first begin on a line. */
static inline int64_t wn__stream_stop(int64_t at, int64_t end)
{
    int64_t stop = (at / WN_STREAM_BLOCK + 1) * WN_STREAM_BLOCK;
    return stop < end ? stop : end;
}

/* Copies `bytes`; parts of lines at both ends go the ordinary way. */
void wn__stream(void *to, const void *from, int64_t bytes);
/* The same, and asks for as many bytes from `ahead` on. */
void wn__stream_fetching(void *to, const void *from, int64_t bytes, const void *ahead);
/* Copies rows of `bytes` that follow each other in `from` to rows `step` bytes apart, asking for what comes after. */
void wn__stream_rows(void *to, int64_t step, const void *from, int64_t rows, int64_t bytes);
void wn__stream_fill(void *to, int32_t byte, int64_t bytes);
/* Orders what was streamed before everything that follows. */
void wn__stream_end(void);
/* Asks for the lines of a stretch. Asking for what is not there does no harm. */
static inline void wn__fetch(const void *from, int64_t bytes)
{
    for (int64_t at = 0; at < bytes; at += 64) __builtin_prefetch((const char *)from + at);
}

/* Asks for one line, `bytes` behind a place. */
static inline void wn__fetch_line(const void *from, int64_t bytes)
{
    __builtin_prefetch((const void *)((uintptr_t)from + (uintptr_t)bytes));
}

/* The same, to come as far as the second cache: for strides that crowd the first. */
static inline void wn__fetch_far(const void *from, int64_t bytes)
{
    __builtin_prefetch((const void *)((uintptr_t)from + (uintptr_t)bytes), 0, 2);
}

/* Rows that are read side by side later, asked for in the order of memory: `width` bytes of one, then of the next. Each
 * line then follows the one before it, which memory wants more than anything else here; asked for in the order of
 * their use, a transpose reached 70 % of the limit, so 90. */
struct wn__prefetch {
    uintptr_t row;
    int64_t step, width, at; /* bytes; the next line stands `at` bytes behind `row` */
};
static inline __attribute__((always_inline)) void wn__prefetch_lines(struct wn__prefetch *a, int64_t lines)
{
    for (int64_t i = 0; i < lines; i++) {
        __builtin_prefetch((const void *)(a->row + (uintptr_t)a->at));
        a->at += 64;
        if (a->at >= a->width) a->at = 0, a->row += (uintptr_t)a->step;
    }
}

/* Asks for what stands WN_STREAM_AHEAD bytes behind a stretch about to be read: the processor's own prefetcher loses
 * its place between blocks. relu_grad went from 60 to 90 % of the limit with it, relu from 80 to 95. */
#define WN_STREAM_AHEAD 4096
static inline void wn__fetch_behind(const void *from, int64_t ahead, int64_t bytes)
{
    wn__fetch((const void *)((uintptr_t)from + (uintptr_t)ahead), bytes);
}
static inline void wn__prefetch_stream(const void *from, int64_t bytes)
{
    wn__fetch_behind(from, WN_STREAM_AHEAD, bytes);
}

/* How far behind an element of a row the same one of the next row stands, WN_STREAM_AHEAD at least. Who goes over
 * rows of two arrays twice asks for the next row of one on the first way and of the other on the second, so that
 * memory is busy on both. */
static inline int64_t wn__next_row(int64_t row_bytes)
{
    return row_bytes > WN_STREAM_AHEAD ? row_bytes : WN_STREAM_AHEAD;
}

/* out[i] = EXPR for the i of [BEGIN, END) of an array, streamed or not; EXPR may use i. READ: an array of which,
 * streaming, what stands AHEAD bytes behind i is asked for, line by line as lines are written; or NULL. */
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
            const char *next_ = (const char *)((uintptr_t)(read_ + at_) + (uintptr_t)ahead_);                          \
            if ((STREAMS) && read_) wn__stream_fetching((OUT) + at_, block_, bytes_, next_);                           \
            else if (STREAMS) wn__stream((OUT) + at_, block_, bytes_);                                                 \
        }                                                                                                              \
    } while (0)

/* memcpy, streamed or not. Streamed, it asks for what is read WN_STREAM_AHEAD bytes later, line by line as it goes:
 * of `from`, then of `next`, which is copied next (or NULL). Asking for a row at once, before the one ahead of it,
 * embedding reached 74 % of its limit, so 93. */
static inline void wn__stream_or_copy(int32_t streams, void *to, const void *from, int64_t bytes, const void *next)
{
    int64_t own = bytes > WN_STREAM_AHEAD ? bytes - WN_STREAM_AHEAD : 0;
    if (!streams) {
        __builtin_memcpy(to, from, (size_t)bytes);
        return;
    }
    if (own > 0) wn__stream_fetching(to, from, own, (const char *)from + WN_STREAM_AHEAD);
    wn__stream_fetching((char *)to + own, (const char *)from + own, bytes - own, next);
}
#endif
