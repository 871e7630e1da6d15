/* Numbers of the CPU's kernels that suit one machine better than another. They are preset from the sizes of its caches
 * and its instruction sets; `wane profile` measures which values are faster, keeps them in the file of costs, and every
 * later process sets them before its first plan. While kernels run nothing writes them. */
#ifndef WN_CPU_TUNING_H
#define WN_CPU_TUNING_H
#include "../../kernel.h"

#define WN_THREAD_GRAIN 32768 /* the thread_grain that loops have in mind when they give theirs (parallel.h) */

struct wn__tuning {
    int64_t stream_least;      /* bytes of an output from which on it is stored non-temporally (common/nontemporal.h) */
    int64_t stream_least_math; /* that of a loop that arithmetic bounds */
    int64_t stream_ahead;      /* bytes that rows are prefetched ahead of their use */
    int64_t block_ahead;       /* bytes that blocks of elementwise loops are prefetched ahead; 0: they are not */
    int64_t thread_grain; /* least elements of a thread, of a loop that memory bounds; of other loops in proportion */
    /* ---- products (gemm/driver.h) ---- */
    int64_t product_block; /* bytes of the second-level cache that a block of a product fills */
    int64_t
        product_stream;    /* bytes of a result of few steps of k from which on it is streamed; of bf16 twice as many */
    int64_t product_ahead; /* bytes that rows of a weight are prefetched ahead of their use */
    int64_t bf16_widened;  /* 1: bf16 products by f32 multiply-adds, though the processor multiplies pairs */
};
extern struct wn__tuning wn__tuning;

/* Presets all numbers for this processor. Called once, when Wane starts. */
void wn__tuning_start(void);
/* Fills *out with tunable number i, from 0 on; returns 0 where there is none. */
int32_t wn__cpu_tunable(int32_t i, struct wn_tunable *out);
/* Sets tunable number i. WN_VALUE for a value outside its limits. */
int32_t wn__cpu_tune(int32_t i, int64_t value);
#endif
