/* Attention by tiles, for attention.cu and attention_grad.cu: an application as kernels are given it, and the pieces of
 * which they are made (runtime/ops/attention.c has the shapes and the formulas). attention_mma.cuh has those of bf16 by
 * tensor cores.
 *
 * No more than a tile of the (T, T) weights of a head exists at a time. A block of 16 x 16 threads owns SIZE rows of it
 * and walks over all columns that the rows meet, SIZE at a time; R x R weights are in the registers of a thread:
 *
 *              columns j R + s                     forward, dQ:   rows are queries, columns are keys
 *            +-----+-----+-----+                   dK and dV:     rows are keys, columns are queries
 *      rows  |     |     |     |
 *     i R + r|tile |tile | ... |  -> walk          sums(r, s)     = sum over f of a(r, f) b(s, f)      (wn__tile_dots)
 *            +-----+-----+-----+                   result(r, f)  += sum over s of w(s, r) x(s, f)     (wn__tile_weigh)
 *
 * Under a causal mask, tiles beyond the diagonal are skipped, and in a tile of the diagonal a row takes the columns
 * that it meets alone, so a NaN reaches the rows that see it and no other. Every output is one sum over the columns
 * in ascending order; in a tile of the diagonal, columns of its square of R x R come last. Nothing is added by an
 * atomic. Sums are f32 for f32 and bf16, which is rounded once, and f64 for f64. */
#ifndef WN_CUDA_ATTENTION_CUH
#define WN_CUDA_ATTENTION_CUH
#include "scalar.cuh"

/* One ATTENTION or ATTENTION_GRAD. */
struct wn__attention {
    int64_t batch, time, heads, kv_heads; /* B, T, H, K */
    int32_t size;                         /* hd */
    int32_t causal;
    int64_t row, out_row;     /* elements of a position: (H + 2 K) hd in qkv, H hd in the result */
    double scale, factor;     /* of the scores; of the weights that dropout keeps */
    uint64_t threshold;       /* a weight is kept where its random word is less */
    const uint64_t *random;   /* {seed, counter}; NULL: nothing is dropped */
    const void *qkv, *dy, *y; /* dy, y: of the gradient alone */
    void *out;
    void *lse, *shared; /* (B, H, T) numbers, of the gradient alone: log of a row's sum of exp, and sum of dy y */
};

/* Describes an application; qkv: number of its input. */
static inline struct wn__attention wn__attention_of(const struct wn_desc *d, const struct wn_buffers *b, int32_t qkv)
{
    struct wn__attention k;
    const struct wn_type *t = &d->in[qkv];
    double p = d->attrs.f[0];
    memset(&k, 0, sizeof k);
    k.batch = t->dim[0];
    k.time = t->dim[1];
    k.row = t->dim[2];
    k.heads = d->attrs.i[0];
    k.kv_heads = d->attrs.i[1];
    k.size = (int32_t)(k.row / (k.heads + 2 * k.kv_heads));
    k.out_row = k.heads * k.size;
    k.causal = d->attrs.i[2] != 0;
    k.scale = d->attrs.f[1];
    k.threshold = wn_dropout_threshold(p);
    k.factor = p > 0 && k.threshold > 0 ? wn_dropout_scale_f64(p) : 1.0;
    k.random = p > 0 ? b->random : NULL;
    k.qkv = b->in[qkv];
    k.out = b->out;
    return k;
}

/* Describes a gradient of f32 or bf16, with its two numbers a row in the workspace. */
static inline struct wn__attention wn__attention_grad_job(const struct wn_desc *d, const struct wn_buffers *b)
{
    struct wn__attention k = wn__attention_of(d, b, 1);
    k.dy = b->in[0];
    k.y = b->in[2];
    k.lse = b->workspace;
    k.shared = (float *)b->workspace + k.batch * k.heads * k.time;
    return k;
}

/* Returns the kernel of ATTENTION_GRAD for a dtype, or NULL (attention_grad.cu). */
wn_kernel_fn wn__attention_grad_of(int32_t dtype);
/* Returns the kernel that computes an application by tensor cores, or NULL: bf16 and heads of 64 and 128 alone
 * (attention_mma.cu). */
