/* The part of cuDNN that kernels/cuda/cudnn.cu calls, simulated: it reads descriptions as NVIDIA's manual has them,
 * refuses what would be refused there, and computes convolutions on the stream. WANE_CUDA_DNN=simulated asks for it.
 *
 * Sums go from the last term to the first, so that their bits differ from those of own kernels: a spec sees which of
 * the two computed a convolution. tf32 rounds operands to 10 bits of fraction. Scratch is written to its last byte.
 * No GPU says which kernels the library declines; here they are those that a spec can ask for by their sizes:
 *
 *     a kernel of 7 x 7    algorithm 1 wants more scratch than any plan gives; conv2d has algorithm 0 beside it
 *     a dilation of 3      nothing but algorithm 0
 *     bf16                 tensor cores where the channels of x are even, and other arithmetic where they are odd */
#include <stdlib.h>
#include "state.h"

enum { SUCCESS = 0, NOT_INITIALIZED = 1001, BAD_PARAM = 2000, NOT_SUPPORTED = 3000, NO_MEMORY = 4004, FAILED = 5000 };
enum { TYPE_F32 = 0, TYPE_BF16 = 9, MATH_DEFAULT = 0, MATH_TENSOR_OP = 1, MATH_FMA = 3 };
enum { FORWARD, DATA, FILTER };

struct dnn_handle {
    void *stream;
    int has_stream;
};
struct dnn_tensor {
    int type, dim[4], by[4]; /* n, c, h, w */
};
struct dnn_filter {
    int type, format, dim[4]; /* k, c, h, w */
};
struct dnn_conv {
    int pad[2], stride[2] = {1, 1}, dilation[2] = {1, 1}, mode, compute, groups = 1, math = MATH_DEFAULT;
};

/* One convolution, as a kernel is given it. */
struct dnn_job {
    int direction, algorithm;
    dnn_tensor x, y;
    dnn_filter w;
    dnn_conv c;
    const void *at[3]; /* x, w, y; the result among them is written to `out` */
    void *out;
};

static int made(void)
{
    return wn__sim_must_fail(WN_SIM_LIBRARY) ? (int)FAILED : (int)SUCCESS;
}

/* Creates a description. */
template <class T> static int desc_create(void **desc)
{
    *desc = new T{};
    return made();
}

static size_t version(void)
{
    return 91900;
}

static int create(void **handle)
{
    static dnn_handle only;
    if (wn__sim_must_fail(WN_SIM_MALLOC)) return NO_MEMORY;
    if (wn__sim_must_fail(WN_SIM_LIBRARY)) return NOT_INITIALIZED;
    only = dnn_handle{NULL, 0};
    *handle = &only;
    return SUCCESS;
}

static int set_stream(void *handle, void *stream)
{
    *(dnn_handle *)handle = dnn_handle{stream, 1};
    return made();
}

static int tensor_set(void *desc, int type, int n, int c, int h, int w, int by_n, int by_c, int by_h, int by_w)
{
    if (n < 1 || c < 1 || h < 1 || w < 1 || (type != TYPE_F32 && type != TYPE_BF16)) return BAD_PARAM;
    *(dnn_tensor *)desc = dnn_tensor{type, {n, c, h, w}, {by_n, by_c, by_h, by_w}};
    return SUCCESS;
}

static int filter_set(void *desc, int type, int format, int k, int c, int h, int w)
{
    if (k < 1 || c < 1 || h < 1 || w < 1 || format != 1) return BAD_PARAM;
    *(dnn_filter *)desc = dnn_filter{type, format, {k, c, h, w}};
    return SUCCESS;
}

static int conv_set(void *desc, int pad_h, int pad_w, int stride_h, int stride_w, int dilation_h, int dilation_w,
                    int mode, int compute)
{
    dnn_conv *c = (dnn_conv *)desc;
    if (pad_h < 0 || pad_w < 0 || stride_h < 1 || stride_w < 1 || dilation_h < 1 || dilation_w < 1) return BAD_PARAM;
    *c = dnn_conv{{pad_h, pad_w}, {stride_h, stride_w}, {dilation_h, dilation_w}, mode, compute, c->groups, c->math};
    return SUCCESS;
}

