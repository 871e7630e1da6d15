/* The simulated device: stands in for CUDA's headers, so that a C++ compiler builds the kernel files and a CPU runs
 * them.
 *
 * Threads of a block are fibers of one host thread (threads.cpp): one runs until it waits at __syncthreads or for its
 * warp, then another does. Streams hold work that runs at once, as late as CUDA allows, or in a random order
 * (streams.cpp). Device memory has red zones and an exact limit (memory.cpp). Faults are made on demand (control.h).
 *
 * It shows no time, no occupancy, and no memory model between blocks. */
#ifndef WN_SIM_H
#define WN_SIM_H
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <functional>
#include <tuple>
#include <type_traits>
#include <utility>

/* ---- words of the language ---------------------------------------------------------------------------------- */

#define __global__
#define __device__
#define __host__
#define __constant__ static
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
/* One block runs at a time on one host thread, so a thread-local static is shared by the block. No other variable of
 * the library is thread-local: threads.cpp fills all of them with NaN before a block begins. */
#define __shared__ static thread_local
#define DYN_SHARED(T, name) T *name = (T *)wn__sim_dynamic_shared()
#define LAUNCH(kernel, grid, block, shared, stream, ...)                                                               \
    wn__sim_start(wn__sim_grid{dim3(grid), dim3(block), (size_t)(shared), #kernel, (const void *)kernel},              \
                  (cudaStream_t)(stream), kernel, ##__VA_ARGS__)

struct uint3 {
    unsigned x, y, z;
};
struct dim3 {
    unsigned x, y, z;
    dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c)
    {
    }
};

/* ---- vectors ------------------------------------------------------------------------------------------------- */

#define WN_SIM_VECTORS(T, name)                                                                                        \
    struct alignas(2 * sizeof(T)) name##2                                                                              \
    {                                                                                                                  \
        T x, y;                                                                                                        \
    };                                                                                                                 \
    struct alignas(sizeof(T) < 8 ? 4 * sizeof(T) : 16) name##4                                                         \
    {                                                                                                                  \
        T x, y, z, w;                                                                                                  \
    };                                                                                                                 \
    static inline name##2 make_##name##2(T x, T y)                                                                     \
    {                                                                                                                  \
        return name##2 {x, y};                                                                                         \
    }                                                                                                                  \
    static inline name##4 make_##name##4(T x, T y, T z, T w)                                                           \
    {                                                                                                                  \
        return name##4 {x, y, z, w};                                                                                   \
    }

struct float3 {
    float x, y, z;
};
WN_SIM_VECTORS(float, float)
WN_SIM_VECTORS(double, double)
WN_SIM_VECTORS(int, int)
WN_SIM_VECTORS(unsigned, uint)
WN_SIM_VECTORS(unsigned short, ushort)
WN_SIM_VECTORS(unsigned char, uchar)
WN_SIM_VECTORS(long long, longlong)

/* ---- the thread that runs ------------------------------------------------------------------------------------- */

/* One thread of a block. */
struct wn__sim_thread {
    uint3 at;            /* threadIdx */
    unsigned number;     /* within the block */
    unsigned lane, warp; /* number % 32, number / 32 */
    int state;           /* of threads.cpp */
    int stack;           /* number of its stack; -1: none */
    int meeting;         /* number of the warp operation that it takes part in */
    void *stack_pointer;
};
extern struct wn__sim_thread *wn__sim_now; /* the thread that runs; NULL: the host does */
extern uint3 wn__sim_block;
extern dim3 wn__sim_block_dim, wn__sim_grid_dim;
#define threadIdx (wn__sim_now->at)
#define blockIdx wn__sim_block
#define blockDim wn__sim_block_dim
#define gridDim wn__sim_grid_dim
#define warpSize 32

void *wn__sim_dynamic_shared(void);
void wn__sim_syncthreads(int line);
#define __syncthreads() wn__sim_syncthreads(__LINE__)

/* ---- warps ---------------------------------------------------------------------------------------------------- */

/* Gives 8 bytes to the lanes of `mask` and returns what each of the 32 gave, valid until wn__sim_part. what: the
 * operation, for messages. */
const uint64_t *wn__sim_meet(unsigned mask, uint64_t value, const char *what);
/* Returns whether no lane has ended its part in the operation that the thread met in: true for the lane that came
 * last. */
bool wn__sim_is_first(void);
/* Ends the thread's part in the operation that it met in. */
void wn__sim_part(void);

/* Returns what lane `source` gave; the thread's own value where that lane takes no part. */
template <class T> static inline T wn__sim_shuffle(unsigned mask, T value, int source, const char *what)
{
    static_assert(sizeof(T) <= 8, "a shuffle moves at most 8 bytes");
    uint64_t word = 0;
    memcpy(&word, &value, sizeof value);
    const uint64_t *all = wn__sim_meet(mask, word, what);
    if (source >= 0 && source < 32 && (mask >> source & 1)) memcpy(&value, &all[source], sizeof value);
    wn__sim_part();
    return value;
}
template <class T> static inline T __shfl_sync(unsigned mask, T value, int source, int width = 32)
{
    int lane = (int)wn__sim_now->lane;
    return wn__sim_shuffle(mask, value, (lane & ~(width - 1)) | (source & (width - 1)), "__shfl_sync");
}
template <class T> static inline T __shfl_xor_sync(unsigned mask, T value, int flip, int width = 32)
{
    int lane = (int)wn__sim_now->lane, source = lane ^ flip;
    bool inside = (source & ~(width - 1)) <= (lane & ~(width - 1));
    return wn__sim_shuffle(mask, value, inside ? source : lane, "__shfl_xor_sync");
}
template <class T> static inline T __shfl_down_sync(unsigned mask, T value, unsigned by, int width = 32)
{
    int lane = (int)wn__sim_now->lane, source = lane + (int)by;
    bool inside = (source & ~(width - 1)) == (lane & ~(width - 1));
    return wn__sim_shuffle(mask, value, inside ? source : lane, "__shfl_down_sync");
}
static inline unsigned __ballot_sync(unsigned mask, int predicate)
{
    const uint64_t *all = wn__sim_meet(mask, predicate != 0, "__ballot_sync");
    unsigned bits = 0;
    for (int i = 0; i < 32; i++)
        if ((mask >> i & 1) && all[i]) bits |= 1u << i;
    wn__sim_part();
    return bits;
}
static inline int __any_sync(unsigned mask, int predicate)
{
    return __ballot_sync(mask, predicate) != 0;
}
static inline void __syncwarp(unsigned mask = 0xffffffffu)
{
    wn__sim_meet(mask, 0, "__syncwarp");
    wn__sim_part();
}

/* ---- atomics, and numbers ------------------------------------------------------------------------------------- */

#ifdef __SANITIZE_THREAD__
extern "C" void wn__sim_note_atomic(void *p, size_t bytes);
#define WN_SIM_ATOMIC(p) wn__sim_note_atomic((void *)(p), sizeof *(p))
#define WN_SIM_UNSEEN __attribute__((no_sanitize("thread"), noinline))
#else
#define WN_SIM_ATOMIC(p) (void)0
#define WN_SIM_UNSEEN
#endif
/* Defines an atomic that writes EXPR of the old value and v, and returns the old value. */
#define WN_SIM_ATOMICS(name, EXPR)                                                                                     \
    template <class T> WN_SIM_UNSEEN static inline T name(T *p, T v)                                                   \
    {                                                                                                                  \
        WN_SIM_ATOMIC(p);                                                                                              \
        T old = *p;                                                                                                    \
        *p = (EXPR);                                                                                                   \
        return old;                                                                                                    \
    }
WN_SIM_ATOMICS(atomicAdd, old + v)
WN_SIM_ATOMICS(atomicMin, v < old ? v : old)
/* Returns the bits of a number as another type. */
template <class To, class From> static inline To wn__sim_bits(From from)
{
    static_assert(sizeof(To) == sizeof(From), "the bits of a type are those of one of its size");
    To to;
    memcpy(&to, &from, sizeof to);
    return to;
}
static inline int __float_as_int(float x)
{
    return wn__sim_bits<int>(x);
}
static inline int __ffs(int x)
{
    return __builtin_ffs(x);
}
static inline int __popc(unsigned x)
{
    return __builtin_popcount(x);
}

/* ---- functions of the GPU's libm ------------------------------------------------------------------------------ */

/* A GPU's libm is within a few ulp of the host's and has other bits. Here the last bit of about half of all results is
 * another one, so that what is promised to have the CPU's bits may not depend on these functions. 0, 1, infinities and
 * NaN stay. */
template <class T> static inline T wn__sim_other_bits(T y)
{
    typename std::conditional<sizeof(T) == 8, uint64_t, uint32_t>::type u;
    memcpy(&u, &y, sizeof u);
    u ^= u >> 1 & 1;
    memcpy(&y, &u, sizeof y);
    return y;
}
#define exp(x) wn__sim_other_bits((double)::exp(x))
#define log(x) wn__sim_other_bits((double)::log(x))
#define tanh(x) wn__sim_other_bits((double)::tanh(x))
#define erfc(x) wn__sim_other_bits((double)::erfc(x))
#define pow(x, y) wn__sim_other_bits((double)::pow(x, y))
#define powf(x, y) wn__sim_other_bits((float)::powf(x, y))

/* ---- the runtime ---------------------------------------------------------------------------------------------- */

typedef enum {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorMemoryAllocation = 2,
    cudaErrorInvalidConfiguration = 9,
    cudaErrorStubLibrary = 34,
    cudaErrorInsufficientDriver = 35,
    cudaErrorNoDevice = 100,
    cudaErrorInvalidDevice = 101,
    cudaErrorNotReady = 600,
    cudaErrorIllegalAddress = 700,
    cudaErrorLaunchFailure = 719,
    cudaErrorSystemNotReady = 802,
    cudaErrorStreamCaptureUnsupported = 900,
    cudaErrorStreamCaptureInvalidated,
    cudaErrorStreamCaptureMerge,
    cudaErrorStreamCaptureUnmatched,
    cudaErrorStreamCaptureUnjoined,
    cudaErrorStreamCaptureIsolation,
    cudaErrorStreamCaptureImplicit,
    cudaErrorCapturedEvent,
    cudaErrorStreamCaptureWrongThread
} cudaError_t;
typedef enum {
    cudaMemcpyHostToHost,
    cudaMemcpyHostToDevice,
    cudaMemcpyDeviceToHost,
    cudaMemcpyDeviceToDevice,
    cudaMemcpyDefault
} cudaMemcpyKind;
typedef enum { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 } cudaFuncAttribute;
typedef enum {
    cudaDevAttrMultiProcessorCount = 16,
    cudaDevAttrComputeCapabilityMajor = 75,
    cudaDevAttrComputeCapabilityMinor = 76,
    cudaDevAttrMaxSharedMemoryPerBlockOptin = 97
} cudaDeviceAttr;
typedef struct wn__sim_stream *cudaStream_t;
typedef struct wn__sim_event *cudaEvent_t;
typedef struct wn__sim_graph *cudaGraph_t;
typedef struct wn__sim_exec *cudaGraphExec_t;
typedef enum {
    cudaStreamCaptureModeGlobal,
    cudaStreamCaptureModeThreadLocal,
    cudaStreamCaptureModeRelaxed
} cudaStreamCaptureMode;
enum { cudaStreamNonBlocking = 1, cudaEventDefault = 0, cudaEventDisableTiming = 2, cudaHostAllocDefault = 0 };
struct cudaUUID_t {
    char bytes[16];
};
struct cudaDeviceProp {
    char name[256];
    cudaUUID_t uuid;
    int major, minor, multiProcessorCount;
    size_t totalGlobalMem, sharedMemPerBlock, sharedMemPerBlockOptin;
};
extern "C" {
cudaError_t cudaGetDeviceCount(int *n), cudaSetDevice(int device), cudaGetDevice(int *device);
#define CUDART_CB
cudaError_t cudaLaunchHostFunc(cudaStream_t s, void (*fn)(void *), void *data);
cudaError_t cudaDeviceSynchronize(void), cudaDeviceReset(void);
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int device);
cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int device);
cudaError_t cudaDriverGetVersion(int *version);
cudaError_t cudaGetLastError(void), cudaPeekAtLastError(void);
const char *cudaGetErrorString(cudaError_t e), *cudaGetErrorName(cudaError_t e);
cudaError_t cudaMalloc(void **p, size_t bytes), cudaFree(void *p);
cudaError_t cudaHostAlloc(void **p, size_t bytes, unsigned flags);
cudaError_t cudaFreeHost(void *p);
cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total);
cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind kind);
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind, cudaStream_t s);
cudaError_t cudaMemset(void *to, int byte, size_t bytes);
cudaError_t cudaMemsetAsync(void *to, int byte, size_t bytes, cudaStream_t s);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned flags), cudaStreamDestroy(cudaStream_t s);
cudaError_t cudaStreamSynchronize(cudaStream_t s), cudaStreamQuery(cudaStream_t s);
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned flags);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned flags), cudaEventDestroy(cudaEvent_t e);
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s), cudaEventSynchronize(cudaEvent_t e);
cudaError_t cudaEventQuery(cudaEvent_t e), cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to);
cudaError_t cudaStreamBeginCapture(cudaStream_t s, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *out);
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *out, cudaGraph_t g, unsigned long long flags);
cudaError_t cudaGraphLaunch(cudaGraphExec_t x, cudaStream_t s);
cudaError_t cudaGraphDestroy(cudaGraph_t g), cudaGraphExecDestroy(cudaGraphExec_t x);
}
/* Lets a kernel be launched with more than 48 KiB of dynamic shared memory. */
cudaError_t wn__sim_allow_shared(const void *kernel, int bytes);
template <class F> static inline cudaError_t cudaFuncSetAttribute(F *kernel, cudaFuncAttribute attribute, int value)
{
    (void)attribute;
    return wn__sim_allow_shared((const void *)kernel, value);
}

