/* ATTENTION_GRAD of bf16 by tensor cores (attention_mma.cuh), after the sums of rows (attention_mma.cu):
 *
 *     keys      a block has 64 keys of a key head, and walks over its query heads and their queries, 32 at a time:
 *               s = K Q'   d = V dy'   P = power(s - lse)   dS = P (dropout(d) - shared)
 *               dV += dropout(P) dy    dK += dS Q
 *     queries   a block has 64 queries, and walks over keys:
 *               s = Q K'   d = dy V'   dS as above          dQ += dS K
 *
 * Both are one kernel with rows and columns exchanged. P and dS are rounded to bf16 for their products. Sums go over
 * heads and columns in ascending order, and nothing is added by an atomic. */
#include "attention_mma.cuh"

enum { COLUMNS = 32 }; /* in shared memory together, beside 64 rows: at most 48 KiB for heads of 128 */

/* The tiles of a block: (2, ROWS, D) of rows, (2, COLUMNS, D) of columns. */
template <int D> struct tiles {
    wn_bf16 *row[2], *column[2];
    __device__ __forceinline__ explicit tiles(wn_bf16 *shared)
    {
        for (int i = 0; i < 2; i++) {
            row[i] = shared + i * WN_MMA_ROWS * D;
            column[i] = shared + 2 * WN_MMA_ROWS * D + i * COLUMNS * D;
        }
    }
};

/* The weights of a thread: w becomes dropout(P) without its factor, d becomes dS. */
struct weights {
    float w[COLUMNS / 8][4], d[COLUMNS / 8][4];
};

/* Computes the products of rows and columns. */
template <int D> static __device__ __forceinline__ void multiply(const tiles<D> &t, weights &x)
{
    const int row = (int)threadIdx.x / 32 * 16;
    wn__mma_clear(x.w);
    wn__mma_clear(x.d);
    WN_ROLLED
    for (int f = 0; f < D; f += 16) {
        uint32_t a[4];
        wn__mma_along<D>(a, t.row[0], row, f);
        wn__mma_dots<D, COLUMNS>(x.w, a, t.column[0], f);
        wn__mma_along<D>(a, t.row[1], row, f);
        wn__mma_dots<D, COLUMNS>(x.d, a, t.column[1], f);
    }
}

/* Makes weights and their gradients of products. row, column: numbers of those of w[0][0]; at.head: the query head. */
template <int ROWS_ARE_KEYS>
static __device__ __forceinline__ void weigh(const struct wn__attention &k, const wn__attention_place &at, int64_t row,
                                             int64_t column, weights &x)
{
    const int64_t head = (at.b * k.heads + at.head) * k.time;
    const float scale = wn__score_scale(k.scale, 0.0f), factor = (float)k.factor;
    const float *lse = (const float *)k.lse + head, *shared = (const float *)k.shared + head;
    WN_UNROLL
    for (int j = 0; j < COLUMNS / 8; j++) {
        const int64_t c = column + 8 * j;
        const uint64_t e0 = (uint64_t)(ROWS_ARE_KEYS ? (head + c) * k.time + row : (head + row) * k.time + c);
        const unsigned kept = wn__mma_kept<ROWS_ARE_KEYS>(k, e0);
        WN_UNROLL
        for (int e = 0; e < 4; e++) {
            const int64_t r = row + e / 2 * 8, query = ROWS_ARE_KEYS ? c + e % 2 : r,
                          key = ROWS_ARE_KEYS ? r : c + e % 2;
            const bool is_seen = query < k.time && key < wn__attention_stop(k, query, 1);
            const bool is_kept = kept >> e & 1;
            float p = is_seen ? wn__score_power(x.w[j][e] * scale - lse[query]) : 0.0f;
            float dp = is_kept ? x.d[j][e] * factor : 0.0f;
            x.d[j][e] = is_seen ? p * (dp - shared[query]) : 0.0f;
            x.w[j][e] = is_kept ? p : 0.0f;
        }
    }
}

/* Loads both tiles of columns from `first` on; a group of copies that has ended on return. */
template <int D>
static __device__ __forceinline__ void load_columns(const tiles<D> &t, const wn__mma_rows &a, const wn__mma_rows &b,
                                                    int64_t first)
{
    __syncthreads();
    wn__mma_load<D, COLUMNS>(t.column[0], a.from(first));
    wn__mma_load<D, COLUMNS>(t.column[1], b.from(first));
    wn__cp_async_commit();
    wn__cp_async_wait<0>();
    __syncthreads();
}

