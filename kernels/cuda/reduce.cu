/* SUM, MEAN, MAX, MIN over any set of dims, and EXTREME_GRAD, with the CPU's bits: reduction.h has the order.
 *
 * Columns: a thread reduces a piece of one output, row after row, the loads of 16 rows under way at once; neighbours
 * read neighbours. Of a long sum all threads of a block load and one warp adds, so that more loads are on their way
 * (block.cuh), or of bf16 on 16 bytes, from sm_80 on, rows are copied to shared memory as they are (column_sums.cuh).
 *
 * Rows: 16 threads reduce a piece of one output; of a sum, thread j adds the elements j, j + 16, j + 32 of each
 * contiguous run in double (of i32 in 64 bits, and a sum that leaves 32 bits is told of), and the 16 sums are added in
 * order.
 *
 * A second launch joins the pieces of each output in order. Maxima and minima: a NaN wins, the first one; of 0 and -0
 * the one that wins on the CPU (kernels/cpu/row/minmax.h). */
#include "block.cuh"
#include "broadcast.cuh"
#include "column_sums.cuh"
extern "C" {
#include "../reduction.h"
}

enum { SUM, MAX, MIN };

/* Threads of a block whose threads have an output each, so few that some outputs have blocks for many multiprocessors;
 * elements of an output that a thread loads at once. */
enum { FEW_THREADS = 64, AHEAD = 16 };

template <class T> struct job {
    struct wn__reduction p;
    int64_t pieces; /* of each output */
    const T *x;
    T *out;
    double *partial; /* (pieces, outputs), of sums of i32 long long; NULL: one piece */
    double scale;    /* 1 / count of MEAN, else 1 */
    int32_t is_wide; /* 1: a sum of bf16 is f32, because a cast was taken in */
    uint64_t *report;
};

/* ---- numbers that are joined ------------------------------------------------------------------------------------ */

/* Joins the result so far, a, with the next, b. */
template <int KIND, class A> static __device__ __forceinline__ A join(A a, A b)
{
    if (KIND == SUM) return a + b;
    bool stays = KIND == MAX ? a > b : a < b;
    return stays || a != a ? a : b;
}

/* result_of<KIND, T>::type is what a result of elements of T is before it is stored: 64 bits for sums of integers. */
template <int KIND, class T> struct result_of {
    typedef double type;
};
template <> struct result_of<SUM, int32_t> {
    typedef long long type;
};

template <int KIND> static __device__ __forceinline__ double start_of(void)
{
    return KIND == SUM ? 0.0 : KIND == MAX ? -(double)INFINITY : (double)INFINITY;
}

/* Returns the element of a result. */
template <int KIND, class T> static __device__ __forceinline__ T element_of(double v)
{
    return wn__cast<T>((typename wn__number<T>::type)v);
}
template <> __device__ __forceinline__ int32_t element_of<MAX, int32_t>(double v)
{
    return ::wn_to_i32(v);
}
template <> __device__ __forceinline__ int32_t element_of<MIN, int32_t>(double v)
{
    return ::wn_to_i32(v);
}

/* Stores the result of an output. */
template <int KIND, class T>
static __device__ __forceinline__ void finish(const job<T> &j, int64_t output, double value)
{
    j.out[output] = element_of<KIND, T>(value * j.scale);
}
template <int KIND> static __device__ __forceinline__ void finish(const job<wn_bf16> &j, int64_t output, double value)
{
    if (j.is_wide) ((float *)j.out)[output] = (float)(value * j.scale);
    else j.out[output] = element_of<KIND, wn_bf16>(value * j.scale);
}
template <int KIND, class T>
static __device__ __forceinline__ void finish(const job<T> &j, int64_t output, long long value)
{
    j.out[output] = wn__whole(value, j.report, output);
}

/* Returns the index in x of element i of its kept or its reduced dims. */
static __device__ __forceinline__ int64_t place(const struct wn__broadcast &w, int64_t i)
{
    int64_t at[1];
    wn__broadcast_offsets(w, i, at);
    return at[0];
}

