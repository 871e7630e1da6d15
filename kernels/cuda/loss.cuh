/* The door between loss.cu and row_stats.cu. */
#ifndef WN_CUDA_LOSS_CUH
#define WN_CUDA_LOSS_CUH
#include "launch.cuh"

enum { WN_STATS_ONCE_LEAST = 2048 }; /* elements of a row; shorter ones have no block of their own */

/* Starts ROW_STATS of rows of bf16 by a kernel that reads a row once. Returns 1; 0: it is not for this shape or GPU. */
int32_t wn__row_stats_once(const struct wn_desc *d, const struct wn_buffers *b, void *stream);
#endif
