/* The CPU as a device: memory in anonymous pages, huge ones where the system gives them. Its kernels are those of
 * kernels/cpu/, called directly; its offload buffers are those of the host (host_offload.c).
 *
 * The mirror is a second device for specs: the same functions and kernels, behind addresses that the host cannot
 * follow. Code that follows a device's address without the contract crashes there, as it would on a GPU. */
#include <string.h>
#include <sys/mman.h>
#include "registry.h"
#include "pool.h"

#define HUGE_PAGE (2 << 20)

/* Takes `size` bytes of whole pages, or returns NULL. A block of HUGE_PAGE bytes or more starts on a huge page, so that
 * the system can map it as such. The rest behind its last whole huge page stays on small ones, so that a block takes no
 * more than was asked for.
 * Measured: first touch 2.4 -> 12-15 GB/s with huge pages. */
static void *take_pages(int64_t size)
{
    int64_t slack = size >= HUGE_PAGE ? HUGE_PAGE : 0;
    char *raw = mmap(NULL, (size_t)(size + slack), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (raw == MAP_FAILED) return NULL;
    char *start = raw;
    if (slack > 0) {
        int64_t whole = size / HUGE_PAGE * HUGE_PAGE;
        start = (char *)(((uintptr_t)raw + HUGE_PAGE - 1) & ~(uintptr_t)(HUGE_PAGE - 1));
        if (start > raw) munmap(raw, (size_t)(start - raw));
        if (raw + slack > start) munmap(start + size, (size_t)(raw + slack - start));
        madvise(start, (size_t)whole, MADV_HUGEPAGE);
        if (size > whole) madvise(start + whole, (size_t)(size - whole), MADV_NOHUGEPAGE);
    }
    return start;
}

static int32_t cpu_alloc(struct wn_device *d, int64_t bytes, void **out)
{
    void *p = bytes <= WN_POOL_MOST ? wn__pool_take(bytes) : take_pages(wn__paged(bytes));
    if (p == NULL) return wn__fail(WN_OOM, "out of memory: the system refused %lld bytes", (long long)wn__paged(bytes));
    *out = (void *)((uintptr_t)p | d->bias);
    return WN_OK;
}

static void cpu_release(struct wn_device *d, void *p, int64_t bytes)
{
    if (bytes <= WN_POOL_MOST) wn__pool_give(wn__device_bytes(d, p), bytes);
    else munmap(wn__device_bytes(d, p), (size_t)wn__paged(bytes));
}

/* Copies to the device, from it and inside it. */
static int32_t cpu_copy(struct wn_device *d, void *to, const void *from, int64_t bytes)
{
    if (bytes > 0) memcpy(wn__device_bytes(d, to), wn__device_bytes(d, from), (size_t)bytes);
    return WN_OK;
}

static int32_t cpu_fill(struct wn_device *d, void *to, int32_t byte, int64_t bytes)
{
    if (bytes > 0) memset(wn__device_bytes(d, to), byte, (size_t)bytes);
    return WN_OK;
}

/* Calls a kernel of the mirror, with the addresses that the host can follow. */
static int32_t mirror_launch(struct wn_device *d, wn_kernel_fn fn, const struct wn_desc *desc,
                             const struct wn_buffers *b)
{
    const void *in[1024];
    void *cell[3] = {NULL, NULL, NULL};
    struct wn_buffers there = *b;
    for (int32_t i = 0; i < desc->n_in; i++) in[i] = wn__device_bytes(d, b->in[i]);
    for (int32_t i = 0; i < 3 && b->cell != NULL; i++) cell[i] = wn__device_bytes(d, b->cell[i]);
    there.out = wn__device_bytes(d, b->out);
    there.in = in;
    there.cell = cell;
    there.workspace = wn__device_bytes(d, b->workspace);
    return fn(desc, &there, NULL);
}

/* The slots that the two devices share. */
#define SLOTS                                                                                                          \
    .alloc = cpu_alloc, .release = cpu_release, .put = cpu_copy, .get = cpu_copy, .copy = cpu_copy, .fill = cpu_fill

struct wn_device wn__device_cpu = {.name = "cpu", .backend = &wn__backend_cpu, .real = 1, SLOTS};
struct wn_device wn__device_mirror = {.name = "mirror",
                                      .backend = &wn__backend_cpu,
                                      .bias = (uintptr_t)1 << 60,
                                      .real = 1,
                                      SLOTS,
                                      .launch = mirror_launch};
