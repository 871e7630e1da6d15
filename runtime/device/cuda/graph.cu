/* Graphs of the GPU: captures what is launched on the compute stream, and launches it again as one.
 *
 * A capture holds kernels, and copies and fills that kernels' launchers ask for, and nothing else: the caller ends it
 * before it copies, moves or waits. It is one of the calling thread's, so that what other threads of the process do
 * with CUDA cannot spoil it. A handle is an instantiated graph. */
#include "device.cuh"

int32_t wn__gpu_capture_begin(struct wn_device *d)
{
    WN_TRY(wn__gpu_ready(d));
    WN_TRY(wn__gpu_check(d, cudaStreamBeginCapture(wn__gpu.compute, cudaStreamCaptureModeThreadLocal),
                         "beginning a capture"));
    wn__gpu.is_capturing = 1;
    return WN_OK;
}

int32_t wn__gpu_capture_end(struct wn_device *d, void **out)
{
    cudaGraph_t captured = NULL;
    cudaGraphExec_t graph = NULL;
    wn__gpu.is_capturing = 0;
    cudaError_t e = cudaStreamEndCapture(wn__gpu.compute, &captured);
    if (e == cudaSuccess && out != NULL) e = cudaGraphInstantiateWithFlags(&graph, captured, 0);
    if (captured != NULL) (void)cudaGraphDestroy(captured);
    if (out == NULL) {
        (void)cudaGetLastError();
        return WN_OK;
    }
    *out = graph;
    return wn__gpu_check(d, e, "making a graph of a capture");
}

int32_t wn__gpu_graph_launch(struct wn_device *d, void *graph)
{
    WN_TRY(wn__gpu_ready(d));
    return wn__gpu_check(d, cudaGraphLaunch((cudaGraphExec_t)graph, wn__gpu.compute), "launching a graph");
}

void wn__gpu_graph_close(struct wn_device *d, void *graph)
{
    (void)d;
    (void)cudaGraphExecDestroy((cudaGraphExec_t)graph);
    (void)cudaGetLastError();
}
