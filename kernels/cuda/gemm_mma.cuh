/* Tiles of products of bf16 by tensor cores (mma.cuh), for gemm_mma.cu and conv_mma.cu: SIZE x SIZE outputs, sums in
 * f32.
 *
 *   global memory --- cp.async ---> shared memory, STAGES stages ----- ldmatrix -----> registers --- mma ---> sums
 *                                   | a (SIZE, STEP) | b (SIZE, STEP) | of a step of k   of a warp: (SIZE / 2, 32)
 *
 * A block has SIZE / 16 warps, 2 x SIZE / 32 of them over the tile. An operand lies in shared memory as in its matrix:
 * rows along k, or rows along m or n, which ldmatrix transposes. A row is in chunks of 16 bytes, and the chunks of a
 * row are permuted, so that the 8 rows that ldmatrix reads at once lie in 8 different groups of banks.
 *
 * An operand is a struct:
 *
 *     struct rows_of_a_matrix {
 *         enum { ALONG_K = 1 };                                          whether its rows are along k
 *         template <int SIZE> __device__ void load(wn_bf16 *to, int64_t k) const
 *     };                                        begins to load SIZE of m or n, of k from k on STEP, two chunks a thread
 *
 * Every output is one sum over k in steps of 16 from 0 up; the GPU adds the products of a step in an order of its own.
 * The bits therefore depend on the GPU's architecture, not on the tile, and not on the place of the output. */
#ifndef WN_CUDA_GEMM_MMA_CUH
#define WN_CUDA_GEMM_MMA_CUH
#include "map.cuh"
#include "mma.cuh"

enum {
    WN_GEMM_STEP = 32,  /* of k, that are in shared memory together */
    WN_GEMM_STAGES = 3, /* steps in shared memory: 48 KiB of tiles of 128, the most that a block has without asking */
    WN_GEMM_CHUNK = 8,  /* elements in 16 bytes */
    WN_GEMM_PAD = 8,    /* floats between the rows of sums, so that a warp writes to all banks */
    WN_GEMM_LEAST = 16, /* n and k at least; below, a fragment would be zeros for the most part */
    WN_GEMM_MANY = 128  /* tiles of 128 at least; below, tiles of 64 keep more multiprocessors of a GPU busy */
};

/* Returns the place of a chunk in shared memory, in chunks, where a row has PER_ROW. */
template <int PER_ROW> WN_DEVICE_FN int wn__gemm_place(int row, int chunk)
{
    return row * PER_ROW + (chunk ^ (PER_ROW == 4 ? row / 2 % 4 : row % 8));
}

/* Loads the 16 x 16 elements at (outer, k) of a step as a fragment: r[0] and r[2] are those of the first 8 of m or n,
 * r[1] and r[3] those of the others. */
template <int SIZE, int ALONG_K>
WN_DEVICE_FN void wn__gemm_fragment(uint32_t (&r)[4], const wn_bf16 *from, int outer, int k)
{
    const int lane = (int)threadIdx.x % 32, half = lane / 8 % 2 * 8, k_half = lane / 16 * 8;
    if constexpr (ALONG_K) {
        int place = wn__gemm_place<WN_GEMM_STEP / WN_GEMM_CHUNK>(outer + half + lane % 8, (k + k_half) / WN_GEMM_CHUNK);
        wn__ldmatrix_x4(r, from + place * WN_GEMM_CHUNK);
    } else {
        int place = wn__gemm_place<SIZE / WN_GEMM_CHUNK>(k + k_half + lane % 8, (outer + half) / WN_GEMM_CHUNK);
        wn__ldmatrix_x4_trans(r, from + place * WN_GEMM_CHUNK);
    }
}

/* The sums of a warp: (SIZE / 2, 32), in matrices of (16, 8). */
template <int SIZE> struct wn__gemm_sums {
    float d[SIZE / 32][4][4];

    __device__ __forceinline__ void clear(void)
    {
        WN_UNROLL
        for (int i = 0; i < SIZE / 32; i++) {
            WN_UNROLL
            for (int e = 0; e < 16; e++) d[i][e / 4][e % 4] = 0;
        }
    }
};

