/* EMBEDDING, GATHER and their gradients: rows and elements read by index, and sums by index (runtime/ops/gather.c has
 * the shapes), with the CPU's bits.
 *
 * An index outside its table is told of in the report; the kernel goes on, and leaves out what the index names. The
 * contributions to an element are added by one thread in the order of the indices, in f32 for bf16, so no sum depends
 * on the order in which threads run. EMBEDDING_GRAD counts the indices of each row first, so that most rows of the
 * table, which no index names, are zeroed without a look at the indices, and the others end their look at the last one:
 *
 *     workspace   | indices of row 0 | of row 1 | ... | of row V - 1 |     i32 each */
#include "map.cuh"

/* Tells of index `at` and returns 0 unless `id` is in [0, size). */
static __device__ __forceinline__ bool is_inside(int32_t id, int64_t size, int64_t at, uint64_t *report)
{
    if (id >= 0 && id < size) return true;
    wn__report(report, at, id);
    return false;
}

/* ---- embedding: a team of threads moves a row -------------------------------------------------------------------- */

enum { AHEAD = 4 }; /* words that a thread loads before it stores them */

/* One EMBEDDING of n indices. W: the word, which divides the bytes of a row; words: their number in a row. A team of
 * 2^team threads, of one warp, moves a row. */
template <class W> struct lookup {
    const W *table;
    const int32_t *ids;
    W *out;
    int64_t words, n, rows;
    int32_t team;
    uint64_t *report;
};

template <class W> static __global__ void __launch_bounds__(WN_THREADS) embed(lookup<W> e)
{
    const int64_t i = wn__thread() >> e.team;
    if (i >= e.n) return;
    const int32_t id = e.ids[i], team = 1 << e.team;
    if (!is_inside(id, e.rows, i, e.report)) return;
    const W *from = e.table + id * e.words;
    W *to = e.out + i * e.words;
    for (int64_t word = (int)threadIdx.x % team; word < e.words; word += AHEAD * team) {
        W v[AHEAD] = {};
        WN_UNROLL
        for (int k = 0; k < AHEAD; k++)
            if (word + k * team < e.words) v[k] = from[word + k * team];
        WN_UNROLL
        for (int k = 0; k < AHEAD; k++)
            if (word + k * team < e.words) to[word + k * team] = v[k];
    }
}

/* A team is a warp, or as many threads as a shorter row has words. */
template <class W> static int32_t start_embed(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    int64_t n = wn__numel(&d->in[1]), words = d->in[0].dim[1] * wn__dtype_size(d->out.dtype) / (int64_t)sizeof(W);
    lookup<W> e = {.table = (const W *)b->in[0],
                   .ids = (const int32_t *)b->in[1],
                   .out = (W *)b->out,
                   .words = words,
                   .n = n,
                   .rows = d->in[0].dim[0],
                   .team = 0,
                   .report = b->report};
    while (e.team < 5 && (1 << e.team) < words) e.team++;
    LAUNCH_EACH((embed<W>), n << e.team, stream, e);
    return wn__cuda_launched();
}

/* Looks at the indices of an empty row alone, so that a wrong one is told of. */
static __global__ void look_at_ids(const int32_t *ids, int64_t n, int64_t size, uint64_t *report)
{
    int64_t i = wn__thread();
    if (i < n) (void)is_inside(ids[i], size, i, report);
}

static int32_t start_look(const struct wn_desc *d, const struct wn_buffers *b, int64_t size, void *stream)
{
    int64_t n = wn__numel(&d->in[1]);
    if (n == 0) return WN_OK;
    LAUNCH_EACH(look_at_ids, n, stream, (const int32_t *)b->in[1], n, size, b->report);
    return wn__cuda_launched();
}

static int32_t embedding(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    int64_t row = d->in[0].dim[1] * wn__dtype_size(d->out.dtype);
    if (wn__numel(&d->out) == 0) return start_look(d, b, d->in[0].dim[0], stream);
    if (row % 16 == 0) return start_embed<uint4>(d, b, stream);
    if (row % 4 == 0) return start_embed<uint32_t>(d, b, stream);
    if (row % 2 == 0) return start_embed<uint16_t>(d, b, stream);
    return start_embed<uint8_t>(d, b, stream);
}

