/* RESHAPE, EXPAND, PERMUTE, NARROW, NARROW_GRAD, CAT: ops that copy bytes, whatever the dtype. A kernel writes each
 * byte of out once. */
#include <stddef.h>
#include <string.h>
#include "../common/cpu.h"
#include "../common/micro.h"
#include "transpose.h"

/* A transpose is done by tiles of SIDE x SIDE, so that it reads and writes runs of several lines, and within a tile by
 * pieces of TILE x TILE, whole lines on both sides. Tiles follow each other along the dim that is contiguous in the
 * input.
 * Measured: tiles of 16 alone: half the speed; tiles down the rows of the input: 1.3 to 1.8x time.
 *
 * Where pieces are transposed in registers (transpose.h), tiles are TRANSPOSE_FAST x TRANSPOSE_LAST: long runs are
 * read, and prefetched one tile ahead in the order of memory; two lines at a time are written, which costs little.
 * Measured, share of the limit, (8192, 4096): 80 to 90 %; 32 x 256 with prefetches in the order of use: 70 % (memory
 * copies 55 GB/s); 75 and 52 % where it copies 95 GB/s. TRANSPOSE_LAST of 64 lines: 1.1x time, of 16: 1.4x. */
#define SIDE 64
#define TILE 16
#define TRANSPOSE_FAST 512
#define TRANSPOSE_LAST 32

static int64_t grain_bytes(int64_t size)
{
    return WN_CPU_GRAIN * 4 / (size > 0 ? size : 1) + 1;
}

/* ---- reshape ------------------------------------------------------------------------------------- */

static int32_t reshape(const struct wn_desc *d, const struct wn_buffers *b, WN_NO_STREAM)
{
    if (b->out != b->in[0]) memcpy(b->out, b->in[0], (size_t)wn__bytes(&d->out));
    return WN_OK;
}

/* ---- expand and permute: a broadcast iterator over out with one strided operand ------------------ */

/* The loops of a size of elements; tile is a buffer of rows SIDE elements apart, in has rows `step` elements apart. */
struct copy_loops {
    /* out[i] = in[i step], i < n */
    void (*spread)(void *out, const void *in, int64_t step, int64_t n);
    /* tile[i][j] = in[j][i], i, j < TILE */
    void (*transpose)(void *tile, const void *in, int64_t step);
    /* tile[i][j] = in[j][i], i < rows, j < columns */
    void (*transpose_edge)(void *tile, const void *in, int64_t step, int64_t rows, int64_t columns);
};

/* One EXPAND or PERMUTE. */
struct copy {
    struct wn__broadcast broadcast; /* over out; its operand is the input */
    const char *in;
    char *out;
    int64_t size; /* bytes of an element */
    const struct copy_loops *loops;
    int32_t fast;                  /* PERMUTE: the dim of out that is contiguous in the input */
    int64_t side[2];               /* elements of a tile along that dim and along the last */
    int32_t streams;               /* out is stored non-temporally */
    int64_t out_step[WN_MAX_DIMS]; /* elements from one index to the next along each dim of out */
};

/* Returns the elements from a row of n elements to one that is copied soon: short rows are prefetched 32 rows ahead. */
static int64_t next_row(const struct copy *k, int64_t n)
{
    int32_t dim = k->broadcast.ndim - 2;
    return dim < 0 ? n : k->broadcast.step[0][dim] * (n < 512 ? 32 : 1);
}

#define SPREAD(S, T)                                                                                                   \
    static void spread_##S(void *out_, const void *in_, int64_t step, int64_t n)                                       \
    {                                                                                                                  \
        T *restrict out = out_;                                                                                        \
        const T *restrict in = in_, value = in[0];                                                                     \
        if (step == 0) {                                                                                               \
            for (int64_t i = 0; i < n; i++) out[i] = value;                                                            \
        } else {                                                                                                       \
            for (int64_t i = 0; i < n; i++) out[i] = in[i * step];                                                     \
        }                                                                                                              \
    }

#define EDGE(S, T)                                                                                                     \
    static void edge_##S(void *tile, const void *in, int64_t step, int64_t rows, int64_t columns)                      \
    {                                                                                                                  \
        for (int64_t j = 0; j < columns; j++)                                                                          \
            for (int64_t i = 0; i < rows; i++) ((T *)tile)[i * SIDE + j] = ((const T *)in)[i + j * step];              \
    }

