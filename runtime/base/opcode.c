/* The rows of op.def: see opcode.h. */
#include "opcode.h"

/* The words of op.def's flag column. */
#define FLAG(name, bit) name = bit
enum { WN_OP_FLAGS(FLAG) };

/* Rows {name, least, most, flags, operands, autocast, positions}. */
const struct wn__op_row wn__op_rows[] = {
#define OP(NAME, name, lo, hi, family, flags, operands, autocast, positions)                                           \
    [WN_OP_##NAME] = {#name, lo, hi, flags, operands, #autocast, #positions},
#include "../op.def"
#undef OP
};
_Static_assert(sizeof wn__op_rows / sizeof wn__op_rows[0] == WN_OP_COUNT, "one row an op");
