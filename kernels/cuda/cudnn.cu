/* See cudnn.h. This file alone has cuDNN's names and numbers, as its C interface has had them since 8.0.
 *
 * Its three functions have one form: two operands make a third.
 *
 *     CONV2D        x, w  -> y         CONV2D_DX     w, dy -> dx         CONV2D_DW     x, dy -> dw */
#include "conv.cuh"
#include "opened.h"
extern "C" {
#include "cudnn.h"
}

enum { SUCCESS = 0 };
enum { TYPE_F32 = 0, TYPE_BF16 = 9, FORMAT_NHWC = 1, CROSS_CORRELATION = 1 };
enum { MATH_DEFAULT = 0, MATH_TENSOR_OP = 1, MATH_FMA = 3 };
enum { FORWARD, DATA, FILTER, DIRECTIONS };
enum { X, W, Y, OPERANDS };

/* Lists the two operands and the result of each direction, and the algorithms to ask for, -1: none. They are those that
 * cuDNN documents as deterministic and that read images with channels last: the implicit product with indices made
 * before and the one without, which takes no scratch, and "algorithm 1" of both gradients. */
static const struct {
    int32_t operand[OPERANDS];
    int algorithm[2];
} directions[DIRECTIONS] = {{{X, W, Y}, {1, 0}}, {{W, Y, X}, {1, -1}}, {{X, Y, W}, {1, -1}}};

/* A convolution, as far as the library's answer depends on it. Compared byte by byte: there is no padding. */
struct shape {
    int32_t image[2][4], weight[4]; /* x and y: (N, C, H, W); (O, C / groups, kh, kw) */
    int32_t stride[2], pad[2], dilation[2], groups;
    int32_t direction, dtype, is_tf32;
};

/* A convolution that is ready. */
struct convolution {
    struct convolution *next;
    struct shape shape;
    int32_t is_declined; /* 1: the library has no algorithm for it */
    int algorithm;
    size_t scratch; /* bytes */
    void *operand[OPERANDS], *desc;
};

typedef int (*destroy_fn)(void *desc);
typedef int (*size_fn)(void *handle, void *a, void *b, void *desc, void *c, int algorithm, size_t *bytes);
typedef int (*compute_fn)(void *handle, const void *alpha, void *a, const void *pa, void *b, const void *pb, void *desc,
                          int algorithm, void *scratch, size_t bytes, const void *beta, void *c, void *pc);

/* The functions of the library. */
static struct {
    size_t (*version)(void);
    int (*create)(void **handle);
    int (*set_stream)(void *handle, void *stream);
    int (*tensor_create)(void **desc);
    int (*tensor_set)(void *desc, int type, int n, int c, int h, int w, int by_n, int by_c, int by_h, int by_w);
    destroy_fn tensor_destroy;
    int (*filter_create)(void **desc);
    int (*filter_set)(void *desc, int type, int format, int k, int c, int h, int w);
    destroy_fn filter_destroy;
    int (*conv_create)(void **desc);
    int (*conv_set)(void *desc, int pad_h, int pad_w, int stride_h, int stride_w, int dilation_h, int dilation_w,
                    int mode, int type);
    int (*conv_groups)(void *desc, int groups);
    int (*conv_math)(void *desc, int math);
    destroy_fn conv_destroy;
    size_fn size[DIRECTIONS];
    compute_fn compute[DIRECTIONS];
    void *handle, *stream; /* the stream that the handle was given last */
    struct convolution *convolutions;
} api;

