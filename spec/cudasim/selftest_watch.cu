/* Checks the watch over memory: races that no order of fibers shows, because none of them is left between a load and a
 * store, and what warps ask of memory. Skipped in builds that do not watch. */
#include "sim.h"
#include "control.h"
#include "selftest.h"

static __global__ void add_racing(int *y)
{
    *y += 1;
}
static __global__ void add_atomically(int *y, unsigned long long *least)
{
    atomicAdd(y, 1);
    atomicMin(least, (unsigned long long)(100 - blockIdx.x));
}

/* Reads a column of a 32x32 tile with rows of WIDTH floats. */
template <int WIDTH> static __global__ void read_column(const float *x, float *y)
{
    __shared__ float tile[32][WIDTH];
    for (int i = 0; i < 32; i++) tile[i][threadIdx.x] = x[i * 32 + threadIdx.x];
    __syncwarp();
    float sum = 0;
    for (int i = 0; i < 32; i++) sum += tile[threadIdx.x][i];
    y[threadIdx.x] = sum;
}

static __global__ void read_strided(const float *x, float *y, int stride)
{
    y[threadIdx.x] = x[threadIdx.x * stride];
}

/* Returns what kernels touched while `run` did its work. */
static struct wn_sim_touched touched_by(const std::function<void()> &run)
{
    struct wn_sim_touched out;
    wn_sim_touched(&out);
    run();
    wn_sim_touched(&out);
    return out;
}

static void check_races(void)
{
    device<int> y(1);
    device<unsigned long long> least(1);
    least.host[0] = 1000;
    y.put();
    least.put();
    struct wn_sim_touched t = touched_by([&] { LAUNCH(add_racing, 8, 32, 0, NULL, y.at); });
    check("additions without atomics race", t.races > 0 && strstr(wn_sim_report(), "add_racing") != NULL);
    wn_sim_mend();
    t = touched_by([&] { LAUNCH(add_atomically, 8, 32, 0, NULL, y.at, least.at); });
    check("atomics do not race", t.races == 0);
    least.get();
    check("atomicMin keeps the least", least.host[0] == 93);
}

static void check_sectors(void)
{
    device<float> x(4096), y(32);
    for (float &v : x.host) v = 1;
    x.put();
    struct wn_sim_touched t = touched_by([&] { LAUNCH(read_strided, 1, 32, 0, NULL, x.at, y.at, 1); });
    check("a row is read in its least sectors",
          t.sectors == 8 && t.least_sectors == 8 && t.read == 128 && t.written == 128);
    t = touched_by([&] { LAUNCH(read_strided, 1, 32, 0, NULL, x.at, y.at, 32); });
    check("a column takes a sector an element", t.sectors == 32 + 4 && t.least_sectors == 8);
    t = touched_by([&] { LAUNCH(read_column<33>, 1, 32, 0, NULL, x.at, y.at); });
    check("a column of 33 words a row has no bank conflicts", t.races == 0 && t.shared_calls == 64 && t.conflicts == 0);
    t = touched_by([&] { LAUNCH(read_column<32>, 1, 32, 0, NULL, x.at, y.at); });
    check("a column of 32 words a row has 31 conflicts a read", t.shared_calls == 64 && t.conflicts == 32 * 31);
}

void check_watch(void)
{
    struct wn_sim_touched none;
    if (!wn_sim_touched(&none)) {
        skip("the watch over memory", "make cudasim-hooks builds it");
        return;
    }
    check_races();
    check_sectors();
}