/* A block's way over k. */
template <int SIZE, class A, class B> struct wn__gemm_walk {
    A a;
    B b;
    int64_t first; /* of k */
    int steps;
    wn_bf16 *shared; /* (STAGES, 2, SIZE, STEP) */

    __device__ __forceinline__ wn_bf16 *stage(int step) const
    {
        return shared + step % WN_GEMM_STAGES * (2 * SIZE * WN_GEMM_STEP);
    }

    /* Begins to load a step, as one group of copies; an empty one beyond the last. */
    __device__ __forceinline__ void load(int step) const
    {
        if (step < steps) {
            a.template load<SIZE>(stage(step), first + (int64_t)step * WN_GEMM_STEP);
            b.template load<SIZE>(stage(step) + SIZE * WN_GEMM_STEP, first + (int64_t)step * WN_GEMM_STEP);
        }
        wn__cp_async_commit();
    }

    /* Adds the products of a step that is in shared memory. */
    __device__ __forceinline__ void add(int step, wn__gemm_sums<SIZE> &sum) const
    {
        const int warp = (int)threadIdx.x / 32, across = SIZE / 32;
        const int row = warp / across * (SIZE / 2), column = warp % across * 32;
        const wn_bf16 *from = stage(step);
        WN_UNROLL
        for (int k = 0; k < WN_GEMM_STEP; k += 16) {
            uint32_t x[SIZE / 32][4], y[2][4];
            WN_UNROLL
            for (int i = 0; i < SIZE / 32; i++) wn__gemm_fragment<SIZE, A::ALONG_K>(x[i], from, row + 16 * i, k);
            WN_UNROLL
            for (int j = 0; j < 2; j++)
                wn__gemm_fragment<SIZE, B::ALONG_K>(y[j], from + SIZE * WN_GEMM_STEP, column + 16 * j, k);
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
    __device__ __forceinline__ void run(wn__gemm_sums<SIZE> &sum) const
    {
        WN_UNROLL
        for (int step = 0; step < WN_GEMM_STAGES - 1; step++) load(step);
        for (int step = 0; step < steps; step++) {
            wn__cp_async_wait<WN_GEMM_STAGES - 2>();
            __syncthreads();
            load(step + WN_GEMM_STAGES - 1);
            add(step, sum);
        }
    }
};

/* ---- storing them ----------------------------------------------------------------------------------------------- */

/* Returns the bytes of shared memory of a block. */
template <int SIZE> static inline size_t wn__gemm_shared(void)
{
    static_assert(WN_GEMM_STAGES * 2 * SIZE * WN_GEMM_STEP * 2 >= SIZE / 2 * (SIZE + WN_GEMM_PAD) * 4,
                  "sums fit where the stages were");
    return (size_t)WN_GEMM_STAGES * 2 * SIZE * WN_GEMM_STEP * sizeof(wn_bf16);
}

/* Writes the sums of the calling thread to shared: (SIZE / 2, SIZE), rows SIZE + PAD apart. */
template <int SIZE> WN_DEVICE_FN void wn__gemm_share(float *shared, const wn__gemm_sums<SIZE> &sum)
{
    const int lane = (int)threadIdx.x % 32, column = (int)threadIdx.x / 32 % (SIZE / 32) * 32;
    WN_UNROLL
    for (int i = 0; i < SIZE / 32; i++) {
        WN_UNROLL
        for (int e = 0; e < 8; e++) {
            int j = e / 2, d = e % 2 * 2, row = 16 * i + 4 * d + lane / 4;
            float2 *to = (float2 *)(shared + row * (SIZE + WN_GEMM_PAD) + column + 8 * j + lane % 4 * 2);
            *to = make_float2(sum.d[i][j][d], sum.d[i][j][d + 1]);
        }
    }
}

/* Round outputs and store them. */
WN_DEVICE_FN void wn__gemm_put(wn_bf16 *to, const float (&x)[1])
{
    *to = wn__store<wn_bf16>(x[0]);
}
WN_DEVICE_FN void wn__gemm_put(wn_bf16 *to, const float (&x)[WN_GEMM_CHUNK])
{
    uint32_t word[WN_GEMM_CHUNK / 2];
    WN_UNROLL
    for (int v = 0; v < WN_GEMM_CHUNK / 2; v++)
        word[v] = wn__store<wn_bf16>(x[2 * v]).bits | (uint32_t)wn__store<wn_bf16>(x[2 * v + 1]).bits << 16;
    wn__store16(to, word);
}

/* Gives out the outputs whose sums are in shared: (SIZE / 2, SIZE), rows SIZE + PAD apart, from row `first` of the tile
 * on; V in a row a thread. out: see wn__gemm_tile_store. */
template <int SIZE, int V, class F> WN_DEVICE_FN void wn__gemm_half_store(const F &out, int first, const float *shared)
{
    const int per_row = SIZE / V, by = V < 4 ? V : 4; /* by: floats in 16 bytes, or one */
    WN_ROLLED
    for (int e = (int)threadIdx.x; e < SIZE / 2 * per_row; e += 2 * SIZE) {
        int row = e / per_row, column = e % per_row * V;
        if (first + row >= out.rows || column >= out.columns) continue;
        const wn__pack<float, by> *from = (const wn__pack<float, by> *)(shared + row * (SIZE + WN_GEMM_PAD) + column);
        float sum[V];
        WN_UNROLL
        for (int v = 0; v < V; v++) sum[v] = from[v / by].at[v % by];
        out.put(first + row, column, sum);
    }
}

/* Stores a tile. Its halves go through shared memory one after the other, so that a thread stores 16 bytes at once.
 * out: a struct with the rows and columns from the first of the tile to the end of the matrix; is_wide, whether chunks
 * of a row are stored at once; and put(row, column, sum) for 1 and for CHUNK numbers, from (row, column) of the tile
 * on. F::CHUNKS: whether is_wide may be true. */
template <int SIZE, class F>
WN_DEVICE_FN void wn__gemm_tile_store(const F &out, const wn__gemm_sums<SIZE> &sum, float *shared)
{
    WN_ROLLED
    for (int half = 0; half < 2; half++) {
        __syncthreads();
        if ((int)threadIdx.x / SIZE == half) wn__gemm_share<SIZE>(shared, sum);
        __syncthreads();
        if constexpr (F::CHUNKS) {
            if (out.is_wide) {
                wn__gemm_half_store<SIZE, WN_GEMM_CHUNK>(out, half * (SIZE / 2), shared);
                continue;
            }
        }
        wn__gemm_half_store<SIZE, 1>(out, half * (SIZE / 2), shared);
    }
}
#endif