/* Computes the gradients of a tile of keys and values of one key head. */
template <int D> static __global__ void __launch_bounds__(128, D == 64 ? 2 : 1) grad_keys_mma(struct wn__attention k)
{
    DYN_SHARED(wn_bf16, shared);
    const tiles<D> t(shared);
    wn__attention_place at = wn__attention_place_of<WN_MMA_ROWS>(k, k.kv_heads, D, false);
    const int64_t group = k.heads / k.kv_heads, key_head = at.head;
    const wn__mma_rows key = wn__rows_of_column<wn_bf16>(k, at.b, k.heads + key_head).from(at.first);
    const wn__mma_rows value = wn__rows_of_column<wn_bf16>(k, at.b, k.heads + k.kv_heads + key_head).from(at.first);
    float dk[D / 8][4], dv[D / 8][4];
    weights x;
    wn__mma_clear(dk);
    wn__mma_clear(dv);
    wn__mma_load<D, WN_MMA_ROWS>(t.row[0], key);
    wn__mma_load<D, WN_MMA_ROWS>(t.row[1], value);
    for (at.head = key_head * group; at.head < (key_head + 1) * group; at.head++) {
        const wn__mma_rows query = wn__rows_of_query<wn_bf16>(k, at.b, at.head);
        const wn__mma_rows dy = wn__rows_of_result<wn_bf16>(k, k.dy, at.b, at.head);
        for (int64_t query0 = k.causal ? at.first : 0; query0 < k.time; query0 += COLUMNS) {
            load_columns<D>(t, query, dy, query0);
            multiply<D>(t, x);
            weigh<1>(k, at, at.first + wn__mma_row(), query0 + wn__mma_column(), x);
            wn__mma_weigh<D, COLUMNS>(dv, x.w, t.column[1]);
            wn__mma_weigh<D, COLUMNS>(dk, x.d, t.column[0]);
        }
    }
    const float scale[2] = {(float)k.scale, (float)k.scale}, factor[2] = {(float)k.factor, (float)k.factor};
    wn__mma_rows to = key;
    to.at = (const wn_bf16 *)k.out + (key.at - (const wn_bf16 *)k.qkv);
    wn__mma_put<D>(to, dk, scale);
    to.at = (const wn_bf16 *)k.out + (value.at - (const wn_bf16 *)k.qkv);
    wn__mma_put<D>(to, dv, factor);
}

/* Computes the gradients of a tile of queries of one head. */
template <int D> static __global__ void __launch_bounds__(128, D == 64 ? 3 : 2) grad_queries_mma(struct wn__attention k)
{
    DYN_SHARED(wn_bf16, shared);
    const tiles<D> t(shared);
    wn__attention_place at = wn__attention_place_of<WN_MMA_ROWS>(k, k.heads, D, true);
    const int64_t stop = wn__attention_stop(k, at.first, WN_MMA_ROWS);
    const wn__mma_rows query = wn__rows_of_query<wn_bf16>(k, at.b, at.head).from(at.first);
    const wn__mma_rows key = wn__rows_of_key<wn_bf16>(k, at.b, at.head);
    const wn__mma_rows value = wn__rows_of_value<wn_bf16>(k, at.b, at.head);
    float dq[D / 8][4];
    weights x;
    wn__mma_clear(dq);
    wn__mma_load<D, WN_MMA_ROWS>(t.row[0], query);
    wn__mma_load<D, WN_MMA_ROWS>(t.row[1], wn__rows_of_result<wn_bf16>(k, k.dy, at.b, at.head).from(at.first));
    for (int64_t key0 = 0; key0 < stop; key0 += COLUMNS) {
        load_columns<D>(t, key, value, key0);
        multiply<D>(t, x);
        weigh<0>(k, at, at.first + wn__mma_row(), key0 + wn__mma_column(), x);
        wn__mma_weigh<D, COLUMNS>(dq, x.d, t.column[0]);
    }
    const float scale[2] = {(float)k.scale, (float)k.scale};
    wn__mma_rows to = query;
    to.at = (const wn_bf16 *)k.out + (query.at - (const wn_bf16 *)k.qkv);
    wn__mma_put<D>(to, dq, scale);
}

/* ---- starting it ------------------------------------------------------------------------------------------------- */

template <int D> static int32_t start(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    struct wn__attention k = wn__attention_grad_job(d, b);
    const size_t bytes = 2 * (WN_MMA_ROWS + COLUMNS) * D * sizeof(wn_bf16);
    if (wn__numel(&d->out) == 0) return WN_OK;
    wn__attention_mma_sums(&k, stream);
    unsigned keys = wn__attention_blocks(&k, k.kv_heads, D, WN_MMA_ROWS);
    unsigned queries = wn__attention_blocks(&k, k.heads, D, WN_MMA_ROWS);
    LAUNCH((grad_keys_mma<D>), keys, WN_MMA_THREADS, bytes, stream, k);
    LAUNCH((grad_queries_mma<D>), queries, WN_MMA_THREADS, bytes, stream, k);
    return wn__cuda_launched();
}

wn_kernel_fn wn__attention_mma_grad_of(int64_t size)
{
    return size == 64 ? start<64> : start<128>;
}
