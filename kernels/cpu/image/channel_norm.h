/* The door of channel_norm.c for channel.c. */
#ifndef WN_CPU_CHANNEL_NORM_H
#define WN_CPU_CHANNEL_NORM_H
#include "../../kernel.h"

/* Returns the kernel of BATCH_NORM, BATCH_NORM_DX, BATCH_NORM_MAP or RELU_NORM_DX; NULL where there is none. */
wn_kernel_fn wn__cpu_batch_norm_kernel(const struct wn_desc *d);
#endif