/* transpose_32 does 4 x 4 at a time by shuffles. */
#define TRANSPOSE(S, T)                                                                                                \
    static void transpose_##S(void *tile, const void *in, int64_t step)                                                \
    {                                                                                                                  \
        for (int j = 0; j < TILE; j++)                                                                                 \
            for (int i = 0; i < TILE; i++) ((T *)tile)[i * SIDE + j] = ((const T *)in)[i + j * step];                  \
    }

TRANSPOSE(8, uint8_t)
TRANSPOSE(16, uint16_t)
TRANSPOSE(64, uint64_t)

typedef uint32_t quad __attribute__((vector_size(16)));
#if defined(__clang__)
#define SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define SHUFFLE(a, b, ...) __builtin_shuffle(a, b, (quad){__VA_ARGS__})
#endif

static void transpose_32(void *tile_, const void *in_, int64_t step)
{
    uint32_t *tile = tile_;
    const uint32_t *in = in_;
    for (int j = 0; j < TILE; j += 4)
        for (int i = 0; i < TILE; i += 4) {
            quad row[4], half[4], out[4];
            for (int k = 0; k < 4; k++) memcpy(&row[k], in + i + (j + k) * step, sizeof(quad));
            half[0] = SHUFFLE(row[0], row[2], 0, 4, 1, 5);
            half[1] = SHUFFLE(row[0], row[2], 2, 6, 3, 7);
            half[2] = SHUFFLE(row[1], row[3], 0, 4, 1, 5);
            half[3] = SHUFFLE(row[1], row[3], 2, 6, 3, 7);
            out[0] = SHUFFLE(half[0], half[2], 0, 4, 1, 5);
            out[1] = SHUFFLE(half[0], half[2], 2, 6, 3, 7);
            out[2] = SHUFFLE(half[1], half[3], 0, 4, 1, 5);
            out[3] = SHUFFLE(half[1], half[3], 2, 6, 3, 7);
            for (int k = 0; k < 4; k++) memcpy(tile + (i + k) * SIDE + j, &out[k], sizeof(quad));
        }
}

#define LOOPS(S, T)                                                                                                    \
    SPREAD(S, T)                                                                                                       \
    EDGE(S, T)                                                                                                         \
    static const struct copy_loops loops_##S = {spread_##S, transpose_##S, edge_##S};

LOOPS(8, uint8_t)
LOOPS(16, uint16_t)
LOOPS(32, uint32_t)
LOOPS(64, uint64_t)

static const struct copy_loops *loops_of(int64_t size)
{
    return size == 1 ? &loops_8 : size == 2 ? &loops_16 : size == 4 ? &loops_32 : &loops_64;
}

static void copy_row(void *ctx, int64_t at, int64_t n, const int64_t *offset)
{
    const struct copy *k = ctx;
    const char *in = k->in + offset[0] * k->size;
    char *out = k->out + at * k->size;
    int64_t step = wn__broadcast_inner(&k->broadcast, 0);
    if (step == 1) {
        wn__stream_or_copy(k->streams, out, in, n * k->size, in + next_row(k, n) * k->size);
        return;
    }
    if (!k->streams) {
        k->loops->spread(out, in, step, n);
        return;
    }
    struct wn__stream_block block;
    for (int64_t i = 0, stop; i < n; i = stop) {
        stop = wn__stream_stop(at + i, at + n) - at;
        k->loops->spread(block.bytes, in + i * step * k->size, step, stop - i);
        wn__stream(out + i * k->size, block.bytes, (stop - i) * k->size);
    }
}

static void copy_part(int64_t begin, int64_t end, void *ctx)
{
    const struct copy *k = ctx;
    wn__broadcast_range(&k->broadcast, begin, end, copy_row, ctx);
    if (k->streams) wn__stream_end();
}

/* Returns the number of tiles along a dim of out; *side becomes the length of one. */
static int64_t tiles_along(const struct copy *k, int32_t dim, int64_t *side)
{
    *side = dim == k->fast ? k->side[0] : dim == k->broadcast.ndim - 1 ? k->side[1] : 1;
    return (k->broadcast.dim[dim] + *side - 1) / *side;
}

static int64_t tiles_of(const struct copy *k)
{
    int64_t n = 1, side;
    for (int32_t i = 0; i < k->broadcast.ndim; i++) n *= tiles_along(k, i, &side);
    return n;
}

