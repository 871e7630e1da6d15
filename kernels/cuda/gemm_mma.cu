/* MATMUL, LINEAR, MATMUL_MAP, LINEAR_MAP of bf16 by tensor cores (gemm_mma.cuh), rounded once; bias and epilogue as in
 * gemm.cu (gemm_store.cuh). Which products come here depends on n and k alone: a row has the same bits among many rows
 * and among few. */
#include "gemm_mma.cuh"
#include "gemm_store.cuh"

enum { CHUNK = WN_GEMM_CHUNK, BAND = 8 }; /* BAND: rows of tiles that share columns of b while the GPU caches these */

/* An operand as it lies in memory: rows x columns, rows ld elements apart. ALONG_K: its rows are along k. outer: the
 * first of its m or n in the tile. */
template <int K> struct matrix {
    enum { ALONG_K = K };
    const wn_bf16 *x;
    int64_t rows, columns, ld, outer;

    /* Begins to load a chunk of which `left` elements are in the matrix, the rest zeros. A chunk that is not on 16
     * bytes is loaded one by one. */
    static __device__ __forceinline__ void load_chunk(wn_bf16 *to, const wn_bf16 *from, int64_t left, bool is_aligned)
    {
        if (is_aligned && left >= CHUNK) {
            wn__cp_async16(to, from);
            return;
        }
        wn__pack<wn_bf16, CHUNK> p;
        WN_UNROLL
        for (int v = 0; v < CHUNK; v++) {
            p.at[v].bits = 0;
            if (v < left) p.at[v] = from[v];
        }
        *(wn__pack<wn_bf16, CHUNK> *)to = p;
    }

    template <int SIZE> __device__ __forceinline__ void load(wn_bf16 *to, int64_t k) const
    {
        const int per_row = (K ? WN_GEMM_STEP : SIZE) / CHUNK, threads = 2 * SIZE;
        const int64_t row = K ? outer : k, column = K ? k : outer;
        WN_UNROLL
        for (int c = 0; c < 2; c++) {
            int e = (int)threadIdx.x + c * threads, i = e / per_row, chunk = e % per_row;
            int64_t at = column + chunk * CHUNK;
            load_chunk(to + wn__gemm_place<per_row>(i, chunk) * CHUNK, x + (row + i) * ld + at,
                       row + i < rows ? columns - at : 0, ld % CHUNK == 0);
        }
    }
};

/* Stores the outputs of a tile. */
struct tile_out {
    enum { CHUNKS = 1 };
    const struct wn__gemm_job &w;
    wn__tile_place tile;
    int64_t rows, columns;
    bool is_wide;

    template <int V> __device__ __forceinline__ void put(int row, int column, float (&sum)[V]) const
    {
        const wn__tile_place at = {tile.batch, tile.row + row, tile.column + column};
        wn__gemm_finish<wn_bf16, V>(w, at, sum);
        wn__gemm_put((wn_bf16 *)w.c + wn__gemm_element(w, at), sum);
    }
};

/* ---- the kernel ------------------------------------------------------------------------------------------------- */

/* Returns the place of the calling block's tile: blocks go down BAND rows of tiles, then to the next column. */
WN_DEVICE_FN wn__tile_place tile_in_band(const struct wn__product &p, int size)
{
    int64_t across = (p.n + size - 1) / size, down = (p.m + size - 1) / size, at = blockIdx.x % (across * down);
    int64_t band = at / (across * BAND) * BAND, rows = down - band < BAND ? down - band : (int64_t)BAND;
    at -= band * across;
    wn__tile_place t = {blockIdx.x / (across * down), (band + at % rows) * size, at / rows * size};
    return t;
}

template <int SIZE, int A_K, int B_K>
static __global__ void __launch_bounds__(2 * SIZE, 256 / SIZE) multiply_mma(struct wn__gemm_job w)
{
    DYN_SHARED(wn_bf16, shared);
    const struct wn__product &p = w.p;
    wn__gemm_sums<SIZE> sum;
    wn__tile_place tile = tile_in_band(p, SIZE);
    int64_t matrix_of[2] = {0, 0};
    if (p.batch > 1) wn__broadcast_offsets(p.lead, tile.batch, matrix_of);
    const wn_bf16 *a = (const wn_bf16 *)p.a + matrix_of[0] * p.apart[0];
    const wn_bf16 *b = (const wn_bf16 *)p.b + matrix_of[1] * p.apart[1];
    sum.clear();
    const matrix<A_K> of_a = {
        .x = a, .rows = A_K ? p.m : p.k, .columns = A_K ? p.k : p.m, .ld = A_K ? p.ai : p.ak, .outer = tile.row};
    const matrix<B_K> of_b = {
        .x = b, .rows = B_K ? p.n : p.k, .columns = B_K ? p.k : p.n, .ld = B_K ? p.bj : p.bk, .outer = tile.column};
    wn__gemm_walk<SIZE, matrix<A_K>, matrix<B_K>> walk = {
        .a = of_a, .b = of_b, .first = 0, .steps = (int)((p.k + WN_GEMM_STEP - 1) / WN_GEMM_STEP), .shared = shared};
    walk.run(sum);
    const tile_out out = {
        .w = w, .tile = tile, .rows = p.m - tile.row, .columns = p.n - tile.column, .is_wide = p.ld % CHUNK == 0};
    wn__gemm_tile_store<SIZE>(out, sum, (float *)shared);
}

template <int SIZE, int A_K, int B_K> static int32_t start_tiles(const struct wn__gemm_job &w, void *stream)
{
    LAUNCH((multiply_mma<SIZE, A_K, B_K>), wn__grid(wn__tiles(&w.p, SIZE)), 2 * SIZE, wn__gemm_shared<SIZE>(), stream,
           w);
    return wn__cuda_launched();
}

/* A_K, B_K: whether the rows of a and of b are along k. */
template <int A_K, int B_K> static int32_t start(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    struct wn__gemm_job w = wn__gemm_job_of(d, b);
    if (wn__numel(&d->out) == 0) return WN_OK;
    if (b->made != NULL) return wn__cublaslt_run(d, b, stream);
    if (w.p.m <= 64 || w.p.n <= 64 || wn__tiles(&w.p, 128) < WN_GEMM_MANY) return start_tiles<64, A_K, B_K>(w, stream);
    return start_tiles<128, A_K, B_K>(w, stream);
}

wn_kernel_fn wn__cuda_matmul_mma_kernel(const struct wn_desc *d)
{
    const void *nowhere[2] = {NULL, NULL};
    struct wn_buffers b;
    memset(&b, 0, sizeof b);
    b.in = nowhere;
    struct wn__product p = wn__product_of(d, &b);
    if (!wn__has_tensor_cores()) return NULL;
    if (p.n < WN_GEMM_LEAST || p.k < WN_GEMM_LEAST) return NULL;
    if (p.ak == 1) return p.bk == 1 ? start<1, 1> : start<1, 0>;
    return p.bk == 1 ? start<0, 1> : start<0, 0>;
}
