/* Shares between the files of the self-test: telling what came of a check, and arrays on host and device. */
#ifndef WN_SIM_SELFTEST_H
#define WN_SIM_SELFTEST_H
#include <vector>
#include "sim.h"

/* Prints what came of a check. */
void check(const char *name, bool is_right);
void skip(const char *name, const char *why);
/* Checks that the device is lost and its report has `words`; then mends it. */
void check_lost(const char *name, const char *words);

/* The parts of the self-test (selftest.cu, selftest_runtime.cu, selftest_graphs.cu, selftest_watch.cu). */
void check_runtime(void);
void check_graphs(void);
void check_random(void);
void check_watch(void);

/* An array of n elements: `host` and its copy at `at` on the device. */
template <class T> struct device {
    std::vector<T> host;
    T *at;
    explicit device(size_t n) : host(n), at(NULL)
    {
        cudaMalloc((void **)&at, n * sizeof(T));
    }
    ~device()
    {
        cudaFree(at);
    }
    device(const device &) = delete;
    void put(void)
    {
        cudaMemcpy(at, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice);
    }
    void get(void)
    {
        cudaMemcpy(host.data(), at, host.size() * sizeof(T), cudaMemcpyDeviceToHost);
    }
};
#endif
