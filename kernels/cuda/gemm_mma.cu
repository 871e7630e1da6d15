/* MATMUL, LINEAR, MATMUL_MAP, LINEAR_MAP of bf16 by tensor cores (mma.cuh): tiles of SIZE x SIZE outputs, sums in f32,
 * rounded once; bias and epilogue as in gemm.cu (gemm_store.cuh).
 *
 *   global memory --- cp.async ---> shared memory, STAGES stages ----- ldmatrix -----> registers --- mma ---> sums
 *                                   | a (SIZE, STEP) | b (SIZE, STEP) | of a step of k   of a warp: (SIZE / 2, 32)
 *
 * A block has SIZE / 16 warps, 2 x SIZE / 32 of them over the tile. An operand lies in shared memory as in its matrix:
 * rows along k, or rows along m or n, which ldmatrix transposes. A row is in chunks of 16 bytes, and the chunks of a
 * row are permuted, so that the 8 rows that ldmatrix reads at once lie in 8 different groups of banks.
 *
 * Every output is one sum over k in steps of 16 from 0 up; the GPU adds the products of a step in an order of its own.
 * The bits therefore depend on the GPU's architecture, not on the tile, and not on the place of the output. Which
 * products come here depends on n and k alone: a row has the same bits among many rows and among few. */
#include "gemm_store.cuh"
#include "mma.cuh"

enum {
    STEP = 32,  /* of k, that are in shared memory together */
    STAGES = 3, /* steps in shared memory: 48 KiB of tiles of 128, the most that a block has without asking */
    CHUNK = 8,  /* elements in 16 bytes */
    PAD = 8,    /* floats between the rows of sums, so that a warp writes to all banks */
    BAND = 8,   /* rows of tiles that blocks share columns of b over while these are in the cache of the GPU */
    LEAST = 16, /* n and k at least; below, a fragment would be zeros for the most part */
    MANY = 128  /* tiles of 128 at least; below, tiles of 64 keep more multiprocessors of a GPU busy */
};

/* An operand as it lies in memory: rows x columns, dense. */
struct mma_operand {
    const wn_bf16 *x;
    int64_t rows, columns;
};

/* Returns the place of a chunk in shared memory, in chunks, where a row has PER_ROW. */
template <int PER_ROW> WN_DEVICE_FN int chunk_place(int row, int chunk)
{
    return row * PER_ROW + (chunk ^ (PER_ROW == 4 ? row / 2 % 4 : row % 8));
}

/* Begins to load a chunk of which `left` elements are in the matrix, the rest zeros. A chunk that is not on 16 bytes is
 * loaded one by one. */
WN_DEVICE_FN void chunk_load(wn_bf16 *to, const wn_bf16 *from, int64_t left, bool is_aligned)
{
    if (is_aligned && left >= CHUNK) {
        wn__cp_async16(to, from);
        return;
    }
    wn__pack<wn_bf16, CHUNK> p;
    WN_UNROLL
    for (int v = 0; v < CHUNK; v++) {
        p.at[v].bits = 0;
        if (v < left) p.at[v] = from[v];
    }
    *(wn__pack<wn_bf16, CHUNK> *)to = p;
}

/* Begins to load ROWS x COLUMNS elements from (row, column) on. Every thread loads two chunks. */
template <int ROWS, int COLUMNS>
WN_DEVICE_FN void operand_load(wn_bf16 *to, const mma_operand &o, int64_t row, int64_t column)
{
    const int per_row = COLUMNS / CHUNK, threads = ROWS * per_row / 2;
    WN_UNROLL
    for (int c = 0; c < 2; c++) {
        int e = (int)threadIdx.x + c * threads, i = e / per_row, chunk = e % per_row;
        int64_t at = column + chunk * CHUNK;
        chunk_load(to + chunk_place<per_row>(i, chunk) * CHUNK, o.x + (row + i) * o.columns + at,
                   row + i < o.rows ? o.columns - at : 0, o.columns % CHUNK == 0);
    }
}

/* Begins to load a step of an operand: SIZE of its m or n from `outer` on, STEP of its k. ALONG_K: its rows are along
 * k. */
template <int SIZE, int ALONG_K>
WN_DEVICE_FN void operand_step(wn_bf16 *to, const mma_operand &o, int64_t outer, int64_t k)
{
    if constexpr (ALONG_K) operand_load<SIZE, STEP>(to, o, outer, k);
    else operand_load<STEP, SIZE>(to, o, k, outer);
}

/* Loads the 16 x 16 elements at (outer, k) of a step as a fragment: r[0] and r[2] are those of the first 8 of m or n,
 * r[1] and r[3] those of the others. */
template <int SIZE, int ALONG_K> WN_DEVICE_FN void fragment(uint32_t (&r)[4], const wn_bf16 *from, int outer, int k)
{
    const int lane = (int)threadIdx.x % 32, half = lane / 8 % 2 * 8, k_half = lane / 16 * 8;
    if constexpr (ALONG_K) {
        int place = chunk_place<STEP / CHUNK>(outer + half + lane % 8, (k + k_half) / CHUNK);
        wn__ldmatrix_x4(r, from + place * CHUNK);
    } else {
        int place = chunk_place<SIZE / CHUNK>(k + k_half + lane % 8, (outer + half) / CHUNK);
        wn__ldmatrix_x4_trans(r, from + place * CHUNK);
    }
}

