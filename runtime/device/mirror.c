/* A second device for specs: the kernels of the CPU behind addresses that the host cannot follow. Code that follows a
 * device's address without the contract crashes here, as it would on a GPU. */
#include "registry.h"
#include <stddef.h>

/* The bit that tells an address of this device from the CPU's. */
static const uintptr_t bias = (uintptr_t)1 << 60;

/* Returns where the bytes of an address are: an address of the host stays as it is, and so does NULL. */
static void *real(const void *p)
{
    return (void *)((uintptr_t)p & ~bias);
}

static int32_t mirror_alloc(struct wn_device *d, int64_t bytes, void **out)
{
    void *p;
    (void)d;
    WN_TRY(wn__device_cpu.alloc(&wn__device_cpu, bytes, &p));
    *out = (void *)((uintptr_t)p | bias);
    return WN_OK;
}

static void mirror_release(struct wn_device *d, void *p, int64_t bytes)
{
    (void)d;
    wn__device_cpu.release(&wn__device_cpu, real(p), bytes);
}

/* Copies to the device, from it and inside it. */
static int32_t mirror_copy(struct wn_device *d, void *to, const void *from, int64_t bytes)
{
    (void)d;
    return wn__device_cpu.copy(&wn__device_cpu, real(to), real(from), bytes);
}

static int32_t mirror_fill(struct wn_device *d, void *to, int32_t byte, int64_t bytes)
{
    (void)d;
    return wn__device_cpu.fill(&wn__device_cpu, real(to), byte, bytes);
}

static int32_t mirror_launch(struct wn_device *d, wn_kernel_fn fn, const struct wn_desc *desc,
                             const struct wn_buffers *b)
{
    const void *in[1024];
    void *cell[3] = {NULL, NULL, NULL};
    struct wn_buffers there = *b;
    (void)d;
    for (int32_t i = 0; i < desc->n_in; i++) in[i] = real(b->in[i]);
    for (int32_t i = 0; i < 3 && b->cell != NULL; i++) cell[i] = real(b->cell[i]);
    there.out = real(b->out);
    there.in = in;
    there.cell = cell;
    there.workspace = real(b->workspace);
    return wn__device_cpu.launch(&wn__device_cpu, fn, desc, &there);
}

static int32_t mirror_offload_buffer_start(struct wn_device *d, struct wn_offload_buffer *buffer,
                                           const struct wn_move *m)
{
    struct wn_move there = *m;
    (void)d;
    there.address = real(m->address);
    return wn__host_offload_start(&wn__device_cpu, buffer, &there);
}

struct wn_device wn__device_mirror = {.name = "mirror",
                                      .delegate = &wn__device_cpu,
                                      .real = 1,
                                      .hidden = 1,
                                      .alloc = mirror_alloc,
                                      .release = mirror_release,
                                      .put = mirror_copy,
                                      .get = mirror_copy,
                                      .copy = mirror_copy,
                                      .fill = mirror_fill,
                                      .launch = mirror_launch,
                                      .offload_buffer_start = mirror_offload_buffer_start};
