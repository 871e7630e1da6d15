/* Checks captures and graphs of the simulated device: a graph does again what was captured, with the arguments of the
 * capture, in every order of streams; what CUDA forbids meanwhile is refused and spoils the capture. */
#include <string.h>
#include "sim.h"
#include "control.h"
#include "selftest.h"

enum { N = 64 };

static __global__ void add(float *x, float v)
{
    x[threadIdx.x] += v;
}

static __global__ void scale(float *x, float v)
{
    x[threadIdx.x] *= v;
}

/* Two streams, two events, and the graph that is made of what they are asked for. */
struct capturing {
    cudaStream_t origin, other;
    cudaEvent_t forked, joined;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    device<float> x;
    capturing(void) : graph(NULL), exec(NULL), x(N)
    {
        cudaStreamCreateWithFlags(&origin, cudaStreamNonBlocking);
        cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking);
        cudaEventCreateWithFlags(&forked, cudaEventDisableTiming);
        cudaEventCreateWithFlags(&joined, cudaEventDisableTiming);
        for (float &v : x.host) v = 1;
        x.put();
    }
    ~capturing()
    {
        if (exec != NULL) cudaGraphExecDestroy(exec);
        if (graph != NULL) cudaGraphDestroy(graph);
        cudaEventDestroy(forked);
        cudaEventDestroy(joined);
        cudaStreamDestroy(origin);
        cudaStreamDestroy(other);
    }
    capturing(const capturing &) = delete;
    void begin(void)
    {
        cudaStreamBeginCapture(origin, cudaStreamCaptureModeThreadLocal);
    }
    cudaError_t end(void)
    {
        cudaError_t e = cudaStreamEndCapture(origin, &graph);
        return e == cudaSuccess ? cudaGraphInstantiateWithFlags(&exec, graph, 0) : e;
    }
    /* Returns x[N - 1] after n launches of the graph. */
    float launch(int n)
    {
        for (int i = 0; i < n; i++) cudaGraphLaunch(exec, origin);
        cudaStreamSynchronize(origin);
        x.get();
        return x.host[N - 1];
    }
};

/* Returns whether a graph of two streams gives its result in a hundred orders. */
static bool is_right_in_every_order(void)
{
    for (int seed = 1; seed <= 100; seed++) {
        wn_sim_order(seed % 3, WN_SIM_FORWARD, (uint64_t)seed);
        capturing c;
        float v = 2;
        device<float> y(N);
        c.begin();
        LAUNCH(add, 1, N, 0, c.origin, c.x.at, v);
        cudaEventRecord(c.forked, c.origin);
        cudaStreamWaitEvent(c.other, c.forked, 0);
        cudaMemcpyAsync(y.at, c.x.at, N * sizeof(float), cudaMemcpyDeviceToDevice, c.other);
        cudaEventRecord(c.joined, c.other);
        cudaStreamWaitEvent(c.origin, c.joined, 0);
        LAUNCH(scale, 1, N, 0, c.origin, c.x.at, v);
        v = 100; /* not the argument that was captured */
        if (c.end() != cudaSuccess || c.launch(2) != ((1 + 2) * 2 + 2) * 2) return false;
        y.get();
        if (y.host[0] != (1 + 2) * 2 + 2) return false;
    }
    return true;
}

static void check_launches(void)
{
    struct wn_sim_counters before, after;
    check("a graph of two streams is right in every order", is_right_in_every_order());
    wn_sim_reset();
    wn_sim_counters(&before);
    {
        capturing c;
        c.begin();
        LAUNCH(add, 1, N, 0, c.origin, c.x.at, 1.0f);
        LAUNCH(add, 1, N, 0, c.other, c.x.at, 4.0f);
        check("a capture is ended", c.end() == cudaSuccess);
        check("what was captured has not run, and another stream has", c.launch(0) == 5);
        check("launches of a graph are counted, and not its kernels", c.launch(3) == 8);
        wn_sim_counters(&after);
        check("the counters know graphs", after.graph_launches == before.graph_launches + 3 &&
                                              after.launches == before.launches + 1 &&
                                              after.graphs == before.graphs + 2);
    }
    wn_sim_counters(&after);
    check("a graph is given back", after.graphs == before.graphs);
}

/* Checks that a call is refused during a capture, and that the capture is spoiled. */
static void check_forbidden(const char *name, cudaError_t (*call)(capturing &c))
{
    capturing c;
    c.begin();
    LAUNCH(add, 1, N, 0, c.origin, c.x.at, 1.0f);
    cudaError_t e = call(c);
    bool is_spoiled = c.end() == cudaErrorStreamCaptureInvalidated && c.graph == NULL;
    check(name, e >= cudaErrorStreamCaptureUnsupported && e <= cudaErrorCapturedEvent && is_spoiled);
    check("and the stream runs again", c.launch(0) == 1 && cudaStreamQuery(c.origin) == cudaSuccess);
    cudaGetLastError();
}

