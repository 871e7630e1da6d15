/* Matrix products by tiles in shared memory, for gemm.cu and product_update.cu: describes a product by strides, and
 * computes a tile of it in registers.
 *
 *                     n                   A block of 16 x 16 threads computes a tile of (16 R, 16 R) outputs, R x R
 *            +------+------+              each. It walks over k in steps of STEP: threads load (16 R, STEP) of op(a)
 *        k   |      | b    |              and (STEP, 16 R) of op(b) to shared memory, then every thread adds products.
 *            +------+------+
 *     +----+ +------+------+
 *   m | a  | |      | tile |
 *     +----+ +------+------+
 *
 * f32: every output is one sum over all k in ascending order, acc = fma(a(i, k), b(k, j), acc), which is the CPU's
 * (kernels/cpu/gemm/gemm.h), so the bits are the CPU's and depend on no tile. f64: the same sum with a product and a
 * sum that are rounded apart, as the CPU's. bf16: the f32 sum, rounded once. */
#ifndef WN_CUDA_GEMM_CUH
#define WN_CUDA_GEMM_CUH
#include "broadcast.cuh"

/* A batch of products c = op(a) op(b), operands as strides in elements: a(i, k) = a[i ai + k ak], b(k, j) = b[j bj + k
 * bk]; of (ai, ak) one is 1, of (bj, bk) one is 1. c: (batch, m, n) row-major. */
struct wn__product {
    int64_t m, n, k, batch;
    int64_t ai, ak, bj, bk;
    int64_t apart[2]; /* elements from one matrix of a, of b, to the next */
    int64_t ld;       /* elements from one row of c to the next */
    const void *a, *b;
    struct wn__broadcast lead; /* over the leading dims: numbers of the matrices of a (0) and b (1) */
};

/* Fills the leading dims of a MATMUL whose operands have more than two. The rows of all products are one matrix where
 * each has the same b, and a lies in rows. */
static inline void wn__product_lead(struct wn__product *p, const struct wn_desc *d)
{
    struct wn_type in[2] = {d->in[0], d->in[1]};
    struct wn_desc lead;
    memset(&lead, 0, sizeof lead);
    lead.n_in = 2;
    lead.in = in;
    lead.out = d->out;
    in[0].ndim -= 2;
    in[1].ndim -= 2;
    lead.out.ndim -= 2;
    p->lead = wn__broadcast_of(&lead);
    p->batch = wn__numel(&lead.out);
    if (p->batch <= 1 || p->lead.ndim != 1 || p->lead.step[0][0] != 1 || p->lead.step[1][0] != 0) return;
    if (p->ak != 1 || p->apart[0] != p->m * p->ai) return;
    p->m *= p->batch;
    p->batch = 1;
}

/* Describes the product of MATMUL, LINEAR, their forms with an epilogue, and PRODUCT_UPDATE, whose operands are
 * matrices. The shape follows from the inputs: a rewrite may have given the result more dims. */
static inline struct wn__product wn__product_of(const struct wn_desc *d, const struct wn_buffers *b)
{
    int32_t is_linear = d->op == WN_OP_LINEAR || d->op == WN_OP_LINEAR_MAP;
    const struct wn_type *ta = &d->in[0], *tb = &d->in[1];
    int32_t flip_a = !is_linear && d->attrs.i[0] != 0, flip_b = is_linear || d->attrs.i[1] != 0;
    const struct wn__sides sides = wn__product_sides(d);
    struct wn__product p;
    memset(&p, 0, sizeof p);
    p.m = sides.m;
    p.n = sides.n;
    p.k = sides.k;
    const int64_t pitch_a = wn__row_pitch(ta), pitch_b = wn__row_pitch(tb);
    p.ai = flip_a ? 1 : pitch_a;
    p.ak = flip_a ? pitch_a : 1;
    p.bj = flip_b ? pitch_b : 1;
    p.bk = flip_b ? 1 : pitch_b;
    p.apart[0] = ta->dim[ta->ndim - 2] * pitch_a;
    p.apart[1] = tb->dim[tb->ndim - 2] * pitch_b;
    p.ld = d->out.layout == WN_ROWS ? wn__row_pitch(&d->out) : p.n;
    p.a = b->in[0];
    p.b = b->in[1];
    p.batch = 1;
    if (!is_linear && (ta->ndim > 2 || tb->ndim > 2)) wn__product_lead(&p, d);
    return p;
}

/* Add a product to a sum: as one sum of fma in f32, rounded twice in f64. */
WN_DEVICE_FN float wn__chain_add(float a, float b, float sum)
{
    return fmaf(a, b, sum);
}
WN_DEVICE_FN double wn__chain_add(double a, double b, double sum)
{
    return sum + a * b;
}

/* The steps of k of a tile of op(a) and op(b) that are in shared memory, aligned for loads of R numbers at once. */
template <class N, int R> struct __align__(R * sizeof(N) < 16 ? 16 : R * sizeof(N)) wn__tile
{
    enum { SIDE = 16, STEP = 16, SIZE = SIDE * R, PAD = 4 };
    N a[STEP][SIZE + PAD], b[STEP][SIZE + PAD];
};

/* Loads op(a) or op(b) of a tile and of k in [k0, k0 + STEP) to shared memory, zeros beyond the matrix. x: the matrix,
 * element (i, k) at x[i xi + k xk]; rows: number of i. Threads that are neighbours read neighbours. */
