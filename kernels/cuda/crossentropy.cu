/* CROSS_ENTROPY: logits: (rows, classes), labels: (rows)[, weight: (classes)] -> loss, and CROSS_ENTROPY_GRAD, with the
 * bits of LOG_SOFTMAX, NLL and their gradients, which they replace (softmax.cuh and nll.cuh have the orders of the
 * sums), and so of the CPU. NLL of weights, of smoothed labels and of each row, and NLL_GRAD of smoothed labels are
 * computed here too: their log-probabilities are logits whose maximum and whose logarithm of the sum are 0.
 *
 * Nothing as large as the logits is written but the gradient, which may overwrite them: the statistics of a row are in
 * all its threads before one of them writes, and then each element is read before it is written.
 *
 *     workspace   a loss       | term of label 0 | of label 1 | ...     f64 each
 *                 a gradient   | divisor |                              one f64 */
#include "nll.cuh"
#include "softmax.cuh"

/* ---- the loss ------------------------------------------------------------------------------------ */

/* Returns the statistics of a row of logits, or 0 and 0 of one of log-probabilities. */
template <bool IS_LOGITS, int TEAMS, class T>
static __device__ __forceinline__ wn__row_stats<T> stats_of(const T *x, int64_t n, const wn__member<TEAMS> &m)
{
    if (IS_LOGITS) return wn__row_stats_of<TEAMS>(x, n, m);
    const wn__row_stats<T> s = {0, 0};
    return s;
}

/* Writes the term of each label that counts to term: (rows); nobody reads the others. TEAMS is 1 where all classes have
 * a share. */
template <bool IS_LOGITS, int TEAMS, class T>
static __global__ void label_terms(struct wn__labels k, const T *logits, double *term)
{
    wn__member<TEAMS> m = wn__member_of<TEAMS>(k.n, k.classes);
    const T *x = logits + m.row * k.classes;
    const int32_t label = k.label[m.row];
    if (!wn__counts(k, label)) m.end = 0; /* the row is not read */
    const wn__row_stats<T> s = stats_of<IS_LOGITS, TEAMS>(x, k.classes, m);
    double all = 0;
    for (int64_t i = m.lane; k.each > 0 && i < m.end; i += WN_LANES)
        all += wn__class_weight<T>(k, i) * (double)((x[i] - s.best) - s.log_sum);
    all = wn__join_lanes(all);
    if (m.end == 0 || m.team != 0 || m.lane != 0) return;
    const double logp = (double)((x[label] - s.best) - s.log_sum);
    term[m.row] = wn__loss_term(k.hit * wn__class_weight<T>(k, label), logp, k.each, all);
}

/* Writes the loss of each row, and tells of labels that are no class. */
template <class T> static __global__ void put_rows(struct wn__labels k, const double *term, T *out)
{
    int64_t i = wn__thread();
    if (i < k.n) out[i] = wn__check_label(k, i, k.label[i]) ? (T)(0 - term[i]) : (T)0;
}

template <bool IS_LOGITS, class T>
static int32_t loss_of_rows(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    const struct wn__labels k = wn__labels_of(d, b, d->in[0].dim[d->in[0].ndim - 1]);
    const T *logits = (const T *)b->in[0];
    double *term = (double *)b->workspace;
    if (k.n > 0 && k.classes > WN_LONG_ROW && k.each == 0)
        LAUNCH((label_terms<IS_LOGITS, WN_TEAMS, T>), wn__grid(k.n), WN_THREADS, 0, stream, k, logits, term);
    else if (k.n > 0)
        LAUNCH((label_terms<IS_LOGITS, 1, T>), wn__row_blocks(k.n), WN_THREADS, 0, stream, k, logits, term);
    if (k.form != WN_LOSS_ROWS)
        LAUNCH((wn__join_loss<WN_TERMS, T, double, T>), 1, WN_LOSS_THREADS, 0, stream, k, (const double *)term,
               (T *)b->out);
    else if (k.n > 0)
        LAUNCH((put_rows<T>), wn__blocks(k.n, WN_THREADS), WN_THREADS, 0, stream, k, (const double *)term, (T *)b->out);
    return wn__cuda_launched();
}

/* ---- the gradient -------------------------------------------------------------------------------- */

template <class T> struct logits_grad {
    const T *dy, *logits;  /* () or (rows), (rows, classes) */
    const double *divisor; /* of the loss */
    T *out;                /* (rows, classes) */
};

