/* The micro-kernels of the class avx2 (micro.h). */
#include "../attention/attention.h"
#include "../gemm/gemm.h"
#include "../micro.h"
#include "../rows.h"

const struct wn__micro wn__micro = {
    .gemm = &wn__gemm_avx2, .attention = &wn__attention_avx2, .rows = &wn__rows_avx2, .text = "AVX2"};
