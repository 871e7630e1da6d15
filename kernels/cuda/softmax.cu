/* SOFTMAX, LOG_SOFTMAX, SOFTMAX_GRAD, LOG_SOFTMAX_GRAD along any dim, with the CPU's bits (runtime/ops/softmax.c has
 * the formulas, kernels/cpu/row/softmax.c the orders); f64 as far as exp and log of the device have libm's.
 *
 * Seen from the dim, a value is (outer, n, inner). inner = 1: 16 threads a row (block.cuh), LOG_SOFTMAX by stretches
 * (softmax.cuh), and SOFTMAX of rows on 16 bytes, of at most 8 KiB, with one read and one exp an element. Else a thread
 * has a column, whose terms it adds in double one after the other. bf16 is computed as f32 in registers and rounded
 * once.
 *
 * A result may lie where an input does: all threads of a row have its sum before one of them writes, and then each
 * element is read before it is written. */
#include "pair.cuh"
#include "softmax.cuh"

/* One application. */
template <class T> struct softmax_job {
    const T *a, *b; /* (outer, n, inner): x, x; or dy, y */
    T *out;         /* (outer, n, inner) */
    struct wn__axis axis;
};

/* ---- formulas ------------------------------------------------------------------------------------ */

/* has_best<OP>::IS is true for an op that subtracts the maximum of a row first, and has one operand. */
template <int OP> struct has_best {
    enum { IS = OP == WN_OP_SOFTMAX || OP == WN_OP_LOG_SOFTMAX };
};

/* Returns the term that an element adds to the sum of its row. */
template <int OP, class N> static __device__ __forceinline__ double term_of(N a, N b, N best)
{
    if (has_best<OP>::IS) return (double)wn_exp_below(a - best);
    return OP == WN_OP_SOFTMAX_GRAD ? (double)a * (double)b : (double)a;
}

/* Returns what the elements of a row need of its sum. */
template <int OP, class N> static __device__ __forceinline__ N finish(double sum)
{
    if (OP == WN_OP_SOFTMAX) return (N)(1.0 / sum);
    return OP == WN_OP_LOG_SOFTMAX ? (N)log(sum) : (N)sum;
}

template <int OP, class N> static __device__ __forceinline__ N element_of(N a, N b, N best, N done)
{
    if (OP == WN_OP_SOFTMAX) return wn_exp_below(a - best) * done;
    if (OP == WN_OP_LOG_SOFTMAX) return (a - best) - done;
    return OP == WN_OP_SOFTMAX_GRAD ? wn_softmax_grad(a, b, done) : wn_log_softmax_grad(a, b, done);
}

/* Writes the elements of a row, V at once. */
template <int OP, int V, int TEAMS, class T, class N>
static __device__ __forceinline__ void write_row(const softmax_job<T> &j, const wn__member<TEAMS> &m, N best, N done)
{
    const int64_t at = m.row * j.axis.n;
    for (int64_t i = (m.team * WN_LANES + m.lane) * V; i < m.end; i += TEAMS * WN_LANES * V) {
        N a[V], b[V];
        wn__get(j.a + at + i, a);
        wn__get((has_best<OP>::IS ? j.a : j.b) + at + i, b);
        WN_UNROLL
        for (int v = 0; v < V; v++) a[v] = element_of<OP>(a[v], b[v], best, done);
        wn__put(j.out + at + i, a);
    }
}

/* ---- the last dim -------------------------------------------------------------------------------- */

template <int OP, class T, int V> static __global__ void softmax_rows(softmax_job<T> j)
{
    typedef typename wn__number<T>::type N;
    const wn__member<1> m = wn__member_of<1>(j.axis.outer, j.axis.n);
    const T *a = j.a + m.row * j.axis.n, *b = (has_best<OP>::IS ? j.a : j.b) + m.row * j.axis.n;
    N best = (N)-INFINITY;
    if (has_best<OP>::IS) {
        for (int64_t i = m.lane; i < m.end; i += WN_LANES) best = wn_maximum((N)wn__load(a[i]), best);
        best = wn__max_lanes(best);
    }
    double lane = 0;
    for (int64_t i = m.lane; i < m.end; i += WN_LANES) lane += term_of<OP, N>(wn__load(a[i]), wn__load(b[i]), best);
    write_row<OP, V>(j, m, best, finish<OP, N>(wn__join_lanes(lane)));
}

template <int TEAMS, class T, int V> static __global__ void log_softmax_rows(softmax_job<T> j)
{
    typedef typename wn__number<T>::type N;
    const wn__member<TEAMS> m = wn__member_of<TEAMS>(j.axis.outer, j.axis.n);
    const wn__row_stats<N> s = wn__row_stats_of<TEAMS>(j.a + m.row * j.axis.n, j.axis.n, m);
    write_row<WN_OP_LOG_SOFTMAX, V>(j, m, s.best, s.log_sum);
}

