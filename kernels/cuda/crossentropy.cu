/* CROSS_ENTROPY: logits: (rows, classes), labels: (rows) -> loss: (), and CROSS_ENTROPY_GRAD, with the bits of
 * LOG_SOFTMAX, NLL and their gradients, which they replace (softmax.cuh and nll.cuh have the orders of the sums), and
 * so of the CPU.
 *
 * Nothing as large as the logits is written but the gradient, which may overwrite them: the statistics of a row are in
 * all its threads before one of them writes, and then each element is read before it is written.
 *
 *     workspace   CROSS_ENTROPY        | log-probability of label 0 | of label 1 | ...     f64 each
 *                 CROSS_ENTROPY_GRAD   | number of labels that count |                     one i64 */
#include "nll.cuh"
#include "softmax.cuh"

/* ---- the loss ------------------------------------------------------------------------------------ */

/* Writes the log-probability of each label that counts to term: (rows); nobody reads the others. */
template <int TEAMS, class T> static __global__ void label_terms(struct wn__labels k, const T *logits, double *term)
{
    wn__member<TEAMS> m = wn__member_of<TEAMS>(k.n, k.classes);
    const T *x = logits + m.row * k.classes;
    const int32_t label = k.label[m.row];
    if (!wn__counts(k, label)) m.end = 0; /* the row is not read */
    const wn__row_stats<T> s = wn__row_stats_of<TEAMS>(x, k.classes, m);
    if (m.end > 0 && m.team == 0 && m.lane == 0) term[m.row] = (double)((x[label] - s.best) - s.log_sum);
}

template <class T> static int32_t cross_entropy(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    const struct wn__labels k = wn__labels_of(d, b, d->in[0].dim[d->in[0].ndim - 1]);
    const T *logits = (const T *)b->in[0];
    double *term = (double *)b->workspace;
    if (k.n > 0 && k.classes > WN_LONG_ROW)
        LAUNCH((label_terms<WN_TEAMS, T>), wn__grid(k.n), WN_THREADS, 0, stream, k, logits, term);
    else if (k.n > 0) LAUNCH((label_terms<1, T>), wn__row_blocks(k.n), WN_THREADS, 0, stream, k, logits, term);
    LAUNCH((wn__mean_loss<false, double, T>), 1, WN_LOSS_THREADS, 0, stream, k, (const double *)term, (T *)b->out);
    return wn__cuda_launched();
}

/* ---- the gradient -------------------------------------------------------------------------------- */

template <class T> struct logits_grad {
    const T *dy, *logits; /* (), (rows, classes) */
    const int64_t *count; /* labels that count */
    T *out;               /* (rows, classes) */
};

template <int TEAMS, class T, int V> static __global__ void grad_rows(struct wn__labels k, logits_grad<T> g)
{
    const wn__member<TEAMS> m = wn__member_of<TEAMS>(k.n, k.classes);
    const int64_t at = m.row * k.classes;
    const wn__row_stats<T> s = wn__row_stats_of<TEAMS>(g.logits + at, k.classes, m);
    const int32_t label = k.label[m.row];
    const T share = wn__counts(k, label) ? (T)wn__loss_share(g.dy, g.count) : (T)0;
    for (int64_t i = (m.team * WN_LANES + m.lane) * V; i < m.end; i += TEAMS * WN_LANES * V) {
        T x[V];
        wn__get(g.logits + at + i, x);
        WN_UNROLL
        for (int v = 0; v < V; v++)
            x[v] = wn_log_softmax_grad(i + v == label ? share : (T)0, (x[v] - s.best) - s.log_sum, share);
        wn__put(g.out + at + i, x);
    }
}

template <class T, int V> static void start_grad(const struct wn__labels &k, const logits_grad<T> &g, void *stream)
{
    if (k.classes > WN_LONG_ROW) LAUNCH((grad_rows<WN_TEAMS, T, V>), wn__grid(k.n), WN_THREADS, 0, stream, k, g);
    else LAUNCH((grad_rows<1, T, V>), wn__row_blocks(k.n), WN_THREADS, 0, stream, k, g);
}

template <class T> static int32_t cross_entropy_grad(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    const struct wn__labels k = wn__labels_of(d, b, d->out.dim[d->out.ndim - 1]);
    int64_t *count = (int64_t *)b->workspace;
    const logits_grad<T> g = {(const T *)b->in[0], (const T *)b->in[2], count, (T *)b->out};
    if (k.n == 0) return WN_OK;
    LAUNCH(wn__count_labels, 1, WN_LOSS_THREADS, 0, stream, k, count);
    if (k.classes % wn__wide<T>::N == 0) start_grad<T, wn__wide<T>::N>(k, g, stream);
    else start_grad<T, 1>(k, g, stream);
    return wn__cuda_launched();
}

wn_kernel_fn wn__cuda_cross_entropy_kernel(const struct wn_desc *d)
{
    const int32_t is_loss = d->op == WN_OP_CROSS_ENTROPY;
    if (d->in[is_loss ? 0 : 2].dtype != d->out.dtype || d->in[1].dtype != WN_I32) return NULL;
    switch (d->out.dtype) {
    case WN_F32: return is_loss ? cross_entropy<float> : cross_entropy_grad<float>;
    case WN_F64: return is_loss ? cross_entropy<double> : cross_entropy_grad<double>;
    default: return NULL;
    }
}
