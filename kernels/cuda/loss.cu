/* ROW_STATS, ROW_NLL, ROW_NLL_GRAD and ROW_COUNT, with the CPU's bits (runtime/ops/loss.c has the formulas, softmax.cuh
 * and kernels/sums.h the orders of sums; row_stats.cu has long rows of bf16). Log-probabilities x are logits whose
 * maximum and whose logarithm of the sum are 0.
 *
 * Logits and their gradient lie in rows at a pitch (WN_ROWS) or behind each other. Each of the two may be bf16, where
 * casts were taken in (plan/ir/casts.c); all other values are f32 then.
 *
 * A label counts unless it is ignore_index. One that counts and is no class is told of, and left out. The gradient may
 * overwrite the logits: each element is read before it is written. bf16 is computed as f32, and a gradient is rounded
 * once. */
#include "block.cuh"
#include "loss.cuh"
#include "softmax.cuh"

/* One application; T: the logits, N: the numbers of the loss. */
template <class T> struct loss_job {
    typedef typename wn__number<T>::type N;
    const T *x;           /* (n, classes), rows ld elements apart */
    const N *stats;       /* (n, 2); NULL: x are log-probabilities */
    const N *dy, *weight; /* (n); (classes), NULL: 1 each */
    const int32_t *label; /* (n) */
    int64_t n, classes, ld, ignored;
    double hit, each; /* factors of the log-probability of the label, and of that of each class */
    uint64_t *report;
};

template <class T> static loss_job<T> job_of(const struct wn_desc *d, const struct wn_buffers *b)
{
    typedef typename wn__number<T>::type N;
    const struct wn__loss_inputs at = wn__loss_inputs(d);
    const int64_t classes = at.x == 0 ? d->in[0].dim[d->in[0].ndim - 1] : d->attrs.i[WN_LOSS_CLASSES];
    loss_job<T> j = {.x = at.x >= 0 ? (const T *)b->in[at.x] : NULL,
                     .stats = at.stats >= 0 ? (const N *)b->in[at.stats] : NULL,
                     .dy = (const N *)b->in[0],
                     .weight = at.weight >= 0 ? (const N *)b->in[at.weight] : NULL,
                     .label = (const int32_t *)b->in[1],
                     .n = wn__numel(&d->in[1]),
                     .classes = classes,
                     .ld = at.x >= 0 ? wn__row_pitch(&d->in[at.x]) : classes,
                     .ignored = d->attrs.i[WN_LOSS_IGNORED],
                     .hit = 1 - d->attrs.f[0],
                     .each = d->attrs.f[0] / (double)classes,
                     .report = b->report};
    return j;
}

/* Returns whether a label counts and is a class. */
template <class T> static __device__ __forceinline__ bool counts(const loss_job<T> &j, int32_t label)
{
    return label != j.ignored && label >= 0 && label < j.classes;
}

/* Tells of the label of a row where it counts and is no class. */
template <class T> static __device__ __forceinline__ void check_label(const loss_job<T> &j, int64_t row, int32_t label)
{
    if (!counts(j, label) && label != j.ignored) wn__report(j.report, row, label);
}

template <class T> static __device__ __forceinline__ double weight_of(const loss_job<T> &j, int64_t c)
{
    return j.weight == NULL ? 1.0 : (double)j.weight[c];
}

/* Returns the statistics of a row; 0 and 0 of log-probabilities. */
template <class T, class N = typename wn__number<T>::type>
static __device__ __forceinline__ wn__row_stats<N> stats_of(const loss_job<T> &j, int64_t row)
{
    wn__row_stats<N> s = {0, 0};
    if (j.stats != NULL) s.best = j.stats[2 * row], s.log_sum = j.stats[2 * row + 1];
    return s;
}

template <class T, class N = typename wn__number<T>::type>
static __device__ __forceinline__ N logp_of(const T *x, int64_t c, const wn__row_stats<N> &s)
{
    return ((N)wn__load(x[c]) - s.best) - s.log_sum;
}

/* Returns the gradient of the log-probability of class c of a row with a label. */
template <class T, class N = typename wn__number<T>::type>
static __device__ __forceinline__ N slope_of(const loss_job<T> &j, double share, int64_t c, int32_t label)
{
    return (N)wn__loss_slope(share, weight_of(j, c), j.each + (c == label ? j.hit : 0));
}

/* ---- row_stats ----------------------------------------------------------------------------------- */

template <int TEAMS, class T, class N>
static __global__ void put_stats(const T *x, int64_t ld, N *out, int64_t n, int64_t classes)
{
    const wn__member<TEAMS> m = wn__member_of<TEAMS>(n, classes);
    const wn__row_stats<N> s = wn__row_stats_of<TEAMS>(x + m.row * ld, classes, m);
    if (m.end > 0 && m.team == 0 && m.lane == 0) out[2 * m.row] = s.best, out[2 * m.row + 1] = s.log_sum;
}

