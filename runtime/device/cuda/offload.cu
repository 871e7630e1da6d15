/* Offload buffers of the GPU: pinned memory of the host, and moves on a stream of their own each way.
 *
 * A move begins after the kernels that were launched before it: its stream waits for an event of the compute stream. A
 * wait makes the compute stream wait for the event behind the move, so the host does not block but where bytes go to
 * other ranks, whose messages it sends. Seconds are those between events around each move and around each wait, by the
 * device's clock. */
#include <stdio.h>
#include "device.cuh"

struct buffer {
    struct wn_offload_buffer base; /* the first field, so that a pointer to it is one to the buffer */
    cudaEvent_t asked;             /* of the compute stream, when the last move was asked for */
    struct wn__span *move[WN_WAY_COUNT], *wait[WN_WAY_COUNT]; /* (base.most) around each move and the wait for it */
    int32_t started[WN_WAY_COUNT];
};

static struct buffer *of(struct wn_offload_buffer *b)
{
    return (struct buffer *)b;
}

/* Returns the seconds of the spans that were recorded, and forgets them. */
static double take_seconds(struct wn__span *spans, int32_t n)
{
    double seconds = 0;
    for (int32_t i = 0; i < n; i++) seconds += wn__span_take(&spans[i]);
    return seconds;
}

/* Takes the memory of a buffer; on failure some of it may be taken. */
static int32_t take(struct wn_device *d, struct buffer *b)
{
    for (int32_t way = 0; way < WN_WAY_COUNT; way++) {
        WN_TRY(wn__spans_open(d, b->base.most, &b->move[way]));
        WN_TRY(wn__spans_open(d, b->base.most, &b->wait[way]));
    }
    cudaError_t e = cudaHostAlloc((void **)&b->base.host, (size_t)b->base.bytes, cudaHostAllocDefault);
    if (e == cudaErrorMemoryAllocation) {
        (void)cudaGetLastError();
        return wn__fail(WN_OOM, "out of memory: the system refused %lld bytes of pinned host memory for %s cuda; %s",
                        (long long)b->base.bytes,
                        b->base.medium == WN_MEDIUM_RANKS ? "exchanges among ranks on" : "offloading from",
                        b->base.medium == WN_MEDIUM_RANKS ? "let fewer be under way at once: a recipe's line 'ahead 0'"
                                                          : "offload less or recompute more");
    }
    if (e == cudaSuccess) e = cudaEventCreateWithFlags(&b->asked, cudaEventDisableTiming);
    return wn__gpu_check(d, e, "taking pinned memory for offloading");
}

int32_t wn__gpu_offload_open(struct wn_device *d, int32_t medium, int64_t bytes, int32_t most,
                             struct wn_offload_buffer **out)
{
    *out = NULL;
    if (medium == WN_MEDIUM_DISK)
        return wn__fail(WN_UNSUPPORTED,
                        "offload:disk: cuda has no way to the disk in this version; offload to the host");
    WN_TRY(wn__gpu_ready(d));
    struct buffer *b = (struct buffer *)wn__gpu.host->alloc((int64_t)sizeof *b);
    if (b == NULL) return WN_OOM;
    b->base.medium = medium;
    b->base.bytes = bytes;
    b->base.most = most;
    int32_t code = take(d, b);
    if (code == WN_OK) *out = &b->base;
    else wn__gpu_offload_close(d, &b->base);
    return code;
}

void wn__gpu_offload_close(struct wn_device *d, struct wn_offload_buffer *buffer)
{
    struct buffer *b = of(buffer);
    (void)d;
    for (int32_t way = 0; way < WN_WAY_COUNT; way++) {
        wn__spans_close(b->move[way], b->base.most);
        wn__spans_close(b->wait[way], b->base.most);
    }
    if (b->asked != NULL) (void)cudaEventDestroy(b->asked);
    if (b->base.host != NULL) (void)cudaFreeHost(b->base.host);
    (void)cudaGetLastError();
    wn__gpu.host->free(b);
}