/* ---- the gradient of embedding: a block sums one row of the table ------------------------------------------------ */

enum { COLUMNS = 4 }; /* of a thread */

static __global__ void count_ids(const int32_t *ids, int64_t n, int64_t rows, int32_t *count, uint64_t *report)
{
    int64_t i = wn__thread();
    if (i < n && is_inside(ids[i], rows, i, report)) atomicAdd(&count[ids[i]], 1);
}

template <class T> struct embedding_sum {
    const T *dy;
    const int32_t *ids, *count;
    T *out;
    int64_t n, width;
};

/* Every block looks through the indices, 256 at a time: each warp says by a ballot which of its 32 name the row. */
template <class T> static __global__ void __launch_bounds__(WN_THREADS) sum_rows(embedding_sum<T> e)
{
    typedef typename wn__number<T>::type N;
    __shared__ unsigned named[WN_THREADS / 32];
    const int t = (int)threadIdx.x;
    const int64_t row = blockIdx.x;
    for (int64_t first = 0; first < e.width; first += WN_THREADS * COLUMNS) {
        N sum[COLUMNS] = {0};
        int32_t left = e.count[row];
        for (int64_t base = 0; left > 0 && base < e.n; base += WN_THREADS) {
            unsigned bits = __ballot_sync(0xffffffffu, base + t < e.n && e.ids[base + t] == row);
            if (t % 32 == 0) named[t / 32] = bits;
            __syncthreads();
            for (int w = 0; w < WN_THREADS / 32; w++)
                for (unsigned rest = named[w]; rest != 0; rest &= rest - 1, left--) {
                    const T *from = e.dy + (base + 32 * w + __ffs((int)rest) - 1) * e.width;
                    WN_UNROLL
                    for (int c = 0; c < COLUMNS; c++) {
                        int64_t column = first + t + WN_THREADS * c;
                        if (column < e.width) sum[c] += wn__load(from[column]);
                    }
                }
            __syncthreads();
        }
        WN_UNROLL
        for (int c = 0; c < COLUMNS; c++) {
            int64_t column = first + t + WN_THREADS * c;
            if (column < e.width) e.out[row * e.width + column] = wn__store<T>(sum[c]);
        }
    }
}

template <class T> static int32_t embedding_grad(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    int64_t rows = d->out.dim[0], n = wn__numel(&d->in[1]);
    int32_t *count = (int32_t *)b->workspace;
    embedding_sum<T> e = {.dy = (const T *)b->in[0],
                          .ids = (const int32_t *)b->in[1],
                          .count = count,
                          .out = (T *)b->out,
                          .n = n,
                          .width = d->out.dim[1]};
    if (rows == 0) return start_look(d, b, 0, stream);
    (void)cudaMemsetAsync(count, 0, (size_t)rows * sizeof *count, (cudaStream_t)stream);
    if (n > 0) LAUNCH_EACH(count_ids, n, stream, e.ids, n, rows, count, b->report);
    LAUNCH_BLOCKS((sum_rows<T>), wn__grid(rows), stream, e);
    return wn__cuda_launched();
}

/* ---- gather ------------------------------------------------------------------------------------------------------ */

/* One GATHER or GATHER_GRAD, in one of two forms. ids of the shape of x but along dim: out[o, j, i] = x[o, ids[o, j,
 * i], i]. ids of one dim for an x of several: out[o, j, i] = x[o, ids[j], i]. */
struct places {
    const int32_t *ids;
    int64_t outer, full, inner; /* the shape of x, or of dx, seen from dim */
    int64_t n;                  /* number of indices along dim */
    int32_t is_whole;           /* 1: the second form */
    uint64_t *report;
};

static struct places places_of(const struct wn_desc *d, const struct wn_buffers *b, const struct wn_type *full,
                               const struct wn_type *picked)
{
    int64_t dim = d->attrs.i[0];
    struct places p = {.ids = (const int32_t *)b->in[1],
                       .outer = 1,
                       .full = full->dim[dim],
                       .inner = 1,
                       .n = picked->dim[dim],
                       .is_whole = d->in[1].ndim != full->ndim,
                       .report = b->report};
    for (int64_t k = 0; k < dim; k++) p.outer *= full->dim[k];
    for (int64_t k = dim + 1; k < full->ndim; k++) p.inner *= full->dim[k];
    return p;
}

