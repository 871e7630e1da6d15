/* The status of launches. */
#include "launch.cuh"

int32_t wn__cuda_launched(void)
{
    cudaError_t e = cudaGetLastError();
    if (e == cudaSuccess) return WN_OK;
    return wn__fail(WN_DEVICE, "cuda: a kernel did not start: %s", cudaGetErrorString(e));
}