/* Returns the gradient of the log-probability of class c of a row with a label. */
template <class T>
static __device__ __forceinline__ T slope(const struct wn__labels &k, double share, int64_t c, int32_t label)
{
    return (T)wn__loss_slope(share, wn__class_weight<T>(k, c), k.each + (c == label ? k.hit : 0));
}

template <int TEAMS, class T, int V> static __global__ void grad_rows(struct wn__labels k, logits_grad<T> g)
{
    const wn__member<TEAMS> m = wn__member_of<TEAMS>(k.n, k.classes);
    const int64_t at = m.row * k.classes;
    const wn__row_stats<T> s = wn__row_stats_of<TEAMS>(g.logits + at, k.classes, m);
    const int32_t label = k.label[m.row];
    const T share = wn__counts(k, label) ? slope<T>(k, wn__loss_share(k, g.dy, g.divisor, m.row), label, label) : (T)0;
    for (int64_t i = (m.team * WN_LANES + m.lane) * V; i < m.end; i += TEAMS * WN_LANES * V) {
        T x[V];
        wn__get(g.logits + at + i, x);
        WN_UNROLL
        for (int v = 0; v < V; v++)
            x[v] = wn_log_softmax_grad(i + v == label ? share : (T)0, (x[v] - s.best) - s.log_sum, share);
        wn__put(g.out + at + i, x);
    }
}

/* Computes the gradient of rows whose classes all have a share, of logits or of log-probabilities. */
template <bool IS_LOGITS, class T> static __global__ void smooth_rows(struct wn__labels k, logits_grad<T> g)
{
    const wn__member<1> m = wn__member_of<1>(k.n, k.classes);
    const int64_t at = m.row * k.classes;
    const wn__row_stats<T> s = stats_of<IS_LOGITS, 1>(g.logits + at, k.classes, m);
    const int32_t label = k.label[m.row];
    const bool counts = wn__counts(k, label);
    const double share = counts ? wn__loss_share(k, g.dy, g.divisor, m.row) : 0;
    double sum = 0;
    for (int64_t i = m.lane; counts && i < m.end; i += WN_LANES) sum += (double)slope<T>(k, share, i, label);
    sum = wn__join_lanes(sum);
    for (int64_t i = m.lane; i < m.end; i += WN_LANES) {
        const T dy = counts ? slope<T>(k, share, i, label) : (T)0;
        g.out[at + i] = IS_LOGITS ? wn_log_softmax_grad(dy, (g.logits[at + i] - s.best) - s.log_sum, (T)sum) : dy;
    }
}

template <class T, int V> static void start_grad(const struct wn__labels &k, const logits_grad<T> &g, void *stream)
{
    if (k.classes > WN_LONG_ROW) LAUNCH((grad_rows<WN_TEAMS, T, V>), wn__grid(k.n), WN_THREADS, 0, stream, k, g);
    else LAUNCH((grad_rows<1, T, V>), wn__row_blocks(k.n), WN_THREADS, 0, stream, k, g);
}

template <bool IS_LOGITS, class T>
static int32_t grad_of_rows(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    const struct wn__labels k = wn__labels_of(d, b, d->out.dim[d->out.ndim - 1]);
    double *divisor = (double *)b->workspace;
    const logits_grad<T> g = {(const T *)b->in[0], (const T *)(IS_LOGITS ? b->in[2] : b->out), divisor, (T *)b->out};
    if (k.n == 0) return WN_OK;
    wn__start_divisor<T>(k, divisor, stream);
    if (k.each > 0) LAUNCH((smooth_rows<IS_LOGITS, T>), wn__row_blocks(k.n), WN_THREADS, 0, stream, k, g);
    else if (k.classes % wn__wide<T>::N == 0) start_grad<T, wn__wide<T>::N>(k, g, stream);
    else start_grad<T, 1>(k, g, stream);
    return wn__cuda_launched();
}

template <class T> static wn_kernel_fn kernel_of(int32_t op)
{
    switch (op) {
    case WN_OP_NLL: return loss_of_rows<false, T>;
    case WN_OP_CROSS_ENTROPY: return loss_of_rows<true, T>;
    case WN_OP_NLL_GRAD: return grad_of_rows<false, T>;
    default: return grad_of_rows<true, T>;
    }
}

wn_kernel_fn wn__cuda_cross_entropy_kernel(const struct wn_desc *d)
{
    for (int32_t i = 0; i < d->n_in; i++)
        if (d->in[i].dtype != (i == 1 ? WN_I32 : d->out.dtype)) return NULL;
    switch (d->out.dtype) {
    case WN_F32: return kernel_of<float>(d->op);
    case WN_F64: return kernel_of<double>(d->op);
    default: return NULL;
    }
}