/* Writes where tile number `tile` is in the input and in out, and its extent. The next tile is the next along the fast
 * dim. */
static void place_tile(const struct copy *k, int64_t tile, int64_t *in_at, int64_t *out_at, int64_t n[2])
{
    *in_at = *out_at = 0;
    for (int32_t turn = k->broadcast.ndim; turn >= 0; turn--) {
        int32_t i = turn == k->broadcast.ndim ? k->fast : turn;
        int64_t side, count = tiles_along(k, i, &side);
        if (turn == k->fast) continue;
        int64_t index = tile % count * side, left = k->broadcast.dim[i] - index;
        tile /= count;
        if (i == k->fast || i == k->broadcast.ndim - 1) n[i != k->fast] = left < side ? left : side;
        *in_at += index * k->broadcast.step[0][i];
        *out_at += index * k->out_step[i];
    }
}

/* Copies n[0] x n[1] elements of the plane (fast dim, last dim): transposes them in a buffer, then writes rows. */
static void copy_tile(const struct copy *k, const char *in, char *out, const int64_t n[2])
{
    char tile[SIDE * SIDE * sizeof(uint64_t)] __attribute__((aligned(64)));
    int64_t in_step = wn__broadcast_inner(&k->broadcast, 0), out_step = k->out_step[k->fast], size = k->size;
    for (int64_t j0 = 0; j0 < n[1]; j0 += TILE)
        for (int64_t i0 = 0; i0 < n[0]; i0 += TILE) {
            const char *from = in + (i0 + j0 * in_step) * size;
            char *to = tile + (i0 * SIDE + j0) * size;
            int64_t rows = n[0] - i0 < TILE ? n[0] - i0 : TILE, columns = n[1] - j0 < TILE ? n[1] - j0 : TILE;
            for (int64_t j = 0; j < TILE; j++) wn__fetch_far(from, (SIDE + j * in_step) * size);
            if (rows == TILE && columns == TILE) k->loops->transpose(to, from, in_step);
            else k->loops->transpose_edge(to, from, in_step, rows, columns);
        }
    for (int64_t i = 0; i < n[0]; i++)
        wn__stream_or_copy(k->streams, out + i * out_step * size, tile + i * SIDE * size, n[1] * size, NULL);
}

static void tiles_part(int64_t begin, int64_t end, void *ctx)
{
    const struct copy *k = ctx;
    for (int64_t tile = begin; tile < end; tile++) {
        int64_t in_at, out_at, n[2];
        place_tile(k, tile, &in_at, &out_at, n);
        copy_tile(k, k->in + in_at * k->size, k->out + out_at * k->size, n);
    }
    if (k->streams) wn__stream_end();
}

/* Transposes tiles [begin, end) of 4-byte elements. */
static void transpose_part(int64_t begin, int64_t end, void *ctx)
{
    const struct copy *k = ctx;
    int64_t in_at, out_at, n[2], next_at;
    struct wn__tile t = {.in_step = wn__broadcast_inner(&k->broadcast, 0), .streams = k->streams};
    t.out_step = k->out_step[k->fast];
    place_tile(k, begin, &next_at, &out_at, n);
    for (int64_t tile = begin; tile < end; tile++) {
        in_at = next_at;
        t.out = (uint32_t *)(void *)k->out + out_at;
        t.n0 = n[0];
        t.n1 = n[1];
        if (tile + 1 < end) place_tile(k, tile + 1, &next_at, &out_at, n);
        t.in = (const uint32_t *)(const void *)k->in + in_at;
        t.next = (const uint32_t *)(const void *)k->in + next_at;
        wn__micro.transpose(&t);
    }
    if (k->streams) wn__stream_end();
}

static void run_tiles(struct copy *k)
{
    int64_t *dim = k->broadcast.dim, last = k->broadcast.ndim - 1;
    int32_t whole =
        dim[k->fast] % WN_TRANSPOSE_SIDE == 0 && dim[last] % WN_TRANSPOSE_SIDE == 0 && (uintptr_t)k->out % 64 == 0;
    int32_t is_fast = k->size == 4 && whole && wn__micro.transpose != NULL;
    k->side[0] = is_fast ? TRANSPOSE_FAST : SIDE;
    k->side[1] = is_fast ? TRANSPOSE_LAST : SIDE;
    wn__parallel_for(tiles_of(k), WN_CPU_GRAIN / (k->side[0] * k->side[1]), is_fast ? transpose_part : tiles_part, k);
}