wn_kernel_fn wn__attention_mma_of(const struct wn_desc *d);
/* Returns the kernel of ATTENTION_GRAD by tensor cores, for heads of 64 or 128 (attention_mma_grad.cu). */
wn_kernel_fn wn__attention_mma_grad_of(int64_t size);
/* Starts the kernel that writes lse and shared of all rows by tensor cores (attention_mma.cu). */
void wn__attention_mma_sums(const struct wn__attention *k, void *stream);

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

/* Scores are logarithms: to base 2 in f32, whose power is cheaper, to base e in f64. wn__score_scale is the factor of
 * the product of a query and a key, wn__score_power the exponential of a difference of two scores, and wn__score_log
 * its inverse. */
WN_DEVICE_FN float wn__score_scale(double scale, float)
{
    return (float)(scale * 1.4426950408889634);
}
WN_DEVICE_FN double wn__score_scale(double scale, double)
{
    return scale;
}
WN_DEVICE_FN float wn__score_power(float x)
{
    return wn_exp2_below_f32(x);
}
WN_DEVICE_FN double wn__score_power(double x)
{
    return wn_exp_f64(x);
}
WN_DEVICE_FN float wn__score_log(float x)
{
    return wn_log_f32(x) * 1.44269504f;
}
WN_DEVICE_FN double wn__score_log(double x)
{
    return wn_log_f64(x);
}
WN_DEVICE_FN float wn__multiply_add(float a, float b, float c)
{
    return fmaf(a, b, c);
}
WN_DEVICE_FN double wn__multiply_add(double a, double b, double c)
{
    return fma(a, b, c);
}

/* ---- rows of a head in memory ------------------------------------------------------------------------------------ */

/* Rows of `size` elements: row t is at `at + t * step`; rows from n on count as zeros. */
template <class T> struct wn__rows {
    const T *at;
    int64_t step;
    int n, size;
    /* Returns the rows from `first` on. */
    __device__ __forceinline__ wn__rows from(int64_t first) const
    {
        return {at + first * step, step, (int)(n - first), size};
    }
};

/* Return the rows of batch entry b: of query head h, and of the key head and the value head that it reads, in qkv; of
 * head h in an array of the result's shape. */
template <class T> WN_DEVICE_FN wn__rows<T> wn__rows_of_column(const struct wn__attention &k, int64_t b, int64_t column)
{
    return {(const T *)k.qkv + b * k.time * k.row + column * k.size, k.row, (int)k.time, k.size};
}
template <class T> WN_DEVICE_FN wn__rows<T> wn__rows_of_query(const struct wn__attention &k, int64_t b, int64_t h)
{
    return wn__rows_of_column<T>(k, b, h);
}
template <class T> WN_DEVICE_FN wn__rows<T> wn__rows_of_key(const struct wn__attention &k, int64_t b, int64_t h)
{
    return wn__rows_of_column<T>(k, b, k.heads + h / (k.heads / k.kv_heads));
}
template <class T> WN_DEVICE_FN wn__rows<T> wn__rows_of_value(const struct wn__attention &k, int64_t b, int64_t h)
{
    return wn__rows_of_column<T>(k, b, k.heads + k.kv_heads + h / (k.heads / k.kv_heads));
}
template <class T>
WN_DEVICE_FN wn__rows<T> wn__rows_of_result(const struct wn__attention &k, const void *x, int64_t b, int64_t h)
{
    return {(const T *)x + b * k.time * k.out_row + h * k.size, k.out_row, (int)k.time, k.size};
}

/* ---- a block and its tile ---------------------------------------------------------------------------------------- */

enum { WN_ATTENTION_SIDE = 16, WN_ATTENTION_THREADS = WN_ATTENTION_SIDE * WN_ATTENTION_SIDE };

/* The dynamic shared memory of a block, at most 34 KiB. PAD keeps packs of R numbers aligned, and lets threads that
 * store to four rows reach all banks. x is (STEP features, rows) and then (STEP features, columns) for wn__tile_dots,
 * and (columns, features) for wn__tile_weigh. */
template <class N, int R> struct wn__attention_tile {
    enum { SIZE = WN_ATTENTION_SIDE * R, STEP = SIZE / 2, PAD = R };
    N w[SIZE][SIZE + PAD]; /* weights: w[column][row] */
    N x[SIZE][SIZE + PAD];
};

