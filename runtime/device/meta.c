/* The meta device: shapes, bytes and costs without storage. Every run is planned, checked and accounted as on the
 * CPU, whose backend it has; addresses are numbers that nothing follows, and no kernel runs. */
#include "registry.h"
#include <stddef.h>

static int32_t meta_alloc(struct wn_device *d, int64_t bytes, void **out)
{
    static uintptr_t next = 1u << 20;
    (void)d;
    *out = (void *)next;
    next += (uintptr_t)((bytes + 255) & ~(int64_t)255);
    return WN_OK;
}

static void meta_release(struct wn_device *d, void *p, int64_t bytes)
{
    (void)d, (void)p, (void)bytes;
}

static int32_t meta_get(struct wn_device *d, void *host, const void *from, int64_t bytes)
{
    (void)d, (void)host, (void)from, (void)bytes;
    return wn__fail(WN_DEVICE, "read: the value is on the meta device, which has shapes but no numbers; "
                               "use device = 'cpu' for values");
}

static int32_t meta_copy(struct wn_device *d, void *to, const void *from, int64_t bytes)
{
    (void)d, (void)to, (void)from, (void)bytes;
    return WN_OK;
}

static int32_t meta_fill(struct wn_device *d, void *to, int32_t byte, int64_t bytes)
{
    (void)d, (void)to, (void)byte, (void)bytes;
    return WN_OK;
}

static int32_t meta_nothing(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    (void)d, (void)b, (void)stream;
    return WN_OK;
}

static wn_kernel_fn meta_kernel(struct wn_device *d, const struct wn_desc *desc)
{
    (void)d, (void)desc;
    return meta_nothing;
}

static int32_t meta_buffer_open(struct wn_device *d, int32_t medium, int64_t bytes, int32_t most,
                                struct wn_offload_buffer **out)
{
    static struct wn_offload_buffer buffers[WN_MEDIUM_COUNT];
    (void)d;
    buffers[medium] = (struct wn_offload_buffer){.medium = medium, .bytes = bytes, .most = most};
    *out = &buffers[medium];
    return WN_OK;
}

/* Closes or stops a buffer: nothing moves. */
static void meta_buffer_end(struct wn_device *d, struct wn_offload_buffer *buffer)
{
    (void)d, (void)buffer;
}

static int32_t meta_buffer_start(struct wn_device *d, struct wn_offload_buffer *buffer, const struct wn_move *m)
{
    (void)d, (void)buffer, (void)m;
    return WN_OK;
}

static int32_t meta_buffer_wait(struct wn_device *d, struct wn_offload_buffer *buffer, int32_t way, int64_t number)
{
    (void)d, (void)buffer, (void)way, (void)number;
    return WN_OK;
}

struct wn_device wn__device_meta = {.name = "meta",
                                    .backend = &wn__backend_cpu,
                                    .alloc = meta_alloc,
                                    .release = meta_release,
                                    .put = meta_copy,
                                    .get = meta_get,
                                    .copy = meta_copy,
                                    .fill = meta_fill,
                                    .kernel = meta_kernel,
                                    .offload_buffer_open = meta_buffer_open,
                                    .offload_buffer_close = meta_buffer_end,
                                    .offload_buffer_start = meta_buffer_start,
                                    .offload_buffer_wait = meta_buffer_wait,
                                    .offload_buffer_stop = meta_buffer_end};
