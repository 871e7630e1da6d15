/* The micro-kernels of the class neon (micro.h). */
#include "../gemm/gemm.h"
#include "../micro.h"

const struct wn__micro wn__micro = {.gemm = &wn__gemm_neon, .text = "NEON"};
