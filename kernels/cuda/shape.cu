/* RESHAPE, EXPAND, PERMUTE, NARROW, NARROW_GRAD, CAT: ops that copy elements, whatever the dtype, by their size. The
 * bytes are the CPU's.
 *
 * EXPAND and PERMUTE read x through a broadcast iterator over the result, so stores are in order. A PERMUTE that moves
 * the last dim goes by tiles of 32 x 32 in shared memory, so that loads are in order too; elements of 2 bytes in rows
 * of even length by tiles of 64 x 64, two elements at once. NARROW, NARROW_GRAD and CAT copy slabs: rows of bytes at a
 * fixed distance. */
#include "broadcast.cuh"

enum { TILE = 32, TILE_ROWS = 8 }; /* a block of TILE x TILE_ROWS threads moves a tile of TILE x TILE elements */

/* ---- copies of the whole, and of rows ---------------------------------------------------------------------------- */

static int32_t reshape(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    int64_t bytes = wn__bytes(&d->out);
    if (b->out == b->in[0] || bytes == 0) return WN_OK;
    (void)cudaMemcpyAsync(b->out, b->in[0], (size_t)bytes, cudaMemcpyDeviceToDevice, (cudaStream_t)stream);
    return wn__cuda_launched();
}

/* Slabs of bytes: slab i of the result is `before` zeros, n bytes of the input, and `after` zeros. */
struct slabs {
    const char *in;
    char *out;
    int64_t count, in_step, out_step; /* slabs; bytes from one to the next */
    int64_t before, n, after;
};

/* W: the word that is moved, which divides every number of struct slabs. */
template <class W> static __global__ void copy_slabs(struct slabs s, int64_t words)
{
    int64_t at = wn__thread(), per = (s.before + s.n + s.after) / (int64_t)sizeof(W);
    if (at >= words) return;
    int64_t slab = at / per, byte = at % per * (int64_t)sizeof(W);
    bool is_copied = byte >= s.before && byte < s.before + s.n;
    W zero;
    memset(&zero, 0, sizeof zero);
    W word = is_copied ? *(const W *)(s.in + slab * s.in_step + byte - s.before) : zero;
    *(W *)(s.out + slab * s.out_step + byte) = word;
}

static int32_t start_slabs(const struct slabs *s, void *stream)
{
    int64_t bytes = s->count * (s->before + s->n + s->after);
    if (bytes == 0) return WN_OK;
    uint64_t all = (uint64_t)(s->in_step | s->out_step | s->before | s->n | s->after) | (uint64_t)(uintptr_t)s->in |
                   (uint64_t)(uintptr_t)s->out;
    if (all % 16 == 0) LAUNCH_EACH((copy_slabs<uint4>), bytes / 16, stream, *s, bytes / 16);
    else if (all % 4 == 0) LAUNCH_EACH((copy_slabs<uint32_t>), bytes / 4, stream, *s, bytes / 4);
    else if (all % 2 == 0) LAUNCH_EACH((copy_slabs<uint16_t>), bytes / 2, stream, *s, bytes / 2);
    else LAUNCH_EACH((copy_slabs<uint8_t>), bytes, stream, *s, bytes);
    return wn__cuda_launched();
}

/* Returns the shape of a value seen from one dim, with inner in bytes: outer slabs of n indices of `inner` bytes. */
static struct wn__axis axis_in_bytes(const struct wn_type *t, int64_t dim)
{
    struct wn__axis a = wn__axis_of(t, dim);
    a.inner *= wn__dtype_size(t->dtype);
    return a;
}

static int32_t narrow(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    struct wn__axis a = axis_in_bytes(&d->in[0], d->attrs.i[0]);
    int64_t length = d->out.dim[d->attrs.i[0]] * a.inner;
    struct slabs s = {.in = (const char *)b->in[0] + d->attrs.i[1] * a.inner,
                      .out = (char *)b->out,
                      .count = a.outer,
                      .in_step = a.n * a.inner,
                      .out_step = length,
                      .before = 0,
                      .n = length,
                      .after = 0};
    return start_slabs(&s, stream);
}

