/* Attention of bf16 by tensor cores, for heads of 64 and 128: the pieces of attention_mma.cu and attention_mma_grad.cu.
 *
 * A block of 4 warps owns rows of the weights of a head and walks over its columns, N at a time. A warp has M times 16
 * rows of all columns in the registers of mma (mma.cuh); g = lane / 4, t = lane % 4:
 *
 *     s[m][j][e]   weight of row 16 m + g + 8 (e / 2) and column 8 j + 2 t + e % 2 of the warp's (16 M, N)
 *
 * What a warp loads of the columns serves M products. The weights are the first operand of the next product as they
 * lie, rounded to bf16. Tiles of rows and columns are in shared memory as in memory, (rows, D), in chunks of 16 bytes
 * that are permuted within a row, so that the 8 rows which ldmatrix reads at once lie in 8 groups of banks.
 *
 * A weight that is not seen is 0, and so are the elements of rows beyond T. As elsewhere 0 times NaN is NaN: a NaN in a
 * value reaches all rows of the tile on the diagonal, not only those that see it. Most tiles are seen as a whole, and
 * are treated by code without a question for each weight (SEEN). */
#ifndef WN_CUDA_ATTENTION_MMA_CUH
#define WN_CUDA_ATTENTION_MMA_CUH
#include "attention.cuh"
#include "mma.cuh"

enum { WN_MMA_WARPS = 4, WN_MMA_THREADS = 128, WN_MMA_CHUNK = 8 };

typedef wn__rows<wn_bf16> wn__mma_rows;

/* Returns the place of a chunk of a row in shared memory, in elements. */
template <int D> WN_DEVICE_FN int wn__mma_place(int row, int chunk)
{
    return (row * (D / WN_MMA_CHUNK) + (chunk ^ row % 8)) * WN_MMA_CHUNK;
}

/* Begins to load N rows to shared memory, zeros for those beyond the last. Every thread of the block calls it. */
template <int D, int N> WN_DEVICE_FN void wn__mma_load(wn_bf16 *to, const wn__mma_rows &x)
{
    const int per_row = D / WN_MMA_CHUNK, step = WN_MMA_THREADS / per_row, first = (int)threadIdx.x / per_row;
    const int chunk = (int)threadIdx.x % per_row;
    WN_UNROLL
    for (int row = first; row < N; row += step) {
        const bool is_real = row < x.n;
        const wn_bf16 *from = x.at + (is_real ? row : 0) * x.step + chunk * WN_MMA_CHUNK;
        wn__cp_async16_or_zeros(to + wn__mma_place<D>(row, chunk), from, is_real);
    }
}

/* Loads elements (row .. row + 15, f .. f + 15) of a tile as an operand whose sums go over f. row and f are multiples
 * of 16, so the place is that of f = 0 with the bits of f exchanged. */
template <int D> WN_DEVICE_FN void wn__mma_along(uint32_t (&r)[4], const wn_bf16 *tile, int row, int f)
{
    const int lane = (int)threadIdx.x % 32;
    wn__ldmatrix_x4(r, tile + row * D + (wn__mma_place<D>(lane % 16, lane / 16) ^ f));
}

/* Loads elements (row .. row + 15, f .. f + 15) of a tile as an operand whose sums go over rows. */
template <int D> WN_DEVICE_FN void wn__mma_across(uint32_t (&r)[4], const wn_bf16 *tile, int row, int f)
{
    const int lane = (int)threadIdx.x % 32;
    wn__ldmatrix_x4_trans(r, tile + row * D + (wn__mma_place<D>(lane / 16 * 8 + lane % 8, lane / 8 % 2) ^ f));
}

/* Adds the products of a (16, 16) with 16 columns: b as wn__mma_along or wn__mma_across loads it. */
WN_DEVICE_FN void wn__mma_add(float (&left)[4], float (&right)[4], const uint32_t (&a)[4], const uint32_t (&b)[4])
{
    const uint32_t b0[2] = {b[0], b[2]}, b1[2] = {b[1], b[3]};
    wn__mma_bf16_16816(left, a, b0);
    wn__mma_bf16_16816(right, a, b1);
}