/* Which columns of a tile a row meets: all, those up to its own number, or those from its own number on. */
enum wn__tile_seen { WN_TILE_ALL, WN_TILE_UP_TO, WN_TILE_FROM };

/* Returns the row and the column of the tile at which the weights of the calling thread begin. */
template <int R> WN_DEVICE_FN int wn__tile_row(void)
{
    return (int)threadIdx.x / WN_ATTENTION_SIDE * R;
}
template <int R> WN_DEVICE_FN int wn__tile_column(void)
{
    return (int)threadIdx.x % WN_ATTENTION_SIDE * R;
}

/* Adds x y' to sum; x, y: R numbers each, at multiples of their bytes. */
template <class N, int R> WN_DEVICE_FN void wn__tile_add(N (&sum)[R][R], const N *x, const N *y)
{
    wn__pack<N, R> a = *(const wn__pack<N, R> *)x, b = *(const wn__pack<N, R> *)y;
    WN_UNROLL
    for (int r = 0; r < R; r++) {
        WN_UNROLL
        for (int s = 0; s < R; s++) sum[r][s] = wn__multiply_add(a.at[r], b.at[s], sum[r][s]);
    }
}

/* Loads STEP features from f0 on of SIZE rows to `to`: (STEP, SIZE). A warp loads 8 features of 4 rows at once: whole
 * sectors of memory, and one number for each bank. */
template <class T, class N, int R>
WN_DEVICE_FN void wn__tile_load_features(N (*to)[wn__attention_tile<N, R>::SIZE + R], const wn__rows<T> &x, int f0)
{
    typedef wn__attention_tile<N, R> tile;
    for (int e = (int)threadIdx.x; e < tile::STEP * tile::SIZE; e += WN_ATTENTION_THREADS) {
        int f = e % 8 + e / 32 % (tile::STEP / 8) * 8, row = e / 8 % 4 + e / 32 / (tile::STEP / 8) * 4;
        to[f][row] = row < x.n && f0 + f < x.size ? (N)wn__load(x.at[row * x.step + f0 + f]) : (N)0;
    }
}

/* Loads SIZE features from f0 on of SIZE rows to `to`: (SIZE, SIZE). */
template <class T, class N, int R>
WN_DEVICE_FN void wn__tile_load_rows(N (*to)[wn__attention_tile<N, R>::SIZE + R], const wn__rows<T> &x, int f0)
{
    typedef wn__attention_tile<N, R> tile;
    for (int e = (int)threadIdx.x; e < tile::SIZE * tile::SIZE; e += WN_ATTENTION_THREADS) {
        int f = e % tile::SIZE, row = e / tile::SIZE;
        to[row][f] = row < x.n && f0 + f < x.size ? (N)wn__load(x.at[row * x.step + f0 + f]) : (N)0;
    }
}

/* Computes sum(r, s) = the product of rows r of a and s of b. Every thread of the block calls it, and may write to the
 * tile's weights after it. */
template <class T, class N, int R>
WN_DEVICE_FN void wn__tile_dots(wn__attention_tile<N, R> &tile, const wn__rows<T> &a, const wn__rows<T> &b,
                                N (&sum)[R][R])
{
    const int step = wn__attention_tile<N, R>::STEP, row = wn__tile_row<R>(), column = wn__tile_column<R>();
    WN_UNROLL
    for (int r = 0; r < R; r++)
        for (int s = 0; s < R; s++) sum[r][s] = (N)0;
    for (int f0 = 0; f0 < a.size; f0 += step) {
        __syncthreads();
        wn__tile_load_features<T, N, R>(tile.x, a, f0);
        wn__tile_load_features<T, N, R>(tile.x + step, b, f0);
        __syncthreads();
        const int steps = a.size - f0 < step ? a.size - f0 : step;
        for (int f = 0; f < steps; f++) wn__tile_add<N, R>(sum, &tile.x[f][row], &tile.x[step + f][column]);
    }
}

/* Stores the weights of all threads, v(r, s), for wn__tile_weigh. */
template <class N, int R> WN_DEVICE_FN void wn__tile_store(wn__attention_tile<N, R> &tile, const N (&v)[R][R])
{
    WN_UNROLL
    for (int s = 0; s < R; s++) {
        wn__pack<N, R> p;
        WN_UNROLL
        for (int r = 0; r < R; r++) p.at[r] = v[r][s];
        *(wn__pack<N, R> *)&tile.w[wn__tile_column<R>() + s][wn__tile_row<R>()] = p;
    }
}

