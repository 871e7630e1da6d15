/* Products and convolutions by oneDNN, where this machine has it.
 *
 * The library is opened at run time and called through own declarations, so that nothing of it is needed to build. Only
 * the files onednn*.c know how versions 2 and 3 differ. What it computes keeps the contract of kernel.h: it is made
 * when a plan is loaded, its scratch is the plan's, and it takes no other memory; f32 stays f32, bf16 is summed in f32
 * and rounded once, with the bias; equal shapes, data and threads give equal bits. library.c says which applications
 * are computed here. */
#ifndef WN_CPU_ONEDNN_H
#define WN_CPU_ONEDNN_H
#include "../../../runtime/base/window.h"
#include "../../kernel.h"
#include "../gemm/gemm.h"

/* Opens the first usable library of `names`, a list that ends with NULL; NULL: of the usual names. Returns whether
 * there is one. Only the first call looks for it. */
int32_t wn__onednn_open(const char *const *names);
/* Returns the version, "2.6.3", or why there is none. */
const char *wn__onednn_text(void);
/* Returns the number of applications that the library has ready. */
int32_t wn__onednn_ready(void);

/* ---- products (onednn.c) ------------------------------------------------------------------------- */

/* Returns whether the library has products of a dtype for this processor that take no memory beside the plan's: it has
 * them where the processor has AVX-512, and version 3 in some dtypes where it has AVX2. Asks for one, of 256 x 256 x
 * 256. Requires that wn__onednn_open returned 1. */
int32_t wn__onednn_has(int32_t dtype);
/* Makes the product p ready, whose pointers are not read. bytes: the scratch that it may take; becomes what it takes.
 * *out is NULL where the library has no implementation that fits; equal p get equal answers. WN_OOM. */
int32_t wn__onednn_make(const struct wn__gemm *p, int32_t dtype, int32_t has_bias, int64_t *bytes,
                        struct wn_made **out);
/* Computes c = op(a) op(b) + bias of p, without the epilogue of p. scratch: the bytes that wn__onednn_make said.
 * WN_DEVICE where the library fails. */
int32_t wn__onednn_run(struct wn_made *made, const struct wn__gemm *p, void *scratch);

/* ---- convolutions (onednn_conv.c) ---------------------------------------------------------------- */

/* A convolution, or one of its gradients. Images have their channels last; x: (n, h, w, c), y: (n, oh, ow, o). */
struct wn__onednn_conv {
    int32_t op; /* WN_OP_CONV2D: y = x w + bias; WN_OP_CONV2D_DX: x from y and w; WN_OP_CONV2D_DW: w from x and y */
    int32_t dtype, has_bias;
    struct wn__window window;
    int64_t weight[5]; /* elements from one group of w to the next, from one output of a group, from one input of a
                        * group, from one row of the kernel, from one column */
    void *x, *w, *y;
    const void *bias; /* (o) */
};
/* Returns whether the library has convolutions of a dtype for this processor that take no memory beside the plan's.
 * Asks for one. Requires that wn__onednn_open returned 1. */
int32_t wn__onednn_has_conv(int32_t dtype);
/* Makes c ready, whose pointers are not read, like wn__onednn_make. */
int32_t wn__onednn_make_conv(const struct wn__onednn_conv *c, int64_t *bytes, struct wn_made **out);
/* Computes c. scratch: the bytes that wn__onednn_make_conv said. WN_DEVICE where the library fails. */
int32_t wn__onednn_run_conv(struct wn_made *made, const struct wn__onednn_conv *c, void *scratch);
#endif