/* ---- SOFTMAX of rows that are read once ----------------------------------------------------------- */

/* A row of bf16 or f32 on 16 bytes waits in the registers of its threads, 16 of a row of at most ONCE_SHORT bytes,
 * else 32, until the maximum is known; the exps of its elements wait in shared memory until the sum is. Block:
 * ONCE_THREADS / LANES rows, exps_apart(n) f32 each.
 *
 * Counted in SASS of sm_90, bf16: 18.6 instructions an element for its exp, 31 in all for rows of 1,024.
 * Predicted: 75 % of the rate of copies. */
enum { ONCE_THREADS = 64, ONCE_SHORT = 2048, ONCE_MOST = 8192 };

/* Returns the numbers from one row in shared memory to the next: so many that two rows lie in different halves of the
 * 32 banks. */
WN_FN int32_t exps_apart(int32_t n)
{
    return (n + 15) / 32 * 32 + 16;
}

/* The greatest of the elements that a thread has seen. */
template <class T> struct greatest {
    float most = -INFINITY;
    __device__ __forceinline__ void take(const uint4 &v)
    {
        float x[4];
        wn__unpack16(v, x);
        WN_UNROLL
        for (int k = 0; k < 4; k++) most = wn_maximum(x[k], most);
    }
    __device__ __forceinline__ float number(void) const
    {
        return most;
    }
};
template <> struct greatest<wn_bf16> {
    uint32_t pair = 0xff80ff80u; /* -infinity twice */
    __device__ __forceinline__ void take(const uint4 &v)
    {
        pair = wn__pair_max(wn__pair_max(wn__pair_max(v.x, v.y), wn__pair_max(v.z, v.w)), pair);
    }
    __device__ __forceinline__ float number(void) const
    {
        return wn_maximum(wn__pair_low(pair), wn__pair_high(pair));
    }
};

/* Move numbers to and from shared memory. 8 of them go in two halves, of which four lanes of eight move the second one
 * first, so that eight lanes lie in 32 banks. */
static __device__ __forceinline__ void put_exps(float *to, const float (&e)[4])
{
    *(float4 *)to = make_float4(e[0], e[1], e[2], e[3]);
}
static __device__ __forceinline__ void put_exps(float *to, const float (&e)[8])
{
    const int turned = threadIdx.x / 4 % 2 * 4;
    const float4 low = make_float4(e[0], e[1], e[2], e[3]), high = make_float4(e[4], e[5], e[6], e[7]);
    *(float4 *)(to + turned) = turned ? high : low;
    *(float4 *)(to + 4 - turned) = turned ? low : high;
}
static __device__ __forceinline__ void get_exps(const float *from, float (&e)[4])
{
    const float4 p = *(const float4 *)from;
    memcpy(e, &p, sizeof p);
}
static __device__ __forceinline__ void get_exps(const float *from, float (&e)[8])
{
    const int turned = threadIdx.x / 4 % 2 * 4;
    const float4 p = *(const float4 *)(from + turned), q = *(const float4 *)(from + 4 - turned);
    const float4 low = turned ? q : p, high = turned ? p : q;
    memcpy(e, &low, sizeof low);
    memcpy(e + 4, &high, sizeof high);
}

/* The sum is that of softmax_rows: both halves of a warp with one row add the same 16 lanes. */
template <class T, int LANES> static __global__ void __launch_bounds__(ONCE_THREADS) softmax_once(softmax_job<T> j)
{
    enum { V = wn__wide<T>::N, MOST = LANES == 16 ? ONCE_SHORT : ONCE_MOST, CHUNKS = MOST / 16 / LANES };
    DYN_SHARED(float, all);
    const int lane = (int)threadIdx.x % LANES, n = (int)j.axis.n;
    const int64_t row = wn__thread() / LANES;
    const int chunks = row < j.axis.outer ? n / V : 0;
    float *const exps = all + (int)threadIdx.x / LANES * exps_apart(n);
    const uint4 *from = (const uint4 *)(j.a + row * n);
    uint4 v[CHUNKS] = {};
    WN_UNROLL
    for (int c = 0; c < CHUNKS; c++)
        if (c * LANES + lane < chunks) v[c] = from[c * LANES + lane];
    greatest<T> seen;
    WN_UNROLL
    for (int c = 0; c < CHUNKS; c++)
        if (c * LANES + lane < chunks) seen.take(v[c]);
    float best = wn__max_lanes(seen.number());
    if (LANES > WN_LANES) best = wn_maximum(__shfl_xor_sync(0xffffffffu, best, WN_LANES), best);
    WN_UNROLL
    for (int c = 0; c < CHUNKS; c++) {
        if (c * LANES + lane >= chunks) break;
        float e[V];
        wn__unpack16(v[c], e);
        WN_UNROLL
        for (int k = 0; k < V; k++) e[k] = wn_exp_below(e[k] - best);
        put_exps(exps + (c * LANES + lane) * V, e);
    }
    __syncwarp();
    double part = 0;
    for (int i = lane % WN_LANES; i < chunks * V; i += WN_LANES) part += (double)exps[i];
    const float done = finish<WN_OP_SOFTMAX, float>(wn__join_lanes(part));
    for (int c = lane; c < chunks; c += LANES) {
        float e[V];
        get_exps(exps + c * V, e);
        WN_UNROLL
        for (int k = 0; k < V; k++) e[k] *= done;
        wn__store16(j.out + row * n + c * V, e);
    }
}

