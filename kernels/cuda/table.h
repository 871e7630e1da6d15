/* Says which functions of bf16 are looked up in a table, for the workspace rule and the kernels alike (table.cu).
 *
 * A bf16 has 65,536 values. The table has the results for the numbers x with 2^-13 <= |x| < 2^5; the others, zeros and
 * what is no number among them, take the formula. Functions of one operand have results of bf16 there; gradients the
 * factor of dy, f32:
 *
 *     entry 2 m + s   of the number with the sign s and the lower bits WN_TABLE_FIRST + m */
#ifndef WN_CUDA_TABLE_H
#define WN_CUDA_TABLE_H
#include "../../runtime/base/desc.h"
#include "../../runtime/base/opcode.h"

enum {
    WN_TABLE_FIRST = 0x3900,                          /* the bits of 2^-13 */
    WN_TABLE_ENTRIES = 2 * (0x4200 - WN_TABLE_FIRST), /* up to the bits of 2^5, with both signs */
    WN_TABLE_WORTH = 1 << 22,                         /* least elements that are worth a second launch */
    WN_TABLE_PACK = 8                                 /* elements that a thread loads at once */
};

/* Returns the bytes of the table of an application; 0: it has none. */
static inline int64_t wn__table_bytes(const struct wn_desc *d)
{
    const int64_t n = wn__numel(&d->out);
    if (d->out.dtype != WN_BF16 || n < WN_TABLE_WORTH || n % WN_TABLE_PACK != 0) return 0;
    switch (d->op) {
    case WN_OP_GELU:
    case WN_OP_SILU:
    case WN_OP_TANH:
    case WN_OP_SIGMOID: return WN_TABLE_ENTRIES * 2;
    case WN_OP_GELU_GRAD:
    case WN_OP_SILU_GRAD: return WN_TABLE_ENTRIES * 4;
    default: return 0;
    }
}
#endif
