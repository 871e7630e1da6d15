/* Faults on demand, counters and the report of the simulated device: see control.h. The state is one struct, so that a
 * spec can put everything back. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include "state.h"

enum { FIRST_LIMIT = 1 << 30, FIRST_GUARD = 256 << 10 };

struct wn__sim_state wn__sim = {{0}, WN_SIM_EAGER, WN_SIM_FORWARD, 1, FIRST_LIMIT, FIRST_GUARD, 0, 0, "", {}};

int32_t wn__sim_must_fail(int32_t call)
{
    int64_t *left = &wn__sim.fails_in[call];
    return *left > 0 && --*left == 0;
}

cudaError_t wn__sim_result(cudaError_t error)
{
    if (wn__sim.sticky != cudaSuccess) error = (cudaError_t)wn__sim.sticky;
    if (error != cudaSuccess && error != cudaErrorNotReady) wn__sim.last = error;
    return error;
}

void wn__sim_fault(cudaError_t error, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(wn__sim.report, sizeof wn__sim.report, format, args);
    va_end(args);
    if (wn__sim.sticky == cudaSuccess) wn__sim.sticky = error;
}

/* Marsaglia's xorshift of 64 bits. */
uint64_t wn__sim_random(void)
{
    uint64_t x = wn__sim.random;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    return wn__sim.random = x;
}

void wn_sim_fail(int32_t call, int64_t nth)
{
    if (call >= 0 && call < WN_SIM_CALLS) wn__sim.fails_in[call] = nth;
}

int64_t wn_sim_fails_in(int32_t call)
{
    return call >= 0 && call < WN_SIM_CALLS ? wn__sim.fails_in[call] : 0;
}

void wn_sim_order(int32_t streams, int32_t threads, uint64_t seed)
{
    wn__sim_drain();
    wn__sim.streams = streams;
    wn__sim.threads = threads;
    wn__sim.random = seed * 2654435769u + 88172645463325252u;
}

void wn_sim_mend(void)
{
    wn__sim.sticky = wn__sim.last = cudaSuccess;
    wn__sim.report[0] = 0;
}

void wn_sim_reset(void)
{
    struct wn_sim_counters none = {};
    none.live = none.peak = wn__sim.count.live;
    none.device = wn__sim.count.device;
    none.taken = wn__sim.count.taken;
    none.parts = wn__sim.count.parts;
    none.events = wn__sim.count.events;
    none.graphs = wn__sim.count.graphs;
    memset(wn__sim.fails_in, 0, sizeof wn__sim.fails_in);
    wn_sim_order(WN_SIM_EAGER, WN_SIM_FORWARD, 1);
    wn_sim_limit(FIRST_LIMIT);
    wn_sim_guard(FIRST_GUARD);
    wn_sim_mend();
    wn__sim.count = none;
}

void wn_sim_counters(struct wn_sim_counters *out)
{
    *out = wn__sim.count;
}

const char *wn_sim_report(void)
{
    return wn__sim.report;
}

/* ---- facts and errors ------------------------------------------------------------------------------------------ */

/* Returns the number that the environment gives, else another one. */
static int asked_for(const char *name, int otherwise)
{
    const char *text = getenv(name);
    return text == NULL ? otherwise : atoi(text);
}

int wn__sim_rank(void)
{
    return asked_for("OMPI_COMM_WORLD_RANK", asked_for("PMI_RANK", 0));
}

/* WANE_SIM_OPEN: the error that finding a GPU ends with; WANE_SIM_GPUS: how many there are; WANE_SIM_ARCH: the
 * architecture, 61 for sm_61, and WANE_SIM_ARCH_1 of the second one; WANE_SIM_PER_NODE: so many ranks share a machine,
 * whose GPUs are none of another one; WANE_SIM_NAME: the name of the GPU. */
cudaError_t cudaGetDeviceCount(int *n)
{
    *n = asked_for("WANE_SIM_GPUS", 1);
    return (cudaError_t)asked_for("WANE_SIM_OPEN", cudaSuccess);
}

cudaError_t cudaSetDevice(int device)
{
    const bool is_there = device >= 0 && device < asked_for("WANE_SIM_GPUS", 1);
    if (is_there) wn__sim.count.device = device;
    return wn__sim_result(is_there ? cudaSuccess : cudaErrorInvalidDevice);
}

cudaError_t cudaGetDevice(int *device)
{
    *device = wn__sim.count.device;
    return wn__sim_result(cudaSuccess);
}

