/* ATTENTION of bf16 by tensor cores (attention_mma.cuh), and the sums of rows that its gradient begins with.
 *
 *     for each tile of keys:      s = Q K'                        products, sums in f32
 *                                 online softmax of s             best, sum, s = power(s - best)
 *                                 result = result back + dropout(s) V
 *     result = result / sum
 *
 * While a block multiplies with a tile of values, the next keys are on their way to shared memory, and while it
 * multiplies with keys, the values are. The weights are rounded to bf16 for the second product, so results agree with
 * the CPU's within the tolerance of bf16. */
#include "attention_mma.cuh"

enum {
    BLOCKS = 2,                       /* of 16 rows a warp */
    ROWS = 16 * BLOCKS * WN_MMA_WARPS /* queries of a block */
};

/* Returns how many keys are in shared memory together: as many as the registers of a warp have weights for. */
static constexpr __host__ __device__ int keys_at_once(int size)
{
    return size == 64 ? 64 : 48;
}

/* The online softmax of the two rows of a thread in 16. */
struct mma_softmax {
    float best[2], sum[2]; /* the maximum score of a row so far; the sum of powers of the thread's columns so far */
    float back[2];         /* of the last step: the power of the change of the maximum */
};

static __device__ __forceinline__ void softmax_start(mma_softmax (&m)[BLOCKS])
{
    WN_UNROLL
    for (int i = 0; i < BLOCKS; i++) m[i] = {{-INFINITY, -INFINITY}, {0, 0}, {0, 0}};
}

/* Takes 16 rows of products into the softmax: s becomes the power of the score less the maximum so far, and 0 where
 * the key is not seen; SEEN: every key is. n[h]: how many columns from the thread's first on are seen by row 8 h. A NaN
 * is no maximum, and stays one as a power. */
template <int SEEN, int N>
static __device__ __forceinline__ void softmax_rows(float scale, const int (&n)[2], float (&s)[N][4], mma_softmax &m)
{
    WN_UNROLL
    for (int h = 0; h < 2; h++) {
        float top = m.best[h], sum = 0;
        WN_UNROLL
        for (int i = 0; i < 2 * N; i++) { /* columns 8 (i / 2) + i % 2 from the thread's first on */
            float &score = s[i / 2][2 * h + i % 2];
            score *= scale;
            if (SEEN || 8 * (i / 2) + i % 2 < n[h]) top = fmaxf(score, top);
        }
        for (int w = 2; w > 0; w /= 2) top = fmaxf(__shfl_xor_sync(0xffffffffu, top, w), top);
        WN_UNROLL
        for (int i = 0; i < 2 * N; i++) {
            float &score = s[i / 2][2 * h + i % 2];
            score = SEEN || 8 * (i / 2) + i % 2 < n[h] ? wn__power_of_two(score - top) : 0.0f;
            sum += score;
        }
        m.back[h] = wn__power_of_two(m.best[h] - top);
        m.sum[h] = fmaf(m.sum[h], m.back[h], sum);
        m.best[h] = top;
    }
}

/* Takes a tile of products into the softmax. query: number of the thread's first query; first: of the block's first
 * query; key0: of the tile's first key. */
template <int N>
static __device__ __forceinline__ void softmax_step(const struct wn__attention &k, int first, int query, int key0,
                                                    float (&s)[BLOCKS][N][4], mma_softmax (&m)[BLOCKS])
{
    const float scale = wn__score_scale(k.scale, 0.0f);
    const bool is_seen = key0 + 8 * N <= wn__attention_stop(k, first, 1);
    WN_UNROLL
    for (int i = 0; i < BLOCKS; i++) {
        int n[2] = {0, 0};
        if (is_seen) {
            softmax_rows<1>(scale, n, s[i], m[i]);
            continue;
        }
        WN_UNROLL
        for (int h = 0; h < 2; h++)
            n[h] = (int)wn__attention_stop(k, query + 16 * i + 8 * h, 1) - key0 - wn__mma_column();
        softmax_rows<0>(scale, n, s[i], m[i]);
    }
}

/* Returns the sum of what the 4 threads of a row have, to each of them with the same bits. */
static __device__ __forceinline__ float row_sum(float x)
{
    for (int w = 2; w > 0; w /= 2) x += __shfl_xor_sync(0xffffffffu, x, w);
    return x;
}

/* Sets weights to 0 that dropout does not keep. query, key: numbers of those of s[0][0][0]. */
template <int N>
static __device__ __forceinline__ void drop(const struct wn__attention &k, const wn__attention_place &at, int query,
                                            int key, float (&s)[BLOCKS][N][4])
{
    unsigned kept[BLOCKS];
    if (k.random == NULL) return;
    wn__mma_kept_all<0, 8 * N>(k, wn__mma_element(k, at, query, key), kept);
    WN_UNROLL
    for (int i = 0; i < BLOCKS * N * 4; i++) {
        float &weight = s[i / (4 * N)][i / 4 % N][i % 4];
        weight = kept[i / (4 * N)] >> i % (4 * N) & 1 ? weight : 0.0f;
    }
}

