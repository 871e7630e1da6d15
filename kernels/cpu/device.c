/* The CPU as a device: anonymous pages (huge where the kernel gives them), never handed back while a loop
 * runs - that is memory/'s doing - and kernels called directly. */
#include "../../runtime/device/device.h"
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include "cpu.h"
#include "gemm/gemm.h"
#include "onednn.h"
#include "parallel.h"
#include "pool.h"

#define HUGE_PAGE (2 << 20)

/* Whole pages; blocks of a huge page or more start on one, so that the kernel can map them as such: first touch is five
 * times faster (12-15 GB/s against 2.4). The rest behind the last whole huge page stays on small ones, so that a
 * block takes what was asked for. */
static int64_t epilogue_size(int64_t bytes)
{
    return (bytes + 4095) / 4096 * 4096;
}

static int32_t cpu_alloc(struct wn_device *d, int64_t bytes, void **out)
{
    int64_t size = epilogue_size(bytes), slack = size >= HUGE_PAGE ? HUGE_PAGE : 0;
    (void)d;
    if (bytes <= WN_POOL_MOST) {
        *out = wn__pool_take(bytes);
        return *out == NULL ? wn__fail(WN_OOM, "out of memory: the system refused a page") : WN_OK;
    }
    char *raw = mmap(NULL, (size_t)(size + slack), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (raw == MAP_FAILED) return wn__fail(WN_OOM, "out of memory: the system refused %lld bytes", (long long)size);
    char *start = raw;
    if (slack > 0) {
        int64_t whole = size / HUGE_PAGE * HUGE_PAGE;
        start = (char *)(((uintptr_t)raw + HUGE_PAGE - 1) & ~(uintptr_t)(HUGE_PAGE - 1));
        if (start > raw) munmap(raw, (size_t)(start - raw));
        if (raw + slack > start) munmap(start + size, (size_t)(raw + slack - start));
        madvise(start, (size_t)whole, MADV_HUGEPAGE);
        if (size > whole) madvise(start + whole, (size_t)(size - whole), MADV_NOHUGEPAGE);
    }
    *out = start;
    return WN_OK;
}

static void cpu_release(struct wn_device *d, void *p, int64_t bytes)
{
    (void)d;
    if (bytes <= WN_POOL_MOST) wn__pool_give(p, bytes);
    else munmap(p, (size_t)epilogue_size(bytes));
}

static int32_t cpu_put(struct wn_device *d, void *to, const void *host, int64_t bytes)
{
    (void)d;
    if (bytes > 0) memcpy(to, host, (size_t)bytes);
    return WN_OK;
}

static int32_t cpu_get(struct wn_device *d, void *host, const void *from, int64_t bytes)
{
    (void)d;
    if (bytes > 0) memcpy(host, from, (size_t)bytes);
    return WN_OK;
}

static int32_t cpu_fill(struct wn_device *d, void *to, int32_t byte, int64_t bytes)
{
    (void)d;
    if (bytes > 0) memset(to, byte, (size_t)bytes);
    return WN_OK;
}

static wn_kernel_fn cpu_kernel(struct wn_device *d, const struct wn_desc *desc)
{
    (void)d;
    return wn_cpu_kernel(desc);
}

static int32_t cpu_prepare(struct wn_device *d, const struct wn_desc *desc, int64_t *bytes, struct wn_made **out)
{
    *out = NULL;
    return wn__library_product(desc, &d->target) ? wn__cpu_prepare_product(desc, bytes, out) : WN_OK;
}

static int32_t cpu_launch(struct wn_device *d, wn_kernel_fn fn, const struct wn_desc *desc, const struct wn_buffers *b)
{
    (void)d;
    return fn(desc, b, NULL);
}

static int32_t cpu_sync(struct wn_device *d)
{
    (void)d;
    return WN_OK;
}

struct wn_device wn__device_cpu = {.name = "cpu",
                                   .real = 1,
                                   .alloc = cpu_alloc,
                                   .release = cpu_release,
                                   .put = cpu_put,
                                   .get = cpu_get,
                                   .fill = cpu_fill,
                                   .kernel = cpu_kernel,
                                   .prepare = cpu_prepare,
                                   .launch = cpu_launch,
                                   .sync = cpu_sync,
                                   .offload_buffer_open = wn__host_offload_open,
                                   .offload_buffer_close = wn__host_offload_close,
                                   .offload_buffer_start = wn__host_offload_start,
                                   .offload_buffer_wait = wn__host_offload_wait,
                                   .offload_buffer_stop = wn__host_offload_stop};

/* Own tiles do not use AMX, oneDNN does. */
static int32_t has_amx(void)
{
#if defined(__x86_64__) && defined(__GNUC__)
#if defined(__clang__) /* the name is unknown to some of its versions */
    return 0;
#else
    return __builtin_cpu_supports("amx-bf16") != 0;
#endif
#else
    return 0;
#endif
}

/* Products up to 4096 x 4096 x 4096 take up to 1.7 MiB a thread; those that want more give each thread a whole copy of
 * the result (2.6.3 and 3.2, AVX-512: 600 MiB with 64 threads for 3072 x 768 x 2048). */
#define SCRATCH_A_THREAD (2 << 20)

static int32_t onednn_wish;

static void start_onednn(int32_t wish)
{
    struct wn__target *t = &wn__device_cpu.target;
    onednn_wish = wish;
    t->library = 0;
    wn__device_cpu.weight_layout = WN_PANEL48;
    if (wish == WN_ONEDNN_OFF || (wish == WN_ONEDNN_AUTO && !has_amx()) || !wn__onednn_open(NULL)) return;
    t->library = 1 << WN_BF16 | (wish == WN_ONEDNN_ON ? 1 << WN_F32 : 0);
    wn__device_cpu.weight_layout = WN_PLAIN; /* it reads no panels of ours */
    t->library_scratch = (int64_t)SCRATCH_A_THREAD * wn_cpu_threads();
}

const char *wn__cpu_onednn(void)
{
    static char line[192];
    int32_t library = wn__device_cpu.target.library;
    const char *what = library >> WN_F32 & 1 ? "makes large products of f32 and bf16"
                       : library             ? "makes large products of bf16, with AMX"
                                             : "is there and not used: without AMX own kernels are as fast";
    if (onednn_wish == WN_ONEDNN_OFF) return "off: own kernels are used";
    if (wn__onednn_open(NULL)) snprintf(line, sizeof line, "%s %s", wn__onednn_text(), what);
    else snprintf(line, sizeof line, "%s: own kernels are used", wn__onednn_text());
    return line;
}

int32_t wn__cpu_onednn_ready(void)
{
    return wn__onednn_ready();
}

void wn__cpu_start(int32_t onednn)
{
    start_onednn(onednn);
    wn__device_cpu.threads = wn_cpu_threads();
    wn__device_cpu.kernels = wn__gemm_name();
}