static int conv_groups(void *desc, int groups)
{
    ((dnn_conv *)desc)->groups = groups;
    return SUCCESS;
}

static int conv_math(void *desc, int math)
{
    ((dnn_conv *)desc)->math = math;
    return SUCCESS;
}

/* ---- what is asked ----------------------------------------------------------------------------------------------- */

static int check(const dnn_job &j)
{
    if (j.w.dim[0] != j.y.dim[1] || j.w.dim[1] * j.c.groups != j.x.dim[1] || j.w.dim[0] % j.c.groups != 0)
        return BAD_PARAM;
    if (j.x.dim[0] != j.y.dim[0] || j.x.type != j.y.type || j.x.type != j.w.type) return BAD_PARAM;
    if (j.c.mode != 1 || j.c.compute != TYPE_F32) return BAD_PARAM;
    for (int k = 0; k < 2; k++) {
        int covered = (j.w.dim[2 + k] - 1) * j.c.dilation[k] + 1;
        if (j.y.dim[2 + k] != (j.x.dim[2 + k] + 2 * j.c.pad[k] - covered) / j.c.stride[k] + 1) return BAD_PARAM;
    }
    if (j.algorithm != 1 && (j.direction != FORWARD || j.algorithm != 0)) return NOT_SUPPORTED;
    if (j.x.type == TYPE_BF16 && j.c.math != (j.x.dim[1] % 2 == 0 ? MATH_TENSOR_OP : MATH_DEFAULT))
        return NOT_SUPPORTED;
    if (j.x.type == TYPE_F32 && j.c.math == MATH_TENSOR_OP) return NOT_SUPPORTED;
    return j.algorithm == 1 && j.c.dilation[0] == 3 ? (int)NOT_SUPPORTED : (int)SUCCESS;
}

static size_t scratch_of(const dnn_job &j)
{
    if (j.algorithm == 0) return 0;
    if (j.w.dim[2] == 7) return (size_t)1 << 30;
    return 4 * (size_t)(j.w.dim[2] * j.w.dim[3] + j.y.dim[2]) + (size_t)(1000 * (j.direction + 1) + 1);
}

/* Puts operands in the order x, w, y. Those of a direction are w, dy, dx (DATA) or x, dy, dw (FILTER). */
template <class P> static void in_order(int direction, P const (&given)[3], P (&out)[3])
{
    static const int place[3][3] = {{0, 1, 2}, {1, 2, 0}, {0, 2, 1}};
    for (int i = 0; i < 3; i++) out[place[direction][i]] = given[i];
}

template <int DIRECTION> static dnn_job job_of(void *a, void *b, void *desc, void *c, int algorithm)
{
    void *d[3], *const given[3] = {a, b, c};
    in_order(DIRECTION, given, d);
    return dnn_job{DIRECTION,           algorithm,         *(dnn_tensor *)d[0], *(dnn_tensor *)d[2],
                   *(dnn_filter *)d[1], *(dnn_conv *)desc, {NULL, NULL, NULL},  NULL};
}

template <int DIRECTION>
static int size(void *handle, void *a, void *b, void *desc, void *c, int algorithm, size_t *bytes)
{
    if (handle == NULL) return BAD_PARAM;
    if (wn__sim_must_fail(WN_SIM_LIBRARY)) return FAILED;
    const dnn_job j = job_of<DIRECTION>(a, b, desc, c, algorithm);
    *bytes = scratch_of(j);
    return check(j);
}

/* ---- what is computed -------------------------------------------------------------------------------------------- */

static float element(const dnn_job &j, const void *x, int64_t at)
{
    return wn__sim_element(x, at, j.x.type == TYPE_F32, j.c.math == MATH_DEFAULT);
}

static void store(const dnn_job &j, int64_t at, float v)
{
    wn__sim_put(j.out, at, j.x.type == TYPE_F32, v);
}

static int64_t at_image(const dnn_tensor &t, int n, int c, int h, int w)
{
    return (int64_t)n * t.by[0] + (int64_t)c * t.by[1] + (int64_t)h * t.by[2] + (int64_t)w * t.by[3];
}

