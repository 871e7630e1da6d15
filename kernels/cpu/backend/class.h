/* Classes of processors. The kernels of this folder are compiled once for each class that the target of the compiler
 * can have (Makefile, CLASSES): the same loops by its vectors, and the micro-kernels of its own folder.
 *
 *     plain     what every processor of the target has
 *     avx2      x86-64 with AVX2 and FMA
 *     avx512    x86-64 with AVX-512 F, DQ, BW and VL
 *     neon      aarch64, all of them
 *
 * The objects of a class are linked into one whose only symbol is wn__cpu_class_<name>; what is compiled once, for all
 * classes, is in backend/. A process uses one class, from its first kernel to its last. */
#ifndef WN_CPU_CLASS_H
#define WN_CPU_CLASS_H
#include "../../kernel.h"

/* The kernels of a class. */
struct wn__cpu_class {
    const char *name; /* as WANE_KERNELS has it */
    wn_kernel_fn (*find)(const struct wn_desc *d);
    const char *(*text)(void); /* the instruction sets of products, in words */
};

/* Chooses the class of this process: the one that `named` says, where this processor has it, else the fastest that it
 * has; NULL, "" and "auto" name none. Returns NULL, or why the named class is not used, in one line. */
const char *wn__cpu_class_start(const char *named);
/* Returns the class of this process; before wn__cpu_class_start, the fastest. */
const struct wn__cpu_class *wn__cpu_class(void);
/* Returns the class and its instruction sets, in words. */
const char *wn__cpu_class_text(void);
/* Returns whether the processor multiplies pairs of bf16 by AVX-512. */
int32_t wn__cpu_has_avx512_bf16(void);
#endif
