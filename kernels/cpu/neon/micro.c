/* The micro-kernels of the class neon (common/micro.h). */
#include "../gemm/gemm.h"
#include "../common/micro.h"

const struct wn__micro wn__micro = {.gemm = &wn__gemm_neon, .text = "NEON"};