/* Adds the products of the stored weights with rows x, which belong to the columns of the tile, to a result: (rows, C
 * SIZE features from f0 on); sum[c](r, s) is that of row r and feature f0 + c SIZE + s. Every thread of the block calls
 * it. */
template <class T, class N, int R, int C>
WN_DEVICE_FN void wn__tile_weigh(wn__attention_tile<N, R> &tile, const wn__rows<T> &x, int f0, wn__tile_seen seen,
                                 N (&sum)[C][R][R])
{
    const int size = wn__attention_tile<N, R>::SIZE, row = wn__tile_row<R>(), column = wn__tile_column<R>();
    const int n = x.n < size ? (int)x.n : size;
    const int begin = seen == WN_TILE_FROM ? row + R : 0, end = seen == WN_TILE_UP_TO && row < n ? row : n;
    WN_UNROLL
    for (int c = 0; c < C; c++) {
        if (f0 + c * size >= x.size) break;
        __syncthreads();
        wn__tile_load_rows<T, N, R>(tile.x, x, f0 + c * size);
        __syncthreads();
        for (int t = begin; t < end; t++) wn__tile_add<N, R>(sum[c], &tile.w[t][row], &tile.x[t][column]);
        if (seen == WN_TILE_ALL) continue;
        WN_UNROLL
        for (int u = 0; u < R; u++) { /* of the square on the diagonal, the half that is seen */
            wn__pack<N, R> b = *(const wn__pack<N, R> *)&tile.x[row + u][column];
            WN_UNROLL
            for (int r = 0; r < R; r++) {
                if (seen == WN_TILE_UP_TO ? u > r : u < r) continue;
                WN_UNROLL
                for (int s = 0; s < R; s++)
                    sum[c][r][s] = wn__multiply_add(tile.w[row + u][row + r], b.at[s], sum[c][r][s]);
            }
        }
    }
}

/* Stores a result times factor(r) as elements of the rows that are real; R at once where the size of a head is a
 * multiple of R, since every row then begins at a multiple of R elements. */
template <class T, class N, int R, int C>
WN_DEVICE_FN void wn__tile_put(const wn__rows<T> &x, int f0, const N (&sum)[C][R][R], const N (&factor)[R])
{
    const int size = wn__attention_tile<N, R>::SIZE;
    WN_UNROLL
    for (int c = 0; c < C; c++) {
        WN_UNROLL
        for (int r = 0; r < R; r++) {
            const int row = wn__tile_row<R>() + r, f = f0 + c * size + wn__tile_column<R>();
            if (row >= x.n || f >= x.size) continue;
            T *to = (T *)x.at + row * x.step + f;
            wn__pack<T, R> p;
            WN_UNROLL
            for (int s = 0; s < R; s++) p.at[s] = wn__store<T>(sum[c][r][s] * factor[r]);
            if (x.size % R == 0) *(wn__pack<T, R> *)to = p;
            else {
                WN_UNROLL
                for (int s = 0; s < R; s++)
                    if (f + s < x.size) to[s] = p.at[s];
            }
        }
    }
}

/* ---- which block computes what ----------------------------------------------------------------------------------- */

/* A block's batch entry, head, first row, and first feature of the result. */
struct wn__attention_place {
    int64_t b, head, first;
    int f0;
};

/* Returns the place of the calling block. heads: of queries or of keys; features: of the result, that a block computes;
 * last_first: the tiles that begin last, which have the most columns under a causal mask, start first. */
template <int SIZE>
WN_DEVICE_FN wn__attention_place wn__attention_place_of(const struct wn__attention &k, int64_t heads, int features,
                                                        bool last_first)
{
    int64_t slices = (k.size + features - 1) / features, each = k.batch * heads * slices, at = blockIdx.x;
    int64_t tile = at / each, tiles = (k.time + SIZE - 1) / SIZE, head = at % each / slices;
    return {head / heads, head % heads, (last_first ? tiles - 1 - tile : tile) * SIZE, (int)(at % slices) * features};
}

/* Returns the number of blocks. */
static inline unsigned wn__attention_blocks(const struct wn__attention *k, int64_t heads, int64_t features,
                                            int64_t size)
{
    return wn__grid((k->time + size - 1) / size * k->batch * heads * ((k->size + features - 1) / features));
}

