/* ATTENTION_GRAD by tiles (attention.cuh), within a tolerance of the CPU; dropout draws the CPU's masks.
 *
 *     1. a block has a tile of queries:      lse = log of the sum of powers of a row's scores, shared = sum of dy y
 *     2. a block has a tile of keys of a key head, and walks over its query heads and their tiles in ascending order:
 *            P = power(S - lse)    dS = P (dropout(dy V') - shared)    dV += dropout(P)' dy    dK += dS' Q
 *     3. a block has a tile of queries:      dQ += dS K, over tiles of keys in ascending order
 *
 * lse and shared are in the workspace, two numbers a row of scores. Nothing of the forward is kept but its result, and
 * the weights are computed three times. A block has up to 128 numbers of each head's gradients. */
#include "attention.cuh"

/* Writes lse and shared of a tile of queries of one head. */
template <class T, int R> static __global__ void __launch_bounds__(256, 2) find_sums(struct wn__attention k)
{
    typedef typename wn__number<T>::type N;
    typedef wn__attention_tile<N, R> tile_type;
    DYN_SHARED(tile_type, tile);
    const int size = tile_type::SIZE;
    wn__attention_place at = wn__attention_place_of<size>(k, k.heads, k.size, true);
    const int64_t stop = wn__attention_stop(k, at.first, size);
    const wn__rows<T> query = wn__rows_of_query<T>(k, at.b, at.head).from(at.first);
    const wn__rows<T> dy = wn__rows_of_result<T>(k, k.dy, at.b, at.head).from(at.first);
    const wn__rows<T> y = wn__rows_of_result<T>(k, k.y, at.b, at.head).from(at.first);
    wn__softmax_state<N, R> m;
    N s[R][R];
    wn__softmax_start(m);
    for (int64_t key0 = 0; key0 < stop; key0 += size) {
        wn__tile_dots<T, N, R>(*tile, query, wn__rows_of_key<T>(k, at.b, at.head).from(key0), s);
        wn__softmax_step(k, at.first, key0, s, m);
    }
    WN_UNROLL
    for (int r = 0; r < R; r++) {
        const int row = wn__tile_row<R>() + r;
        const int n = row < dy.n ? k.size : 0;
        N shared = (N)0;
        for (int f = (int)threadIdx.x % WN_ATTENTION_SIDE; f < n; f += WN_ATTENTION_SIDE)
            shared =
                wn__multiply_add((N)wn__load(dy.at[row * dy.step + f]), (N)wn__load(y.at[row * y.step + f]), shared);
        shared = wn__lanes_sum(shared);
        N lse = m.best[r] + wn__score_log(wn__lanes_sum(m.sum[r]));
        if (n == 0 || wn__tile_column<R>() > 0) continue;
        const int64_t to = (at.b * k.heads + at.head) * k.time + at.first + row;
        ((N *)k.lse)[to] = lse;
        ((N *)k.shared)[to] = shared;
    }
}

/* One weight: its product of query and key, s, becomes P; d, the gradient of the weight after dropout, becomes dS. Both
 * are 0 where the key is not seen. Returns P after dropout, without its factor. */
template <class N> struct weighing {
    N scale, factor; /* of scores; of the weights that are kept */
    __device__ __forceinline__ N of(bool is_seen, bool is_kept, const N (&row)[2], N s, N &d) const
    {
        N p = is_seen ? wn__score_power(s * scale - row[0]) : (N)0;
        N kept = is_kept ? d * factor : (N)0;
        d = is_seen ? p * (kept - row[1]) : (N)0;
        return is_kept ? p : (N)0;
    }
};

/* Reads {lse, shared} of a query; zeros where there is none. */
template <class N>
static __device__ __forceinline__ void read_sums(const struct wn__attention &k, const wn__attention_place &at,
                                                 int64_t query, N (&to)[2])
{
    const int64_t from = (at.b * k.heads + at.head) * k.time + query;
    to[0] = query < k.time ? ((const N *)k.lse)[from] : (N)0;
    to[1] = query < k.time ? ((const N *)k.shared)[from] : (N)0;
}

