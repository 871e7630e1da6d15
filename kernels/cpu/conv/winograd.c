/* Winograd's convolutions F(2 x 2, 3 x 3), for conv2d and conv2d_dx (winograd.h says which). For a tile of 2 x 2 pixels
 * of the result, from the 4 x 4 pixels d that it reads, with g the 3 x 3 elements of w for a channel and an output:
 *
 *     V = B' d B, U = G g G'             16 numbers each
 *     M = sum over channels of V U       number by number: 16 products (tiles, channels) times (channels, n)
 *     the tile = A' M A (+ bias)
 *
 *     B' = 1  0 -1  0      G =  1   0   0      A' = 1  1  1  0
 *          0  1  1  0          1/2 1/2 1/2          0  1 -1 -1
 *          0 -1  1  0          1/2 -1/2 1/2
 *          0  1  0 -1           0   0   1
 *
 * Order of sums: each of the 16 is one sum over channels in ascending order; the transforms are rows first, then
 * columns, each written out below. A value that is infinite or NaN reaches all pixels of its tiles.
 * Measured, RMS relative error against f64, 14 x 14 normal numbers, products of patches beside it: 64 channels: 2.7e-7,
 * 4.2e-7; 256 channels: 5.0e-7, 8.3e-7.
 * Measured, time against products of patches, one thread, Zen 4: 64 channels at 56: 0.5x, 128 at 28: 0.45x, 256 at 14:
 * 0.52x.
 *
 *     transform the weight to the workspace: micro-panels of at most nr columns, each (16, channels, width)
 *     for each block of the result (tiles x columns, M on the stack)
 *         for each k-block of channels: V of all tiles
 *             for each of 16 numbers, for each micro-panel, for each micro-tile (mr tiles): micro-kernel
 *         transform M to the result */
#include <stddef.h>
#include "winograd_tile.h"

#define WEIGHT_STEPS WN_PANEL_UNIT /* channels of a part of the weight that is transformed at once */
#define BUFFER 32768               /* floats of V, and of M, of a block */
#define APART                                                                                                          \
    (BUFFER / POINTS + 16) /* from point to point: the points of a tile are not in the same set of the cache */
#define NARROW 64          /* columns of a block where there are no more: it has 32 tiles then, else 16 */

/* One convolution. */
struct winograd {
    const struct wn__conv_job *w;
    struct tiles tiles;
    float *u;                             /* the transformed weight */
    int64_t tile_block, column_block, kc; /* of a block: tiles, columns, channels of a k-block */
};

/* Returns the width of the micro-panel at `column`; none is in two blocks. 32 and 32 instead of 48 and 16: see
 * images.c. */
static int64_t width_at(const struct winograd *f, int64_t column)
{
    const struct wn__gemm_kernel *kernel = f->w->words.gemm.kernel;
    const int64_t left = wn_min(f->w->columns - column, f->column_block - column % f->column_block);
    if (kernel->mr == WN_GEMM_MR_MAX && left == WN_PANEL + WN_PANEL_UNIT) return 2 * WN_PANEL_UNIT;
    return wn_min(left, kernel->nr);
}

/* ---- the weight -------------------------------------------------------------------------------- */

/* Transforms LANES columns of one channel: g: pointers to 9 elements; u: POINTS numbers, `apart` floats apart. */
INLINE void transform_weight(const float *const g[9], int64_t at, float *u, int64_t apart)
{
    const vec half = (vec){0} + 0.5f;
    vec s[4][3];
#pragma GCC unroll 3
    for (int32_t j = 0; j < 3; j++) {
        const vec top = load(g[j] + at), middle = load(g[3 + j] + at), bottom = load(g[6 + j] + at), sum = top + bottom;
        s[0][j] = top;
        s[1][j] = (sum + middle) * half;
        s[2][j] = (sum - middle) * half;
        s[3][j] = bottom;
    }
#pragma GCC unroll 4
    for (int32_t i = 0; i < 4; i++, u += 4 * apart) {
        const vec sum = s[i][0] + s[i][2];
        store(u, s[i][0]);
        store(u + apart, (sum + s[i][1]) * half);
        store(u + 2 * apart, (sum - s[i][1]) * half);
        store(u + 3 * apart, s[i][2]);
    }
}

/* Copies channels [k, k + WEIGHT_STEPS) of a tap of a micro-panel: to (WEIGHT_STEPS, width). */
static void take_tap(const struct wn__conv_job *w, const struct wn__conv_micropanel *m, float *to)
{
    int64_t ld;
    const float *from = wn__conv_weight(w, m, to, &ld);
    for (int64_t c = 0; c < m->kc && from != to; c++) copy_lines(to + c * m->n, from + c * ld, m->n);
}