/* Returns where (o, j, i) is in the value that has all indices; -1 where its index is outside. */
static __device__ __forceinline__ int64_t picked_at(const struct places &p, int64_t o, int64_t j, int64_t i)
{
    int64_t at = p.is_whole ? j : (o * p.n + j) * p.inner + i;
    int32_t id = p.ids[at];
    return is_inside(id, p.full, at, p.report) ? (o * p.full + id) * p.inner + i : -1;
}

template <class T> static __global__ void pick(struct places p, const T *x, T *out, int64_t n)
{
    int64_t e = wn__thread();
    if (e >= n) return;
    int64_t at = picked_at(p, e / p.inner / p.n, e / p.inner % p.n, e % p.inner);
    if (at >= 0) out[e] = x[at];
}

template <class T> static int32_t gather(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    struct places p = places_of(d, b, &d->in[0], &d->out);
    int64_t n = wn__numel(&d->out);
    if (n == 0) return start_look(d, b, p.full, stream);
    LAUNCH_EACH((pick<T>), n, stream, p, (const T *)b->in[0], (T *)b->out, n);
    return wn__cuda_launched();
}

/* A thread adds the line (o, *, i) of dy to that of the result, which is zeroed: N is the number that sums are kept in.
 * */
template <class T, class N> static __global__ void add_lines(struct places p, const T *dy, N *sum)
{
    int64_t line = wn__thread();
    if (line >= p.outer * p.inner) return;
    int64_t o = line / p.inner, i = line % p.inner;
    for (int64_t j = 0; j < p.n; j++) {
        int64_t at = picked_at(p, o, j, i);
        if (at >= 0) sum[at] += wn__load(dy[(o * p.n + j) * p.inner + i]);
    }
}

/* The sums of bf16, f32 in the workspace, are rounded to the result. */
struct gather_round {
    enum { V = 4 };
    const float *sum;
    wn_bf16 *out;
    template <int N> __device__ __forceinline__ void run(int64_t at) const
    {
        float v[N];
        wn__get(sum + at, v);
        wn__put(out + at, v);
    }
};

template <class T> static int32_t gather_grad(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    typedef typename wn__number<T>::type N;
    struct places p = places_of(d, b, &d->out, &d->in[0]);
    int64_t n = wn__numel(&d->out);
    N *sum = (N *)(d->out.dtype == WN_BF16 ? b->workspace : b->out);
    if (n == 0) return start_look(d, b, p.full, stream);
    (void)cudaMemsetAsync(sum, 0, (size_t)n * sizeof(N), (cudaStream_t)stream);
    LAUNCH_EACH((add_lines<T, N>), p.outer * p.inner, stream, p, (const T *)b->in[0], sum);
    if (d->out.dtype == WN_BF16)
        return wn__map_start(gather_round{(const float *)b->workspace, (wn_bf16 *)b->out}, n, stream);
    return wn__cuda_launched();
}

/* ---- which kernel --------------------------------------------------------------------------------------------- */

wn_kernel_fn wn__cuda_gather_kernel(const struct wn_desc *d)
{
    const int32_t dtype = d->out.dtype;
    if (d->in[1].dtype != WN_I32 || d->in[0].dtype != dtype) return NULL;
    switch (d->op) {
    case WN_OP_EMBEDDING: return embedding;
    case WN_OP_EMBEDDING_GRAD:
        return wn__kernel_of(dtype, embedding_grad<float>, embedding_grad<double>, embedding_grad<wn_bf16>);
    case WN_OP_GATHER:
        return wn__kernel_of(dtype, gather<float>, gather<double>, gather<wn_bf16>, gather<int32_t>, gather<uint8_t>);
    case WN_OP_GATHER_GRAD: return wn__kernel_of(dtype, gather_grad<float>, gather_grad<double>, gather_grad<wn_bf16>);
    default: return NULL;
    }
}