template <class T> static int32_t row_stats(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    typedef typename wn__number<T>::type N;
    const int64_t n = wn__numel(&d->out) / 2, classes = d->in[0].dim[d->in[0].ndim - 1], ld = wn__row_pitch(&d->in[0]);
    const T *x = (const T *)b->in[0];
    if (n == 0) return WN_OK;
    if (d->in[0].dtype == WN_BF16 && wn__row_stats_once(d, b, stream)) return wn__cuda_launched();
    if (classes > WN_LONG_ROW)
        LAUNCH_BLOCKS((put_stats<WN_TEAMS, T, N>), wn__grid(n), stream, x, ld, (N *)b->out, n, classes);
    else LAUNCH_BLOCKS((put_stats<1, T, N>), wn__row_blocks(n), stream, x, ld, (N *)b->out, n, classes);
    return wn__cuda_launched();
}

/* ---- row_nll ------------------------------------------------------------------------------------- */

/* Writes the loss of each row, 0 where the label does not count. 16 threads have a row. */
template <class T> static __global__ void put_losses(loss_job<T> j, typename wn__number<T>::type *out)
{
    typedef typename wn__number<T>::type N;
    const wn__member<1> m = wn__member_of<1>(j.n, j.classes);
    const T *x = j.x + m.row * j.ld;
    const int32_t label = j.label[m.row];
    const bool is_read = counts(j, label);
    const wn__row_stats<N> s = stats_of(j, m.row);
    double all = 0;
    for (int64_t c = m.lane; is_read && j.each > 0 && c < m.end; c += WN_LANES)
        all += weight_of(j, c) * (double)logp_of(x, c, s);
    all = wn__join_lanes(all);
    if (m.end == 0 || m.lane != 0) return;
    check_label(j, m.row, label);
    out[m.row] = (N)0;
    if (!is_read) return;
    const double logp = (double)logp_of(x, label, s);
    out[m.row] = (N)(0 - wn__loss_term(j.hit * weight_of(j, label), logp, j.each, all));
}

template <class T> static int32_t row_nll(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    typedef typename wn__number<T>::type N;
    const loss_job<T> j = job_of<T>(d, b);
    if (j.n > 0) LAUNCH_BLOCKS((put_losses<T>), wn__row_blocks(j.n), stream, j, (N *)b->out);
    return wn__cuda_launched();
}

/* ---- row_nll_grad -------------------------------------------------------------------------------- */

/* The gradient of logits, or of log-probabilities: (n, classes), rows ld elements apart. */
template <class O> struct loss_grad {
    O *dx;
    int64_t ld;
};

/* Returns e^y of a log-probability y. It is above 0 only where logits were packed with a loss behind the statistics. */
template <class N> static __device__ __forceinline__ N exp_of(N y)
{
    if (y > (N)0) return wn_exp(y);
    return wn_exp_below(y);
}

/* Writes dx of logits of whose log-probabilities that of the label alone has a gradient. V > 1: both pitches are
 * multiples of V, and what lies behind a row is written too. */
template <int TEAMS, class T, class O, int V> static __global__ void sharp_rows(loss_job<T> j, loss_grad<O> to)
{
    typedef typename wn__number<T>::type N;
    const wn__member<TEAMS> m = wn__member_of<TEAMS>(j.n, j.classes);
    const wn__row_stats<N> s = stats_of(j, m.row);
    const int32_t label = j.label[m.row];
    const N value = counts(j, label) ? slope_of(j, -(double)j.dy[m.row], label, label) : (N)0;
    if (m.end > 0 && m.team == 0 && m.lane == 0) check_label(j, m.row, label);
    for (int64_t i = (m.team * WN_LANES + m.lane) * V; i < m.end; i += TEAMS * WN_LANES * V) {
        N x[V];
        wn__get(j.x + m.row * j.ld + i, x);
        WN_UNROLL
        for (int v = 0; v < V; v++)
            x[v] = (i + v == label ? value : (N)0) - exp_of((x[v] - s.best) - s.log_sum) * value;
        wn__put(to.dx + m.row * to.ld + i, x);
    }
}

/* Writes dx of rows whose log-probabilities may all have gradients, of logits or of log-probabilities. */
template <class T, class O> static __global__ void smooth_rows(loss_job<T> j, loss_grad<O> to)
{
    typedef typename wn__number<T>::type N;
    const wn__member<1> m = wn__member_of<1>(j.n, j.classes);
    const T *x = j.x + m.row * j.ld;
    O *dx = to.dx + m.row * to.ld;
    const wn__row_stats<N> s = stats_of(j, m.row);
    const int32_t label = j.label[m.row];
    const bool is_read = counts(j, label);
    const double share = is_read ? -(double)j.dy[m.row] : 0;
    double sum = 0;
    if (m.end > 0 && m.lane == 0) check_label(j, m.row, label);
    for (int64_t i = m.lane; is_read && i < m.end; i += WN_LANES) sum += (double)slope_of(j, share, i, label);
    sum = wn__join_lanes(sum);
    for (int64_t i = m.lane; i < m.end; i += WN_LANES) {
        const N dy = is_read && (j.each > 0 || i == label) ? slope_of(j, share, i, label) : (N)0;
        dx[i] = wn__store<O>(j.stats == NULL ? dy : wn_log_softmax_grad(dy, logp_of(x, i, s), (N)sum));
    }
}

