/* ATTENTION_GRAD of bf16 by tensor cores (attention_mma.cuh), after the sums of rows (attention_mma.cu):
 *
 *     keys      a block has 64 keys of a key head, and walks over its query heads and their queries, 32 at a time:
 *               s = K Q'   d = V dy'   P = power(s - lse)   dS = P (dropout(d) - shared)
 *               dV += dropout(P) dy    dK += dS Q
 *     queries   a block has 64 or 128 queries, and walks over keys:
 *               s = Q K'   d = dy V'   dS as above          dQ += dS K
 *
 * Both are one kernel with rows and columns exchanged. P and dS are rounded to bf16 for their products. Sums go over
 * heads and columns in ascending order, and nothing is added by an atomic. */
#include "attention_mma.cuh"

enum { COLUMNS = 32 }; /* in shared memory together; the next ones are on their way meanwhile */

/* The shared memory of a block. M: blocks of 16 rows that a warp has, as many as its registers hold gradients of. */
template <int D, int M> struct tiles {
    enum { ROWS = 16 * M * WN_MMA_WARPS };
    wn_bf16 row[2][ROWS * D];                  /* keys and values, or queries and dy */
    wn_bf16 column[2][2][COLUMNS * D];         /* the two tiles of them, each: queries and dy, or keys and values */
    float lse[2][COLUMNS], shared[2][COLUMNS]; /* of the columns that are queries */
};

/* The weights of a thread: w becomes dropout(P) without its factor, d becomes dS. */
template <int M> struct weights {
    float w[M][COLUMNS / 8][4], d[M][COLUMNS / 8][4];
};

/* Computes the products of rows and columns; `at`: which of the tiles of columns. */
template <int D, int M> static __device__ __forceinline__ void multiply(const tiles<D, M> &t, int at, weights<M> &x)
{
    const int row = (int)threadIdx.x / 32 * 16 * M;
    wn__mma_clear(x.w);
    wn__mma_clear(x.d);
    WN_UNROLL
    for (int f = 0; f < D; f += 16) {
        uint32_t a[M][4];
        WN_UNROLL
        for (int m = 0; m < M; m++) wn__mma_along<D>(a[m], t.row[0], row + 16 * m, f);
        wn__mma_dots<D, COLUMNS, M>(x.w, a, t.column[at][0], f);
        WN_UNROLL
        for (int m = 0; m < M; m++) wn__mma_along<D>(a[m], t.row[1], row + 16 * m, f);
        wn__mma_dots<D, COLUMNS, M>(x.d, a, t.column[at][1], f);
    }
}

/* One step of a block: numbers of the query and the key of the thread's w[0][0][0], and whether every key
 * of the tile is seen by every query. */
template <int M> struct step {
    int query, key;
    bool is_seen;
    unsigned kept[M]; /* of wn__mma_kept_all */
};

/* The factors of a score and of a weight that dropout keeps. */
struct factors {
    float score, weight;
    __device__ __forceinline__ explicit factors(const struct wn__attention &k)
        : score(wn__score_scale(k.scale, 0.0f)), weight((float)k.factor)
    {
    }
};

/* Makes a weight and its gradient of their products, in place. */
static __device__ __forceinline__ void weigh(const factors &by, float lse, float shared, bool is_kept, float &w,
                                             float &d)
{
    const float p = wn__power_of_two(fmaf(w, by.score, -lse));
    d = p * fmaf(is_kept ? d : 0.0f, by.weight, -shared);
    w = is_kept ? p : 0.0f;
}

/* Makes weights and their gradients of products, of rows that are keys; lse, shared: of the tile of queries. */
template <int SEEN, int M>
static __device__ __forceinline__ void weigh_keys(const struct wn__attention &k, const step<M> &p, const float *lse,
                                                  const float *shared, weights<M> &x)
{
    const factors by(k);
    const int n = p.key - p.query; /* a key is seen from this number of the tile's queries on */
    WN_UNROLL
    for (int i = 0; i < M * COLUMNS / 8; i++) {
        const int j = i / M, m = i % M, c = 8 * j + wn__mma_column();
        const float2 l = *(const float2 *)(lse + c), z = *(const float2 *)(shared + c);
        WN_UNROLL
        for (int e = 0; e < 4; e++) {
            float &w = x.w[m][j][e], &d = x.d[m][j][e];
            weigh(by, e % 2 ? l.y : l.x, e % 2 ? z.y : z.x, p.kept[m] >> (4 * j + e) & 1, w, d);
            if (!SEEN && 8 * j + e % 2 < n + 16 * m + e / 2 * 8) w = d = 0;
        }
    }
}

