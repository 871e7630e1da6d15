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

enum { WN_TILE_COLUMNS = 32, WN_TILE_ROWS = 64 };

/* Returns the first of the V columns of a tile that the calling thread loads. */
template <int V> static __device__ __forceinline__ int wn__tile_column(void)
{
    return (int)threadIdx.x % (WN_TILE_COLUMNS / V) * V;
}

/* Returns, to warp s < SUMS of a block of WN_THREADS, sum s of each of 32 columns over rows [begin, end), added row
 * after row in double, from 0; thread t of the warp has column t. A thread loads V neighbouring columns of a row at
 * once, from wn__tile_column<V>() on:
 *
 *     struct terms {
 *         typedef .. raw;                                                  what is loaded of a row
 *         __device__ raw load(int64_t row) const;                          of a row in [begin, end)
 *         __device__ void of(const raw &r, double (&to)[SUMS][V]) const;   the terms of the sums
 *     };
 *
 * Columns that are not there are loaded as if they were (terms clamps them) and their sums are not read.
 *
 *     tile     (2, SUMS, 64 / SUMS rows, 32 columns); while one is added, the other is filled
 *
 * The loads of the next two tiles are on their way, in registers, while a tile is added, so that the row of additions
 * alone takes time. All threads convert terms to double, because the unit that does it takes 8 cycles for a warp, and
 * the warps that add lie on the same quarter of a multiprocessor in each block. Pairs of doubles, V = 2, are stored
 * without conflicts of banks. */
template <int SUMS, int V, class F>
static __device__ __forceinline__ double wn__sum_columns(int64_t begin, int64_t end, const F &terms)
{
    enum { ROWS = WN_TILE_ROWS / SUMS, STEP = WN_THREADS / (WN_TILE_COLUMNS / V), EACH = ROWS / STEP };
    __shared__ __align__(16) double tile[2][SUMS][ROWS][WN_TILE_COLUMNS];
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    const int first = (int)threadIdx.x / (WN_TILE_COLUMNS / V), column = wn__tile_column<V>();
    typename F::raw ahead[2][EACH] = {};
    /* Loads the rows of a tile that the thread fills; rows behind the last are read as the last. */
    auto load = [&](typename F::raw(&to)[EACH], int64_t base) {
        if (base >= end) return;
        WN_UNROLL
        for (int k = 0; k < EACH; k++) {
            const int64_t row = base + first + k * STEP;
            to[k] = terms.load(row < end ? row : end - 1);
        }
    };
    load(ahead[0], begin);
    load(ahead[1], begin + ROWS);
    double sum = 0;
    for (int64_t pair = begin; pair < end; pair += 2 * ROWS) {
        WN_UNROLL
        for (int side = 0; side < 2; side++) {
            const int64_t base = pair + side * ROWS;
            if (base >= end) break;
            WN_UNROLL
            for (int k = 0; k < EACH; k++) {
                const int row = first + k * STEP;
                double to[SUMS][V];
                terms.of(ahead[side][k], to);
                WN_UNROLL
                for (int s = 0; s < SUMS; s++) {
                    wn__pack<double, V> p;
                    WN_UNROLL
                    for (int v = 0; v < V; v++)
                        p.at[v] = base + row < end ? to[s][v] : 0; /* no sum is -0: changes none */
                    *(wn__pack<double, V> *)&tile[side][s][row][column] = p;
                }
            }
            __syncthreads();
            load(ahead[side], base + 2 * ROWS);
            if (warp < SUMS) {
                WN_UNROLL
                for (int k = 0; k < ROWS; k++) sum += tile[side][warp][k][lane];
            }
        }
    }
    return sum;
}
#endif