/* Stores the result of a piece, or of the output where there is one piece. */
template <int KIND, class T, class R>
static __device__ __forceinline__ void store(const job<T> &j, int64_t output, int64_t piece, R value)
{
    if (j.partial != NULL) ((R *)j.partial)[piece * j.p.outputs + output] = value;
    else finish<KIND>(j, output, value);
}

/* Returns the first reduced element of a piece; of piece `pieces`, their number. */
template <class T> static __device__ __forceinline__ int64_t first_of(const job<T> &j, int64_t piece)
{
    if (piece == 0) return 0;
    return piece == j.pieces ? j.p.length : j.p.length * piece / j.pieces;
}

/* Returns `value` joined with n elements in order, `step` apart; the loads of AHEAD elements are under way at once. */
template <int KIND, class T, class A>
static __device__ __forceinline__ A join_run(A value, const T *x, int64_t n, int64_t step)
{
    for (; n > 0; n -= AHEAD) {
        const int left = n < AHEAD ? (int)n : (int)AHEAD;
        T v[AHEAD];
        WN_UNROLL
        for (int k = 0; k < AHEAD; k++, x += step)
            if (k < left) v[k] = *x;
        WN_UNROLL
        for (int k = 0; k < AHEAD; k++)
            if (k < left) value = join<KIND>(value, (A)wn__load(v[k]));
    }
    return value;
}

/* ---- columns ---------------------------------------------------------------------------------------------------- */

/* Thread (u, piece) of the grid has output u. */
template <int KIND, class T, class A> static __global__ void __launch_bounds__(FEW_THREADS) reduce_columns(job<T> j)
{
    const int64_t output = wn__thread(), piece = blockIdx.y, end = first_of(j, piece + 1);
    if (output >= j.p.outputs) return;
    const int32_t last = j.p.reduced.ndim - 1;
    const int64_t run = j.p.reduced.dim[last], step = j.p.reduced.step[0][last];
    const T *x = j.x + place(j.p.kept, output);
    A value = (A)start_of<KIND>();
    for (int64_t row = first_of(j, piece), n; row < end; row += n) {
        n = run - (last == 0 ? row : row % run);
        if (n > end - row) n = end - row;
        value = join_run<KIND>(value, x + place(j.p.reduced, row), n, step);
    }
    store<KIND>(j, output, piece, (typename result_of<KIND, T>::type)value);
}

/* The terms of a sum down columns: V outputs side by side. IS_RUN: rows lie evenly apart. */
template <class T, int V, int IS_RUN> struct column_terms {
    typedef wn__pack<T, V> raw;
    const T *x;
    const struct wn__broadcast &reduced;
    int64_t step;
    __device__ __forceinline__ raw load(int64_t row) const
    {
        return *(const raw *)(x + (IS_RUN ? row * step : place(reduced, row)));
    }
    __device__ __forceinline__ void of(const raw &r, double (&to)[1][V]) const
    {
        WN_UNROLL
        for (int v = 0; v < V; v++) to[0][v] = (double)wn__load(r.at[v]);
    }
};

/* Sums pieces of 32 outputs, side by side, through shared memory (block.cuh). Block u has 32 outputs of a piece,
 * outputs fastest. */
template <class T, int V, int IS_RUN>
static __global__ void __launch_bounds__(WN_THREADS, IS_RUN && sizeof(T) < 8 ? 4 : 2) sum_columns(job<T> j)
{
    const int64_t blocks = (j.p.outputs + WN_TILE_COLUMNS - 1) / WN_TILE_COLUMNS, piece = blockIdx.x / blocks;
    const int64_t first = blockIdx.x % blocks * WN_TILE_COLUMNS, output = first + threadIdx.x;
    const int64_t mine = first + wn__tile_column<V>();
    const int64_t begin = j.p.length * piece / j.pieces, end = j.p.length * (piece + 1) / j.pieces;
    const column_terms<T, V, IS_RUN> terms = {j.x + place(j.p.kept, mine < j.p.outputs ? mine : first), j.p.reduced,
                                              j.p.reduced.step[0][0]};
    double sum = wn__sum_columns<1, V>(begin, end, terms);
    if (threadIdx.x < WN_TILE_COLUMNS && output < j.p.outputs) store<SUM>(j, output, piece, sum);
}

