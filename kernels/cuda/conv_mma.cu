/* Convolutions of bf16 by tensor cores (gemm_mma.cuh), where the channels of a group divide into chunks of 16 bytes: a
 * chunk is then at one place of the kernel, and lies in memory as it is loaded. conv.cuh says where terms are. */
#include "conv_store.cuh"
#include "gemm_mma.cuh"

enum { CHUNK = WN_GEMM_CHUNK, PER_ROW = WN_GEMM_STEP / WN_GEMM_CHUNK };

/* ---- CONV2D and CONV2D_DX: rows along terms --------------------------------------------------------------------- */

/* The terms of a phase, by a few numbers, since each costs a thread a register. */
struct mma_terms {
    int end, kc, across; /* terms, channels of a place, places in a row of the kernel */
    int apart[2];        /* of the source, from a row or column of places to the next */
    int weight[2];       /* of the weight, in elements */

    static __device__ __forceinline__ mma_terms of(const struct wn__conv_job &j, const struct wn__conv_tile &t)
    {
        const int line = (int)j.c.w.kernel[1] * j.kc;
        mma_terms v = {.end = t.terms,
                       .kc = j.kc,
                       .across = t.taps[1].count,
                       .apart = {t.taps[0].apart, t.taps[1].apart},
                       .weight = {t.taps[0].step * line, t.taps[1].step * j.kc}};
        return v;
    }
};

/* A chunk of terms: its row and column of places, and its first channel. */
struct mma_chunk {
    int row, column, channel;
    bool is_real;

    static __device__ __forceinline__ mma_chunk of(const mma_terms &v, int term)
    {
        mma_chunk k = {0, 0, 0, term < v.end};
        const int tap = k.is_real ? (int)((unsigned)term / (unsigned)v.kc) : 0;
        k.channel = k.is_real ? term - tap * v.kc : 0;
        k.row = (int)((unsigned)tap / (unsigned)v.across);
        k.column = tap - k.row * v.across;
        return k;
    }
};

/* The pixels of a tile. A thread loads one chunk of two of them. */
struct mma_pixels {
    enum { ALONG_K = 1 };
    mma_terms terms;
    const wn_bf16 *x;
    int size[2], channels; /* of the source */
    struct wn__conv_source source[2];

    template <int SIZE> __device__ __forceinline__ void load(wn_bf16 *to, int64_t k) const
    {
        const int row = (int)threadIdx.x / PER_ROW, chunk = (int)threadIdx.x % PER_ROW;
        const mma_chunk at = mma_chunk::of(terms, (int)k + chunk * CHUNK);
        WN_UNROLL
        for (int c = 0; c < 2; c++) {
            const int up = source[c].at[0] + at.row * terms.apart[0];
            const int left = source[c].at[1] + at.column * terms.apart[1];
            const bool is_real = at.is_real && up >= 0 && up < size[0] && left >= 0 && left < size[1];
            const int64_t from = source[c].image + ((int64_t)up * size[1] + left) * channels + at.channel;
            wn__cp_async16_or_zeros(to + wn__gemm_place<PER_ROW>(row + c * (SIZE / 2), chunk) * CHUNK,
                                    x + (is_real ? from : 0), is_real);
        }
    }
};

/* The weights of a tile's columns. A thread loads one chunk of two of them. */
struct mma_weights {
    enum { ALONG_K = 1 };
    mma_terms terms;
    const wn_bf16 *first; /* of the thread's first column */
    int64_t pitch;        /* of a column */
    int columns;          /* from the thread's first on */

    template <int SIZE> __device__ __forceinline__ void load(wn_bf16 *to, int64_t k) const
    {
        const int row = (int)threadIdx.x / PER_ROW, chunk = (int)threadIdx.x % PER_ROW;
        const mma_chunk at = mma_chunk::of(terms, (int)k + chunk * CHUNK);
        const int from = at.row * terms.weight[0] + at.column * terms.weight[1] + at.channel;
        WN_UNROLL
        for (int c = 0; c < 2; c++) {
            const bool is_real = at.is_real && c * (SIZE / 2) < columns;
            wn__cp_async16_or_zeros(to + wn__gemm_place<PER_ROW>(row + c * (SIZE / 2), chunk) * CHUNK,
                                    first + (is_real ? c * (SIZE / 2) * pitch + from : 0), is_real);
        }
    }
};

