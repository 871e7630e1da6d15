/* A second device for specs: the kernels of the CPU behind addresses that the host cannot follow. Code that follows a
 * device's address without the contract crashes here, as it would on a GPU. */
#include "registry.h"
#include <stddef.h>

/* The bit that tells an address of this device from the CPU's. */
static const uintptr_t bias = (uintptr_t)1 << 60;

/* Turns an address of the one device into that of the other; NULL stays NULL. */
static void *shift(const void *p)
{
    return p == NULL ? NULL : (void *)((uintptr_t)p ^ bias);
}

static int32_t mirror_alloc(struct wn_device *d, int64_t bytes, void **out)
{
    void *p;
    (void)d;
    WN_TRY(wn__device_cpu.alloc(&wn__device_cpu, bytes, &p));
    *out = shift(p);
    return WN_OK;
}

static void mirror_release(struct wn_device *d, void *p, int64_t bytes)
{
    (void)d;
    wn__device_cpu.release(&wn__device_cpu, shift(p), bytes);
}

static int32_t mirror_put(struct wn_device *d, void *to, const void *host, int64_t bytes)
{
    (void)d;
    return wn__device_cpu.put(&wn__device_cpu, shift(to), host, bytes);
}

static int32_t mirror_get(struct wn_device *d, void *host, const void *from, int64_t bytes)
{
    (void)d;
    return wn__device_cpu.get(&wn__device_cpu, host, shift(from), bytes);
}

static int32_t mirror_copy(struct wn_device *d, void *to, const void *from, int64_t bytes)
{
    (void)d;
    return wn__device_cpu.copy(&wn__device_cpu, shift(to), shift(from), bytes);
}

static int32_t mirror_fill(struct wn_device *d, void *to, int32_t byte, int64_t bytes)
{
    (void)d;
    return wn__device_cpu.fill(&wn__device_cpu, shift(to), byte, bytes);
}

static int32_t mirror_launch(struct wn_device *d, wn_kernel_fn fn, const struct wn_desc *desc,
                             const struct wn_buffers *b)
{
    const void *in[1024];
    void *cell[3] = {NULL, NULL, NULL};
    struct wn_buffers real = *b;
    (void)d;
    for (int32_t i = 0; i < desc->n_in; i++) in[i] = shift(b->in[i]);
    for (int32_t i = 0; i < 3 && b->cell != NULL; i++) cell[i] = shift(b->cell[i]);
    real.out = shift(b->out);
    real.in = in;
    real.cell = cell;
    real.workspace = shift(b->workspace);
    return wn__device_cpu.launch(&wn__device_cpu, fn, desc, &real);
}

static int32_t mirror_offload_buffer_start(struct wn_device *d, struct wn_offload_buffer *buffer,
                                           const struct wn_move *m)
{
    struct wn_move real = *m;
    (void)d;
    real.address = shift(m->address);
    return wn__host_offload_start(&wn__device_cpu, buffer, &real);
}

struct wn_device wn__device_mirror = {.name = "mirror",
                                      .delegate = &wn__device_cpu,
                                      .real = 1,
                                      .hidden = 1,
                                      .alloc = mirror_alloc,
                                      .release = mirror_release,
                                      .put = mirror_put,
                                      .get = mirror_get,
                                      .copy = mirror_copy,
                                      .fill = mirror_fill,
                                      .launch = mirror_launch,
                                      .offload_buffer_open = wn__host_offload_open,
                                      .offload_buffer_close = wn__host_offload_close,
                                      .offload_buffer_start = mirror_offload_buffer_start,
                                      .offload_buffer_wait = wn__host_offload_wait,
                                      .offload_buffer_stop = wn__host_offload_stop};
