/* The CPU as a device: memory in anonymous pages, huge ones where the system gives them. Its kernels are those of
 * kernels/cpu/, called directly; its offload buffers are those of the host (host_offload.c). */
#include <string.h>
#include <sys/mman.h>
#include "registry.h"
#include "pool.h"

#define HUGE_PAGE (2 << 20)

/* Takes whole pages; at most WN_POOL_MOST bytes come from the pool instead. A block of HUGE_PAGE bytes or more
 * starts on a huge page, so that the system can map it as such. The rest behind its last whole huge page stays on
 * small ones, so that a block takes no more than was asked for.
 * Measured: first touch 2.4 -> 12-15 GB/s with huge pages. */
static int32_t cpu_alloc(struct wn_device *d, int64_t bytes, void **out)
{
    int64_t size = wn__paged(bytes), slack = size >= HUGE_PAGE ? HUGE_PAGE : 0;
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
    else munmap(p, (size_t)wn__paged(bytes));
}

/* Copies to the device, from it and inside it. */
static int32_t cpu_copy(struct wn_device *d, void *to, const void *from, int64_t bytes)
{
    (void)d;
    if (bytes > 0) memcpy(to, from, (size_t)bytes);
    return WN_OK;
}

static int32_t cpu_fill(struct wn_device *d, void *to, int32_t byte, int64_t bytes)
{
    (void)d;
    if (bytes > 0) memset(to, byte, (size_t)bytes);
    return WN_OK;
}

struct wn_device wn__device_cpu = {.name = "cpu",
                                   .backend = &wn__backend_cpu,
                                   .real = 1,
                                   .alloc = cpu_alloc,
                                   .release = cpu_release,
                                   .put = cpu_copy,
                                   .get = cpu_copy,
                                   .copy = cpu_copy,
                                   .fill = cpu_fill};