static int32_t narrow_grad(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    struct wn__axis a = axis_in_bytes(&d->in[0], d->attrs.i[0]);
    int64_t full = d->out.dim[d->attrs.i[0]], start = d->attrs.i[1];
    struct slabs s = {.in = (const char *)b->in[0],
                      .out = (char *)b->out,
                      .count = a.outer,
                      .in_step = a.n * a.inner,
                      .out_step = full * a.inner,
                      .before = start * a.inner,
                      .n = a.n * a.inner,
                      .after = (full - start - a.n) * a.inner};
    return start_slabs(&s, stream);
}

static int32_t cat(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    struct wn__axis whole = axis_in_bytes(&d->out, d->attrs.i[0]);
    char *out = (char *)b->out;
    for (int32_t i = 0; i < d->n_in; i++) {
        int64_t n = d->in[i].dim[d->attrs.i[0]] * whole.inner;
        struct slabs s = {.in = (const char *)b->in[i],
                          .out = out,
                          .count = whole.outer,
                          .in_step = n,
                          .out_step = whole.n * whole.inner,
                          .before = 0,
                          .n = n,
                          .after = 0};
        WN_TRY(start_slabs(&s, stream));
        out += n;
    }
    return WN_OK;
}

/* ---- expand and permute ------------------------------------------------------------------------------------------ */

template <class W> static __global__ void copy_through(struct wn__broadcast w, const W *x, W *y)
{
    int64_t at = wn__thread(), offset[1];
    if (at >= w.numel) return;
    wn__broadcast_offsets(w, at, offset);
    y[at] = x[offset[0]];
}

template <class W> static int32_t start_copy(const struct wn__broadcast *w, const void *x, void *y, void *stream)
{
    if (w->numel == 0) return WN_OK;
    LAUNCH_EACH((copy_through<W>), w->numel, stream, *w, (const W *)x, (W *)y);
    return wn__cuda_launched();
}

static int32_t copy_by_size(int64_t size, const struct wn__broadcast *w, const struct wn_buffers *b, void *stream)
{
    switch (size) {
    case 1: return start_copy<uint8_t>(w, b->in[0], b->out, stream);
    case 2: return start_copy<uint16_t>(w, b->in[0], b->out, stream);
    case 4: return start_copy<uint32_t>(w, b->in[0], b->out, stream);
    default: return start_copy<uint64_t>(w, b->in[0], b->out, stream);
    }
}

static int32_t expand(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    struct wn__broadcast w = wn__broadcast_of(d);
    return copy_by_size(wn__dtype_size(d->out.dtype), &w, b, stream);
}

/* Returns the iterator over the result of a PERMUTE whose operand is x. */
static struct wn__broadcast permuted(const struct wn_desc *d)
{
    struct wn__broadcast w;
    int64_t step[WN_MAX_DIMS + 1];
    const struct wn_type *x = &d->in[0];
    memset(&w, 0, sizeof w);
    step[x->ndim] = 1;
    for (int32_t i = x->ndim - 1; i >= 0; i--) step[i] = step[i + 1] * x->dim[i];
    w.n_operands = 1;
    w.ndim = x->ndim;
    w.numel = wn__numel(&d->out);
    for (int32_t i = 0; i < x->ndim; i++) {
        w.dim[i] = d->out.dim[i];
        w.step[0][i] = step[d->attrs.i[i] + 1];
    }
    wn__broadcast_merge(&w);
    return w;
}

/* A PERMUTE that moves the last dim, by tiles: columns of a tile follow the last dim of the result, rows the dim of it
 * that is the last of x. */