/* The sums of a warp: (SIZE / 2, 32), in matrices of (16, 8). */
template <int SIZE> struct mma_sums {
    float d[SIZE / 32][4][4];
};

/* A block's way over k. */
template <int SIZE, int A_K, int B_K> struct mma_walk {
    mma_operand a, b;
    int64_t row, column; /* of the tile */
    int steps;
    wn_bf16 *shared; /* (STAGES, 2, SIZE, STEP) */

    __device__ __forceinline__ wn_bf16 *stage(int step) const
    {
        return shared + step % STAGES * (2 * SIZE * STEP);
    }

    /* Begins to load a step, as one group of copies; an empty one beyond the last. */
    __device__ __forceinline__ void load(int step) const
    {
        if (step < steps) {
            operand_step<SIZE, A_K>(stage(step), a, row, (int64_t)step * STEP);
            operand_step<SIZE, B_K>(stage(step) + SIZE * STEP, b, column, (int64_t)step * STEP);
        }
        wn__cp_async_commit();
    }

    /* Adds the products of a step that is in shared memory. */
    __device__ __forceinline__ void add(int step, mma_sums<SIZE> &sum) const
    {
        const int warp = (int)threadIdx.x / 32, across = SIZE / 32;
        const wn_bf16 *from = stage(step);
        WN_UNROLL
        for (int k = 0; k < STEP; k += 16) {
            uint32_t x[SIZE / 32][4], y[2][4];
            WN_UNROLL
            for (int i = 0; i < SIZE / 32; i++) fragment<SIZE, A_K>(x[i], from, warp / across * (SIZE / 2) + 16 * i, k);
            WN_UNROLL
            for (int j = 0; j < 2; j++) fragment<SIZE, B_K>(y[j], from + SIZE * STEP, warp % across * 32 + 16 * j, k);
            WN_UNROLL
            for (int i = 0; i < SIZE / 32; i++) {
                WN_UNROLL
                for (int j = 0; j < 4; j++) {
                    const uint32_t right[2] = {y[j / 2][j % 2], y[j / 2][j % 2 + 2]};
                    wn__mma_bf16_16816(sum.d[i][j], x[i], right);
                }
            }
        }
    }

    /* Computes all sums. The barrier of a step is behind the last read of the stage that is loaded next. */
    __device__ __forceinline__ void run(mma_sums<SIZE> &sum) const
    {
        WN_UNROLL
        for (int step = 0; step < STAGES - 1; step++) load(step);
        for (int step = 0; step < steps; step++) {
            wn__cp_async_wait<STAGES - 2>();
            __syncthreads();
            load(step + STAGES - 1);
            add(step, sum);
        }
    }
};

/* ---- storing them ----------------------------------------------------------------------------------------------- */

/* Writes the sums of the calling thread to shared: (SIZE / 2, SIZE), rows SIZE + PAD apart. */
template <int SIZE> WN_DEVICE_FN void sums_share(float *shared, const mma_sums<SIZE> &sum)
{
    const int lane = (int)threadIdx.x % 32, column = (int)threadIdx.x / 32 % (SIZE / 32) * 32;
    WN_UNROLL
    for (int i = 0; i < SIZE / 32; i++) {
        WN_UNROLL
        for (int e = 0; e < 8; e++) {
            int j = e / 2, d = e % 2 * 2, row = 16 * i + 4 * d + lane / 4;
            float2 *to = (float2 *)(shared + row * (SIZE + PAD) + column + 8 * j + lane % 4 * 2);
            *to = make_float2(sum.d[i][j][d], sum.d[i][j][d + 1]);
        }
    }
}

/* Round outputs and store them. */
WN_DEVICE_FN void numbers_store(wn_bf16 *to, const float (&x)[1])
{
    *to = wn__store<wn_bf16>(x[0]);
}
WN_DEVICE_FN void numbers_store(wn_bf16 *to, const float (&x)[CHUNK])
{
    uint32_t word[CHUNK / 2];
    WN_UNROLL
    for (int v = 0; v < CHUNK / 2; v++)
        word[v] = wn__store<wn_bf16>(x[2 * v]).bits | (uint32_t)wn__store<wn_bf16>(x[2 * v + 1]).bits << 16;
    wn__store16(to, word);
}

/* Stores the outputs whose sums are in shared: (SIZE / 2, SIZE), rows SIZE + PAD apart, from `tile` on; V in a row a
 * thread. */