/* Transforms channels [k, k + WEIGHT_STEPS) of a micro-panel, on the stack: in the weight, and in what becomes of it,
 * elements of a channel are often a power of two apart, in few sets of the cache. */
static void weight_part(const struct winograd *f, int64_t column, int64_t width, int64_t k)
{
    float taps[9][WEIGHT_STEPS * WN_PANEL] __attribute__((aligned(64)));
    enum { POINT = WEIGHT_STEPS * WN_PANEL + 16 };
    float points[POINTS * POINT] __attribute__((aligned(64)));
    const struct wn__conv_job *w = f->w;
    const float *g[9];
    for (int64_t tap = 0; tap < 9; tap++) {
        const struct wn__conv_micropanel m = {
            .k = tap * w->depth + k, .kc = WEIGHT_STEPS, .column = column, .n = width};
        take_tap(w, &m, taps[tap]);
        g[tap] = taps[tap];
    }
    const int64_t n = WEIGHT_STEPS * width;
    for (int64_t i = 0; i < n; i += LANES) transform_weight(g, i, points + i, POINT);
    float *u = f->u + POINTS * w->depth * column + k * width;
    for (int64_t point = 0; point < POINTS; point++)
        copy_lines(u + point * w->depth * width, points + point * POINT, n);
}

/* Transforms parts [begin, end) of the weight, each WEIGHT_STEPS channels of a micro-panel that begins at a multiple of
 * WN_PANEL_UNIT columns; where none begins, a part has nothing. */
static void weight_parts(int64_t begin, int64_t end, void *ctx)
{
    const struct winograd *f = ctx;
    const int64_t steps = f->w->depth / WEIGHT_STEPS;
    for (int64_t part = begin; part < end; part++) {
        int64_t column = 0, width = 0, wanted = part / steps * WN_PANEL_UNIT;
        for (; column < wanted; column += width) width = width_at(f, column);
        if (column == wanted) weight_part(f, column, width_at(f, column), part % steps * WEIGHT_STEPS);
    }
}

/* ---- a block ----------------------------------------------------------------------------------- */

/* Transforms LANES columns of M, POINTS numbers `apart` floats apart, to the pixels of a tile: y: (2, 2). */
INLINE void transform_sums(const float *m, int64_t apart, vec y[2][2])
{
    vec t[2][4];
#pragma GCC unroll 4
    for (int32_t j = 0; j < 4; j++, m += apart) {
        const vec m0 = load(m), m1 = load(m + 4 * apart), m2 = load(m + 8 * apart), m3 = load(m + 12 * apart);
        t[0][j] = m0 + m1 + m2;
        t[1][j] = m1 - m2 - m3;
    }
#pragma GCC unroll 2
    for (int32_t i = 0; i < 2; i++) {
        y[i][0] = t[i][0] + t[i][1] + t[i][2];
        y[i][1] = t[i][1] - t[i][2] - t[i][3];
    }
}

struct block {
    const struct winograd *f;
    int64_t tile, tiles, column, columns;
    int64_t k, kc;
    float *v; /* POINTS times (tile_block, kc of f), APART floats from one to the next */
    float *m; /* POINTS times (tile_block, column_block), likewise */
};

/* Writes what the tiles of a block make of M. */
static void store_tiles(const struct block *b)
{
    const struct wn__conv_job *w = b->f->w;
    const int64_t rows = w->axis[0].pixels, columns = w->axis[1].pixels;
    for (int64_t i = 0; i < b->tiles; i++) {
        const struct tile t = tile_of(&b->f->tiles, b->tile + i);
        const int64_t pixel = (t.image * rows + t.out[0]) * columns + t.out[1];
        float *out = (float *)(void *)w->out + pixel * w->out_channels + b->column;
        for (int64_t j = 0; j < b->columns; j += LANES) {
            vec y[2][2];
            transform_sums(b->m + i * b->f->column_block + j, APART, y);
            for (int64_t p = 0; p < 2 && t.out[0] + p < rows; p++)
                for (int64_t q = 0; q < 2 && t.out[1] + q < columns; q++) {
                    if (w->bias) y[p][q] += load((const float *)w->bias + b->column + j);
                    store(out + (p * columns + q) * w->out_channels + j, y[p][q]);
                }
        }
        for (int64_t p = 0; p < 2 && t.out[0] + p < rows; p++)
            wn__conv_finish(w->epilogue, pixel + p * columns, wn_min(columns - t.out[1], 2), b->column, b->columns);
    }
}