/* Returns what the calling thread loads. */
template <int SIZE> WN_DEVICE_FN mma_pixels mma_pixels_of(const struct wn__conv_job &j, const struct wn__conv_tile &t)
{
    const int64_t row = t.row + threadIdx.x / PER_ROW;
    mma_pixels v = {.terms = mma_terms::of(j, t),
                    .x = (const wn_bf16 *)j.x,
                    .size = {(int)j.source.size[0], (int)j.source.size[1]},
                    .channels = (int)j.source.channels,
                    .source = {wn__conv_source_of(j, t, row), wn__conv_source_of(j, t, row + SIZE / 2)}};
    return v;
}
WN_DEVICE_FN mma_weights mma_weights_of(const struct wn__conv_job &j, const struct wn__conv_tile &t)
{
    const int64_t column = t.column + threadIdx.x / PER_ROW, first = t.group * j.c.columns + column;
    const bool is_real = column < j.c.columns;
    const int64_t place = (int64_t)t.taps[0].first * j.c.w.kernel[1] + t.taps[1].first;
    mma_weights v = {mma_terms::of(j, t), (const wn_bf16 *)j.weight + (is_real ? first * j.c.terms + place * j.kc : 0),
                     j.c.terms, is_real ? (int)(j.c.columns - column) : 0};
    return v;
}

/* Returns x, of which the compiler knows no more: what is computed of it is not kept in registers from before. */
WN_DEVICE_FN int anew(int x)
{
    asm volatile("" : "+r"(x));
    return x;
}

/* Stores the outputs of a tile. */
template <bool IS_MAP> struct pixels_out {
    enum { CHUNKS = 1 };
    const struct wn__conv_job &j;
    const struct wn__conv_tile &t;
    int64_t rows, columns;
    bool is_wide;

    template <int V> __device__ __forceinline__ void put(int row, int column, float (&sum)[V]) const
    {
        const int64_t element = wn__conv_element(j, t, t.row + row) + t.column + column;
        wn__conv_finish<wn_bf16, V, IS_MAP>(j, element, t.group * j.c.columns + t.column + column, sum);
        wn__gemm_put((wn_bf16 *)j.out + element, sum);
    }
};

template <int SIZE, bool IS_MAP>
static __global__ void __launch_bounds__(2 * SIZE, IS_MAP ? 128 / SIZE : 256 / SIZE) gather_mma(struct wn__conv_job j)
{
    DYN_SHARED(wn_bf16, shared);
    struct wn__conv_tile t = wn__conv_tile_of(j, SIZE);
    if (t.row >= t.rows) return;
    wn__gemm_sums<SIZE> sum;
    sum.clear();
    wn__gemm_walk<SIZE, mma_pixels, mma_weights> walk = {.a = mma_pixels_of<SIZE>(j, t),
                                                         .b = mma_weights_of(j, t),
                                                         .first = 0,
                                                         .steps = (t.terms + WN_GEMM_STEP - 1) / WN_GEMM_STEP,
                                                         .shared = shared};
    walk.run(sum);
    t = wn__conv_tile_of(j, anew(SIZE));
    const pixels_out<IS_MAP> out = {
        .j = j, .t = t, .rows = t.rows - t.row, .columns = j.c.columns - t.column, .is_wide = j.c.columns % CHUNK == 0};
    wn__gemm_tile_store<SIZE>(out, sum, (float *)shared);
}

/* ---- CONV2D_DW: rows along channels ------------------------------------------------------------------------------ */

