/* PRODUCT_UPDATE: the gradient of a weight, op(a) op(b), computed by tiles (gemm.cuh) and given to the update in
 * registers, so that it never goes to memory: the bits are those of MATMUL and the update (update.cuh) one after the
 * other. f32, plain cells. */
#include "gemm.cuh"
#include "update.cuh"

struct job {
    struct wn__product p;
    float *cell[3];
    const void *hyper;
    int32_t is_f64; /* the numbers of hyper are */
};

/* Steps V elements of the cells, in a row, with their gradients. */
template <int OP, int V>
static __device__ __forceinline__ void step(const struct job &w, const wn__rule<float> &r, int64_t element,
                                            const float (&grad)[V])
{
    const int cells = wn__rule_cells(OP);
    float at[3][V];
    WN_UNROLL
    for (int c = 0; c < cells; c++) wn__get(w.cell[c] + element, at[c]);
    WN_UNROLL
    for (int v = 0; v < V; v++) {
        float cell[3];
        WN_UNROLL
        for (int c = 0; c < cells; c++) cell[c] = at[c][v];
        wn__rule_step<OP>(r, grad[v], cell);
        WN_UNROLL
        for (int c = 0; c < cells; c++) at[c][v] = cell[c];
    }
    WN_UNROLL
    for (int c = 0; c < cells; c++) wn__put(w.cell[c] + element, at[c]);
}

/* Steps the elements of a row from `element` on one by one, the first n of V. */
template <int OP, int V>
static __device__ __forceinline__ void step_each(const struct job &w, const wn__rule<float> &r, int64_t element,
                                                 const float (&grad)[V], int64_t n)
{
    WN_UNROLL
    for (int v = 0; v < V; v++) {
        float one[1] = {grad[v]};
        if (v < n) step<OP, 1>(w, r, element + v, one);
    }
}

template <int OP, int R> static __global__ void __launch_bounds__(256) update_tile(struct job w)
{
    __shared__ wn__rule<float> rule;
    float grad[R][R];
    wn__tile_place tile = wn__tile_at(w.p, 16 * R);
    if constexpr (OP != WN_OP_ACCUMULATE)
        if (threadIdx.x == 0) wn__rule_fill<OP>(&rule, w.hyper, w.is_f64);
    __syncthreads();
    wn__tile_sums<float, R>(w.p, {0, 0}, tile.row, tile.column, grad);
    const int64_t column = tile.column + wn__tile_column(R);
    const bool in_a_row = w.p.n % R == 0; /* R elements are one load */
    WN_UNROLL
    for (int r = 0; r < R; r++) {
        int64_t row = tile.row + wn__tile_row(R) + r;
        if (row >= w.p.m || column >= w.p.n) continue;
        if (in_a_row) step<OP, R>(w, rule, row * w.p.n + column, grad[r]);
        else step_each<OP, R>(w, rule, row * w.p.n + column, grad[r], w.p.n - column);
    }
}

template <int OP> static int32_t start(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    struct job w;
    memset(&w, 0, sizeof w);
    w.p = wn__product_of(d, b);
    if (w.p.m == 0 || w.p.n == 0) return WN_OK;
    for (int c = 0; c < wn__rule_cells(OP); c++) w.cell[c] = (float *)b->cell[c];
    if (d->n_in > 2) {
        w.hyper = b->in[2];
        w.is_f64 = d->in[2].dtype == WN_F64;
    }
    if (wn__product_is_small(&w.p)) LAUNCH((update_tile<OP, 1>), wn__grid(wn__tiles(&w.p, 16)), 256, 0, stream, w);
    else LAUNCH((update_tile<OP, 4>), wn__grid(wn__tiles(&w.p, 64)), 256, 0, stream, w);
    return wn__cuda_launched();
}

wn_kernel_fn wn__cuda_product_update_kernel(const struct wn_desc *d)
{
    if (d->in[0].dtype != WN_F32 || d->in[1].dtype != WN_F32 || d->out.layout != WN_PLAIN) return NULL;
    switch ((int32_t)d->attrs.i[2]) {
    case WN_OP_ACCUMULATE: return start<WN_OP_ACCUMULATE>;
    case WN_OP_SGD: return start<WN_OP_SGD>;
    case WN_OP_MOMENTUM: return start<WN_OP_MOMENTUM>;
    case WN_OP_ADAM: return start<WN_OP_ADAM>;
    case WN_OP_RMSPROP: return start<WN_OP_RMSPROP>;
    case WN_OP_RMSPROP_MOMENTUM: return start<WN_OP_RMSPROP_MOMENTUM>;
    case WN_OP_RMSPROP_CENTERED: return start<WN_OP_RMSPROP_CENTERED>;
    case WN_OP_LION: return start<WN_OP_LION>;
    default: return NULL;
    }
}