static void take_tiles(const struct block *b)
{
    float room[POINTS * 2 * NARROW] __attribute__((aligned(64)));
    const int64_t ld = b->f->kc;
    for (int64_t i = 0; i < b->tiles; i++) {
        const struct tile t = tile_of(&b->f->tiles, b->tile + i), next = tile_of(&b->f->tiles, b->tile + i + 1);
        if (i + 1 < b->tiles) fetch_tile(&b->f->tiles, &next, b->k, b->kc);
        const struct pixels p = pixels_of(&b->f->tiles, &t, b->k, b->kc, room);
        for (int64_t c = 0; c < b->kc; c += LANES) transform_pixels(&p, c, b->v + i * ld + c, APART);
    }
}

/* Returns the k-block of a micro-panel of the transformed weight: (kc, width of the micro-panel). */
static const float *weight_of(const struct block *b, int64_t point, int64_t column)
{
    const int64_t depth = b->f->w->depth;
    return b->f->u + POINTS * depth * column + (point * depth + b->k) * width_at(b->f, column);
}

/* Adds the k-block to columns [column, column + width) of the number `point` of all tiles. A micro-tile prefetches 16
 * columns of the micro-panel that comes next, after the last one the first one again; those left over, a line of a.
 * None goes behind the end of the weight: there may be no page, and a processor that finds none looks for it again.
 * Measured, 64 > 64 channels at 56, where 10 of 16 went there: 5.5x time (Zen 2, a virtual machine). */
static void run_micropanel(const struct block *b, int64_t point, int64_t column, int64_t width)
{
    const struct wn__gemm_kernel *kernel = b->f->w->words.gemm.kernel;
    const int32_t is_last = column + width >= b->column + b->columns;
    const int64_t next = is_last ? b->column : column + width, lines = width_at(b->f, next) / 16;
    struct wn__gemm_microtile t = {.kc = b->kc, .ai = b->f->kc, .ak = 1, .bk = width, .n = width};
    t.b = weight_of(b, point, column);
    t.ldc = b->f->column_block;
    t.first = b->k == 0;
    const char *line = (const char *)weight_of(b, is_last ? (point + 1) % POINTS : point, next);
    for (int64_t i = 0, part = 0; i < b->tiles; i += kernel->mr, part++) {
        t.a = b->v + point * APART + i * t.ai;
        t.c = b->m + point * APART + i * t.ldc + column - b->column;
        t.m = wn_min(b->tiles - i, kernel->mr);
        t.aux.line = part < lines ? line + part * b->kc * 64 : (const char *)t.a;
        t.aux.step = part < lines ? 64 : 0;
        t.aux.row = WN_GEMM_FAR_STEPS * t.aux.step;
        kernel->microkernel(&t);
    }
}

/* Adds the k-block to all numbers of all tiles. */
static void run_points(const struct block *b)
{
    for (int64_t point = 0; point < POINTS; point++)
        for (int64_t column = b->column, width; column < b->column + b->columns; column += width) {
            width = width_at(b->f, column);
            run_micropanel(b, point, column, width);
        }
}

static void run_block(struct block *b)
{
    float v[POINTS * APART] __attribute__((aligned(64)));
    float m[POINTS * APART] __attribute__((aligned(64)));
    const struct wn__conv_job *w = b->f->w;
    b->v = v;
    b->m = m;
    for (b->k = 0; b->k < w->depth; b->k += b->kc) {
        b->kc = wn_min(w->depth - b->k, b->f->kc);
        take_tiles(b);
        run_points(b);
    }
    store_tiles(b);
}

static void run_tasks(int64_t begin, int64_t end, void *ctx)
{
    const struct winograd *f = ctx;
    const int64_t blocks = (f->tiles.n + f->tile_block - 1) / f->tile_block;
    for (int64_t task = begin; task < end; task++) {
        struct block b = {.f = f, .tile = task % blocks * f->tile_block, .column = task / blocks * f->column_block};
        b.tiles = wn_min(f->tiles.n - b.tile, f->tile_block);
        b.columns = wn_min(f->w->columns - b.column, f->column_block);
        run_block(&b);
    }
}

static struct winograd winograd_of(const struct wn__conv_job *w, void *workspace)
{
    struct winograd f = {.w = w, .tiles = tiles_of(w), .u = workspace};
    f.column_block = w->columns <= NARROW ? NARROW : 2 * NARROW;
    f.tile_block = BUFFER / POINTS / f.column_block;
    f.kc = BUFFER / POINTS / f.tile_block;
    return f;
}

void wn__conv_winograd(const struct wn__conv_job *w, void *workspace)
{
    struct winograd f = winograd_of(w, workspace);
    wn__parallel_for(w->columns / WN_PANEL_UNIT * (w->depth / WEIGHT_STEPS), 16, weight_parts, &f);
    const int64_t blocks = (f.tiles.n + f.tile_block - 1) / f.tile_block;
    wn__parallel_tasks(blocks * ((w->columns + f.column_block - 1) / f.column_block), 1, run_tasks, &f);
}
