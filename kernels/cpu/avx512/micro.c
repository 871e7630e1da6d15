/* The micro-kernels of the class avx512 (common/micro.h). */
#include "../attention/attention.h"
#include "../gemm/gemm.h"
#include "../common/micro.h"
#include "../row/rows.h"
#include "../index/transpose.h"

const struct wn__micro wn__micro = {.gemm = &wn__gemm_avx512,
                                    .gemm_bf16 = &wn__gemm_bf16_avx512,
                                    .attention = &wn__attention_avx512,
                                    .rows = &wn__rows_avx512,
                                    .transpose = wn__transpose_avx512,
                                    .text = "AVX-512",
                                    .text_bf16 = "AVX-512, bf16 too"};