template <class T, int LANES> static void start_once(const softmax_job<T> &j, void *stream)
{
    enum { ROWS = ONCE_THREADS / LANES };
    const size_t shared = sizeof(float) * (size_t)(ROWS * exps_apart((int32_t)j.axis.n));
    LAUNCH((softmax_once<T, LANES>), wn__blocks(j.axis.outer, ROWS), ONCE_THREADS, shared, stream, j);
}

/* ---- another dim --------------------------------------------------------------------------------- */

template <int OP, class T> static __global__ void softmax_columns(softmax_job<T> j)
{
    typedef typename wn__number<T>::type N;
    const int64_t inner = j.axis.inner, unit = wn__thread();
    if (unit >= j.axis.outer * inner) return;
    const int64_t base = unit / inner * j.axis.n * inner + unit % inner;
    const T *a = j.a + base, *b = (has_best<OP>::IS ? j.a : j.b) + base;
    N best = (N)-INFINITY;
    for (int64_t i = 0; has_best<OP>::IS && i < j.axis.n; i++) best = wn_maximum((N)wn__load(a[i * inner]), best);
    double sum = 0;
    for (int64_t i = 0; i < j.axis.n; i++) sum += term_of<OP, N>(wn__load(a[i * inner]), wn__load(b[i * inner]), best);
    const N done = finish<OP, N>(sum);
    for (int64_t i = 0; i < j.axis.n; i++)
        j.out[base + i * inner] =
            wn__store<T>(element_of<OP, N>(wn__load(a[i * inner]), wn__load(b[i * inner]), best, done));
}

/* ---- which kernel -------------------------------------------------------------------------------- */

template <int OP, class T, int V> static void start_rows(const softmax_job<T> &j, void *stream)
{
    if constexpr (OP == WN_OP_SOFTMAX && sizeof(T) < 8 && V > 1) {
        const int64_t bytes = j.axis.n * (int64_t)sizeof(T);
        if (bytes <= ONCE_SHORT) return start_once<T, WN_LANES>(j, stream);
        if (bytes <= ONCE_MOST) return start_once<T, 2 * WN_LANES>(j, stream);
    }
    if constexpr (OP != WN_OP_LOG_SOFTMAX)
        LAUNCH_BLOCKS((softmax_rows<OP, T, V>), wn__row_blocks(j.axis.outer), stream, j);
    else if (j.axis.n > WN_LONG_ROW)
        LAUNCH_BLOCKS((log_softmax_rows<WN_TEAMS, T, V>), wn__grid(j.axis.outer), stream, j);
    else LAUNCH_BLOCKS((log_softmax_rows<1, T, V>), wn__row_blocks(j.axis.outer), stream, j);
}

template <int OP, class T> static int32_t softmax(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    softmax_job<T> j = {(const T *)b->in[0], (const T *)b->in[d->n_in - 1], (T *)b->out,
                        wn__axis_of(&d->out, d->attrs.i[0])};
    if (wn__numel(&d->out) == 0) return WN_OK;
    if (j.axis.inner != 1) LAUNCH_EACH((softmax_columns<OP, T>), j.axis.outer * j.axis.inner, stream, j);
    else if (j.axis.n % wn__wide<T>::N == 0) start_rows<OP, T, wn__wide<T>::N>(j, stream);
    else start_rows<OP, T, 1>(j, stream);
    return wn__cuda_launched();
}

template <int OP> static wn_kernel_fn kernel_of(int32_t dtype)
{
    return wn__kernel_of(dtype, softmax<OP, float>, softmax<OP, double>, softmax<OP, wn_bf16>);
}

wn_kernel_fn wn__cuda_softmax_kernel(const struct wn_desc *d)
{
    if (!wn__has_one_dtype(d)) return NULL;
    switch (d->op) {
    case WN_OP_SOFTMAX: return kernel_of<WN_OP_SOFTMAX>(d->out.dtype);
    case WN_OP_LOG_SOFTMAX: return kernel_of<WN_OP_LOG_SOFTMAX>(d->out.dtype);
    case WN_OP_SOFTMAX_GRAD: return kernel_of<WN_OP_SOFTMAX_GRAD>(d->out.dtype);
    case WN_OP_LOG_SOFTMAX_GRAD: return kernel_of<WN_OP_LOG_SOFTMAX_GRAD>(d->out.dtype);
    default: return NULL;
    }
}
