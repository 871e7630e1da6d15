/* NLL: logp: (rows, classes), labels: (rows) -> loss: (), and NLL_GRAD, with the CPU's bits (runtime/ops/softmax.c has
 * the formulas, nll.cuh the order of the sum; crossentropy.cu has what goes over rows). bf16 is read as f32 and the
 * result rounded once.
 *
 * NLL_GRAD sums up what the loss is divided by first:
 *
 *     workspace   | divisor |     one f64 */
#include "nll.cuh"

template <class T> static int32_t nll(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    const struct wn__labels k = wn__labels_of(d, b, d->in[0].dim[d->in[0].ndim - 1]);
    LAUNCH((wn__join_loss<WN_PICKED, T, T, T>), 1, WN_LOSS_THREADS, 0, stream, k, (const T *)b->in[0], (T *)b->out);
    return wn__cuda_launched();
}

/* out: (rows, classes), all zero before. */
template <class T> static __global__ void put_shares(struct wn__labels k, const T *dy, const double *divisor, T *out)
{
    typedef typename wn__number<T>::type N;
    int64_t i = wn__thread();
    if (i >= k.n || !wn__counts(k, k.label[i])) return;
    const double share = wn__loss_share(k, dy, divisor, i);
    out[i * k.classes + k.label[i]] = wn__store<T>((N)wn__loss_slope(share, wn__class_weight<T>(k, k.label[i]), k.hit));
}

template <class T> static int32_t nll_grad(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    const struct wn__labels k = wn__labels_of(d, b, d->attrs.i[1]);
    double *divisor = (double *)b->workspace;
    if (k.n == 0) return WN_OK;
    wn__start_divisor<T>(k, divisor, stream);
    if (k.classes == 0) return wn__cuda_launched();
    (void)cudaMemsetAsync(b->out, 0, (size_t)wn__bytes(&d->out), (cudaStream_t)stream);
    LAUNCH((put_shares<T>), wn__blocks(k.n, WN_THREADS), WN_THREADS, 0, stream, k, (const T *)b->in[0], divisor,
           (T *)b->out);
    return wn__cuda_launched();
}

wn_kernel_fn wn__cuda_nll_kernel(const struct wn_desc *d)
{
    const int32_t is_nll = d->op == WN_OP_NLL;
    if (is_nll ? wn__loss_has_rows(d) : d->attrs.f[0] > 0) return wn__cuda_cross_entropy_kernel(d);
    if (d->in[0].dtype != d->out.dtype || d->in[1].dtype != WN_I32) return NULL;
    switch (d->out.dtype) {
    case WN_F32: return is_nll ? nll<float> : nll_grad<float>;
    case WN_F64: return is_nll ? nll<double> : nll_grad<double>;
    case WN_BF16: return is_nll ? nll<wn_bf16> : nll_grad<wn_bf16>;
    default: return NULL;
    }
}
