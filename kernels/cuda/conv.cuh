/* Convolutions as products of matrices over images that are read where they lie (implicit GEMM): where the terms of an
 * output are. conv.h has the matrices.
 *
 * The tiles of CONV2D_DX are of one phase: pixels of dx whose rows are equal modulo the stride, and whose columns are.
 * All of a phase have the same places of the kernel over a pixel of dy, so no product is with nothing. CONV2D has one
 * phase. In both the rows of a phase form a grid, and row u reads the source, x or dy, at
 * u * stride + origin + j * apart for the j-th of these places:
 *
 *     dx, stride 2, kernel 3, pad 1     rows 0, 2, 4, ..: kh = 1        row 2 u of dx has dy at u
 *                                       rows 1, 3, 5, ..: kh = 0, 2     row 2 u + 1 has dy at u + 1 and u
 *
 * Weights are rows of terms, one a column of the product. */
#ifndef WN_CUDA_CONV_CUH
#define WN_CUDA_CONV_CUH
#include "elementwise.cuh"
#include "gemm.cuh"
#include "image.cuh"
extern "C" {
#include "conv.h"
}

/* One application. */
struct wn__conv_job {
    struct wn__conv c;
    struct wn__images source, target; /* the images that are read by places, and whose pixels are rows of the product */
    int32_t phases[2], period[2];     /* phases, and places of the kernel from one over a pixel to the next, by part */
    int32_t kc;                       /* channels of a group in the source: terms of a place */
    const void *x;                    /* the source */
    const void *weight;               /* of conv.h's is_packed, or as given where its rows are terms already */
    const void *dy;                   /* of CONV2D_DW */
    const void *bias;                 /* (O), or NULL */
    const void *norm[4];              /* of CONV2D_MAP's batch norm: mean, rstd, weight, bias; or all NULL */
    const void *image;                /* operand 1 of CONV2D_MAP's steps, of the shape of the result; or NULL */
    int32_t steps;                    /* of CONV2D_MAP */
    struct wn__step step[WN_CONV_STEPS];
    int32_t operand[WN_CONV_STEPS][2]; /* 0: the value so far, 1: the image */
    void *out;
    void *sums; /* (parts, O, kh, kw, C / groups) of CONV2D_DW; NULL: one part */
};

/* The places of the kernel over rows (or columns) of one phase. */
struct wn__conv_taps {
    int count, first, step;    /* the j-th is row first + j * step of the kernel */
    int stride, origin, apart; /* of the source: see above */
    int size;                  /* of the source */
    int phase, by, n;          /* of the target: row u is phase + u * by, u < n */
};

/* Returns the places over a phase, by rows (part 0) or columns (part 1). */
WN_DEVICE_FN struct wn__conv_taps wn__conv_taps_of(const struct wn__conv_job &j, int part, int phase)
{
    const struct wn__window &w = j.c.w;
    const int stride = (int)w.stride[part], pad = (int)w.pad[part], dilation = (int)w.dilation[part];
    const int kernel = (int)w.kernel[part];
    struct wn__conv_taps t = {.count = kernel,
                              .first = 0,
                              .step = 1,
                              .stride = stride,
                              .origin = -pad,
                              .apart = dilation,
                              .size = (int)w.in[part],
                              .phase = 0,
                              .by = 1,
                              .n = (int)w.out[part]};
    if (j.c.op != WN_OP_CONV2D_DX) return t;
    t.step = j.period[part];
    while (t.first < t.step && t.first < kernel && (phase + pad - t.first * dilation) % stride != 0) t.first++;
    t.count = t.first < t.step && t.first < kernel ? (kernel - 1 - t.first) / t.step + 1 : 0;
    t.stride = 1;
    t.origin = (phase + pad - t.first * dilation) / stride;
    t.apart = -(t.step * dilation / stride);
    t.size = (int)w.out[part];
    t.phase = phase;
    t.by = stride;
    t.n = ((int)w.in[part] - phase + stride - 1) / stride;
    return t;
}

/* The phase and the group of a block, and the first row and column of its tile. */
struct wn__conv_tile {
    struct wn__conv_taps taps[2];
    int64_t group, row, column;
    int64_t rows; /* of the phase */
    int terms;
};

/* Returns the tiles of `size` outputs a side: the grid of CONV2D and CONV2D_DX. The first phase has the most rows. */
static inline int64_t wn__conv_tiles_of(const struct wn__conv_job &j, int64_t size)
{
    int64_t rows = j.target.n, phases = (int64_t)j.phases[0] * j.phases[1];
    for (int k = 0; k < 2; k++) rows *= (j.target.size[k] + j.phases[k] - 1) / j.phases[k];
    return (rows + size - 1) / size * ((j.c.columns + size - 1) / size) * phases * j.c.w.groups;
}