template <int SIZE, int V>
WN_DEVICE_FN void shared_store(const struct wn__gemm_job &w, const wn__tile_place &tile, const float *shared)
{
    const int per_row = SIZE / V, by = V < 4 ? V : 4; /* by: floats in 16 bytes, or one */
    WN_ROLLED
    for (int e = (int)threadIdx.x; e < SIZE / 2 * per_row; e += 2 * SIZE) {
        int row = e / per_row, column = e % per_row * V;
        wn__tile_place at = {tile.batch, tile.row + row, tile.column + column};
        if (at.row >= w.p.m || at.column >= w.p.n) continue;
        const wn__pack<float, by> *from = (const wn__pack<float, by> *)(shared + row * (SIZE + PAD) + column);
        float sum[V];
        WN_UNROLL
        for (int v = 0; v < V; v++) sum[v] = from[v / by].at[v % by];
        wn__gemm_finish<wn_bf16, V>(w, at, sum);
        numbers_store((wn_bf16 *)w.c + wn__gemm_element(w, at), sum);
    }
}

/* Stores a tile. Its halves go through shared memory one after the other, so that a thread stores 16 bytes at once. */
template <int SIZE>
WN_DEVICE_FN void tile_store(const struct wn__gemm_job &w, wn__tile_place tile, const mma_sums<SIZE> &sum,
                             float *shared)
{
    WN_ROLLED
    for (int half = 0; half < 2; half++) {
        __syncthreads();
        if ((int)threadIdx.x / SIZE == half) sums_share<SIZE>(shared, sum);
        __syncthreads();
        if (w.p.n % CHUNK == 0) shared_store<SIZE, CHUNK>(w, tile, shared);
        else shared_store<SIZE, 1>(w, tile, shared);
        tile.row += SIZE / 2;
    }
}

/* ---- the kernel ------------------------------------------------------------------------------------------------- */

/* Returns the place of the calling block's tile: blocks go down BAND rows of tiles, then to the next column. */
WN_DEVICE_FN wn__tile_place tile_in_band(const struct wn__product &p, int size)
{
    int64_t across = (p.n + size - 1) / size, down = (p.m + size - 1) / size, at = blockIdx.x % (across * down);
    int64_t band = at / (across * BAND) * BAND, rows = down - band < BAND ? down - band : (int64_t)BAND;
    at -= band * across;
    wn__tile_place t = {blockIdx.x / (across * down), (band + at % rows) * size, at / rows * size};
    return t;
}

template <int SIZE, int A_K, int B_K>
static __global__ void __launch_bounds__(2 * SIZE, 256 / SIZE) multiply_mma(struct wn__gemm_job w)
{
    DYN_SHARED(wn_bf16, shared);
    const struct wn__product &p = w.p;
    mma_sums<SIZE> sum;
    wn__tile_place tile = tile_in_band(p, SIZE);
    int64_t matrix[2] = {0, 0};
    if (p.batch > 1) wn__broadcast_offsets(p.lead, tile.batch, matrix);
    const wn_bf16 *a = (const wn_bf16 *)p.a + matrix[0] * p.m * p.k, *b = (const wn_bf16 *)p.b + matrix[1] * p.n * p.k;
    WN_UNROLL
    for (int i = 0; i < SIZE / 32; i++) {
        WN_UNROLL
        for (int e = 0; e < 16; e++) sum.d[i][e / 4][e % 4] = 0;
    }
    mma_walk<SIZE, A_K, B_K> walk = {{a, A_K ? p.m : p.k, A_K ? p.k : p.m},
                                     {b, B_K ? p.n : p.k, B_K ? p.k : p.n},
                                     tile.row,
                                     tile.column,
                                     (int)((p.k + STEP - 1) / STEP),
                                     shared};
    walk.run(sum);
    tile_store<SIZE>(w, tile, sum, (float *)shared);
}

template <int SIZE, int A_K, int B_K> static int32_t start_tiles(const struct wn__gemm_job &w, void *stream)
{
    const size_t stages = (size_t)STAGES * 2 * SIZE * STEP * sizeof(wn_bf16);
    static_assert(STAGES * 2 * SIZE * STEP * 2 >= SIZE / 2 * (SIZE + PAD) * 4, "sums fit where the stages were");
    LAUNCH((multiply_mma<SIZE, A_K, B_K>), wn__grid(wn__tiles(&w.p, SIZE)), 2 * SIZE, stages, stream, w);
    return wn__cuda_launched();
}

/* A_K, B_K: whether the rows of a and of b are along k. */
template <int A_K, int B_K> static int32_t start(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    struct wn__gemm_job w = wn__gemm_job_of(d, b);
    if (wn__numel(&d->out) == 0) return WN_OK;
    if (b->made != NULL) return wn__cublaslt_run(d, b, stream);
    if (w.p.m <= 64 || w.p.n <= 64 || wn__tiles(&w.p, 128) < MANY) return start_tiles<64, A_K, B_K>(w, stream);
    return start_tiles<128, A_K, B_K>(w, stream);
}

wn_kernel_fn wn__cuda_matmul_mma_kernel(const struct wn_desc *d)
{
    const void *nowhere[2] = {NULL, NULL};
    struct wn_buffers b;
    memset(&b, 0, sizeof b);
    b.in = nowhere;
    struct wn__product p = wn__product_of(d, &b);
    if (!wn__has_tensor_cores()) return NULL;
    if (p.n < LEAST || p.k < LEAST) return NULL;
    if (p.ak == 1) return p.bk == 1 ? start<1, 1> : start<1, 0>;
    return p.bk == 1 ? start<0, 1> : start<0, 0>;
}