struct transpose {
    struct wn__broadcast rest; /* the other dims: operand 0 is x, operand 1 the result */
    int64_t across, down;      /* length of the last dim of the result, and of the dim that is contiguous in x */
    int64_t x_step, y_step;    /* elements of x along the last dim of the result; of the result along the other */
};

/* The place of a tile: of its first column and row, and of its slab in x and in the result. */
struct tile_place {
    int64_t column, row, offset[2];
};

/* Returns the place of the tile of a block; tiles have `size` rows and columns. Blocks are divided as 32 bits, which
 * hold a grid. */
static __device__ __forceinline__ struct tile_place place_of(const struct transpose &t, int size)
{
    const uint32_t across = (uint32_t)((t.across + size - 1) / size), down = (uint32_t)((t.down + size - 1) / size);
    const uint32_t above = blockIdx.x / across, slab = above / down;
    struct tile_place p;
    p.column = (int64_t)(blockIdx.x - above * across) * size;
    p.row = (int64_t)(above - slab * down) * size;
    wn__broadcast_offsets(t.rest, slab, p.offset);
    return p;
}

template <class W>
static __global__ void __launch_bounds__(TILE *TILE_ROWS) transpose_tiles(struct transpose t, const W *x, W *y)
{
    enum { PAD = sizeof(W) < 4 ? 4 / sizeof(W) : 1 }; /* 32 elements of a column lie in 32 banks */
    __shared__ W tile[TILE][TILE + PAD];
    const struct tile_place p = place_of(t, TILE);
    const int lane = (int)threadIdx.x % TILE, first = (int)threadIdx.x / TILE;
    x += p.offset[0] + (p.column + first) * t.x_step + p.row + lane;
    y += p.offset[1] + (p.row + first) * t.y_step + p.column + lane;
    WN_UNROLL
    for (int k = 0; k < TILE; k += TILE_ROWS)
        if (p.column + first + k < t.across && p.row + lane < t.down) tile[first + k][lane] = x[k * t.x_step];
    __syncthreads();
    WN_UNROLL
    for (int k = 0; k < TILE; k += TILE_ROWS)
        if (p.row + first + k < t.down && p.column + lane < t.across) y[k * t.y_step] = tile[lane][first + k];
}

/* Moves a tile of 64 x 64 elements of 2 bytes. Pair c of row k of the tile lies in word c ^ (k / 2), so that neither 32
 * pairs of a row nor those of 32 rows, two apart, meet in a bank. A thread stores blocks of 2 x 2 elements, of two
 * pairs. */
static __global__ void __launch_bounds__(TILE *TILE_ROWS)
    transpose_pairs(struct transpose t, const uint16_t *x, uint16_t *y)
{
    __shared__ uint32_t tile[2 * TILE][TILE];
    const struct tile_place p = place_of(t, 2 * TILE);
    const int lane = (int)threadIdx.x % TILE, first = (int)threadIdx.x / TILE;
    x += p.offset[0] + (p.column + first) * t.x_step + p.row + 2 * lane;
    y += p.offset[1] + (p.row + 2 * first) * t.y_step + p.column + 2 * lane;
    WN_UNROLL
    for (int k = 0; k < 2 * TILE; k += TILE_ROWS)
        if (p.column + first + k < t.across && p.row + 2 * lane < t.down)
            tile[first + k][lane ^ (first + k) / 2] = *(const uint32_t *)(x + k * t.x_step);
    __syncthreads();
    WN_UNROLL
    for (int k = 0; k < TILE; k += TILE_ROWS) {
        if (p.row + 2 * (first + k) >= t.down || p.column + 2 * lane >= t.across) continue;
        const uint32_t a = tile[2 * lane][(first + k) ^ lane], b = tile[2 * lane + 1][(first + k) ^ lane];
        *(uint32_t *)(y + 2 * k * t.y_step) = (a & 0xffffu) | b << 16;
        *(uint32_t *)(y + (2 * k + 1) * t.y_step) = a >> 16 | (b & 0xffff0000u);
    }
}