/* Writes the elements from one index to the next along each dim of a dense value. */
static void dense_steps(int32_t ndim, const int64_t *dim, int64_t *step)
{
    for (int64_t i = ndim - 1, s = 1; i >= 0; i--) {
        step[i] = s;
        s *= dim[i];
    }
}

static int32_t run_copy(struct copy *k, int32_t dtype)
{
    int32_t last = k->broadcast.ndim - 1;
    k->size = wn__dtype_size(dtype);
    k->loops = loops_of(k->size);
    k->streams = wn__streams(k->broadcast.numel * k->size, k->out, k->in, NULL);
    k->fast = -1;
    if (wn__broadcast_inner(&k->broadcast, 0) > 1)
        for (int32_t i = 0; i < last; i++)
            if (k->broadcast.step[0][i] == 1) k->fast = i;
    dense_steps(k->broadcast.ndim, k->broadcast.dim, k->out_step);
    if (k->fast < 0) wn__parallel_for(k->broadcast.numel, WN_CPU_GRAIN, copy_part, k);
    else if (k->broadcast.numel > 0) run_tiles(k);
    return WN_OK;
}

static int32_t expand(const struct wn_desc *d, const struct wn_buffers *b, WN_NO_STREAM)
{
    const struct wn_type *in = &d->in[0];
    struct copy k = {.in = b->in[0], .out = b->out};
    wn__broadcast_make(&k.broadcast, &d->out, 1, &in);
    return run_copy(&k, d->out.dtype);
}

/* Makes a broadcast iterator over the dense shape `over`, with the given steps of its operand. */
static void iterate_over(struct wn__broadcast *w, const struct wn_type *over, const int64_t *step)
{
    w->n_operands = 1;
    w->ndim = over->ndim;
    for (int32_t i = 0; i < over->ndim; i++) {
        w->dim[i] = over->dim[i];
        w->step[0][i] = step[i];
    }
    wn__broadcast_merge(w);
}

/* A copy of rows of the input to their places in out. Reading in order and writing in pieces is faster than the
 * opposite, from pieces of four lines on. */
struct scatter {
    struct wn__broadcast broadcast; /* over the rows of the input; its operand is out, steps in elements */
    const char *in;
    char *out;
    int64_t row, size; /* bytes of a row, of an element */
};

static void scatter_run(void *ctx, int64_t at, int64_t n, const int64_t *offset)
{
    const struct scatter *s = ctx;
    int64_t step = wn__broadcast_inner(&s->broadcast, 0) * s->size;
    wn__stream_rows(s->out + offset[0] * s->size, step, s->in + at * s->row, n, s->row);
}

static void scatter_part(int64_t begin, int64_t end, void *ctx)
{
    wn__broadcast_range(&((struct scatter *)ctx)->broadcast, begin, end, scatter_run, ctx);
    wn__stream_end();
}

static int32_t permute(const struct wn_desc *d, const struct wn_buffers *b, WN_NO_STREAM)
{
    struct copy k = {.in = b->in[0], .out = b->out};
    int64_t in_step[WN_MAX_DIMS], out_step[WN_MAX_DIMS], there[WN_MAX_DIMS], back[WN_MAX_DIMS];
    dense_steps(d->in[0].ndim, d->in[0].dim, in_step);
    dense_steps(d->out.ndim, d->out.dim, out_step);
    for (int32_t i = 0; i < d->out.ndim; i++) {
        there[i] = in_step[d->attrs.i[i]];
        back[d->attrs.i[i]] = out_step[i];
    }
    iterate_over(&k.broadcast, &d->out, there);
    int64_t size = wn__dtype_size(d->out.dtype), row = k.broadcast.dim[k.broadcast.ndim - 1] * size;
    if (k.broadcast.ndim > 1 && wn__broadcast_inner(&k.broadcast, 0) == 1 && row % 64 == 0 &&
        wn__streams(wn__bytes(&d->out), b->out, b->in[0], NULL)) {
        struct scatter s = {.in = b->in[0], .out = b->out, .row = row, .size = size};
        iterate_over(&s.broadcast, &d->in[0], back);
        s.broadcast.ndim--;
        s.broadcast.numel /= row / size;
        wn__parallel_for(s.broadcast.numel, WN_CPU_GRAIN * 4 / row + 1, scatter_part, &s);
        return WN_OK;
    }
    return run_copy(&k, d->out.dtype);
}

