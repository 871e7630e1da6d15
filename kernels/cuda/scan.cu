/* CUMSUM and ARGSORT: x: (outer, n, inner), along n, with the CPU's bits.
 *
 * A sum is added in double, of i32 in 64 bits, in the order of positions, whose bits no tree of partial sums has: one
 * thread adds those of a line. Where there are many lines, each thread reads and writes its own; neighbouring threads
 * have neighbouring columns. Where there are few, a block has a line: all of its threads read and write tiles, and the
 * first adds.
 *
 * A block sorts the positions of one line in the place of the result, by a bitonic network whose every step puts the
 * earlier position in front: positions past n, which come last, never move, so n is any length. Lines of more than
 * WN_SORT_LONG elements are sorted by digits (sort.cu). */
#include "map.cuh"

enum {
    TILE = 1024, /* positions of a line that a block adds at once */
    AHEAD = 8,   /* numbers that the thread which adds has read before it adds them */
    LONG = 64,   /* positions of a line that is worth a block */
    MANY = 4096  /* lines that are threads enough */
};

struct scan {
    int64_t lines, n, inner;
    int32_t turned;
    uint64_t *report; /* of sums of i32 that 32 bits do not hold */
};

static struct scan scan_of(const struct wn_desc *d)
{
    struct wn__axis a = wn__axis_of(&d->in[0], d->attrs.i[0]);
    struct scan s = {
        .lines = a.outer * a.inner, .n = a.n, .inner = a.inner, .turned = d->attrs.i[1] != 0, .report = NULL};
    return s;
}

/* ---- cumsum -------------------------------------------------------------------------------------- */

template <class T> struct sum_of {
    typedef double type;
    static __device__ __forceinline__ T stored(double v, uint64_t *, int64_t)
    {
        return wn__store<T>((typename wn__number<T>::type)v);
    }
};
template <> struct sum_of<int32_t> {
    typedef long long type;
    static __device__ __forceinline__ int32_t stored(long long v, uint64_t *report, int64_t at)
    {
        return wn__whole(v, report, at);
    }
};

template <class T> static __global__ void cumsum_lines(struct scan s, const T *x, T *out)
{
    typedef typename sum_of<T>::type Sum;
    int64_t line = wn__thread();
    if (line >= s.lines) return;
    const int64_t first = line / s.inner * s.n * s.inner + line % s.inner;
    Sum sum = 0;
    for (int64_t r = 0; r < s.n; r++) {
        int64_t at = first + (s.turned ? s.n - 1 - r : r) * s.inner;
        sum += (Sum)wn__load(x[at]);
        out[at] = sum_of<T>::stored(sum, s.report, at);
    }
}

/* Adds m numbers of a tile to a sum, in their order, and puts each sum in the place of its number. */
template <class Sum> static __device__ __forceinline__ Sum add_tile(Sum sum, Sum *tile, int m)
{
    int t = 0;
    for (; t + AHEAD <= m; t += AHEAD) {
        Sum v[AHEAD];
        WN_UNROLL
        for (int j = 0; j < AHEAD; j++) v[j] = tile[t + j];
        WN_UNROLL
        for (int j = 0; j < AHEAD; j++) tile[t + j] = sum += v[j];
    }
    for (; t < m; t++) tile[t] = sum += tile[t];
    return sum;
}

template <class T> static __global__ void __launch_bounds__(WN_THREADS) cumsum_line(struct scan s, const T *x, T *out)
{
    typedef typename sum_of<T>::type Sum;
    __shared__ Sum tile[TILE];
    const int64_t line = blockIdx.x, first = line / s.inner * s.n * s.inner + line % s.inner;
    const int64_t start = s.turned ? first + (s.n - 1) * s.inner : first, step = s.turned ? -s.inner : s.inner;
    Sum sum = 0;
    for (int64_t begin = 0; begin < s.n; begin += TILE) {
        const int64_t left = s.n - begin;
        const int m = left < TILE ? (int)left : (int)TILE;
        for (int t = threadIdx.x; t < m; t += WN_THREADS) tile[t] = (Sum)wn__load(x[start + (begin + t) * step]);
        __syncthreads();
        if (threadIdx.x == 0) sum = add_tile(sum, tile, m);
        __syncthreads();
        for (int t = threadIdx.x; t < m; t += WN_THREADS) {
            const int64_t at = start + (begin + t) * step;
            out[at] = sum_of<T>::stored(tile[t], s.report, at);
        }
        __syncthreads();
    }
}

