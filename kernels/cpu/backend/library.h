/* Products and convolutions that a library computes in the place of own kernels: which ones, on which processors. The
 * library is oneDNN (onednn.h); only this pair of files, matmul.c and conv/made.c call it. */
#ifndef WN_CPU_LIBRARY_H
#define WN_CPU_LIBRARY_H
#include <stdint.h>
#include "../../kernel.h"

/* Opens the library where `use` (enum wn_library_use) and this processor let it, and notes in the target what it
 * computes: the dtypes, the scratch, and weights without panels, since the library cannot read panels. */
void wn__cpu_library_start(int32_t use, struct wn__target *t);

/* Returns the use that wn__cpu_library_start was given last. */
int32_t wn__cpu_library_use(void);

/* Returns in one line what there is of the library and what it computes. */
const char *wn__cpu_library_text(void);

/* Returns whether a library computes this product, or the product under the epilogue of a MATMUL_MAP or LINEAR_MAP. */
int32_t wn__cpu_is_library_product(const struct wn__target *t, const struct wn_desc *d);
/* Returns whether a library computes this convolution or gradient of one, or the convolution of a CONV2D_MAP. */
int32_t wn__cpu_is_library_conv(const struct wn__target *t, const struct wn_desc *d);
/* Returns whether a library computes this application. */
int32_t wn__cpu_is_library_op(const struct wn__target *t, const struct wn_desc *d);
/* Returns the bytes that a library may take at most for an application that it computes. */
int64_t wn__cpu_library_bytes(const struct wn__target *t, const struct wn_desc *d);
#endif
