/* The table of rules: joins the rows of op.def to the rules that the family files define. Each row refers to the symbol
 * wn__rules_<name>, so an op without rules fails the link, by name. */
#include <string.h>
#include "op.h"

/* A leaf computes nothing: the runtime writes its type when it makes it, and a backward pass ends at it. */
const struct wn__rules wn__rules_cell = {.shape = NULL}, wn__rules_data = {.shape = NULL},
                       wn__rules_const = {.shape = NULL};

#define OP(NAME, name, lo, hi, family, flags, operands, autocast, positions)                                           \
    extern const struct wn__rules wn__rules_##name;
#include "../op.def"
#undef OP

const struct wn__rules *const wn__op_rules[] = {
#define OP(NAME, name, lo, hi, family, flags, operands, autocast, positions) [WN_OP_##NAME] = &wn__rules_##name,
#include "../op.def"
#undef OP
};

/* An op with a fixed number of inputs has at most WN_GRAD_MAX: the arrays of a gradient rule have that room. */
#define OP(NAME, name, lo, hi, family, flags, operands, autocast, positions)                                           \
    _Static_assert((lo) <= (hi) && (lo) <= WN_GRAD_MAX, #name);
#include "../op.def"
#undef OP

int32_t wn__op_draws(int32_t op, const struct wn_attrs *attrs)
{
    return (wn__op_flags(op) & WN_RANDOM) != 0 && (wn__op_rows[op].least == 0 || attrs->f[0] > 0);
}

int32_t wn__op_find(const char *name)
{
    for (int32_t op = 0; op < WN_OP_COUNT; op++)
        if (strcmp(wn__op_rows[op].name, name) == 0) return op;
    return -1;
}