/* Makes weights and their gradients of products, of rows that are queries; lse, shared: of the thread's rows. */
template <int SEEN, int M>
static __device__ __forceinline__ void weigh_queries(const struct wn__attention &k, const step<M> &p,
                                                     const float (&lse)[2 * M], const float (&shared)[2 * M],
                                                     weights<M> &x)
{
    const factors by(k);
    WN_UNROLL
    for (int i = 0; i < M * COLUMNS / 8; i++) {
        const int j = i / M, m = i % M;
        WN_UNROLL
        for (int e = 0; e < 4; e++) {
            float &w = x.w[m][j][e], &d = x.d[m][j][e];
            weigh(by, lse[2 * m + e / 2], shared[2 * m + e / 2], p.kept[m] >> (4 * j + e) & 1, w, d);
            if (!SEEN && p.key + 8 * j + e % 2 >= wn__attention_stop(k, p.query + 16 * m + e / 2 * 8, 1)) w = d = 0;
        }
    }
}

/* Loads lse and shared of queries from `first` on. A query beyond the last gets an infinite lse: its weights are 0. */
static __device__ __forceinline__ void load_sums(const struct wn__attention &k, const wn__attention_place &at,
                                                 int first, float *lse, float *shared)
{
    const int i = (int)threadIdx.x % COLUMNS, what = (int)threadIdx.x / COLUMNS;
    const int64_t query = first + i, from = (at.b * k.heads + at.head) * k.time + query;
    if (what == 0) lse[i] = query < k.time ? ((const float *)k.lse)[from] : INFINITY;
    if (what == 1) shared[i] = query < k.time ? ((const float *)k.shared)[from] : 0.0f;
}

/* Begins to load two tiles of columns, as one group of copies. */
template <int D>
static __device__ __forceinline__ void begin(wn_bf16 (&to)[2][COLUMNS * D], const wn__mma_rows &a,
                                             const wn__mma_rows &b, int first)
{
    wn__mma_load<D, COLUMNS>(to[0], a.from(first));
    wn__mma_load<D, COLUMNS>(to[1], b.from(first));
    wn__cp_async_commit();
}

/* Waits for the copies of the calling thread and for the other threads of the block. */
static __device__ __forceinline__ void arrive(void)
{
    wn__cp_async_wait<0>();
    __syncthreads();
}

/* Adds what the queries of one head give to the gradients of a tile of keys and values. */
template <int D, int M>
static __device__ __forceinline__ void add_head(const struct wn__attention &k, const wn__attention_place &at,
                                                tiles<D, M> &t, float (&dk)[M][D / 8][4], float (&dv)[M][D / 8][4])
{
    const wn__mma_rows query = wn__rows_of_query<wn_bf16>(k, at.b, at.head);
    const wn__mma_rows dy = wn__rows_of_result<wn_bf16>(k, k.dy, at.b, at.head);
    const int first = (int)at.first, start = k.causal ? first : 0, time = (int)k.time;
    weights<M> x;
    __syncthreads();
    begin<D>(t.column[0], query, dy, start);
    load_sums(k, at, start, t.lse[0], t.shared[0]);
    for (int query0 = start; query0 < time; query0 += COLUMNS) {
        const int now = (query0 - start) / COLUMNS % 2, next = 1 - now;
        arrive();
        if (query0 + COLUMNS < time) {
            begin<D>(t.column[next], query, dy, query0 + COLUMNS);
            load_sums(k, at, query0 + COLUMNS, t.lse[next], t.shared[next]);
        }
        step<M> p = {query0 + wn__mma_column(), first + wn__mma_row<M>(), false, {}};
        p.is_seen = !k.causal || first + tiles<D, M>::ROWS <= query0 + 1;
        wn__mma_kept_all<1, COLUMNS>(k, wn__mma_element(k, at, p.query, p.key), p.kept);
        multiply<D, M>(t, now, x);
        if (p.is_seen) weigh_keys<1>(k, p, t.lse[now], t.shared[now], x);
        else weigh_keys<0>(k, p, t.lse[now], t.shared[now], x);
        wn__mma_weigh<D, COLUMNS, M>(dv, x.w, t.column[now][1]);
        wn__mma_weigh<D, COLUMNS, M>(dk, x.d, t.column[now][0]);
    }
}

/* Stores the rows of a thread times `factor` as elements of qkv's gradient, beside rows x of qkv. */
template <int D, int M>
static __device__ __forceinline__ void put(const struct wn__attention &k, wn__mma_rows x, float factor,
                                           const float (&result)[M][D / 8][4])
{
    const float factors[2] = {factor, factor};
    x.at = (const wn_bf16 *)k.out + (x.at - (const wn_bf16 *)k.qkv);
    WN_UNROLL
    for (int m = 0; m < M; m++) wn__mma_put<D>(x, wn__mma_row<M>() + 16 * m, result[m], factors);
}

