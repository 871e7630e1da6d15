/* ATTENTION of bf16 by tensor cores (attention_mma.cuh), and the sums of rows that its gradient begins with.
 *
 *     for each tile of 64 keys:   s = Q K'                        products, sums in f32
 *                                 online softmax of s             best, sum, s = power(s - best)
 *                                 result = result back + dropout(s) V
 *     result = result / sum
 *
 * While a block multiplies with a tile of values, the next keys are on their way to shared memory, and while it
 * multiplies with keys, the values are. The weights are rounded to bf16 for the second product, so results agree with
 * the CPU's within the tolerance of bf16. */
#include "attention_mma.cuh"

enum { KEYS = 64 }; /* in shared memory together */

/* The online softmax of the two rows of a thread. */
struct mma_softmax {
    float best[2], sum[2]; /* the maximum score of a row so far; the sum of powers of the thread's columns so far */
    float back[2];         /* of the last step: the power of the change of the maximum */
};

/* Takes a tile of products into the softmax: s becomes the power of the score less the maximum so far, and 0 where the
 * key is not seen. query: number of the thread's first query; key0: of the tile's first key. */
static __device__ __forceinline__ void softmax_step(const struct wn__attention &k, int64_t query, int64_t key0,
                                                    float (&s)[KEYS / 8][4], mma_softmax &m)
{
    const float scale = wn__score_scale(k.scale, 0.0f);
    WN_UNROLL
    for (int h = 0; h < 2; h++) {
        const int n = (int)(wn__attention_stop(k, query + 8 * h, 1) - key0) - wn__mma_column();
        float top = m.best[h], sum = 0;
        WN_UNROLL
        for (int i = 0; i < KEYS / 4; i++) { /* columns 8 (i / 2) + i % 2 from the thread's first on */
            float &score = s[i / 2][2 * h + i % 2];
            score *= scale;
            if (8 * (i / 2) + i % 2 < n) top = wn_maximum(score, top);
        }
        for (int w = 2; w > 0; w /= 2) top = wn_maximum(__shfl_xor_sync(0xffffffffu, top, w), top);
        WN_UNROLL
        for (int i = 0; i < KEYS / 4; i++) {
            float &score = s[i / 2][2 * h + i % 2];
            score = 8 * (i / 2) + i % 2 < n ? wn__score_power(score - top) : 0.0f;
            sum += score;
        }
        m.back[h] = wn__score_power(m.best[h] - top);
        m.sum[h] = m.sum[h] * m.back[h] + sum;
        m.best[h] = top;
    }
}

/* Returns the sum of what the 4 threads of a row have, to each of them with the same bits. */
static __device__ __forceinline__ float row_sum(float x)
{
    for (int w = 2; w > 0; w /= 2) x += __shfl_xor_sync(0xffffffffu, x, w);
    return x;
}

/* Sets weights to 0 that dropout does not keep. query, key: numbers of those of s[0][0]. */
static __device__ __forceinline__ void drop(const struct wn__attention &k, const wn__attention_place &at, int64_t query,
                                            int64_t key, float (&s)[KEYS / 8][4])
{
    if (k.random == NULL) return;
    const uint64_t e0 = (uint64_t)(((at.b * k.heads + at.head) * k.time + query) * k.time + key);
    WN_UNROLL
    for (int j = 0; j < KEYS / 8; j++) {
        unsigned kept = wn__mma_kept<0>(k, e0 + 8 * (uint64_t)j);
        WN_UNROLL
        for (int e = 0; e < 4; e++) s[j][e] = kept >> e & 1 ? s[j][e] : 0.0f;
    }
}

/* Begins to load keys or values from key0 on, as one group of copies; an empty one from `stop` on. */
template <int D>
static __device__ __forceinline__ void begin(wn_bf16 *to, const wn__mma_rows &x, int64_t key0, int64_t stop)
{
    if (key0 < stop) wn__mma_load<D, KEYS>(to, x.from(key0));
    wn__cp_async_commit();
}

/* A block's rows of queries in registers: (16, D) a warp. */
template <int D>
static __device__ __forceinline__ void load_queries(uint32_t (&q)[D / 16][4], wn_bf16 *shared, const wn__mma_rows &x)
{
    wn__mma_load<D, WN_MMA_ROWS>(shared, x);
    wn__cp_async_commit();
    wn__cp_async_wait<0>();
    __syncthreads();
    WN_UNROLL
    for (int f = 0; f < D / 16; f++) wn__mma_along<D>(q[f], shared, (int)threadIdx.x / 32 * 16, 16 * f);
    __syncthreads();
}

template <int D>
static __device__ __forceinline__ void score(float (&s)[KEYS / 8][4], const uint32_t (&q)[D / 16][4],
                                             const wn_bf16 *keys)
{
    wn__mma_clear(s);
    WN_UNROLL
    for (int f = 0; f < D / 16; f++) wn__mma_dots<D, KEYS>(s, q[f], keys, 16 * f);
}

