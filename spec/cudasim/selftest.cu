/* The self-test of the simulated device: kernels that are right must compute what they should in every order of threads
 * and streams, and bugs that are planted must be found. Prints a line a check, "ok NAME" or "FAIL NAME: why"; a check
 * that cannot be made here is "skip NAME: why". The exit code is 0 where none has failed.
 *
 * spec/cudasim_spec.lua runs it. */
#include <stdio.h>
#include <string>
#include "sim.h"
#include "control.h"
#include "tensor.h"
#include "selftest.h"

/* ---- kernels --------------------------------------------------------------------------------------------------- */

static __global__ void scale(const float *x, float *y, int n)
{
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < n) y[i] = 2.0f * x[i] + 1.0f;
}

/* y[block] = sum of x[block, 256]; BARRIERS: 0 leaves them out. */
template <int BARRIERS> static __global__ void sum_rows(const float *x, float *y)
{
    __shared__ float part[8];
    float v = x[blockIdx.x * blockDim.x + threadIdx.x];
    for (int by = 16; by > 0; by /= 2) v += __shfl_xor_sync(0xffffffffu, v, by);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
    if (BARRIERS) __syncthreads();
    if (threadIdx.x != 0) return;
    for (int i = 1; i < 8; i++) v += part[i];
    y[blockIdx.x] = v;
}

/* Transposes a 32x32 tile through dynamic shared memory; BARRIERS: 0 leaves them out. */
template <int BARRIERS> static __global__ void transpose(const float *x, float *y)
{
    DYN_SHARED(float, tile);
    for (unsigned i = threadIdx.y; i < 32; i += blockDim.y) tile[i * 33 + threadIdx.x] = x[i * 32 + threadIdx.x];
    if (BARRIERS) __syncthreads();
    for (unsigned i = threadIdx.y; i < 32; i += blockDim.y) y[i * 32 + threadIdx.x] = tile[threadIdx.x * 33 + i];
}

static __global__ void divide_barrier(float *y)
{
    if (threadIdx.x % 2 == 0) __syncthreads();
    else __syncthreads();
    y[threadIdx.x] = 0;
}

static __global__ void skip_barrier(float *y)
{
    if (threadIdx.x < 40) __syncthreads();
    __syncwarp();
    if (threadIdx.x == 0) __syncthreads();
    y[threadIdx.x] = 0;
}

static __global__ void shuffle_with_absent(float *y)
{
    if (threadIdx.x >= 16) return;
    y[threadIdx.x] = __shfl_xor_sync(0xffffffffu, 1.0f, 1);
}

static __global__ void write_at(float *y, int i)
{
    y[i] = 1.0f;
}

static __global__ void write_shared_at(float *y, int i)
{
    DYN_SHARED(float, row);
    row[i] = 1.0f;
    y[0] = row[i];
}

static __global__ void read_shared(float *y)
{
    __shared__ float row[32];
    if (threadIdx.x == 0) row[0] = 1.0f;
    __syncthreads();
    y[threadIdx.x] = row[threadIdx.x];
}

/* Sets y[c] = x[c + 32] for 4 floats c of each of 8 threads, through two stages of copies. LEFT: groups that the last
 * wait leaves under way; right is 0. */
template <int LEFT> static __global__ void copy_stages(const float *x, float *y)
{
    __shared__ __align__(16) float stage[2][32];
    unsigned at = threadIdx.x * 4;
    for (int s = 0; s < 2; s++) {
        wn__cp_async16(&stage[s][at], x + 32 * s + at);
        wn__cp_async_commit();
    }
    wn__cp_async_wait<LEFT>();
    __syncthreads();
    unsigned other = (at + 4) % 32;
    for (int i = 0; i < 4; i++) y[other + i] = stage[1][other + i];
}

/* Copies into a stage that other threads may still read; BARRIERS: 0 leaves the second barrier out. */
template <int BARRIERS> static __global__ void reuse_stage(const float *x, float *y)
{
    __shared__ __align__(16) float stage[32];
    unsigned at = threadIdx.x * 4, other = (at + 4) % 32;
    for (int s = 0; s < 2; s++) {
        wn__cp_async16(&stage[at], x + 32 * s + at);
        wn__cp_async_commit();
        wn__cp_async_wait<0>();
        __syncthreads();
        for (int i = 0; i < 4; i++) y[32 * s + other + i] = stage[other + i];
        if (BARRIERS) __syncthreads();
    }
}

/* D = A B' for A (16, 16) and B (8, 16), bf16, row-major; D (16, 8). IS_TRANSPOSED: B is (16, 8) instead,
 * and D = A B. */
