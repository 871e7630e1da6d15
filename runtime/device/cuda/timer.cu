/* Seconds of instructions by the GPU's clock: a pair of events of the compute stream around each. The host waits for
 * none of them, so kernels follow each other as in a run that nobody times. */
#include "device.cuh"

/* Invariant: both events of all n spans exist; n is 0 where no run is timed. */
static struct {
    struct wn__span *span;
    double *seconds; /* (n) of the caller */
    int32_t n;
} timer;

int32_t wn__spans_open(struct wn_device *d, int32_t n, struct wn__span **out)
{
    cudaError_t e = cudaSuccess;
    struct wn__span *span = *out = (struct wn__span *)wn__gpu.host->alloc((n + 1) * (int64_t)sizeof *span);
    if (span == NULL) return WN_OOM;
    for (int32_t i = 0; i < 2 * n && e == cudaSuccess; i++)
        e = cudaEventCreateWithFlags(&span[i / 2].event[i % 2], cudaEventDefault);
    return wn__gpu_check(d, e, "making events to time instructions");
}

void wn__spans_close(struct wn__span *span, int32_t n)
{
    for (int32_t i = 0; span != NULL && i < 2 * n; i++)
        if (span[i / 2].event[i % 2] != NULL) (void)cudaEventDestroy(span[i / 2].event[i % 2]);
    (void)cudaGetLastError();
    wn__gpu.host->free(span);
}

double wn__span_take(struct wn__span *span)
{
    float ms = 0;
    const int32_t marks = span->marks;
    span->marks = 0;
    return marks == 2 && cudaEventElapsedTime(&ms, span->event[0], span->event[1]) == cudaSuccess ? ms * 1e-3 : 0;
}

int32_t wn__gpu_timer_open(struct wn_device *d, int32_t n, double *seconds)
{
    struct wn__span *span;
    WN_TRY(wn__gpu_ready(d));
    int32_t code = wn__spans_open(d, n, &span);
    if (code != WN_OK) {
        wn__spans_close(span, n);
        return code;
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
    for (int32_t i = 0; i < timer.n && d->lost == NULL; i++)
        if (timer.span[i].marks == 2) timer.seconds[i] = wn__span_take(&timer.span[i]);
    wn__spans_close(timer.span, timer.n);
    memset(&timer, 0, sizeof timer);
}