template <class T> static int32_t cumsum_start(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    struct scan s = scan_of(d);
    s.report = b->report;
    if (wn__numel(&d->out) == 0) return WN_OK;
    if (s.n >= LONG && s.lines < MANY)
        LAUNCH_BLOCKS((cumsum_line<T>), wn__grid(s.lines), stream, s, (const T *)b->in[0], (T *)b->out);
    else LAUNCH_EACH((cumsum_lines<T>), s.lines, stream, s, (const T *)b->in[0], (T *)b->out);
    return wn__cuda_launched();
}

/* ---- argsort ------------------------------------------------------------------------------------- */

/* Returns whether position a of a line comes before position b. */
template <class T>
static __device__ __forceinline__ bool is_before(const struct scan &s, const T *x, int32_t a, int32_t b)
{
    typename wn__number<T>::type u = wn__load(x[a * s.inner]), v = wn__load(x[b * s.inner]);
    bool is_odd_u = u != u, is_odd_v = v != v;
    if (is_odd_u != is_odd_v) return s.turned ? is_odd_u : is_odd_v;
    if (is_odd_u || u == v) return a < b;
    return s.turned ? u > v : u < v;
}

/* Puts the positions at places i < p of the result in order; a place past n holds none. */
template <class T>
static __device__ __forceinline__ void compare(const struct scan &s, const T *x, int32_t *at, int64_t i, int64_t p)
{
    if (p >= s.n) return;
    int32_t a = at[i * s.inner], b = at[p * s.inner];
    if (!is_before(s, x, b, a)) return;
    at[i * s.inner] = b;
    at[p * s.inner] = a;
}

template <class T>
static __global__ void __launch_bounds__(WN_THREADS) sort_line(struct scan s, const T *x, int32_t *out)
{
    const int64_t line = blockIdx.x, first = line / s.inner * s.n * s.inner + line % s.inner;
    int32_t bits = 0; /* 2 << bits is the power of two that holds n */
    while (((int64_t)2 << bits) < s.n) bits++;
    const int64_t half = (int64_t)1 << bits;
    x += first;
    out += first;
    for (int64_t j = threadIdx.x; j < s.n; j += WN_THREADS) out[j * s.inner] = (int32_t)j;
    __syncthreads();
    for (int32_t k = 0; k <= bits; k++) { /* joins runs of 1 << k */
        for (int64_t t = threadIdx.x; t < half; t += WN_THREADS) {
            int64_t begin = t >> k << (k + 1), own = t & (((int64_t)1 << k) - 1);
            compare(s, x, out, begin + own, begin + ((int64_t)2 << k) - 1 - own);
        }
        __syncthreads();
        for (int32_t m = k - 1; m >= 0; m--) {
            for (int64_t t = threadIdx.x; t < half; t += WN_THREADS) {
                int64_t i = (t >> m << (m + 1)) + (t & (((int64_t)1 << m) - 1));
                compare(s, x, out, i, i + ((int64_t)1 << m));
            }
            __syncthreads();
        }
    }
}

template <class T> static int32_t argsort_start(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    struct scan s = scan_of(d);
    if (wn__numel(&d->out) == 0) return WN_OK;
    LAUNCH_BLOCKS((sort_line<T>), wn__grid(s.lines), stream, s, (const T *)b->in[0], (int32_t *)b->out);
    return wn__cuda_launched();
}

/* ---- which kernel -------------------------------------------------------------------------------- */

template <class T> static wn_kernel_fn scan_of_type(const struct wn_desc *d)
{
    return d->op == WN_OP_CUMSUM ? cumsum_start<T> : argsort_start<T>;
}

wn_kernel_fn wn__cuda_scan_kernel(const struct wn_desc *d)
{
    if (d->op != WN_OP_CUMSUM && d->op != WN_OP_ARGSORT) return NULL;
    wn_kernel_fn by_digits = d->op == WN_OP_ARGSORT ? wn__cuda_sort_kernel(d) : NULL;
    if (by_digits != NULL) return by_digits;
    return wn__kernel_of(d->in[0].dtype, scan_of_type<float>(d), scan_of_type<double>(d), scan_of_type<wn_bf16>(d),
                         scan_of_type<int32_t>(d));
}
