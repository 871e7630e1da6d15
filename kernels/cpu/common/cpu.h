/* Shared by the kernel files of the CPU: one lookup a family, the broadcast iterator, and sums of a row. Nothing here
 * owns memory or knows the rules of an op.
 *
 * Every kernel file has one skeleton: a head that says which ops it computes and in which order their sums are added;
 * limits with their measurements; the struct of one call; loops over [begin, end) that threads share; the kernels, one
 * function (description, buffers, stream) each; and at the end the lookup that dispatch.c calls.
 *
 * The bits of a result depend on the description and the data alone, never on the number of threads: threads share
 * outputs, and the shape of a sum follows from its length. */
#ifndef WN_CPU_H
#define WN_CPU_H
#include <stdint.h>
#include "../../../runtime/base/opcode.h"
#include "../../broadcast.h"
#include "../../kernel.h"
#include "../../sums.h"
#include "../backend/parallel.h"
#include "../backend/tuning.h"
#include "nontemporal.h"
#include "types.h"

/* The last parameter of a kernel: the CPU has no streams. */
#define WN_NO_STREAM __attribute__((unused)) void *stream

/* wn__cpu_<family>_kernel: each returns the kernel of an application, NULL where its family, or its file, has none for
 * the op with these dtypes. */
#define OP(NAME, name, lo, hi, family, flags, operands, autocast, positions)                                           \
    wn_kernel_fn wn__cpu_##family##_kernel(const struct wn_desc *d);
#include "../../../runtime/op.def"
#undef OP
wn_kernel_fn wn__cpu_argmax_kernel(const struct wn_desc *d);         /* ARGMAX (row/argmax.c) */
wn_kernel_fn wn__cpu_squares_kernel(const struct wn_desc *d);        /* SQUARES (row/squares.c) */
wn_kernel_fn wn__cpu_expand_kernel(const struct wn_desc *d);         /* EXPAND, which copies bytes (index/shape.c) */
wn_kernel_fn wn__cpu_sort_kernel(const struct wn_desc *d);           /* ARGSORT (index/sort.c) */
wn_kernel_fn wn__cpu_epilogue_kernel(const struct wn_desc *d);       /* MATMUL_MAP, LINEAR_MAP (gemm/matmul.c) */
wn_kernel_fn wn__cpu_product_update_kernel(const struct wn_desc *d); /* (gemm/product_update.c) */
wn_kernel_fn wn__cpu_conv_map_kernel(const struct wn_desc *d);       /* CONV2D_MAP (conv/map.c) */

/* Returns the kernel of any application; NULL where there is none (dispatch.c). */
wn_kernel_fn wn_cpu_kernel(const struct wn_desc *d);

/* Returns the bytes of scratch that the own kernel of an application needs (workspace.c). */
int64_t wn__cpu_workspace(const struct wn_desc *d);

#define WN_CPU_GRAIN WN_THREAD_GRAIN /* least elements of a thread, of a loop that memory bounds */
#define WN_CPU_GRAIN_MATH 8192       /* least elements of a thread, of a loop that arithmetic bounds */

/* Computes n elements of a row, from element `at` of out. offset: (n_operands), elements from the start of each
 * operand. */
typedef void (*wn__broadcast_row)(void *ctx, int64_t at, int64_t n, const int64_t *offset);
/* Calls `row` for the elements [begin, end) of out, in order. */
void wn__broadcast_range(const struct wn__broadcast *w, int64_t begin, int64_t end, wn__broadcast_row row, void *ctx);
/* Most columns of a block of a reduction down columns. A few rows of 16 columns are in registers, and lines are
 * prefetched as many rows ahead, in the order of memory. Parts of whole rows (row_parts.h) are better than blocks of
 * half of each row, because the processor's own prefetcher runs on into the other half. */
#define WN_COLUMNS 4096
/* Returns the columns of a block, at most `most`, so that every thread gets a block of `outer` times `width` columns.
 * The sum of a column does not depend on its block. */
int64_t wn__columns_together(int64_t width, int64_t outer, int64_t most);

#define WN_SAME(x) (x)

/* ---- sums of a row ------------------------------------------------------------------------------- */
#define TYPE f32
#include "row_sums.inc"
#define TYPE f64
#include "row_sums.inc"
#define TYPE bf16
#include "row_sums.inc"
#endif
