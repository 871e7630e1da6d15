/* The labels of a loss and the sum of their log-probabilities, which NLL and CROSS_ENTROPY share.
 *
 * A label counts unless it is ignore_index. One that counts and is no class is told of, and left out. The sum is the
 * CPU's (kernels/cpu/nll.c): at most 64 parts of at least 512 labels, as many as follow from the number of labels; 16
 * threads sum a part (block.cuh), and parts are added in order, from 0. One block does it all. */
#ifndef WN_CUDA_NLL_CUH
#define WN_CUDA_NLL_CUH
#include "block.cuh"

enum { WN_LOSS_THREADS = WN_LOSS_PARTS * WN_LANES };

/* The labels of one application. */
struct wn__labels {
    const int32_t *label; /* (n) */
    int64_t n, classes, ignored;
    uint64_t *report;
};

/* labels: input 1 of an application. */
static inline struct wn__labels wn__labels_of(const struct wn_desc *d, const struct wn_buffers *b, int64_t classes)
{
    struct wn__labels k = {(const int32_t *)b->in[1], wn__numel(&d->in[1]), classes, d->attrs.i[0], b->report};
    return k;
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

/* Returns the sum of a number of each thread of a block of at most 1,024, a multiple of 32, to thread 0. */
static __device__ __forceinline__ long long wn__count_block(long long count)
{
    __shared__ long long of_warp[32];
    for (int w = 16; w > 0; w /= 2) count += __shfl_xor_sync(0xffffffffu, count, w);
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = count;
    __syncthreads();
    for (int k = 1; threadIdx.x == 0 && k < (int)blockDim.x / 32; k++) count += of_warp[k];
    return count;
}

/* Counts the labels that count, and tells of those that are no class. One block. */
static __global__ void wn__count_labels(struct wn__labels k, int64_t *count)
{
    long long mine = 0;
    for (int64_t i = threadIdx.x; i < k.n; i += blockDim.x) mine += wn__check_label(k, i, k.label[i]);
    mine = wn__count_block(mine);
    if (threadIdx.x == 0) *count = mine;
}

/* Returns what the gradient of a loss puts at each label that counts: -dy / count. */
template <class T> static __device__ __forceinline__ double wn__loss_share(const T *dy, const int64_t *count)
{
    return -(double)wn__load(*dy) / (double)*count;
}

/* Writes the loss, -(sum of log-probabilities) / (number of labels that count), NaN where none does. logp: the
 * log-probability of label i is logp[i * stride + (IS_PICKED ? label : 0)]. One block of WN_LOSS_THREADS. */
template <bool IS_PICKED, class T, class O>
static __global__ void __launch_bounds__(WN_LOSS_THREADS) wn__mean_loss(struct wn__labels k, const T *logp, O *out)
{
    typedef typename wn__number<O>::type N;
    __shared__ double of_part[WN_LOSS_PARTS];
    const int64_t stride = IS_PICKED ? k.classes : 1, part = threadIdx.x / WN_LANES, parts = wn__loss_parts(k.n);
    const int64_t begin = k.n * part / parts, end = part < parts ? k.n * (part + 1) / parts : begin;
    double lane = 0;
    long long count = 0;
    for (int64_t i = begin + threadIdx.x % WN_LANES; i < end; i += WN_LANES) {
        const int32_t label = k.label[i];
        const bool counts = wn__check_label(k, i, label);
        if (counts) lane += (double)wn__load(logp[i * stride + (IS_PICKED ? label : 0)]);
        count += counts;
    }
    lane = wn__join_lanes(lane);
    if (threadIdx.x % WN_LANES == 0) of_part[part] = lane;
    count = wn__count_block(count);
    if (threadIdx.x != 0) return;
    double sum = 0;
    for (int64_t c = 0; c < parts; c++) sum += of_part[c];
    *out = wn__store<O>((N)((0 - sum) / (double)count));
}
#endif
