/* Results of ops over images, whose memory order is (N, H, W, C), written one stretch of pixels of a row at a time:
 * shared by pool.c and resize.c. A result that streams (common/nontemporal.h) is computed into a block first. */
#ifndef WN_CPU_IMAGE_H
#define WN_CPU_IMAGE_H
#include <stdint.h>
#include "../common/cpu.h"

enum { WN_IMAGE_BLOCK = 8192 }; /* most bytes of a stretch that streams */

/* Computes n pixels of row `row` from column `at` on, to `to`. Rows are numbered through all images. */
typedef void (*wn__image_stretch)(const void *ctx, int64_t row, int64_t at, int64_t n, char *to);

/* A result, for all its rows. */
struct wn__image_out {
    char *out;
    int64_t columns; /* pixels of a row */
    int64_t bytes;   /* of a pixel: all its channels */
    int32_t streams;
    wn__image_stretch stretch;
    const void *ctx;
};

static inline void wn__image_rows(int64_t begin, int64_t end, void *image)
{
    const struct wn__image_out *o = image;
    _Alignas(64) char block[WN_IMAGE_BLOCK];
    int64_t fit = WN_IMAGE_BLOCK / o->bytes;
    for (int64_t row = begin; row < end; row++) {
        char *out = o->out + row * o->columns * o->bytes;
        if (!o->streams || fit == 0) {
            o->stretch(o->ctx, row, 0, o->columns, out);
            continue;
        }
        for (int64_t at = 0, n; at < o->columns; at += n) {
            n = o->columns - at < fit ? o->columns - at : fit;
            o->stretch(o->ctx, row, at, n, block);
            wn__stream(out + at * o->bytes, block, n * o->bytes);
        }
    }
    if (o->streams) wn__stream_end();
}

/* Computes an image whose rows threads share; `bytes`: of a pixel. */
static inline int32_t wn__image_run(const struct wn_desc *d, void *out, int64_t bytes, wn__image_stretch stretch,
                                    const void *ctx)
{
    const int64_t rows = d->out.dim[0] * d->out.dim[2], read = wn__numel(&d->in[0]), made = wn__numel(&d->out);
    struct wn__image_out o = {.out = out, .columns = d->out.dim[3], .bytes = bytes, .stretch = stretch, .ctx = ctx};
    o.streams = wn__streams(wn__bytes(&d->out), out, NULL, NULL);
    wn__parallel_for(rows, WN_CPU_GRAIN / ((read > made ? read : made) / rows + 1) + 1, wn__image_rows, &o);
    return WN_OK;
}
#endif
