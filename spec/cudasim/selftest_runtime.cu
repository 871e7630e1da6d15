/* Checks streams, memory and faults of the simulated device, and that Philox's words are those of cuRAND. */
#include <functional>
#include <unistd.h>
#include "sim.h"
#include "state.h"
#include "selftest.h"
extern "C" {
#include "../../runtime/base/random.h"
}

enum { N = 256 };

static __global__ void add_one(float *x)
{
    x[threadIdx.x] += 1.0f;
}

/* ---- streams --------------------------------------------------------------------------------------------------- */

/* Two streams, an event, and pinned memory. */
struct streams {
    cudaStream_t compute, copy;
    cudaEvent_t event;
    float *pinned; /* (N) */
    streams(void)
    {
        cudaStreamCreateWithFlags(&compute, cudaStreamNonBlocking);
        cudaStreamCreateWithFlags(&copy, cudaStreamNonBlocking);
        cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
        cudaHostAlloc((void **)&pinned, N * sizeof(float), cudaHostAllocDefault);
    }
    ~streams()
    {
        cudaEventDestroy(event);
        cudaStreamDestroy(compute);
        cudaStreamDestroy(copy);
        cudaFreeHost(pinned);
    }
    streams(const streams &) = delete;
};

/* Returns how many of 16 runs, with streams that run late and in random order, are not right. */
static int wrong_runs(const std::function<bool()> &is_right)
{
    int wrong = 0;
    for (int order = WN_SIM_LAZY; order <= WN_SIM_RANDOM; order++)
        for (int seed = 1; seed <= 8; seed++) {
            wn_sim_order(order, WN_SIM_FORWARD, (uint64_t)seed);
            if (!is_right()) wrong++;
        }
    wn_sim_reset();
    return wrong;
}

/* Moves a result out on another stream than that of its kernel; has_event: after the kernel. */
static bool moves_out(bool has_event)
{
    streams s;
    device<float> x(N);
    for (float &v : x.host) v = 1;
    x.put();
    LAUNCH(add_one, 1, N, 0, s.compute, x.at);
    if (has_event) {
        cudaEventRecord(s.event, s.compute);
        cudaStreamWaitEvent(s.copy, s.event, 0);
    }
    cudaMemcpyAsync(s.pinned, x.at, N * sizeof(float), cudaMemcpyDeviceToHost, s.copy);
    cudaStreamSynchronize(s.copy);
    for (int i = 0; i < N; i++)
        if (s.pinned[i] != 2) return false;
    return true;
}

/* Copies from memory that the host fills anew; is_pinned: pinned, so that the copy reads it later. */
static bool survives_reuse(bool is_pinned)
{
    streams s;
    device<float> x(N);
    std::vector<float> plain(N);
    float *from = is_pinned ? s.pinned : plain.data();
    for (int i = 0; i < N; i++) from[i] = 1;
    cudaMemcpyAsync(x.at, from, N * sizeof(float), cudaMemcpyHostToDevice, s.copy);
    for (int i = 0; i < N; i++) from[i] = 2;
    cudaStreamSynchronize(s.copy);
    x.get();
    return x.host[N - 1] == 1;
}

static void check_streams(void)
{
    check("an event orders two streams", wrong_runs([] { return moves_out(true); }) == 0);
    check("a missing event is found", wrong_runs([] { return moves_out(false); }) > 0);
    check("a copy from plain memory has read it", wrong_runs([] { return survives_reuse(false); }) == 0);
    check("pinned memory used again too early is found", wrong_runs([] { return survives_reuse(true); }) > 0);
    wn_sim_order(WN_SIM_LAZY, WN_SIM_FORWARD, 1);
    streams s;
    device<float> x(N);
    LAUNCH(add_one, 1, N, 0, s.compute, x.at);
    cudaEventRecord(s.event, s.compute);
    check("a lazy stream has not run",
          cudaStreamQuery(s.compute) == cudaErrorNotReady && cudaEventQuery(s.event) == cudaErrorNotReady);
    check("a wait for an event runs it", cudaEventSynchronize(s.event) == cudaSuccess &&
                                             cudaEventQuery(s.event) == cudaSuccess &&
                                             cudaStreamQuery(s.compute) == cudaSuccess);
    wn_sim_reset();
}

/* ---- memory and faults --------------------------------------------------------------------------------------------
 * */

static void check_limit(void)
{
    struct wn_sim_counters before, after;
    void *p = NULL, *q = NULL;
    wn_sim_counters(&before);
    wn_sim_limit(before.live + 1000);
    check("the last byte of the limit is given",
          cudaMalloc(&p, 999) == cudaSuccess && cudaMalloc(&q, 1) == cudaSuccess);
    wn_sim_counters(&after);
    check("the counters know the bytes alive", after.live == before.live + 1000);
    check("a byte more is not", cudaMalloc(&q, 1) == cudaErrorMemoryAllocation && q == NULL);
    check("the error is told once",
          cudaGetLastError() == cudaErrorMemoryAllocation && cudaGetLastError() == cudaSuccess);
    wn_sim_reset();
    cudaDeviceReset();
    wn_sim_counters(&after);
    check("a reset of the device frees all", after.live == 0);
}