static const struct wn__opened_function functions[] = {
    {"cudnnGetVersion", (void **)&api.version},
    {"cudnnCreate", (void **)&api.create},
    {"cudnnSetStream", (void **)&api.set_stream},
    {"cudnnCreateTensorDescriptor", (void **)&api.tensor_create},
    {"cudnnSetTensor4dDescriptorEx", (void **)&api.tensor_set},
    {"cudnnDestroyTensorDescriptor", (void **)&api.tensor_destroy},
    {"cudnnCreateFilterDescriptor", (void **)&api.filter_create},
    {"cudnnSetFilter4dDescriptor", (void **)&api.filter_set},
    {"cudnnDestroyFilterDescriptor", (void **)&api.filter_destroy},
    {"cudnnCreateConvolutionDescriptor", (void **)&api.conv_create},
    {"cudnnSetConvolution2dDescriptor", (void **)&api.conv_set},
    {"cudnnSetConvolutionGroupCount", (void **)&api.conv_groups},
    {"cudnnSetConvolutionMathType", (void **)&api.conv_math},
    {"cudnnDestroyConvolutionDescriptor", (void **)&api.conv_destroy},
    {"cudnnGetConvolutionForwardWorkspaceSize", (void **)&api.size[FORWARD]},
    {"cudnnGetConvolutionBackwardDataWorkspaceSize", (void **)&api.size[DATA]},
    {"cudnnGetConvolutionBackwardFilterWorkspaceSize", (void **)&api.size[FILTER]},
    {"cudnnConvolutionForward", (void **)&api.compute[FORWARD]},
    {"cudnnConvolutionBackwardData", (void **)&api.compute[DATA]},
    {"cudnnConvolutionBackwardFilter", (void **)&api.compute[FILTER]},
};

/* ---- opening ---------------------------------------------------------------------------------------------------- */

#ifdef WN_SIMULATED
/* Returns a function of the part of the library that is simulated (spec/cudasim/dnn.cpp), by its name. */
void *wn__sim_cudnn(const char *name);
#define SIMULATED wn__sim_cudnn
#else
#define SIMULATED NULL
#endif

static size_t version(void)
{
    return api.version();
}

static struct wn__opened opened = {
    .name = "cuDNN",
    .variable = "WANE_CUDA_DNN",
    .unset = "off",
    .usual = {"libcudnn.so.9", "libcudnn.so.8"},
    .instead = "own kernels are used",
    .oldest = 8,
    .oldest_minor = 0,
    .simulated = SIMULATED,
    .version = version,
    .functions = functions,
    .n = sizeof functions / sizeof functions[0],
    .text = "",
};

int32_t wn__cudnn_open(int32_t arch)
{
    const int32_t dtypes = 1 << WN_F32 | (arch >= 80 ? 1 << WN_BF16 : 0);
    return wn__opened_find(&opened) ? WN_LIBRARY_CONV * dtypes : 0;
}

const char *wn__cudnn_text(void)
{
    return opened.text;
}

/* ---- making ------------------------------------------------------------------------------------------------------ */

/* Returns whether a status says that no memory is left: version 8, then version 9 of the host and of the device. */
static int32_t is_memory(int status)
{
    return status == 2 || status == 4003 || status == 4004;
}

/* Returns whether a status says that the library does not compute such a convolution: version 8, then version 9. */
static int32_t is_refusal(int status)
{
    return status == 6 || status == 9 || status / 1000 == 3;
}

static int32_t failed(const struct shape *s, int status)
{
    static const char *const names[] = {"conv2d", "conv2d_dx", "conv2d_dw"};
    if (is_memory(status))
        return wn__fail(WN_OOM, "out of memory: cuDNN has none left for %s; leave the GPU some MiB more",
                        names[s->direction]);
    return wn__fail(WN_DEVICE,
                    "cuDNN failed at %s of an image %d x %d x %d x %d and a kernel %d x %d (its status: %d); "
                    "WANE_CUDA_DNN=off does without it",
                    names[s->direction], s->image[0][0], s->image[0][1], s->image[0][2], s->image[0][3], s->weight[2],
                    s->weight[3], status);
}

/* Starts the library, once a process. It takes device memory of its own then, which no plan counts. */
static int32_t start_library(void)
{
    if (api.handle != NULL) return WN_OK;
    int code = api.create(&api.handle);
    if (code == SUCCESS) return WN_OK;
    api.handle = NULL;
    if (is_memory(code))
        return wn__fail(WN_OOM, "out of memory: %s has none left to start; leave the GPU some MiB more", opened.text);
    return wn__fail(WN_DEVICE,
                    "%s does not start (its status: %d): it may need another driver; WANE_CUDA_DNN names another one, "
                    "WANE_CUDA_DNN=off does without",
                    opened.text, code);
}