/* Begins to load keys or values from key0 on, as one group of copies; an empty one from `stop` on. */
template <int D> static __device__ __forceinline__ void begin(wn_bf16 *to, const wn__mma_rows &x, int key0, int stop)
{
    if (key0 < stop) wn__mma_load<D, keys_at_once(D)>(to, x.from(key0));
    wn__cp_async_commit();
}

/* Computes the products of a warp's queries and a tile of keys. */
template <int D>
static __device__ __forceinline__ void score(float (&s)[BLOCKS][keys_at_once(D) / 8][4], const wn_bf16 *queries,
                                             const wn_bf16 *keys)
{
    const int row = (int)threadIdx.x / 32 * 16 * BLOCKS;
    wn__mma_clear(s);
    WN_UNROLL
    for (int f = 0; f < D; f += 16) {
        uint32_t q[BLOCKS][4];
        WN_UNROLL
        for (int m = 0; m < BLOCKS; m++) wn__mma_along<D>(q[m], queries, row + 16 * m, f);
        wn__mma_dots<D, keys_at_once(D), BLOCKS>(s, q, keys, f);
    }
}

template <int D> static __global__ void __launch_bounds__(128, 2) attend_mma(struct wn__attention k)
{
    enum { KEYS = keys_at_once(D) };
    DYN_SHARED(wn_bf16, queries); /* (ROWS, D), then keys and values, (KEYS, D) each */
    wn_bf16 *const keys = queries + ROWS * D, *const values = keys + KEYS * D;
    wn__attention_place at = wn__attention_place_of<ROWS>(k, k.heads, D, true);
    const int stop = (int)wn__attention_stop(k, at.first, ROWS), query = (int)at.first + wn__mma_row<BLOCKS>();
    const wn__mma_rows key = wn__rows_of_key<wn_bf16>(k, at.b, at.head);
    const wn__mma_rows value = wn__rows_of_value<wn_bf16>(k, at.b, at.head);
    float result[BLOCKS][D / 8][4], s[BLOCKS][KEYS / 8][4];
    mma_softmax m[BLOCKS];
    softmax_start(m);
    wn__mma_clear(result);
    wn__mma_load<D, ROWS>(queries, wn__rows_of_query<wn_bf16>(k, at.b, at.head).from(at.first));
    begin<D>(keys, key, 0, stop);
    for (int key0 = 0; key0 < stop; key0 += KEYS) {
        begin<D>(values, value, key0, stop);
        wn__cp_async_wait<1>();
        __syncthreads();
        score<D>(s, queries, keys);
        __syncthreads();
        begin<D>(keys, key, key0 + KEYS, stop);
        softmax_step(k, (int)at.first, query, key0, s, m);
        drop(k, at, query, key0 + wn__mma_column(), s);
        WN_UNROLL
        for (int i = 0; i < BLOCKS * D / 8 * 4; i++)
            result[i / (D / 2)][i / 4 % (D / 8)][i % 4] *= m[i / (D / 2)].back[i % 4 / 2];
        wn__cp_async_wait<1>();
        __syncthreads();
        wn__mma_weigh<D, KEYS, BLOCKS>(result, s, values);
        __syncthreads();
    }
    const wn__mma_rows to = wn__rows_of_result<wn_bf16>(k, k.out, at.b, at.head).from(at.first);
    WN_UNROLL
    for (int i = 0; i < BLOCKS; i++) {
        const float factor[2] = {(float)k.factor / row_sum(m[i].sum[0]), (float)k.factor / row_sum(m[i].sum[1])};
        wn__mma_put<D>(to, wn__mma_row<BLOCKS>() + 16 * i, result[i], factor);
    }
}

/* ---- the sums of rows for the gradient --------------------------------------------------------------------------- */

/* Returns the share of the calling thread in the sum of dy y over a row's features. */
template <int D> static __device__ __forceinline__ float shared_part(const wn_bf16 *dy, const wn_bf16 *y)
{
    float sum = 0;
    for (int c = (int)threadIdx.x % 4 * WN_MMA_CHUNK; c < D; c += 4 * WN_MMA_CHUNK) {
        wn__pack<wn_bf16, WN_MMA_CHUNK> a = *(const wn__pack<wn_bf16, WN_MMA_CHUNK> *)(dy + c);
        wn__pack<wn_bf16, WN_MMA_CHUNK> b = *(const wn__pack<wn_bf16, WN_MMA_CHUNK> *)(y + c);
        WN_UNROLL
        for (int v = 0; v < WN_MMA_CHUNK; v++) sum = fmaf(wn__load(a.at[v]), wn__load(b.at[v]), sum);
    }
    return sum;
}

