/* NLL: logp: (rows, classes), labels: (rows) -> loss: (), and NLL_GRAD, with the CPU's bits (runtime/ops/softmax.c has
 * the formulas, nll.cuh the order of the sum). bf16 is read as f32 and the result rounded once.
 *
 * NLL_GRAD counts the labels first, since its numbers depend on how many count:
 *
 *     workspace   | number of labels that count |     one i64 */
#include "nll.cuh"

template <class T> static int32_t nll(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    const struct wn__labels k = wn__labels_of(d, b, d->in[0].dim[d->in[0].ndim - 1]);
    LAUNCH((wn__mean_loss<true, T, T>), 1, WN_LOSS_THREADS, 0, stream, k, (const T *)b->in[0], (T *)b->out);
    return wn__cuda_launched();
}

/* out: (rows, classes), all zero before. */
template <class T> static __global__ void put_shares(struct wn__labels k, const T *dy, const int64_t *count, T *out)
{
    typedef typename wn__number<T>::type N;
    int64_t i = wn__thread();
    if (i >= k.n || !wn__counts(k, k.label[i])) return;
    out[i * k.classes + k.label[i]] = wn__store<T>((N)wn__loss_share(dy, count));
}

template <class T> static int32_t nll_grad(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    const struct wn__labels k = wn__labels_of(d, b, d->attrs.i[1]);
    int64_t *count = (int64_t *)b->workspace;
    if (k.n == 0) return WN_OK;
    LAUNCH(wn__count_labels, 1, WN_LOSS_THREADS, 0, stream, k, count);
    if (k.classes == 0) return wn__cuda_launched();
    (void)cudaMemsetAsync(b->out, 0, (size_t)wn__bytes(&d->out), (cudaStream_t)stream);
    LAUNCH((put_shares<T>), wn__blocks(k.n, WN_THREADS), WN_THREADS, 0, stream, k, (const T *)b->in[0], count,
           (T *)b->out);
    return wn__cuda_launched();
}

wn_kernel_fn wn__cuda_nll_kernel(const struct wn_desc *d)
{
    const int32_t is_nll = d->op == WN_OP_NLL;
    if (d->in[0].dtype != d->out.dtype || d->in[1].dtype != WN_I32) return NULL;
    switch (d->out.dtype) {
    case WN_F32: return is_nll ? nll<float> : nll_grad<float>;
    case WN_F64: return is_nll ? nll<double> : nll_grad<double>;
    case WN_BF16: return is_nll ? nll<wn_bf16> : nll_grad<wn_bf16>;
    default: return NULL;
    }
}
