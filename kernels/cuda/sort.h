/* Says which lines of an ARGSORT are sorted by digits over the whole device, and what that takes of the workspace, for
 * its rule and for the kernels alike (sort.cu). */
#ifndef WN_CUDA_SORT_H
#define WN_CUDA_SORT_H
#include <string.h>
#include "../broadcast.h"

enum {
    WN_SORT_LONG = 2048,  /* elements of a line that one block sorts as fast (scan.cu) */
    WN_SORT_TILE = 4096,  /* elements of a tile */
    WN_SORT_DIGITS = 256, /* values of a digit */
    WN_SORT_BITS = 8      /* of a digit */
};

/* The workspace, in bytes from its begin, and its size; keys have the bytes of an element:
 *
 *     | keys (lines, n) | keys (lines, n), but of bf16 | positions (lines, n) i32 | counts (lines, tiles, 256) i32 | */
struct wn__sort {
    struct wn__axis axis;
    int64_t lines, tiles; /* tiles of a line */
    int64_t key;          /* bytes of a key: as many digits */
    int64_t other_keys, positions, counts, bytes;
};

/* Returns how an ARGSORT is sorted; bytes = 0: by blocks of one line. */
static inline struct wn__sort wn__sort_of(const struct wn_desc *d)
{
    const int64_t n = wn__numel(&d->in[0]);
    struct wn__sort s;
    memset(&s, 0, sizeof s);
    s.axis = wn__axis_of(&d->in[0], d->attrs.i[0]);
    s.lines = s.axis.outer * s.axis.inner;
    s.tiles = (s.axis.n + WN_SORT_TILE - 1) / WN_SORT_TILE;
    s.key = wn__dtype_size(d->in[0].dtype);
    if (s.axis.n <= WN_SORT_LONG || n == 0) return s;
    s.other_keys = s.key > 2 ? n * s.key : 0;
    s.positions = (s.other_keys + n * s.key + 7) / 8 * 8;
    s.counts = s.positions + n * (int64_t)sizeof(int32_t);
    s.bytes = s.counts + s.lines * s.tiles * WN_SORT_DIGITS * (int64_t)sizeof(int32_t);
    return s;
}
#endif
