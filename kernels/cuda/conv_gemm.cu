/* Convolutions by tiles in shared memory (gemm.cuh), an implicit GEMM: a block of 256 threads computes a tile of
 * (16 R, 16 R) outputs, R x R a thread, over the terms in steps of 16. conv.cuh says where terms are, conv.cu in which
 * order they are added. */
#include "conv_store.cuh"

/* ---- CONV2D and CONV2D_DX: terms are channels at places of the kernel ------------------------------------------- */

/* The loads of a thread: of each step one term, of R rows and R columns of the tile, 16 apart. */
template <class T, int R> struct gather_loads {
    struct wn__conv_source source[R];
    const T *weight; /* of the thread's first column */
    int columns;     /* its columns in the product */

    WN_DEVICE_FN gather_loads of(const struct wn__conv_job &j, const struct wn__conv_tile &t)
    {
        gather_loads l;
        const int64_t column = t.column + threadIdx.x / 16;
        WN_UNROLL
        for (int r = 0; r < R; r++) l.source[r] = wn__conv_source_of(j, t, t.row + threadIdx.x / 16 + 16 * r);
        l.weight = (const T *)j.weight + (t.group * j.c.columns + column) * j.c.terms;
        l.columns = column < j.c.columns ? (int)((j.c.columns - column + 15) / 16) : 0;
        return l;
    }

    template <class N>
    __device__ __forceinline__ void load(const struct wn__conv_job &j, const struct wn__conv_tile &t, int first,
                                         wn__tile<N, R> &to) const
    {
        const int at = (int)threadIdx.x % 16, i = (int)threadIdx.x / 16;
        if (first + at >= t.terms) return; /* steps behind the last term are not multiplied */
        const struct wn__conv_term k = wn__conv_term_of(j, t, first + at);
        WN_UNROLL
        for (int r = 0; r < R; r++) {
            const int64_t from = wn__conv_read(j, source[r], k);
            to.a[at][i + 16 * r] = from < 0 ? (N)0 : wn__load(((const T *)j.x)[from]);
            to.b[at][i + 16 * r] = r < columns ? wn__load(weight[16 * r * j.c.terms + k.column]) : (N)0;
        }
    }
};

/* Finishes and stores the outputs of a thread, R x R of a tile. The loops are not unrolled, since an op over an output
 * is long; a row and an output of it are selected, so that sums stay in registers. */
template <class T, int R, bool IS_MAP>
static __device__ __forceinline__ void store_tile(const struct wn__conv_job &j, const struct wn__conv_tile &t,
                                                  const typename wn__number<T>::type (&sum)[R][R])
{
    typedef typename wn__number<T>::type N;
    const int64_t column = t.column + wn__tile_column(R), o = t.group * j.c.columns + column;
    WN_ROLLED
    for (int r = 0; r < R; r++) {
        const int64_t row = t.row + wn__tile_row(R) + r;
        if (row >= t.rows || column >= j.c.columns) return;
        const int64_t element = wn__conv_element(j, t, row) + column;
        N line[R], one[1];
        WN_UNROLL
        for (int i = 0; i < R * R; i++)
            if (i / R == r) line[i % R] = sum[i / R][i % R];
        if (j.c.columns % R == 0) { /* R outputs are one store */
            wn__conv_put<T, R, IS_MAP>(j, element, o, line);
            continue;
        }
        WN_ROLLED
        for (int s = 0; s < R && column + s < j.c.columns; s++) {
            WN_UNROLL
            for (int i = 0; i < R; i++)
                if (i == s) one[0] = line[i];
            wn__conv_put<T, 1, IS_MAP>(j, element + s, o + s, one);
        }
    }
}

template <class T, int R, bool IS_MAP>
static __global__ void __launch_bounds__(256, IS_MAP ? 1 : 2) gather_tiles(struct wn__conv_job j)
{
    typedef typename wn__number<T>::type N;
    typedef wn__tile<N, R> tile;
    __shared__ tile shared;
    const struct wn__conv_tile t = wn__conv_tile_of(j, tile::SIZE);
    if (t.row >= t.rows) return;
    const gather_loads<T, R> loads = gather_loads<T, R>::of(j, t);
    N sum[R][R];
    WN_UNROLL
    for (int e = 0; e < R * R; e++) sum[e / R][e % R] = (N)0;
    for (int k = 0; k < t.terms; k += tile::STEP) {
        loads.load(j, t, k, shared);
        __syncthreads();
        wn__tile_multiply<N, R>(shared, t.terms - k < tile::STEP ? t.terms - k : (int)tile::STEP, sum);
        __syncthreads();
    }
    store_tile<T, R, IS_MAP>(j, t, sum);
}

/* ---- CONV2D_DW: terms are pixels ------------------------------------------------------------------------------ */

