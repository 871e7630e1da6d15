/* The door of a class: finds the kernel of an application in two steps. The op table names the family, the family picks
 * by dtype. A family that is not built is a link error; an op that its family forgot gives NULL here and fails
 * spec/op_spec.lua. */
#include <stddef.h>
#include "backend/class.h"
#include "common/cpu.h"
#include "gemm/driver.h"
#include "common/micro.h"

wn_kernel_fn wn__cpu_leaf_kernel(const struct wn_desc *d)
{
    (void)d;
    return NULL; /* the runtime makes leaves, and moves what is among ranks */
}

typedef wn_kernel_fn (*family_lookup)(const struct wn_desc *d);

static const family_lookup lookup[WN_OP_COUNT] = {
#define OP(NAME, name, lo, hi, family, flags, operands, autocast, positions) [WN_OP_##NAME] = wn__cpu_##family##_kernel,
#include "../../runtime/op.def"
#undef OP
};

wn_kernel_fn wn_cpu_kernel(const struct wn_desc *d)
{
    if (d->op < 0 || d->op >= WN_OP_COUNT) return NULL;
    return lookup[d->op](d);
}

static const char *text(void)
{
    return wn__gemm_words_bf16().per == 2 ? wn__micro.text_bf16 : wn__micro.text;
}

/* WN_CPU_CLASS, the name of the class, comes from the Makefile. */
#define WORD(name) #name
#define NAME_OF(name) WORD(name)
#define SYMBOL(name) wn__cpu_class_##name
#define SYMBOL_OF(name) SYMBOL(name)
const struct wn__cpu_class SYMBOL_OF(WN_CPU_CLASS) = {
    .name = NAME_OF(WN_CPU_CLASS), .find = wn_cpu_kernel, .text = text};
