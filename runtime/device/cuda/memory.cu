/* Copies between the host and the GPU, and waiting.
 *
 * A copy from the host goes through a ring of pinned blocks, so that it returns before the device has read it; a block
 * is used again once the event behind its last copy has happened. A number that the device makes is read into a pinned
 * place, and handed over at the next wait:
 *
 *   ring    | block 0 | block 1 | ... | block RING - 1 |   BLOCK bytes each, one event each
 *   reads   | read 0 | read 1 | ... | read READS - 1 |     READ bytes each */
#include <stdio.h>
#include "device.cuh"

enum { RING = 4, BLOCK = 1 << 20, READS = 256, READ = 64 };

static char *ring;               /* (RING, BLOCK) */
static cudaEvent_t copied[RING]; /* the copy out of each block has ended */
static int32_t turn;             /* the block that is used next */
static char *reads;              /* (READS, READ) */
static struct {
    void *host;
    int64_t bytes;
} waiting[READS]; /* (n_waiting) what is handed over at the next wait */
static int32_t n_waiting;

int32_t wn__gpu_memory_open(struct wn_device *d)
{
    cudaError_t e = cudaSuccess; /* a try that failed may have taken some */
    if (ring == NULL) e = cudaHostAlloc((void **)&ring, (size_t)RING * BLOCK, cudaHostAllocDefault);
    if (e == cudaSuccess && reads == NULL)
        e = cudaHostAlloc((void **)&reads, (size_t)READS * READ, cudaHostAllocDefault);
    for (int32_t i = 0; i < RING && e == cudaSuccess; i++)
        if (copied[i] == NULL) e = cudaEventCreateWithFlags(&copied[i], cudaEventDisableTiming);
    return wn__gpu_check(d, e, "taking pinned memory for copies");
}

/* ---- copies --------------------------------------------------------------------------------------------------- */

int32_t wn__gpu_put(struct wn_device *d, void *to, const void *host, int64_t bytes)
{
    WN_TRY(wn__gpu_ready(d));
    for (int64_t at = 0; at < bytes; at += BLOCK, turn = (turn + 1) % RING) {
        int64_t n = wn_min(bytes - at, BLOCK);
        char *block = ring + (int64_t)turn * BLOCK;
        WN_TRY(wn__gpu_await(d, NULL, copied[turn], "copying from the host"));
        memcpy(block, (const char *)host + at, (size_t)n);
        cudaError_t e = cudaMemcpyAsync((char *)to + at, block, (size_t)n, cudaMemcpyHostToDevice, wn__gpu.compute);
        if (e == cudaSuccess) e = cudaEventRecord(copied[turn], wn__gpu.compute);
        WN_TRY(wn__gpu_check(d, e, "copying from the host"));
    }
    return WN_OK;
}

int32_t wn__gpu_get(struct wn_device *d, void *host, const void *from, int64_t bytes)
{
    WN_TRY(wn__gpu_ready(d));
    if (bytes == 0) return WN_OK;
    cudaError_t e = cudaMemcpyAsync(host, from, (size_t)bytes, cudaMemcpyDeviceToHost, wn__gpu.compute);
    WN_TRY(wn__gpu_check(d, e, "copying to the host"));
    return wn__gpu_await(d, wn__gpu.compute, NULL, "copying to the host");
}

int32_t wn__gpu_copy(struct wn_device *d, void *to, const void *from, int64_t bytes)
{
    WN_TRY(wn__gpu_ready(d));
    if (bytes == 0) return WN_OK;
    return wn__gpu_check(d, cudaMemcpyAsync(to, from, (size_t)bytes, cudaMemcpyDeviceToDevice, wn__gpu.compute),
                         "copying");
}

int32_t wn__gpu_fill(struct wn_device *d, void *to, int32_t byte, int64_t bytes)
{
    WN_TRY(wn__gpu_ready(d));
    if (bytes == 0) return WN_OK;
    return wn__gpu_check(d, cudaMemsetAsync(to, byte, (size_t)bytes, wn__gpu.compute), "filling");
}

/* ---- reading numbers, and waiting ------------------------------------------------------------------------------ */

int32_t wn__gpu_read(struct wn_device *d, void *host, const void *from, int64_t bytes)
{
    WN_TRY(wn__gpu_ready(d));
    if (n_waiting == READS) WN_TRY(wn__gpu_sync(d));
    WN_TRY(wn__gpu_check(d,
                         cudaMemcpyAsync(reads + (int64_t)n_waiting * READ, from, (size_t)bytes, cudaMemcpyDeviceToHost,
                                         wn__gpu.compute),
                         "reading a number"));
    waiting[n_waiting].host = host;
    waiting[n_waiting++].bytes = bytes;
    return WN_OK;
}

int32_t wn__gpu_sync(struct wn_device *d)
{
    int32_t n = n_waiting;
    n_waiting = 0;
    if (d->lost == NULL && !wn__gpu.is_ready) return WN_OK;
    WN_TRY(wn__gpu_ready(d));
    WN_TRY(wn__gpu_await(d, wn__gpu.compute, NULL, "running kernels"));
    for (int32_t i = 0; i < n; i++) memcpy(waiting[i].host, reads + (int64_t)i * READ, (size_t)waiting[i].bytes);
    return WN_OK;
}
