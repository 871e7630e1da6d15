/* Ops that move elements and compute nothing: they copy bytes, whatever the element type.
 * A kernel here writes each byte of `out` once, and reads only its inputs. */
#include <stddef.h>
#include <string.h>
#include "cpu.h"

#define TILE 16 /* a transpose reads and writes TILE x TILE elements at a time, so that both sides use whole lines */

static int64_t grain_bytes(int64_t size)
{
    return WN_CPU_GRAIN * 4 / (size > 0 ? size : 1) + 1;
}

/* ---- reshape ------------------------------------------------------------------------------------- */

static int32_t reshape(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    (void)stream;
    if (b->out != b->in[0]) memcpy(b->out, b->in[0], (size_t)wn__bytes(&d->out));
    return WN_OK;
}

/* ---- expand and permute: a walk over out with one strided operand ---------------------------------- */

struct copy {
    struct wn__walk walk;
    const void *in;
    void *out;
    int32_t fast; /* permute: which dim of out is contiguous in the input */
    int64_t out_step[WN_MAX_DIMS];
};

#define COPIES(S, T)                                                                                                   \
    static void copy_row_##S(void *ctx, int64_t at, int64_t n, const int64_t *offset)                                  \
    {                                                                                                                  \
        const struct copy *k = ctx;                                                                                    \
        const T *in = (const T *)k->in + offset[0];                                                                    \
        T *out = (T *)k->out + at;                                                                                     \
        int64_t step = wn__walk_inner(&k->walk, 0);                                                                    \
        if (step == 1) memcpy(out, in, (size_t)n * sizeof(T));                                                         \
        else                                                                                                           \
            for (int64_t i = 0; i < n; i++) out[i] = in[i * step];                                                     \
    }                                                                                                                  \
    static void copy_part_##S(int64_t begin, int64_t end, void *ctx)                                                   \
    {                                                                                                                  \
        wn__walk_range(&((struct copy *)ctx)->walk, begin, end, copy_row_##S, ctx);                                    \
    }                                                                                                                  \
    /* A tile of the plane (fast dim, last dim); n0 x n1 elements, both steps 1 on one side */                         \
    static void copy_tile_##S(const struct copy *k, int64_t in_at, int64_t out_at, int64_t n0, int64_t n1)             \
    {                                                                                                                  \
        const T *in = (const T *)k->in + in_at;                                                                        \
        T *out = (T *)k->out + out_at;                                                                                 \
        int64_t in_step = wn__walk_inner(&k->walk, 0), out_step = k->out_step[k->fast];                                \
        for (int64_t i = 0; i < n0; i++)                                                                               \
            for (int64_t j = 0; j < n1; j++) out[i * out_step + j] = in[i + j * in_step];                              \
    }                                                                                                                  \
    static void transpose_part_##S(int64_t begin, int64_t end, void *ctx)                                              \
    {                                                                                                                  \
        const struct copy *k = ctx;                                                                                    \
        for (int64_t tile = begin; tile < end; tile++) {                                                               \
            int64_t in_at, out_at, n0, n1;                                                                             \
            place_tile(k, tile, &in_at, &out_at, &n0, &n1);                                                            \
            copy_tile_##S(k, in_at, out_at, n0, n1);                                                                   \
        }                                                                                                              \
    }

static int64_t tiles_of(const struct copy *k)
{
    int64_t n = 1;
    for (int32_t i = 0; i < k->walk.ndim; i++)
        n *= i == k->fast || i == k->walk.ndim - 1 ? (k->walk.dim[i] + TILE - 1) / TILE : k->walk.dim[i];
    return n;
}

static void place_tile(const struct copy *k, int64_t tile, int64_t *in_at, int64_t *out_at, int64_t *n0, int64_t *n1)
{
    *in_at = *out_at = 0;
    for (int32_t i = k->walk.ndim - 1; i >= 0; i--) {
        int32_t cut = i == k->fast || i == k->walk.ndim - 1;
        int64_t count = cut ? (k->walk.dim[i] + TILE - 1) / TILE : k->walk.dim[i];
        int64_t index = tile % count * (cut ? TILE : 1), left = k->walk.dim[i] - index;
        tile /= count;
        if (i == k->fast) *n0 = left < TILE ? left : TILE;
        else if (cut) *n1 = left < TILE ? left : TILE;
        *in_at += index * k->walk.step[0][i];
        *out_at += index * k->out_step[i];
    }
}

COPIES(8, uint8_t)
COPIES(16, uint16_t)
COPIES(32, uint32_t)
COPIES(64, uint64_t)

static int32_t by_size(int32_t dtype)
{
    switch (wn__dtype_size(dtype)) {
    case 1: return 0;
    case 2: return 1;
    case 4: return 2;
    default: return 3;
    }
}

static int32_t run_copy(struct copy *k, int32_t dtype)
{
    static const wn__parallel_body rows[] = {copy_part_8, copy_part_16, copy_part_32, copy_part_64};
    static const wn__parallel_body tiles[] = {transpose_part_8, transpose_part_16, transpose_part_32,
                                              transpose_part_64};
    int32_t last = k->walk.ndim - 1, size = by_size(dtype);
    k->fast = -1;
    if (wn__walk_inner(&k->walk, 0) > 1)
        for (int32_t i = 0; i < last; i++)
            if (k->walk.step[0][i] == 1) k->fast = i;
    int64_t step = 1;
    for (int32_t i = last; i >= 0; i--) {
        k->out_step[i] = step;
        step *= k->walk.dim[i];
    }
    if (k->fast < 0) wn__parallel_for(k->walk.numel, WN_CPU_GRAIN, rows[size], k);
    else if (k->walk.numel > 0) wn__parallel_for(tiles_of(k), WN_CPU_GRAIN / (TILE * TILE), tiles[size], k);
    return WN_OK;
}

static int32_t expand(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    (void)stream;
    const struct wn_type *in = &d->in[0];
    struct copy k = {.in = b->in[0], .out = b->out};
    wn__walk_broadcast(&k.walk, &d->out, 1, &in);
    return run_copy(&k, d->out.dtype);
}

static int32_t permute(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    (void)stream;
    const struct wn_type *in = &d->in[0];
    struct copy k = {.in = b->in[0], .out = b->out};
    int64_t step[WN_MAX_DIMS], s = 1;
    for (int32_t i = in->ndim - 1; i >= 0; i--) {
        step[i] = s;
        s *= in->dim[i];
    }
    k.walk.n_operands = 1;
    k.walk.ndim = d->out.ndim;
    for (int32_t i = 0; i < d->out.ndim; i++) {
        k.walk.dim[i] = d->out.dim[i];
        k.walk.step[0][i] = step[d->attrs.i[i]];
    }
    wn__walk_merge(&k.walk);
    return run_copy(&k, d->out.dtype);
}

/* ---- narrow, its gradient, cat: slabs of bytes ------------------------------------------------------ */

/* `outer` slabs: `n` bytes each, from in + i * in_step to out + i * out_step; zeros before and after (narrow_grad) */
struct slabs {
    const char *in;
    char *out;
    int64_t in_step, out_step, n, before, after;
};

static void copy_slabs(int64_t begin, int64_t end, void *ctx)
{
    const struct slabs *s = ctx;
    for (int64_t i = begin; i < end; i++) {
        char *out = s->out + i * s->out_step;
        if (s->before) memset(out, 0, (size_t)s->before);
        if (s->n) memcpy(out + s->before, s->in + i * s->in_step, (size_t)s->n);
        if (s->after) memset(out + s->before + s->n, 0, (size_t)s->after);
    }
}

static int32_t narrow(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    (void)stream;
    struct wn__axis a = wn__axis_of(&d->in[0], d->attrs.i[0]);
    int64_t row = a.inner * wn__dtype_size(d->out.dtype), length = d->out.dim[d->attrs.i[0]];
    const char *from = (const char *)b->in[0] + d->attrs.i[1] * row;
    struct slabs s = {from, b->out, a.n * row, length * row, length * row, 0, 0};
    wn__parallel_for(a.outer, grain_bytes(s.n), copy_slabs, &s);
    return WN_OK;
}

static int32_t narrow_grad(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    (void)stream;
    struct wn__axis a = wn__axis_of(&d->in[0], d->attrs.i[0]);
    int64_t row = a.inner * wn__dtype_size(d->out.dtype), full = d->out.dim[d->attrs.i[0]], start = d->attrs.i[1];
    struct slabs s = {b->in[0], b->out, a.n * row, full * row, a.n * row, start * row, (full - start - a.n) * row};
    wn__parallel_for(a.outer, grain_bytes(full * row), copy_slabs, &s);
    return WN_OK;
}

static int32_t cat(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    (void)stream;
    struct wn__axis whole = wn__axis_of(&d->out, d->attrs.i[0]);
    int64_t row = whole.inner * wn__dtype_size(d->out.dtype), at = 0;
    for (int32_t i = 0; i < d->n_in; i++) {
        int64_t n = d->in[i].dim[d->attrs.i[0]];
        struct slabs s = {b->in[i], (char *)b->out + at * row, n * row, whole.n * row, n * row, 0, 0};
        wn__parallel_for(whole.outer, grain_bytes(s.n), copy_slabs, &s);
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