/* Returns KiB of shared memory that a block may ask for. */
static int shared_most(int arch)
{
    switch (arch) {
    case 75: return 64;
    case 80: return 163;
    case 86:
    case 89:
    case 120: return 99;
    default: return 227;
    }
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int device)
{
    size_t left = 0;
    if (device < 0 || device >= asked_for("WANE_SIM_GPUS", 1)) return wn__sim_result(cudaErrorInvalidDevice);
    memset(p, 0, sizeof *p);
    const char *name = getenv("WANE_SIM_NAME");
    snprintf(p->name, sizeof p->name, "%s", name != NULL ? name : "fibers on a CPU");
    p->uuid.bytes[0] = (char)device;
    p->uuid.bytes[1] = (char)(wn__sim_rank() / asked_for("WANE_SIM_PER_NODE", 1 << 30));
    int arch = asked_for("WANE_SIM_ARCH", 90);
    if (device == 1) arch = asked_for("WANE_SIM_ARCH_1", arch);
    p->major = arch / 10;
    p->minor = arch % 10;
    p->multiProcessorCount = 1;
    p->sharedMemPerBlock = 48 * 1024;
    p->sharedMemPerBlockOptin = (size_t)shared_most(arch) * 1024;
    return cudaMemGetInfo(&left, &p->totalGlobalMem);
}

cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int device)
{
    struct cudaDeviceProp p;
    cudaError_t e = cudaGetDeviceProperties(&p, device);
    if (e != cudaSuccess) return e;
    switch (attribute) {
    case cudaDevAttrMultiProcessorCount: *value = p.multiProcessorCount; break;
    case cudaDevAttrComputeCapabilityMajor: *value = p.major; break;
    case cudaDevAttrComputeCapabilityMinor: *value = p.minor; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = (int)p.sharedMemPerBlockOptin; break;
    default: return wn__sim_result(cudaErrorInvalidValue);
    }
    return e;
}

cudaError_t cudaDriverGetVersion(int *version)
{
    *version = 13000;
    return cudaSuccess;
}

cudaError_t cudaGetLastError(void)
{
    cudaError_t e = cudaPeekAtLastError();
    wn__sim.last = cudaSuccess;
    return e;
}

cudaError_t cudaPeekAtLastError(void)
{
    return (cudaError_t)(wn__sim.sticky != cudaSuccess ? wn__sim.sticky : wn__sim.last);
}

const char *cudaGetErrorName(cudaError_t e)
{
    switch (e) {
    case cudaSuccess: return "cudaSuccess";
    case cudaErrorInvalidValue: return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation: return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidConfiguration: return "cudaErrorInvalidConfiguration";
    case cudaErrorStubLibrary: return "cudaErrorStubLibrary";
    case cudaErrorInsufficientDriver: return "cudaErrorInsufficientDriver";
    case cudaErrorNoDevice: return "cudaErrorNoDevice";
    case cudaErrorInvalidDevice: return "cudaErrorInvalidDevice";
    case cudaErrorNotReady: return "cudaErrorNotReady";
    case cudaErrorIllegalAddress: return "cudaErrorIllegalAddress";
    case cudaErrorLaunchFailure: return "cudaErrorLaunchFailure";
    case cudaErrorSystemNotReady: return "cudaErrorSystemNotReady";
    case cudaErrorStreamCaptureUnsupported: return "cudaErrorStreamCaptureUnsupported";
    case cudaErrorStreamCaptureInvalidated: return "cudaErrorStreamCaptureInvalidated";
    case cudaErrorStreamCaptureMerge: return "cudaErrorStreamCaptureMerge";
    case cudaErrorStreamCaptureUnmatched: return "cudaErrorStreamCaptureUnmatched";
    case cudaErrorStreamCaptureUnjoined: return "cudaErrorStreamCaptureUnjoined";
    case cudaErrorStreamCaptureIsolation: return "cudaErrorStreamCaptureIsolation";
    case cudaErrorStreamCaptureImplicit: return "cudaErrorStreamCaptureImplicit";
    case cudaErrorCapturedEvent: return "cudaErrorCapturedEvent";
    case cudaErrorStreamCaptureWrongThread: return "cudaErrorStreamCaptureWrongThread";
    }
    return "unknown error";
}

/* Returns what the simulated device knows of an error that stays, which a real one does not tell. */
const char *cudaGetErrorString(cudaError_t e)
{
    return e == wn__sim.sticky && wn__sim.report[0] != 0 ? wn__sim.report : cudaGetErrorName(e);
}