/* Computes the gradients of a tile of keys and values of one key head. */
template <int D, int M> static __global__ void __launch_bounds__(128, 2) grad_keys_mma(struct wn__attention k)
{
    typedef tiles<D, M> block;
    DYN_SHARED(block, t);
    wn__attention_place at = wn__attention_place_of<block::ROWS>(k, k.kv_heads, D, false);
    const int64_t group = k.heads / k.kv_heads, key_head = at.head;
    const wn__mma_rows key = wn__rows_of_column<wn_bf16>(k, at.b, k.heads + key_head).from(at.first);
    const wn__mma_rows value = wn__rows_of_column<wn_bf16>(k, at.b, k.heads + k.kv_heads + key_head).from(at.first);
    float dk[M][D / 8][4], dv[M][D / 8][4];
    wn__mma_clear(dk);
    wn__mma_clear(dv);
    wn__mma_load<D, block::ROWS>(t->row[0], key);
    wn__mma_load<D, block::ROWS>(t->row[1], value);
    for (at.head = key_head * group; at.head < (key_head + 1) * group; at.head++) add_head<D, M>(k, at, *t, dk, dv);
    put<D, M>(k, key, (float)k.scale, dk);
    put<D, M>(k, value, (float)k.factor, dv);
}

/* Computes the gradients of a tile of queries of one head. */
template <int D, int M> static __global__ void __launch_bounds__(128, 2) grad_queries_mma(struct wn__attention k)
{
    typedef tiles<D, M> block;
    DYN_SHARED(block, t);
    wn__attention_place at = wn__attention_place_of<block::ROWS>(k, k.heads, D, true);
    const int stop = (int)wn__attention_stop(k, at.first, block::ROWS), row = (int)at.first + wn__mma_row<M>();
    const wn__mma_rows query = wn__rows_of_query<wn_bf16>(k, at.b, at.head).from(at.first);
    const wn__mma_rows dy = wn__rows_of_result<wn_bf16>(k, k.dy, at.b, at.head).from(at.first);
    const wn__mma_rows key = wn__rows_of_key<wn_bf16>(k, at.b, at.head);
    const wn__mma_rows value = wn__rows_of_value<wn_bf16>(k, at.b, at.head);
    float dq[M][D / 8][4], lse[2 * M], shared[2 * M];
    weights<M> x;
    wn__mma_clear(dq);
    WN_UNROLL
    for (int h = 0; h < 2 * M; h++) {
        const int64_t from = (at.b * k.heads + at.head) * k.time + row + 8 * h;
        lse[h] = row + 8 * h < k.time ? ((const float *)k.lse)[from] : INFINITY;
        shared[h] = row + 8 * h < k.time ? ((const float *)k.shared)[from] : 0.0f;
    }
    wn__mma_load<D, block::ROWS>(t->row[0], query);
    wn__mma_load<D, block::ROWS>(t->row[1], dy);
    begin<D>(t->column[0], key, value, 0);
    for (int key0 = 0; key0 < stop; key0 += COLUMNS) {
        const int now = key0 / COLUMNS % 2;
        arrive();
        if (key0 + COLUMNS < stop) begin<D>(t->column[1 - now], key, value, key0 + COLUMNS);
        step<M> p = {row, key0 + wn__mma_column(), key0 + COLUMNS <= wn__attention_stop(k, at.first, 1), {}};
        wn__mma_kept_all<0, COLUMNS>(k, wn__mma_element(k, at, p.query, p.key), p.kept);
        multiply<D, M>(*t, now, x);
        if (p.is_seen) weigh_queries<1>(k, p, lse, shared, x);
        else weigh_queries<0>(k, p, lse, shared, x);
        wn__mma_weigh<D, COLUMNS, M>(dq, x.d, t->column[now][0]);
    }
    put<D, M>(k, query, (float)k.scale, dq);
}

/* ---- starting it ------------------------------------------------------------------------------------------------- */

template <int D> static int32_t start(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    enum { OF_KEYS = 1, OF_QUERIES = D == 64 ? 2 : 1 }; /* blocks of 16 rows a warp */
    typedef tiles<D, OF_KEYS> keys;
    typedef tiles<D, OF_QUERIES> queries;
    struct wn__attention k = wn__attention_grad_job(d, b);
    if (wn__numel(&d->out) == 0) return WN_OK;
    wn__attention_mma_sums(&k, stream);
    wn__allow_shared(grad_keys_mma<D, OF_KEYS>, sizeof(keys));
    LAUNCH((grad_keys_mma<D, OF_KEYS>), wn__attention_blocks(&k, k.kv_heads, D, keys::ROWS), WN_MMA_THREADS,
           sizeof(keys), stream, k);
    wn__allow_shared(grad_queries_mma<D, OF_QUERIES>, sizeof(queries));
    LAUNCH((grad_queries_mma<D, OF_QUERIES>), wn__attention_blocks(&k, k.heads, D, queries::ROWS), WN_MMA_THREADS,
           sizeof(queries), stream, k);
    return wn__cuda_launched();
}

wn_kernel_fn wn__attention_mma_grad_of(int64_t size)
{
    return size == 64 ? start<64> : start<128>;
}
