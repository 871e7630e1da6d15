/* Attention of bf16 by tensor cores, for heads of 64 and 128: the pieces of attention_mma.cu and attention_mma_grad.cu.
 *
 * A block of 4 warps owns ROWS rows of the weights of a head and walks over its columns, N at a time. A warp has 16
 * rows of all columns in the registers of mma (mma.cuh); g = lane / 4, t = lane % 4:
 *
 *     s[j][e]   weight of row g + 8 (e / 2) and column 8 j + 2 t + e % 2 of the warp's (16, N)
 *
 * The weights are the first operand of the next product as they lie, rounded to bf16. Tiles of rows and columns are in
 * shared memory as in memory, (rows, D), in chunks of 16 bytes that are permuted within a row, so that the 8 rows which
 * ldmatrix reads at once lie in 8 groups of banks.
 *
 * A weight that is not seen is 0, and so are the elements of rows beyond T. As elsewhere 0 times NaN is NaN: a NaN in a
 * value reaches all rows of the tile on the diagonal, not only those that see it. */
#ifndef WN_CUDA_ATTENTION_MMA_CUH
#define WN_CUDA_ATTENTION_MMA_CUH
#include "attention.cuh"
#include "mma.cuh"

enum { WN_MMA_ROWS = 64, WN_MMA_THREADS = 128, WN_MMA_CHUNK = 8 };

typedef wn__rows<wn_bf16> wn__mma_rows;

/* Returns the place of a chunk of a row in shared memory, in elements. */
template <int D> WN_DEVICE_FN int wn__mma_place(int row, int chunk)
{
    return (row * (D / WN_MMA_CHUNK) + (chunk ^ row % 8)) * WN_MMA_CHUNK;
}

/* Begins to load N rows to shared memory, zeros for those beyond the last. Every thread of the block calls it. */
template <int D, int N> WN_DEVICE_FN void wn__mma_load(wn_bf16 *to, const wn__mma_rows &x)
{
    const int per_row = D / WN_MMA_CHUNK;
    for (int e = (int)threadIdx.x; e < N * per_row; e += WN_MMA_THREADS) {
        const int row = e / per_row, chunk = e % per_row;
        wn_bf16 *at = to + wn__mma_place<D>(row, chunk);
        if (row < x.n) {
            wn__cp_async16(at, x.at + row * x.step + chunk * WN_MMA_CHUNK);
            continue;
        }
        wn__pack<wn_bf16, WN_MMA_CHUNK> zeros;
        WN_UNROLL
        for (int v = 0; v < WN_MMA_CHUNK; v++) zeros.at[v].bits = 0;
        *(wn__pack<wn_bf16, WN_MMA_CHUNK> *)at = zeros;
    }
}

/* Loads elements (row .. row + 15, f .. f + 15) of a tile as an operand whose sums go over f. */
template <int D> WN_DEVICE_FN void wn__mma_along(uint32_t (&r)[4], const wn_bf16 *tile, int row, int f)
{
    const int lane = (int)threadIdx.x % 32;
    wn__ldmatrix_x4(r, tile + wn__mma_place<D>(row + lane % 16, f / WN_MMA_CHUNK + lane / 16));
}

/* Loads elements (row .. row + 15, f .. f + 15) of a tile as an operand whose sums go over rows. */
template <int D> WN_DEVICE_FN void wn__mma_across(uint32_t (&r)[4], const wn_bf16 *tile, int row, int f)
{
    const int lane = (int)threadIdx.x % 32;
    wn__ldmatrix_x4_trans(r, tile + wn__mma_place<D>(row + lane / 16 * 8 + lane % 8, f / WN_MMA_CHUNK + lane / 8 % 2));
}

/* Adds the products of a (16, 16) with 16 columns: b as wn__mma_along or wn__mma_across loads it. */
WN_DEVICE_FN void wn__mma_add(float (&left)[4], float (&right)[4], const uint32_t (&a)[4], const uint32_t (&b)[4])
{
    const uint32_t b0[2] = {b[0], b[2]}, b1[2] = {b[1], b[3]};
    wn__mma_bf16_16816(left, a, b0);
    wn__mma_bf16_16816(right, a, b1);
}

/* Adds the products of features f .. f + 15 to s: rows `a` with the N columns of a tile. */
template <int D, int N>
WN_DEVICE_FN void wn__mma_dots(float (&s)[N / 8][4], const uint32_t (&a)[4], const wn_bf16 *columns, int f)
{
    WN_UNROLL
    for (int j = 0; j < N / 16; j++) {
        uint32_t b[4];
        wn__mma_along<D>(b, columns, 16 * j, f);
        wn__mma_add(s[2 * j], s[2 * j + 1], a, b);
    }
}

WN_DEVICE_FN uint32_t wn__mma_pair(float low, float high)
{
    return wn__store<wn_bf16>(low).bits | (uint32_t)wn__store<wn_bf16>(high).bits << 16;
}

