/* Results of ops over images, whose memory order is (N, H, W, C), written one stretch of pixels of a row at a time:
 * shared by pool.c and resize.c. A result that streams (common/nontemporal.h) is computed into a block first. */
#ifndef WN_CPU_IMAGE_H
#define WN_CPU_IMAGE_H
#include <stdint.h>
#include "../common/nontemporal.h"

enum { WN_IMAGE_BLOCK = 8192 }; /* most bytes of a stretch that streams */

struct wn__image_out {
    char *out;
    int64_t columns; /* pixels of a row */
    int64_t bytes;   /* of a pixel: all its channels */
    int32_t streams;
};
/* Computes n pixels of row `row` from column `at` on, to `to`. Rows are numbered through all images. */
typedef void (*wn__image_stretch)(const void *ctx, int64_t row, int64_t at, int64_t n, char *to);

/* Computes rows [begin, end) of a result. */
static inline void wn__image_rows(const struct wn__image_out *o, int64_t begin, int64_t end, wn__image_stretch stretch,
                                  const void *ctx)
{
    _Alignas(64) char block[WN_IMAGE_BLOCK];
    int64_t fit = WN_IMAGE_BLOCK / o->bytes;
    for (int64_t row = begin; row < end; row++) {
        char *out = o->out + row * o->columns * o->bytes;
        if (!o->streams || fit == 0) {
            stretch(ctx, row, 0, o->columns, out);
            continue;
        }
        for (int64_t at = 0, n; at < o->columns; at += n) {
            n = o->columns - at < fit ? o->columns - at : fit;
            stretch(ctx, row, at, n, block);
            wn__stream(out + at * o->bytes, block, n * o->bytes);
        }
    }
    if (o->streams) wn__stream_end();
}
#endif