/* Writes lse and shared of a row; every thread of the row calls it. */
template <int D>
static __device__ __forceinline__ void put_sums(const struct wn__attention &k, const wn__attention_place &at,
                                                int64_t row, float best, float sum)
{
    const wn__mma_rows dy = wn__rows_of_result<wn_bf16>(k, k.dy, at.b, at.head);
    const wn__mma_rows y = wn__rows_of_result<wn_bf16>(k, k.y, at.b, at.head);
    const bool is_real = row < k.time;
    const float part = is_real ? shared_part<D>(dy.at + row * dy.step, y.at + row * y.step) : 0.0f;
    const float lse = best + wn__score_log(row_sum(sum)), shared = row_sum(part);
    if (!is_real || threadIdx.x % 4 != 0) return;
    const int64_t to = (at.b * k.heads + at.head) * k.time + row;
    ((float *)k.lse)[to] = lse;
    ((float *)k.shared)[to] = shared;
}

/* Writes lse and shared of a tile of queries of one head. While a tile of keys is multiplied, the next one is on its
 * way. */
template <int D> static __global__ void __launch_bounds__(128, D == 64 ? 3 : 2) find_sums_mma(struct wn__attention k)
{
    enum { KEYS = keys_at_once(D) };
    DYN_SHARED(wn_bf16, queries); /* (ROWS, D), then keys, (2, KEYS, D) */
    wn_bf16 *const keys = queries + ROWS * D;
    wn__attention_place at = wn__attention_place_of<ROWS>(k, k.heads, D, true);
    const int stop = (int)wn__attention_stop(k, at.first, ROWS), query = (int)at.first + wn__mma_row<BLOCKS>();
    const wn__mma_rows key = wn__rows_of_key<wn_bf16>(k, at.b, at.head);
    float s[BLOCKS][KEYS / 8][4];
    mma_softmax m[BLOCKS];
    softmax_start(m);
    wn__mma_load<D, ROWS>(queries, wn__rows_of_query<wn_bf16>(k, at.b, at.head).from(at.first));
    begin<D>(keys, key, 0, stop);
    for (int key0 = 0; key0 < stop; key0 += KEYS) {
        const int odd = key0 / KEYS % 2;
        begin<D>(keys + (1 - odd) * KEYS * D, key, key0 + KEYS, stop);
        wn__cp_async_wait<1>();
        __syncthreads();
        score<D>(s, queries, keys + odd * KEYS * D);
        softmax_step(k, (int)at.first, query, key0, s, m);
        __syncthreads();
    }
    WN_UNROLL
    for (int i = 0; i < BLOCKS * 2; i++) put_sums<D>(k, at, query + 8 * i, m[i / 2].best[i % 2], m[i / 2].sum[i % 2]);
}

/* ---- starting it ------------------------------------------------------------------------------------------------- */

/* Returns the bytes of shared memory of a block: ROWS queries and two tiles of keys or values. */
static size_t shared_bytes(int64_t size)
{
    return (size_t)(ROWS + 2 * keys_at_once((int)size)) * (size_t)size * sizeof(wn_bf16);
}

template <int D> static int32_t start(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    struct wn__attention k = wn__attention_of(d, b, 0);
    if (wn__numel(&d->out) == 0) return WN_OK;
    wn__allow_shared(attend_mma<D>, shared_bytes(D));
    LAUNCH((attend_mma<D>), wn__attention_blocks(&k, k.heads, D, ROWS), WN_MMA_THREADS, shared_bytes(D), stream, k);
    return wn__cuda_launched();
}

template <int D> static void start_sums(const struct wn__attention &k, void *stream)
{
    wn__allow_shared(find_sums_mma<D>, shared_bytes(D));
    LAUNCH((find_sums_mma<D>), wn__attention_blocks(&k, k.heads, D, ROWS), WN_MMA_THREADS, shared_bytes(D), stream, k);
}

void wn__attention_mma_sums(const struct wn__attention *k, void *stream)
{
    if (k->size == 64) start_sums<64>(*k, stream);
    else start_sums<128>(*k, stream);
}

wn_kernel_fn wn__attention_mma_of(const struct wn_desc *d)
{
    const struct wn_type *qkv = &d->in[d->op == WN_OP_ATTENTION_GRAD ? 1 : 0];
    int64_t size = qkv->dim[2] / (d->attrs.i[0] + 2 * d->attrs.i[1]);
    if (d->out.dtype != WN_BF16 || (size != 64 && size != 128) || !wn__has_tensor_cores()) return NULL;
    if (d->op == WN_OP_ATTENTION_GRAD) return wn__attention_mma_grad_of(size);
    return size == 64 ? start<64> : start<128>;
}