/* Returns the tile of a block: columns fastest, then rows, groups, phases. Its row may be behind the last. */
WN_DEVICE_FN struct wn__conv_tile wn__conv_tile_of(const struct wn__conv_job &j, int size)
{
    struct wn__conv_tile t;
    int64_t most = j.target.n, across = (j.c.columns + size - 1) / size, at = blockIdx.x;
    for (int k = 0; k < 2; k++) most *= (j.target.size[k] + j.phases[k] - 1) / j.phases[k];
    const int64_t down = (most + size - 1) / size;
    t.column = at % across * size;
    at /= across;
    t.row = at % down * size;
    at /= down;
    t.group = at % j.c.w.groups;
    at /= j.c.w.groups;
    t.taps[0] = wn__conv_taps_of(j, 0, (int)(at / j.phases[1]));
    t.taps[1] = wn__conv_taps_of(j, 1, (int)(at % j.phases[1]));
    t.rows = j.target.n * t.taps[0].n * t.taps[1].n;
    t.terms = t.taps[0].count * t.taps[1].count * j.kc;
    return t;
}

/* The pixel of a row of a phase: image, and row and column of the phase's grid. */
struct wn__conv_pixel {
    int64_t n;
    int at[2];
};
WN_DEVICE_FN struct wn__conv_pixel wn__conv_pixel_of(const struct wn__conv_taps (&taps)[2], int64_t row)
{
    const int64_t line = wn__quotient(row, taps[1].n), n = wn__quotient(line, taps[0].n);
    struct wn__conv_pixel p = {n, {(int)(line - n * taps[0].n), (int)(row - line * taps[1].n)}};
    return p;
}
/* Returns that of a row of 32 bits, as a term of CONV2D_DW is. */
WN_DEVICE_FN struct wn__conv_pixel wn__conv_pixel_of(const struct wn__conv_taps (&taps)[2], int row)
{
    const int line = (int)((unsigned)row / (unsigned)taps[1].n), n = (int)((unsigned)line / (unsigned)taps[0].n);
    struct wn__conv_pixel p = {n, {line - n * taps[0].n, row - line * taps[1].n}};
    return p;
}

/* Returns the element of the result at a row of a phase and channel 0 of a group. */
WN_DEVICE_FN int64_t wn__conv_element(const struct wn__conv_job &j, const struct wn__conv_tile &t, int64_t row)
{
    const struct wn__conv_pixel p = wn__conv_pixel_of(t.taps, row);
    return wn__element_at(j.target, p.n, t.taps[0].phase + (int64_t)p.at[0] * t.taps[0].by,
                          t.taps[1].phase + (int64_t)p.at[1] * t.taps[1].by, t.group * j.c.columns);
}

/* Holds where a thread reads the source for a row of a tile: the image, and the row and column of the first place. */
struct wn__conv_source {
    int64_t image;
    int at[2];
};
WN_DEVICE_FN struct wn__conv_source wn__conv_source_of(const struct wn__conv_job &j, const struct wn__conv_tile &t,
                                                       int64_t row)
{
    struct wn__conv_source s = {0, {INT32_MIN / 2, 0}}; /* behind the last row: outside of the source */
    if (row >= t.rows) return s;
    const struct wn__conv_pixel p = wn__conv_pixel_of(t.taps, row);
    s.image = wn__element_at(j.source, p.n, 0, 0, t.group * j.kc);
    for (int k = 0; k < 2; k++) s.at[k] = p.at[k] * t.taps[k].stride + t.taps[k].origin;
    return s;
}

/* A term of the sums of a tile: how far its place is from the first, its channel, and its column in the weight. */
struct wn__conv_term {
    int apart[2], channel, column;
};
WN_DEVICE_FN struct wn__conv_term wn__conv_term_of(const struct wn__conv_job &j, const struct wn__conv_tile &t,
                                                   int term)
{
    struct wn__conv_term k;
    const int tap = (int)((unsigned)term / (unsigned)j.kc), row = (int)((unsigned)tap / (unsigned)t.taps[1].count);
    const int column = tap - row * t.taps[1].count, top = t.taps[0].first + row * t.taps[0].step;
    k.apart[0] = row * t.taps[0].apart;
    k.apart[1] = column * t.taps[1].apart;
    k.channel = term - tap * j.kc;
    k.column = (top * (int)j.c.w.kernel[1] + t.taps[1].first + column * t.taps[1].step) * j.kc + k.channel;
    return k;
}

/* Returns the element of the source that a row has as a term; -1: it is outside, and counts as 0. */
WN_DEVICE_FN int64_t wn__conv_read(const struct wn__conv_job &j, const struct wn__conv_source &s,
                                   const struct wn__conv_term &k)
{
    const int row = s.at[0] + k.apart[0], column = s.at[1] + k.apart[1];
    if (row < 0 || row >= j.source.size[0] || column < 0 || column >= j.source.size[1]) return -1;
    return s.image + (row * j.source.size[1] + column) * j.source.channels + k.channel;
}

/* Returns the element of the weight of output o, input i of its group, at a place of the kernel. */
WN_DEVICE_FN int64_t wn__conv_weight_at(const struct wn__conv &c, int64_t o, int64_t i, int64_t place)
{
    const int64_t columns = c.places * c.ci;
    if (c.layout == WN_PLAIN) return o * columns + i * c.places + place;
    int64_t width = 0, row = wn__panel_row(c.w.o, columns, o, &width);
    return row + (place * c.ci + i) * width;
}
#endif