template <class T, class O, int V> static void start_sharp(const loss_job<T> &j, const loss_grad<O> &to, void *stream)
{
    if (j.classes > WN_LONG_ROW) LAUNCH_BLOCKS((sharp_rows<WN_TEAMS, T, O, V>), wn__grid(j.n), stream, j, to);
    else LAUNCH_BLOCKS((sharp_rows<1, T, O, V>), wn__row_blocks(j.n), stream, j, to);
}

/* T: logits; O: their gradient. */
template <class T, class O>
static int32_t row_nll_grad(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    enum { V = 16 / (sizeof(T) > sizeof(O) ? sizeof(T) : sizeof(O)) };
    const loss_job<T> j = job_of<T>(d, b);
    const loss_grad<O> to = {(O *)b->out, wn__row_pitch(&d->out)};
    if (j.n == 0 || j.classes == 0) return WN_OK;
    if (j.each > 0 || j.stats == NULL) LAUNCH_BLOCKS((smooth_rows<T, O>), wn__row_blocks(j.n), stream, j, to);
    else if (j.ld % V == 0 && to.ld % V == 0) start_sharp<T, O, V>(j, to, stream);
    else start_sharp<T, O, 1>(j, to, stream);
    return wn__cuda_launched();
}

/* ---- count --------------------------------------------------------------------------------------- */

enum { WN_COUNT_THREADS = WN_COUNT_PARTS * WN_LANES };

/* Writes the sum of the weights of the labels that count and are classes. 16 threads sum a part, and parts are added in
 * order, from 0. One block does it all. */
template <class N>
static __global__ void __launch_bounds__(WN_COUNT_THREADS)
    put_count(const int32_t *labels, int64_t n, int64_t ignored, const N *weight, int64_t classes, N *out)
{
    __shared__ double of_part[WN_COUNT_PARTS];
    const int64_t part = threadIdx.x / WN_LANES, parts = wn__count_parts(n);
    const int64_t begin = n * part / parts, end = part < parts ? n * (part + 1) / parts : begin;
    double lane = 0;
    for (int64_t i = begin + threadIdx.x % WN_LANES; i < end; i += WN_LANES) {
        const int32_t label = labels[i];
        if (label == ignored) continue;
        lane += weight == NULL ? 1.0 : label >= 0 && label < classes ? (double)weight[label] : 0.0;
    }
    lane = wn__join_lanes(lane);
    if (threadIdx.x % WN_LANES == 0) of_part[part] = lane;
    __syncthreads();
    if (threadIdx.x != 0) return;
    double sum = 0;
    for (int64_t c = 0; c < parts; c++) sum += of_part[c];
    *out = (N)sum;
}

template <class N> static int32_t count(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    LAUNCH((put_count<N>), 1, WN_COUNT_THREADS, 0, stream, (const int32_t *)b->in[0], wn__numel(&d->in[0]),
           d->attrs.i[WN_LOSS_IGNORED], (const N *)(d->n_in > 1 ? b->in[1] : NULL), d->n_in > 1 ? d->in[1].dim[0] : 0,
           (N *)b->out);
    return wn__cuda_launched();
}

template <class T> static wn_kernel_fn kernel_of(int32_t op)
{
    return op == WN_OP_ROW_STATS ? row_stats<T> : row_nll<T>;
}

/* Returns the kernel of a gradient of logits of T, or of log-probabilities, which are not read. */
static wn_kernel_fn grad_kernel_of(int32_t x, int32_t dx)
{
    if (x == WN_BF16) return wn__kernel_of(dx, row_nll_grad<wn_bf16, float>, NULL, row_nll_grad<wn_bf16, wn_bf16>);
    if (x == WN_F32) return wn__kernel_of(dx, row_nll_grad<float, float>, NULL, row_nll_grad<float, wn_bf16>);
    return wn__kernel_of(dx, NULL, row_nll_grad<double, double>, NULL);
}

wn_kernel_fn wn__cuda_loss_kernel(const struct wn_desc *d)
{
    const struct wn__loss_inputs at = wn__loss_inputs(d);
    if (d->op == WN_OP_ROW_COUNT) return d->out.dtype == WN_F64 ? count<double> : count<float>;
    if (d->op == WN_OP_ROW_NLL_GRAD) return grad_kernel_of(at.x >= 0 ? d->in[at.x].dtype : d->out.dtype, d->out.dtype);
    return wn__kernel_of(d->in[0].dtype, kernel_of<float>(d->op), kernel_of<double>(d->op), kernel_of<wn_bf16>(d->op));
}
