/* From an op application to its CPU kernel: the op table names the family, the family picks by element type.
 * A family that is not built is a link error; an op its family forgot gives NULL here and fails op_spec. */
#include <stddef.h>
#include "cpu.h"

static wn_kernel_fn wn__cpu_leaf_kernel(const struct wn_desc *d)
{
    (void)d;
    return NULL; /* leaves are made by the runtime */
}

typedef wn_kernel_fn (*family_lookup)(const struct wn_desc *d);

static const family_lookup lookup[WN_OP_COUNT] = {
#define OP(NAME, name, lo, hi, family, flags, operands, autocast, positions, saves)                                    \
    [WN_OP_##NAME] = wn__cpu_##family##_kernel,
#include "../../runtime/op.def"
#undef OP
};

wn_kernel_fn wn_cpu_kernel(const struct wn_desc *d)
{
    if (d->op < 0 || d->op >= WN_OP_COUNT) return NULL;
    return lookup[d->op](d);
}