template <class T, class N, int R>
WN_DEVICE_FN void wn__tile_load(N (&to)[wn__tile<N, R>::STEP][wn__tile<N, R>::SIZE + wn__tile<N, R>::PAD], const T *x,
                                const int64_t (&stride)[2], const int64_t (&end)[2], const int64_t (&from)[2])
{
    typedef wn__tile<N, R> tile;
    const int threads = tile::SIDE * tile::SIDE;
    for (int e = (int)threadIdx.x; e < tile::STEP * tile::SIZE; e += threads) {
        int i = stride[1] == 1 ? e / tile::STEP : e % tile::SIZE, k = stride[1] == 1 ? e % tile::STEP : e / tile::SIZE;
        int64_t row = from[0] + i, step = from[1] + k;
        to[k][i] = row < end[0] && step < end[1] ? wn__load(x[row * stride[0] + step * stride[1]]) : (N)0;
    }
}

/* Return the first row and the first column of the calling thread's outputs in a tile. */
WN_DEVICE_FN int wn__tile_row(int r)
{
    return (int)threadIdx.x / 16 * r;
}
WN_DEVICE_FN int wn__tile_column(int r)
{
    return (int)threadIdx.x % 16 * r;
}

/* Adds the products of the first `steps` steps in shared memory to the sums of the calling thread. */
template <class N, int R> WN_DEVICE_FN void wn__tile_multiply(const wn__tile<N, R> &shared, int steps, N (&sum)[R][R])
{
    const int i = wn__tile_row(R), j = wn__tile_column(R);
    for (int k = 0; k < steps; k++) {
        N x[R], y[R];
        wn__get(&shared.a[k][i], x);
        wn__get(&shared.b[k][j], y);
        WN_UNROLL
        for (int r = 0; r < R; r++)
            for (int s = 0; s < R; s++) sum[r][s] = wn__chain_add(x[r], y[s], sum[r][s]);
    }
}

/* Computes the sums of the calling thread in the tile at (row, column): sum[r][s] is that of output
 * (row + wn__tile_row(R) + r, column + wn__tile_column(R) + s), without bias. Its R x R outputs are neighbours, so R
 * numbers of a shared row are one load. Every thread of the block, of 256, calls it. matrix: the numbers of the
 * matrices of a and b. */
template <class T, int R>
WN_DEVICE_FN void wn__tile_sums(const struct wn__product &p, const int64_t (&matrix)[2], int64_t row, int64_t column,
                                typename wn__number<T>::type (&sum)[R][R])
{
    typedef typename wn__number<T>::type N;
    typedef wn__tile<N, R> tile;
    __shared__ tile shared;
    const T *a = (const T *)p.a + matrix[0] * p.apart[0], *b = (const T *)p.b + matrix[1] * p.apart[1];
    WN_UNROLL
    for (int r = 0; r < R; r++)
        for (int s = 0; s < R; s++) sum[r][s] = (N)0;
    for (int64_t k0 = 0; k0 < p.k; k0 += tile::STEP) {
        wn__tile_load<T, N, R>(shared.a, a, {p.ai, p.ak}, {p.m, p.k}, {row, k0});
        wn__tile_load<T, N, R>(shared.b, b, {p.bj, p.bk}, {p.n, p.k}, {column, k0});
        __syncthreads();
        wn__tile_multiply<N, R>(shared, p.k - k0 < tile::STEP ? (int)(p.k - k0) : (int)tile::STEP, sum);
        __syncthreads();
    }
}

/* A block's place in a grid of tiles: blockIdx.x counts columns of tiles, then rows of tiles, then the batch. */
struct wn__tile_place {
    int64_t batch, row, column;
};
WN_DEVICE_FN struct wn__tile_place wn__tile_at(const struct wn__product &p, int size)
{
    int64_t across = (p.n + size - 1) / size, down = (p.m + size - 1) / size, at = blockIdx.x;
    struct wn__tile_place t;
    t.column = at % across * size;
    t.row = at / across % down * size;
    t.batch = at / across / down;
    return t;
}

/* Returns the number of tiles of `size` outputs a side, the grid of a product. */
static inline int64_t wn__tiles(const struct wn__product *p, int64_t size)
{
    return (p->n + size - 1) / size * ((p->m + size - 1) / size) * p->batch;
}

/* Few rows, and columns of the other operand beyond which tiles of 64 x 64 fill a GPU many times over. */
enum { WN_FEW_ROWS = 64, WN_FEW_COLUMNS = 65536 };

/* Returns whether few_rows.cu computes a product of f32, whatever library is there: one side is short. */
static inline int32_t wn__has_few_rows(int64_t batch, int64_t m, int64_t n)
{
    return batch == 1 && (m <= WN_FEW_ROWS || n <= WN_FEW_ROWS) && m <= WN_FEW_COLUMNS && n <= WN_FEW_COLUMNS;
}

/* Returns whether a product is too small for tiles of 64 x 64: a GPU has more multiprocessors than it makes blocks. */
static inline int32_t wn__product_is_small(const struct wn__product *p)
{
    return p->m <= 32 || p->n <= 32 || wn__tiles(p, 64) < 64;
}
#endif