template <int IS_TRANSPOSED> static __global__ void product(const uint16_t *a, const uint16_t *b, float *d)
{
    __shared__ __align__(16) uint16_t sa[16][24], sb[16][24];
    unsigned lane = threadIdx.x, wide = IS_TRANSPOSED ? 8 : 16, rows = IS_TRANSPOSED ? 16 : 8;
    for (unsigned i = lane; i < 256; i += 32) sa[i / 16][i % 16] = a[i];
    for (unsigned i = lane; i < rows * wide; i += 32) sb[i / wide][i % wide] = b[i];
    __syncwarp();
    uint32_t fa[4], fb[4];
    float sum[4] = {0, 0, 0, 0};
    wn__ldmatrix_x4(fa, &sa[lane % 16][lane / 16 * 8]);
    if (IS_TRANSPOSED) wn__ldmatrix_x4_trans(fb, &sb[lane % 16][0]);
    else wn__ldmatrix_x4(fb, &sb[lane % 8][lane / 8 % 2 * 8]);
    wn__mma_bf16_16816(sum, fa, fb);
    for (unsigned i = 0; i < 4; i++) d[(lane / 4 + i / 2 * 8) * 8 + lane % 4 * 2 + i % 2] = sum[i];
}

static uint16_t to_bf16(float x)
{
    return (uint16_t)(wn__sim_bits<uint32_t>(x) >> 16);
}

static float of_bf16(uint16_t x)
{
    return wn__sim_bits<float>((uint32_t)x << 16);
}

/* ---- kernels in every order ---------------------------------------------------------------------------------------
 * */

/* Returns how many of 40 runs, 10 in each order of threads, gave other values than `right` does. */
static int wrong_runs(const std::function<bool()> &is_right)
{
    int wrong = 0;
    for (int order = WN_SIM_FORWARD; order <= WN_SIM_AHEAD; order++)
        for (int seed = 1; seed <= 10; seed++) {
            wn_sim_order(WN_SIM_EAGER, order, (uint64_t)seed);
            if (!is_right()) wrong++;
        }
    wn_sim_reset();
    return wrong;
}

static bool scales(void)
{
    device<float> x(1000), y(1000);
    for (int i = 0; i < 1000; i++) x.host[i] = (float)i;
    x.put();
    LAUNCH(scale, 4, 256, 0, NULL, x.at, y.at, 1000);
    y.get();
    for (int i = 0; i < 1000; i++)
        if (y.host[i] != 2.0f * (float)i + 1.0f) return false;
    return wn_sim_overrun() == 0;
}

template <int BARRIERS> static bool sums(void)
{
    device<float> x(3 * 256), y(3);
    for (int i = 0; i < 3 * 256; i++) x.host[i] = (float)(i % 7);
    x.put();
    LAUNCH(sum_rows<BARRIERS>, 3, 256, 0, NULL, x.at, y.at);
    y.get();
    for (int row = 0; row < 3; row++) {
        float sum = 0;
        for (int i = 0; i < 256; i++) sum += x.host[row * 256 + i];
        if (y.host[row] != sum) return false;
    }
    return true;
}

template <int BARRIERS> static bool transposes(void)
{
    device<float> x(1024), y(1024);
    for (int i = 0; i < 1024; i++) x.host[i] = (float)i;
    x.put();
    LAUNCH(transpose<BARRIERS>, 1, dim3(32, 8), 32 * 33 * sizeof(float), NULL, x.at, y.at);
    y.get();
    for (int i = 0; i < 1024; i++)
        if (y.host[i] != x.host[i % 32 * 32 + i / 32]) return false;
    return true;
}

template <int LEFT> static bool copies_stages(void)
{
    device<float> x(64), y(32);
    for (int i = 0; i < 64; i++) x.host[i] = (float)i;
    x.put();
    LAUNCH(copy_stages<LEFT>, 1, 8, 0, NULL, x.at, y.at);
    y.get();
    return memcmp(y.host.data(), x.host.data() + 32, 32 * sizeof(float)) == 0;
}

template <int BARRIERS> static bool reuses_stage(void)
{
    device<float> x(64), y(64);
    for (int i = 0; i < 64; i++) x.host[i] = (float)i;
    x.put();
    LAUNCH(reuse_stage<BARRIERS>, 1, 8, 0, NULL, x.at, y.at);
    y.get();
    return memcmp(y.host.data(), x.host.data(), 64 * sizeof(float)) == 0;
}

template <int IS_TRANSPOSED> static bool multiplies(void)
{
    device<uint16_t> a(256), b(128);
    device<float> d(128);
    for (int i = 0; i < 256; i++) a.host[i] = to_bf16((float)(i * 37 % 17 - 8));
    for (int i = 0; i < 128; i++) b.host[i] = to_bf16((float)(i * 53 % 23 - 11));
    a.put();
    b.put();
    LAUNCH(product<IS_TRANSPOSED>, 1, 32, 0, NULL, a.at, b.at, d.at);
    d.get();
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 8; j++) {
            float sum = 0;
            for (int k = 0; k < 16; k++)
                sum += of_bf16(a.host[i * 16 + k]) * of_bf16(b.host[IS_TRANSPOSED ? k * 8 + j : j * 16 + k]);
            if (d.host[i * 8 + j] != sum) return false;
        }
    return true;
}