static int64_t at_filter(const dnn_filter &f, int k, int c, int h, int w)
{
    return (((int64_t)k * f.dim[2] + h) * f.dim[3] + w) * f.dim[1] + c;
}

/* Returns a row or column of y that reads one of x at a place of the kernel; -1: there is none. */
static int window_of(const dnn_job &j, int part, int at, int place)
{
    int from = at + j.c.pad[part] - place * j.c.dilation[part];
    if (from < 0 || from % j.c.stride[part] != 0 || from / j.c.stride[part] >= j.y.dim[2 + part]) return -1;
    return from / j.c.stride[part];
}

/* Returns the row or column of x that a window reads at a place of the kernel; -1: it is outside. */
static int place_of(const dnn_job &j, int part, int window, int place)
{
    int at = window * j.c.stride[part] - j.c.pad[part] + place * j.c.dilation[part];
    return at < 0 || at >= j.x.dim[2 + part] ? -1 : at;
}

static void forward(const dnn_job &j, int n, int o, int h, int w)
{
    const int group = o / (j.w.dim[0] / j.c.groups);
    float sum = 0;
    for (int c = j.w.dim[1] - 1; c >= 0; c--)
        for (int r = j.w.dim[2] - 1; r >= 0; r--)
            for (int s = j.w.dim[3] - 1; s >= 0; s--) {
                int row = place_of(j, 0, h, r), column = place_of(j, 1, w, s);
                if (row < 0 || column < 0) continue;
                sum = fmaf(element(j, j.at[0], at_image(j.x, n, group * j.w.dim[1] + c, row, column)),
                           element(j, j.at[1], at_filter(j.w, o, c, r, s)), sum);
            }
    store(j, at_image(j.y, n, o, h, w), sum);
}

static void data(const dnn_job &j, int n, int channel, int h, int w)
{
    const int group = channel / j.w.dim[1], outputs = j.w.dim[0] / j.c.groups;
    float sum = 0;
    for (int o = outputs - 1; o >= 0; o--)
        for (int r = j.w.dim[2] - 1; r >= 0; r--)
            for (int s = j.w.dim[3] - 1; s >= 0; s--) {
                int row = window_of(j, 0, h, r), column = window_of(j, 1, w, s);
                if (row < 0 || column < 0) continue;
                sum = fmaf(element(j, j.at[2], at_image(j.y, n, group * outputs + o, row, column)),
                           element(j, j.at[1], at_filter(j.w, group * outputs + o, channel - group * j.w.dim[1], r, s)),
                           sum);
            }
    store(j, at_image(j.x, n, channel, h, w), sum);
}

static void filter(const dnn_job &j, int o, int c, int r, int s)
{
    const int group = o / (j.w.dim[0] / j.c.groups);
    float sum = 0;
    for (int n = j.y.dim[0] - 1; n >= 0; n--)
        for (int h = j.y.dim[2] - 1; h >= 0; h--)
            for (int w = j.y.dim[3] - 1; w >= 0; w--) {
                int row = place_of(j, 0, h, r), column = place_of(j, 1, w, s);
                if (row < 0 || column < 0) continue;
                sum = fmaf(element(j, j.at[0], at_image(j.x, n, group * j.w.dim[1] + c, row, column)),
                           element(j, j.at[2], at_image(j.y, n, o, h, w)), sum);
            }
    store(j, at_filter(j.w, o, c, r, s), sum);
}

static int64_t count(const int (&dim)[4])
{
    return (int64_t)dim[0] * dim[1] * dim[2] * dim[3];
}

/* Computes an element of the result a thread. */
static void dnn_convolution(dnn_job j)
{
    const int(&dim)[4] = j.direction == FORWARD ? j.y.dim : j.direction == DATA ? j.x.dim : j.w.dim;
    int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= count(dim)) return;
    const int w = (int)(at % dim[3]), h = (int)(at / dim[3] % dim[2]), c = (int)(at / dim[3] / dim[2] % dim[1]);
    const int n = (int)(at / dim[3] / dim[2] / dim[1]);
    if (j.direction == FORWARD) forward(j, n, c, h, w);
    else if (j.direction == DATA) data(j, n, c, h, w);
    else filter(j, n, c, h, w);
}

