/* The labels of a loss and the sum of its rows, which NLL and CROSS_ENTROPY share.
 *
 * A label counts unless it is ignore_index. One that counts and is no class is told of, and left out. The sum is the
 * CPU's (kernels/sums.h): at most 64 parts of at least 512 labels, as many as follow from the number of labels; 16
 * threads sum a part (block.cuh), and parts are added in order, from 0. One block does it all. */
#ifndef WN_CUDA_NLL_CUH
#define WN_CUDA_NLL_CUH
#include "block.cuh"

enum { WN_LOSS_THREADS = WN_LOSS_PARTS * WN_LANES };

/* The labels of one application. */
struct wn__labels {
    const int32_t *label; /* (n) */
    int64_t n, classes, ignored;
    const void *weight; /* (classes), of the dtype of the loss; NULL: 1 each */
    double hit, each;   /* factors of the log-probability of the label, and of that of each class */
    int32_t form;       /* WN_LOSS_* */
    uint64_t *report;
};

/* labels: input 1 of an application. */
static inline struct wn__labels wn__labels_of(const struct wn_desc *d, const struct wn_buffers *b, int64_t classes)
{
    const int32_t weight = d->op == WN_OP_CROSS_ENTROPY_GRAD ? 3 : 2;
    struct wn__labels k = {(const int32_t *)b->in[1],
                           wn__numel(&d->in[1]),
                           classes,
                           d->attrs.i[0],
                           weight < d->n_in ? b->in[weight] : NULL,
                           1 - d->attrs.f[0],
                           d->attrs.f[0] / (double)classes,
                           (int32_t)d->attrs.i[WN_LOSS_FORM],
                           b->report};
    return k;
}

/* Returns the weight of a class. */
template <class T> static __device__ __forceinline__ double wn__class_weight(const struct wn__labels &k, int64_t c)
{
    return k.weight == NULL ? 1.0 : (double)wn__load(((const T *)k.weight)[c]);
}

/* Returns whether a label counts and is a class. */
static __device__ __forceinline__ bool wn__counts(const struct wn__labels &k, int32_t label)
{
    return label != k.ignored && label >= 0 && label < k.classes;
}

/* Tells of label i where it counts and is no class; returns whether it counts and is one. */
static __device__ __forceinline__ bool wn__check_label(const struct wn__labels &k, int64_t i, int32_t label)
{
    bool is_fine = wn__counts(k, label);
    if (!is_fine && label != k.ignored) wn__report(k.report, i, label);
    return is_fine;
}

/* Returns the gradient of the sum of row i: -dy / divisor. */
template <class T>
static __device__ __forceinline__ double wn__loss_share(const struct wn__labels &k, const T *dy, const double *divisor,
                                                        int64_t i)
{
    return -(double)wn__load(dy[k.form == WN_LOSS_ROWS ? i : 0]) / *divisor;
}

/* Returns the sum of the parts, of_part: (WN_LOSS_PARTS). */
static __device__ __forceinline__ double wn__join_parts(const double *of_part, int64_t parts)
{
    double sum = 0;
    for (int64_t c = 0; c < parts; c++) sum += of_part[c];
    return sum;
}

/* Writes the loss, -(sum of terms) / divisor, NaN where both are 0, or the divisor alone (HOW). The term of label i is
 * term[i], or its log-probability term[i * classes + label]. T: of the weights. One block of WN_LOSS_THREADS. */
enum { WN_PICKED, WN_TERMS, WN_DIVISOR };
template <int HOW, class T, class X, class O>
static __global__ void __launch_bounds__(WN_LOSS_THREADS) wn__join_loss(struct wn__labels k, const X *term, O *out)
{
    typedef typename wn__number<O>::type N;
    __shared__ double of_part[2][WN_LOSS_PARTS];
    const int64_t part = threadIdx.x / WN_LANES, parts = wn__loss_parts(k.n);
    const int64_t begin = k.n * part / parts, end = part < parts ? k.n * (part + 1) / parts : begin;
    double lane = 0, weight = 0;
    for (int64_t i = begin + threadIdx.x % WN_LANES; i < end; i += WN_LANES) {
        const int32_t label = k.label[i];
        if (!wn__check_label(k, i, label)) continue;
        if (HOW != WN_DIVISOR) lane += (double)wn__load(term[HOW == WN_PICKED ? i * k.classes + label : i]);
        weight += wn__class_weight<T>(k, label);
    }
    lane = wn__join_lanes(lane);
    weight = wn__join_lanes(weight);
    if (threadIdx.x % WN_LANES == 0) of_part[0][part] = lane, of_part[1][part] = weight;
    __syncthreads();
    if (threadIdx.x != 0) return;
    const double divisor = k.form == WN_LOSS_MEAN ? wn__join_parts(of_part[1], parts) : 1;
    const double sum = wn__join_parts(of_part[0], parts);
    *out = wn__store<O>((N)(HOW == WN_DIVISOR ? divisor : (0 - sum) / divisor));
}

/* Starts the kernel that writes the divisor of a loss, and tells of labels that are no class. */
template <class T> static inline void wn__start_divisor(const struct wn__labels &k, double *divisor, void *stream)
{
    LAUNCH((wn__join_loss<WN_DIVISOR, T, double, double>), 1, WN_LOSS_THREADS, 0, stream, k, (const double *)NULL,
           divisor);
}
#endif