/* The tile of a block: a part of the pixels, [first, end), of a group, from (row, column) on. */
struct mma_part {
    struct wn__conv_taps taps[2];
    int64_t row, column, group, part;
    int first, end;
};

/* Returns the tile of block u: columns fastest, then rows, groups, parts. */
WN_DEVICE_FN struct mma_part mma_part_of(const struct wn__conv_job &j, int size)
{
    struct mma_part t;
    const int64_t across = (j.c.columns + size - 1) / size, down = (j.c.rows + size - 1) / size;
    const int64_t line = blockIdx.x / across, matrix = line / down;
    t.column = blockIdx.x % across * size;
    t.row = line % down * size;
    t.group = matrix % j.c.w.groups;
    t.part = matrix / j.c.w.groups;
    t.first = (int)(j.c.terms * t.part / j.c.parts);
    t.end = (int)(j.c.terms * (t.part + 1) / j.c.parts);
    for (int k = 0; k < 2; k++) t.taps[k] = wn__conv_taps_of(j, k, 0);
    return t;
}

/* The outputs of a tile at pixels. A thread loads one chunk of outputs. */
struct mma_outputs {
    enum { ALONG_K = 0 };
    const wn_bf16 *dy; /* the chunk at pixel 0 */
    int64_t channels;
    int end; /* 0: behind the last output */

    template <int SIZE>
    static __device__ __forceinline__ mma_outputs of(const struct wn__conv_job &j, const mma_part &t)
    {
        const int64_t o = t.row + threadIdx.x % (SIZE / CHUNK) * CHUNK;
        const bool is_real = o < j.c.co;
        mma_outputs v = {(const wn_bf16 *)j.dy + (is_real ? t.group * j.c.co + o : 0), j.target.channels,
                         is_real ? t.end : 0};
        return v;
    }

    template <int SIZE> __device__ __forceinline__ void load(wn_bf16 *to, int64_t k) const
    {
        const int per_row = SIZE / CHUNK, row = (int)threadIdx.x / per_row, chunk = (int)threadIdx.x % per_row;
        WN_UNROLL
        for (int c = 0; c < 2; c++) {
            const int at = row + c * (WN_GEMM_STEP / 2), pixel = (int)k + at;
            wn__cp_async16_or_zeros(to + wn__gemm_place<per_row>(at, chunk) * CHUNK,
                                    dy + (pixel < end ? pixel : 0) * channels, pixel < end);
        }
    }
};

/* The columns of a tile, inputs at places of the kernel, at pixels. A thread loads one chunk of columns. */
struct mma_inputs {
    enum { ALONG_K = 0 };
    const wn_bf16 *x; /* the chunk of pixel (0, 0) of the source */
    struct wn__images source;
    struct wn__conv_taps taps[2]; /* origin: of the place of the columns */
    int end;                      /* 0: behind the last column */

    template <int SIZE> static __device__ __forceinline__ mma_inputs of(const struct wn__conv_job &j, const mma_part &t)
    {
        const int64_t column = t.column + threadIdx.x % (SIZE / CHUNK) * CHUNK;
        const bool is_real = column < j.c.columns;
        const int64_t place = is_real ? wn__quotient(column, j.c.ci) : 0, across = j.c.w.kernel[1];
        const int64_t channel = t.group * j.c.ci + (is_real ? column - place * j.c.ci : 0);
        mma_inputs v = {(const wn_bf16 *)j.x + channel, j.source, {t.taps[0], t.taps[1]}, is_real ? t.end : 0};
        v.taps[0].origin += (int)(place / across) * t.taps[0].apart;
        v.taps[1].origin += (int)(place % across) * t.taps[1].apart;
        return v;
    }

