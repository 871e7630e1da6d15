/* The status of launches, and what limits them. */
#include "launch.cuh"

int32_t wn__cuda_launched(void)
{
    cudaError_t e = cudaGetLastError();
    if (e == cudaSuccess) return WN_OK;
    if (e == cudaErrorMemoryAllocation) /* the driver loads a kernel at its first launch */
        return wn__fail(WN_OOM, "out of memory: the GPU has none left to load a kernel; leave it some MiB more");
    return wn__fail(WN_DEVICE, "cuda: a kernel did not start: %s", cudaGetErrorString(e));
}

int32_t wn__shared_most(void)
{
    int device = 0, bytes = 0;
    if (cudaGetDevice(&device) != cudaSuccess) return 0;
    return cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device) == cudaSuccess ? bytes : 0;
}