/* Computes the weights and their gradients of a tile whose rows are keys and whose columns are queries; at.head: the
 * query head. s, d: products of keys and queries, and of values and dy; become dropout(P) and dS. */
template <class N, int R>
static __device__ __forceinline__ void weigh_keys(const struct wn__attention &k, const wn__attention_place &at,
                                                  int64_t query0, N (&s)[R][R], N (&d)[R][R])
{
    const weighing<N> w = {wn__score_scale(k.scale, (N)0), (N)k.factor};
    const int64_t key = at.first + wn__tile_row<R>();
    const unsigned kept = wn__attention_kept<R>(k, at, query0 + wn__tile_column<R>(), key);
    WN_UNROLL
    for (int c = 0; c < R; c++) {
        const int64_t query = query0 + wn__tile_column<R>() + c;
        const int64_t stop = query < k.time ? wn__attention_stop(k, query, 1) : 0;
        N row[2];
        read_sums(k, at, query, row);
        WN_UNROLL
        for (int r = 0; r < R; r++) s[r][c] = w.of(key + r < stop, kept >> (R * c + r) & 1, row, s[r][c], d[r][c]);
    }
}

/* Computes the gradients of a tile of keys and values of one key head. */
template <class T, int R, int C> static __global__ void __launch_bounds__(256, 1) grad_keys(struct wn__attention k)
{
    typedef typename wn__number<T>::type N;
    typedef wn__attention_tile<N, R> tile_type;
    DYN_SHARED(tile_type, tile);
    const int size = tile_type::SIZE;
    wn__attention_place at = wn__attention_place_of<size>(k, k.kv_heads, size * C, false);
    const int64_t group = k.heads / k.kv_heads, key_head = at.head;
    const wn__rows<T> key = wn__rows_of_column<T>(k, at.b, k.heads + key_head).from(at.first);
    const wn__rows<T> value = wn__rows_of_column<T>(k, at.b, k.heads + k.kv_heads + key_head).from(at.first);
    N dk[C][R][R] = {}, dv[C][R][R] = {}, s[R][R], d[R][R];
    for (at.head = key_head * group; at.head < (key_head + 1) * group; at.head++)
        for (int64_t query0 = k.causal ? at.first : 0; query0 < k.time; query0 += size) {
            const wn__rows<T> query = wn__rows_of_query<T>(k, at.b, at.head).from(query0);
            const wn__rows<T> dy = wn__rows_of_result<T>(k, k.dy, at.b, at.head).from(query0);
            wn__tile_seen seen = k.causal && query0 == at.first ? WN_TILE_FROM : WN_TILE_ALL;
            wn__tile_dots<T, N, R>(*tile, key, query, s);
            wn__tile_dots<T, N, R>(*tile, value, dy, d);
            weigh_keys<N, R>(k, at, query0, s, d);
            wn__tile_store(*tile, s);
            wn__tile_weigh<T, N, R, C>(*tile, dy, at.f0, seen, dv);
            __syncthreads();
            wn__tile_store(*tile, d);
            wn__tile_weigh<T, N, R, C>(*tile, query, at.f0, seen, dk);
        }
    wn__rows<T> to = key;
    const int64_t beside = key.at - (const T *)k.qkv, values = k.kv_heads * k.size;
    N scale[R], factor[R];
    WN_UNROLL
    for (int r = 0; r < R; r++) scale[r] = (N)k.scale, factor[r] = (N)k.factor;
    to.at = (const T *)k.out + beside;
    wn__tile_put<T, N, R, C>(to, at.f0, dk, scale);
    to.at += values;
    wn__tile_put<T, N, R, C>(to, at.f0, dv, factor);
}