/* Returns how many queries or keys lie in the tile that begins at `first` or before it. */
WN_DEVICE_FN int64_t wn__attention_stop(const struct wn__attention &k, int64_t first, int64_t size)
{
    return k.causal && first + size < k.time ? first + size : k.time;
}

/* ---- softmax and dropout ----------------------------------------------------------------------------------------- */

/* Returns the combination of what 16 neighbours have, to each of them with the same bits. */
template <class N> WN_DEVICE_FN N wn__lanes_maximum(N x)
{
    for (int w = WN_ATTENTION_SIDE / 2; w > 0; w /= 2) x = wn_maximum(__shfl_xor_sync(0xffffffffu, x, w, 16), x);
    return x;
}
template <class N> WN_DEVICE_FN N wn__lanes_sum(N x)
{
    for (int w = WN_ATTENTION_SIDE / 2; w > 0; w /= 2) x += __shfl_xor_sync(0xffffffffu, x, w, 16);
    return x;
}

/* The online softmax of R rows (Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018). */
template <class N, int R> struct wn__softmax_state {
    N best[R], sum[R]; /* the maximum score so far; the sum of powers of the columns of the calling thread so far */
    N back[R];         /* of the last step: the power of the change of the maximum */
};

template <class N, int R> WN_DEVICE_FN void wn__softmax_start(wn__softmax_state<N, R> &m)
{
    WN_UNROLL
    for (int r = 0; r < R; r++) m.best[r] = -(N)INFINITY, m.sum[r] = (N)0;
}

/* Takes a tile of products into the softmax: s(r, c) becomes the power of the score less the maximum so far, and 0
 * where the key is not seen. query0, key0: numbers of the first query and the first key of the tile. */
template <class N, int R>
WN_DEVICE_FN void wn__softmax_step(const struct wn__attention &k, int64_t query0, int64_t key0, N (&s)[R][R],
                                   wn__softmax_state<N, R> &m)
{
    const N scale = wn__score_scale(k.scale, (N)0);
    WN_UNROLL
    for (int r = 0; r < R; r++) {
        const int n = (int)(wn__attention_stop(k, query0 + wn__tile_row<R>() + r, 1) - key0) - wn__tile_column<R>();
        N top = m.best[r], sum = (N)0;
        WN_UNROLL
        for (int c = 0; c < R; c++) {
            s[r][c] *= scale;
            if (c < n) top = wn_maximum(s[r][c], top);
        }
        top = wn__lanes_maximum(top);
        WN_UNROLL
        for (int c = 0; c < R; c++) {
            s[r][c] = c < n ? wn__score_power(s[r][c] - top) : (N)0;
            sum += s[r][c];
        }
        m.back[r] = wn__score_power(m.best[r] - top);
        m.sum[r] = m.sum[r] * m.back[r] + sum;
        m.best[r] = top;
    }
}

/* Returns bits for R queries from `query` on and R keys from `key` on: bit i R + j is set where dropout keeps the
 * weight of query i and key j, element ((b H + h) T + query) T + key of (B, H, T, T). All are set where nothing is
 * dropped. The loops are not unrolled, since the words of one draw take many registers. */
template <int R>
WN_DEVICE_FN unsigned wn__attention_kept(const struct wn__attention &k, const wn__attention_place &at, int64_t query,
                                         int64_t key)
{
    if (k.random == NULL) return ~0u;
    const uint64_t seed = k.random[0], counter = k.random[1];
    uint64_t e = (uint64_t)(((at.b * k.heads + at.head) * k.time + query) * k.time + key);
    unsigned kept = 0;
    WN_ROLLED
    for (int i = 0; i < R; i++, e += (uint64_t)k.time) {
        unsigned bits = 0;
        WN_ROLLED
        for (int q = 0; q * 4 < (int)(e & 3) + R; q++) {
            uint32_t word[4];
            wn_philox(seed, counter, (e >> 2) + q, word);
            for (int w = 0; w < 4; w++) bits |= (unsigned)(word[w] < k.threshold) << (4 * q + w);
        }
        kept |= (bits >> (e & 3) & ((1u << R) - 1)) << (R * i);
    }
    return kept;
}
#endif
