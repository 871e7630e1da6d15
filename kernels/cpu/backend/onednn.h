/* Large bf16 products by oneDNN, where the processor has AMX, which Wane's own kernels do not use.
 *
 * Which products the library computes follows from the description and the target alone. Its results keep the contract
 * of kernel.h: sums in f32 over ascending k, rounded once with the bias, and equal bits whatever the number of threads.
 * A product has the same bits with an elementwise op over it and without. */
#ifndef WN_CPU_ONEDNN_H
#define WN_CPU_ONEDNN_H
#include "../../kernel.h"
#include "../gemm/gemm.h"

/* Opens the library where `use` (enum wn_library_use) and this processor let it, and notes in the target that it
 * computes products of bf16. Returns NULL, or why `on` cannot be followed and what is used instead, in one line. */
const char *wn__onednn_start(int32_t use, struct wn__target *t);
/* Returns what the library computes in this process, in words that follow those of the kernels; "": nothing. */
const char *wn__onednn_text(void);
/* Returns the bytes of scratch of an application that the library computes, 0 for one of own kernels. */
int64_t wn__onednn_workspace(const struct wn__target *t, const struct wn_desc *d);
/* Returns whether the library computes this product in this process. */
int32_t wn__onednn_takes(const struct wn_desc *d);
/* Computes a product that wn__onednn_takes, without its epilogue. WN_DEVICE where the library fails. */
int32_t wn__onednn_run(const struct wn__gemm *p, void *workspace);
#endif
