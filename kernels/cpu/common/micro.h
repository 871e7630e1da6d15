/* The micro-kernels of a class: what its folder (plain/, avx2/, avx512/, neon/) writes by hand, because the compiler's
 * vectors do not reach its speed. The drivers around them are the same for all classes. */
#ifndef WN_CPU_MICRO_H
#define WN_CPU_MICRO_H
#include <stdint.h>

struct wn__attention_kernel;
struct wn__gemm_bf16_kernel;
struct wn__gemm_kernel;
struct wn__rows_kernel;
struct wn__tile;

struct wn__micro {
    const struct wn__gemm_kernel *gemm;
    /* NULL: bf16 products are the f32 micro-kernel's, over elements that packing widens. Used where the processor
     * multiplies pairs of bf16 (wn__cpu_has_avx512_bf16). */
    const struct wn__gemm_bf16_kernel *gemm_bf16;
    const struct wn__attention_kernel *attention; /* NULL: the loops of attention/tile.c */
    const struct wn__rows_kernel *rows;           /* NULL: row/reduce.c reduces one row at a time */
    void (*transpose)(const struct wn__tile *t);  /* NULL: the transpose of index/shape.c */
    const char *text, *text_bf16;                 /* the instruction sets, in words: without gemm_bf16, and with it */
};
/* Each class defines this in its folder. */
extern const struct wn__micro wn__micro;
#endif
