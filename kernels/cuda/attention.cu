/* ATTENTION by tiles (attention.cuh), within a tolerance of the CPU; dropout draws the CPU's masks.
 *
 *     for each tile of keys:  s = Q K'                 products, times the scale
 *                             online softmax of s      best, sum, s = power(s - best)
 *                             result = result back + dropout(s) V
 *     result = result / sum
 *
 * A block owns the queries of a tile of one head, and walks over tiles of keys in ascending order (Dao and others,
 * "FlashAttention", 2022). Heads longer than what registers hold are computed in slices: a block has up to 128 numbers
 * of the result, and computes all weights. */
#include "attention.cuh"

template <class T, int R, int C>
static __global__ void __launch_bounds__(256, C == 1 ? 2 : 1) attend(struct wn__attention k)
{
    typedef typename wn__number<T>::type N;
    typedef wn__attention_tile<N, R> tile_type;
    DYN_SHARED(tile_type, tile);
    const int size = tile_type::SIZE;
    wn__attention_place at = wn__attention_place_of<size>(k, k.heads, size * C, true);
    const int64_t stop = wn__attention_stop(k, at.first, size);
    const wn__rows<T> query = wn__rows_of_query<T>(k, at.b, at.head).from(at.first);
    wn__softmax_state<N, R> m;
    N result[C][R][R] = {}, s[R][R];
    wn__softmax_start(m);
    for (int64_t key0 = 0; key0 < stop; key0 += size) {
        wn__tile_dots<T, N, R>(*tile, query, wn__rows_of_key<T>(k, at.b, at.head).from(key0), s);
        wn__softmax_step(k, at.first, key0, s, m);
        unsigned kept = wn__attention_kept<R>(k, at, at.first + wn__tile_row<R>(), key0 + wn__tile_column<R>());
        WN_UNROLL
        for (int r = 0; r < R; r++) {
            WN_UNROLL
            for (int c = 0; c < R; c++) s[r][c] = kept >> (R * r + c) & 1 ? s[r][c] : (N)0;
            WN_UNROLL
            for (int c = 0; c < C; c++)
                for (int f = 0; f < R; f++) result[c][r][f] *= m.back[r];
        }
        wn__tile_store(*tile, s);
        wn__tile_seen seen = k.causal && key0 == at.first ? WN_TILE_UP_TO : WN_TILE_ALL;
        wn__tile_weigh<T, N, R, C>(*tile, wn__rows_of_value<T>(k, at.b, at.head).from(key0), at.f0, seen, result);
    }
    N factor[R];
    WN_UNROLL
    for (int r = 0; r < R; r++) factor[r] = (N)k.factor / wn__lanes_sum(m.sum[r]);
    wn__tile_put<T, N, R, C>(wn__rows_of_result<T>(k, k.out, at.b, at.head).from(at.first), at.f0, result, factor);
}

template <class T, int R, int C> static int32_t start_attend(const struct wn__attention &k, void *stream)
{
    typedef wn__attention_tile<typename wn__number<T>::type, R> tile;
    unsigned blocks = wn__attention_blocks(&k, k.heads, tile::SIZE * C, tile::SIZE);
    LAUNCH((attend<T, R, C>), blocks, WN_ATTENTION_THREADS, sizeof(tile), stream, k);
    return wn__cuda_launched();
}

template <class T> static int32_t attention(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    struct wn__attention k = wn__attention_of(d, b, 0);
    if (wn__numel(&d->out) == 0) return WN_OK;
    return k.size <= 64 ? start_attend<T, 4, 1>(k, stream) : start_attend<T, 4, 2>(k, stream);
}

static int32_t attention_f64(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    return wn__numel(&d->out) == 0 ? (int32_t)WN_OK : start_attend<double, 2, 4>(wn__attention_of(d, b, 0), stream);
}

wn_kernel_fn wn__cuda_attention_kernel(const struct wn_desc *d)
{
    if (!wn__has_one_dtype(d)) return NULL;
    wn_kernel_fn by_tensor_cores = wn__attention_mma_of(d);
    if (by_tensor_cores != NULL) return by_tensor_cores;
    switch (d->op) {
    case WN_OP_ATTENTION: return wn__kernel_of(d->out.dtype, attention<float>, attention_f64, attention<wn_bf16>);
    case WN_OP_ATTENTION_GRAD: return wn__attention_grad_of(d->out.dtype);
    default: return NULL;
    }
}
