/* Finds the GPU, fills the device's slots, and turns CUDA's errors into statuses: the one function that
 * libwane_cuda.so exports is here.
 *
 * The context of the driver, some hundred MiB of device memory, is made at the first use of the device, so a script
 * that stays on the CPU never pays for it. */
#include <stdarg.h>
#include <stdio.h>
#include "device.cuh"

struct wn__gpu wn__gpu;

/* Sets the thread's message, in libwane.so, and returns `code`. Kernel files and base/type.c call it by this name. */
extern "C" int32_t wn__fail(int32_t code, const char *format, ...)
{
    char message[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    return wn__gpu.host->fail(code, message);
}

/* ---- errors --------------------------------------------------------------------------------------------------- */

/* Returns whether the device refuses all work from here on, which its streams tell: a call that was refused leaves
 * them as they were. A device whose streams were not made yet, and one in a capture, which forbids the question, is
 * found to be gone by a later call. */
static int32_t is_gone(void)
{
    if (!wn__gpu.is_ready || wn__gpu.is_capturing) return 0;
    cudaError_t e = cudaStreamQuery(wn__gpu.compute);
    (void)cudaGetLastError(); /* the next launch asks for the last error, and "not ready" is none of its own */
    return e != cudaSuccess && e != cudaErrorNotReady;
}

static int32_t lose(struct wn_device *d, const char *what, const char *why)
{
    if (d->lost == NULL)
        snprintf(wn__gpu.lost, sizeof wn__gpu.lost,
                 "the GPU was lost while %s: %s; values on it are gone, the CPU goes on, and a new process may use the "
                 "GPU again",
                 what, why);
    d->lost = wn__gpu.lost;
    return wn__fail(WN_DEVICE, "cuda: %s", d->lost);
}

int32_t wn__gpu_check(struct wn_device *d, cudaError_t e, const char *what)
{
    if (e == cudaSuccess) return WN_OK;
    (void)cudaGetLastError(); /* clears an error that does not stay */
    if (!is_gone()) {
        const int32_t is_memory = e == cudaErrorMemoryAllocation;
        return wn__fail(is_memory ? WN_OOM : WN_DEVICE, "%s%s failed: %s",
                        is_memory ? "out of memory: " : "cuda: ", what, cudaGetErrorString(e));
    }
    return lose(d, what, cudaGetErrorString(e));
}

int32_t wn__gpu_lose(struct wn_device *d, const char *what)
{
    return lose(d, what, "it does not come to an end");
}

/* ---- slots ---------------------------------------------------------------------------------------------------- */

int32_t wn__gpu_ready(struct wn_device *d)
{
    if (d->lost != NULL) return wn__fail(WN_DEVICE, "cuda: %s", d->lost);
    if (wn__gpu.is_ready) return WN_OK;
    cudaStream_t *streams[] = {&wn__gpu.compute, &wn__gpu.way[WN_WAY_OUT], &wn__gpu.way[WN_WAY_IN]};
    cudaError_t e = cudaSetDevice(wn__gpu.number);
    for (int32_t i = 0; i < 3 && e == cudaSuccess; i++) /* a try that failed may have made some */
        if (*streams[i] == NULL) e = cudaStreamCreateWithFlags(streams[i], cudaStreamNonBlocking);
    WN_TRY(wn__gpu_check(d, e, "making streams"));
    WN_TRY(wn__gpu_memory_open(d));
    wn__gpu.is_ready = 1;
    return WN_OK;
}

static int32_t choose(struct wn_device *d, int32_t number)
{
    struct cudaDeviceProp p;
    int count = 0;
    cudaError_t e = cudaGetDeviceCount(&count);
    if (e == cudaSuccess && count > 0) number %= count;
    if (e == cudaSuccess) e = cudaGetDeviceProperties(&p, number);
    WN_TRY(wn__gpu_check(d, e, "choosing a GPU"));
    if (p.major * 10 + p.minor != d->target.arch)
        return wn__fail(
            WN_UNSUPPORTED,
            "GPU %d of this machine is sm_%d%d, GPU 0 sm_%d: ranks use GPUs of one kind; leave the others out "
            "by CUDA_VISIBLE_DEVICES",
            (int)number, p.major, p.minor, (int)d->target.arch);
    wn__gpu.number = number;
    return WN_OK;
}

static wn_kernel_fn find_kernel(struct wn_device *d, const struct wn_desc *desc)
{
    (void)d;
    return wn__cuda_kernel(desc);
}

static int32_t prepare(struct wn_device *d, const struct wn_desc *desc, int64_t *bytes, const void **out)
{
    const int32_t is_convolution = wn__cudnn_takes(&d->target, desc);
    *out = NULL;
    if (!is_convolution && (d->target.library >> desc->out.dtype & 1) == 0) return WN_OK;
    WN_TRY(wn__gpu_ready(d));
    if (is_convolution) return wn__cudnn_make(desc, &d->target, bytes, out);
    return wn__cublaslt_make(desc, d->target.library, out);
}

static int32_t launch(struct wn_device *d, wn_kernel_fn fn, const struct wn_desc *desc, const struct wn_buffers *b)
{
    WN_TRY(wn__gpu_ready(d));
    int32_t code = fn(desc, b, wn__gpu.compute);
    if (code != WN_DEVICE || !is_gone()) return code; /* a launch that was refused, which has its words */
    return wn__gpu_check(d, cudaStreamQuery(wn__gpu.compute), "starting a kernel");
}

static void fill_slots(struct wn_device *d)
{
    d->real = 1;
    d->choose = choose;
    d->alloc = wn__gpu_alloc;
    d->release = wn__gpu_release;
    d->hint = wn__gpu_hint;
    d->trim = wn__gpu_trim;
    d->room = wn__gpu_room;
    d->put = wn__gpu_put;
    d->get = wn__gpu_get;
    d->copy = wn__gpu_copy;
    d->fill = wn__gpu_fill;
    d->read = wn__gpu_read;
    d->kernel = find_kernel;
    d->prepare = prepare;
    d->launch = launch;
    d->sync = wn__gpu_sync;
    d->timer_open = wn__gpu_timer_open;
    d->timer_mark = wn__gpu_timer_mark;
    d->timer_close = wn__gpu_timer_close;
    d->capture_begin = wn__gpu_capture_begin;
    d->capture_end = wn__gpu_capture_end;
    d->graph_launch = wn__gpu_graph_launch;
    d->graph_close = wn__gpu_graph_close;
    d->offload_buffer_open = wn__gpu_offload_open;
    d->offload_buffer_close = wn__gpu_offload_close;
    d->offload_buffer_start = wn__gpu_offload_start;
    d->offload_buffer_wait = wn__gpu_offload_wait;
    d->offload_buffer_left = wn__gpu_offload_left;
    d->offload_buffer_stop = wn__gpu_offload_stop;
    d->link_say = wn__nccl_say;
    d->link_id = wn__nccl_id;
    d->link_open = wn__nccl_join;
    d->link_take = wn__nccl_take;
    d->link_start = wn__nccl_start;
    d->link_wait = wn__nccl_wait;
    d->link_stop = wn__nccl_stop;
}

/* ---- finding the GPU ------------------------------------------------------------------------------------------ */

/* Returns whether the library and its host were built of one tree; writes to text that they were not. */
static int32_t is_same_tree(const struct wn_cuda_host *host, char *text, int64_t room)
{
    static const int64_t size[WN_CUDA_SIZE_COUNT] = WN_CUDA_SIZES;
    if (host->tree == WN_CUDA_TREE && memcmp(host->size, size, sizeof size) == 0) return 1;
    snprintf(text, (size_t)room,
             "the library was built of other sources than libwane.so; build both anew (make, make cuda)");
    return 0;
}

/* Writes to text why no GPU was found. */
static void say_why(cudaError_t e, char *text, int64_t room)
{
    int driver = 0;
    (void)cudaDriverGetVersion(&driver);
    const char *what = "the driver refuses it";
    if (e == cudaErrorNoDevice) what = "the driver finds no GPU; CUDA_VISIBLE_DEVICES may hide one";
    else if (e == cudaErrorStubLibrary)
        what = "the toolkit's stub of libcuda.so was loaded; put the driver's own first on the path";
    else if (driver == 0) what = "there is no NVIDIA driver";
    else if (e == cudaErrorInsufficientDriver)
        what = "the driver is older than this library needs; bring it up to date";
    else if (e == cudaErrorSystemNotReady)
        what = "the system is not ready; on a machine with NVSwitch nvidia-fabricmanager must run";
    snprintf(text, (size_t)room, "no GPU: %s (CUDA error %d: %s)", what, (int)e, cudaGetErrorString(e));
}

/* Returns whether the library has code for a GPU of this architecture: machine code for one of its generation that is
 * not newer, or PTX of the newest that is older. Code for GPUs before sm_80 has no tensor cores for bf16, and later
 * GPUs do not take it. Writes to text what is missing. */
static int32_t is_built_for(int32_t arch, char *text, int64_t room)
{
    static const int32_t built[] = {WN_CUDA_ARCHES}; /* of kernels/cuda/nvcc.sh, ascending */
    const int32_t n = (int32_t)(sizeof built / sizeof built[0]);
    for (int32_t i = 0; i < n; i++) {
        const int32_t has_code = built[i] <= arch && (built[i] / 10 == arch / 10 || i == n - 1);
        if (has_code && (built[i] >= 80 || arch < 80)) return 1;
    }
    if (arch < 75)
        snprintf(text, (size_t)room, "no GPU: the one that was found is sm_%d, and Wane needs sm_75 or later",
                 (int)arch);
    else
        snprintf(text, (size_t)room,
                 "no GPU: the library was not built for the one that was found, sm_%d; make cuda builds for all, "
                 "WANE_CUDA_ARCH=%d for it alone",
                 (int)arch, (int)arch);
    return 0;
}

/* Writes to text what the GPU and its driver are. */
static void describe(const struct cudaDeviceProp *p, char *text, size_t room)
{
    int driver = 0;
    (void)cudaDriverGetVersion(&driver);
#ifdef WN_SIMULATED
    const char *of = "simulated, for specs: ";
#else
    const char *of = "";
#endif
    snprintf(text, room, "%s%.80s, sm_%d%d, driver for CUDA %d.%d", of, p->name, p->major, p->minor, driver / 1000,
             driver % 1000 / 10);
}

/* Counts the bytes of a library's words that say which it is, or that there is none; why there is none comes behind. */
static int which(const char *words)
{
    int n = (int)strcspn(words, ":(");
    return n > 0 && words[n - 1] == ' ' ? n - 1 : n;
}

void wn__gpu_kind(const struct cudaDeviceProp *p, char *text, size_t room)
{
    const char *lt = wn__cublaslt_text(), *dnn = wn__cudnn_text();
    char gpu[160];
    describe(p, gpu, sizeof gpu);
    snprintf(text, room, "%s; %.*s; %.*s", gpu, which(lt), lt, which(dnn), dnn);
}

extern "C" __attribute__((visibility("default"))) int32_t wn_cuda_open(const struct wn_cuda_host *host,
                                                                       struct wn_device *d, char *text, int64_t room)
{
    struct cudaDeviceProp p;
    char gpu[160];
    int count = 0;
    if (!is_same_tree(host, text, room)) return 0;
    wn__gpu.host = host;
    cudaError_t e = cudaGetDeviceCount(&count);
    if (e == cudaSuccess && count == 0) e = cudaErrorNoDevice;
    if (e == cudaSuccess) e = cudaGetDeviceProperties(&p, 0);
    if (e != cudaSuccess) {
        (void)cudaGetLastError();
        say_why(e, text, room);
        return 0;
    }
    if (!is_built_for(p.major * 10 + p.minor, text, room)) return 0;
    d->target.arch = p.major * 10 + p.minor;
    d->target.library = wn__cublaslt_open(d->target.arch) | wn__cudnn_open(d->target.arch);
    describe(&p, gpu, sizeof gpu);
    snprintf(text, (size_t)room, "%s, %lld MiB; %s; %s; %s", gpu, (long long)(p.totalGlobalMem >> 20),
             wn__cublaslt_text(), wn__cudnn_text(), wn__nccl_open());
    fill_slots(d);
#ifndef WN_SIMULATED
    d->is_preferred = 1;
#endif
    return 1;
}
