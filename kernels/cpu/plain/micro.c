/* The micro-kernels of the class plain: the f32 one in C, and the portable loops for the rest (common/micro.h). */
#include "../gemm/gemm.h"
#include "../common/micro.h"

const struct wn__micro wn__micro = {.gemm = &wn__gemm_plain, .text = "plain C"};
