/* The micro-kernels of the class avx2 (common/micro.h). */
#include "../attention/attention.h"
#include "../gemm/gemm.h"
#include "../common/micro.h"
#include "../row/rows.h"

const struct wn__micro wn__micro = {
    .gemm = &wn__gemm_avx2, .attention = &wn__attention_avx2, .rows = &wn__rows_avx2, .text = "AVX2"};