/* The loads of a thread: of each step R pixels, of one row, an output, and of one column, an input at a place. */
template <class T, int R> struct weight_loads {
    enum { SIZE = 16 * R, APART = 256 / SIZE }; /* APART: from one of its pixels to the next */
    const T *dy, *x;                            /* of the row and the column at pixel 0, or NULL behind the last */
    int place[2];                               /* of the column, from the first place of the kernel */

    WN_DEVICE_FN weight_loads of(const struct wn__conv_job &j, const struct wn__conv_taps (&taps)[2], int64_t group,
                                 int64_t row, int64_t column)
    {
        weight_loads l = {NULL, NULL, {0, 0}};
        row += threadIdx.x % SIZE;
        column += threadIdx.x % SIZE;
        if (row < j.c.co) l.dy = (const T *)j.dy + group * j.c.co + row;
        if (column >= j.c.columns) return l;
        const int64_t place = wn__quotient(column, j.c.ci), i = column - place * j.c.ci;
        l.x = (const T *)j.x + group * j.c.ci + i;
        l.place[0] = (int)wn__quotient(place, j.c.w.kernel[1]);
        l.place[1] = (int)(place - l.place[0] * j.c.w.kernel[1]);
        for (int k = 0; k < 2; k++) l.place[k] = l.place[k] * taps[k].apart + taps[k].origin;
        return l;
    }

    template <class N>
    __device__ __forceinline__ void load(const struct wn__conv_job &j, const struct wn__conv_taps (&taps)[2], int first,
                                         int end, wn__tile<N, R> &to) const
    {
        const int i = (int)threadIdx.x % SIZE;
        WN_UNROLL
        for (int r = 0; r < R; r++) {
            const int at = (int)threadIdx.x / SIZE + r * APART;
            const int pixel = first + at;
            if (pixel >= end) continue;
            const struct wn__conv_pixel p = wn__conv_pixel_of(taps, pixel);
            const int row = p.at[0] * taps[0].stride + place[0], left = p.at[1] * taps[1].stride + place[1];
            const bool is_in = x != NULL && row >= 0 && row < taps[0].size && left >= 0 && left < taps[1].size;
            to.a[at][i] = dy != NULL ? wn__load(dy[(int64_t)pixel * j.target.channels]) : (N)0;
            to.b[at][i] = is_in ? wn__load(x[wn__element_at(j.source, p.n, row, left, 0)]) : (N)0;
        }
    }
};

/* Block u has a tile of a part: columns fastest, then rows, groups, parts. */
template <class T, int R> static __global__ void __launch_bounds__(256, 2) weight_tiles(struct wn__conv_job j)
{
    typedef typename wn__number<T>::type N;
    typedef wn__tile<N, R> tile;
    __shared__ tile shared;
    int64_t at = blockIdx.x, across = (j.c.columns + tile::SIZE - 1) / tile::SIZE;
    const int64_t down = (j.c.rows + tile::SIZE - 1) / tile::SIZE, first_column = at % across * tile::SIZE;
    at /= across;
    const int64_t first_row = at % down * tile::SIZE, group = at / down % j.c.w.groups, part = at / down / j.c.w.groups;
    const struct wn__conv_taps taps[2] = {wn__conv_taps_of(j, 0, 0), wn__conv_taps_of(j, 1, 0)};
    const weight_loads<T, R> loads = weight_loads<T, R>::of(j, taps, group, first_row, first_column);
    N sum[R][R];
    WN_UNROLL
    for (int e = 0; e < R * R; e++) sum[e / R][e % R] = (N)0;
    const int end = (int)(j.c.terms * (part + 1) / j.c.parts);
    for (int k = (int)(j.c.terms * part / j.c.parts); k < end; k += tile::STEP) {
        loads.load(j, taps, k, end, shared);
        __syncthreads();
        wn__tile_multiply<N, R>(shared, end - k < tile::STEP ? end - k : (int)tile::STEP, sum);
        __syncthreads();
    }
    WN_UNROLL
    for (int e = 0; e < R * R; e++) {
        const int64_t row = first_row + wn__tile_row(R) + e / R, column = first_column + wn__tile_column(R) + e % R;
        if (row < j.c.rows && column < j.c.columns)
            wn__conv_put_weight<T>(j, part, group * j.c.co + row, column, sum[e / R][e % R]);
    }
}

/* ---- starting it ---------------------------------------------------------------------------------------------- */

/* Returns whether tiles of 64 x 64 are too few, or too empty. */
static bool is_small(const struct wn__conv &c)
{
    return c.rows <= 32 || c.columns <= 32 || wn__conv_tiles(&c) * c.parts < WN_CONV_TILE;
}

template <class T, bool IS_MAP> static void start_gather(const struct wn__conv_job &j, int64_t size, void *stream)
{
    const unsigned blocks = wn__grid(wn__conv_tiles_of(j, size));
    if (size == 16) LAUNCH((gather_tiles<T, 1, IS_MAP>), blocks, 256, 0, stream, j);
    else LAUNCH((gather_tiles<T, 4, IS_MAP>), blocks, 256, 0, stream, j);
}

template <class T> int32_t wn__conv_gemm(const struct wn__conv_job &j, void *stream)
{
    const int64_t size = is_small(j.c) ? 16 : 64;
    const int64_t weights = (j.c.rows + size - 1) / size * ((j.c.columns + size - 1) / size) * j.c.w.groups * j.c.parts;
    if (j.c.op == WN_OP_CONV2D_DW) {
        const unsigned blocks = wn__grid(weights);
        if (size == 16) LAUNCH((weight_tiles<T, 1>), blocks, 256, 0, stream, j);
        else LAUNCH((weight_tiles<T, 4>), blocks, 256, 0, stream, j);
    } else if (wn__conv_is_map(j)) {
        start_gather<T, true>(j, size, stream);
    } else {
        start_gather<T, false>(j, size, stream);
    }
    return wn__cuda_launched();
}

template int32_t wn__conv_gemm<float>(const struct wn__conv_job &j, void *stream);
template int32_t wn__conv_gemm<double>(const struct wn__conv_job &j, void *stream);
template int32_t wn__conv_gemm<wn_bf16>(const struct wn__conv_job &j, void *stream);
