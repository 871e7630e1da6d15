/* Images in the order of memory, (N, H, W, C): which pixel and channels a thread computes.
 *
 * A thread computes V channels of a pixel, channels fastest, so that the loads of a warp are one after the other and
 * each moves up to 16 bytes. */
#ifndef WN_CUDA_IMAGE_CUH
#define WN_CUDA_IMAGE_CUH
#include "map.cuh"

/* The sizes of images. size: rows and columns. */
struct wn__images {
    int64_t n, channels, size[2];
};

static inline struct wn__images wn__images_of(const struct wn_type *t)
{
    struct wn__images s = {t->dim[0], t->dim[1], {t->dim[2], t->dim[3]}};
    return s;
}

/* A place in images. */
struct wn__pixel {
    int64_t n, channel, at[2]; /* at: row and column */
};

/* Returns a / b of numbers that are 0 or more, by 32 bits where they are small. */
WN_DEVICE_FN int64_t wn__quotient(int64_t a, int64_t b)
{
    return (a | b) >> 31 == 0 ? (int64_t)((uint32_t)a / (uint32_t)b) : a / b;
}

/* Returns the place of element `at` of images. */
WN_DEVICE_FN struct wn__pixel wn__pixel_at(const struct wn__images &s, int64_t at)
{
    struct wn__pixel p;
    int64_t pixel = wn__quotient(at, s.channels), row = wn__quotient(pixel, s.size[1]);
    p.channel = at - pixel * s.channels;
    p.at[1] = pixel - row * s.size[1];
    p.n = wn__quotient(row, s.size[0]);
    p.at[0] = row - p.n * s.size[0];
    return p;
}

/* Returns the element of image n and a channel at (row, column). */
WN_DEVICE_FN int64_t wn__element_at(const struct wn__images &s, int64_t n, int64_t row, int64_t column, int64_t channel)
{
    return ((n * s.size[0] + row) * s.size[1] + column) * s.channels + channel;
}

/* Starts F<T, V>(job, n), V channels a thread: as many as one load moves, where they divide the channels of all images
 * involved, else one. n: the number of elements that threads compute. */
#define WN_IMAGE_LAUNCH(F, T, channels, n, stream, job)                                                                \
    do {                                                                                                               \
        const int wide = wn__wide<T>::N;                                                                               \
        if ((channels) % wide == 0)                                                                                    \
            LAUNCH_BLOCKS((F<T, wn__wide<T>::N>), wn__blocks(n, (int64_t)WN_THREADS *wide), stream, job, n);           \
        else LAUNCH_EACH((F<T, 1>), n, stream, job, n);                                                                \
    } while (0)
#endif
