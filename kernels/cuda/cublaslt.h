/* Products by cuBLASLt, where this machine has it.
 *
 * The library is opened at run time and called through own declarations, so that nothing of it is needed to build. It
 * computes products of bf16, but for large ones where rows of the result alone lie on no 16 bytes, as logits of 50257
 * words (own tiles are faster), and, of f32, those that PRODUCT_UPDATE never computes: opt:step(loss) and three lines
 * have the same bits. Of f32 it computes none of few rows (few_rows.cu). f32 stays f32 unless wane.tf32 was asked for;
 * bf16 is summed in f32 and rounded once, with the bias. The algorithm follows from shape, dtype, transposes, bias and
 * tf32 alone: it takes no workspace and adds no parts of a sum in an order of their own, so no budget and no other
 * value changes a bit, and a plan for a GPU has the same bytes with the library and without. An epilogue is an own
 * kernel's, over the rounded product, so a product has the same bits with the op and without it. */
#ifndef WN_CUDA_CUBLASLT_H
#define WN_CUDA_CUBLASLT_H
#include "../kernel.h"

/* Opens the library that WANE_CUDA_LT names, else the first of the usual names; off: none. Returns the bits 1 << dtype
 * of what it computes on a GPU of this architecture, 0 where there is none. */
int32_t wn__cublaslt_open(int32_t arch);
/* Returns the version, "cuBLASLt 13.0.2", or why there is none. */
const char *wn__cublaslt_text(void);
/* Makes an application ready. library: the bits of the device's target. *out is NULL where an own kernel computes it;
 * equal applications get equal answers. What it makes lives as long as the process, once a shape. WN_DEVICE where the
 * library fails, WN_OOM. */
int32_t wn__cublaslt_make(const struct wn_desc *d, int32_t library, const void **out);
/* Starts an application that is ready (b->made) on the stream. WN_DEVICE where the library fails. */
int32_t wn__cublaslt_run(const struct wn_desc *d, const struct wn_buffers *b, void *stream);
#endif
