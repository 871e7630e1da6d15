#include "conv_store.cuh"
bool wn__conv_mma(const struct wn__conv_job &j, void *stream, int32_t *status)
{
    (void)j, (void)stream, (void)status;
    return false;
}
