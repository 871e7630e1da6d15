/* oneDNN for products, where this machine has it: opened at run time, never linked, and asked through own declarations,
 * so that nothing of it is needed to build. Version 2 and 3 differ in how a product is described; nobody outside
 * onednn.c knows. What it makes is held to the contract of kernel.h: made when a plan is loaded, with scratch from the
 * plan and no memory of its own; f32 stays f32, bf16 is summed in f32 and rounded once, with the bias; the same bits
 * for the same shape, data and thread count. Which products go here is said in library.c. */
#ifndef WN_CPU_ONEDNN_H
#define WN_CPU_ONEDNN_H
#include "../kernel.h"
#include "gemm/gemm.h"

/* Opens the first that is usable of `names` (up to NULL), or of what it is called here when that is NULL. 1: there is
 * one; which, or what was wrong, wn__onednn_text tells. Only the first call looks. */
int32_t wn__onednn_open(const char *const *names);
const char *wn__onednn_text(void); /* "2.6.3", or why there is none */

int32_t wn__onednn_ready(void); /* how many products it has ready */

/* Makes p ready (its pointers are not looked at). bytes: the scratch it may take; becomes what it does take. *out is
 * NULL when the library has nothing that fits: the same answer each time for the same p. */
int32_t wn__onednn_make(const struct wn__gemm *p, int32_t dtype, int32_t has_bias, int64_t *bytes,
                        struct wn_made **out);
/* c = op(a) op(b) + bias of p, without p's elementwise op. */
int32_t wn__onednn_run(struct wn_made *made, const struct wn__gemm *p, void *scratch);
#endif