/* Returns whether pairs of elements lie on even places of x and of the result: all other steps in x are multiples of
 * t->down, and those in the result of t->across. */
static bool has_pairs(const struct transpose *t)
{
    return t->across % 2 == 0 && t->down % 2 == 0;
}

/* Returns the dim of an iterator over a result that is contiguous in x; -1: there is none but the last. */
static int32_t contiguous_dim(const struct wn__broadcast *w)
{
    for (int32_t i = 0; i < w->ndim - 1; i++)
        if (w->step[0][i] == 1) return i;
    return -1;
}

static struct transpose transpose_of(const struct wn__broadcast *w, int32_t dim)
{
    struct transpose t;
    int64_t step = 1;
    memset(&t, 0, sizeof t);
    t.across = w->dim[w->ndim - 1];
    t.x_step = w->step[0][w->ndim - 1];
    t.down = w->dim[dim];
    t.rest.n_operands = 2;
    for (int32_t i = w->ndim - 1; i >= 0; step *= w->dim[i--])
        if (i == dim) t.y_step = step;
    t.rest.numel = w->numel / t.across / t.down;
    step = w->numel;
    for (int32_t i = 0; i < w->ndim - 1; i++) {
        step /= w->dim[i];
        if (i == dim) continue;
        t.rest.dim[t.rest.ndim] = w->dim[i];
        t.rest.step[0][t.rest.ndim] = w->step[0][i];
        t.rest.step[1][t.rest.ndim++] = step;
    }
    wn__broadcast_merge(&t.rest);
    return t;
}

/* Returns the blocks of tiles of `size` rows and columns. */
static unsigned tiles_of(const struct transpose *t, int64_t size)
{
    return wn__grid((t->across + size - 1) / size * ((t->down + size - 1) / size) * t->rest.numel);
}

template <class W> static int32_t start_transpose(const struct transpose *t, const struct wn_buffers *b, void *stream)
{
    LAUNCH((transpose_tiles<W>), tiles_of(t, TILE), TILE * TILE_ROWS, 0, stream, *t, (const W *)b->in[0], (W *)b->out);
    return wn__cuda_launched();
}

static int32_t start_pairs(const struct transpose *t, const struct wn_buffers *b, void *stream)
{
    LAUNCH(transpose_pairs, tiles_of(t, 2 * TILE), TILE * TILE_ROWS, 0, stream, *t, (const uint16_t *)b->in[0],
           (uint16_t *)b->out);
    return wn__cuda_launched();
}

static int32_t permute(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    struct wn__broadcast w = permuted(d);
    int64_t size = wn__dtype_size(d->out.dtype);
    int32_t dim = contiguous_dim(&w);
    if (w.numel == 0 || dim < 0 || w.dim[dim] < TILE_ROWS || w.dim[w.ndim - 1] < TILE_ROWS)
        return copy_by_size(size, &w, b, stream);
    struct transpose t = transpose_of(&w, dim);
    switch (size) {
    case 1: return start_transpose<uint8_t>(&t, b, stream);
    case 2: return has_pairs(&t) ? start_pairs(&t, b, stream) : start_transpose<uint16_t>(&t, b, stream);
    case 4: return start_transpose<uint32_t>(&t, b, stream);
    default: return start_transpose<uint64_t>(&t, b, stream);
    }
}

wn_kernel_fn wn__cuda_shape_kernel(const struct wn_desc *d)
{
    if (!wn__has_one_dtype(d)) return NULL;
    switch (d->op) {
    case WN_OP_RESHAPE: return reshape;
    case WN_OP_EXPAND: return expand;
    case WN_OP_PERMUTE: return permute;
    case WN_OP_NARROW: return narrow;
    case WN_OP_NARROW_GRAD: return narrow_grad;
    case WN_OP_CAT: return cat;
    default: return NULL;
    }
}