/* Sums pieces of 64 outputs of bf16, side by side. Block (u, piece) has outputs from 64 u on. */
static __global__ void __launch_bounds__(WN_SUM_TILE) sum_columns_bf16(job<wn_bf16> j)
{
    const struct wn__column_sums s = {j.p.kept, j.x, j.p.reduced.step[0][0], j.p.outputs};
    const int64_t first = (int64_t)blockIdx.x * WN_SUM_TILE, output = first + threadIdx.x, piece = blockIdx.y;
    double sum = wn__column_sum(s, first, j.p.length * piece / j.pieces, j.p.length * (piece + 1) / j.pieces);
    if (output < j.p.outputs) store<SUM>(j, output, piece, sum);
}

/* Starts it where it fits. Returns whether it did. */
static bool start_sum_columns_bf16(const job<wn_bf16> &j, void *stream)
{
    if (j.p.reduced.ndim > 1 || !wn__has_tensor_cores()) return false;
    if (!wn__column_sums_fit(j.p.kept, j.p.reduced.step[0][0])) return false;
    LAUNCH(sum_columns_bf16, dim3(wn__blocks(j.p.outputs, WN_SUM_TILE), (unsigned)j.pieces), WN_SUM_TILE, 0, stream, j);
    return true;
}
template <class T> static bool start_sum_columns_bf16(const job<T> &, void *)
{
    return false;
}

template <class T> static void start_sum_columns(const job<T> &j, void *stream)
{
    if (start_sum_columns_bf16(j, stream)) return;
    const unsigned blocks = wn__grid((j.p.outputs + WN_TILE_COLUMNS - 1) / WN_TILE_COLUMNS * j.pieces);
    int64_t odd =
        j.p.kept.dim[j.p.kept.ndim - 1] | j.p.reduced.step[0][0]; /* pairs of outputs begin at even elements */
    for (int32_t i = 0; i < j.p.kept.ndim - 1; i++) odd |= j.p.kept.step[0][i];
    if (j.p.reduced.ndim > 1) LAUNCH_BLOCKS((sum_columns<T, 1, 0>), blocks, stream, j);
    else if (odd % 2 == 0) LAUNCH_BLOCKS((sum_columns<T, 2, 1>), blocks, stream, j);
    else LAUNCH_BLOCKS((sum_columns<T, 1, 1>), blocks, stream, j);
}

/* Returns whether a sum has tiles of columns to fill. */
static bool has_tiles(const struct wn__reduction &p, int64_t pieces)
{
    return p.is_columns && p.outputs >= WN_TILE_COLUMNS && p.length / pieces >= WN_TILE_ROWS;
}

/* ---- rows: 16 threads a piece ------------------------------------------------------------------------------------ */

/* Returns the sum of n contiguous elements, to each of the 16 threads. */
template <class T>
static __device__ __forceinline__ typename result_of<SUM, T>::type row_sum(const T *x, int64_t n, int lane)
{
    typename result_of<SUM, T>::type part = 0;
    for (int64_t i = lane; i < n; i += WN_LANES) part += wn__load(x[i]);
    return wn__join_lanes(part);
}

/* Returns the index of the first NaN of n contiguous elements; n: there is none. */
template <class T> static __device__ __forceinline__ int64_t first_nan(const T *x, int64_t n, int lane)
{
    long long first = n;
    for (int64_t i = lane; i < n; i += WN_LANES) {
        typename wn__number<T>::type v = wn__load(x[i]);
        if (v != v && i < first) first = i;
    }
    for (int w = WN_LANES / 2; w > 0; w /= 2) {
        long long other = __shfl_xor_sync(0xffffffffu, first, w, WN_LANES);
        if (other < first) first = other;
    }
    return first;
}