static void check_memory(void)
{
    device<float> x(N), y(N);
    x.get();
    check("new memory is NaN", x.host[0] != x.host[0] && (uintptr_t)x.at % 256 == 0);
    cudaMemset(x.at, 0, N * sizeof(float));
    x.get();
    check("cudaMemset fills", x.host[N - 1] == 0);
    check("a copy the wrong way is refused", cudaMemcpy(x.host.data(), y.at, N, cudaMemcpyHostToDevice) != cudaSuccess);
    wn_sim_reset();
    check("a copy past an allocation is refused",
          cudaMemcpy(x.at, y.at, N * sizeof(float) + 1, cudaMemcpyDeviceToDevice) != cudaSuccess);
    wn_sim_reset();
}

/* A pipe is written from memory that the host must not touch: the system refuses with an error, so nothing crashes. */
static void check_guard(void)
{
    device<float> x(N);
    int ends[2];
    if (pipe(ends) != 0) return;
    wn_sim_guard((int64_t)1 << 40);
    check("code of the host cannot read the device's memory", write(ends[1], x.at, 4) == -1);
    wn_sim_guard(0);
    check("without a guard it can", write(ends[1], x.at, 4) == 4);
    close(ends[0]);
    close(ends[1]);
    wn_sim_reset();
}

static __global__ void write_at(float *x, int i)
{
    x[i] = 1;
}

/* A segment with two parts of N floats, and what a planted bug does to them. */
struct heap {
    char *segment;
    float *a, *b; /* b is behind a and its red zone */
    heap(void) : segment(NULL)
    {
        wn__sim_segment((void **)&segment, 1 << 20);
        a = (float *)segment;
        b = a + N + WN_SIM_GAP / sizeof(float);
        wn__sim_part_take(a, N * sizeof(float), NULL);
        wn__sim_part_take(b, N * sizeof(float), NULL);
    }
    ~heap()
    {
        wn_sim_order(WN_SIM_EAGER, WN_SIM_FORWARD, 1);
        if (segment != NULL) {
            wn__sim_part_give(a, NULL);
            wn__sim_part_give(b, NULL);
        }
        cudaFree(segment);
        wn_sim_mend();
    }
    heap(const heap &) = delete;
};

static void check_parts(void)
{
    heap h;
    device<float> x(N);
    check("a copy inside of a part is made", cudaMemcpy(h.b, x.at, N * sizeof(float), cudaMemcpyDeviceToDevice) == 0);
    wn__sim_part_give(h.b, NULL);
    wn__sim_part_take(h.b, N * sizeof(float) / 2, NULL);
    check("a part that changed hands has red zones", wn_sim_overrun() == 0 && wn__sim.count.parts == 2);
    check("a copy past a part is refused",
          cudaMemcpy(h.b, x.at, N * sizeof(float), cudaMemcpyDeviceToDevice) != cudaSuccess);
    wn_sim_mend();
#ifdef __SANITIZE_ADDRESS__
    skip("writes between parts", "AddressSanitizer ends the process at the first");
#else
    LAUNCH(write_at, 1, 1, 0, NULL, h.a, N);
    check("a write between parts is found",
          wn_sim_overrun() == 1 && strstr(wn_sim_report(), "something wrote byte 1024") != NULL);
#endif
}

static void check_part_faults(void)
{
    {
        heap h;
        wn__sim_part_take(h.a + N, N * sizeof(float), NULL);
        check_lost("a part over another is found", "is where another one is");
        wn__sim_part_take(h.segment + (1 << 20), 256, NULL);
        check_lost("a part outside of its segment is found", "outside of its segment");
        wn__sim_part_give(h.a + 64, NULL);
        check_lost("a part that nobody has is found", "nobody has");
        cudaFree(h.segment);
        check_lost("a part of a freed segment is found", "was freed with a part in it");
        h.segment = NULL;
    }
    heap h;
#ifndef __SANITIZE_ADDRESS__
    wn__sim_part_give(h.a, NULL);
    LAUNCH(write_at, 1, 1, 0, NULL, h.a, 3);
    wn__sim_part_take(h.a, N * sizeof(float), NULL);
    check_lost("a write to idle memory is found", "wrote byte 12 of idle memory");
#endif
    wn_sim_order(WN_SIM_LAZY, WN_SIM_FORWARD, 1);
    LAUNCH(write_at, 1, 1, 0, NULL, h.b, 3);
    wn__sim_part_give(h.b, NULL);
    wn__sim_part_take(h.b, 256, NULL);
    check("what a stream was given before a part changed hands may write to it",
          cudaDeviceSynchronize() == cudaSuccess && wn_sim_overrun() == 0);
}

