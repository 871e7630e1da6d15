/* The columns of op.def that kernels read: see opcode.h. */
#include "opcode.h"

static const uint8_t operands_of[WN_OP_COUNT] = {
#define OP(NAME, name, lo, hi, family, flags, operands, autocast, positions) [WN_OP_##NAME] = operands,
#include "../op.def"
#undef OP
};

int32_t wn__elementwise_operands(int32_t op)
{
    return op >= 0 && op < WN_OP_COUNT ? operands_of[op] : 0;
}