template <int KIND, class N> static __device__ __forceinline__ N better(N candidate, N best)
{
    return (KIND == MAX ? candidate > best : candidate < best) ? candidate : best;
}

/* Returns the extreme of n > 0 contiguous elements by the CPU's lanes: 16, or 64 from 256 elements on, each of which
 * begins as x[0]; joined by halves; then what is behind the last whole group. A thread has lanes t, t + 16, t + 32 and
 * t + 48. */
template <int KIND, class T> static __device__ __forceinline__ double row_extreme(const T *x, int64_t n, int t)
{
    typedef typename wn__number<T>::type N;
    const int64_t lanes = n < 256 ? 16 : 64, whole = n / lanes * lanes;
    int64_t odd = first_nan(x, n, t);
    N best[4];
    for (int q = 0; q < 4; q++) best[q] = wn__load(x[0]);
    for (int64_t i = t; i < whole; i += WN_LANES) {
        int q = (int)(i % lanes / WN_LANES);
        N v = wn__load(x[i]);
        WN_UNROLL
        for (int k = 0; k < 4; k++)
            if (k == q) best[k] = better<KIND>(v, best[k]);
    }
    if (lanes == 64) {
        best[0] = better<KIND>(best[2], best[0]);
        best[1] = better<KIND>(best[3], best[1]);
        best[0] = better<KIND>(best[1], best[0]);
    }
    for (int w = WN_LANES / 2; w > 0; w /= 2)
        best[0] = better<KIND>((N)__shfl_down_sync(0xffffffffu, best[0], w, WN_LANES), best[0]);
    for (int64_t i = whole; i < n; i++) best[0] = better<KIND>(wn__load(x[i]), best[0]); /* counts in thread 0 alone */
    N value = odd < n ? wn__load(x[odd]) : best[0];
    return (double)__shfl_sync(0xffffffffu, value, 0, WN_LANES);
}

/* Returns the extreme of n > 0 contiguous bf16: of 0 and -0 the last one wins, as in a loop of the CPU's. */
template <int KIND> static __device__ __forceinline__ double row_extreme_bf16(const wn_bf16 *x, int64_t n, int t)
{
    int64_t odd = first_nan(x, n, t);
    float best = wn__load(x[0]);
    long long at = 0;
    for (int64_t i = t; i < n; i += WN_LANES) {
        float v = wn__load(x[i]);
        if (v == best ? i > at : better<KIND>(v, best) == v) best = v, at = i;
    }
    for (int w = WN_LANES / 2; w > 0; w /= 2) {
        float other = __shfl_xor_sync(0xffffffffu, best, w, WN_LANES);
        long long place = __shfl_xor_sync(0xffffffffu, at, w, WN_LANES);
        if (other == best ? place > at : better<KIND>(other, best) == other) best = other, at = place;
    }
    return (double)(odd < n ? wn__load(x[odd]) : best);
}

template <int KIND, class T> struct row {
    static __device__ __forceinline__ typename result_of<KIND, T>::type of(const T *x, int64_t n, int t)
    {
        return KIND == SUM ? row_sum(x, n, t) : row_extreme<KIND>(x, n, t);
    }
};
template <int KIND> struct row<KIND, wn_bf16> {
    static __device__ __forceinline__ double of(const wn_bf16 *x, int64_t n, int t)
    {
        return KIND == SUM ? row_sum(x, n, t) : row_extreme_bf16<KIND>(x, n, t);
    }
};

/* Block (u, piece) has 16 outputs. Every thread of a warp stays to the end, since all 32 take part in each shuffle: the
 * two halves of a warp reduce pieces of the same length, and an output behind the last one is the last one again. */