template <int D> static __global__ void __launch_bounds__(128, 2) attend_mma(struct wn__attention k)
{
    DYN_SHARED(wn_bf16, shared); /* (2, KEYS, D): keys, values */
    wn_bf16 *const keys = shared, *const values = shared + KEYS * D;
    wn__attention_place at = wn__attention_place_of<WN_MMA_ROWS>(k, k.heads, D, true);
    const int64_t stop = wn__attention_stop(k, at.first, WN_MMA_ROWS), query = at.first + wn__mma_row();
    const wn__mma_rows key = wn__rows_of_key<wn_bf16>(k, at.b, at.head);
    const wn__mma_rows value = wn__rows_of_value<wn_bf16>(k, at.b, at.head);
    uint32_t q[D / 16][4];
    float result[D / 8][4], s[KEYS / 8][4];
    mma_softmax m = {{-INFINITY, -INFINITY}, {0, 0}, {0, 0}};
    wn__mma_clear(result);
    load_queries<D>(q, keys, wn__rows_of_query<wn_bf16>(k, at.b, at.head).from(at.first));
    begin<D>(keys, key, 0, stop);
    for (int64_t key0 = 0; key0 < stop; key0 += KEYS) {
        begin<D>(values, value, key0, stop);
        wn__cp_async_wait<1>();
        __syncthreads();
        score<D>(s, q, keys);
        __syncthreads();
        begin<D>(keys, key, key0 + KEYS, stop);
        softmax_step(k, query, key0, s, m);
        drop(k, at, query, key0 + wn__mma_column(), s);
        WN_UNROLL
        for (int i = 0; i < D / 8; i++) {
            WN_UNROLL
            for (int e = 0; e < 4; e++) result[i][e] *= m.back[e / 2];
        }
        wn__cp_async_wait<1>();
        __syncthreads();
        wn__mma_weigh<D, KEYS>(result, s, values);
        __syncthreads();
    }
    const float factor[2] = {(float)k.factor / row_sum(m.sum[0]), (float)k.factor / row_sum(m.sum[1])};
    wn__mma_put<D>(wn__rows_of_result<wn_bf16>(k, k.out, at.b, at.head).from(at.first), result, factor);
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

/* Writes lse and shared of a tile of queries of one head. */
template <int D> static __global__ void __launch_bounds__(128, 3) find_sums_mma(struct wn__attention k)
{
    DYN_SHARED(wn_bf16, keys); /* (KEYS, D) */
    wn__attention_place at = wn__attention_place_of<WN_MMA_ROWS>(k, k.heads, D, true);
    const int64_t stop = wn__attention_stop(k, at.first, WN_MMA_ROWS), query = at.first + wn__mma_row();
    const wn__mma_rows key = wn__rows_of_key<wn_bf16>(k, at.b, at.head);
    const wn__mma_rows dy = wn__rows_of_result<wn_bf16>(k, k.dy, at.b, at.head);
    const wn__mma_rows y = wn__rows_of_result<wn_bf16>(k, k.y, at.b, at.head);
    uint32_t q[D / 16][4];
    float s[KEYS / 8][4];
    mma_softmax m = {{-INFINITY, -INFINITY}, {0, 0}, {0, 0}};
    load_queries<D>(q, keys, wn__rows_of_query<wn_bf16>(k, at.b, at.head).from(at.first));
    for (int64_t key0 = 0; key0 < stop; key0 += KEYS) {
        begin<D>(keys, key, key0, stop);
        wn__cp_async_wait<0>();
        __syncthreads();
        score<D>(s, q, keys);
        __syncthreads();
        softmax_step(k, query, key0, s, m);
    }
    WN_UNROLL
    for (int h = 0; h < 2; h++) {
        const int64_t row = query + 8 * h;
        const bool is_real = row < k.time;
        float part = is_real ? shared_part<D>(dy.at + row * dy.step, y.at + row * y.step) : 0.0f;
        const float lse = m.best[h] + wn__score_log(row_sum(m.sum[h])), sum = row_sum(part);
        if (!is_real || threadIdx.x % 4 != 0) continue;
        const int64_t to = (at.b * k.heads + at.head) * k.time + row;
        ((float *)k.lse)[to] = lse;
        ((float *)k.shared)[to] = sum;
    }
}

/* ---- starting it ------------------------------------------------------------------------------------------------- */

template <int D> static int32_t start(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    struct wn__attention k = wn__attention_of(d, b, 0);
    if (wn__numel(&d->out) == 0) return WN_OK;
    unsigned blocks = wn__attention_blocks(&k, k.heads, D, WN_MMA_ROWS);
    LAUNCH((attend_mma<D>), blocks, WN_MMA_THREADS, 2 * KEYS * D * sizeof(wn_bf16), stream, k);
    return wn__cuda_launched();
}

void wn__attention_mma_sums(const struct wn__attention *k, void *stream)
{
    unsigned blocks = wn__attention_blocks(k, k->heads, k->size, WN_MMA_ROWS);
    if (k->size == 64) LAUNCH((find_sums_mma<64>), blocks, WN_MMA_THREADS, KEYS * 64 * sizeof(wn_bf16), stream, *k);
    else LAUNCH((find_sums_mma<128>), blocks, WN_MMA_THREADS, KEYS * 128 * sizeof(wn_bf16), stream, *k);
}

wn_kernel_fn wn__attention_mma_of(const struct wn_desc *d)
{
    const struct wn_type *qkv = &d->in[d->op == WN_OP_ATTENTION_GRAD ? 1 : 0];
    int64_t size = qkv->dim[2] / (d->attrs.i[0] + 2 * d->attrs.i[1]);
    if (d->out.dtype != WN_BF16 || (size != 64 && size != 128) || !wn__has_tensor_cores()) return NULL;
    if (d->op == WN_OP_ATTENTION_GRAD) return wn__attention_mma_grad_of(size);
    return size == 64 ? start<64> : start<128>;
}