static void check_calls(void)
{
    static void *p;
    static float plain[N];
    check_forbidden("a capture forbids to wait for its stream",
                    [](capturing &c) { return cudaStreamSynchronize(c.origin); });
    check_forbidden("a capture forbids to wait for the device", [](capturing &) { return cudaDeviceSynchronize(); });
    check_forbidden("a capture forbids to ask its stream", [](capturing &c) { return cudaStreamQuery(c.origin); });
    check_forbidden("a capture forbids to take memory", [](capturing &) { return cudaMalloc(&p, 64); });
    check_forbidden("a capture forbids to give memory back", [](capturing &c) { return cudaFree(c.x.at); });
    check_forbidden("a capture forbids to pin memory", [](capturing &) { return cudaHostAlloc(&p, 64, 0); });
    check_forbidden("a capture forbids copies that wait",
                    [](capturing &c) { return cudaMemcpy(plain, c.x.at, sizeof plain, cudaMemcpyDeviceToHost); });
    check_forbidden("a capture forbids copies to memory that is not pinned", [](capturing &c) {
        return cudaMemcpyAsync(plain, c.x.at, sizeof plain, cudaMemcpyDeviceToHost, c.origin);
    });
    check_forbidden("a capture forbids to ask an event of its own", [](capturing &c) {
        cudaEventRecord(c.forked, c.origin);
        return cudaEventQuery(c.forked);
    });
    check_forbidden("a capture forbids to wait for an event of before", [](capturing &c) {
        cudaEventRecord(c.forked, c.other);
        return cudaStreamWaitEvent(c.origin, c.forked, 0);
    });
    check_forbidden("a capture forbids to launch a graph",
                    [](capturing &c) { return cudaGraphLaunch(c.exec, c.origin); });
}

static void check_joins(void)
{
    capturing c;
    c.begin();
    cudaEventRecord(c.forked, c.origin);
    cudaStreamWaitEvent(c.other, c.forked, 0);
    LAUNCH(add, 1, N, 0, c.other, c.x.at, 1.0f);
    check("a fork that is not joined ends no capture", c.end() == cudaErrorStreamCaptureUnjoined && c.graph == NULL);
    check("and has not run", c.launch(0) == 1);
    check("a capture that is not under way is not ended", c.end() == cudaErrorInvalidValue);
    cudaGetLastError();
}

static void check_failures(void)
{
    capturing c;
    wn_sim_fail(WN_SIM_GRAPH, 1);
    check("a capture cannot begin",
          cudaStreamBeginCapture(c.origin, cudaStreamCaptureModeThreadLocal) == cudaErrorInvalidValue);
    for (int nth = 1; nth <= 2; nth++) {
        c.begin();
        LAUNCH(add, 1, N, 0, c.origin, c.x.at, 1.0f);
        wn_sim_fail(WN_SIM_GRAPH, nth);
        check(nth == 1 ? "a capture cannot end" : "a graph cannot be made", c.end() != cudaSuccess && c.exec == NULL);
    }
    check("a graph is made of what was captured", cudaGraphInstantiateWithFlags(&c.exec, c.graph, 0) == cudaSuccess);
    wn_sim_fail(WN_SIM_GRAPH, 1);
    check("a launch that fails runs nothing", cudaGraphLaunch(c.exec, c.origin) != cudaSuccess && c.launch(0) == 1);
    wn_sim_order(WN_SIM_LAZY, WN_SIM_FORWARD, 1);
    cudaGraphLaunch(c.exec, c.origin);
    check("a graph under way is not destroyed",
          cudaGraphExecDestroy(c.exec) == cudaErrorIllegalAddress && strstr(wn_sim_report(), "under way") != NULL);
    wn_sim_mend();
    check("and runs", c.launch(0) == 2);
    wn_sim_fail(WN_SIM_ASYNC, 2);
    check("a kernel of a graph fails when it runs", cudaGraphLaunch(c.exec, c.origin) == cudaSuccess &&
                                                        cudaStreamSynchronize(c.origin) == cudaSuccess &&
                                                        cudaGraphLaunch(c.exec, c.origin) == cudaSuccess &&
                                                        cudaStreamSynchronize(c.origin) == cudaErrorIllegalAddress &&
                                                        strstr(wn_sim_report(), "made to fail") != NULL);
    wn_sim_reset();
}

void check_graphs(void)
{
    check_launches();
    check_calls();
    check_joins();
    check_failures();
}
