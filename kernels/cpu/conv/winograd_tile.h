/* Tiles of Winograd's convolutions: 4 x 4 pixels of an image, every second pixel, and their transform. Shared by
 * winograd.c (y and dx) and winograd_dw.c. */
#ifndef WN_CPU_CONV_WINOGRAD_TILE_H
#define WN_CPU_CONV_WINOGRAD_TILE_H
#include "../common/lanes.h"
#include "conv.h"
#include "winograd.h"

#define POINTS 16 /* numbers of a tile */

#define LANES WN_F32_LANES
typedef wn__f32 vec;

INLINE vec load(const float *from)
{
    vec v;
    memcpy(&v, from, sizeof v);
    return v;
}

INLINE void store(float *to, vec v)
{
    memcpy(to, &v, sizeof v);
}

/* Copies n floats, a multiple of 16. */
INLINE void copy_lines(float *to, const float *from, int64_t n)
{
    for (int64_t i = 0; i < n; i += LANES) store(to + i, load(from + i));
}

/* The tiles of one convolution, n in all; tiles: rows and columns of them in an image. */
struct tiles {
    const struct wn__conv_job *w;
    int64_t tiles[2], n;
};

INLINE struct tiles tiles_of(const struct wn__conv_job *w)
{
    struct tiles f = {.w = w};
    for (int32_t k = 0; k < 2; k++) f.tiles[k] = (w->axis[k].pixels + 1) / 2;
    f.n = w->images * f.tiles[0] * f.tiles[1];
    return f;
}

/* A tile: its image, and its first pixel in the result; `at`: the first pixel that it reads. */
struct tile {
    int64_t image, out[2], at[2];
};

INLINE struct tile tile_of(const struct tiles *f, int64_t number)
{
    const int64_t v = number % f->tiles[1], u = number / f->tiles[1] % f->tiles[0];
    return (struct tile){
        number / f->tiles[1] / f->tiles[0], {2 * u, 2 * v}, {2 * u + f->w->axis[0].first, 2 * v + f->w->axis[1].first}};
}

/* Four rows of four pixels: pixel (i, j) is at from + i * row + j * pixel. */
struct pixels {
    const float *from;
    int64_t row, pixel;
};

/* Returns the pixels that a tile reads, kc channels from channel k on; those outside of the image are zeros, in `room`:
 * (16, kc). */
INLINE struct pixels pixels_of(const struct tiles *f, const struct tile *t, int64_t k, int64_t kc, float *room)
{
    const struct wn__conv_job *w = f->w;
    const int64_t rows = w->axis[0].size, columns = w->axis[1].size;
    const float *image = (const float *)(const void *)w->image + t->image * rows * columns * w->channels + k;
    if (t->at[0] >= 0 && t->at[0] + 4 <= rows && t->at[1] >= 0 && t->at[1] + 4 <= columns)
        return (struct pixels){image + (t->at[0] * columns + t->at[1]) * w->channels, columns * w->channels,
                               w->channels};
    for (int64_t i = 0; i < 4; i++)
        for (int64_t j = 0; j < 4; j++) {
            const int64_t y = t->at[0] + i, x = t->at[1] + j;
            float *to = room + (4 * i + j) * kc;
            if (y < 0 || y >= rows || x < 0 || x >= columns) memset(to, 0, (size_t)kc * sizeof *to);
            else copy_lines(to, image + (y * columns + x) * w->channels, kc);
        }
    return (struct pixels){room, 4 * kc, kc};
}

/* Prefetches the two columns of pixels that a tile does not share with the tile before, kc channels from channel k
 * on. */
INLINE void fetch_tile(const struct tiles *f, const struct tile *t, int64_t k, int64_t kc)
{
    const struct wn__conv_job *w = f->w;
    const int64_t rows = w->axis[0].size, columns = w->axis[1].size;
    if (t->at[0] < 0 || t->at[0] + 4 > rows || t->at[1] < 0 || t->at[1] + 4 > columns) return;
    const float *from = (const float *)(const void *)w->image + k +
                        ((t->image * rows + t->at[0]) * columns + t->at[1] + 2) * w->channels;
    for (int64_t i = 0; i < 4; i++, from += columns * w->channels)
        for (int64_t j = 0; j < 2; j++) wn__fetch(from + j * w->channels, kc * (int64_t)sizeof *from);
}

/* Transforms LANES channels: v: POINTS numbers, `apart` floats apart. */
INLINE void transform_pixels(const struct pixels *p, int64_t at, float *v, int64_t apart)
{
    vec t[4][4];
#pragma GCC unroll 4
    for (int32_t j = 0; j < 4; j++) {
        const float *d = p->from + j * p->pixel + at;
        const vec d0 = load(d), d1 = load(d + p->row), d2 = load(d + 2 * p->row), d3 = load(d + 3 * p->row);
        t[0][j] = d0 - d2;
        t[1][j] = d1 + d2;
        t[2][j] = d2 - d1;
        t[3][j] = d1 - d3;
    }
#pragma GCC unroll 4
    for (int32_t i = 0; i < 4; i++, v += 4 * apart) {
        store(v, t[i][0] - t[i][2]);
        store(v + apart, t[i][1] + t[i][2]);
        store(v + 2 * apart, t[i][2] - t[i][1]);
        store(v + 3 * apart, t[i][1] - t[i][3]);
    }
}
#endif