static void check_kernels(void)
{
    check("a kernel without barriers", wrong_runs(scales) == 0);
    check("sums through warps and shared memory", wrong_runs(sums<1>) == 0);
    check("sums without their barrier are found", wrong_runs(sums<0>) > 0);
    check("a transpose through shared memory", wrong_runs(transposes<1>) == 0);
    check("a transpose without its barrier is found", wrong_runs(transposes<0>) > 0);
    check("copies in two stages", wrong_runs(copies_stages<0>) == 0);
    check("a wait that leaves a group too many is found", wrong_runs(copies_stages<1>) > 0);
    check("a stage that is used again", wrong_runs(reuses_stage<1>) == 0);
    check("a stage used again without a barrier is found", wrong_runs(reuses_stage<0>) > 0);
    check("mma.sync of matrices by ldmatrix", wrong_runs(multiplies<0>) == 0);
    check("mma.sync of matrices by ldmatrix.trans", wrong_runs(multiplies<1>) == 0);
}

/* Checks the races that the watch finds in one order of threads; does nothing in builds without it. */
static void check_races(void)
{
    static const struct {
        const char *name;
        bool (*run)(void);
        bool is_planted;
    } rows[] = {
        {"elementwise", scales, false},
        {"sums", sums<1>, false},
        {"sums without their barrier", sums<0>, true},
        {"a transpose", transposes<1>, false},
        {"a transpose without its barrier", transposes<0>, true},
        {"copies in two stages", copies_stages<0>, false},
        {"copies with a wait too short", copies_stages<1>, true},
        {"a stage used again", reuses_stage<1>, false},
        {"a stage used again without a barrier", reuses_stage<0>, true},
        {"mma.sync", multiplies<0>, false},
        {"mma.sync, transposed", multiplies<1>, false},
    };
    struct wn_sim_touched t;
    if (!wn_sim_touched(&t)) return;
    for (const auto &row : rows) {
        wn_sim_touched(&t);
        row.run();
        wn_sim_touched(&t);
        check((std::string("races: ") + row.name).c_str(), (t.races > 0) == row.is_planted);
        wn_sim_reset();
    }
}

/* ---- errors -------------------------------------------------------------------------------------------------------
 * */

void check_lost(const char *name, const char *words)
{
    cudaError_t e = cudaDeviceSynchronize();
    bool is_lost = (e == cudaErrorLaunchFailure || e == cudaErrorIllegalAddress) && cudaPeekAtLastError() == e;
    check(name, is_lost && strstr(wn_sim_report(), words) != NULL);
    wn_sim_reset();
}

static void check_barriers(void)
{
    device<float> y(64);
    LAUNCH(divide_barrier, 1, 64, 0, NULL, y.at);
    check_lost("two __syncthreads for one are found", "different __syncthreads");
    LAUNCH(skip_barrier, 1, 64, 0, NULL, y.at);
    check_lost("a barrier that some threads skip is found", "");
    LAUNCH(shuffle_with_absent, 1, 32, 0, NULL, y.at);
    check_lost("a shuffle with a lane that has left is found", "has left");
    LAUNCH(read_shared, 1, 32, 0, NULL, y.at);
    y.get();
    check("shared memory that nobody wrote is NaN", y.host[0] == 1.0f && y.host[1] != y.host[1]);
    LAUNCH(write_at, 1, 1, 0, NULL, y.at, 0);
    y.get();
    check("a kernel after lost ones", y.host[0] == 1.0f);
}

static void check_overruns(void)
{
#ifdef __SANITIZE_ADDRESS__
    skip("writes outside allocations", "AddressSanitizer ends the process at the first");
#else
    for (int end = 0; end < 2; end++) {
        float *p = NULL;
        cudaMalloc((void **)&p, 100 * sizeof(float));
        LAUNCH(write_at, 1, 1, 0, NULL, p, end ? 100 : -1);
        check(end ? "a write past an allocation is found" : "a write before an allocation is found",
              wn_sim_overrun() == 1 && strstr(wn_sim_report(), "something wrote byte") != NULL);
        if (end) check("and when the allocation is freed", cudaFree(p) == cudaErrorIllegalAddress);
        else LAUNCH(write_at, 1, 1, 0, NULL, p, 99);
        wn_sim_reset();
    }
#endif
    device<float> y(1);
    LAUNCH(write_shared_at, 1, 1, 64, NULL, y.at, 15);
    check("the last float of dynamic shared memory", cudaDeviceSynchronize() == cudaSuccess);
    LAUNCH(write_shared_at, 1, 1, 64, NULL, y.at, 16);
    check_lost("a write past dynamic shared memory is found", "dynamic shared");
}

/* ---- the program --------------------------------------------------------------------------------------------------
 * */

static int failures;

void check(const char *name, bool is_right)
{
    if (is_right) printf("ok %s\n", name);
    else printf("FAIL %s: %s\n", name, wn_sim_report()[0] != 0 ? wn_sim_report() : "wrong values");
    fflush(stdout);
    failures += !is_right;
}

void skip(const char *name, const char *why)
{
    printf("skip %s: %s\n", name, why);
}

int main(void)
{
    check_kernels();
    check_races();
    check_barriers();
    check_runtime();
    check_overruns();
    check_graphs();
    check_random();
    check_watch();
    return failures > 0;
}
