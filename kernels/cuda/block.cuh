/* Sums and maxima over the rows of a value, by the threads of a block, in one fixed order: the CPU's (kernels/sums.h),
 * so that sums have the CPU's bits.
 *
 * A row is summed by 16 threads, half a warp: thread j adds the elements j, j + 16, j + 32 and so on in double, and the
 * 16 sums are added in order, from 0. A column is summed by one thread, row after row.
 *
 *     warp     | threads 0 .. 15: row r | threads 16 .. 31: row r + 1 |
 *
 * Both halves of a warp take part in every shuffle, so a half without a row goes through the same steps over no
 * elements. */
#ifndef WN_CUDA_BLOCK_CUH
#define WN_CUDA_BLOCK_CUH
#include "scalar.cuh"

/* The row that a thread works on with 15 others. */
struct wn__lane {
    int64_t row; /* 0 where is_real is false: an address to be formed, not to be read */
    int j;       /* the lane */
    bool is_real;
};

static __device__ __forceinline__ struct wn__lane wn__lane_of(int64_t rows)
{
    int64_t row = wn__thread() / WN_LANES;
    struct wn__lane l = {row < rows ? row : 0, (int)(threadIdx.x % WN_LANES), row < rows};
    return l;
}

/* Returns the blocks of WN_THREADS that `rows` rows need. */
static inline unsigned wn__row_blocks(int64_t rows)
{
    return wn__blocks(rows * WN_LANES, WN_THREADS);
}

/* Returns 0 + lane 0 + lane 1 + .. + lane 15, added in this order, to each of the 16 threads. A: double, or the 64 bits
 * of a sum of integers. */
template <class A> static __device__ __forceinline__ A wn__join_lanes(A lane)
{
    A sum = 0;
    WN_UNROLL
    for (int k = 0; k < WN_LANES; k++) sum += __shfl_sync(0xffffffffu, lane, k, WN_LANES);
    return sum;
}

/* Returns the greatest of the numbers of 16 neighbouring threads, NaN where one is NaN, to each. Of 0 and -0 it may be
 * either. */
template <class N> static __device__ __forceinline__ N wn__max_lanes(N value)
{
    for (int w = WN_LANES / 2; w > 0; w /= 2)
        value = wn_maximum(__shfl_xor_sync(0xffffffffu, value, w, WN_LANES), value);
    return value;
}

/* ---- columns ------------------------------------------------------------------------------------- */

enum { WN_TILE_COLUMNS = 32, WN_TILE_WARPS = WN_THREADS / 32, WN_TILE_ROWS = 64 };

/* Returns, to the first warp of a block of WN_THREADS, the sum of each of 32 columns over rows [begin, end), added row
 * after row in double, from 0; thread t has column t. term(row, lane) is the term of a row in column `lane`, which any
 * warp may compute: terms go through shared memory, tile by tile, so that all 256 threads wait for memory at once.
 *
 *     tile     (64 rows, 32 columns); while the first warp adds one, the others fill the other */
template <class N, class F>
static __device__ __forceinline__ double wn__sum_columns(int64_t begin, int64_t end, const F &term)
{
    __shared__ N tile[2][WN_TILE_ROWS][WN_TILE_COLUMNS];
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    double sum = 0;
    int side = 0;
    for (int64_t base = begin; base < end; base += WN_TILE_ROWS, side ^= 1) {
        WN_UNROLL
        for (int k = 0; k < WN_TILE_ROWS / WN_TILE_WARPS; k++) {
            int at = k * WN_TILE_WARPS + warp;
            tile[side][at][lane] = base + at < end ? term(base + at, lane) : (N)0; /* no sum is -0, so 0 changes none */
        }
        __syncthreads();
        if (warp == 0)
            for (int k = 0; k < WN_TILE_ROWS; k++) sum += (double)tile[side][k][lane];
    }
    return sum;
}
#endif