template <int KIND, class T> static __global__ void reduce_rows(job<T> j)
{
    const int64_t unit = wn__thread() / WN_LANES, piece = blockIdx.y, end = first_of(j, piece + 1);
    const int t = (int)threadIdx.x % WN_LANES;
    const bool is_real = unit < j.p.outputs;
    const int64_t output = is_real ? unit : j.p.outputs - 1, run = j.p.reduced.dim[j.p.reduced.ndim - 1];
    int64_t begin = first_of(j, piece);
    const T *x = j.x + place(j.p.kept, output);
    typedef typename result_of<KIND, T>::type R;
    R value = (R)start_of<KIND>();
    while (__any_sync(0xffffffffu, begin < end)) {
        int64_t n = j.p.reduced.ndim == 1 ? end - begin : run - begin % run;
        if (n > end - begin) n = end - begin;
        const T *from = x + (n > 0 ? place(j.p.reduced, begin) : 0);
        R next = row<KIND, T>::of(from, n, t);
        if (n > 0) value = join<KIND>(value, next);
        begin += n;
    }
    if (is_real && t == 0) store<KIND>(j, output, piece, value);
}

/* ---- joining the pieces ------------------------------------------------------------------------------------------ */

template <int KIND, class T> static __global__ void __launch_bounds__(FEW_THREADS) join_pieces(job<T> j)
{
    const int64_t output = wn__thread(), n = j.p.outputs;
    if (output >= n) return;
    typedef typename result_of<KIND, T>::type R;
    const R *partial = (const R *)j.partial + output;
    finish<KIND>(j, output, join_run<KIND>(partial[0], partial + n, j.pieces - 1, n));
}

template <int KIND, class T, class A>
static int32_t start(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    job<T> j;
    j.p = wn__reduction_of(d, &d->in[0]);
    j.x = (const T *)b->in[0];
    j.out = (T *)b->out;
    j.pieces = wn__reduction_pieces(&j.p);
    j.partial = j.pieces > 1 ? (double *)b->workspace : NULL;
    j.report = b->report;
    j.is_wide = d->out.dtype == WN_F32;
    j.scale = d->op == WN_OP_MEAN ? 1.0 / (double)j.p.length : 1.0;
    if (j.p.outputs == 0) return WN_OK;
    const unsigned few = wn__blocks(j.p.outputs, FEW_THREADS), pieces = (unsigned)j.pieces;
    if (KIND == SUM && d->out.dtype != WN_I32 && has_tiles(j.p, j.pieces)) start_sum_columns(j, stream);
    else if (j.p.is_columns || j.p.length == 0)
        LAUNCH((reduce_columns<KIND, T, A>), dim3(few, pieces), FEW_THREADS, 0, stream, j);
    else LAUNCH((reduce_rows<KIND, T>), dim3(wn__row_blocks(j.p.outputs), pieces), WN_THREADS, 0, stream, j);
    if (j.partial != NULL) LAUNCH((join_pieces<KIND, T>), few, FEW_THREADS, 0, stream, j);
    return wn__cuda_launched();
}

/* ---- the gradient of max and min --------------------------------------------------------------------------------- */

template <class T> struct extreme_job {
    struct wn__reduction p;
    const T *dy, *x, *y;
    T *out;
    int32_t is_all; /* all dims were reduced by naming none */
};

/* A warp shares dy of one output among the elements that equal y; among the NaNs where max() named no dim, else all
 * become NaN, as PyTorch's amax does. */
template <class T> static __global__ void extreme_grad(extreme_job<T> j)
{
    typedef typename wn__number<T>::type N;
    int64_t output = wn__thread() / 32;
    int lane = (int)threadIdx.x % 32;
    if (output >= j.p.outputs) return;
    int64_t base = place(j.p.kept, output);
    const T *x = j.x + base;
    N y = wn__load(j.y[output]), dy = wn__load(j.dy[output]);
    bool is_nan = y != y;
    long long ties = 0;
    for (int64_t r = lane; r < j.p.length; r += 32) {
        N v = wn__load(x[place(j.p.reduced, r)]);
        ties += is_nan ? v != v : v == y;
    }
    for (int w = 16; w > 0; w /= 2) ties += __shfl_xor_sync(0xffffffffu, ties, w);
    N won = ties > 0 ? dy / (N)ties : (N)0, lost = (N)0;
    if (is_nan && !(j.is_all && ties > 0)) won = (N)NAN;
    if (is_nan && !j.is_all) lost = (N)NAN;
    for (int64_t r = lane; r < j.p.length; r += 32) {
        int64_t at = place(j.p.reduced, r);
        N v = wn__load(x[at]);
        j.out[base + at] = wn__store<T>((is_nan ? v != v : v == y) ? won : lost);
    }
}