/* Computes the gradients of a tile of queries of one head. */
template <class T, int R, int C>
static __global__ void __launch_bounds__(256, C == 1 ? 2 : 1) grad_queries(struct wn__attention k)
{
    typedef typename wn__number<T>::type N;
    typedef wn__attention_tile<N, R> tile_type;
    DYN_SHARED(tile_type, tile);
    const int size = tile_type::SIZE;
    wn__attention_place at = wn__attention_place_of<size>(k, k.heads, size * C, true);
    const int64_t stop = wn__attention_stop(k, at.first, size);
    const wn__rows<T> query = wn__rows_of_query<T>(k, at.b, at.head).from(at.first);
    const wn__rows<T> dy = wn__rows_of_result<T>(k, k.dy, at.b, at.head).from(at.first);
    const weighing<N> w = {wn__score_scale(k.scale, (N)0), (N)k.factor};
    N dq[C][R][R] = {}, s[R][R], d[R][R];
    for (int64_t key0 = 0; key0 < stop; key0 += size) {
        const wn__rows<T> key = wn__rows_of_key<T>(k, at.b, at.head).from(key0);
        wn__tile_dots<T, N, R>(*tile, query, key, s);
        wn__tile_dots<T, N, R>(*tile, dy, wn__rows_of_value<T>(k, at.b, at.head).from(key0), d);
        const int64_t first = key0 + wn__tile_column<R>();
        const unsigned kept = wn__attention_kept<R>(k, at, at.first + wn__tile_row<R>(), first);
        WN_UNROLL
        for (int r = 0; r < R; r++) {
            const int64_t q = at.first + wn__tile_row<R>() + r, end = wn__attention_stop(k, q, 1);
            N row[2];
            read_sums(k, at, q, row);
            WN_UNROLL
            for (int c = 0; c < R; c++) w.of(first + c < end, kept >> (R * r + c) & 1, row, s[r][c], d[r][c]);
        }
        wn__tile_store(*tile, d);
        wn__tile_seen seen = k.causal && key0 == at.first ? WN_TILE_UP_TO : WN_TILE_ALL;
        wn__tile_weigh<T, N, R, C>(*tile, key, at.f0, seen, dq);
    }
    wn__rows<T> to = query;
    N scale[R];
    WN_UNROLL
    for (int r = 0; r < R; r++) scale[r] = (N)k.scale;
    to.at = (const T *)k.out + (query.at - (const T *)k.qkv);
    wn__tile_put<T, N, R, C>(to, at.f0, dq, scale);
}

/* ---- starting it ------------------------------------------------------------------------------------------------- */

template <class T, int R, int C> static int32_t start(const struct wn__attention &k, void *stream)
{
    typedef wn__attention_tile<typename wn__number<T>::type, R> tile;
    const int size = tile::SIZE, bytes = (int)sizeof(tile);
    unsigned rows = wn__attention_blocks(&k, k.heads, k.size, size);
    unsigned keys = wn__attention_blocks(&k, k.kv_heads, size * C, size);
    unsigned queries = wn__attention_blocks(&k, k.heads, size * C, size);
    LAUNCH((find_sums<T, R>), rows, WN_ATTENTION_THREADS, bytes, stream, k);
    LAUNCH((grad_keys<T, R, C>), keys, WN_ATTENTION_THREADS, bytes, stream, k);
    LAUNCH((grad_queries<T, R, C>), queries, WN_ATTENTION_THREADS, bytes, stream, k);
    return wn__cuda_launched();
}

template <class T> static int32_t attention_grad(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    struct wn__attention k = wn__attention_grad_job(d, b);
    if (wn__numel(&d->out) == 0) return WN_OK;
    return k.size <= 64 ? start<T, 4, 1>(k, stream) : start<T, 4, 2>(k, stream);
}

static int32_t attention_grad_f64(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    struct wn__attention k = wn__attention_grad_job(d, b);
    k.shared = (double *)b->workspace + k.batch * k.heads * k.time;
    return wn__numel(&d->out) == 0 ? (int32_t)WN_OK : start<double, 2, 4>(k, stream);
}

wn_kernel_fn wn__attention_grad_of(int32_t dtype)
{
    return wn__kernel_of(dtype, attention_grad<float>, attention_grad_f64, attention_grad<wn_bf16>);
}