/* Adds the products of the weights w with rows x, (N, D), to a result: (16, D). */
template <int D, int N>
WN_DEVICE_FN void wn__mma_weigh(float (&result)[D / 8][4], const float (&w)[N / 8][4], const wn_bf16 *x)
{
    WN_UNROLL
    for (int c = 0; c < N / 16; c++) {
        const uint32_t a[4] = {wn__mma_pair(w[2 * c][0], w[2 * c][1]), wn__mma_pair(w[2 * c][2], w[2 * c][3]),
                               wn__mma_pair(w[2 * c + 1][0], w[2 * c + 1][1]),
                               wn__mma_pair(w[2 * c + 1][2], w[2 * c + 1][3])};
        WN_UNROLL
        for (int f = 0; f < D / 16; f++) {
            uint32_t b[4];
            wn__mma_across<D>(b, x, 16 * c, 16 * f);
            wn__mma_add(result[2 * f], result[2 * f + 1], a, b);
        }
    }
}

template <int N> WN_DEVICE_FN void wn__mma_clear(float (&x)[N][4])
{
    WN_UNROLL
    for (int i = 0; i < N; i++) {
        WN_UNROLL
        for (int e = 0; e < 4; e++) x[i][e] = 0;
    }
}

/* Returns the first row of the calling thread in its tile; the other is 8 below. */
WN_DEVICE_FN int wn__mma_row(void)
{
    return (int)threadIdx.x / 32 * 16 + (int)threadIdx.x % 32 / 4;
}
/* Returns the first of the two columns of the calling thread in each 8. */
WN_DEVICE_FN int wn__mma_column(void)
{
    return (int)threadIdx.x % 4 * 2;
}

/* Stores a result times factor(r) as elements of the rows that are real. */
template <int D>
WN_DEVICE_FN void wn__mma_put(const wn__mma_rows &x, const float (&result)[D / 8][4], const float (&factor)[2])
{
    WN_UNROLL
    for (int h = 0; h < 2; h++) {
        const int row = wn__mma_row() + 8 * h;
        if (row >= x.n) continue;
        uint32_t *to = (uint32_t *)(x.at + row * x.step + wn__mma_column());
        WN_UNROLL
        for (int j = 0; j < D / 8; j++)
            to[4 * j] = wn__mma_pair(result[j][2 * h] * factor[h], result[j][2 * h + 1] * factor[h]);
    }
}

/* ---- dropout ----------------------------------------------------------------------------------------------------- */

/* Draws one quad of random words: bit w is set where word w keeps its weight. */
WN_DEVICE_FN unsigned wn__mma_draw(const struct wn__attention &k, uint64_t quad)
{
    uint32_t word[4];
    unsigned bits = 0;
    wn_philox(k.random[0], k.random[1], quad, word);
    WN_UNROLL
    for (int w = 0; w < 4; w++) bits |= (unsigned)(word[w] < k.threshold) << w;
    return bits;
}

/* Returns whether element e of (B, H, T, T) is kept. */
WN_DEVICE_FN unsigned wn__mma_kept_one(const struct wn__attention &k, uint64_t e)
{
    return wn__mma_draw(k, e >> 2) >> (e & 3) & 1;
}

/* Returns bit e for s[j][e] of the calling thread: set where dropout keeps the weight. e0: the element of the thread's
 * first row and first column; ROW_STEP, COLUMN_STEP: whether a row or a column is one further element, the other one
 * k.time. Where rows of elements begin at whole quads, the lanes that hold a quad draw it once and tell each other.
 * Every lane calls it. */
template <int ROWS_ARE_KEYS> WN_DEVICE_FN unsigned wn__mma_kept(const struct wn__attention &k, uint64_t e0)
{
    if (k.random == NULL) return 15;
    const uint64_t time = (uint64_t)k.time;
    const int lane = (int)threadIdx.x % 32;
    unsigned kept = 0;
    if (time % 4 != 0) {
        WN_ROLLED
        for (int e = 0; e < 4; e++) {
            uint64_t row = (uint64_t)(e / 2) * 8, column = (uint64_t)(e % 2);
            kept |= wn__mma_kept_one(k, e0 + (ROWS_ARE_KEYS ? column * time + row : row * time + column)) << e;
        }
        return kept;
    }
    if (ROWS_ARE_KEYS) { /* 4 lanes, of rows g - g % 4 on, hold 4 quads: lane i of them draws that of s[j][i] */
        const int g = lane / 4, i = g % 4;
        unsigned own = wn__mma_draw(k, (e0 - (uint64_t)i + (uint64_t)(i % 2) * time + (uint64_t)(i / 2) * 8) >> 2);
        WN_UNROLL
        for (int e = 0; e < 4; e++) {
            unsigned bits = __shfl_sync(0xffffffffu, own, (g - i + e) * 4 + lane % 4);
            kept |= (bits >> i & 1) << e;
        }
        return kept;
    }
    /* 2 lanes, of columns 2 t - 2 t % 4 on, hold 2 quads: the first draws row g's, the other that of row g + 8. */
    const int odd = lane % 2;
    unsigned own = wn__mma_draw(k, (e0 - (uint64_t)odd * 2 + (uint64_t)odd * 8 * time) >> 2);
    unsigned other = __shfl_xor_sync(0xffffffffu, own, 1);
    unsigned upper = odd ? other : own, lower = odd ? own : other;
    return (upper >> (2 * odd) & 3) | (lower >> (2 * odd) & 3) << 2;
}
#endif