/* ---- narrow, its gradient, cat: slabs of bytes --------------------------------------------------- */

/* A copy of `outer` slabs of n bytes, from in + i * in_step to out + i * out_step; NARROW_GRAD writes zeros before and
 * after. */
struct slabs {
    const char *in;
    char *out;
    int64_t in_step, out_step, n; /* bytes */
    int64_t before, after;        /* bytes of zeros around each slab of out */
    int32_t streams;              /* out is stored non-temporally */
};

static void zeros(int32_t streams, char *out, int64_t bytes)
{
    if (streams) wn__stream_fill(out, 0, bytes);
    else memset(out, 0, (size_t)bytes);
}

static void copy_slabs(int64_t begin, int64_t end, void *ctx)
{
    const struct slabs *s = ctx;
    for (int64_t i = begin; i < end; i++) {
        char *out = s->out + i * s->out_step;
        if (s->before) zeros(s->streams, out, s->before);
        if (s->n)
            wn__stream_or_copy(s->streams, out + s->before, s->in + i * s->in_step, s->n, s->in + (i + 1) * s->in_step);
        if (s->after) zeros(s->streams, out + s->before + s->n, s->after);
    }
    if (s->streams) wn__stream_end();
}

/* Copies `outer` slabs of part of a result, or of all of it. */
static int32_t run_slabs(const struct wn_desc *d, const struct wn_buffers *b, int64_t outer, struct slabs s)
{
    s.streams = wn__streams(wn__bytes(&d->out), b->out, NULL, NULL);
    wn__parallel_for(outer, grain_bytes(s.before + s.n + s.after), copy_slabs, &s);
    return WN_OK;
}

static int32_t narrow(const struct wn_desc *d, const struct wn_buffers *b, WN_NO_STREAM)
{
    struct wn__axis a = wn__axis_of(&d->in[0], d->attrs.i[0]);
    int64_t row = a.inner * wn__dtype_size(d->out.dtype), length = d->out.dim[d->attrs.i[0]] * row;
    const char *from = (const char *)b->in[0] + d->attrs.i[1] * row;
    struct slabs s = {.in = from, .out = b->out, .in_step = a.n * row, .out_step = length, .n = length};
    return run_slabs(d, b, a.outer, s);
}

static int32_t narrow_grad(const struct wn_desc *d, const struct wn_buffers *b, WN_NO_STREAM)
{
    struct wn__axis a = wn__axis_of(&d->in[0], d->attrs.i[0]);
    int64_t row = a.inner * wn__dtype_size(d->out.dtype), full = d->out.dim[d->attrs.i[0]], start = d->attrs.i[1];
    struct slabs s = {.in = b->in[0],
                      .out = b->out,
                      .in_step = a.n * row,
                      .out_step = full * row,
                      .n = a.n * row,
                      .before = start * row,
                      .after = (full - start - a.n) * row};
    return run_slabs(d, b, a.outer, s);
}

static int32_t cat(const struct wn_desc *d, const struct wn_buffers *b, WN_NO_STREAM)
{
    struct wn__axis whole = wn__axis_of(&d->out, d->attrs.i[0]);
    int64_t row = whole.inner * wn__dtype_size(d->out.dtype), at = 0;
    for (int32_t i = 0; i < d->n_in; i++) {
        int64_t n = d->in[i].dim[d->attrs.i[0]] * row;
        struct slabs s = {.in = b->in[i], .out = (char *)b->out + at, .in_step = n, .out_step = whole.n * row, .n = n};
        run_slabs(d, b, whole.outer, s);
        at += n;
    }
    return WN_OK;
}

wn_kernel_fn wn__cpu_expand_kernel(const struct wn_desc *d)
{
    return d->in[0].dtype == d->out.dtype ? expand : NULL;
}

wn_kernel_fn wn__cpu_shape_kernel(const struct wn_desc *d)
{
    for (int32_t i = 0; i < d->n_in; i++)
        if (d->in[i].dtype != d->out.dtype) return NULL;
    switch (d->op) {
    case WN_OP_RESHAPE: return reshape;
    case WN_OP_PERMUTE: return permute;
    case WN_OP_NARROW: return narrow;
    case WN_OP_NARROW_GRAD: return narrow_grad;
    case WN_OP_CAT: return cat;
    default: return NULL;
    }
}