/* ---- segments of a heap: what it tells, so that each of its parts has a red zone ------------------------------- */

enum {
    WN_SIM_GAP = 256
}; /* bytes of the red zone that a heap leaves behind each part, but for the last of a segment */
/* Takes an allocation, as cudaMalloc does, of which only the parts that the heap tells of may be touched. */
cudaError_t wn__sim_segment(void **p, size_t bytes);
/* Tells that bytes of a segment, and the gap behind them, are somebody's, or nobody's again, for all that is put on the
 * stream from now on. A part that overlaps another one, or is outside of its segment, is an error that stays. */
void wn__sim_part_take(void *p, size_t bytes, cudaStream_t s);
void wn__sim_part_give(void *p, cudaStream_t s);

/* One launch: its grid, and the kernel's name for messages. */
struct wn__sim_grid {
    dim3 blocks, threads;
    size_t shared; /* bytes of dynamic shared memory */
    const char *name;
    const void *kernel;
};
void wn__sim_launch(const wn__sim_grid &g, cudaStream_t s, std::function<void()> kernel);
/* Launches a kernel with its arguments as they are now, however late the stream runs. */
template <class... P, class... A>
static inline void wn__sim_start(const wn__sim_grid &g, cudaStream_t s, void (*kernel)(P...), A &&...arguments)
{
    std::tuple<P...> values(std::forward<A>(arguments)...);
    wn__sim_launch(g, s, [=] { std::apply(kernel, values); });
}
#endif