static struct shape shape_of(const struct wn_desc *d, const struct wn__target *t)
{
    const struct wn__window w = wn__conv_of(d).w;
    struct shape s;
    memset(&s, 0, sizeof s);
    const int64_t image[2][4] = {{w.n, w.c, w.in[0], w.in[1]}, {w.n, w.o, w.out[0], w.out[1]}};
    const int64_t weight[4] = {w.o, w.c / w.groups, w.kernel[0], w.kernel[1]};
    for (int32_t i = 0; i < 4; i++) {
        s.image[0][i] = (int32_t)image[0][i];
        s.image[1][i] = (int32_t)image[1][i];
        s.weight[i] = (int32_t)weight[i];
    }
    for (int32_t k = 0; k < 2; k++) {
        s.stride[k] = (int32_t)w.stride[k];
        s.pad[k] = (int32_t)w.pad[k];
        s.dilation[k] = (int32_t)w.dilation[k];
    }
    s.groups = (int32_t)w.groups;
    s.direction = d->op == WN_OP_CONV2D_DX ? DATA : d->op == WN_OP_CONV2D_DW ? FILTER : FORWARD;
    s.dtype = d->out.dtype;
    s.is_tf32 = s.dtype == WN_F32 && (t->library & WN_LIBRARY_TF32) != 0;
    return s;
}

static int describe_image(void **desc, const int32_t (&dim)[4], int type)
{
    int code = api.tensor_create(desc);
    if (code != SUCCESS) return code;
    const int by_w = dim[1], by_h = dim[3] * by_w, by_n = dim[2] * by_h;
    return api.tensor_set(*desc, type, dim[0], dim[1], dim[2], dim[3], by_n, 1, by_h, by_w);
}

static int describe(struct convolution *o)
{
    const struct shape *s = &o->shape;
    const int type = s->dtype == WN_BF16 ? TYPE_BF16 : TYPE_F32;
    int code = describe_image(&o->operand[X], s->image[0], type);
    if (code == SUCCESS) code = describe_image(&o->operand[Y], s->image[1], type);
    if (code == SUCCESS) code = api.filter_create(&o->operand[W]);
    if (code == SUCCESS)
        code = api.filter_set(o->operand[W], type, FORMAT_NHWC, s->weight[0], s->weight[1], s->weight[2], s->weight[3]);
    if (code == SUCCESS) code = api.conv_create(&o->desc);
    if (code == SUCCESS)
        code = api.conv_set(o->desc, s->pad[0], s->pad[1], s->stride[0], s->stride[1], s->dilation[0], s->dilation[1],
                            CROSS_CORRELATION, TYPE_F32);
    return code == SUCCESS ? api.conv_groups(o->desc, s->groups) : code;
}

/* Asks for an algorithm by a kind of arithmetic, and takes it where the library has it and its scratch fits. */
static int ask(struct convolution *o, int algorithm, int math, int64_t most)
{
    const int32_t direction = o->shape.direction, *operand = directions[direction].operand;
    o->scratch = 0;
    o->algorithm = algorithm;
    int code = api.conv_math(o->desc, math);
    if (code == SUCCESS)
        code = api.size[direction](api.handle, o->operand[operand[0]], o->operand[operand[1]], o->desc,
                                   o->operand[operand[2]], algorithm, &o->scratch);
    if (is_refusal(code)) return SUCCESS;
    o->is_declined = o->scratch > (size_t)most;
    return code;
}

/* Takes the first algorithm that there is, of bf16 by tensor cores, else without: not every shape has one by them. */
static int choose(struct convolution *o, int64_t most)
{
    const struct shape *s = &o->shape;
    const int is_bf16 = s->dtype == WN_BF16;
    const int of_f32 = s->is_tf32 ? MATH_DEFAULT : MATH_FMA;
    const int math[2] = {is_bf16 ? (int)MATH_TENSOR_OP : of_f32, is_bf16 ? (int)MATH_DEFAULT : -1};
    o->is_declined = 1;
    for (int i = 0; i < 4 && o->is_declined; i++) {
        const int algorithm = directions[s->direction].algorithm[i % 2];
        int code = algorithm < 0 || math[i / 2] < 0 ? (int)SUCCESS : ask(o, algorithm, math[i / 2], most);
        if (code != SUCCESS) return code;
    }
    return SUCCESS;
}

static void take_apart(struct convolution *o)
{
    if (o->operand[X] != NULL) api.tensor_destroy(o->operand[X]);
    if (o->operand[Y] != NULL) api.tensor_destroy(o->operand[Y]);
    if (o->operand[W] != NULL) api.filter_destroy(o->operand[W]);
    if (o->desc != NULL) api.conv_destroy(o->desc);
    free(o);
}