static void check_pages(void)
{
    const int64_t mib = 1 << 20, before = wn__sim.count.taken;
    size_t left = 0, total = 0;
    void *p = NULL, *q = NULL;
    wn_sim_limit(before + 4 * mib);
    check("an allocation of a MiB takes two", cudaMalloc(&p, (size_t)mib) == cudaSuccess &&
                                                  cudaMemGetInfo(&left, &total) == cudaSuccess &&
                                                  (int64_t)left == 2 * mib && (int64_t)total == before + 4 * mib);
    check("so a smaller one is refused", cudaMalloc(&q, (size_t)(2 * mib + 1)) == cudaErrorMemoryAllocation);
    cudaFree(p);
    check("and given when that is freed", cudaMalloc(&q, (size_t)(2 * mib + 1)) == cudaSuccess);
    cudaFree(q);
    wn_sim_reset();
}

static void check_faults(void)
{
    streams s;
    device<float> x(N);
    void *p = NULL;
    wn_sim_fail(WN_SIM_MALLOC, 2);
    check("the first allocation is given", cudaMalloc(&p, 64) == cudaSuccess && wn_sim_fails_in(WN_SIM_MALLOC) == 1);
    cudaFree(p);
    check("the second fails", cudaMalloc(&p, 64) == cudaErrorMemoryAllocation);
    wn_sim_reset();
    wn_sim_fail(WN_SIM_LAUNCH, 1);
    LAUNCH(add_one, 1, N, 0, s.compute, x.at);
    check("a launch fails", cudaGetLastError() != cudaSuccess && cudaGetLastError() == cudaSuccess);
    LAUNCH(add_one, 1, 1025, 0, s.compute, x.at);
    check("a block of 1,025 threads is refused", cudaGetLastError() == cudaErrorInvalidConfiguration);
    LAUNCH(add_one, 1, N, 64 << 10, s.compute, x.at);
    check("64 KiB of shared memory are refused", cudaGetLastError() == cudaErrorInvalidConfiguration);
    cudaFuncSetAttribute(add_one, cudaFuncAttributeMaxDynamicSharedMemorySize, 64 << 10);
    LAUNCH(add_one, 1, N, 64 << 10, s.compute, x.at);
    check("and given to a kernel that has leave", cudaGetLastError() == cudaSuccess);
    wn_sim_fail(WN_SIM_ASYNC, 1);
    wn_sim_order(WN_SIM_LAZY, WN_SIM_FORWARD, 1);
    LAUNCH(add_one, 1, N, 0, s.compute, x.at);
    check("a kernel that will fail has started", cudaGetLastError() == cudaSuccess);
    check("the wait finds the error", cudaStreamSynchronize(s.compute) == cudaErrorIllegalAddress);
    check("and it stays", cudaMalloc(&p, 64) == cudaErrorIllegalAddress &&
                              cudaGetLastError() == cudaErrorIllegalAddress &&
                              cudaGetLastError() == cudaErrorIllegalAddress);
    wn_sim_reset();
    check("a device that was mended works", cudaMalloc(&p, 64) == cudaSuccess && cudaFree(p) == cudaSuccess);
}

void check_runtime(void)
{
    check_streams();
    check_memory();
    check_guard();
    check_faults();
    check_parts();
    check_part_faults();
    check_pages();
    check_limit();
}

/* ---- random words
 * --------------------------------------------------------------------------------------------------- */

#if __has_include(<curand_philox4x32_x.h>)
#define QUALIFIERS static inline
#include <curand_philox4x32_x.h>

static bool has_words_of_curand(uint64_t seed, uint64_t number, uint64_t q)
{
    uint32_t mine[4];
    wn_philox(seed, number, q, mine);
    uint4 counter = {(unsigned)q, (unsigned)(q >> 32), (unsigned)number, (unsigned)(number >> 32)};
    uint2 key = {(unsigned)seed, (unsigned)(seed >> 32)};
    uint4 theirs = curand_Philox4x32_10(counter, key);
    return mine[0] == theirs.x && mine[1] == theirs.y && mine[2] == theirs.z && mine[3] == theirs.w;
}

void check_random(void)
{
    uint32_t word[4];
    int equal = 0;
    for (uint64_t i = 0; i < 1000; i++) {
        wn_philox(2024, 0, i, word);
        uint64_t seed = (uint64_t)word[0] << 32 | word[1], number = (uint64_t)word[2] << 32 | word[3];
        equal += has_words_of_curand(seed, number, i % 2 == 0 ? i : seed ^ number);
    }
    check("1,000 quads of random words are cuRAND's", equal == 1000);
}
#else
void check_random(void)
{
    skip("random words of cuRAND", "its header is not here");
}
#endif