    template <int SIZE> __device__ __forceinline__ void load(wn_bf16 *to, int64_t k) const
    {
        const int per_row = SIZE / CHUNK, row = (int)threadIdx.x / per_row, chunk = (int)threadIdx.x % per_row;
        WN_UNROLL
        for (int c = 0; c < 2; c++) {
            const int at = row + c * (WN_GEMM_STEP / 2), pixel = (int)k + at;
            const struct wn__conv_pixel p = wn__conv_pixel_of(taps, pixel);
            const int up = p.at[0] * taps[0].stride + taps[0].origin, left = p.at[1] * taps[1].stride + taps[1].origin;
            const bool is_real = pixel < end && up >= 0 && up < taps[0].size && left >= 0 && left < taps[1].size;
            const int64_t from = is_real ? wn__element_at(source, p.n, up, left, 0) : 0;
            wn__cp_async16_or_zeros(to + wn__gemm_place<per_row>(at, chunk) * CHUNK, x + from, is_real);
        }
    }
};

struct weights_out {
    enum { CHUNKS = 0 };
    const struct wn__conv_job &j;
    const struct mma_part &t;
    int64_t rows, columns;

    __device__ __forceinline__ void put(int row, int column, float (&sum)[1]) const
    {
        wn__conv_put_weight<wn_bf16>(j, t.part, t.group * j.c.co + t.row + row, t.column + column, sum[0]);
    }
};

template <int SIZE> static __global__ void __launch_bounds__(2 * SIZE, 256 / SIZE) weight_mma(struct wn__conv_job j)
{
    DYN_SHARED(wn_bf16, shared);
    const struct mma_part t = mma_part_of(j, SIZE);
    wn__gemm_sums<SIZE> sum;
    sum.clear();
    wn__gemm_walk<SIZE, mma_outputs, mma_inputs> walk = {.a = mma_outputs::of<SIZE>(j, t),
                                                         .b = mma_inputs::of<SIZE>(j, t),
                                                         .first = t.first,
                                                         .steps =
                                                             (int)((t.end - t.first + WN_GEMM_STEP - 1) / WN_GEMM_STEP),
                                                         .shared = shared};
    walk.run(sum);
    const weights_out out = {j, t, j.c.rows - t.row, j.c.columns - t.column};
    wn__gemm_tile_store<SIZE>(out, sum, (float *)shared);
}

/* ---- starting it ------------------------------------------------------------------------------------------------- */

/* Returns the tiles of `size` of a convolution. */
static int64_t tiles_of(const struct wn__conv_job &j, int64_t size)
{
    if (j.c.op != WN_OP_CONV2D_DW) return wn__conv_tiles_of(j, size);
    return (j.c.rows + size - 1) / size * ((j.c.columns + size - 1) / size) * j.c.w.groups * j.c.parts;
}

template <int SIZE> static int32_t start(const struct wn__conv_job &j, void *stream)
{
    const unsigned blocks = wn__grid(tiles_of(j, SIZE));
    if (j.c.op == WN_OP_CONV2D_DW) LAUNCH((weight_mma<SIZE>), blocks, 2 * SIZE, wn__gemm_shared<SIZE>(), stream, j);
    else if (wn__conv_is_map(j)) LAUNCH((gather_mma<SIZE, true>), blocks, 2 * SIZE, wn__gemm_shared<SIZE>(), stream, j);
    else LAUNCH((gather_mma<SIZE, false>), blocks, 2 * SIZE, wn__gemm_shared<SIZE>(), stream, j);
    return wn__cuda_launched();
}

bool wn__conv_mma(const struct wn__conv_job &j, void *stream, int32_t *status)
{
    const bool is_dw = j.c.op == WN_OP_CONV2D_DW;
    const bool has_chunks = is_dw ? j.c.ci % CHUNK == 0 && j.c.co % CHUNK == 0 : j.kc % CHUNK == 0;
    if (!has_chunks || j.c.columns < WN_GEMM_LEAST || !wn__has_tensor_cores()) return false;
    const bool is_small = j.c.rows <= 64 || j.c.columns <= 64 || tiles_of(j, 128) < WN_GEMM_MANY;
    *status = is_small ? start<64>(j, stream) : start<128>(j, stream);
    return true;
}