/* Says that a move has ended; the driver calls it on a thread of its own. */
static void CUDART_CB say_ended(void *ended)
{
    __atomic_store_n((int32_t *)ended, 1, __ATOMIC_RELEASE);
}

int32_t wn__gpu_offload_start(struct wn_device *d, struct wn_offload_buffer *buffer, const struct wn_move *m)
{
    struct buffer *b = of(buffer);
    cudaStream_t stream = wn__gpu.way[m->way];
    struct wn__span *span = &b->move[m->way][b->started[m->way]];
    WN_TRY(wn__gpu_ready(d));
    cudaError_t e = cudaEventRecord(b->asked, wn__gpu.compute);
    if (e == cudaSuccess) e = cudaStreamWaitEvent(stream, b->asked, 0);
    if (e == cudaSuccess) e = cudaEventRecord(span->event[0], stream);
    if (e == cudaSuccess)
        e = m->way == WN_WAY_OUT
                ? cudaMemcpyAsync(b->base.host + m->at, m->address, (size_t)m->bytes, cudaMemcpyDeviceToHost, stream)
                : cudaMemcpyAsync(m->address, b->base.host + m->at, (size_t)m->bytes, cudaMemcpyHostToDevice, stream);
    if (e == cudaSuccess && m->ended != NULL) e = cudaLaunchHostFunc(stream, say_ended, m->ended);
    if (e == cudaSuccess) e = cudaEventRecord(span->event[1], stream);
    WN_TRY(wn__gpu_check(d, e, "moving a value between the device and the host"));
    span->marks = 2;
    b->started[m->way]++;
    return WN_OK;
}

int32_t wn__gpu_offload_wait(struct wn_device *d, struct wn_offload_buffer *buffer, int32_t way, int64_t number)
{
    struct buffer *b = of(buffer);
    struct wn__span *span = &b->wait[way][number];
    WN_TRY(wn__gpu_ready(d));
    cudaError_t e = span->marks > 0 ? cudaSuccess : cudaEventRecord(span->event[0], wn__gpu.compute);
    if (e == cudaSuccess) e = cudaStreamWaitEvent(wn__gpu.compute, b->move[way][number].event[1], 0);
    if (e == cudaSuccess) e = cudaEventRecord(span->event[1], wn__gpu.compute);
    WN_TRY(wn__gpu_check(d, e, "waiting for an offloaded value"));
    span->marks = 2;
    return WN_OK;
}

int32_t wn__gpu_offload_left(struct wn_device *d, struct wn_offload_buffer *buffer, int64_t number)
{
    struct buffer *b = of(buffer);
    struct wn__span *span = &b->wait[WN_WAY_IN][b->started[WN_WAY_IN]];
    WN_TRY(wn__gpu_ready(d));
    cudaError_t e = cudaEventRecord(span->event[0], wn__gpu.compute);
    WN_TRY(wn__gpu_check(d, e, "bringing a value to the host for other ranks"));
    WN_TRY(wn__gpu_await(d, NULL, b->move[WN_WAY_OUT][number].event[1], "bringing a value to the host for others"));
    span->marks = 1;
    return WN_OK;
}

/* Waits for all streams, so that no move outlives the run, also one that failed half way. */
void wn__gpu_offload_stop(struct wn_device *d, struct wn_offload_buffer *buffer)
{
    struct buffer *b = of(buffer);
    const cudaStream_t streams[] = {wn__gpu.way[WN_WAY_OUT], wn__gpu.way[WN_WAY_IN], wn__gpu.compute};
    for (int32_t i = 0; i < 3 && d->lost == NULL; i++)
        (void)wn__gpu_await(d, streams[i], NULL, "moving offloaded values");
    b->base.stall = 0;
    for (int32_t way = 0; way < WN_WAY_COUNT; way++) {
        const int32_t n = d->lost == NULL ? b->base.most : 0;
        b->base.busy[way] = take_seconds(b->move[way], n);
        b->base.stall += take_seconds(b->wait[way], n);
        b->started[way] = 0;
    }
}