/* Adds the products of features f .. f + 15 to s: rows `a` with the N columns of a tile. */
template <int D, int N, int M>
WN_DEVICE_FN void wn__mma_dots(float (&s)[M][N / 8][4], const uint32_t (&a)[M][4], const wn_bf16 *columns, int f)
{
    WN_UNROLL
    for (int j = 0; j < N / 16; j++) {
        uint32_t b[4];
        wn__mma_along<D>(b, columns, 16 * j, f);
        WN_UNROLL
        for (int m = 0; m < M; m++) wn__mma_add(s[m][2 * j], s[m][2 * j + 1], a[m], b);
    }
}

/* Adds the products of the weights w with rows x, (N, D), to a result: (16 M, D). */
template <int D, int N, int M>
WN_DEVICE_FN void wn__mma_weigh(float (&result)[M][D / 8][4], const float (&w)[M][N / 8][4], const wn_bf16 *x)
{
    WN_UNROLL
    for (int c = 0; c < N / 16; c++) {
        uint32_t a[M][4];
        WN_UNROLL
        for (int m = 0; m < M; m++) {
            WN_UNROLL
            for (int r = 0; r < 4; r++) {
                const float(&pair)[4] = w[m][2 * c + r / 2];
                a[m][r] = wn__bf16_pair(pair[r % 2 * 2], pair[r % 2 * 2 + 1]);
            }
        }
        WN_UNROLL
        for (int f = 0; f < D / 16; f++) {
            uint32_t b[4];
            wn__mma_across<D>(b, x, 16 * c, 16 * f);
            WN_UNROLL
            for (int m = 0; m < M; m++) wn__mma_add(result[m][2 * f], result[m][2 * f + 1], a[m], b);
        }
    }
}

template <int M, int N> WN_DEVICE_FN void wn__mma_clear(float (&x)[M][N][4])
{
    WN_UNROLL
    for (int i = 0; i < M * N * 4; i++) x[i / (N * 4)][i / 4 % N][i % 4] = 0;
}

/* Returns the first row of the calling thread in the tile of its block; others are 8 below, and multiples of 16. */
template <int M> WN_DEVICE_FN int wn__mma_row(void)
{
    return (int)threadIdx.x / 32 * 16 * M + (int)threadIdx.x % 32 / 4;
}
/* Returns the first of the two columns of the calling thread in each 8. */
WN_DEVICE_FN int wn__mma_column(void)
{
    return (int)threadIdx.x % 4 * 2;
}

/* Stores 16 rows of a result times factor[h] as elements of the rows that are real. row: the thread's first one. */
template <int D>
WN_DEVICE_FN void wn__mma_put(const wn__mma_rows &x, int row, const float (&result)[D / 8][4], const float (&factor)[2])
{
    WN_UNROLL
    for (int h = 0; h < 2; h++) {
        if (row + 8 * h >= x.n) continue;
        uint32_t *to = (uint32_t *)(x.at + (row + 8 * h) * x.step + wn__mma_column());
        WN_UNROLL
        for (int j = 0; j < D / 8; j++)
            to[4 * j] = wn__bf16_pair(result[j][2 * h] * factor[h], result[j][2 * h + 1] * factor[h]);
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

/* Returns the number of a weight among all, (B, H, T, T). */
WN_DEVICE_FN uint64_t wn__mma_element(const struct wn__attention &k, const wn__attention_place &at, int query, int key)
{
    return (uint64_t)(((at.b * k.heads + at.head) * k.time + query) * k.time + key);
}

/* Sets bit 4 j + e of kept[m] where dropout keeps s[m][j][e]; all where nothing is dropped. e0: the element of the
 * thread's s[0][0][0]. */
template <int ROWS_ARE_KEYS, int N, int M>
WN_DEVICE_FN void wn__mma_kept_all(const struct wn__attention &k, uint64_t e0, unsigned (&kept)[M])
{
    const uint64_t row = ROWS_ARE_KEYS ? 1 : (uint64_t)k.time, column = ROWS_ARE_KEYS ? (uint64_t)k.time : 1;
    WN_UNROLL
    for (int m = 0; m < M; m++) {
        kept[m] = ~0u;
        if (k.random == NULL) continue;
        kept[m] = 0;
        WN_ROLLED
        for (int j = 0; j < N / 8; j++)
            kept[m] |= wn__mma_kept<ROWS_ARE_KEYS>(k, e0 + 16 * m * row + 8 * j * column) << (4 * j);
    }
}
#endif