/* Finds the convolution of a shape, or asks the library for it. */
static int32_t find(const struct shape *s, struct convolution **out)
{
    struct convolution *o = api.convolutions;
    while (o != NULL && memcmp(&o->shape, s, sizeof *s) != 0) o = o->next;
    if (o == NULL) {
        WN_TRY(start_library());
        o = (struct convolution *)calloc(1, sizeof *o);
        if (o == NULL) return wn__fail(WN_OOM, "out of memory: a convolution of cuDNN could not be made ready");
        o->shape = *s;
        int code = describe(o);
        if (code == SUCCESS) code = choose(o, WN_CUDNN_SCRATCH);
        if (code != SUCCESS) {
            take_apart(o);
            return failed(s, code);
        }
        o->next = api.convolutions;
        api.convolutions = o;
    }
    *out = o;
    return WN_OK;
}

int32_t wn__cudnn_make(const struct wn_desc *d, const struct wn__target *t, int64_t *bytes, const void **out)
{
    const struct shape s = shape_of(d, t);
    struct convolution *o = NULL;
    *out = NULL;
    WN_TRY(find(&s, &o));
    *bytes = o->is_declined ? wn__conv_workspace(d) : wn__cudnn_packed(d) + (int64_t)o->scratch;
    *out = o->is_declined ? NULL : o;
    return WN_OK;
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

/* Copies a weight to (O, kh, kw, C / groups); IS_BACK: copies a gradient from that order to the weight's own. The
 * side in that order is read or written in order. */
template <class T, bool IS_BACK>
static __global__ void reorder(struct wn__conv c, const T *from, T *to, int64_t columns, int64_t n)
{
    const int64_t at = wn__thread();
    if (at >= n) return;
    const int64_t o = wn__quotient(at, columns), column = at - o * columns, place = wn__quotient(column, c.ci);
    const int64_t other = wn__conv_weight_at(c, o, column - place * c.ci, place);
    if (IS_BACK) to[other] = from[at];
    else to[at] = from[other];
}

/* Calls the library. weight: (O, kh, kw, C / groups), read or, by CONV2D_DW, written. */
static int compute(const struct convolution *o, const struct wn_buffers *b, void *weight, void *scratch)
{
    const float one = 1, zero = 0;
    const int32_t direction = o->shape.direction, *operand = directions[direction].operand;
    const void *at[OPERANDS] = {b->in[direction == FILTER], weight, b->in[0]};
    void *out = direction == FILTER ? weight : b->out;
    return api.compute[direction](api.handle, &one, o->operand[operand[0]], at[operand[0]], o->operand[operand[1]],
                                  at[operand[1]], o->desc, o->algorithm, o->scratch > 0 ? scratch : NULL, o->scratch,
                                  &zero, o->operand[operand[2]], out);
}

template <class T> static int32_t run(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    const struct convolution *o = (const struct convolution *)b->made;
    const struct wn__conv c = wn__conv_of(d);
    const int32_t is_dw = o->shape.direction == FILTER;
    const int64_t packed = wn__cudnn_packed(d), columns = c.places * c.ci, n = c.w.o * columns;
    T *given = is_dw ? (T *)b->out : (T *)b->in[1], *weight = packed > 0 ? (T *)b->workspace : given;
    if (packed > 0 && !is_dw) {
        LAUNCH_EACH((reorder<T, false>), n, stream, c, given, weight, columns, n);
        WN_TRY(wn__cuda_launched());
    }
    int code = api.stream == stream ? (int)SUCCESS : api.set_stream(api.handle, stream);
    if (code == SUCCESS) {
        api.stream = stream;
        code = compute(o, b, weight, (char *)b->workspace + packed);
    }
    if (code != SUCCESS) return failed(&o->shape, code);
    if (packed > 0 && is_dw) LAUNCH_EACH((reorder<T, true>), n, stream, c, weight, given, columns, n);
    return wn__cuda_launched();
}

int32_t wn__cudnn_run(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    return d->out.dtype == WN_BF16 ? run<wn_bf16>(d, b, stream) : run<float>(d, b, stream);
}
