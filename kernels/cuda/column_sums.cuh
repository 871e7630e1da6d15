/* Sums of columns of bf16 whose rows lie evenly apart, on 16 bytes: each column of a piece is added by one thread, row
 * after row in double, from 0, as wn__sum_columns of block.cuh does. Rows wait in shared memory as bf16, a quarter of
 * the bytes of doubles, and the threads that add convert them:
 *
 *     tile     (WN_SUM_STAGES, 64 rows, 64 columns) bf16; one stage is added while the others are filled
 *     thread   of 64: adds one column, and copies chunks of 8 columns, 16 bytes each
 *
 * The two warps of a block convert and add alike, so that the unit which converts to double, 8 cycles for a warp, is
 * busy on every quarter of a multiprocessor.
 *
 * Predicted: 80 % of the rate of copies from 3,072 columns on, 60 to 70 % at 768, where the chains of additions are too
 * few to hide their latency. Counted in SASS: 5.2 instructions for a row of 32 columns, copies included. */
#ifndef WN_CUDA_COLUMN_SUMS_CUH
#define WN_CUDA_COLUMN_SUMS_CUH
#include "broadcast.cuh"
#include "mma.cuh"

enum { WN_SUM_TILE = 64, WN_SUM_STAGES = 4, WN_SUM_CHUNK = 8 };

/* The sums of one value. */
struct wn__column_sums {
    const struct wn__broadcast &kept; /* places of the columns in x */
    const wn_bf16 *x;
    int64_t step, columns; /* step: elements from a row to the next */
};

/* A stage: rows of columns side by side. */
struct wn__column_tile {
    wn_bf16 at[WN_SUM_TILE][WN_SUM_TILE];
};

/* Returns whether every chunk of columns lies on 16 bytes in every row. step: elements from a row to the next. */
static inline bool wn__column_sums_fit(const struct wn__broadcast &kept, int64_t step)
{
    int64_t odd = step | kept.dim[kept.ndim - 1];
    for (int32_t i = 0; i < kept.ndim - 1; i++) odd |= kept.step[0][i];
    return odd % WN_SUM_CHUNK == 0 && kept.step[0][kept.ndim - 1] == 1;
}

/* Begins to copy a stage: the first `left` rows of a chunk, and zeros behind them. from: the chunk in the first row. */
WN_DEVICE_FN void wn__column_sums_copy(const struct wn__column_sums &s, struct wn__column_tile &to, const wn_bf16 *from,
                                       int64_t left)
{
    enum { ACROSS = WN_SUM_TILE / WN_SUM_CHUNK, EACH = ACROSS };
    const int first = (int)threadIdx.x / ACROSS, column = (int)threadIdx.x % ACROSS * WN_SUM_CHUNK;
    const int rows = left < WN_SUM_TILE ? (int)left : (int)WN_SUM_TILE;
    WN_UNROLL
    for (int k = 0; k < EACH; k++) {
        const bool is_real = first + k * ACROSS < rows;
        wn__cp_async16_or_zeros(&to.at[first + k * ACROSS][column], is_real ? from : s.x, is_real);
        from += ACROSS * s.step;
    }
    wn__cp_async_commit();
}

/* Returns the sum of a column over rows [begin, end): column threadIdx.x of a tile whose first column is `first`. Zeros
 * that are added behind the end change no sum, since none is -0. */
WN_DEVICE_FN double wn__column_sum(const struct wn__column_sums &s, int64_t first, int64_t begin, int64_t end)
{
    enum { ACROSS = WN_SUM_TILE / WN_SUM_CHUNK, AHEAD = WN_SUM_STAGES - 1 };
    __shared__ __align__(16) struct wn__column_tile tile[WN_SUM_STAGES];
    const int64_t chunk = first + (int)threadIdx.x % ACROSS * WN_SUM_CHUNK, step = WN_SUM_TILE * s.step;
    int64_t left = chunk < s.columns ? end - begin : 0, offset[1];
    wn__broadcast_offsets(s.kept, left > 0 ? chunk : 0, offset);
    const wn_bf16 *from = s.x + offset[0] + (begin + (int)threadIdx.x / ACROSS) * s.step;
    WN_UNROLL
    for (int k = 0; k < AHEAD; k++, from += step, left -= WN_SUM_TILE) wn__column_sums_copy(s, tile[k], from, left);
    double sum = 0;
    int at = 0, next = AHEAD;
    for (int64_t row = begin; row < end; row += WN_SUM_TILE, from += step, left -= WN_SUM_TILE) {
        wn__cp_async_wait<AHEAD - 1>();
        __syncthreads();
        wn__column_sums_copy(s, tile[next], from, left);
        WN_UNROLL
        for (int k = 0; k < WN_SUM_TILE; k++) sum += (double)wn__load(tile[at].at[k][threadIdx.x]);
        at = at + 1 == WN_SUM_STAGES ? 0 : at + 1;
        next = next + 1 == WN_SUM_STAGES ? 0 : next + 1;
    }
    return sum;
}
#endif