template <class T> static int32_t start_extreme(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    extreme_job<T> j;
    j.p = wn__reduction_of(d, &d->in[1]);
    j.dy = (const T *)b->in[0];
    j.x = (const T *)b->in[1];
    j.y = (const T *)b->in[2];
    j.out = (T *)b->out;
    j.is_all = d->attrs.n == 0;
    if (j.p.outputs == 0 || j.p.length == 0) return WN_OK;
    LAUNCH_EACH((extreme_grad<T>), j.p.outputs * 32, stream, j);
    return wn__cuda_launched();
}

/* ---- which kernel ------------------------------------------------------------------------------------------------ */

template <int KIND> static wn_kernel_fn extreme_of(int32_t dtype)
{
    return wn__kernel_of(dtype, start<KIND, float, float>, start<KIND, double, double>, start<KIND, wn_bf16, float>,
                         start<KIND, int32_t, double>);
}

static wn_kernel_fn sum_of(int32_t op, int32_t dtype)
{
    return wn__kernel_of(dtype, start<SUM, float, double>, start<SUM, double, double>, start<SUM, wn_bf16, double>,
                         op == WN_OP_SUM ? start<SUM, int32_t, long long> : (wn_kernel_fn)NULL);
}

/* ---- squares ---------------------------------------------------------------------------------------------------- */

/* Sums the squares of each stripe of n elements, as a row of a sum: 16 threads have a stripe. */
template <class T> static __global__ void sum_squares(double *out, const T *x, int64_t n, int64_t stripes)
{
    const struct wn__lane lane = wn__lane_of(stripes);
    const int64_t begin = lane.row * WN_STRIPE, whole = begin + WN_STRIPE < n ? begin + WN_STRIPE : n;
    const int64_t end = lane.is_real ? whole : begin;
    double sum = 0;
    for (int64_t i = begin + lane.j; i < end; i += WN_LANES) {
        double v = (double)wn__load(x[i]);
        sum += v * v;
    }
    sum = wn__join_lanes(sum);
    if (lane.j == 0 && lane.is_real) out[lane.row] = sum;
}

template <class T> static int32_t squares(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    const int64_t stripes = d->out.dim[0];
    if (stripes > 0)
        LAUNCH_BLOCKS((sum_squares<T>), wn__row_blocks(stripes), stream, (double *)b->out, (const T *)b->in[0],
                      wn__numel(&d->in[0]), stripes);
    return wn__cuda_launched();
}

wn_kernel_fn wn__cuda_reduce_kernel(const struct wn_desc *d)
{
    int32_t dtype = d->out.dtype;
    if (d->op == WN_OP_SQUARES) return wn__kernel_of(d->in[0].dtype, squares<float>, squares<double>, squares<wn_bf16>);
    const int32_t is_sum = d->op == WN_OP_SUM || d->op == WN_OP_MEAN;
    if (is_sum && d->in[0].dtype == WN_BF16 && dtype == WN_F32) return start<SUM, wn_bf16, double>;
    if (d->in[0].dtype != dtype) return NULL;
    switch (d->op) {
    case WN_OP_SUM:
    case WN_OP_MEAN: return sum_of(d->op, dtype);
    case WN_OP_MAX: return extreme_of<MAX>(dtype);
    case WN_OP_MIN: return extreme_of<MIN>(dtype);
    case WN_OP_EXTREME_GRAD:
        return dtype == WN_F32    ? start_extreme<float>
               : dtype == WN_F64  ? start_extreme<double>
               : dtype == WN_BF16 ? start_extreme<wn_bf16>
                                  : (wn_kernel_fn)NULL;
    default: return NULL;
    }
}