static void dnn_scribble(unsigned char *scratch, int64_t bytes)
{
    int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (at < bytes) scratch[at] = 0xff;
}

static unsigned blocks(int64_t n)
{
    return (unsigned)((n + 255) / 256);
}

template <int DIRECTION>
static int compute(void *handle, const void *alpha, void *a, const void *pa, void *b, const void *pb, void *desc,
                   int algorithm, void *scratch, size_t bytes, const void *beta, void *c, void *pc)
{
    const dnn_handle *h = (const dnn_handle *)handle;
    if (h == NULL || !h->has_stream) return BAD_PARAM;
    if (wn__sim_must_fail(WN_SIM_LIBRARY)) return FAILED;
    dnn_job j = job_of<DIRECTION>(a, b, desc, c, algorithm);
    const void *const given[3] = {pa, pb, pc};
    in_order(DIRECTION, given, j.at);
    j.out = pc;
    int code = check(j);
    if (code != SUCCESS) return code;
    if (*(const float *)alpha != 1 || *(const float *)beta != 0) return BAD_PARAM;
    const int64_t wanted = (int64_t)scratch_of(j);
    if ((int64_t)bytes < wanted || (wanted > 0 && scratch == NULL)) return BAD_PARAM;
    for (int i = 0; i < 3; i++)
        if ((uintptr_t)j.at[i] % 16 != 0) return BAD_PARAM;
    if (wanted > 0) LAUNCH(dnn_scribble, blocks(wanted), 256, 0, h->stream, (unsigned char *)scratch, wanted);
    int64_t n = DIRECTION == FORWARD ? count(j.y.dim) : DIRECTION == DATA ? count(j.x.dim) : count(j.w.dim);
    LAUNCH(dnn_convolution, blocks(n), 256, 0, h->stream, j);
    cudaError_t e = cudaGetLastError();
    if (e == cudaErrorMemoryAllocation) return NO_MEMORY;
    return e == cudaSuccess ? (int)SUCCESS : (int)FAILED;
}

void *wn__sim_cudnn(const char *name);
void *wn__sim_cudnn(const char *name)
{
    static const struct wn__sim_entry rows[] = {
        {"cudnnGetVersion", (void *)version},
        {"cudnnCreate", (void *)create},
        {"cudnnSetStream", (void *)set_stream},
        {"cudnnCreateTensorDescriptor", (void *)desc_create<dnn_tensor>},
        {"cudnnSetTensor4dDescriptorEx", (void *)tensor_set},
        {"cudnnDestroyTensorDescriptor", (void *)wn__sim_destroy<dnn_tensor>},
        {"cudnnCreateFilterDescriptor", (void *)desc_create<dnn_filter>},
        {"cudnnSetFilter4dDescriptor", (void *)filter_set},
        {"cudnnDestroyFilterDescriptor", (void *)wn__sim_destroy<dnn_filter>},
        {"cudnnCreateConvolutionDescriptor", (void *)desc_create<dnn_conv>},
        {"cudnnSetConvolution2dDescriptor", (void *)conv_set},
        {"cudnnSetConvolutionGroupCount", (void *)conv_groups},
        {"cudnnSetConvolutionMathType", (void *)conv_math},
        {"cudnnDestroyConvolutionDescriptor", (void *)wn__sim_destroy<dnn_conv>},
        {"cudnnGetConvolutionForwardWorkspaceSize", (void *)size<FORWARD>},
        {"cudnnGetConvolutionBackwardDataWorkspaceSize", (void *)size<DATA>},
        {"cudnnGetConvolutionBackwardFilterWorkspaceSize", (void *)size<FILTER>},
        {"cudnnConvolutionForward", (void *)compute<FORWARD>},
        {"cudnnConvolutionBackwardData", (void *)compute<DATA>},
        {"cudnnConvolutionBackwardFilter", (void *)compute<FILTER>},
    };
    return wn__sim_function(rows, name);
}
