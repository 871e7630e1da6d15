/* Seconds of instructions by the GPU's clock: a pair of events of the compute stream around each. The host waits for
 * none of them, so kernels follow each other as in a run that nobody times. */
#include "device.cuh"

/* One instruction's pair of events; marks: how many of them were recorded. */
struct span {
    cudaEvent_t event[2];
    int32_t marks;
};

/* Invariant: both events of all n spans exist; n is 0 where no run is timed. */
static struct {
    struct span *span;
    double *seconds; /* (n) of the caller */
    int32_t n;
} timer;

/* Gives up the events of n spans, some of which may not exist. */
static void drop(struct span *span, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        for (int32_t end = 0; end < 2; end++)
            if (span[i].event[end] != NULL) (void)cudaEventDestroy(span[i].event[end]);
    (void)cudaGetLastError();
    wn__gpu.host->free(span);
}

int32_t wn__gpu_timer_open(struct wn_device *d, int32_t n, double *seconds)
{
    cudaError_t e = cudaSuccess;
    WN_TRY(wn__gpu_ready(d));
    struct span *span = (struct span *)wn__gpu.host->alloc((n + 1) * (int64_t)sizeof *span);
    if (span == NULL) return WN_OOM;
    for (int32_t i = 0; i < n && e == cudaSuccess; i++)
        for (int32_t end = 0; end < 2 && e == cudaSuccess; end++)
            e = cudaEventCreateWithFlags(&span[i].event[end], cudaEventDefault);
    if (e != cudaSuccess) {
        drop(span, n);
        return wn__gpu_check(d, e, "making events to time instructions");
    }
    timer.span = span;
    timer.seconds = seconds;
    timer.n = n;
    return WN_OK;
}

int32_t wn__gpu_timer_mark(struct wn_device *d, int32_t i, int32_t end)
{
    WN_TRY(wn__gpu_ready(d));
    WN_TRY(wn__gpu_check(d, cudaEventRecord(timer.span[i].event[end], wn__gpu.compute), "timing an instruction"));
    timer.span[i].marks++;
    return WN_OK;
}

void wn__gpu_timer_close(struct wn_device *d)
{
    for (int32_t i = 0; i < timer.n && d->lost == NULL; i++) {
        const struct span *s = &timer.span[i];
        float ms = 0;
        if (s->marks == 2 && cudaEventElapsedTime(&ms, s->event[0], s->event[1]) == cudaSuccess)
            timer.seconds[i] = ms * 1e-3;
    }
    if (timer.span != NULL) drop(timer.span, timer.n);
    memset(&timer, 0, sizeof timer);
}
