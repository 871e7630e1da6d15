/* Products by oneDNN, where this machine has it.
 *
 * The library is opened at run time and called through own declarations, so that nothing of it is needed to build. Only
 * onednn.c knows how versions 2 and 3 differ. Its products keep the contract of kernel.h: they are made when a plan is
 * loaded, their scratch is the plan's, and they take no other memory; f32 stays f32, bf16 is summed in f32 and rounded
 * once, with the bias; equal shapes, data and threads give equal bits. library.c says which products are computed
 * here. */
#ifndef WN_CPU_ONEDNN_H
#define WN_CPU_ONEDNN_H
#include "../../kernel.h"
#include "../gemm/gemm.h"

/* Opens the first usable library of `names`, a list that ends with NULL; NULL: of the usual names. Returns whether
 * there is one. Only the first call looks for it. */
int32_t wn__onednn_open(const char *const *names);
/* Returns the version, "2.6.3", or why there is none. */
const char *wn__onednn_text(void);
/* Returns whether the library has products of a dtype for this processor that take no memory beside the plan's: it has
 * them where the processor has AVX-512, and version 3 in some dtypes where it has AVX2. Asks for one, of 256 x 256 x
 * 256. Requires that wn__onednn_open returned 1. */
int32_t wn__onednn_has(int32_t dtype);
/* Returns the number of products that the library has ready. */
int32_t wn__onednn_ready(void);

/* Makes the product p ready, whose pointers are not read. bytes: the scratch that it may take; becomes what it takes.
 * *out is NULL where the library has no implementation that fits; equal p get equal answers. WN_OOM. */
int32_t wn__onednn_make(const struct wn__gemm *p, int32_t dtype, int32_t has_bias, int64_t *bytes,
                        struct wn_made **out);
/* Computes c = op(a) op(b) + bias of p, without the epilogue of p. scratch: the bytes that wn__onednn_make said.
 * WN_DEVICE where the library fails. */
int32_t wn__onednn_run(struct wn_made *made, const struct wn__gemm *p, void *scratch);
#endif
